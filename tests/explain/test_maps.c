/* Maps of points: the tree of Barnes and Hut beside all pairs, gradients beside differences, and
 * layouts that part two heaps. */
#include "bp_test_mpi.h"
#include "explain/maps/maps.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { POINTS = 120, WIDTH = 6 };

static bp_err look(void *context)
{
    (void)context;
    return BP_OK;
}

/* Two heaps, the second of odd points; the last two are one point. */
static void draw(double *x, int64_t columns, double apart)
{
    const bp_rng_key key = bp_rng_key_of(5, BP_RNG_TEST, 0, 0, columns);

    for (int64_t i = 0; i < POINTS * columns; i++)
        x[i] = bp_rng_normal(&key, (uint64_t)i) + (i / columns % 2 ? apart : 0);
    memcpy(x + (POINTS - 1) * columns, x + (POINTS - 3) * columns, (size_t)columns * sizeof *x);
}

typedef struct world {
    double x[POINTS * WIDTH], y[2 * POINTS];
    bp_near near;
    bp_edges p;
} world;

static void begin(world *self)
{
    draw(self->x, WIDTH, 12);
    draw(self->y, 2, 0);
    const bp_map_points points = {POINTS, WIDTH, self->x, {look, NULL}};
    bp_test_expect(bp_near_of(&self->near, &points, 30), BP_OK);
    bp_tsne_affinities(&self->p, NULL, &self->near, 10);
}

static void end(world *self)
{
    bp_edges_clear(&self->p);
    bp_near_clear(&self->near);
}

static void affinities_sum_to_one_and_are_symmetric(void **state)
{
    world self;
    double sum = 0;

    begin(&self);
    for (int64_t i = 0; i < POINTS; i++)
        for (int64_t e = self.p.first[i]; e < self.p.first[i + 1]; e++) {
            double other = -1;
            int64_t j = self.p.to[e];

            for (int64_t f = self.p.first[j]; f < self.p.first[j + 1]; f++)
                other = self.p.to[f] == i ? self.p.weight[f] : other;
            assert_true(other == self.p.weight[e]);
            sum += self.p.weight[e];
        }
    assert_true(fabs(sum - 1) < 1e-12);
    end(&self);
}

/* Repulsion by plain loops; attraction is the same. */
static void plain(const world *self, double *gradient)
{
    double all = 0;

    memset(gradient, 0, 2 * POINTS * sizeof *gradient);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < POINTS; i++)
            for (int64_t j = 0; j < POINTS; j++) {
                double dx = self->y[2 * i] - self->y[2 * j],
                       dy = self->y[2 * i + 1] - self->y[2 * j + 1],
                       q = 1 / (1 + dx * dx + dy * dy), p = 0;

                if (i == j)
                    continue;
                for (int64_t e = self->p.first[i]; e < self->p.first[i + 1]; e++)
                    p = self->p.to[e] == j ? self->p.weight[e] : p;
                all += pass == 0 ? q : 0;
                gradient[2 * i] += pass == 1 ? 4 * (p - q / all) * q * dx : 0;
                gradient[2 * i + 1] += pass == 1 ? 4 * (p - q / all) * q * dy : 0;
            }
}

static void the_tree_is_all_pairs_where_it_opens_all(void **state)
{
    double want[2 * POINTS], found[2 * POINTS], most = 0, coarse = 0;
    world self;

    begin(&self);
    plain(&self, want);
    for (int k = 0; k < 2; k++) {
        const bp_tsne tsne = {.p = &self.p, .theta = 0.5 * k, .y = self.y};
        double *worst = k == 0 ? &most : &coarse;

        bp_test_expect(bp_tsne_gradient(&tsne, 1, found, NULL), BP_OK);
        for (int c = 0; c < 2 * POINTS; c++)
            *worst = fmax(*worst, fabs(found[c] - want[c]));
    }
    assert_true(most < 1e-15);
    assert_true(coarse > 0 && coarse < 1e-3); /* it is near, and it is another sum */
    end(&self);
}

static void the_gradient_is_that_of_the_divergence(void **state)
{
    double gradient[2 * POINTS], up, down;
    world self;

    begin(&self);
    const bp_tsne tsne = {.p = &self.p, .y = self.y};
    bp_test_expect(bp_tsne_gradient(&tsne, 1, gradient, NULL), BP_OK);
    for (int c = 0; c < 2 * POINTS; c += 17) {
        double own = self.y[c], rest[2 * POINTS];

        self.y[c] = own + 1e-5;
        bp_test_expect(bp_tsne_gradient(&tsne, 1, rest, &up), BP_OK);
        self.y[c] = own - 1e-5;
        bp_test_expect(bp_tsne_gradient(&tsne, 1, rest, &down), BP_OK);
        self.y[c] = own;
        assert_true(fabs((up - down) / 2e-5 - gradient[c]) < 1e-8);
    }
    end(&self);
}

/* The share of points whose nearest one on the map is of their heap. */
static double parted(const double *y)
{
    const bp_map_points points = {POINTS, 2, y, {look, NULL}};
    bp_near near;
    int own = 0;

    bp_test_expect(bp_near_of(&near, &points, 1), BP_OK);
    for (int i = 0; i < POINTS; i++)
        own += near.point[i] % 2 == i % 2;
    bp_near_clear(&near);
    return (double)own / POINTS;
}

static void layouts_part_heaps(void **state)
{
    static const bp_tsne_phase PHASES[] = {{100, 0.5, 12}, {200, 0.8, 1}};
    const bp_map_watch watch = {look, NULL};
    double before, after, rest[2 * POINTS], again[2 * POINTS];
    bp_edges graph;
    world self;

    begin(&self);
    memcpy(again, self.y, sizeof again);
    assert_true(parted(self.y) < 0.7);
    const bp_tsne tsne = {.p = &self.p, .theta = 0.5, .rate = 50, .watch = watch, .y = self.y};
    bp_test_expect(bp_tsne_gradient(&tsne, 1, rest, &before), BP_OK);
    bp_test_expect(bp_tsne_run(&tsne, PHASES, 2, &after), BP_OK);
    assert_true(after < before / 2);
    assert_true(parted(self.y) == 1);
    bp_umap_graph(&graph, NULL, NULL, &self.near);
    memcpy(self.y, again, sizeof again);
    bp_test_expect(bp_umap_lay_out(self.y, &graph, 1, &watch), BP_OK);
    bp_test_expect(bp_umap_lay_out(again, &graph, 1, &watch), BP_OK);
    assert_true(parted(self.y) == 1);
    assert_memory_equal(self.y, again, sizeof again);
    bp_edges_clear(&graph);
    end(&self);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(affinities_sum_to_one_and_are_symmetric),
        cmocka_unit_test(the_tree_is_all_pairs_where_it_opens_all),
        cmocka_unit_test(the_gradient_is_that_of_the_divergence),
        cmocka_unit_test(layouts_part_heaps)};
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
