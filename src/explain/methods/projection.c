/* Maps of states: principal components of each layer, t-SNE and UMAP of some layers, and how well
 * each map keeps neighbours. Called through the table of methods. */
#include "base/numbers.h"
#include "explain/maps/maps.h"
#include "explain/states/collection.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "math/scalapack/distributed.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MOST_POINTS  20000
#define FEW_POINTS   500 /* points up to which t-SNE uses all pairs */
#define COMPONENTS   4
#define THETA        0.5
#define EXAGGERATION 12.0
#define QUALITY_NEAR 5

typedef struct projection {
    const bp_explain_collection *all;
    const bp_explain_settings *settings;
    bp_explain_points points;
    int64_t n, C, keep;
    int64_t *chosen; /* [n] of the points */
    float *states;   /* [n][C] of a layer */
    double *x;       /* [n][C] */
    double *maps[3]; /* [n][2] principal components, t-SNE, UMAP */
    int64_t drawn;   /* number of layers with maps */
    json_t *figures;
} projection;

static const char *const MAPS[] = {"pca", "tsne", "umap"};

/* ---- points ---- */

/* All points, or MOST_POINTS drawn from them, ascending. */
static void choose(projection *self)
{
    const bp_rng_key key = bp_rng_key_of(0, BP_RNG_POINTS, 0, 0, 0);
    int64_t all = self->points.n;
    bool *drawn = bp_alloc("explain.projection", all, sizeof *drawn);

    self->n = all < MOST_POINTS ? all : MOST_POINTS;
    self->chosen = bp_alloc("explain.projection", self->n, sizeof *self->chosen);
    for (int64_t i = 0; i < self->n; i++)
        drawn[self->n < all ? bp_rng_permute(&key, i, all) : i] = true;
    for (int64_t i = 0, at = 0; i < all; i++)
        if (drawn[i])
            self->chosen[at++] = i;
    bp_free(drawn);
}

static bp_err allocate(projection *self)
{
    int64_t values = self->n * self->C;

    self->states = bp_try_alloc("explain.projection", values, sizeof *self->states);
    self->x = bp_try_alloc("explain.projection", values, sizeof *self->x);
    for (int k = 0; k < 3; k++)
        self->maps[k] = bp_alloc("explain.projection", 2 * self->n, sizeof(double));
    return self->states && self->x ? BP_OK
                                   : bp_fail_memory("states of a layer", values, sizeof(double));
}

/* Layers with maps of neighbours: the last one, or all that the user names. */
static bool is_drawn(const projection *self, int64_t at)
{
    return self->settings->keys->layers || at == self->settings->layer_count - 1;
}

/* ---- a layer ---- */

static bp_err write_doubles(bp_h5 *h5, const char *name, int64_t first, const double *values,
                            int64_t count)
{
    return bp_h5_write_slab(h5, name, BP_H5_F64, first, values, count);
}

static bp_err write_principal(const projection *self, bp_h5 *h5, int64_t at,
                              const bp_principal *found)
{
    int64_t C = self->C, keep = self->keep;
    bp_err err = write_doubles(h5, "mean", at * C, found->mean, C);

    if (err == BP_OK)
        err = write_doubles(h5, "variance", at * C, found->variance, C);
    if (err == BP_OK)
        err = write_doubles(h5, "direction", at * keep * C, found->direction, keep * C);
    if (err == BP_OK)
        err = write_doubles(h5, "pca", at * self->n * keep, found->score, self->n * keep);
    return err;
}

/* The first k of more neighbours. */
static void cut(bp_near *out, const bp_near *near, int64_t k)
{
    *out = (bp_near){.n = near->n,
                     .k = k,
                     .point = bp_alloc("explain.near", near->n * k, sizeof(int32_t)),
                     .distance = bp_alloc("explain.near", near->n * k, sizeof(double))};
    for (int64_t i = 0; i < near->n; i++) {
        memcpy(out->point + i * k, near->point + i * near->k, (size_t)k * sizeof(int32_t));
        memcpy(out->distance + i * k, near->distance + i * near->k, (size_t)k * sizeof(double));
    }
}

/* The number of neighbours with affinities in t-SNE. */
static int64_t affine(const projection *self)
{
    return self->n <= FEW_POINTS
               ? self->n - 1
               : bp_min(self->n - 1, (int64_t)(3 * self->settings->keys->perplexity));
}

/* Start from the components, with deviation 0.0001 of the first one. */
static bp_err draw_tsne(projection *self, const bp_near *near, double *divergence)
{
    static const bp_tsne_phase PHASES[] = {{250, 0.5, EXAGGERATION}, {750, 0.8, 1}};
    int64_t n = self->n;
    double deviation = 0, *y = self->maps[1];
    bp_edges p = {0};
    bp_near close;
    bp_err err;

    for (int64_t i = 0; i < n; i++)
        deviation += self->maps[0][2 * i] * self->maps[0][2 * i] / (double)n;
    for (int64_t c = 0; c < 2 * n; c++)
        y[c] = deviation > 0 ? self->maps[0][c] / sqrt(deviation) * 1e-4 : 0;
    cut(&close, near, affine(self));
    bp_tsne_affinities(&p, NULL, &close, self->settings->keys->perplexity);
    bp_tsne tsne = {.p = &p,
                    .theta = n <= FEW_POINTS ? 0 : THETA,
                    .rate = fmax((double)n / (4 * EXAGGERATION), 50),
                    .watch = {self->all->look, (void *)self->all},
                    .y = y};
    err = bp_tsne_run(&tsne, PHASES, 2, divergence);
    bp_edges_clear(&p);
    bp_near_clear(&close);
    return err;
}

