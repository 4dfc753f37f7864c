/* The predictions of the values of keys: their products with the output embeddings. Called by
 * explain.c after the positions of keys are known. */
#include "explain/states/memories.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

bp_err bp_memory_reader_new(bp_memory_reader *out, const bp_explain_settings *settings)
{
    const bp_model_info *info = settings->info;
    int64_t states = BP_MEMORY_KEYS * info->width, all = BP_MEMORY_KEYS * info->vocab_size,
            most = all > states ? all : states;

    *out = (bp_memory_reader){
        .settings = settings,
        .form = bp_memory_form_of(settings),
        .rows = bp_try_alloc("explain.memories", states, sizeof(float)),
        .part =
            bp_try_alloc("explain.memories", BP_MEMORY_KEYS * info->vocab_count + 1, sizeof(float)),
        .logits = bp_try_alloc("explain.memories", all, sizeof(float)),
        .scratch = bp_try_alloc("explain.memories", most, sizeof(float)),
        .none = bp_try_alloc("explain.memories", info->width + info->vocab_count, sizeof(float))};
    return out->rows && out->part && out->logits && out->scratch && out->none
               ? BP_OK
               : bp_fail_memory("logits of values", 3 * most, sizeof(float));
}

void bp_memory_reader_clear(bp_memory_reader *reader)
{
    bp_free(reader->rows);
    bp_free(reader->part);
    bp_free(reader->logits);
    bp_free(reader->scratch);
    bp_free(reader->none);
    bp_triggers_clear(&reader->triggers);
    bp_memory_form_clear(&reader->form);
}

/* logits[count][V] of the values in rows, on all ranks, without the head's bias, which is the
 * logits of zeros. */
static void find_logits(bp_memory_reader *self, bp_model *model, int64_t count)
{
    const bp_model_info *info = self->settings->info;
    int64_t V = info->vocab_size, own = info->vocab_count;
    float *bias = self->none + info->width;

    memset(self->logits, 0, (size_t)(count * V) * sizeof *self->logits);
    if (self->settings->last) {
        model->ops->logits(model, 0, self->none, 1, bias);
        model->ops->logits(model, 0, self->rows, count, self->part);
        for (int64_t r = 0; r < count; r++)
            for (int64_t v = 0; v < own; v++)
                self->logits[r * V + info->vocab_first + v] = self->part[r * own + v] - bias[v];
    }
    bp_all_sum(self->logits, count * V, self->scratch, self->settings->group);
}

/* Ids by descending logit, the smaller of equal ones first. */
static void find_top(bp_memory_value *value, const float *logits, int64_t V)
{
    double sum = 0;

    for (int64_t k = 0; k < BP_EXPLAIN_TOP; k++) {
        value->top[k] = -1;
        for (int64_t v = 0; v < V; v++) {
            bool taken = false;

            for (int64_t j = 0; j < k; j++)
                taken = taken || value->top[j] == v;
            if (!taken && (value->top[k] < 0 || logits[v] > logits[value->top[k]]))
                value->top[k] = (int32_t)v;
        }
    }
    for (int64_t v = 0; v < V; v++)
        sum += exp((double)logits[v] - (double)logits[value->top[0]]);
    value->log_p = (float)-log(sum);
}

static int32_t rank_of(const float *logits, int64_t V, int32_t token)
{
    int32_t rank = 0;

    if (token < 0 || token >= V)
        return 0;
    for (int64_t v = 0; v < V; v++)
        rank += logits[v] >= logits[token];
    return rank;
}

static void add_key(const bp_memory_reader *self, int64_t list, const float *logits, bp_buffer *out)
{
    int64_t V = self->settings->info->vocab_size, k = self->triggers.k;
    bp_memory_value value;

    find_top(&value, logits, V);
    bp_buffer_add(out, &value, sizeof value);
    for (int64_t m = 0; m < k; m++) {
        bool there = m < self->triggers.counts[list];
        int32_t rank = there ? rank_of(logits, V, self->triggers.list[list * k + m].next) : 0;

        bp_buffer_add(out, &rank, sizeof rank);
    }
}

void bp_memory_read(bp_memory_reader *self, bp_model *model, int64_t unit, bp_buffer *out)
{
    const bp_memory_form *form = &self->form;
    int64_t each = bp_memory_units(form) / form->layers, at = unit / each,
            first = unit % each * BP_MEMORY_KEYS,
            count = form->keys - first < BP_MEMORY_KEYS ? form->keys - first : BP_MEMORY_KEYS;

    model->ops->values(model, form->layer[at], first, count, self->rows, self->scratch);
    find_logits(self, model, count);
    for (int64_t r = 0; r < count && out; r++)
        add_key(self, (at * form->keys + first + r) * form->ends,
                self->logits + r * self->settings->info->vocab_size, out);
}
