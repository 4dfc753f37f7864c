/* Windows of changed texts, side by side. Called by the methods that remove or replace words. */
#include "explain/perturbation/variants.h"
#include "explain/perturbation/features.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

/* ---- models supported ---- */

bool explain_variants_classifies(const bp_model_info *info)
{
    return bp_task_has_head(&info->task) && bp_task_kind_has_classes(bp_task_kind_of(&info->task));
}

/* Does its task predict at positions of the text: words, or ends of answers? */
static bool is_at_positions(const bp_model_info *info)
{
    const bp_task_kind *kind = bp_task_kind_of(&info->task);

    return bp_task_has_head(&info->task) && (kind->at_words || kind->over_positions);
}

static bool is_of_answers(const bp_model_info *info)
{
    return bp_task_has_head(&info->task) && bp_task_kind_of(&info->task)->over_positions;
}

/* Tags, if words are removed: each keeps its own word. */
bool explain_variants_at_once(const bp_explain_settings *settings, const bp_explained *document)
{
    const bp_model_info *info = settings->info;

    if (bp_task_has_head(&info->task))
        return !bp_task_kind_of(&info->task)->at_words || settings->removal >= 0;
    return info->masks && document->hides < 0;
}

double explain_variants_value(const bp_explain_settings *settings, double value)
{
    const bp_task_shape *task = &settings->info->task;

    return bp_task_has_head(task) && !bp_task_kind_of(task)->is_value ? exp(value) : value;
}

int64_t explain_variants_outcomes(const bp_explain_settings *settings, const bp_explained *document)
{
    return explain_variants_classifies(settings->info)    ? settings->info->vocab_size
           : explain_variants_at_once(settings, document) ? document->K
                                                          : 1;
}

int64_t explain_variants_column(const bp_explain_settings *settings, const bp_explained *document,
                                int64_t k)
{
    return explain_variants_classifies(settings->info)    ? document->targets[k]
           : explain_variants_at_once(settings, document) ? k
                                                          : 0;
}

/* ---- a batch ---- */

static bool is_value(const bp_model_info *info)
{
    return bp_task_has_head(&info->task) && bp_task_kind_of(&info->task)->is_value;
}

/* Are whole distributions requested? */
static bool distributes(const explain_variants *self)
{
    const bp_model_info *info = self->settings->info;

    return (self->best && !is_value(info)) || explain_variants_classifies(info);
}

static bool has_memory(const explain_variants *self)
{
    return self->inputs && self->segments && self->targets && self->positions && self->values &&
           self->sources;
}

/* Values of a text from the model. */
static int64_t columns_of(const explain_variants *self, int64_t length)
{
    return distributes(self) ? bp_model_columns(self->settings->info, length) : length;
}

/* Windows of a batch. */
static int64_t capacity_of(const explain_variants *self)
{
    int64_t V = columns_of(self, self->length), S = self->document->S,
            longest = self->length > S ? self->length : S, most = self->settings->batch / longest;

    if (self->best && most > EXPLAIN_LOG_P / V)
        most = EXPLAIN_LOG_P / V;
    return most > 1 ? most : 1;
}

