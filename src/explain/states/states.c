/* The states of ordinary tokens after each layer: taken out of a pass by a probe, kept in parts,
 * and read back. Called by methods of the whole corpus. */
#include "explain/states/collection.h"

#include "base/mem.h"
#include "nn/core/block.h"

#include <string.h>

const char *bp_explain_lacks_layers(const bp_model_info *info)
{
    return info->layers == 0        ? "it has no layers"
           : info->layer_width == 0 ? "its layers leave states of different widths"
           : info->source_layers > 0 && !info->reads_source
               ? "it reads its text twice, by encoder and decoder"
               : NULL;
}

int64_t bp_explain_states_floats(const bp_explain_sizes *sizes)
{
    return 4 * (sizes->layers + 1) * sizes->T * sizes->C; /* two buffers of results, which grow */
}

/* ---- of a document ---- */

/* A probe that keeps the states after the requested layers. */
typedef struct keeper {
    bp_probe probe;
    const bp_explain_settings *settings;
    int64_t T, C;
    float *states; /* [layer_count][T][C] */
} keeper;

/* Index of a layer (0: the embedding) in explain.layers; -1 if it is not requested. */
static int64_t place_of(const bp_explain_settings *settings, int64_t layer)
{
    for (int64_t k = 0; k < settings->layer_count; k++)
        if (settings->layers[k] == layer)
            return k;
    return -1;
}

static void keep(bp_probe *probe, const bp_probed *seen)
{
    const keeper *self = (const keeper *)probe;
    int64_t at = place_of(self->settings, seen->block - self->settings->info->first_layer + 1);

    if (at < 0 || strcmp(seen->what, "hidden") != 0 || !self->settings->counts)
        return;
    BP_ASSERT(seen->rows == self->T && seen->columns == self->C);
    memcpy(self->states + at * self->T * self->C, seen->x,
           (size_t)(self->T * self->C) * sizeof *seen->x);
}

/* The last layer's are those after the final norm. Not if a transform or a projection is also
 * between them: in a masked model, whose layers end with norms, or one with a narrow embedding. */
static void take_last(const keeper *self, const float *hidden)
{
    const bp_explain_settings *settings = self->settings;
    int64_t at = place_of(settings, settings->info->layers), floats = self->T * self->C;

    if (at < 0 || !settings->last || !settings->counts || settings->info->masks ||
        bp_task_has_head(&settings->info->task) || settings->info->width != self->C)
        return;
    memcpy(self->states + at * floats, hidden, (size_t)floats * sizeof *hidden);
}

static void add_states(const keeper *self, const bp_explained *document, bp_buffer *out)
{
    const bp_explain_settings *settings = self->settings;
    int32_t n = 0, *kept = bp_alloc("explain.states", document->T, sizeof *kept);

    for (int32_t t = 0; t < document->T; t++)
        if (!bp_explain_is_special(settings, document->inputs[t]))
            kept[n++] = t;
    bp_buffer_add(out, &n, sizeof n);
    bp_buffer_add(out, kept, (size_t)n * sizeof *kept);
    for (int32_t k = 0; k < n; k++)
        bp_buffer_add(out, &document->inputs[kept[k]], sizeof *document->inputs);
    for (int64_t l = 0; l < settings->layer_count; l++)
        for (int32_t k = 0; k < n; k++)
            bp_buffer_add(out, self->states + (l * self->T + kept[k]) * self->C,
                          (size_t)self->C * sizeof *self->states);
    bp_free(kept);
}

bp_err bp_explain_collect_states(bp_model *model, const bp_explain_settings *settings,
                                 const bp_explained *document, bp_buffer *out)
{
    int64_t T = document->T, C = settings->info->layer_width,
            floats = settings->layer_count * T * C, hidden = T * settings->info->width,
            most = floats > hidden ? floats : hidden;
    float *scratch = bp_try_alloc("explain.states", most, sizeof *scratch);
    int32_t *targets = bp_alloc("explain.states", T, sizeof *targets), source_length;
    keeper self = {.probe = {.see = keep},
                   .settings = settings,
                   .T = T,
                   .C = C,
                   .states = bp_try_alloc("explain.states", floats, sizeof(float))};
    bp_model_batch batch = bp_explain_whole(document, targets, &source_length);
    bp_err err = bp_agree(settings->group,
                          scratch && self.states
                              ? BP_OK
                              : bp_fail_memory("states of all layers", 2 * floats, sizeof(float)));

    if (err == BP_OK) {
        model->ops->set_probe(model, &self.probe);
        err = model->ops->backbone(model, &batch, BP_MODEL_NO_DROPOUT, scratch);
        model->ops->set_probe(model, NULL);
    }
    if (err == BP_OK) {
        take_last(&self, scratch);
        bp_all_sum(self.states, floats, scratch, settings->group);
        bp_explain_look(settings, self.states, floats);
        if (out)
            add_states(&self, document, out);
    }
    bp_free(self.states);
    bp_free(targets);
    bp_free(scratch);
    return err;
}

/* ---- read back ---- */

bp_err bp_explain_damaged(int64_t document)
{
    return BP_FAIL(BP_ERR_FORMAT, "explain.damaged_part",
                   "what document %lld left is damaged: at the parts of the run; remove them, and "
                   "start again",
                   (long long)document);
}

