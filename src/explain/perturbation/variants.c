/* Windows of changed texts, side by side. Called by the methods that remove or replace words. */
#include "explain/perturbation/variants.h"

#include "base/mem.h"

#include <string.h>

/* ---- which models ---- */

static bool is_classifier(const bp_model_info *info)
{
    return bp_task_has_head(&info->task) && bp_task_kind_has_classes(bp_task_kind_of(&info->task));
}

bool explain_variants_at_once(const bp_explain_settings *settings, const bp_explained *document)
{
    return is_classifier(settings->info) || (settings->info->masks && document->hides < 0);
}

int64_t explain_variants_outcomes(const bp_explain_settings *settings, const bp_explained *document)
{
    return is_classifier(settings->info)                  ? settings->info->vocab_size
           : explain_variants_at_once(settings, document) ? document->K
                                                          : 1;
}

int64_t explain_variants_column(const bp_explain_settings *settings, const bp_explained *document,
                                int64_t k)
{
    return is_classifier(settings->info)                  ? document->targets[k]
           : explain_variants_at_once(settings, document) ? k
                                                          : 0;
}

const char *explain_variants_lacks(const bp_model_info *info)
{
    return info->reads_source && !is_classifier(info) ? "its predictions have two texts"
           : bp_task_has_head(&info->task) && !is_classifier(info)
               ? "its predictions are not of whole texts"
               : NULL;
}

/* ---- a batch ---- */

static bool has_memory(const explain_variants *self)
{
    return self->inputs && self->segments && self->targets && self->places && self->values;
}

/* Windows of a batch. */
static int64_t capacity_of(const explain_variants *self)
{
    int64_t V = self->settings->info->vocab_size, most = self->settings->batch / self->length;

    if (self->best && most > EXPLAIN_LOG_P / V)
        most = EXPLAIN_LOG_P / V;
    return most > 1 ? most : 1;
}

/* Are whole distributions asked for? */
static bool distributes(const explain_variants *self)
{
    return self->best || is_classifier(self->settings->info);
}

void explain_variants_begin(explain_variants *out, bp_model *lm,
                            const bp_explain_settings *settings, const bp_explained *document,
                            int64_t k, bool best)
{
    int64_t outcomes = explain_variants_outcomes(settings, document);
    int64_t places, V = settings->info->vocab_size;

    *out = (explain_variants){.lm = lm,
                              .settings = settings,
                              .document = document,
                              .best = best,
                              .target = k,
                              .length = bp_explain_length(settings, document, k)};
    out->each = best || is_classifier(settings->info) ? 1 : outcomes;
    out->outcomes = best ? 2 : outcomes;
    out->capacity = capacity_of(out);
    places = out->capacity * out->length;
    out->inputs = bp_try_alloc("explain.variants", places, sizeof(int32_t));
    out->segments = bp_try_alloc("explain.variants", places, sizeof(int32_t));
    out->targets = bp_try_alloc("explain.variants", places, sizeof(int32_t));
    out->places = bp_try_alloc("explain.variants", out->capacity * out->each, sizeof(int32_t));
    out->values = bp_try_alloc("explain.variants", distributes(out) ? out->capacity * V : places,
                               sizeof(float));
    out->err = bp_agree(
        settings->group,
        has_memory(out) ? BP_OK : bp_fail_memory("changed texts", places, 4 * sizeof(float)));
}

/* Windows are as long as the longest of them. */
static int64_t shorten(explain_variants *self)
{
    int64_t L = self->length, longest = 1;

    for (int64_t w = 0; w < self->count; w++)
        for (int64_t t = longest; t < L; t++)
            if (self->inputs[w * L + t] >= 0)
                longest = t + 1;
    for (int64_t w = 1; w < self->count && longest < L; w++) {
        size_t bytes = (size_t)longest * sizeof(int32_t);

        memmove(self->inputs + w * longest, self->inputs + w * L, bytes);
        memmove(self->segments + w * longest, self->segments + w * L, bytes);
        memmove(self->targets + w * longest, self->targets + w * L, bytes);
    }
    return longest;
}

/* What comes after a text that is not read as a whole is any token. */
static void fill_up(explain_variants *self, int64_t places)
{
    bool whole = self->settings->info->masks || is_classifier(self->settings->info);

    for (int64_t i = 0; i < places && !whole; i++)
        if (self->inputs[i] < 0)
            self->inputs[i] = 0;
}

