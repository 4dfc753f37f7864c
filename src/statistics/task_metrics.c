/* Metrics of fine-tuned tasks. */
#include "statistics/task_metrics.h"

#include "base/mem.h"
#include "statistics/correlation.h"

#include <math.h>
#include <string.h>

static double times_of(const int32_t *counts, int64_t document)
{
    return counts ? counts[document] : 1;
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

/* ---- classes ---- */

typedef struct class_sums {
    double label, predicted, right;
} class_sums;

static void class_figures(double *values, const int32_t *counts, const void *data)
{
    const bp_class_answers *answers = data;
    class_sums *sums = bp_alloc("statistics.classes", answers->classes, sizeof *sums);
    double n = 0, right = 0, both = 0, labels = 0, predictions = 0, f1 = 0, present = 0;

    for (int64_t d = 0; d < answers->documents; d++) {
        double times = times_of(counts, d);

        n += times;
        sums[answers->label[d]].label += times;
        sums[answers->predicted[d]].predicted += times;
        if (answers->label[d] == answers->predicted[d])
            sums[answers->label[d]].right += times;
    }
    for (int64_t k = 0; k < answers->classes; k++) {
        const class_sums *of = &sums[k];

        right += of->right;
        both += of->label * of->predicted;
        labels += of->label * of->label;
        predictions += of->predicted * of->predicted;
        present += of->label + of->predicted > 0;
        f1 += share(2 * of->right, of->label + of->predicted);
    }
    values[0] = n > 0 ? right / n : NAN;
    values[1] = present > 0 ? f1 / present : NAN;
    values[2] = values[0];
    values[3] =
        n > 0 ? share(right * n - both, sqrt(n * n - labels) * sqrt(n * n - predictions)) : NAN;
    bp_free(sums);
}

const bp_metric bp_metric_classes = {
    .kind = "classes",
    .width = 4,
    .names = {"accuracy", "f1_macro", "f1_micro", "matthews"},
    .share = {[0] = BP_SHARE_OF_DOCUMENTS, [2] = BP_SHARE_OF_DOCUMENTS},
    .fewest = {[3] = BP_FEW_OF_CLASSES},
    .figures = class_figures};

/* ---- regression ---- */

void bp_real_answers_init(bp_real_answers *answers, const double *label, const double *predicted,
                          int64_t documents)
{
    *answers = (bp_real_answers){documents, label, predicted, NULL, NULL};
    answers->label_order = bp_alloc("statistics.order", documents, sizeof(int64_t));
    answers->predicted_order = bp_alloc("statistics.order", documents, sizeof(int64_t));
    bp_order_of(answers->label_order, label, documents);
    bp_order_of(answers->predicted_order, predicted, documents);
}

void bp_real_answers_clear(bp_real_answers *answers)
{
    bp_free(answers->label_order);
    bp_free(answers->predicted_order);
    *answers = (bp_real_answers){0};
}

static void real_figures(double *values, const int32_t *counts, const void *data)
{
    const bp_real_answers *a = data;
    double n = 0, square = 0, absolute = 0;

    for (int64_t d = 0; d < a->documents; d++) {
        double times = times_of(counts, d), gap = a->predicted[d] - a->label[d];

        n += times;
        square += times * gap * gap;
        absolute += times * fabs(gap);
    }
    values[0] = bp_pearson_counted(a->label, a->predicted, counts, a->documents);
    values[1] = bp_spearman_counted(a->label, a->predicted, a->label_order, a->predicted_order,
                                    counts, a->documents);
    values[2] = n > 0 ? square / n : NAN;
    values[3] = n > 0 ? absolute / n : NAN;
}

const bp_metric bp_metric_regression = {.kind = "regression",
                                        .width = 4,
                                        .names = {"pearson", "spearman", "mse", "mae"},
                                        .figures = real_figures,
                                        .lower = {false, false, true, true}};

/* ---- tags ---- */

typedef struct parsed_tag {
    char place; /* B, I, E, S, or O */
    const char *type;
} parsed_tag;

static parsed_tag parse_tag(const char *tag)
{
    static const char PLACES[] = "BIESLU", MEANT[] = "BIESES";
    const char *found = tag[0] != '\0' ? strchr(PLACES, tag[0]) : NULL;

    if (!found || (tag[1] != '-' && tag[1] != '\0'))
        return (parsed_tag){'O', ""};
    return (parsed_tag){MEANT[found - PLACES], tag[1] == '-' ? tag + 2 : ""};
}

bool bp_tags_have_entities(const char *const *tags, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        if (parse_tag(tags[k]).place != 'O')
            return true;
    return false;
}

static bool ends_between(parsed_tag before, parsed_tag tag)
{
    if (before.place == 'O')
        return false;
    return before.place == 'E' || before.place == 'S' || strchr("BSO", tag.place) ||
           strcmp(before.type, tag.type) != 0;
}

static bool begins_between(parsed_tag before, parsed_tag tag)
{
    if (tag.place == 'O')
        return false;
    return tag.place == 'B' || tag.place == 'S' || strchr("ESO", before.place) ||
           strcmp(before.type, tag.type) != 0;
}

bp_entity_counts bp_entities_compare(const char *const *label, const char *const *predicted,
                                     int64_t n)
{
    static const parsed_tag OUTSIDE = {'O', ""};
    parsed_tag before[2] = {OUTSIDE, OUTSIDE};
    bp_entity_counts counts = {.tags = n};
    bool same = false; /* both sides have an open entity of the same beginning and type */

    for (int64_t k = 0; k <= n; k++) {
        parsed_tag tag[2] = {k < n ? parse_tag(label[k]) : OUTSIDE,
                             k < n ? parse_tag(predicted[k]) : OUTSIDE};
        bool ends[2], begins[2];

        for (int side = 0; side < 2; side++) {
            ends[side] = ends_between(before[side], tag[side]);
            begins[side] = begins_between(before[side], tag[side]);
        }
        counts.right += same && ends[0] && ends[1];
        counts.labelled += begins[0];
        counts.predicted += begins[1];
        same = begins[0] || begins[1]
                   ? begins[0] && begins[1] && strcmp(tag[0].type, tag[1].type) == 0
                   : same && !ends[0] && !ends[1];
        counts.tags_right += k < n && strcmp(label[k], predicted[k]) == 0;
        memcpy(before, tag, sizeof before);
    }
    return counts;
}

static void tag_figures(double *values, const int32_t *counts, const void *data)
{
    const bp_tag_answers *answers = data;
    double labelled = 0, predicted = 0, right = 0, tags = 0, tags_right = 0;

    for (int64_t d = 0; d < answers->documents; d++) {
        const bp_entity_counts *of = &answers->counts[d];
        double times = times_of(counts, d);

        labelled += times * (double)of->labelled;
        predicted += times * (double)of->predicted;
        right += times * (double)of->right;
        tags += times * (double)of->tags;
        tags_right += times * (double)of->tags_right;
    }
    values[0] = share(right, predicted);
    values[1] = share(right, labelled);
    values[2] = share(2 * right, labelled + predicted);
    values[3] = tags > 0 ? tags_right / tags : NAN;
}

const bp_metric bp_metric_tags = {
    .kind = "tags",
    .width = 4,
    .names = {"precision", "recall", "f1", "accuracy"},
    .share = {BP_SHARE_OF_PARTS, BP_SHARE_OF_PARTS, BP_SHARE_OF_PARTS, BP_SHARE_OF_PARTS},
    .figures = tag_figures};

/* ---- spans ---- */

double bp_answer_f1(int64_t common, int64_t predicted, int64_t label)
{
    if (predicted == 0 || label == 0)
        return predicted == label;
    return 2 * (double)common / (double)(predicted + label);
}

static void span_figures(double *values, const int32_t *counts, const void *data)
{
    const bp_span_answers *answers = data;
    double n = 0, exact = 0, f1 = 0;

    for (int64_t d = 0; d < answers->documents; d++) {
        double times = times_of(counts, d);

        n += times;
        exact += times * answers->exact[d];
        f1 += times * answers->f1[d];
    }
    values[0] = n > 0 ? exact / n : NAN;
    values[1] = n > 0 ? f1 / n : NAN;
}

const bp_metric bp_metric_spans = {.kind = "spans",
                                   .width = 2,
                                   .names = {"exact_match", "f1"},
                                   .share = {BP_SHARE_OF_DOCUMENTS, BP_SHARE_OF_PARTS},
                                   .figures = span_figures};
