/* The similarity of the states of a word over all its contexts, layer by layer, compared with that
 * of any two words; and the nearest neighbours of words. Ethayarajh 2019, "How Contextual are
 * Contextualized Word Representations?": sums of vectors of length 1 replace his samples of
 * pairs. */
#include "explain/states/collection.h"

#include "base/config/json.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

#define QUERIES       200  /* points whose neighbours are listed: the first ones, */
#define WORD_QUERIES  1000 /* or the first ones of explain.words */
#define DOCUMENT_UNIT 64   /* queries that a thread takes at a time */

typedef struct similarity {
    const bp_explain_collection *all;
    const bp_explain_settings *settings;
    bp_explain_points points;
    int64_t C, types, queries, k;
    int32_t *type_of;                  /* [vocabulary]; -1: fewer than two occurrences */
    int32_t *type;                     /* [types] tokens */
    int64_t *occurrences;              /* [types] */
    int32_t *word_of;                  /* [points] */
    int64_t *word_counts;              /* [words] */
    int64_t *query;                    /* [queries] points */
    double *sums;                      /* [types][C] of vectors of length 1 */
    double *word_sums;                 /* [words][C] */
    double *total, *mean;              /* [C] */
    float *query_vectors;              /* [queries][C] */
    float *unit;                       /* [most of a document][C] */
    double *near;                      /* [queries][k] cosines, descending */
    int32_t *neighbour;                /* [queries][k] points; -1 if there are no more */
    double *self, *word_self, *within; /* [layers][types], [layers][words], [layers][documents] */
    double *anisotropy;                /* [layers] */
} similarity;

/* ---- what is compared ---- */

static void find_types(similarity *self)
{
    const bp_explain_points *points = &self->points;
    int64_t V = self->settings->info->words, *counts = bp_alloc("explain.types", V, sizeof *counts);

    self->type_of = bp_alloc("explain.types", V, sizeof *self->type_of);
    for (int64_t i = 0; i < points->n; i++)
        counts[points->tokens[i]]++;
    for (int64_t v = 0; v < V; v++)
        self->types += counts[v] > 1;
    self->type = bp_alloc("explain.types", self->types, sizeof *self->type);
    self->occurrences = bp_alloc("explain.types", self->types, sizeof *self->occurrences);
    for (int64_t v = 0, t = 0; v < V; v++) {
        self->type_of[v] = counts[v] > 1 ? (int32_t)t : -1;
        if (counts[v] > 1) {
            self->type[t] = (int32_t)v;
            self->occurrences[t++] = counts[v];
        }
    }
    bp_free(counts);
}

static void find_queries(similarity *self)
{
    bool of_words = self->settings->word_count > 0;
    int64_t most = of_words ? WORD_QUERIES : QUERIES;

    self->word_of = bp_explain_points_words(&self->points, self->settings);
    self->word_counts =
        bp_alloc("explain.queries", self->settings->word_count, sizeof *self->word_counts);
    for (int64_t i = 0; i < self->points.n; i++)
        if (self->word_of[i] >= 0)
            self->word_counts[self->word_of[i]]++;
    self->query = bp_alloc("explain.queries", most, sizeof *self->query);
    for (int64_t i = 0; i < self->points.n && self->queries < most; i++)
        if (!of_words || self->word_of[i] >= 0)
            self->query[self->queries++] = i;
}

static bp_err allocate(similarity *self)
{
    int64_t C = self->C, layers = self->settings->layer_count, longest = 0,
            documents = self->all->documents;

    for (int64_t d = 0; d < documents; d++) {
        int64_t n = self->points.first[d + 1] - self->points.first[d];

        longest = n > longest ? n : longest;
    }
    self->sums = bp_try_alloc("explain.similarity", self->types * C, sizeof *self->sums);
    self->word_sums =
        bp_alloc("explain.similarity", self->settings->word_count * C, sizeof(double));
    self->total = bp_alloc("explain.similarity", 2 * C, sizeof *self->total);
    self->mean = self->total + C;
    self->query_vectors = bp_alloc("explain.similarity", self->queries * C, sizeof(float));
    self->unit = bp_try_alloc("explain.similarity", longest * C, sizeof *self->unit);
    self->near = bp_alloc("explain.similarity", self->queries * self->k, sizeof *self->near);
    self->neighbour =
        bp_alloc("explain.similarity", self->queries * self->k, sizeof *self->neighbour);
    self->self = bp_try_alloc("explain.similarity", layers * self->types, sizeof *self->self);
    self->word_self =
        bp_alloc("explain.similarity", layers * self->settings->word_count, sizeof(double));
    self->within = bp_alloc("explain.similarity", layers * documents, sizeof *self->within);
    self->anisotropy = bp_alloc("explain.similarity", layers, sizeof *self->anisotropy);
    return self->sums && self->unit && self->self
               ? BP_OK
               : bp_fail_memory("sums of the states of words", self->types * C, sizeof(double));
}

