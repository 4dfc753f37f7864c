/* LAMB and Adafactor: a parameter's step depends on sums over all of it, wherever it is. Called by
 * optimizer.c.
 *
 * Sums are made in the order of the elements, on any mesh: the owner of a group's first shard adds
 * up its own elements and sends what it has to the holder of the next one, which goes on from
 * there, and meanwhile begins the next group. So the bits are the same at any number of data ranks.
 * The owner of the last shards broadcasts the sum; then tensor ranks add their parts. */
#include "mesh/collective.h"
#include "train/engine/optimizer_priv.h"

#include <math.h>
#include <stdio.h>

#define TAG_TOTALS     203
#define RMS_LEAST      1e-3 /* Adafactor's epsilon 2: steps are relative to weights of at least this */
#define DECAY_EXPONENT 0.8 /* its second moments keep 1 - t^-0.8 */

/* What a parameter has of the totals: LAMB's squares of weights and steps; Adafactor's of weights,
 * of steps, the sum of all rows' sums, and the rows' and columns' sums of this rank's part. */
enum { WEIGHTS, STEPS, LAMB_TOTALS, ALL_ROWS = LAMB_TOTALS, SUMS };

static int64_t rows_of(const bp_param *param)
{
    return param->dims == 2 ? param->extent[0] : 1;
}

static int64_t columns_of(const bp_param *param)
{
    return param->extent[param->dims - 1];
}

/* Where a parameter's numbers are in `totals` and `factors`, and how many there are. */
typedef struct place {
    int64_t total, totals, factor, factors;
} place;

static place place_of(bp_optimizer_kind kind, const bp_param *param, const place *before)
{
    int64_t sums = kind == BP_ADAFACTOR ? rows_of(param) + columns_of(param) : 0;

    return (place){.total = before->total + before->totals,
                   .totals = kind == BP_ADAFACTOR ? SUMS + sums : LAMB_TOTALS,
                   .factor = before->factor + before->factors,
                   .factors = 2 * sums};
}

/* The place of group g's parameter k, without frozen groups. */
static place find_place(bp_optimizer_kind kind, const bp_network *network, int g, int k)
{
    place at = {0};

    for (int i = 0; i <= g; i++)
        for (int j = 0; j < (i < g ? network->groups[i].count : k + 1); j++)
            if (!network->groups[i].frozen)
                at = place_of(kind, &network->groups[i].params[j], &at);
    return at;
}

static place whole(const bp_optimizer_rule *rule, const bp_network *network)
{
    int last = network->group_count - 1;

    if (last < 0)
        return (place){0};
    return find_place(rule->kind, network, last, network->groups[last].count - 1);
}

static int64_t scratch_count(const bp_network *network)
{
    int64_t most = 0;

    for (int g = 0; g < network->group_count; g++)
        most = network->groups[g].padded > most ? network->groups[g].padded : most;
    return 2 * bp_block_pieces(most);
}

size_t bp_optimizer_more_bytes(const bp_optimizer_rule *rule, const bp_network *network)
{
    place all = whole(rule, network);

    if (!bp_optimizer_is_layerwise(rule))
        return 0;
    return (size_t)(all.total + all.totals + scratch_count(network)) * sizeof(double) +
           (size_t)(all.factor + all.factors) * sizeof(float);
}

int64_t bp_optimizer_factor_floats(const bp_optimizer_rule *rule, const bp_network *network)
{
    place all = whole(rule, network);

    return rule->kind == BP_ADAFACTOR ? (all.factor + all.factors) / 2 : 0;
}

bp_err bp_optimizer_layerwise_init(bp_optimizer *optimizer)
{
    const bp_network *network = optimizer->network;
    bp_optimizer_kind kind = optimizer->rule.kind;
    place all = whole(&optimizer->rule, network), at = {0};

    if (!bp_optimizer_is_layerwise(&optimizer->rule))
        return BP_OK;
    for (int g = 0, run = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count && !network->groups[g].frozen; k++) {
            const bp_param *param = &network->groups[g].params[k];

            at = place_of(kind, param, &at);
            if (run < optimizer->run_count && optimizer->runs[run].param == param) {
                optimizer->runs[run].total = at.total;
                optimizer->runs[run++].factor = at.factor;
            }
        }
    optimizer->totals = bp_try_alloc("optimizer", all.total + all.totals, sizeof(double));
    optimizer->scratch = bp_try_alloc("optimizer", scratch_count(network), sizeof(double));
    if (kind == BP_ADAFACTOR)
        optimizer->factors = bp_try_alloc("optimizer", all.factor + all.factors, sizeof(float));
    if (!optimizer->totals || !optimizer->scratch || (kind == BP_ADAFACTOR && !optimizer->factors))
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %lld sums over parameters; use more tensor or pipeline "
                       "ranks, see --plan",
                       (long long)(all.total + all.totals));
    return BP_OK;
}

