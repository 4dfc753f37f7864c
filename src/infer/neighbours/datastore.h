/* The datastore of a nearest-neighbour language model, as score.states writes it (docs/formats.md):
 * a key for each scored token, what a Transformer predicted it from. Ranks of a group share its
 * rows out; a share is in memory as far as that is allowed, the rest is read block by block.
 *
 * Source: Khandelwal et al. 2020, "Generalization through Memorization: Nearest Neighbor Language
 * Models", section 3. */
#ifndef BP_INFER_NEIGHBOURS_DATASTORE_H
#define BP_INFER_NEIGHBOURS_DATASTORE_H

#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include "models/model.h"

typedef struct bp_datastore bp_datastore;

typedef struct bp_datastore_spec {
    const char *path;
    const bp_model_info *model; /* whose keys they are */
    int64_t memory_bytes;       /* of this rank, for keys */
    const char *precision;      /* in which queries are computed; NULL: any keys will do */
} bp_datastore_spec;

typedef struct bp_datastore_info {
    int64_t rows;    /* of the file: its tokens */
    int64_t entries; /* those that have a key */
    int64_t columns;
    char precision[8]; /* in which keys were computed, "f32", "bf16"; "": the file does not say */
    char hash[BP_USER_BLOCK_HASH]; /* of the file */
} bp_datastore_info;

/** Rank 0 of `everyone` checks every byte of the file, then each group opens it.
 *
 * Collective: over `everyone`, which `group` is a part of; spec is equal on all ranks.
 * Owns:       *out is the caller's, bp_datastore_close(); NULL after an error.
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT it is damaged, no datastore, of another
 *             model or tokenizer, or holds a key that is not finite; BP_ERR_CONFIG its keys have
 *             another precision; BP_ERR_SYSTEM memory: the same on all ranks. */
bp_err bp_datastore_open(bp_datastore **out, MPI_Comm everyone, MPI_Comm group,
                         const bp_datastore_spec *spec);
/** NULL is accepted. Local. */
void bp_datastore_close(bp_datastore **store);

const bp_datastore_info *bp_datastore_info_of(const bp_datastore *store);
/** The open file: /tokens, /doc_start and the like. Borrowed. */
bp_h5 *bp_datastore_file(const bp_datastore *store);

/** An entry close to a query. */
typedef struct bp_neighbour {
    double distance; /* the squared Euclidean one, summed in float64 */
    int64_t row;     /* of the file */
    int64_t token;   /* that follows: the value of the entry */
} bp_neighbour;

/** The k entries nearest to each query, the nearest first, and among equal ones the smallest row
 * first. All are found: a float32 product of blocks with a bound of its rounding says which entries
 * may be among them, and those are measured in float64. So the result does not depend on blocks,
 * threads or the number of ranks.
 *
 * Collective: over the group; queries, count and k are equal on all its ranks; k is at most
 *             info.entries.
 * Shapes:     queries[count][columns], finite; out[count][k], valid on all ranks.
 * Errors:     BP_ERR_SYSTEM memory, BP_ERR_IO: the same on all ranks of the group.
 */
bp_err bp_datastore_search(bp_datastore *store, const float *queries, int64_t count, int64_t k,
                           bp_neighbour *out);

/** Bytes that a rank takes of a file of this many bytes, its neighbours of `queries` queries with
 * them. */
int64_t bp_datastore_bytes(int64_t file_bytes, int64_t columns, int ranks, int64_t memory_bytes,
                           int64_t queries, int64_t k);

#endif
