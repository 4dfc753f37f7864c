/* Words by the corpus's tokenizer. Called by the methods that remove words. */
#include "explain/perturbation/features.h"

#include "base/mem.h"

#include <string.h>

/* The inputs of a document, or its source. */
typedef struct words {
    const bp_explain_settings *settings;
    const int32_t *tokens, *segments; /* [count]; segments may be NULL */
    int64_t count;
    bool keeps_first;  /* a model that continues texts needs its first input */
    int32_t *of_place; /* [count] */
} words;

static words inputs_of(const bp_explain_settings *settings, const bp_explained *document)
{
    return (words){.settings = settings,
                   .tokens = document->inputs,
                   .segments = document->segments,
                   .count = document->T,
                   .keeps_first = bp_explain_is_causal(settings->info) &&
                                  !bp_task_has_head(&settings->info->task)};
}

/* No feature: a special token, and a first input that stays. */
static bool is_fixed(const words *self, int64_t t)
{
    return bp_explain_is_special(self->settings, self->tokens[t]) || (t == 0 && self->keeps_first);
}

/* Does the token at t continue the word before it? */
static bool goes_on(const words *self, int64_t t)
{
    return t > 0 && self->settings->words.parts && self->settings->words.parts[self->tokens[t]] &&
           !is_fixed(self, t - 1) &&
           (!self->segments || self->segments[t] == self->segments[t - 1]);
}

/* The place after the end of the word that begins at t. */
static int64_t end_of_word(const words *self, int64_t t)
{
    for (t++; t < self->count && !is_fixed(self, t) && goes_on(self, t);)
        t++;
    return t;
}

int64_t explain_features_end(const bp_explain_settings *settings, const bp_explained *document,
                             int64_t place)
{
    const words self = inputs_of(settings, document);

    return end_of_word(&self, place);
}

static int32_t spelled(const words *self, int32_t token)
{
    return self->settings->words.same ? self->settings->words.same[token] : token;
}

/* The first place of an earlier word with the same tokens; -1 if there is none. */
static int64_t find_word(const words *self, int64_t first, int64_t end)
{
    for (int64_t t = 0; t < first; t++) {
        int64_t k = 0;

        if (self->of_place[t] < 0 || (t > 0 && goes_on(self, t)) ||
            end_of_word(self, t) - t != end - first)
            continue;
        while (k < end - first &&
               spelled(self, self->tokens[t + k]) == spelled(self, self->tokens[first + k]))
            k++;
        if (k == end - first)
            return t;
    }
    return -1;
}

/* This many consecutive words are one feature, together with all their other occurrences. */
static void find_groups(const words *self, int64_t *count)
{
    int64_t found = 0;

    for (int64_t t = 0, end; t < self->count; t = end) {
        end = t + 1;
        if (is_fixed(self, t)) {
            found = 0; /* no feature crosses a special token */
            continue;
        }
        end = end_of_word(self, t);
        *count += found % self->settings->keys->group == 0;
        for (int64_t k = t; k < end; k++)
            self->of_place[k] = (int32_t)(*count - 1);
        found++;
    }
}

static void find_words(const words *self, int64_t *count)
{
    for (int64_t t = 0, end, before; t < self->count; t = end) {
        end = t + 1;
        if (is_fixed(self, t))
            continue;
        end = end_of_word(self, t);
        before = find_word(self, t, end);
        for (int64_t k = t; k < end; k++)
            self->of_place[k] = before >= 0 ? self->of_place[before] : (int32_t)*count;
        *count += before < 0;
    }
}

static int32_t *find(const words *of, int64_t *count)
{
    words self = *of;

    self.of_place = bp_alloc("explain.features", self.count, sizeof *self.of_place);
    for (int64_t t = 0; t < self.count; t++)
        self.of_place[t] = -1;
    if (self.settings->keys->group > 0)
        find_groups(&self, count);
    else
        find_words(&self, count);
    return self.of_place;
}

void explain_features_of(explain_features *out, const bp_explain_settings *settings,
                         const bp_explained *document)
{
    const words inputs = inputs_of(settings, document),
                source = {.settings = settings, .tokens = document->sources, .count = document->S};

    *out = (explain_features){.S = document->S};
    out->of_source = find(&source, &out->count);
    out->source_count = out->count;
    out->of_place = find(&inputs, &out->count);
}

void explain_features_clear(explain_features *features)
{
    bp_free(features->of_place);
    bp_free(features->of_source);
}

int64_t explain_features_before(const explain_features *features, int64_t length)
{
    int64_t count = features->source_count;

    for (int64_t t = 0; t < length; t++)
        if (features->of_place[t] >= count)
            count = features->of_place[t] + 1;
    return count;
}

static void keep(uint8_t *kept, const int32_t *of_place, const uint8_t *set, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        kept[t] = of_place[t] < 0 || set[of_place[t]];
}

void explain_features_keep(uint8_t *kept, const explain_features *features, const uint8_t *set,
                           int64_t length)
{
    keep(kept, features->of_place, set, length);
    keep(kept + length, features->of_source, set, features->S);
}

static void spread(float *to, const int32_t *of_place, const double *values, int64_t count)
{
    for (int64_t t = 0; t < count; t++)
        to[t] = of_place[t] < 0 ? 0 : (float)values[of_place[t]];
}

void explain_features_spread(float *to, float *to_source, const explain_features *features,
                             const double *values, int64_t length)
{
    spread(to, features->of_place, values, length);
    spread(to_source, features->of_source, values, features->S);
}

void explain_features_write(float *to, float *to_source, const explain_features *features,
                            int64_t T)
{
    for (int64_t t = 0; t < T; t++)
        to[t] = (float)features->of_place[t];
    for (int64_t s = 0; s < features->S; s++)
        to_source[s] = (float)features->of_source[s];
}
