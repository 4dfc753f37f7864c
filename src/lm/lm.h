/* One face for all language models. Scoring, uncertainty and reports never ask which kind it is. */
#ifndef BP_LM_LM_H
#define BP_LM_LM_H

#include "base/config.h"
#include "base/hash.h"
#include "mesh/mesh.h"
#include <stdint.h>

typedef struct bp_lm bp_lm;

typedef struct bp_lm_info {
    const char *kind; /* "gpt" */
    int64_t context;  /* most inputs a window may have */
    int64_t vocab_size;
    int64_t eod_id;                     /* end-of-document token; -1: none */
    int64_t step;                       /* of the checkpoint */
    char tokenizer_hash[BP_SHA256_HEX]; /* "": not told */
    char digest[65];                    /* of the weights, whatever their split */
} bp_lm_info;

/** Windows of one length; shorter ones are padded at the right by the caller, with targets -1
 * there. */
typedef struct bp_lm_batch {
    int64_t windows, length;
    const int32_t *inputs;  /* [windows][length] */
    const int32_t *targets; /* [windows][length]; -1: not scored */
} bp_lm_batch;

typedef struct bp_lm_ops {
    /** logprob[windows][length]: natural log of each target's probability given the inputs up to
     * its place; NaN where the target is -1. Collective over mesh->model, with equal arguments on
     * all its ranks; the result is valid on all. Errors: BP_ERR_SYSTEM memory. */
    bp_err (*score)(bp_lm *lm, const bp_lm_batch *batch, float *logprob);
    void (*free)(bp_lm *lm);
} bp_lm_ops;

/** The head of every language model; a model's own struct begins with it. */
struct bp_lm {
    const bp_lm_ops *ops;
    bp_lm_info info;
};

/** Open a CHECKPOINT of any kind: every model group (mesh->model) holds one copy, split over its
 * ranks.
 *
 * Collective: over mesh->compute.
 * Owns:       *out is the caller's, bp_lm_free(); mesh is borrowed until then.
 * Errors:     those of bp_checkpoint_open_any; BP_ERR_FORMAT a kind that this version does not
 * know; BP_ERR_CONFIG heads or layers that the mesh does not divide: the same on all ranks.
 */
bp_err bp_lm_open(bp_lm **out, const bp_mesh *mesh, const bp_config *config, const char *path);
void bp_lm_free(bp_lm **lm);

/** Log-probabilities of a batch, as bp_lm_ops.score says. Rows do not depend on each other, and so
 * not on what else is in the batch.
 *
 * Collective: over mesh->model; the batch is equal on all its ranks.
 * Shapes:     logprob[windows][length], valid on all ranks.
 * Errors:     BP_ERR_SYSTEM memory: the same on all ranks of mesh->model.
 */
bp_err bp_lm_score(bp_lm *lm, const bp_lm_batch *batch, float *logprob);

#endif
