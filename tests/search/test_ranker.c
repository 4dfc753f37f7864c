/* The ranking that is learned from pairs: its optimum, the order that it finds, and what it leaves
 * out. */
#include "bp_test.h"
#include "search/methods/ranker.h"

#include "base/rng.h"

#include <math.h>

enum { N = 40, D = 4 };

typedef struct models {
    double x[N * D], loss[N];
} models;

/* Losses that fall with the first feature and rise with the second; the third says nothing, the
 * fourth is constant. */
static void draw(models *m, double noise)
{
    bp_rng_key key = bp_rng_key_of(4, BP_RNG_TEST, 0, 0, 0);

    for (int i = 0; i < N; i++) {
        for (int f = 0; f < D; f++)
            m->x[i * D + f] = f == 3 ? 7 : 10 * bp_rng_uniform(&key, (uint64_t)(i * D + f));
        m->loss[i] = 3 - 0.2 * m->x[i * D] + 0.05 * m->x[i * D + 1] +
                     noise * bp_rng_normal(&key, (uint64_t)(1000 + i));
    }
}

/* The mean logistic loss of all pairs and the penalty, by its definition. */
static double objective(const models *m, const nas_ranker *ranker)
{
    double sum = 0, square = 0;
    int64_t pairs = 0;

    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (m->loss[i] < m->loss[j]) {
                sum += log1p(exp(nas_ranker_utility(ranker, &m->x[j * D]) -
                                 nas_ranker_utility(ranker, &m->x[i * D])));
                pairs++;
            }
    for (int f = 0; f < D; f++)
        square += ranker->weight[f] * ranker->weight[f];
    return sum / (double)pairs + 1e-3 / 2 * square;
}

static void weights_are_the_optimum(void **state)
{
    models m;
    nas_ranker ranker;

    (void)state;
    draw(&m, 0.3);
    nas_ranker_fit(&ranker, &(nas_ranked_models){m.x, m.loss, N, D}, false, 1);
    assert_int_equal(ranker.pairs, N * (N - 1) / 2);
    double best = objective(&m, &ranker);
    for (int f = 0; f < D; f++)
        for (int sign = -1; sign <= 1; sign += 2) {
            nas_ranker other = ranker;

            other.weight[f] += sign * 0.01;
            assert_true(!ranker.kept[f] || f == 3 || objective(&m, &other) > best);
        }
}

static void the_order_is_found_and_useless_features_are_left_out(void **state)
{
    models m;
    nas_ranker ranker, again;

    (void)state;
    draw(&m, 0);
    nas_ranker_fit(&ranker, &(nas_ranked_models){m.x, m.loss, N, D}, false, 1);
    nas_ranker_fit(&again, &(nas_ranked_models){m.x, m.loss, N, D}, false, 1);
    assert_memory_equal(&ranker, &again, sizeof ranker);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            assert_true(m.loss[i] >= m.loss[j] - 0.03 ||
                        nas_ranker_utility(&ranker, &m.x[i * D]) >
                            nas_ranker_utility(&ranker, &m.x[j * D]));
    assert_true(ranker.accuracy > 0.97 && ranker.kept[0] && ranker.kept[1] && !ranker.kept[3]);
    assert_true(ranker.weight[0] > 0 && ranker.weight[1] < 0 && ranker.weight[3] == 0);
    assert_true(ranker.importance[0] > ranker.importance[1] && ranker.importance[1] > 0.01);
    assert_true(ranker.importance[0] > 0.2 && fabs(ranker.importance[2]) < 0.03);
}

static void noise_alone_is_ranked_no_better_than_by_chance(void **state)
{
    models m;
    nas_ranker ranker;
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_TEST, 0, 0, 0);

    (void)state;
    draw(&m, 0);
    for (int i = 0; i < N; i++)
        m.loss[i] = bp_rng_uniform(&key, (uint64_t)i);
    nas_ranker_fit(&ranker, &(nas_ranked_models){m.x, m.loss, N, D}, false, 1);
    assert_true(ranker.accuracy < 0.7);
}

/* A loss with its optimum within the range of the first feature, which the second turns round where
 * it is small: no linear function orders these. */
