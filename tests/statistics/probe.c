/* statistics_probe KIND: figures of the numbers on standard input, a line each, for
 * test_oracles.py.
 *
 * An array is its length and its values, with blanks between; counts of length 0 are none. */
#include "base/mem.h"
#include "statistics/calibration.h"
#include "statistics/conformal.h"
#include "statistics/correlation.h"
#include "statistics/detection.h"
#include "statistics/dirichlet.h"
#include "statistics/resample.h"
#include "statistics/risk.h"
#include "statistics/task_metrics.h"
#include "statistics/temperature.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct array {
    int64_t n;
    double *real;
    float *single;
    int64_t *whole;
    int32_t *counts; /* NULL where n is 0 */
    unsigned char *flags;
} array;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "statistics_probe: %s: %s\n", what, bp_err_message());
    exit(1);
}

/* The next array, as all types at once. */
static array next(void)
{
    array a = {0};

    must(scanf("%" SCNd64, &a.n) == 1, "a length");
    a.real = bp_alloc("probe", a.n, sizeof *a.real);
    a.single = bp_alloc("probe", a.n, sizeof *a.single);
    a.whole = bp_alloc("probe", a.n, sizeof *a.whole);
    a.flags = bp_alloc("probe", a.n, sizeof *a.flags);
    a.counts = a.n > 0 ? bp_alloc("probe", a.n, sizeof *a.counts) : NULL;
    for (int64_t i = 0; i < a.n; i++) {
        must(scanf("%lf", &a.real[i]) == 1, "a value");
        a.single[i] = (float)a.real[i];
        if (a.real[i] > -1e15 && a.real[i] < 1e15) {
            a.whole[i] = (int64_t)a.real[i];
            a.counts[i] = (int32_t)a.real[i];
            a.flags[i] = a.real[i] != 0;
        }
    }
    return a;
}

static void put(double value)
{
    printf("%.17g\n", value);
}

static bp_token_order *order_of(const array *score, const array *correct, const array *nll,
                                const array *start)
{
    bp_token_table table = {.tokens = score->n,
                            .documents = start->n - 1,
                            .score = score->single,
                            .correct = correct->flags,
                            .nll = nll->single,
                            .doc_start = start->whole};
    bp_token_order *order;

    must(bp_token_order_new(&order, &table) == BP_OK, "an order");
    return order;
}

/* confidence correct nll brier doc_start counts */
static void calibration(void)
{
    array confidence = next(), correct = next(), nll = next(), brier = next(), start = next(),
          counts = next();
    int64_t documents = start.n - 1;
    bp_calibration *each = bp_alloc("probe", documents, sizeof *each);
    bp_token_order *order = order_of(&confidence, &correct, &nll, &start);

    for (int64_t d = 0; d < documents; d++)
        for (int64_t i = start.whole[d]; i < start.whole[d + 1]; i++)
            bp_calibration_add(&each[d], confidence.single[i], correct.flags[i], nll.real[i],
                               brier.real[i]);
    bp_calibration sums = bp_calibration_of(each, counts.counts, documents);
    put(bp_calibration_ece(&sums));
    put(bp_calibration_ece_adaptive(order, counts.counts));
    put(bp_calibration_accuracy(&sums));
    put(bp_calibration_nll(&sums));
    put(bp_calibration_brier(&sums));
    for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
        bp_reliability bar = bp_calibration_bar(&sums, b);

        put((double)bar.tokens);
        put(bar.confidence);
        put(bar.accuracy);
    }
}

/* beta alpha */
static void dirichlet(void)
{
    array beta = next(), alpha = next();
    double alpha0 = 0, beta0 = 0, information = 0;

    for (int64_t k = 0; k < alpha.n; k++) {
        alpha0 += alpha.real[k];
        beta0 += beta.real[k];
    }
    for (int64_t k = 0; k < alpha.n; k++)
        information += bp_dirichlet_information(alpha.real[k], alpha0);
    put(bp_dirichlet_kl(beta.real, alpha.real, alpha.n));
    put(bp_dirichlet_entropy(alpha.real, alpha.n));
    put(information + log(alpha0) - bp_digamma(alpha0 + 1));
    for (int64_t k = 0; k < alpha.n; k++)
        put(bp_dirichlet_slope(alpha.real[k], alpha0, beta.real[k], beta0));
    for (int64_t k = 0; k < alpha.n; k++)
        put(bp_digamma(alpha.real[k]));
}

