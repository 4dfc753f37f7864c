/* Does the interval of the calibration error cover it as often as it says? Corpora are simulated
 * whose error is known: documents differ in how hard they are and, together, in how often their
 * tokens are right. The figures are printed. */
#include "bp_test.h"

#include "base/rng.h"
#include "statistics/calibration.h"
#include "statistics/resample.h"

#include <math.h>
#include <stdio.h>

enum { CORPORA = 300, RESAMPLES = 300, MOST_DOCUMENTS = 200, TOKENS = 80, LEVELS = 60 };

typedef struct world {
    const char *name;
    int64_t documents;
    double over;      /* confidence c is right with c - over c (1 - c) */
    double dependent; /* of the smaller of right and wrong, moved one way for a whole document */
} world;

/* Confidences are (k + 1/2) / LEVELS; easy documents have more of the high ones. */
static double confidence_of(int level)
{
    return (level + 0.5) / LEVELS;
}

static double accuracy_of(const world *self, double confidence)
{
    return confidence - self->over * confidence * (1 - confidence);
}

/* Level k has a share that falls with k, slower in easy documents; cumulated. */
static void shares_of(double shares[LEVELS], bool easy)
{
    double sum = 0;

    for (int k = 0; k < LEVELS; k++)
        sum += exp((easy ? -3 : -6) * confidence_of(k));
    for (int k = 0; k < LEVELS; k++)
        shares[k] = exp((easy ? -3 : -6) * confidence_of(k)) / sum;
}

/* The truth: bins of expected sums; documents are easy or hard with chance 1/2. */
static void find_truth(const world *self, double *squared, double *ece)
{
    double share[2][LEVELS], tokens[BP_CALIBRATION_BINS] = {0}, gap[BP_CALIBRATION_BINS] = {0};

    *squared = *ece = 0;
    shares_of(share[0], false);
    shares_of(share[1], true);
    for (int k = 0; k < LEVELS; k++) {
        double c = confidence_of(k), p = (share[0][k] + share[1][k]) / 2;
        int b = bp_calibration_bin((float)c);

        tokens[b] += p;
        gap[b] += p * (accuracy_of(self, c) - c);
    }
    for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
        *squared += tokens[b] > 0 ? gap[b] * gap[b] / tokens[b] : 0;
        *ece += fabs(gap[b]);
    }
}

static bp_calibration draw_document(const world *self, const double cumulated[2][LEVELS],
                                    const bp_rng_key *key)
{
    bool easy = bp_rng_uniform(key, 0) < 0.5, lucky = bp_rng_uniform(key, 1) < 0.5;
    bp_calibration sums = {0};

    for (uint64_t t = 0; t < TOKENS; t++) {
        double u = bp_rng_uniform(key, 2 + 2 * t), c, right;
        int k = 0;

        while (k + 1 < LEVELS && u > cumulated[easy][k])
            k++;
        c = confidence_of(k);
        right = accuracy_of(self, c);
        right += (lucky ? 1 : -1) * self->dependent * fmin(right, 1 - right);
        bp_calibration_add(&sums, (float)c, bp_rng_uniform(key, 3 + 2 * t) < right, 0, 0);
    }
    return sums;
}

typedef struct evidence {
    const bp_calibration *documents;
    int64_t count;
    bp_calibration_gaps gaps;
} evidence;

static void measure(double *values, const int32_t *const *counts, const void *data)
{
    const evidence *self = data;
    bp_calibration sums = bp_calibration_of(self->documents, counts[0], self->count);

    values[0] = bp_calibration_squared_resampled(&self->gaps, &sums);
    values[1] = bp_calibration_ece(&sums);
}

typedef struct coverage {
    double squared, ece; /* shares of corpora whose interval holds the truth */
    double mean, error;  /* of the debiased estimate, and of that mean */
    double truth;
} coverage;

static bool covers(const double *values, double truth)
{
    bp_interval interval;

    bp_test_expect(bp_interval_of(&interval, values, RESAMPLES, 2, BP_PLAIN_PERCENTILES), BP_OK);
    return fmax(interval.low, 0) <= truth && truth <= fmax(interval.high, 0);
}

static coverage simulate(const world *self, int64_t number)
{
    static bp_calibration documents[MOST_DOCUMENTS];
    static double values[RESAMPLES * 2];
    double cumulated[2][LEVELS], true_ece, squares = 0;
    coverage out = {0};

    find_truth(self, &out.truth, &true_ece);
    for (int easy = 0; easy < 2; easy++) {
        shares_of(cumulated[easy], easy);
        for (int k = 1; k < LEVELS; k++)
            cumulated[easy][k] += cumulated[easy][k - 1];
    }
    for (int64_t r = 0; r < CORPORA; r++) {
        evidence seen = {.documents = documents, .count = self->documents};
        bp_bootstrap bootstrap = {.seed = (uint64_t)(number * CORPORA + r),
                                  .resamples = RESAMPLES,
                                  .groups = 1,
                                  .documents = &seen.count,
                                  .width = 2};
        double got;

        for (int64_t d = 0; d < self->documents; d++) {
            bp_rng_key key = bp_rng_key_of(7, BP_RNG_TEST, number, r, d);
            documents[d] = draw_document(self, cumulated, &key);
        }
        seen.gaps = bp_calibration_gaps_of(documents, self->documents);
        got = bp_calibration_squared(&seen.gaps);
        bp_test_expect(bp_bootstrap_run(values, &bootstrap, measure, &seen), BP_OK);
        out.squared += (double)covers(values, out.truth) / CORPORA;
        out.ece += (double)covers(values + 1, true_ece) / CORPORA;
        out.mean += got / CORPORA;
        squares += got * got / CORPORA;
    }
    out.error = sqrt((squares - out.mean * out.mean) / CORPORA);
    printf("%-44s true %.6f, mean estimate %.6f +- %.6f; covered %.3f, of the plain ECE %.3f\n",
           self->name, out.truth, out.mean, out.error, out.squared, out.ece);
    return out;
}

static const double DEVIATION = 0.0126; /* of a share of 0.95 of so many corpora */

static const world WORLDS[] = {
    {"calibrated, 40 documents", 40, 0, 0},
    {"calibrated, 40 dependent documents", 40, 0, 0.3},
    {"calibrated, 200 dependent documents", 200, 0, 0.3},
    {"near the noise floor, 40 dependent documents", 40, 0.05, 0.3},
    {"near the noise floor, 200 dependent documents", 200, 0.05, 0.3},
    {"off, 40 documents", 40, 0.3, 0},
    {"off, 40 dependent documents", 40, 0.3, 0.3},
    {"off, 200 dependent documents", 200, 0.3, 0.3},
    {"far off, 200 dependent documents", 200, 0.8, 0.3},
};

static void interval_covers_as_often_as_it_says(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof WORLDS / sizeof WORLDS[0]; k++) {
        coverage got = simulate(&WORLDS[k], (int64_t)k);

        /* never less than 95 %, but for chance; more where the error is near 0 */
        assert_true(got.squared > 0.95 - 3 * DEVIATION);
        if (WORLDS[k].over > 0.1)
            assert_true(got.squared < 0.95 + 3.5 * DEVIATION);
        assert_true(fabs(got.mean - got.truth) < 4 * got.error); /* without bias */
        /* why the plain ECE has no interval */
        if (WORLDS[k].over == 0)
            assert_true(got.ece < 0.5);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(interval_covers_as_often_as_it_says),
    };
    return BP_TEST_RUN(tests);
}
