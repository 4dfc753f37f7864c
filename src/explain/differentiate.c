/* Word vectors of documents and of baselines, and windows for one target each. Called by the
 * methods that need gradients. */
#include "explain/method.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "job/work.h"
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#define BATCH_COST 32 /* positions that take about as long as reading all weights again */

const char *bp_explain_lacks_gradients(const bp_model_info *info)
{
    return info->vector_width == 0    ? "its inputs have no word vectors"
           : info->task.precision > 0 ? "its outcomes are those of a Dirichlet, not of a softmax"
           : info->task.features > 0  ? "its head is a Gaussian process"
           : info->may_be_zero        ? "its head gives probabilities of 0, whose logarithm has no "
                                        "gradient"
                                      : NULL;
}

bool bp_explain_is_special(const bp_explain_settings *settings, int32_t token)
{
    static const bp_role SPECIALS[] = {BP_ROLE_BOS, BP_ROLE_FIRST, BP_ROLE_END, BP_ROLE_CLS,
                                       BP_ROLE_SEP, BP_ROLE_PAD,   BP_ROLE_MASK};

    if (token == settings->lead || token == settings->eod ||
        (settings->info->reads_source && token == settings->info->start_token))
        return true;
    for (size_t k = 0; k < sizeof SPECIALS / sizeof SPECIALS[0]; k++)
        if (settings->roles[SPECIALS[k]] == token)
            return true;
    return false;
}

bool bp_explain_separates(const bp_explain_settings *settings, int32_t token)
{
    if (!settings->separators)
        return token == settings->lead || token == settings->eod ||
               token == settings->roles[BP_ROLE_SEP] || token == settings->roles[BP_ROLE_END];
    for (const char *at = settings->separators; *at;) {
        char *end;

        if (strtoll(at, &end, 10) == token)
            return true;
        at = end + (*end == ',');
    }
    return false;
}

bool bp_explain_is_causal(const bp_model_info *info)
{
    return !info->sees_all;
}

bp_err bp_explain_step(const bp_explain_settings *settings)
{
    bool stop;

    bp_heartbeat_progress();
    stop = settings->job->leads && bp_work_between(settings->job);
    bp_bcast_bytes(&stop, sizeof stop, 0, settings->group);
    return stop ? BP_ERR_STOPPED : BP_OK;
}

int64_t bp_explain_length(const bp_explain_settings *settings, const bp_explained *document,
                          int64_t k)
{
    const bp_model_info *info = settings->info;
    bool whole = !bp_explain_is_causal(info) || bp_task_has_head(&info->task);

    return whole ? document->T : document->positions[k] + 1;
}

bp_model_batch bp_explain_whole(const bp_explained *document, int32_t *targets,
                                int32_t *source_length)
{
    bp_model_batch batch = {.windows = 1,
                            .length = document->T,
                            .inputs = document->inputs,
                            .targets = targets,
                            .segments = document->segments};

    for (int64_t t = 0; t < document->T; t++)
        targets[t] = -1;
    for (int64_t k = 0; k < document->K; k++)
        targets[document->positions[k]] = document->targets[k];
    *source_length = (int32_t)document->S;
    if (document->S > 0) {
        batch.source_length = document->S;
        batch.sources = document->sources;
        batch.source_lengths = source_length;
    }
    return batch;
}

/* ---- word vectors ---- */

/* The baseline's tokens instead of `tokens`; special ones stay. */
static int32_t *baseline_tokens(const bp_explain_settings *settings, const int32_t *tokens,
                                int64_t count)
{
    int32_t *base = bp_alloc("explain.vectors", count, sizeof *base);

    for (int64_t t = 0; t < count; t++)
        base[t] =
            bp_explain_is_special(settings, tokens[t]) ? tokens[t] : (int32_t)settings->baseline;
    return base;
}

/* own[count][E], base[count][E] for inputs or for sources. */
static void look_up(float *own, float *base, bp_model *model, const bp_explain_settings *settings,
                    bool of_source, const int32_t *tokens, int64_t count, float *scratch)
{
    model->ops->look_up(model, of_source, tokens, count, own, scratch);
    memset(base, 0, (size_t)(count * settings->info->vector_width) * sizeof *base);
    if (settings->baseline >= 0) {
        int32_t *others = baseline_tokens(settings, tokens, count);

        model->ops->look_up(model, of_source, others, count, base, scratch);
        bp_free(others);
    }
}

bp_err bp_explain_vectors_of(bp_explain_vectors *out, bp_model *model,
                             const bp_explain_settings *settings, const bp_explained *document)
{
    int64_t E = settings->info->vector_width, T = document->T, S = document->S,
            most = T > S ? T : S;
    float *scratch = bp_try_alloc("explain.vectors", most * E, sizeof *scratch);
    bool complete;

    *out = (bp_explain_vectors){.E = E,
                                .own = bp_try_alloc("explain.vectors", T * E, sizeof(float)),
                                .base = bp_try_alloc("explain.vectors", T * E, sizeof(float))};
    complete = scratch && out->own && out->base;
    if (S > 0) {
        out->source_own = bp_try_alloc("explain.vectors", S * E, sizeof(float));
        out->source_base = bp_try_alloc("explain.vectors", S * E, sizeof(float));
        complete = complete && out->source_own && out->source_base;
    }
    bp_err err = bp_agree(
        settings->group,
        complete ? BP_OK : bp_fail_memory("word vectors", (2 * (T + S) + most) * E, sizeof(float)));
    if (err == BP_OK)
        look_up(out->own, out->base, model, settings, false, document->inputs, T, scratch);
    if (err == BP_OK && S > 0)
        look_up(out->source_own, out->source_base, model, settings, true, document->sources, S,
                scratch);
    out->hides = -1;
    if (err == BP_OK && document->hides >= 0) {
        const int32_t token = (int32_t)document->hides;

        out->hidden = bp_alloc("explain.vectors", E, sizeof *out->hidden);
        out->hidden_base = bp_alloc("explain.vectors", E, sizeof *out->hidden_base);
        look_up(out->hidden, out->hidden_base, model, settings, false, &token, 1, scratch);
    }
    bp_free(scratch);
    return err;
}

