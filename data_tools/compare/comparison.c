/* Figures of groups of documents, and their bootstrap. */
#include "comparison.h"

#include "base/mem.h"
#include "statistics/inference.h"

#include <math.h>
#include <string.h>

const char *comparison_unit_name(comparison_unit unit)
{
    static const char *const names[] = {"token", "byte", "word"};

    return names[unit];
}

const char *comparison_evidence_name(comparison_evidence evidence)
{
    return evidence == EVIDENCE_TOKEN_HASH ? "token_hash" : "counts";
}

static int64_t units_of(const comparison *c, const comparison_group *group)
{
    return c->unit == UNIT_TOKEN  ? group->tokens[0]
           : c->unit == UNIT_BYTE ? group->bytes
                                  : group->words;
}

double comparison_figure(const comparison *c, const comparison_group *group, int which)
{
    double mean = group->nll[which] / (double)units_of(c, group);

    return c->unit == UNIT_BYTE ? mean / log(2) : exp(mean);
}

/* ---- one group ---- */

/* Documents of a group as the bootstrap sees them. */
typedef struct group_draws {
    int64_t count;
    comparison_unit unit;
    double *nll[2], *units; /* [count] */
    int64_t *cluster;       /* [count]; NULL: documents are drawn alone */
} group_draws;

/* values: the ratio and the difference, per unit. */
static void put_pair(double *values, const double nll[2], double units, comparison_unit unit)
{
    double difference = nll[1] / units - nll[0] / units; /* equal ones give 0 to the bit */

    values[0] = exp(difference);
    values[1] = unit == UNIT_BYTE ? difference / log(2) : difference;
}

static void statistic(double *values, const double *sums, const void *data)
{
    put_pair(values, sums, sums[2], ((const group_draws *)data)->unit);
}

static bp_err set_intervals(comparison_group *group, const comparison *c, const group_draws *draws)
{
    bp_bootstrap spec = {.seed = c->seed,
                         .resamples = c->resamples,
                         .groups = 1,
                         .documents = &draws->count,
                         .width = 2};
    double *values = bp_alloc("tool.resamples", 2 * c->resamples, sizeof *values);
    bp_err err = BP_OK;

    group->ratio_interval = group->difference_interval = (bp_interval){NAN, NAN};
    if (draws->count >= 2) { /* one document has no spread */
        const double *const columns[] = {draws->nll[0], draws->nll[1], draws->units};

        err = bp_bootstrap_of_sums(values, &spec, columns, 3, statistic, draws);
        if (err == BP_OK)
            err = bp_interval_of(&group->ratio_interval, values, c->resamples, 2, draws->count);
        if (err == BP_OK)
            err = bp_interval_of(&group->difference_interval, values + 1, c->resamples, 2,
                                 draws->count);
    }
    bp_free(values);
    return err;
}

/* Student's t of the ratio of sums, by its deviation over documents (Cochran 1977, Sampling
 * techniques, section 2.11). */
static double p_value_of(const group_draws *draws)
{
    double difference = 0, units = 0, ratio, squares = 0, n = (double)draws->count, deviation;

    for (int64_t d = 0; d < draws->count; d++) {
        difference += draws->nll[1][d] - draws->nll[0][d];
        units += draws->units[d];
    }
    ratio = difference / units;
    for (int64_t d = 0; d < draws->count; d++) {
        double rest = draws->nll[1][d] - draws->nll[0][d] - ratio * draws->units[d];

        squares += rest * rest;
    }
    if (draws->count < BP_FEW_DOCUMENTS || !isfinite(ratio))
        return NAN;
    deviation = sqrt(squares * n / (n - 1)) / units;
    return ratio == 0 ? 1 : bp_student_two_sided(ratio / deviation, n - 1);
}

static void add_document(comparison_group *group, const comparison *c, int64_t d,
                         group_draws *draws)
{
    const score_folder *a = &c->scores[0], *b = &c->scores[1];
    int64_t bytes = a->bytes[d] >= 0 ? a->bytes[d] : b->bytes[d];
    int64_t words = a->words[d] >= 0 ? a->words[d] : b->words[d];

    group->documents++;
    group->tokens[0] += a->tokens[d];
    group->tokens[1] += b->tokens[d];
    group->nll[0] += a->nll[d];
    group->nll[1] += b->nll[d];
    group->bytes = bytes < 0 || group->bytes < 0 ? -1 : group->bytes + bytes;
    group->words = words < 0 || group->words < 0 ? -1 : group->words + words;
    if (c->clusters)
        draws->cluster[draws->count] = c->clusters[d];
    draws->nll[0][draws->count] = a->nll[d];
    draws->nll[1][draws->count] = b->nll[d];
    draws->units[draws->count] = (double)(c->unit == UNIT_TOKEN  ? a->tokens[d]
                                          : c->unit == UNIT_BYTE ? bytes
                                                                 : words);
    draws->count++;
}

