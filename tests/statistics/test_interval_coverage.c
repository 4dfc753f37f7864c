/* Do the intervals that the program prints cover as often as they say? Corpora of n documents are
 * drawn from worlds whose truth is known, and the intervals counted that hold it. The figures are
 * printed; docs/scoring.md quotes them. Squared calibration errors: test_calibration_coverage.c. */
#include "bp_test.h"

#include "base/rng.h"
#include "statistics/correlation.h"
#include "statistics/detection.h"
#include "statistics/metric.h"
#include "statistics/ratio.h"
#include "statistics/resample.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>

enum { CORPORA = 400, RESAMPLES = 400, MOST = 100, PARTS = 12 };

static const int64_t SIZES[] = {2, 3, 5, 8, 10, 20, 50, 100};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0] };

/* A corpus: what a document adds above and below, or two sets of scores; and one of another kind.
 */
typedef struct sample {
    int64_t n;
    double above[MOST], below[MOST], other_above[MOST], other_below[MOST];
    const bp_detection *detection;
} sample;

typedef struct world {
    const char *name;
    double truth;
    void (*draw)(sample *out, const bp_rng_key *key);
    bp_statistic measure;
    bool two_sets, is_share, is_precision;
    bp_interval (*interval)(const sample *seen); /* one that is no bootstrap's; NULL: it is */
    int64_t fewest; /* documents below which there is no interval; 0: BP_FEW_DOCUMENTS */
    double least;   /* coverage that is asked of BP_FEW_DOCUMENTS documents or more */
} world;

static bool holds(bp_interval interval, double truth)
{
    return interval.low <= truth && truth <= interval.high;
}

/* ---- a mean, a ratio of sums ---- */

static void ratio(double *values, const int32_t *const *counts, const void *data)
{
    const sample *seen = data;
    double above = 0, below = 0;

    for (int64_t d = 0; d < seen->n; d++) {
        above += counts[0][d] * seen->above[d];
        below += counts[0][d] * seen->below[d];
    }
    values[0] = above / below;
}

/* A figure of each document, as chrF or METEOR have: a mean. */
static void draw_mean(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        out->above[d] = 0.3 + bp_rng_normal(key, (uint64_t)d);
        out->below[d] = 1;
    }
}

/* Differences of log-probabilities a token: documents differ in length, up to a factor of 20. */
static void draw_difference(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        uint64_t at = 3 * (uint64_t)d;
        double tokens = exp(0.8 * bp_rng_normal(key, at));

        out->below[d] = tokens;
        out->above[d] = tokens * (0.02 + 0.1 * bp_rng_normal(key, at + 1)) +
                        sqrt(tokens) * 0.05 * bp_rng_normal(key, at + 2);
    }
}

/* Shares of tokens: the parts of a document are right together. */
static void draw_parts(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        uint64_t at = (uint64_t)d * (PARTS + 1);
        double p = bp_rng_uniform(key, at) < 0.5 ? 0.45 : 0.75;

        out->above[d] = 0;
        out->below[d] = PARTS;
        for (uint64_t k = 1; k <= PARTS; k++)
            out->above[d] += bp_rng_uniform(key, at + k) < p;
    }
}

/* One answer a document, right or wrong. */
static void draw_share(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        out->above[d] = bp_rng_uniform(key, (uint64_t)d) < 0.85;
        out->below[d] = 1;
    }
}

/* ---- a correlation, an area under the ROC curve ---- */

static void correlation(double *values, const int32_t *const *counts, const void *data)
{
    const sample *seen = data;
    double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;

    for (int64_t d = 0; d < seen->n; d++) {
        double times = counts[0][d], a = seen->above[d], b = seen->below[d];

        n += times;
        x += times * a;
        y += times * b;
        xx += times * a * a;
        yy += times * b * b;
        xy += times * a * b;
    }
    values[0] = (n * xy - x * y) / sqrt((n * xx - x * x) * (n * yy - y * y));
}

static void draw_pairs(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        double x = bp_rng_normal(key, 2 * (uint64_t)d);

        out->above[d] = x;
        out->below[d] = 0.5 * x + sqrt(0.75) * bp_rng_normal(key, 2 * (uint64_t)d + 1);
    }
}

static void detect(double *values, const int32_t *const *counts, const void *data)
{
    const sample *seen = data;

    values[0] = bp_detection_of(seen->detection, counts[0], counts[1]).auroc;
}