/* ---- sums over all of a parameter ---- */

/* The data rank that holds shard `index` of each group, in the order of their elements. */
static int holder_of(const bp_mesh *mesh, int index)
{
    int rank = 0;

    while (bp_shard_first(mesh->datas, rank, mesh->datas) != index)
        rank++;
    return rank;
}

typedef struct summing {
    bp_optimizer *optimizer;
    float *values;
    const float *gradients;
    const bp_update *with;
} summing;

/* Adds what this rank holds of a run. */
typedef void (*add_run)(const summing *s, const bp_own_run *run, const bp_updated *at);

static void sum_group(const summing *s, int g, add_run add, int index)
{
    bp_optimizer *optimizer = s->optimizer;
    const bp_mesh *mesh = optimizer->mesh;
    const bp_group *group = &optimizer->network->groups[g];
    place first = find_place(optimizer->rule.kind, optimizer->network, g, 0),
          last = find_place(optimizer->rule.kind, optimizer->network, g, group->count - 1);
    double *totals = optimizer->totals + first.total;
    int64_t bytes = (last.total + last.totals - first.total) * (int64_t)sizeof *totals;

    if (index > 0)
        bp_recv(totals, bytes, holder_of(mesh, index - 1), TAG_TOTALS, mesh->data);
    for (int k = optimizer->first_run[g]; k < optimizer->first_run[g + 1]; k++) {
        const bp_own_run *run = &optimizer->runs[k];
        bp_updated at = bp_optimizer_at(optimizer, run, s->values, s->gradients);

        add(s, run, &at);
    }
    if (index < mesh->datas - 1)
        bp_send(totals, bytes, holder_of(mesh, index + 1), TAG_TOTALS, mesh->data);
}

static void sum_over_data(const summing *s, add_run add)
{
    bp_optimizer *optimizer = s->optimizer;
    const bp_mesh *mesh = optimizer->mesh;
    place all = whole(&optimizer->rule, optimizer->network);
    int index = (int)bp_shard_first(mesh->datas, mesh->data_at, mesh->datas);

    for (int g = 0; g < optimizer->network->group_count; g++)
        if (!optimizer->network->groups[g].frozen && optimizer->network->groups[g].count > 0)
            sum_group(s, g, add, index);
    if (mesh->datas > 1)
        bp_bcast_bytes(optimizer->totals,
                       (all.total + all.totals) * (int64_t)sizeof *optimizer->totals,
                       holder_of(mesh, mesh->datas - 1), mesh->data);
}

/* The axis by which a parameter is split over tensor ranks: equal on all. */
static bool has_part_of_columns(const bp_group *group, const bp_param *param)
{
    return !group->replicated && param->dims == 2 && param->extent[1] < param->shape[1];
}

static void visit_params(bp_optimizer *optimizer, void *context,
                         void (*visit)(bp_optimizer *, void *context, const bp_group *,
                                       const bp_param *, const place *))
{
    const bp_network *network = optimizer->network;
    place at = {0};

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count && !network->groups[g].frozen; k++) {
            at = place_of(optimizer->rule.kind, &network->groups[g].params[k], &at);
            visit(optimizer, context, &network->groups[g], &network->groups[g].params[k], &at);
        }
}

/* Tensor ranks add what they hold of a parameter that is split over them: squares, and the sums of
 * what they have in common, rows or columns. */
