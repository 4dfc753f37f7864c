#!/bin/sh
# test_install.sh CMAKE BUILD_FOLDER: what cmake --install leaves can be used from where it is.
prefix=$(mktemp -d "${TMPDIR:-/tmp}/bagpipe-install.XXXXXX") || exit 1
trap 'rm -rf "$prefix"' EXIT
"$1" --install "$2" --prefix "$prefix" >"$prefix/log" || exit 1

failed=0
there() {
    [ -e "$prefix/$1" ] || {
        echo "FAILED: $1 is not installed"
        failed=1
    }
}
for program in bagpipe bagpipe-data; do
    "$prefix/bin/$program" --version || failed=1
done
there share/bagpipe/slurm/pretrain.sbatch
there share/bagpipe/slurm/score.sbatch
there share/bagpipe/slurm/generate.sbatch
there share/bagpipe/report/pages/generate.html
there share/bagpipe/slurm/ensemble.sbatch
there share/bagpipe/slurm/ensemble-array.sbatch
there share/bagpipe/slurm/sweep.sbatch
there share/bagpipe/slurm/sweep.sh
there share/bagpipe/slurm/uncertainty.sbatch
there share/bagpipe/slurm/bench.sbatch
there share/bagpipe/slurm/site.env
there share/bagpipe/slurm/launch.sh
there share/bagpipe/report/pages/style.css
there share/bagpipe/report/plots/common.gp
there share/doc/bagpipe/README.md
there share/doc/bagpipe/LICENSE
there share/doc/bagpipe/docs/architecture.md
[ -n "$(find "$prefix" -path '*/bagpipe/hdf5-plugin/libh5zstd.so')" ] || {
    echo "FAILED: the HDF5 plugin is not installed"
    failed=1
}

# man pages, where help2man was there at the build: of all that --help lists, and man makes sense of them
words() {
    "$prefix/bin/$1" --help | sed -nE '/^(Tools|Jobs and commands):$/,/^$/ s/^  ([a-z-]+) .*/\1/p'
}
if [ -e "$prefix/share/man/man1/bagpipe.1" ] || grep -q '^BAGPIPE_HELP2MAN:FILEPATH=/' "$2/CMakeCache.txt"; then
    there share/man/man1/bagpipe.1
    for program in bagpipe bagpipe-data; do
        for word in $(words $program); do
            there "share/man/man1/$program-$word.1"
        done
    done
    for page in "$prefix"/share/man/man1/*.1; do
        for section in NAME SYNOPSIS DESCRIPTION OPTIONS '"EXIT STATUS"' EXAMPLES; do
            grep -qx "\.SH $section" "$page" || {
                echo "FAILED: $page has no section $section"
                failed=1
            }
        done
        if command -v man >/dev/null 2>&1 && man --warnings -l "$page" 2>&1 >/dev/null | grep .; then
            echo "FAILED: man finds fault with $page"
            failed=1
        fi
    done
    page=$prefix/share/man/man1/bagpipe-pretrain.1
    grep -q '^\.SH KEYS' "$page" && grep -q '^train\.steps$' "$page" && grep -q '^mpirun .*bagpipe pretrain' "$page" || {
        echo "FAILED: $page lacks its keys or its examples"
        failed=1
    }
else
    echo "skipped: man pages, for there is no help2man"
fi
for program in bagpipe bagpipe-data; do
    there "share/bash-completion/completions/$program"
done

# the installed programs find the installed templates
mkdir "$prefix/run"
echo '{"job": "pretrain", "exit": {"state": "finished"}}' >"$prefix/run/run.json"
echo '{"step": 1, "tokens": 8, "loss": 5.5, "seconds": 1, "lr": 0.1, "tokens_per_second": 8}' >"$prefix/run/metrics.jsonl"
env -u BAGPIPE_SHARE "$prefix/bin/bagpipe" plot "$prefix/run" >>"$prefix/log" || failed=1
there run/index.html

# the installed batch scripts find the installed programs
found=$(bash -c 'slurm_folder=$1/share/bagpipe/slurm; . "$slurm_folder/launch.sh"; find_bagpipe' sh "$prefix")
[ "$(readlink -f "$found")" = "$(readlink -f "$prefix/bin/bagpipe")" ] || {
    echo "FAILED: the batch scripts start '$found'"
    failed=1
}

# a copy of an installed script finds the launcher where it was installed; the module file names this prefix
grep -q "^slurm_installed=\"$prefix/share/bagpipe/slurm\"" "$prefix/share/bagpipe/slurm/pretrain.sbatch" || {
    echo "FAILED: the installed scripts do not know where their launcher is"
    failed=1
}
module=$(find "$prefix/share/bagpipe/modulefiles/bagpipe" -type f)
plugin=$(sed -n 's/^prepend-path HDF5_PLUGIN_PATH "$prefix\(.*\)"$/\1/p' "$module")
grep -q "^set prefix \"$prefix\"" "$module" && [ -e "$prefix$plugin/libh5zstd.so" ] || {
    echo "FAILED: the module file leads to nothing"
    failed=1
}
if command -v tclsh >/dev/null 2>&1; then # a module file is Tcl; the commands of modules are put in here
    (echo 'foreach c {module-whatis conflict prepend-path setenv} { proc $c args {} }' && cat "$module") >"$prefix/module.tcl"
    tclsh "$prefix/module.tcl" || failed=1
fi
exit $failed