/* From the components, stretched to a square of 10. */
static bp_err draw_umap(projection *self, const bp_near *near)
{
    const bp_map_watch watch = {self->all->look, (void *)self->all};
    double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY}, *y = self->maps[2];
    bp_edges graph = {0};
    bp_near close;
    bp_err err;

    for (int64_t c = 0; c < 2 * self->n; c++) {
        low[c % 2] = fmin(low[c % 2], self->maps[0][c]);
        high[c % 2] = fmax(high[c % 2], self->maps[0][c]);
    }
    for (int64_t c = 0; c < 2 * self->n; c++)
        y[c] = high[c % 2] > low[c % 2]
                   ? 10 * (self->maps[0][c] - low[c % 2]) / (high[c % 2] - low[c % 2])
                   : 0;
    cut(&close, near, self->settings->keys->neighbours - 1);
    bp_umap_graph(&graph, NULL, NULL, &close);
    err = bp_umap_lay_out(y, &graph, 0, &watch);
    bp_edges_clear(&graph);
    bp_near_clear(&close);
    return err;
}

static void set_map_figures(projection *self, int64_t at, double divergence,
                            const bp_map_quality quality[3])
{
    json_t *one = json_pack("{sI sf}", "layer", (json_int_t)self->settings->layers[at],
                            "tsne_divergence", divergence);

    for (int k = 0; k < 3; k++)
        (void)json_object_set_new(one, MAPS[k],
                                  json_pack("{sf sf}", "trustworthiness",
                                            quality[k].trustworthiness, "continuity",
                                            quality[k].continuity));
    (void)json_array_append_new(json_object_get(self->figures, "maps"), one);
    bp_log("layer %" PRId64 ": t-SNE's divergence is %.3f; trustworthiness and continuity of "
           "principal components %.3f and %.3f, t-SNE %.3f and %.3f, UMAP %.3f and %.3f",
           self->settings->layers[at], divergence, quality[0].trustworthiness,
           quality[0].continuity, quality[1].trustworthiness, quality[1].continuity,
           quality[2].trustworthiness, quality[2].continuity);
}

static bp_err draw(projection *self, bp_h5 *h5, int64_t at, const bp_map_points *points)
{
    int64_t more = self->settings->keys->neighbours - 1, k = affine(self), n = self->n;
    bp_map_quality quality[3] = {{0}};
    double divergence = 0;
    bp_near near;
    bp_err err = bp_near_of(&near, points, k > more ? k : more);

    if (err == BP_OK)
        err = draw_tsne(self, &near, &divergence);
    if (err == BP_OK)
        err = draw_umap(self, &near);
    for (int m = 0; m < 3; m++)
        quality[m].y = self->maps[m];
    if (err == BP_OK)
        err = bp_map_qualities(quality, 3, points, QUALITY_NEAR);
    for (int m = 1; m < 3 && err == BP_OK; m++)
        err = write_doubles(h5, MAPS[m], self->drawn * 2 * n, self->maps[m], 2 * n);
    if (err == BP_OK)
        set_map_figures(self, at, divergence, quality);
    self->drawn++;
    bp_near_clear(&near);
    return err;
}

static double share_of(const bp_principal *found, int64_t C)
{
    double all = 0, first = 0;

    for (int64_t c = 0; c < C; c++) {
        all += found->variance[c];
        first += c < 2 ? found->variance[c] : 0;
    }
    return all > 0 ? first / all : 0;
}

/* Components of states that are not finite do not exist, and neither do neighbours. */
static bp_err check_states(const projection *self, int64_t at)
{
    for (int64_t i = 0; i < self->n * self->C; i++) {
        int64_t point = self->chosen[i / self->C];

        if (!isfinite(self->states[i]))
            return BP_FAIL(BP_ERR_FORMAT, "explain.states_not_finite",
                           "states after layer %" PRId64 " are not finite: at document %d, place "
                           "%d of the corpus, explain.model = %s; its weights are damaged or its "
                           "numbers overflow: explain an earlier checkpoint, or leave projection "
                           "out of explain.methods",
                           self->settings->layers[at], (int)self->points.documents[point],
                           (int)self->points.positions[point], self->settings->keys->model);
    }
    return BP_OK;
}

