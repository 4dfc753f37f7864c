/* similarity.html: the similarity of a word's states layer by layer, and the nearest neighbours of
 * positions, from similarity.h5. Called by pages/pages.c. */
#include "explain/pages/tables.h"

#include "base/mem.h"

#include <stdlib.h>

#define MOST_TYPES      1000 /* tokens listed: those with the most occurrences */
#define NEIGHBOUR_BYTES 20   /* of a neighbour without its context, typically */

typedef struct alike {
    int64_t layers, types, words, points, queries, all_queries, k;
    int64_t *document, *place; /* [points] */
    int64_t *type, *occurrences, *query, *neighbour;
    double *of_type, *cosine;
    explain_place *positions;
    int64_t place_count;
} alike;

static bp_err open_tables(alike *self, bp_h5 *h5)
{
    const struct {
        const char *name;
        bp_h5_type type;
        void **to;
        int64_t *rows, *columns;
    } TABLES[] = {{"point_document", BP_H5_I64, (void **)&self->document, &self->points, NULL},
                  {"point_place", BP_H5_I64, (void **)&self->place, NULL, NULL},
                  {"type", BP_H5_I64, (void **)&self->type, &self->types, NULL},
                  {"occurrences", BP_H5_I64, (void **)&self->occurrences, NULL, NULL},
                  {"query", BP_H5_I64, (void **)&self->query, &self->all_queries, NULL},
                  {"neighbour", BP_H5_I64, (void **)&self->neighbour, NULL, &self->k},
                  {"neighbour_cosine", BP_H5_F64, (void **)&self->cosine, NULL, NULL},
                  {"self_similarity", BP_H5_F64, (void **)&self->of_type, &self->layers, NULL}};
    bp_err err = BP_OK;

    for (size_t t = 0; t < sizeof TABLES / sizeof TABLES[0] && err == BP_OK; t++)
        err = explain_table_read(h5, TABLES[t].name, TABLES[t].type, TABLES[t].to, TABLES[t].rows,
                                 TABLES[t].columns);
    return err;
}

static void clear(alike *self)
{
    void *const lists[] = {self->document,    self->place,  self->type,
                           self->occurrences, self->query,  self->neighbour,
                           self->of_type,     self->cosine, self->positions};

    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++)
        bp_free(lists[k]);
}

/* ---- words ---- */

typedef struct common {
    int64_t occurrences, type;
} common;

static int by_occurrences(const void *a, const void *b)
{
    const common *x = a, *y = b;

    if (x->occurrences != y->occurrences)
        return x->occurrences > y->occurrences ? -1 : 1;
    return x->type < y->type ? -1 : 1;
}

/* data.types: the tokens that occur most. */
static void add_types(json_t *data, const alike *self, const explain_speller *speller)
{
    common *all = bp_alloc("explain.page", self->types, sizeof *all);
    json_t *list = json_array();

    for (int64_t t = 0; t < self->types; t++)
        all[t] = (common){self->occurrences[t], t};
    qsort(all, (size_t)self->types, sizeof *all, by_occurrences);
    for (int64_t n = 0; n < self->types && n < MOST_TYPES; n++) {
        json_t *values = json_array();

        for (int64_t at = 0; at < self->layers; at++)
            (void)json_array_append_new(
                values, explain_number_json(self->of_type[at * self->types + all[n].type]));
        (void)json_array_append_new(
            list,
            json_pack("{so sI so}", "text", explain_token_json(speller, self->type[all[n].type]),
                      "occurrences", (json_int_t)all[n].occurrences, "values", values));
    }
    (void)json_object_set_new(data, "types", list);
    bp_free(all);
}

/* data.words: those of explain.words. */
static void add_words(json_t *data, const json_t *figures)
{
    json_t *list = json_array(), *of;
    const char *word;

    json_object_foreach(json_object_get(figures, "words"), word, of)(void)
        json_array_append_new(list, json_pack("{so sO* sO*}", "text", bp_json_string(word),
                                              "occurrences", json_object_get(of, "occurrences"),
                                              "values", json_object_get(of, "self_similarity")));
    (void)json_object_set_new(data, "words", list);
}

