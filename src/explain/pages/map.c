/* projection.html: the maps of projection.h5, whose points show their tokens. Called by
 * index.c. */
#include "explain/pages/gather.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/page/page.h"

#include <math.h>
#include <string.h>

#define MOST_POINTS 20000
#define MOST_BYTES  8000000 /* of the page */
#define POINT_BYTES 250     /* of a point's token and its context, as a rule */
#define MAP_BYTES   6       /* of its place on a map */
#define AROUND      48      /* bytes of context on either side */
#define STEPS       65535   /* of a map's width */

typedef struct map_points {
    bp_h5 *h5;
    int64_t n, count;            /* of the file; shown, evenly spaced */
    int32_t *documents, *places; /* [n] */
} map_points;

/* The file's number of shown point k. */
static int64_t number_of(const map_points *points, int64_t k)
{
    return k * points->n / points->count;
}

static bp_err open_points(map_points *out, const explainer *self)
{
    char *path = bp_path_join(self->job->folder, "projection.h5");
    bp_h5_shape shape = {0};
    bp_err err = bp_h5_open(&out->h5, path);

    if (err == BP_OK)
        err = bp_h5_shape_of(out->h5, "point_document", &shape);
    out->n = shape.count;
    out->documents = bp_alloc("explain.page", 2 * out->n, sizeof *out->documents);
    out->places = out->documents + out->n;
    if (err == BP_OK)
        err = bp_h5_read(out->h5, "point_document", BP_H5_U32, 0, out->documents, out->n);
    if (err == BP_OK)
        err = bp_h5_read(out->h5, "point_place", BP_H5_U32, 0, out->places, out->n);
    bp_free(path);
    return err;
}

/* ---- maps ---- */

/* Two columns of a table of the file: of each point 2 x 2 bytes, the lower first, from `low` to
 * `high`. */
static bp_err add_map(json_t *maps, const map_points *points, const char *name, int64_t at,
                      json_int_t layer)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(points->h5, name, &shape);
    int64_t columns = err == BP_OK ? shape.columns : 1, cells = points->n * columns;
    double *values = bp_alloc("explain.page", cells, sizeof *values), low[2] = {INFINITY, INFINITY},
           high[2] = {-INFINITY, -INFINITY};
    uint8_t *bytes = bp_alloc("explain.page", 4 * points->count, 1);

    if (err == BP_OK)
        err = bp_h5_read(points->h5, name, BP_H5_F64, at * cells, values, cells);
    for (int64_t k = 0; k < 2 * points->count; k++) {
        int64_t c = k % 2;
        double value = c < columns ? values[number_of(points, k / 2) * columns + c] : 0;

        low[c] = fmin(low[c], value);
        high[c] = fmax(high[c], value);
    }
    for (int64_t k = 0; k < 2 * points->count; k++) {
        int64_t c = k % 2;
        double value = c < columns ? values[number_of(points, k / 2) * columns + c] : 0,
               share = high[c] > low[c] ? (value - low[c]) / (high[c] - low[c]) : 0.5;
        unsigned step = (unsigned)lround(STEPS * share);

        bytes[2 * k] = (uint8_t)(step & 255);
        bytes[2 * k + 1] = (uint8_t)(step >> 8);
    }
    if (err == BP_OK)
        (void)json_array_append_new(
            maps, json_pack("{ss sI s[ff] s[ff] so}", "name", name, "layer", layer, "low", low[0],
                            low[1], "high", high[0], high[1], "bytes",
                            explain_base64_json(bytes, (size_t)(4 * points->count))));
    bp_free(bytes);
    bp_free(values);
    return err;
}

/* Of each layer the components, and the two others where they were drawn. */
static bp_err add_maps(json_t *maps, const map_points *points, const explainer *self,
                       const json_t *figures)
{
    const json_t *drawn = json_object_get(figures, "maps");
    bp_err err = BP_OK;

    for (int64_t at = 0; at < self->settings.layer_count && err == BP_OK; at++)
        err = add_map(maps, points, "pca", at, (json_int_t)self->settings.layers[at]);
    for (size_t at = 0; at < json_array_size(drawn) && err == BP_OK; at++) {
        json_int_t layer = json_integer_value(json_object_get(json_array_get(drawn, at), "layer"));

        err = add_map(maps, points, "tsne", (int64_t)at, layer);
        if (err == BP_OK)
            err = add_map(maps, points, "umap", (int64_t)at, layer);
    }
    return err;
}