bp_err bp_explain_read_states(const bp_explain_collection *all, int64_t document,
                              bp_explain_states *out)
{
    int64_t count = all->settings->layer_count, C = all->settings->info->layer_width;
    const char *data;
    size_t bytes;
    bp_err err = all->read(all, document, &data, &bytes);
    int32_t n;

    *out = (bp_explain_states){.C = C};
    if (err != BP_OK || bytes == 0)
        return err;
    memcpy(&n, data, sizeof n);
    if (n < 0 || bytes != (size_t)(1 + n * (2 + count * C)) * sizeof(float))
        return bp_explain_damaged(document);
    out->n = n;
    out->positions = (const int32_t *)(const void *)data + 1;
    out->tokens = out->positions + n;
    out->states = (const float *)(const void *)(out->tokens + n);
    return BP_OK;
}

/* ---- points ---- */

bp_err bp_explain_points_find(bp_explain_points *out, const bp_explain_collection *all)
{
    bp_err err = BP_OK;
    int64_t capacity[3] = {0, 0, 0};

    *out = (bp_explain_points){.C = all->settings->info->layer_width};
    out->first = bp_alloc("explain.points", all->documents + 1, sizeof *out->first);
    for (int64_t d = 0; d < all->documents && err == BP_OK; d++) {
        bp_explain_states states;
        int32_t **lists[] = {&out->documents, &out->positions, &out->tokens};

        err = bp_explain_read_states(all, d, &states);
        if (err != BP_OK)
            break;
        for (int k = 0; k < 3; k++)
            *lists[k] = bp_grow("explain.points", *lists[k], &capacity[k], out->n + states.n + 1,
                                sizeof **lists[k]);
        for (int64_t k = 0; k < states.n; k++) {
            out->documents[out->n + k] = (int32_t)d;
            out->positions[out->n + k] = states.positions[k];
            out->tokens[out->n + k] = states.tokens[k];
        }
        out->n += states.n;
        out->first[d + 1] = out->n;
    }
    return err;
}

void bp_explain_points_clear(bp_explain_points *points)
{
    bp_free(points->first);
    bp_free(points->documents);
    bp_free(points->positions);
    bp_free(points->tokens);
}

bp_err bp_explain_points_write(const bp_explain_points *points, bp_h5 *h5, const int64_t *chosen,
                               int64_t count)
{
    const struct {
        const char *name;
        const int32_t *values;
    } LISTS[] = {{"point_document", points->documents},
                 {"point_place", points->positions},
                 {"point_token", points->tokens}};
    int32_t *values = bp_alloc("explain.points", count, sizeof *values);
    bp_err err = BP_OK;

    for (size_t k = 0; k < sizeof LISTS / sizeof LISTS[0] && err == BP_OK; k++) {
        for (int64_t i = 0; i < count; i++)
            values[i] = LISTS[k].values[chosen ? chosen[i] : i];
        err = bp_h5_write(h5, LISTS[k].name, BP_H5_U32, values, count);
    }
    bp_free(values);
    return err;
}

bp_err bp_explain_points_states(const bp_explain_points *points, const bp_explain_collection *all,
                                int64_t at, const int64_t *chosen, int64_t count, float *states)
{
    int64_t C = points->C, next = 0;
    bp_err err = BP_OK;

    for (int64_t d = 0; d < all->documents && next < count && err == BP_OK; d++) {
        int64_t first = points->first[d], end = points->first[d + 1];
        bp_explain_states of;

        if (chosen[next] >= end)
            continue;
        err = bp_explain_read_states(all, d, &of);
        for (; err == BP_OK && next < count && chosen[next] < end; next++)
            memcpy(states + next * C, of.states + (at * of.n + chosen[next] - first) * C,
                   (size_t)C * sizeof *states);
    }
    return err;
}

/* ---- words ---- */

/* Is form f of a word at point i, all of whose tokens follow each other? */
static bool is_at(const bp_explain_points *points, int64_t i, const bp_explain_word *word, int f)
{
    int64_t length = word->lengths[f];

    if (length == 0 || i + length > points->n)
        return false;
    for (int64_t k = 0; k < length; k++)
        if (points->tokens[i + k] != word->forms[f][k] ||
            points->documents[i + k] != points->documents[i] ||
            points->positions[i + k] != points->positions[i] + k)
            return false;
    return true;
}

int32_t *bp_explain_points_words(const bp_explain_points *points,
                                 const bp_explain_settings *settings)
{
    int32_t *words = bp_alloc("explain.points", points->n, sizeof *words);

    for (int64_t i = 0; i < points->n; i++)
        words[i] = -1;
    for (int64_t w = 0; w < settings->word_count; w++)
        for (int64_t i = 0; i < points->n; i++)
            for (int f = 0; f < 2;
                 f++) /* the place of a word of several tokens is that of the last one */
                if (is_at(points, i, &settings->chosen_words[w], f))
                    words[i + settings->chosen_words[w].lengths[f] - 1] = (int32_t)w;
    return words;
}

/* ---- files ---- */

bp_err bp_explain_write_table(bp_h5 *h5, const char *name, bp_h5_type type, const void *data,
                              int64_t rows, int64_t columns)
{
    const int64_t extent[] = {rows, columns};
    bp_err err = bp_h5_make_array(h5, name, type, 2, extent, NULL);

    return err == BP_OK && rows * columns > 0
               ? bp_h5_write_slab(h5, name, type, 0, data, rows * columns)
               : err;
}

bp_err bp_explain_write_layers(bp_h5 *h5, const bp_explain_settings *settings)
{
    return bp_h5_write(h5, "layer", BP_H5_I64, settings->layers, settings->layer_count);
}
