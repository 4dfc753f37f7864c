/* The interface of all models: calls go to the model's table of functions. */
#include "models/model.h"

#include "base/err.h"

const char *bp_model_statistic_name(int64_t statistic)
{
    static const char *const NAMES[] = {"logprob",
                                        "total_entropy",
                                        "expected_entropy",
                                        "mutual_information",
                                        "logprob_variance",
                                        "agreement",
                                        "confidence",
                                        "correct",
                                        "brier",
                                        "target_rank",
                                        "set_size_lac",
                                        "set_size_aps",
                                        "set_next_aps",
                                        "set_size_raps",
                                        "set_next_raps",
                                        "tempered_logprob",
                                        "tempered_confidence",
                                        "tempered_brier"};

    BP_ASSERT(statistic >= 0 && statistic < BP_MODEL_TEMPERED_END);
    return NAMES[statistic];
}

const char *bp_model_extra_name(bp_model_extra extra)
{
    static const char *const NAMES[] = {"differential_entropy", "log_normaliser", "logit_variance",
                                        "mahalanobis"};

    BP_ASSERT(extra < BP_MODEL_EXTRAS);
    return NAMES[extra];
}

bp_model_batch bp_model_batch_part(const bp_model_batch *batch, int64_t first, int64_t count)
{
    bp_model_batch part = *batch;

    part.windows = count;
    part.inputs += first * batch->length;
    part.targets += first * batch->length;
    part.segments = part.segments ? part.segments + first * batch->length : NULL;
    part.first_slot += first;
    part.first_window += first;
    if (part.sources) {
        part.sources += first * batch->source_length;
        part.source_lengths += first;
    }
    return part;
}

int64_t bp_model_batch_rows(const bp_model_batch *batch)
{
    int64_t rows = 0;

    for (int64_t k = 0; k < batch->windows * batch->length; k++)
        rows += batch->targets[k] >= 0;
    return rows;
}

int64_t bp_model_columns(const bp_model_info *info, int64_t length)
{
    return bp_task_kind_of(&info->task)->over_positions ? length : info->vocab_size;
}

void bp_model_free(bp_model **model)
{
    if (*model)
        (*model)->ops->free(*model);
    *model = NULL;
}

bp_err bp_model_score(bp_model *model, const bp_model_batch *batch, float *values)
{
    return model->ops->score(model, batch, values);
}

bp_err bp_model_distribution(bp_model *model, const bp_model_batch *batch, float *log_p,
                             float *values)
{
    return model->ops->distribution(model, batch, BP_MODEL_NO_DROPOUT, log_p, values);
}

bp_err bp_model_decode_new(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                           int64_t capacity)
{
    *out = NULL;
    if (!model->ops->decode_new)
        return BP_FAIL(BP_ERR_CONFIG, "model.not_causal",
                       "a model of kind %s does not continue sequences: at model.kind; take a "
                       "checkpoint of a causal network",
                       model->info.kind);
    if (capacity > model->info.context)
        return BP_FAIL(BP_ERR_CONFIG, "model.too_many_positions",
                       "%lld positions a sequence: at a context of %lld; shorten prompts, or what "
                       "follows them",
                       (long long)capacity, (long long)model->info.context);
    return model->ops->decode_new(out, model, groups, slots, capacity);
}

void bp_model_decode_free(bp_decoding **decoding)
{
    if (*decoding)
        (*decoding)->model->ops->decode_free(*decoding);
    *decoding = NULL;
}

void bp_model_decode_reset(bp_decoding *decoding, int group)
{
    decoding->model->ops->decode_reset(decoding, group);
}

void bp_model_decode_sources(bp_decoding *decoding, int group, const bp_decode_sources *sources)
{
    BP_ASSERT(group >= 0 && group < decoding->groups && decoding->model->info.reads_source &&
              sources->count * sources->slots_each <= decoding->slots);
    decoding->model->ops->decode_sources(decoding, group, sources);
}

void bp_model_decode(bp_decoding *decoding, int group, const bp_decode_step *step, float *logits,
                     float *statistics)
{
    BP_ASSERT(group >= 0 && group < decoding->groups && step->slots <= decoding->slots);
    decoding->model->ops->decode(decoding, group, step, logits, statistics);
}

int64_t bp_model_decode_bytes(const bp_model *model, int groups, int64_t slots, int64_t capacity)
{
    return model->ops->decode_bytes ? model->ops->decode_bytes(model, groups, slots, capacity) : 0;
}
