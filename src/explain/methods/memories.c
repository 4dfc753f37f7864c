/* MLPs as key-value memories: the positions of the corpus with the largest coefficients of each
 * key, the prediction of its value, and whether it agrees with the next tokens at these positions.
 * Geva et al. 2021, "Transformer Feed-Forward Layers Are Key-Value Memories". */
#include "explain/states/memories.h"

#include "base/mem.h"

#include <string.h>

/* As in the parts. */
typedef struct record {
    int32_t list, place, next;
    float value;
} record;

/* ---- of a document ---- */

/* The token that follows a place, for a model that continues texts; else -1, also after the last
 * place if the token there is the model's choice (explain.target = best). */
static int32_t next_of(const bp_explain_settings *settings, const bp_explained *document,
                       int64_t place)
{
    if (settings->info->masks || bp_task_has_head(&settings->info->task))
        return -1;
    if (place + 1 < document->T)
        return document->inputs[place + 1];
    return settings->best ? -1 : document->targets[document->T - 1];
}

static void add_coefficient(const bp_explain_settings *settings, const bp_trigger *trigger,
                            int64_t list, bp_buffer *out)
{
    const record one = {(int32_t)list, trigger->place, trigger->next, trigger->value};

    if (bp_triggers_add(settings->running, list, trigger))
        bp_buffer_add(out, &one, sizeof one);
}

/* The positions that this rank's documents do not exclude yet. */
static void add_records(const bp_explain_settings *settings, const bp_explained *document,
                        const float *coefficients, bp_buffer *out)
{
    bp_memory_form form = bp_memory_form_of(settings);
    int64_t T = document->T, F = form.keys;

    for (int64_t at = 0; at < form.layers; at++)
        for (int64_t t = 0; t < T; t++) {
            const float *row = coefficients + (form.layer[at] * T + t) * F;
            bp_trigger one = {.document = (int32_t)settings->unit,
                              .place = (int32_t)t,
                              .next = next_of(settings, document, t)};

            if (bp_explain_is_special(settings, document->inputs[t]))
                continue;
            for (int64_t f = 0; f < F; f++)
                for (int64_t end = 0; end < form.ends; end++) {
                    one.value = end == 0 ? row[f] : -row[f];
                    add_coefficient(settings, &one, (at * F + f) * form.ends + end, out);
                }
        }
    bp_memory_form_clear(&form);
}

static bp_err collect(bp_model *model, const bp_explain_settings *settings,
                      const bp_explained *document, bp_buffer *out)
{
    int64_t floats = settings->info->layers * document->T * settings->info->keys;
    float *coefficients = bp_try_alloc("explain.memories", floats, sizeof *coefficients);
    bp_err err = bp_agree(
        settings->group,
        coefficients ? BP_OK : bp_fail_memory("coefficients of keys", floats, sizeof(float)));

    if (err == BP_OK)
        err = bp_explain_coefficients(model, settings, document, coefficients);
    if (err == BP_OK && out)
        add_records(settings, document, coefficients, out);
    bp_free(coefficients);
    return err;
}

/* ---- of all ---- */

bp_err bp_memory_triggers(bp_triggers *out, const bp_explain_collection *all)
{
    bp_memory_form form = bp_memory_form_of(all->settings);
    bp_err err = bp_triggers_new(out, bp_memory_lists(&form), all->settings->keys->keys);

    for (int64_t d = 0; d < all->documents && err == BP_OK; d++) {
        const char *data;
        size_t bytes;

        err = all->read(all, d, &data, &bytes);
        for (size_t at = 0; err == BP_OK && at + sizeof(record) <= bytes; at += sizeof(record)) {
            record one;

            memcpy(&one, data + at, sizeof one);
            if (one.list < 0 || one.list >= out->lists)
                err = bp_explain_damaged(d);
            else
                (void)bp_triggers_add(out, one.list,
                                      &(bp_trigger){one.value, (int32_t)d, one.place, one.next});
        }
    }
    bp_memory_form_clear(&form);
    return err;
}

/* ---- the file ---- */

typedef struct writer {
    const bp_explain_collection *all;
    bp_h5 *h5;
    bp_memory_form form;
    bp_triggers triggers;
    int64_t k, keys;        /* of all layers */
    int64_t *numbers;       /* [keys][k] */
    float *values;          /* [keys][k] */
    bp_memory_value *value; /* [keys] */
    int32_t *ranks;         /* [keys][k] */
} writer;

