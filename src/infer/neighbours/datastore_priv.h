/* Internals of a datastore. */
#pragma once

#include "infer/neighbours/datastore.h"

#include "math/gemm/linear.h"

#define DATASTORE_BLOCK 2048 /* rows read and multiplied at once */

struct bp_datastore {
    bp_datastore_info info;
    char *path;
    MPI_Comm group; /* borrowed */
    bp_h5 *file;
    bp_gemm *gemm;        /* in float32 */
    int64_t first, count; /* this rank's rows */
    int64_t held;         /* rows in memory, from the first one on; whole blocks, or all */
    float *keys;          /* [held][columns] */
    float *block;         /* [DATASTORE_BLOCK][columns], if not all are held */
    double *squares;      /* [count] squared lengths of the keys */
    int32_t *tokens;      /* [count]; -1 if there is no entry; then the key is zeros */
};

/** Keys of this rank's rows [first, first + count), count at most DATASTORE_BLOCK, first a multiple
 * of it: in memory, or read into `block`. Errors: BP_ERR_IO, BP_ERR_FORMAT. */
bp_err datastore_keys(bp_datastore *store, int64_t first, int64_t count, const float **keys);
