/* The datastore of a nearest-neighbour language model, as score.states writes it (docs/formats.md):
 * for each scored token a key, the state that a Transformer predicted it from. The ranks of a group
 * divide its rows. A rank holds its rows in memory up to a limit, and reads the rest block by
 * block.
 *
 * Source: Khandelwal et al. 2020, "Generalization through Memorization: Nearest Neighbor Language
 * Models", section 3. */
#pragma once

#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include "models/model.h"

typedef struct bp_datastore bp_datastore;

typedef struct bp_datastore_spec {
    const char *path;
    const bp_model_info *model; /* the model of the keys */
    int64_t memory_bytes;       /* of this rank, for keys */
    const char *precision;      /* precision of queries; NULL: keys of any precision */
} bp_datastore_spec;

typedef struct bp_datastore_info {
    int64_t rows;    /* of the file: its tokens */
    int64_t entries; /* number of tokens that have a key */
    int64_t columns;
    char precision[8]; /* precision of keys: "f32", "bf16"; "" if the file does not state it */
    char hash[BP_USER_BLOCK_HASH]; /* of the file */
} bp_datastore_info;

/** Rank 0 of `everyone` checks every byte of the file, then each group opens it.
 *
 * Collective: over `everyone`, which `group` is a part of; spec is equal on all ranks.
 * Owns:       *out is the caller's, bp_datastore_close(); NULL after an error.
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT damaged, not a datastore, made with
 *             another model or tokenizer, or a key that is not finite; BP_ERR_CONFIG keys of
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
    double distance; /* squared Euclidean, summed in float64 */
    int64_t row;     /* of the file */
    int64_t token;   /* the next token: the value of the entry */
} bp_neighbour;

/** Find the k entries nearest to each query, the nearest first, the smallest row first among equal
 * ones. The search is exact: float32 block products with a bound on their rounding select the
 * possible entries, whose distances are then computed in float64. So the result does not depend on
 * blocks, threads or the number of ranks.
 *
 * Collective: over the group; queries, count and k are equal on all its ranks; k is at most
 *             info.entries.
 * Shapes:     queries[count][columns], finite; out[count][k], valid on all ranks.
 * Errors:     BP_ERR_SYSTEM memory, BP_ERR_IO: the same on all ranks of the group.
 */
bp_err bp_datastore_search(bp_datastore *store, const float *queries, int64_t count, int64_t k,
                           bp_neighbour *out);

/** Bytes that a rank takes for a file of this many bytes, including the neighbours of `queries`
 * queries. */
int64_t bp_datastore_bytes(int64_t file_bytes, int64_t columns, int ranks, int64_t memory_bytes,
                           int64_t queries, int64_t k);
