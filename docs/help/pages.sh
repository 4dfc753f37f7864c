#!/bin/sh
# pages.sh HELP2MAN BIN OUT VERSION: man pages of both programs, and of their jobs, commands and tools, made of --help.
#
# Pages go to OUT/NAME.1; a page is made again only where its help has changed. Whatever fails gives a warning, and no page: the
# programs are built all the same.
help2man=$1 bin=$2 out=$3 version=$4
LC_ALL=C.UTF-8
export LC_ALL

# Words under "Tools:" or "Jobs and commands:".
words() {
    "$bin/$1" --help | awk '/^(Tools|Jobs and commands):$/ { rows = 1; next } /^$/ { rows = 0 } rows && /^  [a-z]/ { print $1 }'
}

# What help2man does not see in a text as it stands. Its sections have stars, its subsections a colon; the name of a page with two
# words is one word, "@", until it is made. Examples go through [examples] as they are.
text_for_help2man() {
    awk -v name="$1" '
        /^Examples:$/ { skip = 1; next }
        skip && /^[^ ]/ { skip = 0 }
        skip { next }
        /^Usage: |^  or:  / { split(name, words, " "); sub(name, words[2] == "" ? name : words[1] "@" words[2]) }
        /^(Keys|Exit status):$/ { sub(/^/, "*"); sub(/:$/, "*") }
        /^\[[a-z_]*\]$/ { $0 = $0 ":" }
        { print }'
}
examples() {
    echo "[EXAMPLES]"
    echo ".nf"
    awk '/^Examples:$/ { on = 1; next } /^[^ ]/ { on = 0 } on && NF { sub(/^  /, ""); print }' |
        sed 's/\\/\\e/g; s/-/\\-/g'
    echo ".fi"
}

# page NAME OTHER...: NAME is "bagpipe" or "bagpipe pretrain"; the others are named in SEE ALSO.
page() {
    name=$1
    file=$(echo "$name" | tr ' ' -)
    shift
    "$bin/${name%% *}" help $(echo "$name" | cut -s -d ' ' -f 2) >"$work/help" || return 1
    : >"$work/made/$file.1"
    [ "$0" -nt "$out/$file.1" ] || ! cmp -s "$work/help" "$out/.$file.help" || return 0
    text_for_help2man "$name" <"$work/help" >"$work/text"
    printf '#!/bin/sh\ncat "%s"\n' "$work/text" >"$work/$file"
    chmod +x "$work/$file"
    {
        examples <"$work/help"
        echo "[SEE ALSO]"
        echo "$@" | tr ' ' '\n' | grep -vx "$file" | sed 's/-/\\-/g; s/.*/.BR & (1),/; $ s/,$//'
    } >"$work/include"
    # the summary: the first paragraph after the usage, without the name before it and the period behind it
    summary=$(awk '/^$/ { n++ } n == 1 && NF { printf "%s%s", k++ ? " " : "", $0 }' "$work/help")
    summary=${summary#"$name "}
    "$help2man" --no-info --section 1 --source "bagpipe $version" --manual bagpipe --version-string "$version" \
        --name "${summary%.}" --include "$work/include" "$work/$file" >"$work/page" || return 1
    sed -e '/^\.TH /a .nh' -e 's/^\.SS "\(\[.*\]\):"/.SS "\1"/' -e 's/^\(\.B [a-z-]*\)@/\1 /' "$work/page" >"$out/$file.1" &&
        cp "$work/help" "$out/.$file.help"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/bagpipe-man.XXXXXX") || exit 0
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/made"
jobs=$(words bagpipe) tools=$(words bagpipe-data)
failed=$(
    {
        page bagpipe bagpipe-data $(echo "$jobs" | sed 's/^/bagpipe-/') || echo bagpipe
        page bagpipe-data bagpipe $(echo "$tools" | sed 's/^/bagpipe-data-/') || echo bagpipe-data
        for word in $jobs; do
            page "bagpipe $word" bagpipe bagpipe-data || echo "bagpipe-$word"
        done
        for word in $tools; do
            page "bagpipe-data $word" bagpipe-data bagpipe || echo "bagpipe-data-$word"
        done
    } 2>"$work/log"
)
for old in "$out"/*.1; do # of what is no more
    [ -e "$work/made/${old##*/}" ] || rm -f "$old"
done
[ -z "$failed" ] || echo "warning: no man pages of:" $failed "($(tail -n 1 "$work/log"))"
