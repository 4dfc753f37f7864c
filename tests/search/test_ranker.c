/* The ranking that is learned from pairs: its optimum, the order that it finds, and what it leaves
 * out. */
#include "bp_test.h"
#include "search/ranker.h"

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
    nas_ranker_fit(&ranker, m.x, m.loss, N, D, 1);
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
    nas_ranker_fit(&ranker, m.x, m.loss, N, D, 1);
    nas_ranker_fit(&again, m.x, m.loss, N, D, 1);
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
    nas_ranker_fit(&ranker, m.x, m.loss, N, D, 1);
    assert_true(ranker.accuracy < 0.7);
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
        cmocka_unit_test(a_regression_finds_a_line),
    };
    return BP_TEST_RUN(tests);
}