/* in_domain shifted in_domain_counts shifted_counts */
static void detection(void)
{
    array in_domain = next(), shifted = next(), in_counts = next(), shifted_counts = next();
    bp_detection *one;

    must(bp_detection_new(&one, in_domain.real, in_domain.n, shifted.real, shifted.n) == BP_OK,
         "a detection");
    bp_detection_figures got = bp_detection_of(one, in_counts.counts, shifted_counts.counts);
    put(got.auroc);
    put(got.aupr);
    put(got.fpr95);
}

/* uncertainty correct nll doc_start counts */
static void risk(void)
{
    array uncertainty = next(), correct = next(), nll = next(), start = next(), counts = next();
    bp_risk got;

    bp_risk_of(&got, order_of(&uncertainty, &correct, &nll, &start), counts.counts);
    put(got.area_error);
    put(got.area_nll);
    for (int k = 0; k < BP_RISK_POINTS; k++)
        put(got.error[k]);
    for (int k = 0; k < BP_RISK_POINTS; k++)
        put(got.nll[k]);
}

/* tokens beta value first second, and temperatures to look at */
static void temperature(void)
{
    array tokens = next(), beta = next(), value = next(), first = next(), second = next(),
          at = next();
    bp_temperature_sums sums = {.points = (int)beta.n,
                                .tokens = tokens.whole[0],
                                .beta = beta.real,
                                .value = value.real,
                                .first = first.real,
                                .second = second.real};
    bp_temperature got = bp_temperature_fit(&sums);

    put(got.temperature);
    put(got.nll);
    put(got.at_edge);
    for (int64_t i = 0; i < at.n; i++)
        put(bp_temperature_nll(&sums, at.real[i]));
}

typedef struct ratio_of {
    const array *sum, *weight;
} ratio_of;

static void ratio(double *values, const int32_t *const *counts, const void *data)
{
    const ratio_of *all = data;
    double sum = 0, weight = 0;

    for (int64_t d = 0; d < all->sum->n; d++) {
        sum += counts[0][d] * all->sum->real[d];
        weight += counts[0][d] * all->weight->real[d];
    }
    values[0] = sum / weight;
}

/* {seed, resamples} sums weights: the interval of the ratio, then its values, and the counts of the
 * first resample */
static void bootstrap(void)
{
    array how = next(), sum = next(), weight = next();
    ratio_of all = {&sum, &weight};
    bp_bootstrap spec = {.seed = (uint64_t)how.whole[0],
                         .resamples = how.whole[1],
                         .groups = 1,
                         .documents = &sum.n,
                         .width = 1};
    double *values = bp_alloc("probe", spec.resamples, sizeof *values);
    bp_rng_key key = bp_resample_key(spec.seed, 0, 0);
    bp_interval interval;

    must(bp_bootstrap_run(values, &spec, ratio, &all) == BP_OK, "a bootstrap");
    must(bp_interval_of(&interval, values, spec.resamples, 1, BP_PLAIN_PERCENTILES) == BP_OK,
         "an interval");
    put(interval.low);
    put(interval.high);
    for (int64_t r = 0; r < spec.resamples; r++)
        put(values[r]);
    bp_resample_counts(sum.counts, sum.n, &key);
    for (int64_t d = 0; d < sum.n; d++)
        put(sum.counts[d]);
}

/* n, ts, shares, p-values: the quantile, the percentile, tails, intervals, adjusted p-values */
static void inference(void)
{
    array n = next(), t = next(), share = next(), p = next();

    put(bp_student_quantile((double)n.whole[0] - 1));
    put(bp_percentile_level(n.whole[0]));
    for (int64_t k = 0; k < t.n; k++)
        put(bp_student_two_sided(t.real[k], (double)n.whole[0] - 1));
    for (int64_t k = 0; k < share.n; k++) {
        bp_interval interval = bp_wilson_interval(share.real[k], n.whole[0]);

        put(interval.low);
        put(interval.high);
    }
    must(bp_holm_adjust(p.real, p.n) == BP_OK, "p-values");
    for (int64_t k = 0; k < p.n; k++)
        put(p.real[k]);
}

static void put_figures(const bp_metric *metric, const void *answers, const array *counts)
{
    double values[BP_METRIC_FIGURES];

    metric->figures(values, counts->counts, answers);
    for (int64_t k = 0; k < metric->width; k++)
        put(values[k]);
}

/* label predicted counts classes */
static void classes(void)
{
    array label = next(), predicted = next(), counts = next(), many = next();
    int32_t *sides[2] = {label.counts, predicted.counts};

    put_figures(&bp_metric_classes, &(bp_class_answers){label.n, many.whole[0], sides[0], sides[1]},
                &counts);
}

