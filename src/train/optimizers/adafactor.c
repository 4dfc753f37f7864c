/* Adafactor: second moments are the product of a row's and a column's factor, and steps are
 * relative to the size of the weights. Called by update.c. */
#include "mesh/collective.h"
#include "train/optimizers/totals.h"

#include <math.h>
#include <stdio.h>

#define RMS_LEAST      1e-3 /* its epsilon 2: steps are relative to weights of at least this */
#define DECAY_EXPONENT 0.8  /* its second moments keep 1 - t^-0.8 */

/* Totals after the least: the sum of all rows' sums, and the rows' and columns' sums of this rank's
 * part. */
enum { ALL_ROWS = BP_TOTALS_LEAST, SUMS };

static int64_t totals_of(const bp_param *param)
{
    return SUMS + bp_totals_rows(param) + bp_totals_columns(param);
}

/* Moving sums of rows and columns, and this step's factors made from them. */
static int64_t factors_of(const bp_param *param)
{
    return 2 * (bp_totals_rows(param) + bp_totals_columns(param));
}

/* Squares, and the sums of what tensor ranks have in common, rows or columns. */
static void sum_over_tensor(bp_optimizer *optimizer, void *context, const bp_group *group,
                            const bp_param *param, const bp_totals_place *at)
{
    const bp_mesh *mesh = optimizer->mesh;
    double *sums = optimizer->totals + at->total + SUMS;

    bp_totals_over_tensor(optimizer, context, group, param, at);
    if (mesh->tensor_ranks == 1 || group->replicated || param->dims == 1)
        return;
    if (bp_totals_by_columns(group, param))
        bp_all_sum_double(sums, bp_totals_rows(param), mesh->tensor);
    else
        bp_all_sum_double(sums + bp_totals_rows(param), bp_totals_columns(param), mesh->tensor);
}

/* A vector is a matrix of one row: only its column sums are kept. */
static bp_factored factored_of(const bp_optimizer *optimizer, const bp_own_run *run)
{
    int64_t rows = bp_totals_rows(run->param), columns = bp_totals_columns(run->param);
    double *sums = optimizer->totals + run->total + SUMS;
    const float *steps = optimizer->factors + run->factor + rows + columns;

    return (bp_factored){.place = run->within,
                         .n = run->count,
                         .columns = columns,
                         .first = run->param->place + run->within,
                         .row_sums = sums,
                         .column_sums = sums + rows,
                         .row = steps,
                         .column = steps + rows};
}

static void add_squares(const bp_summing *s, const bp_own_run *run, const bp_updated *at)
{
    bp_optimizer *optimizer = s->optimizer;
    bp_factored factored = factored_of(optimizer, run);

    bp_blocks_square_sum(optimizer->totals + run->total + BP_TOTAL_WEIGHTS, optimizer->scratch,
                         at->w, at->n, factored.first);
    bp_factor_sums(&factored, at->g, s->with->scale, optimizer->rule.epsilon);
}

static void add_steps(const bp_summing *s, const bp_own_run *run, const bp_updated *at)
{
    bp_factored factored = factored_of(s->optimizer, run);

    bp_factor_squares(s->optimizer->totals + run->total + BP_TOTAL_STEPS, &factored, at->g);
}

/* The moving sums of rows and columns go on. */
static void move_factors(bp_optimizer *optimizer, void *context, const bp_group *group,
                         const bp_param *param, const bp_totals_place *at)
{
    const bp_update *with = context;
    int64_t count = bp_totals_rows(param) + bp_totals_columns(param);
    double keep = 1 - pow((double)with->number, -DECAY_EXPONENT),
           *totals = optimizer->totals + at->total;
    float *factors = optimizer->factors + at->factor;

    for (int64_t k = 0; k < count; k++)
        factors[k] = (float)(keep * (double)factors[k] + (1 - keep) * totals[SUMS + k]);
    totals[ALL_ROWS] = totals[BP_TOTAL_STEPS] = 0;
    for (int64_t k = 0; k < bp_totals_rows(param); k++)
        totals[ALL_ROWS] += (double)factors[k];
    if (optimizer->mesh->tensor_ranks > 1 && !group->replicated &&
        !bp_totals_by_columns(group, param))
        bp_all_sum_double(&totals[ALL_ROWS], 1, optimizer->mesh->tensor);
}