static void detect_precision(double *values, const int32_t *const *counts, const void *data)
{
    const sample *seen = data;

    values[0] = bp_detection_of(seen->detection, counts[0], counts[1]).aupr;
}

static void detect_rate(double *values, const int32_t *const *counts, const void *data)
{
    const sample *seen = data;

    values[0] = bp_detection_of(seen->detection, counts[0], counts[1]).fpr95;
}

/* Scores of shifted documents are one deviation higher: the area is Phi(1 / sqrt 2). */
static void draw_scores(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        out->above[d] = bp_rng_normal(key, 2 * (uint64_t)d);
        out->below[d] = 1 + bp_rng_normal(key, 2 * (uint64_t)d + 1);
    }
}

/* Two deviations higher: often no score of a small sample is on the wrong side. */
static void draw_far_scores(sample *out, const bp_rng_key *key)
{
    draw_scores(out, key);
    for (int64_t d = 0; d < out->n; d++)
        out->below[d]++;
}

/* ---- figures of classes ---- */

/* Labels, of which 30 % are 1, and predictions, of which 80 % are right. */
static void draw_classes(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        bool one = bp_rng_uniform(key, 2 * (uint64_t)d) < 0.3;
        bool right = bp_rng_uniform(key, 2 * (uint64_t)d + 1) < 0.8;

        out->above[d] = one;
        out->below[d] = one == right;
    }
}

static void macro_f1(double *values, const int32_t *const *counts, const void *data)
{
    const sample *seen = data;
    double both[2] = {0}, labels[2] = {0}, predicted[2] = {0};

    for (int64_t d = 0; d < seen->n; d++) {
        int label = (int)seen->above[d], prediction = (int)seen->below[d];

        labels[label] += counts[0][d];
        predicted[prediction] += counts[0][d];
        both[label] += label == prediction ? counts[0][d] : 0;
    }
    values[0] =
        both[0] / fmax(labels[0] + predicted[0], 1) + both[1] / fmax(labels[1] + predicted[1], 1);
}

/* ---- intervals without resamples ---- */

static bp_interval of_ratio(const sample *seen)
{
    bp_ratio sums = {0};

    for (int64_t d = 0; d < seen->n; d++)
        bp_ratio_add(&sums, seen->above[d], seen->below[d]);
    return bp_ratio_interval(&sums);
}

/* Documents of another kind, whose figures are 0.05 less and spread twice as much. */
static void draw_two_kinds(sample *out, const bp_rng_key *key)
{
    draw_difference(out, key);
    for (int64_t d = 0; d < out->n; d++) {
        uint64_t at = 3 * (uint64_t)(d + MOST);

        out->other_below[d] = exp(0.8 * bp_rng_normal(key, at));
        out->other_above[d] = out->other_below[d] * (-0.03 + 0.2 * bp_rng_normal(key, at + 1));
    }
}

static bp_interval of_two_kinds(const sample *seen)
{
    bp_ratio sums[2] = {{0}};
    double p;

    for (int64_t d = 0; d < seen->n; d++) {
        bp_ratio_add(&sums[0], seen->above[d], seen->below[d]);
        bp_ratio_add(&sums[1], seen->other_above[d], seen->other_below[d]);
    }
    bp_interval interval = bp_ratio_difference(&sums[0], &sums[1], &p);
    assert_true(isnan(p) == isnan(interval.low) &&
                (isnan(p) || (p < 0.05) == !holds(interval, 0))); /* they say the same */
    return interval;
}

/* Lengths, of which most are short. */
static void draw_lengths(sample *out, const bp_rng_key *key)
{
    for (int64_t d = 0; d < out->n; d++) {
        out->above[d] = -log1p(-bp_rng_uniform(key, (uint64_t)d));
        out->below[d] = 1;
    }
}

static bp_interval of_kendall(const sample *seen)
{
    return bp_kendall_interval(bp_kendall(seen->above, seen->below, seen->n), seen->n);
}

/* ---- the simulation ---- */

/* With Q the normal tail: the integral of Q(t - d) / (Q(t - d) + Q(t)) over Q(t - d), for d of 1
 * and 2, by the trapezoid rule with a million steps; and Q(1 - 1.6448536269514722). */
