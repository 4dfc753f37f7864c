/* score/index.html of score.vectors: the number, lengths and distances of vectors, and the nearest
 * documents of some. Called by vectors.c, on the coordinator. */
#include "infer/score/vectors/vectors_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"
#include "infer/score/keys.h"
#include "infer/score/page/page.h"
#include "infer/score/tables/tables.h"
#include "io/corpus/corpus_file.h"
#include "io/h5/h5.h"
#include "job/report/figures.h"
#include "statistics/resample.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPARED_MOST 100000 /* documents compared; each is read once */
#define SHOWN         8      /* documents whose nearest ones are shown */
#define NEAREST       5
#define BLOCK         1024 /* vectors read at once */
#define ID_BYTES      256

typedef struct near_document {
    int64_t document;
    double cosine;
} near_document;

typedef struct shown_document {
    int64_t document;
    const float *vector;
    near_document near[NEAREST]; /* descending */
    int count;
} shown_document;

typedef struct vector_figures {
    int64_t count, width;
    float *block;    /* [BLOCK][width] */
    float *vectors;  /* [SHOWN][width] */
    double *norms;   /* [count] */
    double *mean;    /* [width]: of vectors of length 1 */
    double *cosines; /* [SHOWN * count]: of shown documents and others */
    int64_t cosine_count;
    shown_document shown[SHOWN];
    int shown_count;
} vector_figures;

/* ---- figures ---- */