/* ---- a layer ---- */

static double length_of(const float *x, int64_t C)
{
    double square = 0;

    for (int64_t c = 0; c < C; c++)
        square += (double)x[c] * (double)x[c];
    return sqrt(square);
}

/* The mean cosine of a document's states to their mean. */
static double within(similarity *self, const float *rows, int64_t n)
{
    double square = 0, sum = 0;

    memset(self->mean, 0, (size_t)self->C * sizeof *self->mean);
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < self->C; c++)
            self->mean[c] += (double)rows[i * self->C + c] / (double)n;
    for (int64_t c = 0; c < self->C; c++)
        square += self->mean[c] * self->mean[c];
    for (int64_t i = 0; i < n; i++) {
        double length = length_of(rows + i * self->C, self->C), product = 0;

        for (int64_t c = 0; c < self->C; c++)
            product += self->mean[c] * (double)rows[i * self->C + c];
        sum += length > 0 && square > 0 ? product / (length * sqrt(square)) : 0;
    }
    return n > 0 ? sum / (double)n : NAN;
}

static void add_to(double *sum, const float *row, double length, int64_t C)
{
    for (int64_t c = 0; c < C && length > 0; c++)
        sum[c] += (double)row[c] / length;
}

static bp_err add_document(similarity *self, int64_t at, int64_t d, int64_t *query)
{
    bp_explain_states of;
    bp_err err = bp_explain_read_states(self->all, d, &of);

    if (err != BP_OK)
        return err;
    const float *rows = of.states + at * of.n * of.C;
    self->within[at * self->all->documents + d] = within(self, rows, of.n);
    for (int64_t i = 0; i < of.n; i++) {
        const float *row = rows + i * of.C;
        int64_t point = self->points.first[d] + i;
        double length = length_of(row, of.C);

        add_to(self->total, row, length, of.C);
        if (self->type_of[of.tokens[i]] >= 0)
            add_to(self->sums + self->type_of[of.tokens[i]] * of.C, row, length, of.C);
        if (self->word_of[point] >= 0)
            add_to(self->word_sums + self->word_of[point] * of.C, row, length, of.C);
        if (*query < self->queries && self->query[*query] == point) {
            for (int64_t c = 0; c < of.C; c++)
                self->query_vectors[*query * of.C + c] =
                    length > 0 ? (float)((double)row[c] / length) : 0;
            ++*query;
        }
    }
    return BP_OK;
}

/* The mean cosine of all pairs of n vectors of length 1, from their sum. */
static double mean_cosine(const double *sum, int64_t C, int64_t n)
{
    double square = 0;

    for (int64_t c = 0; c < C; c++)
        square += sum[c] * sum[c];
    return n > 1 ? (square - (double)n) / ((double)n * (double)(n - 1)) : NAN;
}

static void take_means(similarity *self, int64_t at)
{
    int64_t words = self->settings->word_count;

    self->anisotropy[at] = mean_cosine(self->total, self->C, self->points.n);
    for (int64_t t = 0; t < self->types; t++)
        self->self[at * self->types + t] =
            mean_cosine(self->sums + t * self->C, self->C, self->occurrences[t]);
    for (int64_t w = 0; w < words; w++)
        self->word_self[at * words + w] =
            mean_cosine(self->word_sums + w * self->C, self->C, self->word_counts[w]);
}

/* ---- neighbours ---- */

/* Inserts a point; after existing points with equal cosines. */
static void insert(similarity *self, int64_t q, int64_t point, double cosine)
{
    double *near = self->near + q * self->k;
    int32_t *neighbour = self->neighbour + q * self->k;
    int64_t at = self->k;

    while (at > 0 && (neighbour[at - 1] < 0 || near[at - 1] < cosine))
        at--;
    if (at == self->k)
        return;
    memmove(near + at + 1, near + at, (size_t)(self->k - at - 1) * sizeof *near);
    memmove(neighbour + at + 1, neighbour + at, (size_t)(self->k - at - 1) * sizeof *neighbour);
    near[at] = cosine;
    neighbour[at] = (int32_t)point;
}