typedef struct grouping {
    comparison *comparison;
    group_draws draws; /* of the group at hand */
} grouping;

/* The first group of the same documents, by their sums; -1 if there is none. */
static int64_t find_same(const comparison *c, const comparison_group *group)
{
    for (int64_t k = 0; k < c->group_count; k++) {
        const comparison_group *other = &c->groups[k];

        if (other->documents == group->documents && other->tokens[0] == group->tokens[0] &&
            other->nll[0] == group->nll[0] && other->nll[1] == group->nll[1])
            return k;
    }
    return -1;
}

/* Append a group, unless it is a label's value that none has. */
static bp_err add_group(void *self, const score_group *from)
{
    grouping *all = self;
    comparison *c = all->comparison;
    group_draws *draws = &all->draws;
    comparison_group group = {.scope = from->scope, .name = from->name, .value = from->value};
    bool all_count = from->scope == SCOPE_LABEL && strcmp(from->name, CLEAN_LABEL) == 0;
    double values[2];

    draws->count = 0;
    for (int64_t i = 0; i < from->count; i++)
        if (c->chosen[from->documents[i]] &&
            (all_count || clean_part_has(&c->clean, from->documents[i])))
            add_document(&group, c, from->documents[i], draws);
    if (group.documents == 0 && group.scope == SCOPE_LABEL)
        return BP_OK;
    draws->count = group.draws =
        score_clusters_sum((double *const[]){draws->nll[0], draws->nll[1], draws->units}, 3,
                           draws->cluster, draws->count);
    put_pair(values, group.nll, (double)units_of(c, &group), c->unit);
    group.ratio = values[0];
    group.difference = values[1];
    group.p_value = c->no_verdict ? NAN : p_value_of(draws);
    group.same_as = find_same(c, &group);
    c->groups[c->group_count] = group;
    return set_intervals(&c->groups[c->group_count++], c, draws);
}

bool comparison_is_shown(const comparison *c, const comparison_group *group)
{
    return group->scope != SCOPE_CORPUS || c->scores[0].corpora > 1;
}

/* Groups of the same documents are one comparison. */
static bp_err adjust(comparison *c)
{
    double *p = bp_alloc("tool.comparison", c->group_count, sizeof *p);
    bp_err err;

    for (int64_t k = 0; k < c->group_count; k++) {
        p[k] = c->groups[k].same_as < 0 ? c->groups[k].p_value : NAN;
        c->compared += !isnan(p[k]);
    }
    err = bp_holm_adjust(p, c->group_count);
    for (int64_t k = 0; k < c->group_count; k++)
        c->groups[k].p_holm = p[c->groups[k].same_as < 0 ? k : c->groups[k].same_as];
    bp_free(p);
    return err;
}

/* ---- all groups ---- */

bp_err comparison_run(comparison *c)
{
    const score_folder *a = &c->scores[0];
    grouping all = {.comparison = c, .draws = {.unit = c->unit}};
    int64_t most = 1 + a->corpora;
    bp_err err;

    for (int64_t k = 0; k < a->label_count; k++)
        most += a->labels[k].value_count;
    c->groups = bp_alloc("tool.comparison", most, sizeof *c->groups);
    all.draws.nll[0] = bp_alloc("tool.comparison", a->documents, sizeof(double));
    all.draws.nll[1] = bp_alloc("tool.comparison", a->documents, sizeof(double));
    all.draws.units = bp_alloc("tool.comparison", a->documents, sizeof(double));
    if (c->clusters)
        all.draws.cluster = bp_alloc("tool.comparison", a->documents, sizeof(int64_t));
    err = score_groups_each(a, add_group, &all);
    if (err == BP_OK)
        err = adjust(c);
    bp_free(all.draws.cluster);
    bp_free(all.draws.units);
    bp_free(all.draws.nll[1]);
    bp_free(all.draws.nll[0]);
    return err;
}

void comparison_clear(comparison *c)
{
    for (int64_t k = 0; k < c->remark_count; k++)
        bp_free(c->remarks[k]);
    bp_free(c->remarks);
    for (int64_t k = 0; k < c->difference_count; k++) {
        bp_free(c->differences[k].a);
        bp_free(c->differences[k].b);
    }
    bp_free(c->differences);
    bp_free(c->groups);
    bp_free(c->chosen);
    bp_free(c->clusters);
    score_folder_clear(&c->scores[1]);
    score_folder_clear(&c->scores[0]);
    *c = (comparison){0};
}