void explain_variants_begin(explain_variants *out, bp_model *model,
                            const bp_explain_settings *settings, const bp_explained *document,
                            int64_t k, bool best)
{
    bool at_once = explain_variants_at_once(settings, document);
    int64_t outcomes = explain_variants_outcomes(settings, document);
    int64_t positions;

    *out = (explain_variants){.model = model,
                              .settings = settings,
                              .document = document,
                              .best = best,
                              .target = best || !at_once ? k : 0,
                              .length = bp_explain_length(settings, document, k)};
    out->word_end = explain_features_end(settings, document, document->positions[k]);
    out->each = best || explain_variants_classifies(settings->info) ? 1 : outcomes;
    out->outcomes = best ? 2 : outcomes;
    out->capacity = capacity_of(out);
    positions = out->capacity * out->length;
    out->inputs = bp_try_alloc("explain.variants", positions, sizeof(int32_t));
    out->segments = bp_try_alloc("explain.variants", positions, sizeof(int32_t));
    out->targets = bp_try_alloc("explain.variants", positions, sizeof(int32_t));
    out->positions = bp_try_alloc("explain.variants", out->capacity * out->each, sizeof(int32_t));
    out->sources = bp_try_alloc("explain.variants", out->capacity * document->S, sizeof(int32_t));
    out->source_lengths = bp_alloc("explain.variants", out->capacity, sizeof(int32_t));
    out->values = bp_try_alloc("explain.variants", out->capacity * columns_of(out, out->length),
                               sizeof(float));
    out->err = bp_agree(
        settings->group,
        has_memory(out) ? BP_OK : bp_fail_memory("changed texts", positions, 4 * sizeof(float)));
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

/* Padding after a text that is not read as a whole may be any token. */
static void fill_up(explain_variants *self, int64_t positions)
{
    bool whole = self->settings->info->masks || bp_task_has_head(&self->settings->info->task);

    for (int64_t i = 0; i < positions && !whole; i++)
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

/* The place of target k in a window: an answer's ends are targets of the first positions. */
static int64_t place_of(const explain_variants *self, int64_t w, int64_t k)
{
    return is_of_answers(self->settings->info) ? self->document->positions[self->target + k]
                                               : self->positions[w * self->each + k];
}

static void take(explain_variants *self, int64_t length)
{
    int64_t columns = columns_of(self, length);

    for (int64_t w = 0; w < self->count; w++) {
        const float *row = self->values + w * columns;

        if (self->best) {
            bool value = is_value(self->settings->info);
            int64_t at = value ? place_of(self, w, 0) : self->document->targets[self->target];

            *self->out++ = (double)row[at];
            *self->out++ = value ? 0 : (double)find_best(row, columns);
            continue;
        }
        for (int64_t k = 0; k < self->outcomes; k++)
            *self->out++ = (double)row[distributes(self) ? k : place_of(self, w, k)];
    }
}

static void run(explain_variants *self)
{
    int64_t length;

    if (self->count == 0 || self->err != BP_OK)
        return;
    length = shorten(self);
    fill_up(self, self->count * length);
    bp_model_batch batch = {.windows = self->count,
                            .length = length,
                            .inputs = self->inputs,
                            .targets = self->targets,
                            .segments = self->document->segments ? self->segments : NULL};

    if (self->document->S > 0) {
        batch.source_length = self->document->S;
        batch.sources = self->sources;
        batch.source_lengths = self->source_lengths;
    }
    self->err = bp_explain_step(self->settings);
    if (self->err == BP_OK)
        self->err = distributes(self)
                        ? bp_model_distribution(self->model, &batch, self->values, NULL)
                        : bp_model_score(self->model, &batch, self->values);
    if (self->err == BP_OK)
        take(self, length);
    self->count = 0;
}

/* ---- a text ---- */

/* The replacement of a removed place; -1 if there is none. */
static int32_t substitute(const bp_explain_settings *settings)
{
    return settings->removal < 0 ? -1 : (int32_t)settings->removal;
}

/* The input to which target k of a text refers. */
static int64_t token_of(const explain_variants *self, int64_t k)
{
    k += self->target;
    return is_of_answers(self->settings->info) ? self->document->targets[k]
                                               : self->document->positions[k];
}

/* For tags and answers: the input of a target cannot be removed. */
static bool is_needed(const explain_variants *self, int64_t t)
{
    for (int64_t k = 0; k < self->each && is_at_positions(self->settings->info); k++) {
        int64_t first = token_of(self, k);

        if (t >= first && t < (is_of_answers(self->settings->info) ? first + 1 : self->word_end))
            return true;
    }
    return false;
}

/* The source of row w: at least one token stays. tokens: instead of the document's. */
static void put_source(explain_variants *self, const int32_t *tokens, const uint8_t *kept)
{
    int64_t S = self->document->S, w = self->count, to = w * S;
    int32_t other = substitute(self->settings);

    for (int64_t s = 0; s < S; s++) {
        bool stays = !kept || kept[s] || (s == S - 1 && to == w * S);

        if (stays || other >= 0)
            self->sources[to++] = stays ? tokens[s] : other;
    }
    self->source_lengths[w] = (int32_t)(to - w * S);
    for (; to < (w + 1) * S; to++)
        self->sources[to] = 0;
}

/* Row w of the batch, of the document's positions up to `length`; positions not kept are replaced
 * or removed. tokens: instead of the document's. */
static void put(explain_variants *self, const int32_t *tokens, const uint8_t *kept)
{
    int64_t L = self->length, w = self->count, to = w * L, each = self->each;
    int32_t *positions = self->positions + w * each, other = substitute(self->settings);

    for (int64_t t = 0; t < L; t++) {
        bool hidden = self->document->hides >= 0 && self->document->positions[self->target] == t,
             stays = !kept || kept[t] || hidden || (other < 0 && is_needed(self, t));

        for (int64_t k = 0; k < each; k++)
            if (token_of(self, k) == t)
                positions[k] = (int32_t)(to - w * L);
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

/* If the last input of a causal model is removed, it predicts after the last remaining one. */
static void set_targets(explain_variants *self)
{
    int64_t L = self->length, w = self->count, each = self->each, end = L;
    bool classifies = explain_variants_classifies(self->settings->info);

    while (end > 1 && self->inputs[w * L + end - 1] < 0)
        end--;
    for (int64_t k = 0; k < each; k++) {
        int32_t *place = &self->positions[w * each + k];

        if (*place >= end)
            *place = (int32_t)(end - 1);
        if (is_of_answers(self->settings->info))
            self->targets[w * L + place_of(self, w, k)] = *place;
        else
            self->targets[w * L + *place] =
                classifies ? 0 : self->document->targets[self->target + k];
    }
}

static void add(explain_variants *self, const int32_t *tokens, const int32_t *sources,
                const uint8_t *kept)
{
    if (self->err != BP_OK)
        return;
    put(self, tokens, kept);
    put_source(self, sources, kept ? kept + self->length : NULL);
    set_targets(self);
    if (++self->count == self->capacity)
        run(self);
}

void explain_variants_keep(explain_variants *self, const uint8_t *kept)
{
    add(self, self->document->inputs, self->document->sources, kept);
}

void explain_variants_replace(explain_variants *self, const int32_t *tokens)
{
    bool of_source = self->document->S > 0;

    add(self, of_source ? self->document->inputs : tokens,
        of_source ? tokens : self->document->sources, NULL);
}

bp_err explain_variants_end(explain_variants *self)
{
    run(self);
    bp_free(self->values);
    bp_free(self->source_lengths);
    bp_free(self->sources);
    bp_free(self->positions);
    bp_free(self->targets);
    bp_free(self->segments);
    bp_free(self->inputs);
    return self->err;
}