static void trees_order_what_no_line_does(void **state)
{
    static models m;
    static nas_ranker line, trees, again;
    int64_t right = 0, all = 0;

    (void)state;
    draw(&m, 0);
    for (int i = 0; i < N; i++) {
        double x = fabs(m.x[i * D] - 5), turned = m.x[i * D + 1] < 3 ? -0.5 : 1;

        m.loss[i] = 2 + 0.2 * turned * x;
    }
    nas_ranker_fit(&line, &(nas_ranked_models){m.x, m.loss, N, D}, false, 1);
    nas_ranker_fit(&trees, &(nas_ranked_models){m.x, m.loss, N, D}, true, 1);
    nas_ranker_fit(&again, &(nas_ranked_models){m.x, m.loss, N, D}, true, 1);
    assert_memory_equal(&trees, &again, sizeof trees);
    assert_true(line.accuracy < 0.75 && trees.accuracy > 0.85);
    assert_true(trees.kept[0] && trees.kept[1] && !trees.kept[3]);
    /* models that it has not seen */
    for (int i = 0; i < 50; i++)
        for (int j = 0; j < 50; j++) {
            double a[D] = {0.2 * i, 6, 5, 7}, b[D] = {0.2 * j, 6, 5, 7};

            if (fabs(fabs(a[0] - 5) - fabs(b[0] - 5)) < 0.5 || fabs(a[0] - 5) > fabs(b[0] - 5))
                continue;
            right += nas_ranker_utility(&trees, a) > nas_ranker_utility(&trees, b);
            all++;
        }
    assert_true((double)right > 0.85 * (double)all);
    draw(&m, 0);
    nas_ranker_fit(&trees, &(nas_ranked_models){m.x, m.loss, N, D}, true, 1);
    assert_true(trees.accuracy > 0.9 && !trees.kept[3]);
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_TEST, 0, 0, 0);
    for (int i = 0; i < N; i++)
        m.loss[i] = bp_rng_uniform(&key, (uint64_t)i);
    nas_ranker_fit(&trees, &(nas_ranked_models){m.x, m.loss, N, D}, true, 1);
    assert_true(trees.accuracy < 0.7);
}

/* One tree by its definition: the best of all splits at the root, and leaves that are its sums. */
static void the_first_split_is_the_best_of_all(void **state)
{
    static models m;
    static nas_tree trees[NAS_TREES];
    nas_pair pairs[N * N];
    const bool kept[D] = {true, true, true, true};
    double g[N] = {0}, h[N] = {0}, all[2] = {0}, best = 0, threshold = 0;
    int64_t count = 0;
    int feature = -1;

    (void)state;
    draw(&m, 0.5);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (m.loss[i] < m.loss[j]) {
                pairs[count++] = (nas_pair){i, j};
                g[i] += 0.5;
                g[j] -= 0.5;
                h[i] += 0.25;
                h[j] += 0.25;
            }
    double penalty = 0.05 * 2 * (double)count / N;
    for (int i = 0; i < N; i++) {
        all[0] += g[i];
        all[1] += h[i];
    }
    for (int f = 0; f < D; f++)
        for (int at = 0; at < N; at++) { /* rows below that of `at` */
            double left[2] = {0}, below = -INFINITY, x = m.x[at * D + f];

            for (int i = 0; i < N; i++)
                if (m.x[i * D + f] < x) {
                    left[0] += g[i];
                    left[1] += h[i];
                    below = fmax(below, m.x[i * D + f]);
                }
            double right = all[0] - left[0], gain = left[0] * left[0] / (left[1] + penalty) +
                                                    right * right / (all[1] - left[1] + penalty) -
                                                    all[0] * all[0] / (all[1] + penalty);
            if (isfinite(below) && gain > best * (1 + 1e-12)) {
                best = gain;
                feature = f;
                threshold = (below + x) / 2;
            }
        }
    nas_boost(trees, m.x, N, D, kept, pairs, count);
    assert_int_equal(trees[0].feature[0], feature);
    assert_true(fabs(trees[0].threshold[0] - threshold) < 1e-9);
    for (int leaf = 0; leaf < 1 << NAS_DEPTH; leaf++) {
        double sums[2] = {0};

        for (int i = 0; i < N; i++) {
            int k = 0;
            while (k < (1 << NAS_DEPTH) - 1)
                k = 2 * k + (trees[0].feature[k] < 0 ||
                                     m.x[i * D + trees[0].feature[k]] < trees[0].threshold[k]
                                 ? 1
                                 : 2);
            if (k - ((1 << NAS_DEPTH) - 1) == leaf) {
                sums[0] += g[i];
                sums[1] += h[i];
            }
        }
        assert_true(fabs(trees[0].leaf[leaf] - 0.1 * sums[0] / (sums[1] + penalty)) < 1e-12);
    }
}

static void a_regression_finds_a_line(void **state)
{
    models m;
    nas_ranker fit;
    double mean;

    (void)state;
    draw(&m, 0);
    nas_regression_fit(&fit, &mean, m.x, m.loss, N, D);
    for (int i = 0; i < N; i++)
        assert_true(fabs(nas_ranker_utility(&fit, &m.x[i * D]) + mean - m.loss[i]) < 0.01);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_optimum),
        cmocka_unit_test(the_order_is_found_and_useless_features_are_left_out),
        cmocka_unit_test(noise_alone_is_ranked_no_better_than_by_chance),
        cmocka_unit_test(trees_order_what_no_line_does),
        cmocka_unit_test(the_first_split_is_the_best_of_all),
        cmocka_unit_test(a_regression_finds_a_line),
    };
    return BP_TEST_RUN(tests);
}