static bp_err do_layer(projection *self, bp_h5 *h5, int64_t at)
{
    const bp_map_points points = {self->n, self->C, self->x, {self->all->look, (void *)self->all}};
    bp_principal found = {0};
    bp_err err =
        bp_explain_points_states(&self->points, self->all, at, self->chosen, self->n, self->states);

    if (err == BP_OK)
        err = check_states(self, at);
    for (int64_t i = 0; i < self->n * self->C; i++)
        self->x[i] = (double)self->states[i];
    if (err == BP_OK)
        err = bp_principal_of(&found, &points, self->keep);
    if (err == BP_OK)
        err = write_principal(self, h5, at, &found);
    if (err == BP_OK) {
        (void)json_array_append_new(json_object_get(self->figures, "variance_share"),
                                    json_real(share_of(&found, self->C)));
        for (int64_t i = 0; i < self->n; i++)
            for (int c = 0; c < 2; c++)
                self->maps[0][2 * i + c] = c < self->keep ? found.score[i * self->keep + c] : 0;
    }
    bp_principal_clear(&found);
    return err == BP_OK && is_drawn(self, at) ? draw(self, h5, at, &points) : err;
}

/* ---- the file ---- */

static bp_err make(bp_h5 *h5, const char *name, int64_t rows, int64_t columns)
{
    const int64_t extent[] = {rows, columns};

    return bp_h5_make_array(h5, name, BP_H5_F64, 2, extent, NULL);
}

static bp_err begin(projection *self, bp_h5 *h5)
{
    int64_t layers = self->settings->layer_count, maps = 0,
            *drawn = bp_alloc("explain.projection", layers, sizeof *drawn);
    bp_err err = bp_explain_write_layers(h5, self->settings);

    for (int64_t at = 0; at < layers; at++)
        if (is_drawn(self, at))
            drawn[maps++] = self->settings->layers[at];
    if (err == BP_OK)
        err = bp_h5_write(h5, "map_layer", BP_H5_I64, drawn, maps);
    if (err == BP_OK)
        err = bp_h5_write(h5, "point", BP_H5_I64, self->chosen, self->n);
    if (err == BP_OK)
        err = bp_explain_points_write(&self->points, h5, self->chosen, self->n);
    if (err == BP_OK)
        err = make(h5, "mean", layers, self->C);
    if (err == BP_OK)
        err = make(h5, "variance", layers, self->C);
    if (err == BP_OK)
        err = make(h5, "direction", layers * self->keep, self->C);
    if (err == BP_OK)
        err = make(h5, "pca", layers * self->n, self->keep);
    for (int m = 1; m < 3 && err == BP_OK; m++)
        err = make(h5, MAPS[m], maps * self->n, 2);
    bp_free(drawn);
    return err;
}

static bp_err merge(const bp_explain_collection *all, bp_h5 *h5, json_t *figures)
{
    projection self = {.all = all, .settings = all->settings, .figures = figures};
    bp_err err = bp_explain_points_find(&self.points, all);

    if (err == BP_OK) {
        choose(&self);
        self.C = self.points.C;
        self.keep = bp_min(COMPONENTS, self.C);
        (void)json_object_set_new(figures, "points", json_integer(self.n));
        (void)json_object_set_new(figures, "of", json_integer(self.points.n));
        (void)json_object_set_new(figures, "variance_share", json_array());
        (void)json_object_set_new(figures, "maps", json_array());
        err = allocate(&self);
    }
    if (err == BP_OK)
        err = begin(&self, h5);
    for (int64_t at = 0; at < self.settings->layer_count && err == BP_OK; at++)
        err = do_layer(&self, h5, at);
    for (int k = 0; k < 3; k++)
        bp_free(self.maps[k]);
    bp_free(self.x);
    bp_free(self.states);
    bp_free(self.chosen);
    bp_explain_points_clear(&self.points);
    return err;
}

static const char *lacks(const bp_model_info *info)
{
    return bp_distributed_library() ? bp_explain_lacks_layers(info)
                                    : "this build has no ScaLAPACK, which finds its principal "
                                      "components";
}

/* For t-SNE and UMAP, and for their measures. */
static int64_t needs_points(const bp_explain_keys *keys)
{
    int64_t most = keys->neighbours, few = 2 * QUALITY_NEAR;

    most = keys->perplexity + 1 > (double)most ? (int64_t)ceil(keys->perplexity) + 1 : most;
    return most > few ? most : few;
}

/* Points, their states as floats and in double, covariances and vectors, neighbours. */
static int64_t merge_bytes(const bp_explain_settings *settings, int64_t tokens)
{
    int64_t n = bp_min(tokens, MOST_POINTS), C = settings->info->layer_width,
            near = (int64_t)(3 * settings->keys->perplexity) + settings->keys->neighbours;

    return 12 * tokens + 12 * n * C + 4 * (int64_t)sizeof(double) * C * C + 40 * n * near;
}

const bp_explain_method bp_explain_projection = {
    .name = "projection",
    .title = "Maps of the states",
    .help = "is a map of states: principal components, t-SNE, UMAP",
    .lacks = lacks,
    .collect = bp_explain_collect_states,
    .floats = bp_explain_states_floats,
    .needs_points = needs_points,
    .merge_bytes = merge_bytes,
    .merge = merge};