static void sum_over_tensor(bp_optimizer *optimizer, void *context, const bp_group *group,
                            const bp_param *param, const place *at)
{
    const bp_mesh *mesh = optimizer->mesh;
    double *totals = optimizer->totals + at->total, *sums = totals + SUMS;

    (void)context;
    if (mesh->tensors == 1 || group->replicated)
        return;
    bp_all_sum_double(totals, LAMB_TOTALS, mesh->tensor);
    if (optimizer->rule.kind != BP_ADAFACTOR || param->dims == 1)
        return;
    if (has_part_of_columns(group, param))
        bp_all_sum_double(sums, rows_of(param), mesh->tensor);
    else
        bp_all_sum_double(sums + rows_of(param), columns_of(param), mesh->tensor);
}

static void clear_totals(bp_optimizer *optimizer)
{
    place all = whole(&optimizer->rule, optimizer->network);

    for (int64_t k = 0; k < all.total + all.totals; k++)
        optimizer->totals[k] = 0;
}

/* ---- LAMB ---- */

static void add_lamb(const summing *s, const bp_own_run *run, const bp_updated *at)
{
    bp_optimizer *optimizer = s->optimizer;
    bp_adamw rule = bp_optimizer_adam(&optimizer->rule, run, s->with);

    bp_lamb_squares(optimizer->totals + run->total, optimizer->scratch, at,
                    run->param->place + run->within, &rule);
}

static void prepare_lamb(const summing *s)
{
    bp_optimizer *optimizer = s->optimizer;

    for (int k = 0; k < optimizer->run_count; k++) {
        const bp_own_run *run = &optimizer->runs[k];
        bp_updated at = bp_optimizer_at(optimizer, run, s->values, s->gradients);
        bp_adamw rule = bp_optimizer_adam(&optimizer->rule, run, s->with);

        bp_lamb_moments(&at, &rule);
    }
    clear_totals(optimizer);
    sum_over_data(s, add_lamb);
    visit_params(optimizer, NULL, sum_over_tensor);
}

/* The ratio of both norms; as in the authors' program 1 where one of them is 0, and for what does
 * not decay: biases and norms. */
static void apply_lamb(const bp_optimizer *optimizer, const bp_own_run *run, const bp_updated *at,
                       const bp_update *with)
{
    const double *totals = optimizer->totals + run->total;
    bp_adamw rule = bp_optimizer_adam(&optimizer->rule, run, with);
    bool adapts = run->param->decays && totals[WEIGHTS] > 0 && totals[STEPS] > 0;

    bp_lamb_apply(at, &rule, adapts ? sqrt(totals[WEIGHTS] / totals[STEPS]) : 1);
}

/* ---- Adafactor ---- */