/* A row a map whose quality is known: how well it keeps neighbours. */
static json_t *qualities_of(const json_t *figures)
{
    static const char *const NAMES[] = {"pca", "tsne", "umap"};
    json_t *rows = json_array(), *one;
    size_t k;

    json_array_foreach(json_object_get(figures, "maps"), k, one) for (int m = 0; m < 3; m++)
    {
        const json_t *of = json_object_get(one, NAMES[m]);
        json_t *row =
            json_pack("{ss sO}", "name", NAMES[m], "layer", json_object_get(one, "layer"));

        bp_score_page_add_value(row, "trustworthiness", "%.3f",
                                json_number_value(json_object_get(of, "trustworthiness")));
        bp_score_page_add_value(row, "continuity", "%.3f",
                                json_number_value(json_object_get(of, "continuity")));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- points ---- */

/* The text of spans [first, end) that is nearest to one of the ends, AROUND bytes at most. */
static json_t *text_of(const explain_spans *spans, int64_t first, int64_t end, bool at_end)
{
    bp_buffer text = {0};
    size_t bytes = 0;
    json_t *out;

    for (int64_t s = end; at_end && s > first; s--) {
        bytes += spans->list[s - 1].bytes + spans->list[s - 1].space;
        if (bytes > AROUND)
            first = s;
    }
    for (int64_t s = first; s < end && text.bytes + spans->list[s].bytes <= AROUND; s++) {
        if (spans->list[s].space)
            bp_buffer_printf(&text, " ");
        bp_buffer_add(&text, spans->texts.data + spans->list[s].text, spans->list[s].bytes);
    }
    out = json_stringn(text.data ? text.data : "", text.bytes);
    bp_buffer_clear(&text);
    return out;
}

/* The texts of shown points [k, end), which are of one document. */
static bp_err add_texts(json_t *data, const map_points *points, const explain_gathered *gathered,
                        const bp_explained *document, int64_t k, int64_t end)
{
    json_t *token = json_object_get(data, "token"), *before = json_object_get(data, "before"),
           *after = json_object_get(data, "after");
    explain_spans spans;
    bp_err err = explain_spans_of(&spans, &gathered->speller, document->inputs, document->T);

    for (int64_t s = 0; k < end && err == BP_OK; k++) {
        int64_t place = points->places[number_of(points, k)];
        const explain_span *span;

        while (s + 1 < spans.count && spans.list[s + 1].first <= place)
            s++;
        span = &spans.list[s];
        (void)json_array_append_new(
            token,
            json_stringn(spans.texts.data ? spans.texts.data + span->text : "", span->bytes));
        (void)json_array_append_new(before, text_of(&spans, 0, s, true));
        (void)json_array_append_new(after, text_of(&spans, s + 1, spans.count, false));
        (void)json_array_append_new(json_object_get(data, "place"),
                                    json_integer((json_int_t)place));
    }
    explain_spans_clear(&spans);
    return err;
}

/* A document's value of each label: labels.NAME[documents]; "": it has none. */
static bp_err add_labels(json_t *labels, const explainer *self, int64_t number, size_t index)
{
    int64_t own;
    bp_corpus_file *file = explain_file_of(self, number, &own);
    bp_err err = BP_OK;
    const char *name;
    json_t *list;

    for (int k = 0; file && k < bp_corpus_file_info(file)->labels && err == BP_OK; k++) {
        bp_corpus_label label;

        err = bp_corpus_file_label(file, k, &label);
        if (err != BP_OK)
            break;
        list = json_object_get(labels, label.name);
        if (!list)
            (void)json_object_set_new(labels, label.name, list = json_array());
        while (json_array_size(list) < index)
            (void)json_array_append_new(list, json_string(""));
        (void)json_array_append_new(list, bp_json_string(label.values[label.codes[own]]));
    }
    json_object_foreach(labels, name, list) while (json_array_size(list) <= index)(void)
        json_array_append_new(list, json_string(""));
    return err;
}

static bp_err add_points(json_t *data, const map_points *points, const explain_gathered *gathered,
                         explainer *self)
{
    json_t *of = json_object_get(data, "document"), *ids = json_object_get(data, "documents");
    explain_reading read;
    bp_err err = BP_OK;

    explain_reading_new(&read, &self->texts);
    for (int64_t k = 0, end; k < points->count && err == BP_OK; k = end) {
        int64_t number = points->documents[number_of(points, k)];

        for (end = k; end < points->count && points->documents[number_of(points, end)] == number;
             end++)
            (void)json_array_append_new(of, json_integer((json_int_t)json_array_size(ids)));
        err = explain_texts_read(&self->texts, number, &read);
        if (err == BP_OK)
            err = add_texts(data, points, gathered, &read.document, k, end);
        if (err == BP_OK)
            err = add_labels(json_object_get(data, "labels"), self, number, json_array_size(ids));
        (void)json_array_append_new(ids, explain_id_of(self, number));
    }
    explain_reading_clear(&read);
    return err;
}

/* ---- the page ---- */

bool explain_map_write(const explain_gathered *gathered, explainer *self, const json_t *figures)
{
    const char *model = bp_explain_keys_of(self->job->config)->model;
    json_t *data = json_pack("{s[] s[] s[] s[] s[] s[] s[] s{}}", "maps", "token", "before",
                             "after", "place", "document", "documents", "labels"),
           *page;
    char *title = bp_sprintf("Maps of the states of %s", model), *script = NULL;
    map_points points = {0};
    bp_err err = open_points(&points, self);
    int64_t maps = self->settings.layer_count +
                   2 * (int64_t)json_array_size(json_object_get(figures, "maps")),
            most = MOST_BYTES / (POINT_BYTES + MAP_BYTES * maps);
    bool written;

    most = most < MOST_POINTS ? most : MOST_POINTS;
    points.count = points.n < most ? points.n : most;
    if (err == BP_OK)
        err = add_maps(json_object_get(data, "maps"), &points, self, figures);
    if (err == BP_OK)
        err = add_points(data, &points, gathered, self);
    if (err == BP_OK)
        script = explain_script_text(data);
    page = json_pack("{so sI sO ss* so}", "title", bp_score_page_text(title, strlen(title)),
                     "points", (json_int_t)points.count, "of", json_object_get(figures, "of"),
                     "data", script, "qualities", qualities_of(figures));
    written = bp_work_write_page_at(self->job, EXPLAIN_MAP_PAGE, "explain-map", page, err);
    if (points.h5)
        (void)bp_h5_close(&points.h5);
    bp_free(points.documents);
    bp_free(script);
    bp_free(title);
    json_decref(data);
    return written;
}
