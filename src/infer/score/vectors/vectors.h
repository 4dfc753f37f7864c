/* Vectors of documents: the states of a model's last layer, pooled over each document. */
#pragma once

#include "base/config/config.h"
#include "mesh/mesh.h"
#include "mesh/node_memory.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_VECTORS_PROMPT 512

/** The request, from the keys or else from the model (a sentence encoder's "vectors" in the state
 * of its checkpoint). Plain data. */
typedef struct bp_vectors_wish {
    char pool[8]; /* "mean", "first", "last"; "": no vectors */
    bool norm;    /* normalized to length 1 */
    int64_t most; /* the model's positions of an example; 0: its context */
    int64_t end;  /* the token that the model's tokenizer puts after a text; -1 if there is none */
    int64_t prompt_count;
    int32_t prompt[BP_VECTORS_PROMPT]; /* tokens before each document */
} bp_vectors_wish;

/** Keys that are not given get the model's values.
 *
 * Collective: over `world`. Errors: BP_ERR_CONFIG keys that have no meaning with score.vectors;
 *             those of reading the tokenizer: the same on all ranks. */
bp_err bp_vectors_find(bp_vectors_wish *out, bp_config *config, MPI_Comm world);
/** As bp_score (score.h), for vectors: writes score/vectors.h5. */
bp_err bp_vectors(MPI_Comm world, bp_config *config, const bp_vectors_wish *wish,
                  const bp_planned_world *plan);
/** Make a vector one of length 1, as torch.nn.functional.normalize. */
void bp_vectors_normalise(float *row, int64_t width);
