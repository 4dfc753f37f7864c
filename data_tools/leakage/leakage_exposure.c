/* leakage exposure: how much more probable canaries are than other texts of their pattern. */
#include "leakage.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/sort.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "report.h"
#include "statistics/correlation.h"
#include "statistics/ratio.h"
#include "table/scores.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES ((int64_t)1 << 32)

typedef struct canary_scores {
    const leakage_arguments *arguments;
    json_t *canaries; /* canaries.json */
    int64_t count, references;
    double *nll, *reference_nll; /* [count], [references] ascending */
    double bits;
} canary_scores;

/* ---- the rest of the pattern's texts ---- */

/* The skew-normal distribution with the mean, deviation and skewness of a sample. */
typedef struct skew_normal {
    double place, scale, slope;
} skew_normal;

static skew_normal fit(const double *x, int64_t n)
{
    double mean = 0, two = 0, three = 0, skew, power, delta;

    for (int64_t k = 0; k < n; k++)
        mean += x[k] / (double)n;
    for (int64_t k = 0; k < n; k++) {
        two += pow(x[k] - mean, 2) / (double)n;
        three += pow(x[k] - mean, 3) / (double)n;
    }
    skew = two > 0 ? three / pow(two, 1.5) : 0;
    skew = fmax(-0.99, fmin(0.99, skew)); /* it has no more than 0.995 */
    power = pow(fabs(skew), 2.0 / 3);
    delta = copysign(sqrt(M_PI_2 * power / (power + pow((4 - M_PI) / 2, 2.0 / 3))), skew);
    skew_normal out = {.slope = delta / sqrt(1 - delta * delta)};
    out.scale = sqrt(two / (1 - 2 * delta * delta / M_PI));
    out.place = mean - out.scale * delta * sqrt(2 / M_PI);
    return out;
}

static double density(const skew_normal *self, double x)
{
    double z = (x - self->place) / self->scale;

    return exp(-z * z / 2) / sqrt(2 * M_PI) * erfc(-self->slope * z / M_SQRT2) / self->scale;
}

/* log2 P(X <= x), by Simpson's rule over the 40 deviations below. */
static double log2_below(const skew_normal *self, double x)
{
    enum { STEPS = 20000 };
    double low = fmin(x, self->place) - 40 * self->scale, step = (x - low) / STEPS, sum = 0;

    for (int k = 0; k <= STEPS; k++)
        sum += density(self, low + k * step) * (k == 0 || k == STEPS ? 1 : k % 2 == 1 ? 4 : 2);
    return log2(sum * step / 3);
}

/* ---- one model ---- */

/* Numbers of "canary-3" and "reference-17". */
static bp_err sort_out(canary_scores *self, const score_folder *scores)
{
    int64_t seen = 0, references = 0;

    for (int64_t d = 0; d < scores->documents; d++) {
        const char *id = scores->ids + (size_t)d * scores->id_width;
        long long k = -1;

        if (sscanf(id, "canary-%lld", &k) == 1 && k >= 0 && k < self->count) {
            self->nll[k] = scores->nll[d];
            seen++;
        } else if (strncmp(id, "reference-", 10) == 0 && references < self->references) {
            self->reference_nll[references++] = scores->nll[d];
        }
    }
    if (seen != self->count || references != self->references)
        return BP_FAIL(BP_ERR_FORMAT, "leakage.other_texts",
                       "%" PRId64 " of %" PRId64 " canaries and %" PRId64 " of %" PRId64
                       " references are scored: at %s; score a corpus of candidates.jsonl of this "
                       "--canaries",
                       seen, self->count, references, self->references, scores->given);
    qsort(self->reference_nll, (size_t)references, sizeof *self->reference_nll, bp_by_real);
    return BP_OK;
}

static json_t *canary_of(const canary_scores *self, int64_t k)
{
    return json_array_get(json_object_get(self->canaries, "canaries"), (size_t)k);
}

static int64_t copies_of(const canary_scores *self, int64_t k)
{
    return json_integer_value(json_object_get(canary_of(self, k), "copies"));
}

typedef struct exposure {
    int64_t rank; /* among the references and itself, from 1 */
    double sampled, fitted;
} exposure;

static exposure exposure_of(const canary_scores *self, const skew_normal *rest, int64_t k)
{
    int64_t below = 0;
    exposure out;

    while (below < self->references && self->reference_nll[below] <= self->nll[k])
        below++;
    out.rank = below + 1;
    out.sampled = log2((double)(self->references + 1)) - log2((double)out.rank);
    out.fitted = fmin(-log2_below(rest, self->nll[k]), self->bits);
    return out;
}

