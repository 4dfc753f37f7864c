/* Words by the corpus's tokenizer. Called by the methods that remove words. */
#include "explain/perturbation/features.h"

#include "base/mem.h"

#include <string.h>

/* No feature: a special token, and what a model that continues texts cannot do without. */
static bool is_fixed(const bp_explain_settings *settings, const bp_explained *document, int64_t t)
{
    return bp_explain_is_special(settings, document->inputs[t]) ||
           (t == 0 && bp_explain_is_causal(settings->info) &&
            !bp_task_has_head(&settings->info->task));
}

/* Does the token at t go on with the word before it? */
static bool goes_on(const bp_explain_settings *settings, const bp_explained *document, int64_t t)
{
    return t > 0 && settings->words.parts && settings->words.parts[document->inputs[t]] &&
           !is_fixed(settings, document, t - 1) &&
           (!document->segments || document->segments[t] == document->segments[t - 1]);
}

/* The place after the last of a word that begins at t. */
static int64_t end_of_word(const bp_explain_settings *settings, const bp_explained *document,
                           int64_t t)
{
    for (t++;
         t < document->T && !is_fixed(settings, document, t) && goes_on(settings, document, t);)
        t++;
    return t;
}

static int32_t spelled(const bp_explain_settings *settings, int32_t token)
{
    return settings->words.same ? settings->words.same[token] : token;
}

/* The first place of an earlier word with the same tokens; -1: none. */
static int64_t find_word(const bp_explain_settings *settings, const bp_explained *document,
                         const int32_t *of_place, int64_t first, int64_t end)
{
    for (int64_t t = 0; t < first; t++) {
        int64_t k = 0;

        if (of_place[t] < 0 || (t > 0 && goes_on(settings, document, t)) ||
            end_of_word(settings, document, t) - t != end - first)
            continue;
        while (k < end - first && spelled(settings, document->inputs[t + k]) ==
                                      spelled(settings, document->inputs[first + k]))
            k++;
        if (k == end - first)
            return t;
    }
    return -1;
}

/* So many words that follow one another are one feature, wherever else they come. */
static void find_groups(explain_features *out, const bp_explain_settings *settings,
                        const bp_explained *document)
{
    int64_t words = 0;

    for (int64_t t = 0, end; t < document->T; t = end) {
        end = t + 1;
        if (is_fixed(settings, document, t)) {
            words = 0; /* no feature crosses a special token */
            continue;
        }
        end = end_of_word(settings, document, t);
        out->count += words % settings->keys->group == 0;
        for (int64_t k = t; k < end; k++)
            out->of_place[k] = (int32_t)(out->count - 1);
        words++;
    }
}

static void find_words(explain_features *out, const bp_explain_settings *settings,
                       const bp_explained *document)
{
    for (int64_t t = 0, end, before; t < document->T; t = end) {
        end = t + 1;
        if (is_fixed(settings, document, t))
            continue;
        end = end_of_word(settings, document, t);
        before = find_word(settings, document, out->of_place, t, end);
        for (int64_t k = t; k < end; k++)
            out->of_place[k] = before >= 0 ? out->of_place[before] : (int32_t)out->count;
        out->count += before < 0;
    }
}

void explain_features_of(explain_features *out, const bp_explain_settings *settings,
                         const bp_explained *document)
{
    *out = (explain_features){.of_place =
                                  bp_alloc("explain.features", document->T, sizeof *out->of_place)};
    for (int64_t t = 0; t < document->T; t++)
        out->of_place[t] = -1;
    if (settings->keys->group > 0)
        find_groups(out, settings, document);
    else
        find_words(out, settings, document);
}

void explain_features_keep(uint8_t *kept, const explain_features *features, const uint8_t *set,
                           int64_t length)
{
    for (int64_t t = 0; t < length; t++)
        kept[t] = features->of_place[t] < 0 || set[features->of_place[t]];
}

void explain_features_spread(float *to, const explain_features *features, const double *values,
                             int64_t length)
{
    for (int64_t t = 0; t < length; t++)
        to[t] = features->of_place[t] < 0 ? 0 : (float)values[features->of_place[t]];
}

void explain_features_clear(explain_features *features)
{
    bp_free(features->of_place);
}

int64_t explain_features_before(const explain_features *features, int64_t length)
{
    int64_t count = 0;

    for (int64_t t = 0; t < length; t++)
        if (features->of_place[t] >= count)
            count = features->of_place[t] + 1;
    return count;
}
