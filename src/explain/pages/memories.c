/* memories.html: the keys of memories.h5 with the largest coefficients, the positions that activate
 * them, and the predictions of their values. Called by pages/pages.c. */
#include "explain/pages/tables.h"

#include "base/mem.h"
#include "base/sort.h"

#include <stdlib.h>

#define MOST_TRIGGERS 10  /* of a key */
#define KEY_BYTES     250 /* of a key without the contexts of its triggers, typically */

typedef struct memories {
    int64_t rows, k, shown, layers; /* keys of all layers; triggers of a key, and those shown */
    int64_t *layer, *document, *place, *next, *top, *ranks;
    float *coefficient, *log_p;
    int64_t *chosen, count; /* [count] rows, ascending */
    explain_place *positions;
    int64_t place_count;
} memories;

static bp_err open_tables(memories *self, bp_h5 *h5)
{
    const struct {
        const char *name;
        bp_h5_type type;
        void **to;
    } TABLES[] = {{"trigger_place", BP_H5_I64, (void **)&self->place},
                  {"trigger_next", BP_H5_I64, (void **)&self->next},
                  {"value_top5", BP_H5_I64, (void **)&self->top},
                  {"rank_of_next", BP_H5_I64, (void **)&self->ranks},
                  {"trigger_coefficient", BP_H5_F32, (void **)&self->coefficient},
                  {"value_logprob", BP_H5_F32, (void **)&self->log_p}};
    bp_err err = explain_table_read(h5, "trigger_document", BP_H5_I64, (void **)&self->document,
                                    &self->rows, &self->k);

    for (size_t t = 0; t < sizeof TABLES / sizeof TABLES[0] && err == BP_OK; t++)
        err = explain_table_read(h5, TABLES[t].name, TABLES[t].type, TABLES[t].to, NULL, NULL);
    return err;
}

static void clear(memories *self)
{
    void *const lists[] = {self->document, self->place,  self->next,
                           self->top,      self->ranks,  self->coefficient,
                           self->log_p,    self->chosen, self->positions};

    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++)
        bp_free(lists[k]);
}

/* ---- the keys shown: for each layer those with the largest coefficients ---- */

typedef struct strength {
    float value;
    int64_t row;
} strength;

static int by_strength(const void *a, const void *b)
{
    const strength *x = a, *y = b;

    if (x->value < y->value || x->value > y->value)
        return x->value > y->value ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void choose(memories *self)
{
    int64_t keys = self->rows / self->layers,
            most = EXPLAIN_PAGE_BYTES / (KEY_BYTES + self->shown * EXPLAIN_CONTEXT_BYTES),
            each = most / self->layers > 0 ? most / self->layers : 1;
    strength *all = bp_alloc("explain.page", keys, sizeof *all);

    self->chosen = bp_alloc("explain.page", self->rows, sizeof *self->chosen);
    for (int64_t layer = 0; layer < self->layers; layer++) {
        for (int64_t key = 0; key < keys; key++)
            all[key] =
                (strength){self->coefficient[(layer * keys + key) * self->k], layer * keys + key};
        qsort(all, (size_t)keys, sizeof *all, by_strength);
        for (int64_t key = 0; key < keys && key < each; key++)
            if (all[key].value > 0)
                self->chosen[self->count++] = all[key].row;
    }
    qsort(self->chosen, (size_t)self->count, sizeof *self->chosen, bp_by_int64);
    bp_free(all);
}

static explain_place place_of(const memories *self, int64_t cell)
{
    return (explain_place){(int32_t)self->document[cell], (int32_t)self->place[cell]};
}

static void find_positions(memories *self)
{
    self->positions = bp_alloc("explain.page", self->count * self->shown, sizeof *self->positions);
    for (int64_t c = 0; c < self->count; c++)
        for (int64_t m = 0; m < self->shown; m++)
            if (self->document[self->chosen[c] * self->k + m] >= 0)
                self->positions[self->place_count++] =
                    place_of(self, self->chosen[c] * self->k + m);
    self->place_count = explain_positions_sort(self->positions, self->place_count);
}

/* ---- data of the script ---- */

/* [place, coefficient, next token, its rank] of each trigger. */
static json_t *triggers_of(const memories *self, int64_t row, json_t *names,
                           const explain_speller *speller)
{
    json_t *list = json_array();

    for (int64_t m = 0; m < self->shown; m++) {
        int64_t cell = row * self->k + m;

        if (self->document[cell] < 0)
            break;
        explain_names_add(names, speller, self->next[cell]);
        (void)json_array_append_new(
            list, json_pack("[IoII]",
                            (json_int_t)explain_positions_find(self->positions, self->place_count,
                                                               place_of(self, cell)),
                            explain_number_json((double)self->coefficient[cell]),
                            (json_int_t)self->next[cell], (json_int_t)self->ranks[cell]));
    }
    return list;
}

static void add_keys(json_t *data, const memories *self, const json_t *layers,
                     const explain_speller *speller)
{
    int64_t keys = self->rows / self->layers;
    json_t *list = json_array(), *names = json_object();

    for (int64_t c = 0; c < self->count; c++) {
        int64_t row = self->chosen[c];
        json_t *top = json_array();

        for (int64_t t = 0; t < BP_EXPLAIN_TOP && self->top[row * BP_EXPLAIN_TOP + t] >= 0; t++) {
            explain_names_add(names, speller, self->top[row * BP_EXPLAIN_TOP + t]);
            (void)json_array_append_new(top, json_integer(self->top[row * BP_EXPLAIN_TOP + t]));
        }
        (void)json_array_append_new(list,
                                    json_pack("{sO sI so so so}", "layer",
                                              json_array_get(layers, (size_t)(row / keys)), "key",
                                              (json_int_t)(row % keys), "top", top, "logprob",
                                              explain_number_json((double)self->log_p[row]),
                                              "triggers", triggers_of(self, row, names, speller)));
    }
    (void)json_object_set_new(data, "keys", list);
    (void)json_object_set_new(data, "names", names);
}

static bp_err fill(json_t *data, json_t *page, bp_h5 *h5, const explain_gathered *gathered,
                   explainer *self, const json_t *figures)
{
    const json_t *layers = json_object_get(figures, "layers");
    memories of = {.layers = (int64_t)json_array_size(layers)};
    bp_err err = open_tables(&of, h5);

    explain_add_layers(data, page, figures);
    if (err == BP_OK && of.layers > 0) {
        of.shown = of.k < MOST_TRIGGERS ? of.k : MOST_TRIGGERS;
        choose(&of);
        find_positions(&of);
        add_keys(data, &of, layers, &gathered->speller);
        err = explain_contexts_add(data, self, gathered, of.positions, of.place_count);
    }
    (void)json_object_set_new(page, "keys", json_integer((json_int_t)of.count));
    (void)json_object_set_new(page, "of", json_integer((json_int_t)of.rows));
    clear(&of);
    return err;
}

const explain_page explain_page_memories = {.method = &bp_explain_memories,
                                            .file = "memories.html",
                                            .template = "explain-memories",
                                            .title = "Memories",
                                            .link = "What sets off each key, to look at",
                                            .fill = fill};
