/* t-SNE, UMAP's graph, principal components and factors of arrays in double, against scikit-learn's
 * and umap-learn's definitions in float64: ../shared/reference/explain-tiny. */
#include "bp_test_mpi.h"
#include "explain/maps/factorise.h"
#include "explain/maps/maps.h"

#include "base/mem.h"
#include "io/huggingface/safetensors.h"
#include "math/scalapack/distributed.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define POINTS 40

static const char *const MODELS[] = {"gpt2-lmhead-tiny", "bert-sequence-tiny"};

static bp_err look(void *context)
{
    (void)context;
    return BP_OK;
}

/* An array of the file in double, as it is there: the caller's. */
static double *array(const char *model, const char *name, const bp_safetensor *shape)
{
    char relative[128], path[4096];
    bp_safetensors *file;
    int64_t header;
    int fd;

    snprintf(relative, sizeof relative, "reference/explain-tiny/%s/expected.safetensors", model);
    snprintf(path, sizeof path, "%s", bp_test_shared(relative));
    bp_test_expect(bp_safetensors_open(&file, path), BP_OK);
    const bp_safetensor *tensor = bp_safetensors_find(file, name);
    assert_non_null(tensor);
    if (shape)
        *(bp_safetensor *)shape = *tensor;
    double *out = bp_alloc("test", tensor->count, sizeof *out);
    char *bytes = bp_alloc("test", tensor->bytes, 1);
    fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, &header, sizeof header, 0), sizeof header);
    assert_int_equal(pread(fd, bytes, (size_t)tensor->bytes, 8 + header + tensor->first),
                     tensor->bytes);
    for (int64_t k = 0; k < tensor->count; k++) {
        if (strcmp(tensor->dtype, "F64") == 0)
            memcpy(&out[k], bytes + 8 * k, 8);
        else if (strcmp(tensor->dtype, "F32") == 0)
            out[k] = (double)((const float *)(const void *)bytes)[k];
        else
            out[k] = (double)((const int32_t *)(const void *)bytes)[k];
    }
    close(fd);
    bp_free(bytes);
    bp_safetensors_close(&file);
    return out;
}

static double largest(const double *x, int64_t n)
{
    double most = 0;

    for (int64_t k = 0; k < n; k++)
        most = fmax(most, fabs(x[k]));
    return most;
}

/* All of found[n] are within `most` of the file's. */
static void compare(const char *model, const char *name, const double *found, int64_t n,
                    double most)
{
    double *want = array(model, name, NULL);

    for (int64_t k = 0; k < n; k++)
        if (!(fabs(found[k] - want[k]) <= most))
            fail_msg("%s %s [%d]: %.17g, not %.17g", model, name, (int)k, found[k], want[k]);
    bp_free(want);
}

static double *dense(const bp_edges *edges)
{
    double *out = bp_alloc("test", edges->n * edges->n, sizeof *out);

    for (int64_t i = 0; i < edges->n; i++)
        for (int64_t e = edges->first[i]; e < edges->first[i + 1]; e++)
            out[i * edges->n + edges->to[e]] = edges->weight[e];
    return out;
}

static bp_map_points points_of(const char *model)
{
    bp_safetensor shape;
    double *x = array(model, "map.x", &shape);

    assert_int_equal(shape.shape[0], POINTS);
    return (bp_map_points){POINTS, shape.shape[1], x, {look, NULL}};
}

static void tsne_is_scikit_learns(void **state)
{
    static const bp_tsne_phase PHASES[] = {{25, 0.5, 4}, {25, 0.8, 1}};
    const double divergences[2][3] = {{1.8472444566417314, 1.3856686829775775, 0.3611986185587115},
                                      {1.9454526979033142, 0.9590717564281742, 0.2575889738486111}};

    for (int m = 0; m < 2; m++) {
        bp_map_points points = points_of(MODELS[m]);
        double beta[POINTS], gradient[2 * POINTS], divergence, *p,
            *y = array(MODELS[m], "tsne.y0", NULL);
        bp_edges affinities;
        bp_near near;

        bp_test_expect(bp_near_of(&near, &points, POINTS - 1), BP_OK);
        bp_tsne_affinities(&affinities, beta, &near, 5);
        p = dense(&affinities);
        compare(MODELS[m], "tsne.p", p, POINTS * POINTS, 1e-9 * largest(p, POINTS * POINTS));
        compare(MODELS[m], "tsne.beta", beta, POINTS, 1e-8 * largest(beta, POINTS));
        const bp_tsne tsne = {.p = &affinities, .rate = 10, .watch = {look, NULL}, .y = y};
        bp_test_expect(bp_tsne_gradient(&tsne, 1, gradient, &divergence), BP_OK);
        compare(MODELS[m], "tsne.gradient0", gradient, 2 * POINTS,
                1e-9 * largest(gradient, 2 * POINTS));
        assert_true(fabs(divergence - divergences[m][0]) < 1e-9);
        bp_test_expect(bp_tsne_run(&tsne, PHASES, 1, &divergence), BP_OK);
        assert_true(fabs(divergence - divergences[m][1]) < 1e-7);
        bp_test_expect(bp_tsne_run(&tsne, PHASES + 1, 1, &divergence), BP_OK);
        assert_true(fabs(divergence - divergences[m][2]) < 1e-7);
        compare(MODELS[m], "tsne.y", y, 2 * POINTS, 1e-6);
        bp_free(p);
        bp_free(y);
        bp_edges_clear(&affinities);
        bp_near_clear(&near);
        bp_free((void *)points.x);
    }
}

