# bash completion of bagpipe and bagpipe-data. The words come from --help of the program that is called: jobs, commands, tools, options,
# keys and their choices are those that it has.

# Words of the lists in a help text.
_bagpipe_list() {
    sed -nE '/^(Tools|Jobs and commands):$/,/^$/ s/^  ([a-z-]+) .*/\1/p' <<<"$1"
}

# "--name", or "--name=" where it takes a value.
_bagpipe_options() {
    sed -nE 's/^  (-., |    )(--[a-z-]+)(=?).*/\2\3/p' <<<"$1"
}

# Each once: families of models may explain a key of one name.
_bagpipe_keys() {
    sed -nE 's/^  ([a-z0-9_]+\.[a-z0-9_]+)( .*|$)/\1=/p' <<<"$1" | sort -u
}

# Choices of an option or of a key ("a|b|c" in its row), one a line.
_bagpipe_choices() { # TEXT NAME
    awk -v name="$2" '
        /^  [^ ]/ || /^      --/ {
            if (row) exit
            for (k = 1; k <= 2 && k <= NF; k++)
                if ($k == name || index($k, name "=") == 1 || index($k, name "[=") == 1)
                    row = 1
        }
        row && /^$/ { exit }
        row { sub(/^ +/, ""); all = all " " $0 }
        END {
            gsub(/\| +/, "|", all) # a long list is broken into lines
            if (match(all, /[a-z0-9_-]+(\|[a-z0-9_-]+)+/)) print substr(all, RSTART, RLENGTH)
        }' <<<"$1" | tr '|' '\n'
}

# The names that complete `cur`: those given, one a line, and files.
_bagpipe_reply() { # WORDS
    local IFS=$'\n'
    COMPREPLY+=($(compgen -W "$1" -- "$cur"))
}
_bagpipe_files() { # [SUFFIX]: folders too
    local IFS=$'\n' suffix=$1
    compopt -o filenames 2>/dev/null
    COMPREPLY+=($(compgen -f -X "!*$suffix" -- "$cur"))
    [[ -z $suffix ]] || COMPREPLY+=($(compgen -d -- "$cur"))
}

# What follows "name=": a choice, or a path. Readline takes it for a word of its own where '=' parts words.
_bagpipe_value() { # TEXT NAME
    local choices before=
    [[ $cur != "$2="* || $COMP_WORDBREAKS == *=* ]] || before="$2="
    [[ $cur != "$2="* ]] || cur=${cur#"$2="}
    choices=$(_bagpipe_choices "$1" "$2")
    if [[ -n $choices ]]; then
        _bagpipe_reply "$choices"
    else
        _bagpipe_files
    fi
    COMPREPLY=("${COMPREPLY[@]/#/$before}")
}

_bagpipe() {
    local line=${COMP_LINE:0:COMP_POINT} cur= prev text program subject word kind=
    local -a words
    read -ra words <<<"$line"
    if [[ $line != *[[:space:]] ]]; then
        cur=${words[-1]}
        unset 'words[-1]'
    fi
    COMPREPLY=()
    program=${words[0]/#\~/$HOME}
    if ((${#words[@]} == 1)) || [[ ${words[1]} == help && ${#words[@]} == 2 ]]; then
        text=$("$program" --help 2>/dev/null)
        _bagpipe_reply "$(_bagpipe_list "$text"; [[ ${words[1]} == help ]] || { echo help; _bagpipe_options "$text"; })"
        return
    fi
    [[ ${words[1]} != help ]] || return
    subject=${words[1]} prev=${words[-1]}
    for word in "${words[@]}"; do # of models the keys of this family
        [[ $word != model.kind=?* ]] || kind=$word
    done
    text=$("$program" help "$subject" $kind 2>/dev/null) || text=$("$program" help "$subject" 2>/dev/null) || return
    if [[ $subject == check || $subject == requeue ]]; then # of a job
        if ((${#words[@]} == 2)); then
            for word in $(_bagpipe_list "$("$program" --help)"); do
                [[ $("$program" help "$word") != *$'\nKeys:\n'* ]] || _bagpipe_reply "$word"
            done
            return
        fi
        text+=$'\n'$("$program" help "${words[2]}" $kind 2>/dev/null)
        [[ $subject == check ]] && text=${text//$'\n      --plan '/$'\n'} # no option of a check
    fi
    if [[ $cur == -*=* || $cur == *.*=* ]]; then
        _bagpipe_value "$text" "${cur%%=*}"
    elif [[ $cur == -* ]]; then
        _bagpipe_reply "$(_bagpipe_options "$text")"
        [[ ${COMPREPLY[*]} != *= ]] || compopt -o nospace 2>/dev/null
    elif [[ $prev == --* ]] && _bagpipe_options "$text" | grep -qx -- "$prev="; then
        _bagpipe_value "$text" "$prev"
    elif [[ $text == *$'\nKeys:\n'* ]]; then
        if [[ $line == *.ini[[:space:]]* || ( -n $cur && -z $(compgen -f -- "$cur") ) ]]; then
            _bagpipe_reply "$(_bagpipe_keys "$text")"
            compopt -o nospace 2>/dev/null
        else
            _bagpipe_files .ini
        fi
    elif [[ ${text%%$'\n'*} == *CONFIG.ini* ]]; then
        _bagpipe_files .ini
    elif [[ ${text%%$'\n'*} == *" RUN"* ]]; then # run folders
        local IFS=$'\n'
        compopt -o filenames 2>/dev/null
        COMPREPLY=($(compgen -d -- "$cur"))
    else
        _bagpipe_files
    fi
}
complete -F _bagpipe bagpipe bagpipe-data
