/* The folder that tests save checkpoints in. All functions are collective over all ranks. */
#pragma once

#include "bp_test_mpi.h"

/* It is there, and empty. */
static inline void fresh_parent(void)
{
    if (bp_comm_is_root(MPI_COMM_WORLD)) {
        assert_int_equal(bp_dir_remove(bp_test_path("checkpoints")), BP_OK);
        assert_int_equal(bp_dir_make(bp_test_path("checkpoints")), BP_OK);
    }
    BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

/* How many names it holds, hidden ones too; -1: there is no such folder. */
static inline int64_t names_left(void)
{
    char **names;
    int64_t count = -1;

    BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (bp_dir_list(bp_test_path("checkpoints"), &names, &count) == BP_OK)
        bp_names_free(&names, count);
    BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
    return count;
}