static void umaps_graph_is_its_definition(void **state)
{
    for (int m = 0; m < 2; m++) {
        bp_map_points points = points_of(MODELS[m]);
        double rho[POINTS], sigma[POINTS], neighbours[4 * POINTS], *graph;
        bp_edges edges;
        bp_near near;

        bp_test_expect(bp_near_of(&near, &points, 4), BP_OK);
        for (int k = 0; k < 4 * POINTS; k++)
            neighbours[k] = near.point[k];
        compare(MODELS[m], "umap.neighbours", neighbours, 4 * POINTS, 0);
        compare(MODELS[m], "umap.distances", near.distance, 4 * POINTS, 1e-9);
        bp_umap_graph(&edges, rho, sigma, &near);
        graph = dense(&edges);
        compare(MODELS[m], "umap.rho", rho, POINTS, 1e-9);
        compare(MODELS[m], "umap.sigma", sigma, POINTS, 1e-9);
        compare(MODELS[m], "umap.graph", graph, POINTS * POINTS, 1e-9);
        bp_free(graph);
        bp_edges_clear(&edges);
        bp_near_clear(&near);
        bp_free((void *)points.x);
    }
}

static void components_and_qualities_are_scikit_learns(void **state)
{
    const double want[2][4] = {{0.9175, 0.9203125, 0.853125, 0.93875},
                               {0.93953125, 0.92671875, 0.8515625, 0.9184375}};

    if (!bp_distributed_library())
        skip();
    for (int m = 0; m < 2; m++) {
        bp_map_points points = points_of(MODELS[m]);
        double *y = array(MODELS[m], "tsne.y", NULL);
        bp_principal found;

        bp_test_expect(bp_principal_of(&found, &points, 2), BP_OK);
        compare(MODELS[m], "map.variance", found.variance, points.C, 1e-9);
        compare(MODELS[m], "map.direction", found.direction, 2 * points.C, 1e-9);
        compare(MODELS[m], "map.pca", found.score, 2 * POINTS, 1e-9);
        bp_map_quality maps[2] = {{.y = y}, {.y = found.score}};
        bp_test_expect(bp_map_qualities(maps, 2, &points, 5), BP_OK);
        for (int k = 0; k < 2; k++) {
            assert_true(fabs(maps[k].trustworthiness - want[m][2 * k]) < 1e-9);
            assert_true(fabs(maps[k].continuity - want[m][2 * k + 1]) < 1e-9);
        }
        bp_principal_clear(&found);
        bp_free(y);
        bp_free((void *)points.x);
    }
}

/* Columns of block b of rows[][2 * width]. */
static double *block_of(const double *rows, int64_t count, int64_t width, int64_t b)
{
    double *out = bp_alloc("test", count * width, sizeof *out);

    for (int64_t i = 0; i < count * width; i++)
        out[i] = rows[i / width * 2 * width + b * width + i % width];
    return out;
}

static void factors_are_scikit_learns(void **state)
{
    static const char *const ALL[] = {"gpt2-lmhead-tiny", "llama-tiny", "bert-tiny",
                                      "bert-sequence-tiny", "transformer-tiny"};

    for (int m = 0; m < 5; m++) {
        bp_safetensor shape;
        double *x = array(ALL[m], "nmf.x", &shape), *w = array(ALL[m], "nmf.w0", NULL),
               *h = array(ALL[m], "nmf.h0", NULL), *both;
        int64_t n = shape.shape[0], k = 4, width = shape.shape[1] / 2;
        double *const xs[] = {block_of(x, n, width, 0), block_of(x, n, width, 1)};
        double *const hs[] = {block_of(h, k, width, 0), block_of(h, k, width, 1)};
        const bp_factorisation of = {
            .group = MPI_COMM_SELF,
            .n = n,
            .k = k,
            .blocks = 2,
            .width = width,
            .x = (const double *const *)xs,
            .w = w,
            .h = hs,
            .work = bp_alloc("test", bp_factorise_work(n, k, 2, width), sizeof(double))};

        both = h;
        for (int step = 1; step <= 50; step++) {
            bp_factorise_step(&of);
            if (step == 1)
                compare(ALL[m], "nmf.w1", w, n * k, 1e-9);
        }
        compare(ALL[m], "nmf.w50", w, n * k, 1e-9);
        for (int64_t i = 0; i < k * 2 * width; i++)
            both[i] = hs[i % (2 * width) / width][i / (2 * width) * width + i % width];
        compare(ALL[m], "nmf.h50", both, k * 2 * width, 1e-9);
        for (int b = 0; b < 2; b++) {
            bp_free(xs[b]);
            bp_free(hs[b]);
        }
        bp_free(of.work);
        bp_free(x);
        bp_free(w);
        bp_free(h);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tsne_is_scikit_learns), cmocka_unit_test(umaps_graph_is_its_definition),
        cmocka_unit_test(components_and_qualities_are_scikit_learns),
        cmocka_unit_test(factors_are_scikit_learns)};
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