static void swap(float *a, float *b, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float other = a[i];

        a[i] = b[i];
        b[i] = other;
    }
}

static void swap_hidden(bp_explain_vectors *vectors, int64_t place)
{
    swap(vectors->own + place * vectors->E, vectors->hidden, vectors->E);
    swap(vectors->base + place * vectors->E, vectors->hidden_base, vectors->E);
}

void bp_explain_hide(bp_explain_vectors *vectors, const bp_explained *document, int64_t k)
{
    if (document->hides < 0)
        return;
    if (vectors->hides >= 0)
        swap_hidden(vectors, vectors->hides);
    vectors->hides = document->positions[k];
    swap_hidden(vectors, vectors->hides);
}

void bp_explain_vectors_clear(bp_explain_vectors *vectors)
{
    bp_free(vectors->own);
    bp_free(vectors->base);
    bp_free(vectors->source_own);
    bp_free(vectors->source_base);
    bp_free(vectors->hidden);
    bp_free(vectors->hidden_base);
}

/* ---- batches ---- */

bp_err bp_explain_batch_new(bp_explain_batch *out, const bp_explain_settings *settings)
{
    int64_t positions = settings->batch > settings->most ? settings->batch : settings->most,
            E = settings->info->vector_width;
    bool complete;

    *out = (bp_explain_batch){
        .capacity = positions,
        .inputs = bp_alloc("explain.batch", positions, sizeof(int32_t)),
        .targets = bp_alloc("explain.batch", positions, sizeof(int32_t)),
        .segments = bp_alloc("explain.batch", positions, sizeof(int32_t)),
        .values = bp_alloc("explain.batch", positions, sizeof(float)),
        .vectors = bp_try_alloc("explain.batch", positions * E, sizeof(float)),
        .gradients = bp_try_alloc("explain.batch", positions * E, sizeof(float))};
    complete = out->vectors && out->gradients;
    if (settings->info->reads_source) {
        out->sources = bp_alloc("explain.batch", positions, sizeof(int32_t));
        out->source_lengths = bp_alloc("explain.batch", positions, sizeof(int32_t));
        out->source_vectors = bp_try_alloc("explain.batch", positions * E, sizeof(float));
        out->source_gradients = bp_try_alloc("explain.batch", positions * E, sizeof(float));
        complete = complete && out->source_vectors && out->source_gradients;
    }
    return complete ? BP_OK
                    : bp_fail_memory("a batch of windows", 2 * positions * E, sizeof(float));
}

void bp_explain_batch_free(bp_explain_batch *batch)
{
    bp_free(batch->inputs);
    bp_free(batch->targets);
    bp_free(batch->segments);
    bp_free(batch->sources);
    bp_free(batch->source_lengths);
    bp_free(batch->values);
    bp_free(batch->vectors);
    bp_free(batch->gradients);
    bp_free(batch->source_vectors);
    bp_free(batch->source_gradients);
}

int64_t bp_explain_batch_windows(const bp_explain_batch *batch, const bp_explained *document,
                                 int64_t length)
{
    return batch->capacity / (length > document->S ? length : document->S);
}

int64_t bp_explain_batch_fill(const bp_explain_batch *batch, const bp_explain_settings *settings,
                              const bp_explained *document, bp_explain_run run, int64_t *length)
{
    int64_t count = 1, lost = 0;

    *length = bp_explain_length(settings, document, run.first / run.each);
    for (; run.first + count < document->K * run.each; count++) {
        int64_t longer = bp_explain_length(settings, document, (run.first + count) / run.each);

        longer = longer > *length ? longer : *length;
        lost += count * (longer - *length);
        if (count + 1 > bp_explain_batch_windows(batch, document, longer) ||
            lost > (run.again ? longer : BATCH_COST))
            break;
        *length = longer;
    }
    return count;
}

void bp_explain_batch_set(bp_explain_batch *batch, const bp_explained *document, int64_t w,
                          int64_t k, int64_t length)
{
    int64_t S = document->S;

    memcpy(batch->inputs + w * length, document->inputs, (size_t)length * sizeof *document->inputs);
    if (document->hides >= 0)
        batch->inputs[w * length + document->positions[k]] = (int32_t)document->hides;
    for (int64_t t = 0; t < length; t++)
        batch->targets[w * length + t] = t == document->positions[k] ? document->targets[k] : -1;
    batch->batch = (bp_model_batch){
        .windows = w + 1, .length = length, .inputs = batch->inputs, .targets = batch->targets};
    if (document->segments) {
        memcpy(batch->segments + w * length, document->segments,
               (size_t)length * sizeof *document->segments);
        batch->batch.segments = batch->segments;
    }
    if (S > 0) {
        memcpy(batch->sources + w * S, document->sources, (size_t)S * sizeof *document->sources);
        batch->source_lengths[w] = (int32_t)S;
        batch->batch.source_length = S;
        batch->batch.sources = batch->sources;
        batch->batch.source_lengths = batch->source_lengths;
    }
}
