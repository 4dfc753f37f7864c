/* Word vectors of documents and of baselines, and windows that end at one target each. Called by
 * the methods that go backward. */
#include "explain/method.h"

#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

#include <string.h>

const char *bp_explain_lacks_gradients(const bp_model_info *info)
{
    return info->vector_width == 0 ? "its inputs have no word vectors"
           : info->may_be_zero     ? "its head gives probabilities of 0, whose logarithm has no "
                                     "gradient"
                                   : NULL;
}

bool bp_explain_is_special(const bp_explain_settings *settings, int32_t token)
{
    static const bp_role SPECIALS[] = {BP_ROLE_BOS, BP_ROLE_FIRST, BP_ROLE_END, BP_ROLE_CLS,
                                       BP_ROLE_SEP, BP_ROLE_PAD,   BP_ROLE_MASK};

    if (token == settings->lead)
        return true;
    for (size_t k = 0; k < sizeof SPECIALS / sizeof SPECIALS[0]; k++)
        if (settings->roles[SPECIALS[k]] == token)
            return true;
    return false;
}

/* The baseline's tokens in the place of the document's: special ones keep theirs. */
static int32_t *baseline_tokens(const bp_explain_settings *settings, const bp_explained *document)
{
    int32_t *tokens = bp_alloc("explain.vectors", document->T, sizeof *tokens);

    for (int64_t t = 0; t < document->T; t++)
        tokens[t] = bp_explain_is_special(settings, document->inputs[t])
                        ? document->inputs[t]
                        : (int32_t)settings->baseline;
    return tokens;
}

bp_err bp_explain_vectors_of(bp_explain_vectors *out, bp_model *lm,
                             const bp_explain_settings *settings, const bp_explained *document)
{
    int64_t E = settings->info->vector_width, floats = document->T * E;
    float *scratch = bp_try_alloc("explain.vectors", floats, sizeof *scratch);

    *out = (bp_explain_vectors){.E = E,
                                .own = bp_try_alloc("explain.vectors", floats, sizeof(float)),
                                .base = bp_try_alloc("explain.vectors", floats, sizeof(float))};
    bp_err err =
        bp_agree(settings->group, out->own && out->base && scratch
                                      ? BP_OK
                                      : bp_fail_memory("word vectors", 3 * floats, sizeof(float)));
    if (err != BP_OK) {
        bp_free(scratch);
        return err;
    }
    lm->ops->look_up(lm, false, document->inputs, document->T, out->own, scratch);
    memset(out->base, 0, (size_t)floats * sizeof(float));
    if (settings->baseline >= 0) {
        int32_t *tokens = baseline_tokens(settings, document);

        lm->ops->look_up(lm, false, tokens, document->T, out->base, scratch);
        bp_free(tokens);
    }
    bp_free(scratch);
    return BP_OK;
}

void bp_explain_vectors_clear(bp_explain_vectors *vectors)
{
    bp_free(vectors->own);
    bp_free(vectors->base);
}

bp_err bp_explain_batch_new(bp_explain_batch *out, const bp_explain_settings *settings)
{
    int64_t places = settings->batch > settings->most ? settings->batch : settings->most,
            E = settings->info->vector_width;

    *out =
        (bp_explain_batch){.capacity = places,
                           .inputs = bp_try_alloc("explain.batch", places, sizeof(int32_t)),
                           .targets = bp_try_alloc("explain.batch", places, sizeof(int32_t)),
                           .values = bp_try_alloc("explain.batch", places, sizeof(float)),
                           .vectors = bp_try_alloc("explain.batch", places * E, sizeof(float)),
                           .gradients = bp_try_alloc("explain.batch", places * E, sizeof(float))};
    if (!out->inputs || !out->targets || !out->values || !out->vectors || !out->gradients)
        return bp_fail_memory("a batch of windows", 2 * places * E, sizeof(float));
    return BP_OK;
}

void bp_explain_batch_free(bp_explain_batch *batch)
{
    bp_free(batch->inputs);
    bp_free(batch->targets);
    bp_free(batch->values);
    bp_free(batch->vectors);
    bp_free(batch->gradients);
}

int64_t bp_explain_batch_windows(const bp_explain_batch *batch, int64_t length)
{
    return batch->capacity / length;
}

void bp_explain_batch_set(bp_explain_batch *batch, const bp_explained *document, int64_t w,
                          int64_t place, int64_t length)
{
    memcpy(batch->inputs + w * length, document->inputs, (size_t)length * sizeof *document->inputs);
    for (int64_t t = 0; t < length; t++)
        batch->targets[w * length + t] = t == place ? document->targets[place] : -1;
    batch->batch = (bp_model_batch){
        .windows = w + 1, .length = length, .inputs = batch->inputs, .targets = batch->targets};
}