static void compare(similarity *self, int64_t q, int64_t first, int64_t n)
{
    const float *query = self->query_vectors + q * self->C;

    for (int64_t i = 0; i < n; i++) {
        const float *unit = self->unit + i * self->C;
        double cosine = 0;

        if (first + i == self->query[q])
            continue;
        for (int64_t c = 0; c < self->C; c++)
            cosine += (double)query[c] * (double)unit[c];
        insert(self, q, first + i, cosine);
    }
}

static bp_err compare_document(similarity *self, int64_t at, int64_t d)
{
    bp_explain_states of;
    bp_err err = bp_explain_read_states(self->all, d, &of);

    if (err != BP_OK)
        return err;
    for (int64_t i = 0; i < of.n; i++) {
        const float *row = of.states + (at * of.n + i) * of.C;
        double length = length_of(row, of.C);

        for (int64_t c = 0; c < of.C; c++)
            self->unit[i * of.C + c] = length > 0 ? (float)((double)row[c] / length) : 0;
    }
#pragma omp parallel for schedule(dynamic, DOCUMENT_UNIT)
    for (int64_t q = 0; q < self->queries; q++)
        compare(self, q, self->points.first[d], of.n);
    return BP_OK;
}

static bp_err do_layer(similarity *self, int64_t at)
{
    int64_t documents = self->all->documents, query = 0, C = self->C;
    bp_err err = BP_OK;

    memset(self->total, 0, (size_t)C * sizeof *self->total);
    memset(self->sums, 0, (size_t)(self->types * C) * sizeof *self->sums);
    memset(self->word_sums, 0, (size_t)(self->settings->word_count * C) * sizeof *self->word_sums);
    for (int64_t i = 0; i < self->queries * self->k; i++) {
        self->neighbour[i] = -1;
        self->near[i] = NAN;
    }
    for (int64_t d = 0; d < documents && err == BP_OK; d++)
        err = add_document(self, at, d, &query);
    take_means(self, at);
    for (int64_t d = 0; d < documents && err == BP_OK; d++)
        err = compare_document(self, at, d);
    return err;
}

/* ---- the file ---- */

static bp_err write_neighbours(const similarity *self, bp_h5 *h5, int64_t at)
{
    int64_t count = self->queries * self->k, first = at * count;
    bp_err err = bp_h5_write_slab(h5, "neighbour_cosine", BP_H5_F64, first, self->near, count);
    int64_t *points = bp_alloc("explain.similarity", count, sizeof *points);

    for (int64_t i = 0; i < count; i++)
        points[i] = self->neighbour[i];
    if (err == BP_OK)
        err = bp_h5_write_slab(h5, "neighbour", BP_H5_I64, first, points, count);
    bp_free(points);
    return err;
}

static bp_err begin(const similarity *self, bp_h5 *h5)
{
    const int64_t extent[] = {self->settings->layer_count * self->queries, self->k};
    bp_err err = bp_explain_write_layers(h5, self->settings);

    if (err == BP_OK)
        err = bp_explain_points_write(&self->points, h5, NULL, self->points.n);
    if (err == BP_OK)
        err = bp_h5_write(h5, "type", BP_H5_U32, self->type, self->types);
    if (err == BP_OK)
        err = bp_h5_write(h5, "occurrences", BP_H5_I64, self->occurrences, self->types);
    if (err == BP_OK)
        err = bp_h5_write(h5, "query", BP_H5_I64, self->query, self->queries);
    if (err == BP_OK)
        err = bp_h5_make_array(h5, "neighbour", BP_H5_I64, 2, extent, NULL);
    if (err == BP_OK)
        err = bp_h5_make_array(h5, "neighbour_cosine", BP_H5_F64, 2, extent, NULL);
    return err;
}

static bp_err write_words(const similarity *self, bp_h5 *h5)
{
    int64_t count = self->settings->word_count;
    const char **texts = bp_alloc("explain.similarity", count, sizeof *texts);
    bp_err err;

    for (int64_t w = 0; w < count; w++)
        texts[w] = self->settings->chosen_words[w].text;
    err = bp_h5_write_texts(h5, "word", texts, count);
    if (err == BP_OK)
        err = bp_explain_write_table(h5, "word_self_similarity", BP_H5_F64, self->word_self,
                                     self->settings->layer_count, count);
    bp_free(texts);
    return err;
}

static bp_err end(const similarity *self, bp_h5 *h5)
{
    int64_t layers = self->settings->layer_count;
    bp_err err =
        bp_explain_write_table(h5, "self_similarity", BP_H5_F64, self->self, layers, self->types);

    if (err == BP_OK)
        err = bp_explain_write_table(h5, "within_document", BP_H5_F64, self->within, layers,
                                     self->all->documents);
    if (err == BP_OK)
        err = bp_h5_write(h5, "anisotropy", BP_H5_F64, self->anisotropy, layers);
    return err == BP_OK && self->settings->word_count > 0 ? write_words(self, h5) : err;
}

