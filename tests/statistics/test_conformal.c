/* Conformal sets: the promised coverage on simulated predictions, and sets against those of all
 * scores, one by one. */
#include "bp_test.h"

#include "base/rng.h"
#include "statistics/conformal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 12, CALIBRATION = 10, TRIALS = 4000 };

static double draw(int64_t stream, int64_t at)
{
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, 0, 0, stream);

    return bp_rng_uniform(&key, (uint64_t)at);
}

/* A model that is too sure: p[V] falling, and the truth drawn from a flatter distribution. Returns
 * its place. */
static int64_t predict(double p[V], int64_t trial, int64_t at)
{
    double sharp = 0.2 + 2 * draw(1, trial * 1000 + at), sum = 0, flat = 0, flats[V],
           u = draw(2, trial * 1000 + at);

    for (int k = 0; k < V; k++) {
        p[k] = exp(-sharp * k);
        flats[k] = exp(-sharp * k / 3);
        sum += p[k];
        flat += flats[k];
    }
    for (int k = 0; k < V; k++)
        p[k] /= sum;
    for (int k = 0; k < V; k++) {
        u -= flats[k] / flat;
        if (u < 0)
            return k;
    }
    return V - 1;
}

static bp_conformal_target target_of(const double p[V], int64_t label)
{
    bp_conformal_target target = {.p = p[label], .before = label};

    for (int64_t k = 0; k < label; k++)
        target.above += p[k];
    return target;
}

/* The k-th smallest score decides, as bp_conformal_threshold has it or without its correction. */
static double share_covered(bp_conformal_kind kind, double coverage, bool corrected)
{
    bp_conformal_rule rule = {.penalty = 0.02, .free = 2};
    int64_t covered = 0;
    double p[V], scores[CALIBRATION];

    for (int64_t t = 0; t < TRIALS; t++) {
        for (int64_t k = 0; k < CALIBRATION; k++) {
            bp_conformal_target target = target_of(p, predict(p, t, k));

            scores[k] = bp_conformal_score(kind, &rule, &target,
                                           bp_conformal_uniform(7, BP_CONFORMAL_CALIBRATION, t, k));
        }
        rule.threshold[kind] = bp_conformal_threshold(scores, CALIBRATION, coverage);
        if (!corrected)
            rule.threshold[kind] = scores[(int64_t)ceil(CALIBRATION * coverage) - 1];
        bp_conformal_target target = target_of(p, predict(p, t, CALIBRATION));
        covered += bp_conformal_score(kind, &rule, &target,
                                      bp_conformal_uniform(7, BP_CONFORMAL_SETS, t, CALIBRATION)) <=
                   rule.threshold[kind];
    }
    return (double)covered / TRIALS;
}

/* 3 standard errors of a share of TRIALS are 0.015. */
static void sets_cover_what_they_promise_and_not_without_the_correction(void **state)
{
    (void)state;
    for (int kind = 0; kind < BP_CONFORMAL_KINDS; kind++) {
        double with = share_covered(kind, 0.9, true), without = share_covered(kind, 0.9, false);

        print_message("%s: %.4f, without the correction %.4f\n", bp_conformal_names[kind], with,
                      without);
        assert_true(with > 0.9 - 0.015 && with < 0.9 + 1.0 / (CALIBRATION + 1) + 0.015);
        assert_true(without < 0.85);
    }
}

static void a_threshold_is_an_order_statistic_or_infinite(void **state)
{
    double scores[9] = {9, 1, 8, 2, 7, 3, 6, 4, 5};

    (void)state;
    assert_true(bp_conformal_threshold(scores, 9, 0.9) == 9); /* 10 x 0.9 is 9 */
    assert_true(bp_conformal_threshold(scores, 9, 0.5) == 5);
    assert_true(bp_conformal_threshold(scores, 9, 0.51) == 6);
    assert_true(bp_conformal_threshold(scores, 9, 0.01) == 1);
    assert_true(isinf(bp_conformal_threshold(scores, 9, 0.91)));
    assert_true(isinf(bp_conformal_threshold(scores, 0, 0.5)));
}

/* ---- sets, against the score of every outcome ---- */

/* Probabilities with ties, the most probable first. */
static void make_row(double p[V], int64_t row)
{
    double sum = 0, last = 1;

    for (int k = 0; k < V; k++) {
        last = draw(4, row * V + k) < 0.4 ? last : last * (0.3 + 0.7 * draw(5, row * V + k));
        p[k] = last;
        sum += last;
    }
    for (int k = 0; k < V; k++)
        p[k] /= sum;
}

