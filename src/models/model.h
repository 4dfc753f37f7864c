/* One face for all language models. Scoring, uncertainty and reports never ask which kind it is. */
#ifndef BP_MODELS_MODEL_H
#define BP_MODELS_MODEL_H

#include "base/config.h"
#include "base/hash.h"
#include "base/json.h"
#include "mesh/mesh.h"
#include <stdint.h>

typedef struct bp_model bp_model;

/** What a model tells of each token, in nats. A plain model tells BP_MODEL_LOGPROB alone; an
 * ensemble (infer/ensemble/ensemble.h) all of these and, from BP_MODEL_MEMBER on, each member's
 * log-probability. p is the mixture, the mean of the members' distributions p_m over the whole
 * vocabulary. */
typedef enum bp_model_statistic {
    BP_MODEL_LOGPROB = 0,        /* log p(target) */
    BP_MODEL_TOTAL_ENTROPY,      /* H[p], as expected entropy + mutual information */
    BP_MODEL_EXPECTED_ENTROPY,   /* mean_m H[p_m] */
    BP_MODEL_MUTUAL_INFORMATION, /* mean_m KL(p_m || p) */
    BP_MODEL_LOGPROB_VARIANCE,   /* of log p_m(target) over members, divided by M */
    BP_MODEL_AGREEMENT,          /* share of members whose top token is the mixture's */
    BP_MODEL_CONFIDENCE,         /* max p */
    BP_MODEL_CORRECT,            /* 1 where the mixture's top token is the target, else 0 */
    BP_MODEL_BRIER,              /* sum_v (p_v - [v = target])^2 */
    BP_MODEL_MEMBER              /* log p_0(target), and so on */
} bp_model_statistic;
/** The name of a statistic before BP_MODEL_MEMBER in files: "logprob", "total_entropy"... */
const char *bp_model_statistic_name(int64_t statistic);

typedef struct bp_model_info {
    const char *kind;   /* "gpt", "ensemble" */
    int64_t members;    /* of an ensemble; 0: a plain model */
    int64_t statistics; /* 1, or BP_MODEL_MEMBER + members */
    int64_t width;      /* of the state before the vocabulary (bp_model_ops.backbone) */
    int64_t vocab_first, vocab_count; /* this rank's part of the vocabulary (bp_model_ops.logits) */
    int64_t context;                  /* most inputs a window may have */
    int64_t vocab_size;
    int64_t eod_id;                     /* end-of-document token; -1: none */
    int64_t step;                       /* of the checkpoint */
    char tokenizer_hash[BP_SHA256_HEX]; /* "": not told */
    char digest[65];                    /* of the weights, whatever their split */
} bp_model_info;

/** Windows of one length; shorter ones are padded at the right by the caller, with targets -1
 * there. */
typedef struct bp_model_batch {
    int64_t windows, length;
    const int32_t *inputs;  /* [windows][length] */
    const int32_t *targets; /* [windows][length]; -1: not scored */
    int64_t first_slot;     /* of window 0 in all that is scored: keys dropout at test time */
} bp_model_batch;

/** No dropout in bp_model_ops.backbone. */
#define BP_MODEL_NO_DROPOUT (-1)

typedef struct bp_model_ops {
    /** values[statistics][windows][length]: BP_MODEL_LOGPROB is the natural log of each target's
     * probability given the inputs up to its place; NaN in all statistics where the target is -1.
     * Collective over mesh->ensemble (mesh->model where there is one member), with equal arguments
     * on all its ranks; the result is valid on all. Errors: BP_ERR_SYSTEM memory. */
    bp_err (*score)(bp_model *lm, const bp_model_batch *batch, float *values);

    /* The parts that an ensemble, the Laplace approximation and explanations put together
     * themselves; NULL for a model that can't. Collective over mesh->model. */

    /** hidden[windows * length][width]: what the last linear map is applied to, valid on the ranks
     * of the last pipeline stage. pass: BP_MODEL_NO_DROPOUT, or the number of a pass with dropout
     * at the rate of `set_dropout`, whose masks are a function of (seed, pass, layer, slot, place).
     */
    bp_err (*backbone)(bp_model *lm, const bp_model_batch *batch, int64_t pass, float *hidden);
    void (*set_dropout)(bp_model *lm, float rate, uint64_t seed);
    /** logits[rows][vocab_count]: this rank's part of the vocabulary, on the last pipeline stage.
     * head 0 is the model's own, others were added. Row r does not depend on the other rows. No
     * MPI. */
    void (*logits)(bp_model *lm, int64_t head, const float *hidden, int64_t rows, float *logits);
    /** Another matrix [vocab_count][width] for `logits`, copied; *head is its number, 1, 2... On
     * ranks of other stages weights is NULL. Errors: BP_ERR_SYSTEM. Local. */
    bp_err (*add_head)(bp_model *lm, const float *weights, int64_t *head);
    /** The model's own matrix [vocab_count][width]; borrowed; NULL on ranks of other stages. */
    const float *(*head_weights)(const bp_model *lm);
    void (*free)(bp_model *lm);
} bp_model_ops;

/** The head of every language model; a model's own struct begins with it. */
struct bp_model {
    const bp_model_ops *ops;
    bp_model_info info;
};

/** What a rank is to do in scoring, of a job that may not have begun. */
typedef struct bp_model_task {
    const bp_mesh_shape *mesh;
    int stage;
    int64_t windows, length; /* of a batch */
} bp_model_task;

/** What it takes for that, in bytes: weights with their copies, and work on a batch. */
typedef struct bp_model_memory {
    int64_t weights_bytes, work_bytes;
    int64_t vocab_size, width, context; /* of the model */
} bp_model_memory;

void bp_model_free(bp_model **lm);

/** What the model tells of a batch, as bp_model_ops.score says. Rows do not depend on each other,
 * and so not on what else is in the batch.
 *
 * Collective: over mesh->ensemble; the batch is equal on all its ranks.
 * Shapes:     values[info.statistics][windows][length], valid on all ranks.
 * Errors:     BP_ERR_SYSTEM memory: the same on all ranks of mesh->ensemble.
 */
bp_err bp_model_score(bp_model *lm, const bp_model_batch *batch, float *values);

#endif