#define PRECISION     0.752995996864
#define FAR_PRECISION 0.921768261299
#define FALSE_RATE    0.740488977159
/* Of draw_classes: 0.24 / 0.68 + 0.56 / 1.32, and (0.24 - 0.38 * 0.3) / sqrt(0.3 0.7 0.38 0.62). */
#define MACRO_F1 0.777183600713
#define MATTHEWS 0.566465226022

static const world WORLDS[] = {
    {.name = "mean of documents", .truth = 0.3, .draw = draw_mean, .measure = ratio, .least = 0.92},
    {.name = "difference a token",
     .truth = 0.02,
     .draw = draw_difference,
     .measure = ratio,
     .least = 0.90},
    {.name = "share of parts", .truth = 0.6, .draw = draw_parts, .measure = ratio, .least = 0.92},
    {.name = "share of documents",
     .truth = 0.85,
     .draw = draw_share,
     .measure = ratio,
     .is_share = true,
     .least = 0.92},
    {.name = "correlation",
     .truth = 0.5,
     .draw = draw_pairs,
     .measure = correlation,
     .least = 0.88},
    {.name = "area under ROC",
     .truth = 0.7602499389065233,
     .draw = draw_scores,
     .measure = detect,
     .two_sets = true,
     .least = 0.90},
    {.name = "average precision",
     .truth = PRECISION,
     .draw = draw_scores,
     .measure = detect_precision,
     .two_sets = true,
     .is_precision = true,
     .least = 0.92},
    {.name = "average precision, far",
     .truth = FAR_PRECISION,
     .draw = draw_far_scores,
     .measure = detect_precision,
     .two_sets = true,
     .is_precision = true,
     .least = 0.92},
    {.name = "FPR at 95 % TPR",
     .truth = FALSE_RATE,
     .draw = draw_scores,
     .measure = detect_rate,
     .two_sets = true,
     .fewest = BP_FEW_FOUND,
     .least = 0.90},
    {.name = "macro F1",
     .truth = MACRO_F1,
     .draw = draw_classes,
     .measure = macro_f1,
     .least = 0.88},
    {.name = "Matthews' correlation",
     .truth = MATTHEWS,
     .draw = draw_classes,
     .measure = correlation,
     .fewest = BP_FEW_OF_CLASSES,
     .least = 0.88},
    {.name = "ratio, linear term",
     .truth = 0.02,
     .draw = draw_difference,
     .interval = of_ratio,
     .least = 0.88},
    {.name = "two kinds of documents",
     .truth = 0.05,
     .draw = draw_two_kinds,
     .interval = of_two_kinds,
     .least = 0.88},
    {.name = "mean of lengths, t",
     .truth = 1,
     .draw = draw_lengths,
     .interval = of_ratio,
     .least = 0.88},
    {.name = "Kendall's correlation",
     .truth = 1.0 / 3,
     .draw = draw_pairs,
     .interval = of_kendall,
     .fewest = 5,
     .least = 0.92},
};

static double share_of(const sample *seen)
{
    double sum = 0;

    for (int64_t d = 0; d < seen->n; d++)
        sum += seen->above[d];
    return sum / (double)seen->n;
}

typedef struct coverage {
    double plain, ours; /* shares of corpora whose interval holds the truth */
    bool none;          /* there is no interval */
    double outside;     /* shares of them that do not hold their own figure */
} coverage;

static void count_one(coverage *out, const world *self, sample *seen, uint64_t seed)
{
    static double values[RESAMPLES];
    const int64_t documents[2] = {seen->n, seen->n};
    bp_bootstrap spec = {.seed = seed,
                         .resamples = RESAMPLES,
                         .groups = self->two_sets ? 2 : 1,
                         .documents = documents,
                         .width = 1};
    bp_detection *detection = NULL;
    bp_interval plain, ours;
    double point;

    if (self->interval) {
        ours = self->interval(seen);
        out->ours += (double)holds(ours, self->truth) / CORPORA;
        out->none = isnan(ours.low);
        return;
    }
    if (self->two_sets)
        bp_test_expect(bp_detection_new(&detection, seen->above, seen->n, seen->below, seen->n),
                       BP_OK);
    seen->detection = detection;
    bp_test_expect(bp_bootstrap_run(values, &spec, self->measure, seen), BP_OK);
    bp_test_expect(bp_interval_of(&plain, values, RESAMPLES, 1, BP_PLAIN_PERCENTILES), BP_OK);
    bp_test_expect(bp_interval_of(&ours, values, RESAMPLES, 1, seen->n), BP_OK);
    if (self->is_share && seen->n >= BP_FEW_DOCUMENTS)
        ours = bp_wilson_interval(share_of(seen), seen->n);
    if (self->is_precision) {
        self->measure(&point, (const int32_t *const[]){NULL, NULL}, seen);
        bp_test_expect(bp_interval_of_logits(&ours, point, values, RESAMPLES, 1, seen->n), BP_OK);
        out->outside += !isnan(ours.low) && !holds(ours, point);
    }
    if (seen->n < self->fewest)
        ours = (bp_interval){NAN, NAN};
    out->plain += (double)holds(plain, self->truth) / CORPORA;
    out->ours += (double)holds(ours, self->truth) / CORPORA;
    out->none = isnan(ours.low);
    bp_detection_free(&detection);
}