static double mean_of(const double *values, int64_t n)
{
    double sum = 0;
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        if (isfinite(values[i])) {
            sum += values[i];
            count++;
        }
    return count > 0 ? sum / (double)count : NAN;
}

static void set_figures(const similarity *self, json_t *figures)
{
    json_t *anisotropy = json_array(), *mean = json_array(), *adjusted = json_array(),
           *inside = json_array(), *layers = json_array();
    int64_t documents = self->all->documents;

    for (int64_t at = 0; at < self->settings->layer_count; at++) {
        double own = mean_of(self->self + at * self->types, self->types);

        (void)json_array_append_new(layers, json_integer(self->settings->layers[at]));
        (void)json_array_append_new(anisotropy, bp_json_real(self->anisotropy[at]));
        (void)json_array_append_new(mean, bp_json_real(own));
        (void)json_array_append_new(adjusted, bp_json_real(own - self->anisotropy[at]));
        (void)json_array_append_new(
            inside, bp_json_real(mean_of(self->within + at * documents, documents)));
    }
    (void)json_object_set_new(figures, "layers", layers);
    (void)json_object_set_new(figures, "tokens", json_integer(self->points.n));
    (void)json_object_set_new(figures, "types", json_integer(self->types));
    (void)json_object_set_new(figures, "self_similarity", mean);
    (void)json_object_set_new(figures, "anisotropy", anisotropy);
    (void)json_object_set_new(figures, "adjusted", adjusted);
    (void)json_object_set_new(figures, "within_document", inside);
    for (int64_t w = 0; w < self->settings->word_count; w++) {
        const bp_explain_word *word = &self->settings->chosen_words[w];
        json_t *by_layer = json_array(), *words = json_object_get(figures, "words");

        if (!words) {
            words = json_object();
            (void)json_object_set_new(figures, "words", words);
        }
        for (int64_t at = 0; at < self->settings->layer_count; at++)
            (void)json_array_append_new(
                by_layer, bp_json_real(self->word_self[at * self->settings->word_count + w]));
        (void)json_object_set_new(words, word->text,
                                  json_pack("{sI so}", "occurrences",
                                            (json_int_t)self->word_counts[w], "self_similarity",
                                            by_layer));
    }
}

static void clear(similarity *self)
{
    void *const lists[] = {
        self->type_of, self->type,      self->occurrences, self->word_of, self->word_counts,
        self->query,   self->sums,      self->word_sums,   self->total,   self->query_vectors,
        self->unit,    self->near,      self->neighbour,   self->self,    self->word_self,
        self->within,  self->anisotropy};

    for (size_t k = 0; k < sizeof lists / sizeof lists[0]; k++)
        bp_free(lists[k]);
    bp_explain_points_clear(&self->points);
}

static bp_err merge(const bp_explain_collection *all, bp_h5 *h5, json_t *figures)
{
    similarity self = {.all = all, .settings = all->settings, .k = all->settings->keys->neighbours};
    bp_err err = bp_explain_points_find(&self.points, all);

    self.C = self.points.C;
    if (err == BP_OK) {
        find_types(&self);
        find_queries(&self);
        err = allocate(&self);
    }
    if (err == BP_OK)
        err = begin(&self, h5);
    for (int64_t at = 0; at < self.settings->layer_count && err == BP_OK; at++) {
        err = do_layer(&self, at);
        if (err == BP_OK)
            err = write_neighbours(&self, h5, at);
    }
    if (err == BP_OK)
        err = end(&self, h5);
    if (err == BP_OK)
        set_figures(&self, figures);
    clear(&self);
    return err;
}

/* A token is not its own neighbour. */
static int64_t needs_points(const bp_explain_keys *keys)
{
    return keys->neighbours + 1;
}

/* Points, sums of types, and output buffers. */
static int64_t merge_bytes(const bp_explain_settings *settings, int64_t tokens)
{
    int64_t V = settings->info->words, types = tokens / 2 < V ? tokens / 2 : V;

    return 16 * tokens +
           (int64_t)sizeof(double) * types * (settings->info->layer_width + settings->layer_count);
}

const bp_explain_method bp_explain_similarity = {
    .name = "similarity",
    .title = "Similarity of the states",
    .help = "is how alike the states of a word are in all its contexts, by layer",
    .lacks = bp_explain_lacks_layers,
    .collect = bp_explain_collect_states,
    .floats = bp_explain_states_floats,
    .needs_points = needs_points,
    .merge_bytes = merge_bytes,
    .merge = merge};
