/* Figures of groups of documents, and their bootstrap. */
#include "comparison.h"

#include "base/mem.h"

#include <math.h>

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
} group_draws;

/* values: the ratio and the difference, per unit. */
static void put_pair(double *values, const double nll[2], double units, comparison_unit unit)
{
    double difference = nll[1] / units - nll[0] / units; /* equal ones give 0 to the bit */

    values[0] = exp(difference);
    values[1] = unit == UNIT_BYTE ? difference / log(2) : difference;
}

static void statistic(double *values, const int32_t *const *counts, const void *data)
{
    const group_draws *draws = data;
    double nll[2] = {0, 0}, units = 0;

    for (int64_t d = 0; d < draws->count; d++) {
        double times = counts[0][d];

        nll[0] += times * draws->nll[0][d];
        nll[1] += times * draws->nll[1][d];
        units += times * draws->units[d];
    }
    put_pair(values, nll, units, draws->unit);
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
        err = bp_bootstrap_run(values, &spec, statistic, draws);
        if (err == BP_OK)
            err = bp_interval_of(&group->ratio_interval, values, c->resamples, 2);
        if (err == BP_OK)
            err = bp_interval_of(&group->difference_interval, values + 1, c->resamples, 2);
    }
    bp_free(values);
    return err;
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
    draws->nll[0][draws->count] = a->nll[d];
    draws->nll[1][draws->count] = b->nll[d];
    draws->units[draws->count] = (double)(c->unit == UNIT_TOKEN  ? a->tokens[d]
                                          : c->unit == UNIT_BYTE ? bytes
                                                                 : words);
    draws->count++;
}

/* Append the group of documents[count], unless it is a label's value that none has. `draws` is
 * scratch. */
static bp_err add_group(comparison *c, comparison_group group, const int64_t *documents,
                        int64_t count, group_draws *draws)
{
    double values[2];

    draws->count = 0;
    for (int64_t i = 0; i < count; i++)
        if (c->chosen[documents[i]])
            add_document(&group, c, documents[i], draws);
    if (group.documents == 0 && group.scope == SCOPE_LABEL)
        return BP_OK;
    put_pair(values, group.nll, (double)units_of(c, &group), c->unit);
    group.ratio = values[0];
    group.difference = values[1];
    c->groups[c->group_count] = group;
    return set_intervals(&c->groups[c->group_count++], c, draws);
}

/* ---- all groups ---- */

/* Documents sorted by their code, those without one first; code v has [begins[v], begins[v + 1]).
 */
static void sort_by_code(int64_t *sorted, int64_t *begins, const score_label *label, int64_t n)
{
    for (int64_t v = 0; v <= label->value_count + 1; v++)
        begins[v] = 0;
    for (int64_t d = 0; d < n; d++)
        begins[label->codes[d] + 1]++; /* where each ends, for now in its own place */
    for (int64_t v = 1; v <= label->value_count; v++)
        begins[v] += begins[v - 1];
    for (int64_t d = n - 1; d >= 0; d--)
        sorted[--begins[label->codes[d] + 1]] = d;
    /* begins[v + 1] is now where code v begins */
    for (int64_t v = 0; v < label->value_count; v++)
        begins[v] = begins[v + 1];
    begins[label->value_count] = n;
}

static bp_err add_label(comparison *c, const score_label *label, int64_t *sorted,
                        group_draws *draws)
{
    int64_t *begins = bp_alloc("tool.comparison", label->value_count + 2, sizeof *begins);
    bp_err err = BP_OK;

    sort_by_code(sorted, begins, label, c->scores[0].documents);
    for (int64_t v = 0; v < label->value_count && err == BP_OK; v++)
        err = add_group(c,
                        (comparison_group){
                            .scope = SCOPE_LABEL, .name = label->name, .value = label->values[v]},
                        sorted + begins[v], begins[v + 1] - begins[v], draws);
    bp_free(begins);
    return err;
}

bp_err comparison_run(comparison *c)
{
    const score_folder *a = &c->scores[0];
    const int64_t *start = a->corpus_start;
    int64_t *list = bp_alloc("tool.comparison", a->documents, sizeof *list);
    int64_t most = 1 + a->corpora;
    group_draws draws = {.unit = c->unit};
    bp_err err;

    for (int64_t k = 0; k < a->label_count; k++)
        most += a->labels[k].value_count;
    c->groups = bp_alloc("tool.comparison", most, sizeof *c->groups);
    draws.nll[0] = bp_alloc("tool.comparison", a->documents, sizeof(double));
    draws.nll[1] = bp_alloc("tool.comparison", a->documents, sizeof(double));
    draws.units = bp_alloc("tool.comparison", a->documents, sizeof(double));
    for (int64_t d = 0; d < a->documents; d++)
        list[d] = d;
    err = add_group(c, (comparison_group){.scope = SCOPE_ALL}, list, a->documents, &draws);
    for (int64_t k = 0; k < a->corpora && err == BP_OK; k++)
        err = add_group(c, (comparison_group){.scope = SCOPE_CORPUS, .name = a->corpus_names[k]},
                        list + start[k], start[k + 1] - start[k], &draws);
    for (int64_t k = 0; k < a->label_count && err == BP_OK; k++)
        err = add_label(c, &a->labels[k], list, &draws);
    bp_free(list);
    bp_free(draws.units);
    bp_free(draws.nll[1]);
    bp_free(draws.nll[0]);
    return err;
}

void comparison_clear(comparison *c)
{
    for (int64_t k = 0; k < c->remark_count; k++)
        bp_free(c->remarks[k]);
    bp_free(c->remarks);
    bp_free(c->groups);
    bp_free(c->chosen);
    score_folder_clear(&c->scores[1]);
    score_folder_clear(&c->scores[0]);
    *c = (comparison){0};
}
