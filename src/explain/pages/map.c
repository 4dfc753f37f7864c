/* projection.html: the maps of projection.h5, whose points show their tokens. Called by
 * pages/pages.c. */
#include "explain/pages/tables.h"

#include "base/mem.h"
#include "infer/score/page/page.h"

#include <math.h>
#include <string.h>

#define MOST_POINTS 20000
#define MAP_BYTES   6     /* of its place on a map */
#define STEPS       65535 /* of a map's width */

typedef struct map_points {
    bp_h5 *h5;
    int64_t n, count;               /* of the file; shown, evenly spaced */
    int32_t *documents, *positions; /* [n] */
} map_points;

/* The file's number of shown point k. */
static int64_t number_of(const map_points *points, int64_t k)
{
    return k * points->n / points->count;
}

static bp_err open_points(map_points *out, bp_h5 *h5)
{
    bp_err err;

    out->h5 = h5;
    err = explain_table_read(h5, "point_document", BP_H5_U32, (void **)&out->documents, &out->n,
                             NULL);
    if (err == BP_OK)
        err =
            explain_table_read(h5, "point_place", BP_H5_U32, (void **)&out->positions, NULL, NULL);
    return err;
}

/* ---- maps ---- */

/* Two columns of a table of the file: for each point 2 x 2 bytes, the lower first, from `low` to
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

/* For each layer the components, and the two other maps if they exist. */
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

/* One row per map of known quality: how well it keeps neighbours. */
static json_t *qualities_of(const json_t *figures)
{
    static const char *const NAMES[] = {"pca", "tsne", "umap"}, *const TITLES[] = {"PCA", "t-SNE",
                                                                                   "UMAP"};
    json_t *rows = json_array(), *one;
    size_t k;

    json_array_foreach(json_object_get(figures, "maps"), k, one) for (int m = 0; m < 3; m++)
    {
        const json_t *of = json_object_get(one, NAMES[m]);
        json_t *row =
            json_pack("{ss sO}", "name", TITLES[m], "layer", json_object_get(one, "layer"));

        bp_score_page_add_value(row, "trustworthiness", "%.3f",
                                json_number_value(json_object_get(of, "trustworthiness")));
        bp_score_page_add_value(row, "continuity", "%.3f",
                                json_number_value(json_object_get(of, "continuity")));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* ---- the page ---- */

static bp_err add_points(json_t *data, const map_points *points, const explain_gathered *gathered,
                         explainer *self)
{
    explain_place *positions = bp_alloc("explain.page", points->count, sizeof *positions);
    bp_err err;

    for (int64_t k = 0; k < points->count; k++)
        positions[k] = (explain_place){points->documents[number_of(points, k)],
                                       points->positions[number_of(points, k)]};
    err = explain_contexts_add(data, self, gathered, positions, points->count);
    bp_free(positions);
    return err;
}

static bp_err fill(json_t *data, json_t *page, bp_h5 *h5, const explain_gathered *gathered,
                   explainer *self, const json_t *figures)
{
    json_t *all = json_array();
    map_points points = {0};
    int64_t maps = self->settings.layer_count +
                   2 * (int64_t)json_array_size(json_object_get(figures, "maps")),
            most = EXPLAIN_PAGE_BYTES / (EXPLAIN_CONTEXT_BYTES + MAP_BYTES * maps);
    bp_err err = open_points(&points, h5);

    most = most < MOST_POINTS ? most : MOST_POINTS;
    points.count = points.n < most ? points.n : most;
    (void)json_object_set_new(data, "maps", all);
    if (err == BP_OK)
        err = add_maps(all, &points, self, figures);
    if (err == BP_OK)
        err = add_points(data, &points, gathered, self);
    (void)json_object_set_new(page, "points", json_integer((json_int_t)points.count));
    (void)json_object_set(page, "of", json_object_get(figures, "of"));
    (void)json_object_set_new(page, "qualities", qualities_of(figures));
    bp_free(points.documents);
    bp_free(points.positions);
    return err;
}

const explain_page explain_page_projection = {.method = &bp_explain_projection,
                                              .file = "projection.html",
                                              .template = "explain-map",
                                              .title = "Maps of the states",
                                              .link = "The maps, to look at",
                                              .fill = fill};