/* An element's step is g / sqrt(R C / sum of R): a row's factor times a column's. */
static void find_steps(bp_optimizer *optimizer, void *context, const bp_group *group,
                       const bp_param *param, const bp_totals_place *at)
{
    const bp_update *with = context;
    int64_t rows = bp_totals_rows(param), columns = bp_totals_columns(param);
    double all_rows = optimizer->totals[at->total + ALL_ROWS];
    const float *sums = optimizer->factors + at->factor;
    float *steps = optimizer->factors + at->factor + rows + columns;

    (void)group;
    for (int64_t k = 0; k < rows; k++)
        steps[k] = param->dims == 1 ? (float)with->scale
                   : sums[k] > 0    ? (float)(with->scale * sqrt(all_rows / (double)sums[k]))
                                    : 0;
    for (int64_t k = rows; k < rows + columns; k++)
        steps[k] = sums[k] > 0 ? (float)(1 / sqrt((double)sums[k])) : 0;
}

/* The steps' squares are summed as the others are: the values before them are no longer used. */
static void sum_steps_over_tensor(bp_optimizer *optimizer, void *context, const bp_group *group,
                                  const bp_param *param, const bp_totals_place *at)
{
    (void)context, (void)param;
    if (optimizer->mesh->tensor_ranks > 1 && !group->replicated)
        bp_all_sum_double(optimizer->totals + at->total + BP_TOTAL_STEPS, 1,
                          optimizer->mesh->tensor);
}

static void prepare(bp_optimizer *optimizer, float *values, const float *gradients,
                    const bp_update *with)
{
    const bp_summing s = {optimizer, values, gradients, with};
    bp_update update = *with;

    bp_totals_clear(optimizer);
    bp_totals_over_data(&s, add_squares);
    bp_totals_each(optimizer, NULL, sum_over_tensor);
    bp_totals_each(optimizer, &update, move_factors);
    bp_totals_each(optimizer, &update, find_steps);
    bp_totals_over_data(&s, add_steps);
    bp_totals_each(optimizer, NULL, sum_steps_over_tensor);
}

/* Steps are relative to the weights' root mean square, and their own is at most 1. */
static void apply(const bp_optimizer *optimizer, const bp_own_run *run, const bp_updated *at,
                  const bp_update *with)
{
    const double *totals = optimizer->totals + run->total;
    const bp_param *param = run->param;
    bp_factored factored = factored_of(optimizer, run);
    double all = (double)param->shape[0] * (param->dims == 2 ? (double)param->shape[1] : 1);
    double size = sqrt(totals[BP_TOTAL_WEIGHTS] / all), step = sqrt(totals[BP_TOTAL_STEPS] / all);
    double decay = param->decays ? optimizer->rule.weight_decay : 0;

    bp_factor_apply(at->w, &factored, at->g, with->rate * fmax(RMS_LEAST, size) / fmax(1, step),
                    1 - with->rate * decay);
}

/* One side of a matrix, a vector of its own. */
static void add_factor(bp_slice *slice, const bp_param *param, const char *prefix, int axis,
                       float *data)
{
    *slice = (bp_slice){.dims = 1,
                        .shape = {param->shape[axis]},
                        .offset = {param->offset[axis]},
                        .extent = {param->extent[axis]},
                        .data = data};
    (void)snprintf(slice->name, sizeof slice->name, "%s%s", prefix, param->name);
}

static void list_slices(const bp_optimizer *optimizer, int g, bool to_save, bp_slice *slices,
                        int64_t *used, int64_t capacity)
{
    const bp_group *group = &optimizer->network->groups[g];
    const bp_mesh *mesh = optimizer->mesh;

    if (to_save && (!group->published || mesh->data_rank > 0))
        return;
    for (int k = 0; k < group->count; k++) {
        const bp_param *param = &group->params[k];
        bool first = !to_save || group->replicated || mesh->tensor_rank == 0,
             by_columns = bp_totals_by_columns(group, param);
        float *factors =
            optimizer->factors + bp_totals_find(optimizer->row, optimizer->network, g, k).factor;

        BP_ASSERT(*used + 2 <= capacity);
        if (param->dims == 2 && param->extent[0] > 0 && (first || !by_columns))
            add_factor(&slices[(*used)++], param, "adafactor.r/", 0, factors);
        if (bp_totals_columns(param) > 0 && (param->dims == 1 || first || by_columns))
            add_factor(&slices[(*used)++], param,
                       param->dims == 2 ? "adafactor.c/" : "adafactor.v/", param->dims - 1,
                       factors + bp_totals_rows(param));
    }
}

const bp_optimizer_row bp_optimizer_adafactor = {.name = "adafactor",
                                                 .epsilon = "1e-30",
                                                 .apply = apply,
                                                 .totals = totals_of,
                                                 .factors = factors_of,
                                                 .prepare = prepare,
                                                 .slices = list_slices};