/* For the canaries that were planted this often. */
static json_t *level_json(const canary_scores *self, const exposure *all, int64_t copies)
{
    bp_ratio sampled = {0}, fitted = {0};
    int64_t first = 0;

    for (int64_t k = 0; k < self->count; k++)
        if (copies_of(self, k) == copies) {
            bp_ratio_add(&sampled, all[k].sampled, 1);
            bp_ratio_add(&fitted, all[k].fitted, 1);
            first += all[k].rank == 1;
        }
    /* the rank of a first one is no more than 1: the mean is a bound, and has no interval */
    return json_pack("{s:I, s:I, s:I, s:o, s:o}", "copies", (json_int_t)copies, "canaries",
                     (json_int_t)sampled.documents, "first", (json_int_t)first, "exposure",
                     tool_figure(bp_ratio_mean(&sampled),
                                 first > 0 ? (bp_interval){NAN, NAN} : bp_ratio_interval(&sampled)),
                     "fitted", tool_figure(bp_ratio_mean(&fitted), bp_ratio_interval(&fitted)));
}

static json_t *levels_json(const canary_scores *self, const exposure *all)
{
    json_t *list = json_array();
    int64_t last = 0;

    for (;;) {
        int64_t next = INT64_MAX;

        for (int64_t k = 0; k < self->count; k++)
            if (copies_of(self, k) > last && copies_of(self, k) < next)
                next = copies_of(self, k);
        if (next == INT64_MAX)
            return list;
        (void)json_array_append_new(list, level_json(self, all, next));
        last = next;
    }
}

static json_t *model_json(const canary_scores *self, const score_folder *scores)
{
    const skew_normal rest = fit(self->reference_nll, self->references);
    exposure *all = bp_alloc("tool.leakage", self->count, sizeof *all);
    double *copies = bp_alloc("tool.leakage", self->count, sizeof *copies),
           *values = bp_alloc("tool.leakage", self->count, sizeof *values);
    json_t *list = json_array(), *out;

    for (int64_t k = 0; k < self->count; k++) {
        all[k] = exposure_of(self, &rest, k);
        copies[k] = (double)copies_of(self, k);
        values[k] = all[k].fitted;
        (void)json_array_append_new(list, json_pack("{s:O, s:I, s:o, s:I, s:f, s:f}", "id",
                                                    json_object_get(canary_of(self, k), "id"),
                                                    "copies", (json_int_t)copies_of(self, k), "nll",
                                                    bp_json_real(self->nll[k]), "rank",
                                                    (json_int_t)all[k].rank, "exposure",
                                                    all[k].sampled, "fitted", all[k].fitted));
    }
    out = json_pack(
        "{s:o, s:O, s:o, s:o, s:o, s:o}", "name", bp_json_string(bp_path_base(scores->given)),
        "model", json_object_get(scores->summary, "model"), "levels", levels_json(self, all),
        "spearman_of_copies", bp_json_real(bp_spearman(copies, values, self->count)), "rest",
        json_pack("{s:o, s:o, s:o}", "place", bp_json_real(rest.place), "scale",
                  bp_json_real(rest.scale), "slope", bp_json_real(rest.slope)),
        "canaries", list);
    bp_free(all);
    bp_free(copies);
    bp_free(values);
    return out;
}

/* ---- the report ---- */

static bp_err load(canary_scores *self)
{
    const bp_path path = bp_path_in(self->arguments->canaries, "canaries.json");
    const char *format = NULL;
    int64_t version = 0;
    bp_err err = bp_json_load(&self->canaries, path.text, LIMIT_BYTES);

    if (err == BP_OK)
        err = bp_json_get_string(self->canaries, "format", &format, path.text);
    if (err == BP_OK)
        err = bp_json_get_int(self->canaries, "format_version", &version, path.text);
    if (err == BP_OK)
        err = bp_json_get_int(self->canaries, "references", &self->references, path.text);
    if (err == BP_OK)
        err = bp_json_get_real(self->canaries, "bits", &self->bits, path.text);
    if (err != BP_OK)
        return err;
    self->count = (int64_t)json_array_size(json_object_get(self->canaries, "canaries"));
    for (int64_t k = 0; k < self->count && err == BP_OK; k++)
        if (copies_of(self, k) < 1)
            err = BP_ERR_FORMAT;
    if (err != BP_OK || strcmp(format, "bagpipe canaries") != 0 || version != 1 ||
        self->count < 1 || self->references < 10 || self->references > 100000000)
        return BP_FAIL(BP_ERR_FORMAT, "leakage.no_canaries",
                       "the file is not one of 'bagpipe-data leakage canaries', or of another "
                       "version: at %s; make it again",
                       path.text);
    self->nll = bp_alloc("tool.leakage", self->count, sizeof *self->nll);
    self->reference_nll = bp_alloc("tool.leakage", self->references, sizeof *self->reference_nll);
    return BP_OK;
}

