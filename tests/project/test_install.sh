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
there share/bagpipe/slurm/ensemble.sbatch
there share/bagpipe/slurm/ensemble-array.sbatch
there share/bagpipe/slurm/uncertainty.sbatch
there share/bagpipe/slurm/bench.sbatch
there share/bagpipe/slurm/site.env
there share/bagpipe/slurm/launch.sh
there share/bagpipe/report/pages/style.css
there share/bagpipe/report/plots/common.gp
there share/doc/bagpipe/README.md
there share/doc/bagpipe/LICENSE
there share/doc/bagpipe/architecture.md
[ -n "$(find "$prefix" -path '*/bagpipe/hdf5-plugin/libh5zstd.so')" ] || {
    echo "FAILED: the HDF5 plugin is not installed"
    failed=1
}

# the installed batch scripts find the installed programs
found=$(bash -c 'slurm_folder=$1/share/bagpipe/slurm; . "$slurm_folder/launch.sh"; find_bagpipe' sh "$prefix")
[ "$(readlink -f "$found")" = "$(readlink -f "$prefix/bin/bagpipe")" ] || {
    echo "FAILED: the batch scripts start '$found'"
    failed=1
}
exit $failed