/* x y: the correlation and its interval */
static void kendall(void)
{
    array x = next(), y = next();
    double tau = bp_kendall(x.real, y.real, x.n);
    bp_interval interval = bp_kendall_interval(tau, x.n);

    put(tau);
    put(interval.low);
    put(interval.high);
}

/* label predicted counts */
static void regression(void)
{
    array label = next(), predicted = next(), counts = next();
    bp_real_answers answers;

    bp_real_answers_init(&answers, label.real, predicted.real, label.n);
    put_figures(&bp_metric_regression, &answers, &counts);
}

/* exact f1 exact f1: two systems side by side, then the values of their resamples */
static void compare(void)
{
    array exact = next(), f1 = next(), others = next(), other_f1 = next();
    bp_span_answers one = {exact.n, exact.real, f1.real},
                    other = {others.n, others.real, other_f1.real};
    bp_figure_pair pairs[BP_METRIC_FIGURES];

    must(bp_metric_compare(pairs, &bp_metric_spans, &one, &other, exact.n, 7) == BP_OK, "a pair");
    for (int k = 0; k < 2; k++) {
        put(pairs[k].one.value);
        put(pairs[k].other.value);
        put(pairs[k].difference.value);
        put(pairs[k].difference.interval.low);
        put(pairs[k].difference.interval.high);
        put(pairs[k].wins);
        put(pairs[k].p_value);
    }
    for (int64_t r = 0; r < BP_RESAMPLES; r++) {
        bp_rng_key key = bp_resample_key(7, r, 0);

        bp_resample_counts(exact.counts, exact.n, &key);
        for (int64_t d = 0; d < exact.n; d++)
            put(exact.counts[d]);
    }
}

static int falls(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* Outcome `label` of p[V]: of equal ones the first comes first. */
static bp_conformal_target target_of(const double *p, int64_t V, int64_t label)
{
    bp_conformal_target target = {.p = p[label]};

    for (int64_t v = 0; v < V; v++)
        if (p[v] > p[label] || (p[v] == p[label] && v < label)) {
            target.before++;
            target.above += p[v];
        }
    return target;
}

/* Sizes of the sets of one prediction, of each kind. Sorts p. */
static void put_sets(double *p, int64_t V, const bp_conformal_rule *rule, double u)
{
    int64_t of_lac = 0;

    qsort(p, (size_t)V, sizeof *p, falls);
    for (int64_t v = 0; v < V; v++)
        of_lac += bp_conformal_holds(rule, p[v]);
    put((double)of_lac);
    for (int kind = BP_CONFORMAL_APS; kind < BP_CONFORMAL_KINDS; kind++) {
        bp_conformal_prefix prefix = {0, 0};
        bp_conformal_set set = {V, -1};

        for (int64_t v = 0; v < V; v++) {
            double one = 1;

            if (bp_conformal_walk(&prefix, kind, rule, &one, &p[v], 1) == 1)
                continue;
            set = bp_conformal_end(&prefix, kind, rule, p[v], 1);
            break;
        }
        put((double)bp_conformal_size(&set, u));
    }
}

/* {coverage, penalty, free, V} probabilities labels u, and those of other predictions */
static void conformal(void)
{
    array given = next(), p = next(), label = next(), u = next(), other = next(), other_u = next();
    int64_t V = given.whole[3];
    bp_conformal_rule rule = {.penalty = given.real[1], .free = given.whole[2]};
    double *scores = bp_alloc("probe", label.n, sizeof *scores);

    for (int kind = 0; kind < BP_CONFORMAL_KINDS; kind++) {
        for (int64_t k = 0; k < label.n; k++) {
            bp_conformal_target target = target_of(p.real + k * V, V, label.whole[k]);

            scores[k] = bp_conformal_score(kind, &rule, &target, u.real[k]);
        }
        rule.threshold[kind] = bp_conformal_threshold(scores, label.n, given.real[0]);
        put(rule.threshold[kind]);
    }
    for (int64_t k = 0; k < other_u.n; k++)
        put_sets(other.real + k * V, V, &rule, other_u.real[k]);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } kinds[] = {{"calibration", calibration}, {"detection", detection}, {"risk", risk},
                 {"temperature", temperature}, {"bootstrap", bootstrap}, {"classes", classes},
                 {"regression", regression},   {"compare", compare},     {"dirichlet", dirichlet},
                 {"inference", inference},     {"conformal", conformal}, {"kendall", kendall}};

    for (size_t k = 0; argc == 2 && k < sizeof kinds / sizeof kinds[0]; k++)
        if (strcmp(argv[1], kinds[k].name) == 0) {
            kinds[k].run();
            return 0;
        }
    fprintf(stderr, "statistics_probe: what?\n");
    return 1;
}
