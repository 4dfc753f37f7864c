/* An ensemble: a language model made of language models. Its members' distributions over the
 * vocabulary are combined row by row, and statistics of each token measure how far they agree
 * (bp_model_statistic in models/model.h).
 *
 * Source: the decomposition of total into expected entropy and mutual information is Depeweg et al.
 * 2018 (arXiv:1710.07283), eq. 8. */
#pragma once

#include "infer/ensemble/member_sampler.h"
#include "models/model.h"
#include "statistics/conformal.h"

#include <math.h>
#include <stddef.h>

/** What the ensemble is made of. */
typedef struct bp_ensemble_spec {
    const char *path;           /* an ensemble (io/checkpoint/ensemble_file.h), or a CHECKPOINT */
    bp_member_sampler *sampler; /* how members are made of the CHECKPOINT; NULL if the checkpoint is
                                   the only member. Borrowed until the ensemble is freed */
    int64_t context; /* window size, where models accept more than their own; 0: their own */
    const bp_conformal_rule *sets; /* settings of conformal sets (outcomes are a softmax); NULL if
                                      none are requested. Borrowed for the call */
    double temperature;  /* at which the mixture has statistics too (BP_MODEL_TEMPERED_LOGPROB;
                            models of outcomes); 0: at none */
    size_t memory_bytes; /* score.memory: for the vocabulary distributions of some rows at a time */
    bool differentiates; /* open members as bp_model_open_differentiable does */
} bp_ensemble_spec;

/** Open an ensemble. Member k is on the ranks of mesh member k mod mesh->members; members drawn
 * from one checkpoint share its weights (bp_member_kind) and are assigned to mesh members in turn.
 *
 * info.digest covers all members' weights, their order and how they are drawn. info.step is the
 * largest of the members', info.context the smallest; names are those of bp_ensemble_member_name.
 *
 * Collective: over mesh->compute.
 * Owns:       *out is the caller's, bp_model_free(); mesh is borrowed until then.
 * Errors:     those of bp_ensemble_list_load and bp_model_open, which name a missing member before
 *             any weight is read; BP_ERR_FORMAT members of different vocab_size, tokenizer or
 *             end-of-document token (both named); BP_ERR_CONFIG memory_bytes too small for one row
 *             of all members, with what would suffice: the same on all ranks. */
bp_err bp_ensemble_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                        const bp_ensemble_spec *spec);

/** Bytes that an ensemble of this many members takes on a rank of the last stage for a batch of
 * `tokens`, without its models (the widest of them, as in bp_model_estimate); `sets`: its spec
 * requests them. Pure. */
int64_t bp_ensemble_work_bytes(const bp_model_memory *widest, const bp_mesh_shape *mesh,
                               int64_t members, int64_t tokens, int64_t memory_bytes, bool sets);

/** One member's model; NULL if it is on other ranks. Borrowed. */
bp_model *bp_ensemble_member_model(const bp_model *model, int64_t member);
/** "m00", as in the list; "pass-000", "sample-000". Borrowed. */
const char *bp_ensemble_member_name(const bp_model *model, int64_t member);
/** Over the documents that the member's bag lacks, as in the list; NaN: unknown. */
double bp_ensemble_member_oob(const bp_model *model, int64_t member);

/** Inverse temperatures at which bp_ensemble_add_scaled sums: 2^((k - 12)/8), k = 0 .. 24, as
 * float32. */
#define BP_TEMPERATURE_POINTS 25
static inline double bp_scaled_beta(int k)
{
    int from_middle = k - BP_TEMPERATURE_POINTS / 2;

    return (double)exp2f((float)from_middle / 8); /* as kernels take it */
}

/** Over the scored tokens of batches, at each inverse temperature b: the sum of f(b) = log sum_v
 * p_v^b - b log p(target), and the sums of its first two derivatives in b. */
typedef struct bp_scaled_sums {
    double value[BP_TEMPERATURE_POINTS], first[BP_TEMPERATURE_POINTS],
        second[BP_TEMPERATURE_POINTS];
    int64_t tokens;
} bp_scaled_sums;

/** Add a batch's scored tokens. Collective over mesh->replica; the sums are valid on all its
 * ranks. Errors: BP_ERR_SYSTEM. */
bp_err bp_ensemble_add_scaled(bp_model *model, const bp_model_batch *batch, bp_scaled_sums *sums);

/** The true outcome of each scored place of a batch among all outcomes of the mixture, in the order
 * of positions. For an ensemble with sets.
 *
 * Collective: over mesh->replica.
 * Shapes:     targets[bp_model_batch_rows(batch)], equal on all its ranks.
 * Errors:     BP_ERR_SYSTEM. */
bp_err bp_ensemble_targets(bp_model *model, const bp_model_batch *batch,
                           bp_conformal_target *targets);

/** The digest of a list of checkpoints as one model: over their digests in order, and over how
 * members are drawn (NULL: the list is the members). Local: no MPI. */
void bp_ensemble_digest(const char *way, const char *const *digests, int64_t count, char out[65]);