static coverage simulate(const world *self, int64_t number, int64_t n)
{
    coverage out = {0};

    for (int64_t c = 0; c < CORPORA; c++) {
        sample seen = {.n = n};
        bp_rng_key key = bp_rng_key_of(11, BP_RNG_TEST, number, c, n);

        self->draw(&seen, &key);
        count_one(&out, self, &seen, (uint64_t)(number * CORPORA + c));
    }
    return out;
}

static void intervals_cover_or_are_not_there(void **state)
{
    const double deviation = sqrt(0.95 * 0.05 / CORPORA);

    (void)state;
    omp_set_num_threads(1); /* corpora are too small to share */
    for (size_t w = 0; w < sizeof WORLDS / sizeof WORLDS[0]; w++)
        for (int k = 0; k < SIZE_COUNT; k++) {
            int64_t n = SIZES[k];
            coverage got = simulate(&WORLDS[w], (int64_t)w, n);

            printf("%-22s n = %3d: ", WORLDS[w].name, (int)n);
            if (!WORLDS[w].interval)
                printf("percentiles %.3f, ", got.plain);
            if (got.none)
                printf("none\n");
            else
                printf("ours %.3f\n", got.ours);
            assert_int_equal(got.none,
                             n < (WORLDS[w].fewest ? WORLDS[w].fewest : BP_FEW_DOCUMENTS));
            assert_true(got.outside == 0);
            if (got.none)
                continue;
            assert_true(got.ours > WORLDS[w].least - 2 * deviation);
            assert_true(got.ours <= 1 && (n < 50 || got.ours > 0.94 - 3 * deviation));
        }
}

/* ---- documents that share a source ---- */

enum { SOURCES = 30, PASSAGES = 16, MOST_SOURCES = 50 };

typedef struct passages {
    int64_t n, sources[MOST_SOURCES * PASSAGES];
    double right[MOST_SOURCES * PASSAGES];
} passages;

/* Passages of a source are right together, and of a source there are one to sixteen. */
static void draw_passages(passages *out, int64_t sources, const bp_rng_key *key)
{
    out->n = 0;
    for (int64_t s = 0; s < sources; s++) {
        uint64_t at = (uint64_t)s * (PASSAGES + 2);
        double p = bp_rng_uniform(key, at) < 0.5 ? 0.1 : 0.7;
        int64_t count = 1 + (int64_t)(bp_rng_uniform(key, at + 1) * PASSAGES);

        for (int64_t k = 0; k < count; k++) {
            out->sources[out->n] = s;
            out->right[out->n++] = bp_rng_uniform(key, at + 2 + (uint64_t)k) < p;
        }
    }
}

static void share_of_passages(double *values, const int32_t *const *counts, const void *data)
{
    const passages *seen = data;
    double right = 0, all = 0;

    for (int64_t d = 0; d < seen->n; d++) {
        right += counts[0][d] * seen->right[d];
        all += counts[0][d];
    }
    values[0] = right / all;
}

static double cover_passages(bool together)
{
    static double values[RESAMPLES];
    double covered = 0;

    for (int64_t c = 0; c < CORPORA; c++) {
        bp_rng_key key = bp_rng_key_of(12, BP_RNG_TEST, 0, c, 0);
        const int64_t draws = SOURCES;
        bp_interval interval;
        passages seen;

        draw_passages(&seen, SOURCES, &key);
        const int64_t *sources = seen.sources;
        bp_bootstrap spec = {.seed = (uint64_t)c,
                             .resamples = RESAMPLES,
                             .groups = 1,
                             .documents = &seen.n,
                             .clusters = together ? &sources : NULL,
                             .cluster_count = &draws,
                             .width = 1};
        bp_test_expect(bp_bootstrap_run(values, &spec, share_of_passages, &seen), BP_OK);
        bp_test_expect(bp_interval_of(&interval, values, RESAMPLES, 1, together ? SOURCES : seen.n),
                       BP_OK);
        covered += (double)holds(interval, 0.4) / CORPORA;
    }
    return covered;
}