/* The e-th list of a key. */
static const bp_trigger *trigger_of(const writer *self, int64_t key, int64_t end, int64_t m)
{
    int64_t list = key * self->form.ends + end;

    return m < self->triggers.counts[list] ? &self->triggers.list[list * self->k + m] : NULL;
}

static bp_err write_end(writer *self, const char *prefix, int64_t end)
{
    static const char *const NAMES[] = {"document", "place", "next"};
    bp_err err = BP_OK;

    for (int part = 0; part < 4 && err == BP_OK; part++) {
        char *name = bp_sprintf("%s_%s", prefix, part < 3 ? NAMES[part] : "coefficient");

        for (int64_t i = 0; i < self->keys * self->k; i++) {
            const bp_trigger *one = trigger_of(self, i / self->k, end, i % self->k);

            self->numbers[i] = !one        ? -1
                               : part == 0 ? one->document
                               : part == 1 ? one->place
                                           : one->next;
            self->values[i] = !one ? 0 : end == 0 ? one->value : -one->value;
        }
        err = part < 3 ? bp_explain_write_table(self->h5, name, BP_H5_I64, self->numbers,
                                                self->keys, self->k)
                       : bp_explain_write_table(self->h5, name, BP_H5_F32, self->values, self->keys,
                                                self->k);
        bp_free(name);
    }
    return err;
}

/* The values of all keys, from the parts of their units. */
static bp_err read_values(writer *self)
{
    int64_t each = bp_memory_units(&self->form) / self->form.layers;
    size_t one = sizeof *self->value + (size_t)self->k * sizeof *self->ranks;
    bp_part_result part = {0};
    bp_parts *parts = NULL;
    bp_err err = self->all->open_values(self->all, &parts);

    while (err == BP_OK && bp_parts_next(parts, &part, &err)) {
        int64_t first = part.unit / each * self->form.keys + part.unit % each * BP_MEMORY_KEYS,
                left = self->form.keys - part.unit % each * BP_MEMORY_KEYS,
                count = left < BP_MEMORY_KEYS ? left : BP_MEMORY_KEYS;

        err = bp_part_result_expect(&part, (size_t)count * one);
        for (int64_t r = 0; r < count && err == BP_OK; r++) {
            memcpy(&self->value[first + r], part.data + (size_t)r * one, sizeof *self->value);
            memcpy(self->ranks + (first + r) * self->k,
                   part.data + (size_t)r * one + sizeof *self->value,
                   (size_t)self->k * sizeof *self->ranks);
        }
    }
    bp_parts_free(&parts);
    return err;
}

static bp_err write_values(writer *self)
{
    int64_t *tops = bp_alloc("explain.memories", self->keys * BP_EXPLAIN_TOP, sizeof *tops);
    bp_err err;

    for (int64_t i = 0; i < self->keys * BP_EXPLAIN_TOP; i++)
        tops[i] = self->value[i / BP_EXPLAIN_TOP].top[i % BP_EXPLAIN_TOP];
    for (int64_t i = 0; i < self->keys; i++)
        self->values[i] = self->value[i].log_p;
    for (int64_t i = 0; i < self->keys * self->k; i++)
        self->numbers[i] = self->ranks[i];
    err =
        bp_explain_write_table(self->h5, "value_top5", BP_H5_I64, tops, self->keys, BP_EXPLAIN_TOP);
    if (err == BP_OK)
        err = bp_h5_write(self->h5, "value_logprob", BP_H5_F32, self->values, self->keys);
    if (err == BP_OK)
        err = bp_explain_write_table(self->h5, "rank_of_next", BP_H5_I64, self->numbers, self->keys,
                                     self->k);
    bp_free(tops);
    return err;
}

static void append(json_t *figures, const char *name, double sum, int64_t count)
{
    json_t *list = json_object_get(figures, name);

    if (!list) {
        list = json_array();
        (void)json_object_set_new(figures, name, list);
    }
    (void)json_array_append_new(list, count > 0 ? json_real(sum / (double)count) : json_null());
}