/* ---- neighbours ---- */

/* The number in the file of the k-th of the shown queries, which are evenly spaced. */
static int64_t query_at(const alike *self, int64_t q)
{
    return q * self->all_queries / self->queries;
}

static explain_place place_of(const alike *self, int64_t point)
{
    return (explain_place){(int32_t)self->document[point], (int32_t)self->place[point]};
}

static int64_t cell_of(const alike *self, int64_t at, int64_t q, int64_t m)
{
    return (at * self->all_queries + query_at(self, q)) * self->k + m;
}

static void find_positions(alike *self)
{
    int64_t each = self->layers * self->k * (EXPLAIN_CONTEXT_BYTES + NEIGHBOUR_BYTES) +
                   EXPLAIN_CONTEXT_BYTES,
            most = EXPLAIN_PAGE_BYTES / each > 0 ? EXPLAIN_PAGE_BYTES / each : 1;

    self->queries = self->all_queries < most ? self->all_queries : most;
    self->positions = bp_alloc("explain.page", self->queries * (1 + self->layers * self->k),
                               sizeof *self->positions);
    for (int64_t q = 0; q < self->queries; q++) {
        self->positions[self->place_count++] = place_of(self, self->query[query_at(self, q)]);
        for (int64_t i = 0; i < self->layers * self->k; i++) {
            int64_t point = self->neighbour[cell_of(self, i / self->k, q, i % self->k)];

            if (point >= 0)
                self->positions[self->place_count++] = place_of(self, point);
        }
    }
    self->place_count = explain_positions_sort(self->positions, self->place_count);
}

static json_int_t number_of(const alike *self, int64_t point)
{
    return (json_int_t)explain_positions_find(self->positions, self->place_count,
                                              place_of(self, point));
}

/* data.queries: positions; data.near: for each query and layer [place, cosine] by descending
 * cosine. */
static void add_queries(json_t *data, const alike *self)
{
    json_t *queries = json_array(), *near = json_array();

    for (int64_t q = 0; q < self->queries; q++) {
        json_t *by_layer = json_array();

        for (int64_t at = 0; at < self->layers; at++) {
            json_t *list = json_array();

            for (int64_t m = 0; m < self->k && self->neighbour[cell_of(self, at, q, m)] >= 0; m++)
                (void)json_array_append_new(
                    list,
                    json_pack("[Io]", number_of(self, self->neighbour[cell_of(self, at, q, m)]),
                              explain_number_json(self->cosine[cell_of(self, at, q, m)])));
            (void)json_array_append_new(by_layer, list);
        }
        (void)json_array_append_new(queries,
                                    json_integer(number_of(self, self->query[query_at(self, q)])));
        (void)json_array_append_new(near, by_layer);
    }
    (void)json_object_set_new(data, "queries", queries);
    (void)json_object_set_new(data, "near", near);
}

static bp_err fill(json_t *data, json_t *page, bp_h5 *h5, const explain_gathered *gathered,
                   explainer *self, const json_t *figures)
{
    alike of = {0};
    bp_err err = open_tables(&of, h5);

    explain_add_layers(data, page, figures);
    if (err == BP_OK) {
        add_types(data, &of, &gathered->speller);
        add_words(data, figures);
        find_positions(&of);
        add_queries(data, &of);
        err = explain_contexts_add(data, self, gathered, of.positions, of.place_count);
    }
    (void)json_object_set(page, "tokens", json_object_get(figures, "tokens"));
    clear(&of);
    return err;
}

const explain_page explain_page_similarity = {.method = &bp_explain_similarity,
                                              .file = "similarity.html",
                                              .template = "explain-similarity",
                                              .title = "Similarity of the states",
                                              .link = "Words and their neighbours, to look at",
                                              .fill = fill};