/* A vector is a matrix of one row, whose columns' sums are all that is kept of it. */
static bp_factored factored_of(const bp_optimizer *optimizer, const bp_own_run *run)
{
    int64_t rows = rows_of(run->param), columns = columns_of(run->param);
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

static void add_squares(const summing *s, const bp_own_run *run, const bp_updated *at)
{
    bp_optimizer *optimizer = s->optimizer;
    bp_factored factored = factored_of(optimizer, run);

    bp_blocks_square_sum(optimizer->totals + run->total + WEIGHTS, optimizer->scratch, at->w, at->n,
                         factored.first);
    bp_factor_sums(&factored, at->g, s->with->scale, optimizer->rule.epsilon);
}

static void add_steps(const summing *s, const bp_own_run *run, const bp_updated *at)
{
    bp_factored factored = factored_of(s->optimizer, run);

    bp_factor_squares(s->optimizer->totals + run->total + STEPS, &factored, at->g);
}

/* The moving sums of rows and columns go on. */
static void move_factors(bp_optimizer *optimizer, void *context, const bp_group *group,
                         const bp_param *param, const place *at)
{
    const bp_update *with = context;
    int64_t count = rows_of(param) + columns_of(param);
    double keep = 1 - pow((double)with->number, -DECAY_EXPONENT),
           *totals = optimizer->totals + at->total;
    float *factors = optimizer->factors + at->factor;

    for (int64_t k = 0; k < count; k++)
        factors[k] = (float)(keep * (double)factors[k] + (1 - keep) * totals[SUMS + k]);
    totals[ALL_ROWS] = totals[STEPS] = 0;
    for (int64_t k = 0; k < rows_of(param); k++)
        totals[ALL_ROWS] += (double)factors[k];
    if (optimizer->mesh->tensors > 1 && !group->replicated && !has_part_of_columns(group, param))
        bp_all_sum_double(&totals[ALL_ROWS], 1, optimizer->mesh->tensor);
}

/* An element's step is g / sqrt(R C / sum of R): a row's factor times a column's. */
static void find_steps(bp_optimizer *optimizer, void *context, const bp_group *group,
                       const bp_param *param, const place *at)
{
    const bp_update *with = context;
    int64_t rows = rows_of(param), columns = columns_of(param);
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
                                  const bp_param *param, const place *at)
{
    (void)context, (void)param;
    if (optimizer->mesh->tensors > 1 && !group->replicated)
        bp_all_sum_double(optimizer->totals + at->total + STEPS, 1, optimizer->mesh->tensor);
}

static void prepare_adafactor(const summing *s)
{
    bp_optimizer *optimizer = s->optimizer;
    bp_update with = *s->with;

    clear_totals(optimizer);
    sum_over_data(s, add_squares);
    visit_params(optimizer, NULL, sum_over_tensor);
    visit_params(optimizer, &with, move_factors);
    visit_params(optimizer, &with, find_steps);
    sum_over_data(s, add_steps);
    visit_params(optimizer, NULL, sum_steps_over_tensor);
}

/* Steps are relative to the weights' root mean square, and their own is at most 1. */
static void apply_adafactor(const bp_optimizer *optimizer, const bp_own_run *run,
                            const bp_updated *at, const bp_update *with)
{
    const double *totals = optimizer->totals + run->total;
    const bp_param *param = run->param;
    bp_factored factored = factored_of(optimizer, run);
    double all = (double)param->shape[0] * (param->dims == 2 ? (double)param->shape[1] : 1);
    double size = sqrt(totals[WEIGHTS] / all), step = sqrt(totals[STEPS] / all);
    double decay = param->decays ? optimizer->rule.weight_decay : 0;

    bp_factor_apply(at->w, &factored, at->g, with->rate * fmax(RMS_LEAST, size) / fmax(1, step),
                    1 - with->rate * decay);
}

/* ---- both ---- */

void bp_optimizer_layerwise_prepare(bp_optimizer *optimizer, float *values, const float *gradients,
                                    const bp_update *with)
{
    const summing s = {optimizer, values, gradients, with};

    for (int k = 0; k < optimizer->run_count && optimizer->guarded; k++) {
        uint32_t sums[BP_SUMS];

        bp_optimizer_sum_run(optimizer, k, values, sums);
        bp_optimizer_note_change(optimizer, k, sums);
    }
    if (optimizer->rule.kind == BP_LAMB)
        prepare_lamb(&s);
    else
        prepare_adafactor(&s);
}

void bp_optimizer_layerwise_apply(const bp_optimizer *optimizer, const bp_own_run *run,
                                  const bp_updated *at, const bp_update *with)
{
    if (optimizer->rule.kind == BP_LAMB)
        apply_lamb(optimizer, run, at, with);
    else
        apply_adafactor(optimizer, run, at, with);
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

void bp_optimizer_factor_slices(const bp_optimizer *optimizer, int g, bool to_save,
                                bp_slice *slices, int64_t *used, int64_t capacity)
{
    const bp_group *group = &optimizer->network->groups[g];
    const bp_mesh *mesh = optimizer->mesh;

    if (optimizer->rule.kind != BP_ADAFACTOR ||
        (to_save && (!group->published || mesh->data_at > 0)))
        return;
    for (int k = 0; k < group->count; k++) {
        const bp_param *param = &group->params[k];
        bool first = !to_save || group->replicated || mesh->tensor_at == 0,
             by_columns = has_part_of_columns(group, param);
        float *factors =
            optimizer->factors + find_place(BP_ADAFACTOR, optimizer->network, g, k).factor;

        BP_ASSERT(*used + 2 <= capacity);
        if (param->dims == 2 && param->extent[0] > 0 && (first || !by_columns))
            add_factor(&slices[(*used)++], param, "adafactor.r/", 0, factors);
        if (columns_of(param) > 0 && (param->dims == 1 || first || by_columns))
            add_factor(&slices[(*used)++], param,
                       param->dims == 2 ? "adafactor.c/" : "adafactor.v/", param->dims - 1,
                       factors + rows_of(param));
    }
}