/* Groups end at random, and hold all of a tie. */
static bp_conformal_set find_set(const double p[V], bp_conformal_kind kind,
                                 const bp_conformal_rule *rule, int64_t row)
{
    double counts[V] = {0}, mass[V] = {0};
    int64_t groups = 0, first[V + 1] = {0}, k;
    bp_conformal_prefix prefix = {0, 0};

    for (k = 0; k < V; k++) {
        counts[groups]++;
        mass[groups] += p[k];
        if (k + 1 == V || (p[k + 1] < p[k] && draw(6, row * V + k) < 0.5))
            first[++groups] = k + 1;
    }
    int64_t group = bp_conformal_walk(&prefix, kind, rule, counts, mass, groups);
    if (group == groups)
        return (bp_conformal_set){V, -1};
    /* and within it, tie by tie */
    for (k = first[group]; k < first[group + 1];) {
        double tie = 0, of_tie = 0;
        int64_t end = k;

        for (; end < V && p[end] == p[k]; end++) {
            tie++;
            of_tie += p[end];
        }
        if (bp_conformal_walk(&prefix, kind, rule, &tie, &of_tie, 1) == 0)
            return bp_conformal_end(&prefix, kind, rule, p[k], end - k);
        k = end;
    }
    return (bp_conformal_set){(int64_t)prefix.count, -1};
}

static void a_set_holds_every_outcome_whose_score_is_within(void **state)
{
    int64_t differ = 0, empty = 0, cut = 0;

    (void)state;
    for (int64_t row = 0; row < 3000; row++) {
        bp_conformal_rule rule = {.penalty = 0.03 * (double)(row % 3), .free = row % 5};
        double p[V], u = draw(7, row);

        make_row(p, row);
        for (int kind = BP_CONFORMAL_APS; kind < BP_CONFORMAL_KINDS; kind++) {
            rule.threshold[kind] = 1.3 * draw(8, row);
            bp_conformal_set set = find_set(p, kind, &rule, row);
            int64_t size = 0;

            for (int64_t k = 0; k < V; k++) {
                bp_conformal_target target = target_of(p, k);

                size += bp_conformal_score(kind, &rule, &target, u) <= rule.threshold[kind];
            }
            differ += size != bp_conformal_size(&set, u);
            empty += size == 0;
            cut += size > 0 && size < V;
        }
    }
    assert_int_equal(differ, 0);
    assert_true(empty > 10 && cut > 1000);
}

static void outcomes_of_no_probability_are_within_a_whole_set_only(void **state)
{
    bp_conformal_rule rule = {.threshold = {1, 0.5, INFINITY}};
    bp_conformal_prefix half = {1, 0.5}, all = {1, 1};
    double one = 4, none = 0;

    (void)state;
    bp_conformal_set set =
        bp_conformal_end(&(bp_conformal_prefix){1, 0.6}, BP_CONFORMAL_APS, &rule, 0, 3);
    assert_int_equal(bp_conformal_size(&set, 0), 1);
    assert_int_equal(bp_conformal_walk(&half, BP_CONFORMAL_APS, &rule, &one, &none, 1), 1);
    assert_int_equal(bp_conformal_walk(&all, BP_CONFORMAL_RAPS, &rule, &one, &none, 1), 1);
    assert_true(all.count == 5);
}

static void draws_are_uniform_and_keyed_by_place(void **state)
{
    double sum = 0;

    (void)state;
    for (int64_t k = 0; k < 10000; k++)
        sum += bp_conformal_uniform(1, BP_CONFORMAL_SETS, k / 7, k % 7);
    assert_true(fabs(sum / 10000 - 0.5) < 0.01);
    double u = bp_conformal_uniform(1, BP_CONFORMAL_SETS, 2, 3);

    assert_true(u == bp_conformal_uniform(1, BP_CONFORMAL_SETS, 2, 3));
    assert_true(u != bp_conformal_uniform(1, BP_CONFORMAL_SETS, 3, 2));
    assert_true(u != bp_conformal_uniform(1, BP_CONFORMAL_CALIBRATION, 2, 3));
    assert_true(u != bp_conformal_uniform(2, BP_CONFORMAL_SETS, 2, 3));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_cover_what_they_promise_and_not_without_the_correction),
        cmocka_unit_test(a_threshold_is_an_order_statistic_or_infinite),
        cmocka_unit_test(a_set_holds_every_outcome_whose_score_is_within),
        cmocka_unit_test(outcomes_of_no_probability_are_within_a_whole_set_only),
        cmocka_unit_test(draws_are_uniform_and_keyed_by_place),
    };
    return BP_TEST_RUN(tests);
}