static int64_t find_best(const float *row, int64_t count)
{
    int64_t best = 0;

    for (int64_t v = 1; v < count; v++)
        best = row[v] > row[best] ? v : best;
    return best;
}

static void take(explain_variants *self, int64_t length)
{
    int64_t V = self->settings->info->vocab_size;

    for (int64_t w = 0; w < self->count; w++) {
        const float *row = self->values + w * (distributes(self) ? V : length);

        if (self->best) {
            *self->out++ = (double)row[self->document->targets[self->target]];
            *self->out++ = (double)find_best(row, V);
            continue;
        }
        for (int64_t k = 0; k < self->outcomes; k++)
            *self->out++ = (double)row[distributes(self) ? k : self->places[w * self->each + k]];
    }
}

static void run(explain_variants *self)
{
    int64_t length;

    if (self->count == 0 || self->err != BP_OK)
        return;
    length = shorten(self);
    fill_up(self, self->count * length);
    const bp_model_batch batch = {.windows = self->count,
                                  .length = length,
                                  .inputs = self->inputs,
                                  .targets = self->targets,
                                  .segments = self->document->segments ? self->segments : NULL};

    self->err = bp_explain_step(self->settings);
    if (self->err == BP_OK)
        self->err = distributes(self) ? bp_model_distribution(self->lm, &batch, self->values, NULL)
                                      : bp_model_score(self->lm, &batch, self->values);
    if (self->err == BP_OK)
        take(self, length);
    self->count = 0;
}

/* ---- a text ---- */

/* What stands for a place that is removed; -1: nothing. */
static int32_t substitute(const bp_explain_settings *settings)
{
    return settings->removal < 0 ? -1 : (int32_t)settings->removal;
}

/* Row w of the batch, of the document's places up to `length`; those that are not kept are replaced
 * or left out. tokens: in place of the document's. */
static void put(explain_variants *self, const int32_t *tokens, const uint8_t *kept)
{
    int64_t L = self->length, w = self->count, to = w * L, each = self->each;
    int32_t *places = self->places + w * each, other = substitute(self->settings);

    for (int64_t t = 0; t < L; t++) {
        bool hidden = self->document->hides >= 0 && self->document->places[self->target] == t,
             stays = !kept || kept[t] || hidden;

        for (int64_t k = 0; k < each; k++)
            if (self->document->places[self->target + k] == t)
                places[k] = (int32_t)(to - w * L);
        if (!stays && other < 0)
            continue;
        self->inputs[to] = hidden ? (int32_t)self->document->hides : stays ? tokens[t] : other;
        self->segments[to] = self->document->segments ? self->document->segments[t] : 0;
        self->targets[to++] = -1;
    }
    for (; to < (w + 1) * L; to++) {
        self->inputs[to] = -1;
        self->segments[to] = 0;
        self->targets[to] = -1;
    }
}

/* Where a causal model's last input is removed, it predicts after what is left of it. */
static void set_targets(explain_variants *self)
{
    int64_t L = self->length, w = self->count, each = self->each, end = L;
    bool classifies = is_classifier(self->settings->info);

    while (end > 1 && self->inputs[w * L + end - 1] < 0)
        end--;
    for (int64_t k = 0; k < each; k++) {
        int32_t *place = &self->places[w * each + k];

        if (*place >= end)
            *place = (int32_t)(end - 1);
        self->targets[w * L + *place] = classifies ? 0 : self->document->targets[self->target + k];
    }
}

static void add(explain_variants *self, const int32_t *tokens, const uint8_t *kept)
{
    if (self->err != BP_OK)
        return;
    put(self, tokens, kept);
    set_targets(self);
    if (++self->count == self->capacity)
        run(self);
}

void explain_variants_keep(explain_variants *self, const uint8_t *kept)
{
    add(self, self->document->inputs, kept);
}

void explain_variants_replace(explain_variants *self, const int32_t *tokens)
{
    add(self, tokens, NULL);
}

bp_err explain_variants_end(explain_variants *self)
{
    run(self);
    bp_free(self->values);
    bp_free(self->places);
    bp_free(self->targets);
    bp_free(self->segments);
    bp_free(self->inputs);
    return self->err;
}