static double product(const float *a, const float *b, int64_t width)
{
    double sum = 0;

    for (int64_t c = 0; c < width; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

static void keep_near(shown_document *of, int64_t document, double cosine)
{
    int at = of->count;

    if (at == NEAREST && cosine <= of->near[at - 1].cosine)
        return;
    of->count += at < NEAREST;
    at = at < NEAREST ? at : NEAREST - 1;
    for (; at > 0 && of->near[at - 1].cosine < cosine; at--)
        of->near[at] = of->near[at - 1];
    of->near[at] = (near_document){document, cosine};
}

static void take(vector_figures *self, int64_t document, const float *vector)
{
    double norm = sqrt(product(vector, vector, self->width));

    self->norms[document] = norm;
    if (norm <= 0)
        return;
    for (int64_t c = 0; c < self->width; c++)
        self->mean[c] += (double)vector[c] / norm;
    for (int k = 0; k < self->shown_count; k++) {
        shown_document *of = &self->shown[k];
        double length = sqrt(product(of->vector, of->vector, self->width));

        if (of->document == document || length <= 0)
            continue;
        double cosine = product(of->vector, vector, self->width) / norm / length;

        self->cosines[self->cosine_count++] = cosine;
        keep_near(of, document, cosine);
    }
}

/* Documents at even steps. */
static bp_err choose(vector_figures *self, bp_h5 *h5)
{
    bp_err err = BP_OK;

    self->shown_count = self->count < SHOWN ? (int)self->count : SHOWN;
    for (int k = 0; k < self->shown_count && err == BP_OK; k++) {
        shown_document *of = &self->shown[k];
        float *vector = self->vectors + k * self->width;

        *of = (shown_document){.document = k * self->count / self->shown_count, .vector = vector};
        err = bp_h5_read(h5, "vector", BP_H5_F32, of->document * self->width, vector, self->width);
    }
    return err;
}

static bp_err read_all(vector_figures *self, bp_h5 *h5)
{
    bp_err err = choose(self, h5);

    for (int64_t d = 0; d < self->count && err == BP_OK; d += BLOCK) {
        int64_t left = self->count - d, rows = left < BLOCK ? left : BLOCK;

        bp_heartbeat_progress();
        err = bp_h5_read(h5, "vector", BP_H5_F32, d * self->width, self->block, rows * self->width);
        for (int64_t r = 0; r < rows && err == BP_OK; r++)
            take(self, d + r, self->block + r * self->width);
    }
    return err;
}

static bp_err find(vector_figures *self, const char *path)
{
    bp_h5 *h5 = NULL;
    bp_err err;

    self->block = bp_try_alloc("score.vectors", BLOCK * self->width, sizeof *self->block);
    self->vectors = bp_try_alloc("score.vectors", SHOWN * self->width, sizeof *self->vectors);
    self->norms = bp_try_alloc("score.vectors", self->count, sizeof *self->norms);
    self->mean = bp_try_alloc("score.vectors", self->width, sizeof *self->mean);
    self->cosines = bp_try_alloc("score.vectors", SHOWN * self->count, sizeof *self->cosines);
    if (!self->block || !self->vectors || !self->norms || !self->mean || !self->cosines)
        return bp_fail_memory("the page of vectors", SHOWN * self->count, sizeof *self->cosines);
    err = bp_h5_open(&h5, path);
    if (err == BP_OK)
        err = read_all(self, h5);
    bp_h5_drop(&h5);
    return err;
}

static void clear(vector_figures *self)
{
    bp_free(self->cosines);
    bp_free(self->mean);
    bp_free(self->norms);
    bp_free(self->vectors);
    bp_free(self->block);
}

/* ---- the page ---- */

/* Sorts the values. */
static json_t *spread_row(const char *name, double *values, int64_t count)
{
    static const struct {
        const char *key;
        double p;
    } POINTS[] = {{"least", 0}, {"low", 0.05}, {"middle", 0.5}, {"high", 0.95}, {"most", 1}};
    json_t *row = json_pack("{s:s}", "name", name);

    qsort(values, (size_t)count, sizeof *values, bp_by_real);
    for (size_t k = 0; k < sizeof POINTS / sizeof POINTS[0]; k++)
        bp_score_page_add_figure(row, POINTS[k].key,
                                 count > 0 ? bp_quantile(values, count, POINTS[k].p) : NAN, NAN);
    return row;
}

/* A document's id and beginning; *out is a new reference. */
static bp_err describe(json_t **out, const vector_texts *texts, const bp_tokenizer *tokenizer,
                       int64_t d)
{
    const bp_score_plan *plan = &texts->plan;
    int64_t at = bp_score_plan_file(plan, d), document = d - plan->first_document[at];
    char id[ID_BYTES];
    bp_err err =
        bp_corpus_file_doc_id(bp_corpus_file_at(plan->corpus, at), document, id, sizeof id);

    *out = NULL;
    if (err != BP_OK)
        return err;
    if (id[0] == '\0')
        (void)snprintf(id, sizeof id, "document %" PRId64, document);
    *out = json_pack("{s:o}", "id", bp_score_page_text(id, strlen(id)));
    return tokenizer ? score_page_add_beginning(*out, tokenizer, plan, d) : BP_OK;
}

static bp_err add_shown(json_t *rows, const vector_texts *texts, const bp_tokenizer *tokenizer,
                        const shown_document *of)
{
    json_t *row, *near = json_array();
    bp_err err = describe(&row, texts, tokenizer, of->document);

    for (int k = 0; k < of->count && err == BP_OK; k++) {
        json_t *one;

        err = describe(&one, texts, tokenizer, of->near[k].document);
        if (one) {
            bp_score_page_add_value(one, "cosine", "%.4f", of->near[k].cosine);
            (void)json_array_append_new(near, one);
        }
    }
    if (row) {
        (void)json_object_set(row, "near", near);
        (void)json_array_append_new(rows, row);
    }
    json_decref(near);
    return err;
}

static bp_err load_tokenizer(bp_tokenizer **out, const bp_corpus *corpus)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_corpus_file_tokenizer(bp_corpus_file_at(corpus, 0), &text, &bytes);

    *out = NULL;
    if (err == BP_OK && text)
        err = bp_tokenizer_parse(out, text, bytes, "the corpus's tokenizer");
    bp_free(text);
    return err;
}

static bp_err add_documents(json_t *page, const vector_texts *texts, const vector_figures *figures)
{
    json_t *rows = json_array();
    bp_tokenizer *tokenizer = NULL;
    bp_err err = load_tokenizer(&tokenizer, texts->plan.corpus);

    for (int k = 0; k < figures->shown_count && err == BP_OK; k++)
        if (figures->shown[k].count > 0)
            err = add_shown(rows, texts, tokenizer, &figures->shown[k]);
    (void)json_object_set_new(page, "has_text", json_boolean(tokenizer));
    (void)json_object_set_new(page, "documents",
                              json_array_size(rows) > 0 ? json_pack("{s:O}", "rows", rows)
                                                        : json_null());
    json_decref(rows);
    bp_tokenizer_free(&tokenizer);
    return err;
}

static void add_count(json_t *page, const char *key, int64_t count)
{
    char digits[32];

    (void)snprintf(digits, sizeof digits, "%" PRId64, count);
    char *text = bp_report_thousands(digits);
    (void)json_object_set_new(page, key, json_string(text));
    bp_free(text);
}

/* The length of the mean of vectors of length 1: 1 if all point in one direction. */
static double common_direction(const vector_figures *figures)
{
    double sum = 0;

    for (int64_t c = 0; c < figures->width; c++)
        sum += figures->mean[c] * figures->mean[c];
    return sqrt(sum) / (double)figures->count;
}

void vectors_page_write(bp_work_job *job, const vector_texts *texts, int64_t width)
{
    const char *model = bp_score_keys_of(job->config)->model;
    int64_t all = texts->plan.documents;
    vector_figures figures = {.count = all < COMPARED_MOST ? all : COMPARED_MOST, .width = width};
    char *path = bp_path_join(job->folder, "vectors.h5"),
         *title = bp_sprintf("Vectors of %s", bp_path_base(model));
    json_t *page = json_pack("{s:o, s:o, s:I, s:s, s:b, s:b, s:I, s:I}", "title",
                             bp_score_page_text(title, strlen(title)), "model",
                             bp_score_page_text(model, strlen(model)), "step",
                             (json_int_t)job->info.step, "pool", texts->wish->pool, "mean",
                             strcmp(texts->wish->pool, "mean") == 0, "norm", (int)texts->wish->norm,
                             "width", (json_int_t)width, "most", (json_int_t)texts->most);
    bp_err err = find(&figures, path);

    add_count(page, "count", all);
    add_count(page, "tokens", texts->tokens);
    if (texts->cut > 0)
        add_count(page, "cut", texts->cut);
    if (all > figures.count)
        add_count(page, "compared", figures.count);
    if (err == BP_OK) {
        bp_score_page_add_value(page, "common", "%.3f", common_direction(&figures));
        (void)json_object_set_new(
            page, "spread",
            json_pack(
                "[o, o]", spread_row("length of a vector", figures.norms, figures.count),
                spread_row("cosine of two documents", figures.cosines, figures.cosine_count)));
        err = add_documents(page, texts, &figures);
    }
    bp_work_write_page(job, "vectors", page, err);
    clear(&figures);
    bp_free(title);
    bp_free(path);
}