static void intervals_over_clusters_cover_where_those_over_documents_do_not(void **state)
{
    double alone = cover_passages(false), together = cover_passages(true);

    (void)state;
    printf("passages of %d sources: over passages %.3f, over sources %.3f\n", SOURCES, alone,
           together);
    assert_true(alone < 0.75);
    assert_true(together > 0.91 && together < 0.99);
}

/* The same by a metric of documents: a share, which has Wilson's interval where it is 0 or 1. */
static void share_of_answers(double *values, const int32_t *counts, const void *answers)
{
    const passages *seen = answers;
    double right = 0, all = 0;

    for (int64_t d = 0; d < seen->n; d++) {
        double times = counts ? counts[d] : 1;

        right += times * seen->right[d];
        all += times;
    }
    values[0] = right / all;
}

static void metrics_over_clusters_cover_or_have_no_interval(void **state)
{
    static const int64_t COUNTS[] = {5, 9, 10, 20, MOST_SOURCES};
    const bp_metric metric = {.kind = "answers",
                              .width = 1,
                              .names = {"accuracy"},
                              .figures = share_of_answers,
                              .share = {BP_SHARE_OF_DOCUMENTS}};

    (void)state;
    omp_set_num_threads(1);
    for (size_t k = 0; k < sizeof COUNTS / sizeof COUNTS[0]; k++) {
        double covered = 0, alone = 0;
        bp_figure figure;

        for (int64_t c = 0; c < CORPORA; c++) {
            bp_rng_key key = bp_rng_key_of(13, BP_RNG_TEST, COUNTS[k], c, 0);
            passages seen;

            draw_passages(&seen, COUNTS[k], &key);
            bp_test_expect(bp_metric_estimate(&figure, &metric, &seen, seen.n, (uint64_t)c), BP_OK);
            alone += (double)holds(figure.interval, 0.4) / CORPORA;
            bp_test_expect(bp_metric_estimate_clusters(&figure, &metric, &seen, seen.n,
                                                       seen.sources, (uint64_t)c),
                           BP_OK);
            covered += (double)holds(figure.interval, 0.4) / CORPORA;
            assert_int_equal(isnan(figure.interval.low), COUNTS[k] < BP_FEW_DOCUMENTS);
            assert_true(isnan(figure.interval.low) || holds(figure.interval, figure.value));
        }
        printf("passages of %d sources: Wilson's over passages %.3f, over sources ", (int)COUNTS[k],
               alone);
        if (COUNTS[k] < BP_FEW_DOCUMENTS)
            printf("none\n");
        else
            printf("%.3f\n", covered);
        assert_true(alone < 0.75);
        assert_true(COUNTS[k] < BP_FEW_DOCUMENTS || (covered > 0.88 && covered < 0.99));
    }
}

/* One cluster a document is no cluster; all right is Wilson's of the clusters. */
static void clusters_of_one_document_change_only_the_interval_of_shares(void **state)
{
    enum { N = 40 };
    static int64_t each[N], pairs[N];
    passages seen = {.n = N};
    bp_metric metric = {
        .kind = "answers", .width = 1, .names = {"accuracy"}, .figures = share_of_answers};
    bp_figure one, other;

    (void)state;
    for (int64_t d = 0; d < N; d++) {
        each[d] = N - d; /* numbers may be any */
        pairs[d] = d / 2;
        seen.right[d] = d % 3 == 0;
    }
    bp_test_expect(bp_metric_estimate(&one, &metric, &seen, N, 3), BP_OK);
    bp_test_expect(bp_metric_estimate_clusters(&other, &metric, &seen, N, each, 3), BP_OK);
    assert_true(one.value == other.value && one.interval.low == other.interval.low &&
                one.interval.high == other.interval.high);
    for (int64_t d = 0; d < N; d++)
        seen.right[d] = 1;
    metric.share[0] = BP_SHARE_OF_DOCUMENTS;
    bp_test_expect(bp_metric_estimate_clusters(&other, &metric, &seen, N, pairs, 3), BP_OK);
    assert_true(other.interval.low == bp_wilson_interval(1, N / 2).low &&
                other.interval.high == bp_wilson_interval(1, N / 2).high);
}