/* For each layer: keys with a trigger, and how often the next token is the value's prediction. */
static void set_figures(const writer *self, json_t *figures)
{
    json_t *layers = json_array(), *with = json_array();

    for (int64_t at = 0; at < self->form.layers; at++) {
        int64_t keys = 0, first = 0, first_right = 0, all = 0, right = 0;
        double reciprocal = 0;

        for (int64_t key = at * self->form.keys; key < (at + 1) * self->form.keys; key++) {
            const int32_t *ranks = self->ranks + key * self->k;

            keys += trigger_of(self, key, 0, 0) != NULL;
            first += ranks[0] > 0;
            first_right += ranks[0] == 1;
            reciprocal += ranks[0] > 0 ? 1 / (double)ranks[0] : 0;
            for (int64_t m = 0; m < self->k; m++) {
                all += ranks[m] > 0;
                right += ranks[m] == 1;
            }
        }
        (void)json_array_append_new(layers, json_integer(self->form.layer[at] + 1));
        (void)json_array_append_new(with, json_integer(keys));
        append(figures, "agreement_first", (double)first_right, first);
        append(figures, "agreement_all", (double)right, all);
        append(figures, "reciprocal_rank_first", reciprocal, first);
    }
    (void)json_object_set_new(figures, "layers", layers);
    (void)json_object_set_new(figures, "keys_with_trigger", with);
}

static bp_err allocate(writer *self)
{
    int64_t cells = self->keys * self->k;

    self->numbers = bp_try_alloc("explain.memories", cells, sizeof *self->numbers);
    self->values = bp_try_alloc("explain.memories", cells, sizeof *self->values);
    self->value = bp_try_alloc("explain.memories", self->keys, sizeof *self->value);
    self->ranks = bp_try_alloc("explain.memories", cells, sizeof *self->ranks);
    return self->numbers && self->values && self->value && self->ranks
               ? BP_OK
               : bp_fail_memory("positions of keys", cells, sizeof(int64_t));
}

static bp_err merge(const bp_explain_collection *all, bp_h5 *h5, json_t *figures)
{
    writer self = {.all = all,
                   .h5 = h5,
                   .form = bp_memory_form_of(all->settings),
                   .k = all->settings->keys->keys};
    bp_err err;

    self.keys = self.form.layers * self.form.keys;
    err = allocate(&self);
    if (err == BP_OK)
        err = bp_memory_triggers(&self.triggers, all);
    if (err == BP_OK)
        err = read_values(&self);
    if (err == BP_OK)
        err = bp_explain_write_layers(h5, all->settings);
    if (err == BP_OK)
        err = write_end(&self, "trigger", 0);
    if (err == BP_OK && self.form.ends > 1)
        err = write_end(&self, "negative", 1);
    if (err == BP_OK)
        err = write_values(&self);
    if (err == BP_OK)
        set_figures(&self, figures);
    bp_free(self.numbers);
    bp_free(self.values);
    bp_free(self.value);
    bp_free(self.ranks);
    bp_triggers_clear(&self.triggers);
    bp_memory_form_clear(&self.form);
    return err;
}

static const char *lacks(const bp_model_info *info)
{
    return info->log_probabilities || info->capped_logits
               ? "its head is no softmax of one linear map"
           : bp_task_has_head(&info->task)    ? "it has the head of a task in place of words"
           : info->layer_width != info->width ? "its values are not as wide as its embedding"
                                              : bp_explain_lacks_keys(info);
}

/* Coefficients and what sums them, values with their logits, and the lists of positions. */
static int64_t floats_of(const bp_explain_sizes *sizes)
{
    int64_t positions = 4 * sizes->layers * sizes->keys * (2 * sizes->triggers + 1);

    return 2 * sizes->layers * sizes->T * sizes->keys + BP_MEMORY_KEYS * (3 * sizes->V + sizes->C) +
           2 * positions;
}

static int64_t merge_bytes(const bp_explain_settings *settings, int64_t tokens)
{
    int64_t keys = settings->layer_count * settings->info->keys;

    (void)tokens;
    return keys * settings->keys->keys * (int64_t)(2 * sizeof(bp_trigger) + 16);
}

const bp_explain_method bp_explain_memories = {
    .name = "memories",
    .title = "MLPs as memories",
    .backward = true,
    .help = "is which positions set off each key of an MLP, and what its value predicts",
    .lacks = lacks,
    .collect = collect,
    .merge = merge,
    .of_keys = true,
    .merge_bytes = merge_bytes,
    .floats = floats_of};
