/* Scoring with a model whose n-grams are split over ranks by their first words. */
#pragma once

#include "mesh/mesh.h"
#include "models/model.h"
#include "models/ngram/ngram_file_priv.h"

typedef struct ngram_split ngram_split;

/** Open this rank's part: only this part takes memory.
 *
 * Collective: over `comm`, whose ranks share the model; borrowed.
 * Owns:       *out is the caller's, ngram_split_free(); NULL after an error.
 * Errors:     those of ngram_file_open: the same on all ranks. */
bp_err ngram_split_open(ngram_split **out, const char *path, MPI_Comm comm);
void ngram_split_free(ngram_split **split);
/** Its order and sizes; do not read the n-grams of other parts. */
const ngram_file *ngram_split_file(const ngram_split *split);

/** bp_model_ops.score: each rank looks up the n-grams of the batch that begin with its words, and
 * all ranks get all results. The values are bitwise those of one rank that has all n-grams.
 *
 * Collective: over the ranks of ngram_split_open. Errors: BP_ERR_SYSTEM: the same on all ranks. */
bp_err ngram_split_score(ngram_split *split, const bp_model_batch *batch, int64_t eod,
                         float *values);