/* All documents of a cluster have one count, and there are as many draws as clusters. */
static void check_counts(double *values, const int32_t *const *counts, const void *data)
{
    const passages *seen = data;
    int64_t draws = 0, last = -1;

    for (int64_t d = 0; d < seen->n; d++) {
        assert_true(d == 0 || seen->sources[d] != last || counts[0][d] == counts[0][d - 1]);
        draws += seen->sources[d] != last ? counts[0][d] : 0;
        last = seen->sources[d];
    }
    assert_int_equal(draws, SOURCES);
    values[0] = counts[0][0];
}

static void documents_of_a_cluster_are_drawn_together(void **state)
{
    static double values[RESAMPLES];
    bp_rng_key key = bp_rng_key_of(12, BP_RNG_TEST, 1, 0, 0);
    const int64_t draws = SOURCES;
    passages seen;
    double sum = 0;

    (void)state;
    draw_passages(&seen, SOURCES, &key);
    const int64_t *sources = seen.sources;
    bp_bootstrap spec = {.resamples = RESAMPLES,
                         .groups = 1,
                         .documents = &seen.n,
                         .clusters = &sources,
                         .cluster_count = &draws,
                         .width = 1};
    omp_set_num_threads(1);
    bp_test_expect(bp_bootstrap_run(values, &spec, check_counts, &seen), BP_OK);
    for (int r = 0; r < RESAMPLES; r++)
        sum += values[r];
    assert_true(fabs(sum / RESAMPLES - 1) < 0.25); /* five deviations of a mean of Poisson counts */
}

/* Two shares of the same questions: McNemar's p of a textbook's counts, and the coverage of the
 * interval of their difference. */
static void paired_shares_cover(void **state)
{
    static const int64_t QUESTIONS[] = {10, 20, 50, 200};
    bp_rng_key key = bp_rng_key_of(11, BP_RNG_SHUFFLE, 0, 0, 0);
    bp_interval interval;
    uint64_t at = 0;

    (void)state;
    assert_true(fabs(bp_paired_shares(&interval, 2, 12, 100) - 2 * 106.0 / 16384) < 1e-12);
    assert_true(fabs(bp_paired_shares(&interval, 12, 2, 100) - 2 * 106.0 / 16384) < 1e-12);
    assert_true(interval.high < 0);
    assert_true(fabs(bp_paired_shares(&interval, 0, 0, 9) - 1) < 1e-12);
    assert_true(isnan(interval.low) && isnan(interval.high));
    for (size_t s = 0; s < sizeof QUESTIONS / sizeof QUESTIONS[0]; s++) {
        double covered = 0, rejected = 0;

        for (int corpus = 0; corpus < 4000; corpus++) {
            int64_t only[2] = {0}, equal[2] = {0};

            for (int64_t k = 0; k < QUESTIONS[s]; k++) {
                double u = bp_rng_uniform(&key, at++), v = bp_rng_uniform(&key, at++);

                only[0] += u < 0.15;
                only[1] += u >= 0.15 && u < 0.4;
                equal[0] += v < 0.2;
                equal[1] += v >= 0.2 && v < 0.4;
            }
            (void)bp_paired_shares(&interval, only[0], only[1], QUESTIONS[s]);
            covered += (double)holds(interval, 0.1) / 4000;
            rejected +=
                (bp_paired_shares(&interval, equal[0], equal[1], QUESTIONS[s]) < 0.05) / 4000.0;
        }
        printf("paired shares, n = %3d: %4.1f %% cover, %.1f %% rejected of equal ones\n",
               (int)QUESTIONS[s], 100 * covered, 100 * rejected);
        assert_true(covered > 0.93 && covered < 0.99);
        assert_true(rejected < 0.055); /* an exact test is not above its level */
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(paired_shares_cover),
        cmocka_unit_test(intervals_cover_or_are_not_there),
        cmocka_unit_test(intervals_over_clusters_cover_where_those_over_documents_do_not),
        cmocka_unit_test(documents_of_a_cluster_are_drawn_together),
        cmocka_unit_test(metrics_over_clusters_cover_or_have_no_interval),
        cmocka_unit_test(clusters_of_one_document_change_only_the_interval_of_shares),
    };
    return BP_TEST_RUN(tests);
}