static void add_statements(json_t *report, const canary_scores *self)
{
    json_t *list = json_array(), *model, *level;
    size_t k, n;

    (void)json_object_set_new(report, "title", json_string("Exposure of canaries"));
    (void)json_object_set_new(
        report, "about",
        json_sprintf(
            "Random texts of one pattern (%.1f bits) were planted in the training text; "
            "exposure says how many bits of a text its rank by probability among others of "
            "the pattern gives away (bagpipe-data leakage; Carlini et al. 2019).",
            self->bits));
    json_array_foreach(json_object_get(report, "models"), k, model)
        json_array_foreach(json_object_get(model, "levels"), n, level)(void) json_array_append_new(
            list, json_sprintf(
                      "%s: planted %s times: %.1f bits on average of %s canaries; %s of them "
                      "are more probable than all references",
                      json_string_value(json_object_get(model, "name")),
                      grouped(json_integer_value(json_object_get(level, "copies"))),
                      json_number_value(json_object_get(json_object_get(level, "fitted"), "value")),
                      grouped(json_integer_value(json_object_get(level, "canaries"))),
                      grouped(json_integer_value(json_object_get(level, "first")))));
    (void)json_object_set_new(report, "statements", list);
}

/* A level, as the page shows it. */
static json_t *row_of(const json_t *level)
{
    return json_pack("{s:O, s:b, s:O, s:O, s:o, s:o}", "copies", json_object_get(level, "copies"),
                     "at_least", json_integer_value(json_object_get(level, "first")) > 0,
                     "canaries", json_object_get(level, "canaries"), "first",
                     json_object_get(level, "first"), "sampled",
                     tool_figure_shown(json_object_get(level, "exposure"), false), "fitted",
                     tool_figure_shown(json_object_get(level, "fitted"), false));
}

static json_t *page_of(const json_t *report)
{
    json_t *models = json_array(), *model, *level;
    size_t k, n;

    json_array_foreach(json_object_get(report, "models"), k, model)
    {
        json_t *rows = json_array();
        double spearman = json_number_value(json_object_get(model, "spearman_of_copies"));

        json_array_foreach(json_object_get(model, "levels"), n, level)
        {
            (void)json_array_append_new(rows, row_of(level));
        }
        (void)json_array_append_new(
            models, json_pack("{s:O, s:o, s:o}", "name", json_object_get(model, "name"), "spearman",
                              json_sprintf("%.2f", spearman), "rows", rows));
    }
    return json_pack("{s:s, s:o, s:o}", "title", "Exposure of canaries", "bits",
                     json_sprintf("%.1f", json_number_value(json_object_get(report, "bits"))),
                     "models", models);
}

static void print_table(const json_t *report)
{
    json_t *model, *level;
    size_t k, n;

    printf("%-20s %8s %9s %9s %10s %7s\n", "model", "copies", "canaries", "exposure", "fitted",
           "first");
    json_array_foreach(json_object_get(report, "models"), k, model)
        json_array_foreach(json_object_get(model, "levels"), n, level)
            printf("%-20s %8s %9s %9.2f %10.2f %7s\n",
                   json_string_value(json_object_get(model, "name")),
                   grouped(json_integer_value(json_object_get(level, "copies"))),
                   grouped(json_integer_value(json_object_get(level, "canaries"))),
                   json_number_value(json_object_get(json_object_get(level, "exposure"), "value")),
                   json_number_value(json_object_get(json_object_get(level, "fitted"), "value")),
                   grouped(json_integer_value(json_object_get(level, "first"))));
}

static bp_err make(canary_scores *self)
{
    json_t *report = tool_report_begin("exposure"), *models = json_array();
    bp_err err = load(self);

    for (int k = 0; k < self->arguments->scores.count && err == BP_OK; k++) {
        score_folder scores = {0};

        err = score_folder_load(&scores, self->arguments->scores.list[k]);
        if (err == BP_OK)
            err = sort_out(self, &scores);
        if (err == BP_OK)
            (void)json_array_append_new(models, model_json(self, &scores));
        score_folder_clear(&scores);
    }
    (void)json_object_set(report, "model", json_object_get(json_array_get(models, 0), "model"));
    (void)json_object_set_new(report, "models", models);
    if (err == BP_OK) {
        (void)json_object_set(report, "pattern", json_object_get(self->canaries, "pattern"));
        (void)json_object_set_new(report, "bits", json_real(self->bits));
        (void)json_object_set_new(report, "references", json_integer(self->references));
        add_statements(report, self);
        err = tool_report_save(self->arguments->out, "exposure", report, page_of(report), 1);
    }
    if (err == BP_OK)
        print_table(report);
    json_decref(report);
    json_decref(self->canaries);
    bp_free(self->nll);
    bp_free(self->reference_nll);
    return err;
}

bp_err leakage_exposure(const leakage_arguments *arguments)
{
    canary_scores self = {.arguments = arguments};
    bp_err err = BP_OK;

    if (!arguments->canaries || arguments->scores.count == 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                      "it is missing: at --%s; see bagpipe-data leakage --help",
                      arguments->canaries ? "scores" : "canaries");
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = make(&self);
    return bp_agree(MPI_COMM_WORLD, err);
}
