#!/bin/sh
# mpirun.sh RANKS PROGRAM [ARGUMENT...]: start ranks on this machine whoever the user is and however few the cores.
top=$(dirname "$0")/..
. "$top/jobs/local.sh"
ranks=$1
shift
local_mpi
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
# a program of MPICH is started by its own launcher (.ci/long mpich)
if ldd "$1" 2>/dev/null | grep -q libmpich; then
    exec mpiexec.mpich -n "$ranks" "$@"
fi
exec mpirun -n "$ranks" "$@"
