/* A training engine: one step from the windows to the updated parameters. The loop (train/loop)
 * calls it, stages do the work. */
#include "train/engine/engine_priv.h"

#include "base/fault.h"

#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "models/network/dropconnect.h"
#include "train/engine/tree.h"

#include <math.h>
#include <string.h>

/* Rows of losses after those of the terms: compared states, and the balance of experts. */
enum { STATES, BALANCE, LOSS_ROWS };

int64_t engine_carried_floats(const bp_engine *engine)
{
    return bp_engine_carried_floats(engine->network, &engine->shape, engine->slots);
}

/* Carried states begin with zeros. */
static bool allocate_carried(bp_engine *engine)
{
    bp_network *network = engine->network;
    int64_t each = engine->spec.micro_batch, floats = engine_carried_floats(engine), at = 0,
            kept = bp_engine_carried_floats(network, &engine->shape, each);

    if (floats == 0)
        return true;
    engine->carries = network->carry_count;
    engine->carried = bp_try_alloc("carried state", 2 * floats + kept, sizeof(float));
    if (!engine->carried)
        return false;
    for (int k = 0; k < network->carry_count; k++) {
        bp_carry *carry = &network->carries[k];

        carry->first_slot = engine->slots * engine->mesh->data_rank;
        carry->rows[0] = engine->carried + at;
        carry->rows[1] = engine->carried + floats + at;
        carry->kept = engine->carried + 2 * floats + at / engine->slots * each;
        at += carry->columns * engine->slots;
    }
    return true;
}

static bp_err allocate(bp_engine *engine)
{
    const bp_mesh *mesh = engine->mesh;
    int terms = bp_model_objective(&engine->shape)->terms + LOSS_ROWS;

    engine->slots = engine->spec.batch / mesh->data_ranks;
    engine->values = bp_try_alloc("parameters", engine->network->floats, sizeof(float));
    if (engine->spec.dropconnect > 0)
        engine->dropped = bp_try_alloc("parameters", engine->network->floats, sizeof(float));
    engine->scratch =
        bp_try_alloc("reduction", bp_gradient_scratch(mesh, engine->network), sizeof(float));
    engine->losses = bp_try_alloc("input", terms * (engine->spec.batch / engine->spec.micro_batch),
                                  sizeof(double));
    if (bp_model_experts(&engine->shape) > 0) {
        engine->expert_loads =
            bp_alloc("input", engine_load_count(engine), sizeof *engine->expert_loads);
        engine->layer_experts =
            bp_alloc("input", engine->shape.layers, sizeof *engine->layer_experts);
    }
    if (!engine->values || (engine->spec.dropconnect > 0 && !engine->dropped) || !engine->scratch ||
        !engine->losses || !allocate_carried(engine))
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at %lld parameters on this rank; use more tensor or "
                       "pipeline ranks, see --plan",
                       (long long)engine->network->floats);
    bp_zero(engine->values,
            engine->network->floats); /* first touched by the threads that read them */
    return bp_optimizer_init(&engine->optimizer, mesh, engine->async, engine->network,
                             &engine->spec.optimizer);
}

static bp_err build(bp_engine *engine)
{
    const bp_mesh *mesh = engine->mesh;
    bp_nn nn = {.tensor = mesh->tensor,
                .tensor_rank = mesh->tensor_rank,
                .tensor_ranks = mesh->tensor_ranks,
                .expert = mesh->expert,
                .expert_rank = mesh->expert_rank,
                .expert_ranks = mesh->expert_ranks,
                .sequence_parallel = bp_engine_is_sequence_parallel(&engine->spec, &engine->shape,
                                                                    mesh->tensor_ranks),
                .distills = engine->spec.distills,
                .seed = engine->spec.seed,
                .dropout = engine->spec.dropout,
                .label_smoothing = engine->spec.label_smoothing,
                .softmax_samples = engine->spec.softmax_samples};
    bp_stage_spec stage = bp_stage_spec_for(&engine->spec, &engine->shape, mesh->data_ranks,
                                            mesh->pipeline_rank, mesh->pipeline_ranks);
    bp_err err = bp_gemm_new(&engine->gemm, engine->spec.precision);

    nn.gemm = engine->gemm;
    if (err == BP_OK)
        err = bp_model_network_new_chunks(&engine->network, &nn, &engine->shape,
                                          mesh->pipeline_rank, mesh->pipeline_ranks,
                                          bp_engine_chunks(&engine->spec, mesh->pipeline_ranks));
    if (err != BP_OK)
        return err;
    bp_network_lay_out(engine->network, BP_NORM_BLOCK);
    if (engine->spec.tree)
        bp_network_part_sources(engine->network);
    bp_network_set_searched(engine->network, false);
    bp_spectral_new(&engine->spectral, mesh, engine->network, &engine->shape, engine->spec.seed);
    err = bp_engine_check_squares(engine->network, &engine->spec);
    if (err == BP_OK)
        err = allocate(engine);
    if (err == BP_OK)
        err = bp_network_bind_values(engine->network,
                                     engine->dropped ? engine->dropped : engine->values);
    if (err == BP_OK)
        err = bp_stage_new(&engine->stage, mesh, engine->network, &stage);
    if (err != BP_OK)
        return err;
    engine->reduction =
        (bp_reduction){.mesh = mesh,
                       .network = engine->network,
                       .async = engine->async,
                       .gradients = engine->stage->gradient,
                       .scratch = engine->scratch,
                       .squares = engine->stage->squares ? engine->stage->squares[0] : NULL,
                       .job = -1};
    engine->optimizer.squares = engine->reduction.squares;
    return BP_OK;
}

bp_err bp_engine_new(bp_engine **out, const bp_mesh *mesh, const bp_engine_spec *spec,
                     const bp_model_shape *shape)
{
    bp_engine *engine = bp_alloc("engine", 1, sizeof *engine);
    bool squares = bp_optimizer_row_of(spec->optimizer.kind)->squares;
    int jobs = (squares ? 2 : 1) *
               (4 * (bp_model_blocks(shape) + 1) +
                2 * (int)shape->states.count); /* of all groups the sums, or the gathers */
    bp_err err = bp_async_new(&engine->async, mesh->data, jobs, spec->overlap);

    bp_async_add_part(engine->async, mesh->expert_data);
    bp_async_send_bf16(engine->async, spec->sums_bf16);

    engine->spec = *spec;
    engine->shape = *shape;
    engine->mesh = mesh;
    if (err == BP_OK)
        err = build(engine);
    err = bp_agree(mesh->compute, err);
    if (err != BP_OK)
        bp_engine_free(&engine);
    *out = engine;
    return err;
}

static bp_dropconnect mask_of(const bp_engine *engine)
{
    return (bp_dropconnect){.rate = engine->masked ? engine->spec.dropconnect : 0,
                            .seed = engine->spec.seed,
                            .training = true,
                            .draw = engine->step};
}

static void copy_values(const bp_engine *engine, int block)
{
    bp_dropconnect mask = mask_of(engine);

    bp_dropconnect_copy(engine->network, block, engine->values, &mask);
}

/* Blocks now read weights with the masks of a step, or without. */
static void set_masked(bp_engine *engine, bool masked)
{
    if (engine->dropped && (masked || engine->masked))
        engine->ready = 0;
    engine->masked = masked;
}

static void mask_run(const bp_engine *engine, const bp_own_run *run, const bp_dropconnect *mask)
{
    float *g = engine->reduction.gradients + run->value,
          *squares = engine->reduction.squares ? engine->reduction.squares + run->value : NULL;

    bp_dropconnect_apply(g, g, run->param, run->within, run->count, mask);
    for (int twice = 0; squares && twice < 2; twice++)
        bp_dropconnect_apply(squares, squares, run->param, run->within, run->count, mask);
}

/* The gradient of a weight is that of the masked weight, masked; on this data rank's shards. */
static void mask_gradients(const bp_engine *engine)
{
    bp_dropconnect mask = mask_of(engine);

    for (int g = 0; engine->dropped && g < engine->network->group_count; g++)
        for (int k = engine->optimizer.first_run[g]; k < engine->optimizer.first_run[g + 1]; k++) {
            const bp_own_run *run = &engine->optimizer.runs[k];

            if (bp_dropconnect_drops(engine->network, &engine->network->groups[g], run->param))
                mask_run(engine, run, &mask);
        }
}

/* Block k runs only after its parameters have arrived from all data ranks; then its copies are
 * remade. */
static void make_ready(void *context, int k)
{
    bp_engine *engine = context;
    bp_network *network = engine->network;

    for (; engine->ready <= k; engine->ready++) {
        for (int g = 0; g < network->group_count; g++)
            if (network->groups[g].block == engine->ready)
                bp_optimizer_gathered(&engine->optimizer, g);
        if (engine->dropped)
            copy_values(engine, engine->ready);
        bp_network_refresh_block(network, engine->ready);
    }
}

void engine_await_parameters(bp_engine *engine)
{
    make_ready(engine, engine->network->block_count - 1);
}

void engine_end_gathers(bp_engine *engine)
{
    for (int g = 0; g < engine->network->group_count; g++)
        bp_optimizer_gathered(&engine->optimizer, g);
}

static void start_sum(void *context, int g)
{
    bp_engine *engine = context;

    if (g == 0)
        bp_inject_gradient(engine->stage->gradient);
    bp_gradient_start(&engine->reduction, g);
}

void engine_begin_with_values(bp_engine *engine)
{
    engine->ready = engine->dropped ? 0 : engine->network->block_count;
    if (engine->spec.digest_every > 0)
        bp_optimizer_checksum(&engine->optimizer, engine->values);
}

void bp_engine_initialise(bp_engine *engine)
{
    engine_end_gathers(engine);
    bp_network_initialise(engine->network, engine->spec.seed);
    if (engine->dropped) /* that is where they are bound */
        memcpy(engine->values, engine->dropped, (size_t)engine->network->floats * sizeof(float));
    engine_begin_with_values(engine);
}

void bp_engine_initialise_added(bp_engine *engine)
{
    for (int g = 0; g < engine->network->group_count; g++) {
        bp_group *group = &engine->network->groups[g];

        for (int k = 0; k < group->count && group->added; k++)
            bp_param_initialise(&group->params[k], engine->spec.seed);
        if (engine->dropped && group->added)
            memcpy(engine->values + group->place, engine->dropped + group->place,
                   (size_t)group->floats * sizeof(float));
    }
}

void bp_engine_free(bp_engine **engine)
{
    bp_engine *self = *engine;

    if (!self)
        return;
    bp_async_free(&self->async); /* before the memory that it works on */
    engine_drop_part(self);
    bp_stage_free(&self->stage);
    bp_optimizer_clear(&self->optimizer);
    bp_spectral_free(&self->spectral);
    bp_network_free(&self->network);
    bp_gemm_free(&self->gemm);
    bp_free(self->values);
    bp_free(self->dropped);
    bp_free(self->scratch);
    bp_free(self->losses);
    bp_free(self->expert_loads);
    bp_free(self->layer_experts);
    bp_free(self->carried);
    bp_free(self);
    *engine = NULL;
}

void bp_engine_save_beside(bp_engine *engine, const bp_checkpoint *base)
{
    for (int g = 0; g < engine->network->group_count; g++) {
        bp_group *group = &engine->network->groups[g];

        group->kept = group->frozen;
        for (int k = 0; k < group->count; k++)
            group->kept = group->kept && bp_checkpoint_has(base, group->params[k].name);
    }
}

void bp_engine_teach(bp_engine *engine, const struct bp_teacher *teacher)
{
    engine->stage->teacher = teacher;
}

void bp_engine_slots(const bp_engine *engine, int64_t *first, int64_t *count)
{
    *count = engine->slots;
    *first = engine->slots * engine->mesh->data_rank;
}

/* Targets of each term that are scored in the global batch: exact, and known before backward. */
static void count_scored(const bp_engine *engine, const bp_batch *batch, int64_t scored[BP_TERMS])
{
    const bp_objective *objective = bp_model_objective(&engine->shape);

    memset(scored, 0, BP_TERMS * sizeof *scored);
    for (int t = 0; t < objective->terms; t++)
        scored[t] = objective->scores_all ? engine->spec.batch * batch->term[t].count
                                          : bp_batch_scored(batch, t);
    if (!objective->scores_all)
        BP_MPI_WAIT("all_reduce", MPI_Allreduce(MPI_IN_PLACE, scored, BP_TERMS, MPI_INT64_T,
                                                MPI_SUM, engine->mesh->data));
}

/* Positions of the global batch that are not padding: their states are compared, and experts are
 * chosen for them. */
static int64_t count_positions(const bp_engine *engine, const bp_batch *batch)
{
    const int32_t *lengths = batch->stream[0].lengths;
    int64_t positions = lengths ? 0 : engine->spec.batch * batch->stream[0].T;

    for (int64_t b = 0; lengths && b < batch->B; b++)
        positions += lengths[b];
    if (lengths)
        BP_MPI_WAIT("all_reduce", MPI_Allreduce(MPI_IN_PLACE, &positions, 1, MPI_INT64_T, MPI_SUM,
                                                engine->mesh->data));
    return positions;
}

/* The mean over the global batch of row `row` of `losses`: the stage of a head has the sums of its
 * micro-batches, the others zeros; all are summed by the tree, in slot order. */
static double mean_of(bp_engine *engine, int row, int64_t count)
{
    const bp_mesh *mesh = engine->mesh;
    int64_t each = engine->stage->spec.micro_batches, all = each * mesh->data_ranks;
    double *sums = engine->losses + row * all;

    BP_MPI_WAIT("all_gather", MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sums,
                                            bp_mpi_count(each), MPI_DOUBLE, mesh->data));
    return bp_tree_sum(sums, all) / (double)count;
}

/* The batch's loss, from the means over each term's targets, and the means over positions for
 * compared states and the balance of experts. */
static void mean_loss(bp_engine *engine, const int64_t scored[BP_TERMS], int64_t positions,
                      bp_step_result *result)
{
    const bp_objective *objective = bp_model_objective(&engine->shape);
    double sums[3 + BP_TERMS] = {0}, *loss = sums, *states = sums + 1, *balance = sums + 2,
                    *term = sums + 3;
    bool compares = engine->shape.states.count > 0;
    double weight = bp_model_balance(&engine->shape);

    for (int t = 0; t < objective->terms; t++)
        if (scored[t] > 0) {
            term[t] = mean_of(engine, t, scored[t]);
            *loss += bp_model_term_weight(&engine->shape, t) * term[t];
        }
    if (compares && positions > 0) {
        *states = mean_of(engine, objective->terms + STATES, positions);
        *loss += engine->stage->teacher->states_weight * *states;
    }
    if (weight > 0 && positions > 0) {
        *balance = mean_of(engine, objective->terms + BALANCE, positions);
        *loss += weight * *balance;
    }
    bp_all_sum_double(sums, 3 + (objective->term[0] ? objective->terms : 0),
                      engine->mesh->pipeline);
    result->loss = *loss;
    for (int t = 0; t < BP_TERMS; t++) {
        result->asked[t] = t < objective->terms && objective->term[t] && scored[t] > 0;
        result->term[t] = result->asked[t] ? term[t] : NAN;
    }
    result->balance_asked = weight > 0 && positions > 0;
    result->balance = result->balance_asked ? *balance : NAN;
    result->states_asked = compares && positions > 0;
    result->states = result->states_asked ? *states : NAN;
}

/* Records corruption found by the checksums of this rank's shards, if any. */
static void note_own_corruption(bp_engine *engine, int64_t step)
{
    const bp_optimizer *optimizer = &engine->optimizer;
    bp_corruption *corruption = &engine->corruption;

    if (optimizer->changed < 0 || corruption->found)
        return;
    *corruption = (bp_corruption){.found = true, .step = step};
    snprintf(corruption->tensor, sizeof corruption->tensor, "%s%s",
             optimizer->changed_part == BP_SUM_WEIGHT
                 ? ""
                 : bp_optimizer_prefix(optimizer, optimizer->changed_part - BP_SUM_MOMENT),
             optimizer->runs[optimizer->changed].param->name);
    bp_corruption_own(corruption, engine->mesh);
}

static void compare(bp_engine *engine, int64_t step)
{
    if (!engine->corruption.found)
        engine->corruption.step = step;
    bp_corruption_compare(&engine->corruption, engine->mesh, engine->network);
}

const bp_corruption *bp_engine_corruption(const bp_engine *engine)
{
    return &engine->corruption;
}

void bp_engine_check(bp_engine *engine, int64_t step)
{
    if (engine->spec.digest_every == 0)
        return;
    set_masked(engine, false);
    engine_await_parameters(engine);
    (void)bp_optimizer_check(&engine->optimizer, engine->values);
    note_own_corruption(engine, step);
    compare(engine, step);
}

/* A skipped step may have left values that are not finite: the next step starts from the same
 * states. */
static void keep_carried(bp_engine *engine, int64_t step)
{
    int64_t floats = engine_carried_floats(engine);

    if (floats > 0)
        memcpy(engine->carried + (step & 1) * floats, engine->carried + ((step - 1) & 1) * floats,
               (size_t)floats * sizeof(float));
}

/* Reads whole matrices, so no collective may be pending. */
static void bound_weights(bp_engine *engine)
{
    if (!engine->spectral)
        return;
    engine_end_gathers(engine);
    if (engine->spec.digest_every > 0)
        (void)bp_optimizer_check(&engine->optimizer, engine->values);
    bp_spectral_apply(engine->spectral);
    if (engine->spec.digest_every > 0)
        bp_optimizer_checksum(&engine->optimizer, engine->values);
}

/* The losses of this data rank's micro-batches in row `row`. */
static double *own_losses(const bp_engine *engine, int row)
{
    return engine->losses + (row * engine->mesh->data_ranks + engine->mesh->data_rank) *
                                engine->stage->spec.micro_batches;
}

/* Computes the gradients of the batch, starts their sums over data ranks, and computes the loss. */
static void accumulate(bp_engine *engine, const bp_batch *batch, bool second_text,
                       const int64_t scored[BP_TERMS], bp_step_result *result)
{
    const bp_mesh *mesh = engine->mesh;
    int terms = bp_model_objective(&engine->shape)->terms;
    int64_t each = engine->stage->spec.micro_batches, positions = 0;
    bp_stage_step work = {.batch = batch,
                          .step = engine->step,
                          .second_text = second_text,
                          .first_slot = engine->slots * mesh->data_rank,
                          .needs = make_ready,
                          .is_whole = start_sum,
                          .context = engine};

    for (int t = 0; t < terms; t++)
        work.loss_weight[t] =
            scored[t] > 0 ? (float)(bp_model_term_weight(&engine->shape, t) / (double)scored[t])
                          : 0.0F;
    if (engine->shape.states.count > 0 || bp_model_balance(&engine->shape) > 0)
        positions = count_positions(engine, batch);
    if (engine->shape.states.count > 0) {
        work.states_weight = (float)(engine->stage->teacher->states_weight / (double)positions);
        work.states_sums = own_losses(engine, terms + STATES);
    }
    if (bp_model_balance(&engine->shape) > 0) {
        work.balance_weight = (float)(bp_model_balance(&engine->shape) / (double)positions);
        work.balance_sums = own_losses(engine, terms + BALANCE);
    }
    if (engine->expert_loads) {
        memset(engine->expert_loads, 0,
               (size_t)engine_load_count(engine) * sizeof *engine->expert_loads);
        work.expert_loads = engine->expert_loads;
    }
    if (engine->part)
        engine_part_accumulate(engine, &work, engine->losses + mesh->data_rank * each,
                               each * mesh->data_ranks);
    else
        bp_stage_accumulate(engine->stage, &work, engine->losses + mesh->data_rank * each,
                            each * mesh->data_ranks);
    engine_measure_experts(engine, result);
    mean_loss(engine, scored, positions, result);
}

/* The gradient of the batch, in this data rank's shard, and its norm. */
static void finish_gradient(bp_engine *engine, bp_step_result *result)
{
    int64_t every = engine->spec.digest_every;

    bp_fault_point("allreduce.before");
    bp_gradient_finish(&engine->reduction);
    bp_fault_point("allreduce.after");
    mask_gradients(engine);
    result->grad_norm =
        bp_gradient_norm(engine->mesh, engine->network, engine->stage->gradient, engine->scratch);
    bp_inject_sum(&engine->optimizer, engine->stage->gradient);
    result->rate = bp_rate_at(&engine->spec.rate, engine->step);
    if (every > 0 && engine->step % every == 0)
        compare(engine, engine->step);
    result->skipped = !isfinite(result->grad_norm);
}

static void update(bp_engine *engine, int64_t number, int64_t scored, const bp_step_result *result)
{
    double clip = engine->spec.optimizer.clip, scale = 1;

    if (clip > 0 && result->grad_norm > clip)
        scale = clip / result->grad_norm;
    bp_fault_point("opt.before");
    engine->optimizer.scored = scored;
    bp_optimizer_update(&engine->optimizer, engine->values, engine->stage->gradient, result->rate,
                        scale, number);
    bound_weights(engine);
    bp_fault_point("opt.after");
    note_own_corruption(engine, engine->step);
    engine->ready = 0;
    if (bp_fault_is_armed())
        engine_await_parameters(engine);
    bp_inject_flips(&engine->optimizer, engine->values);
}

void engine_gradient(bp_engine *engine, const bp_batch *batch, bool second_text,
                     bp_step_result *result)
{
    int64_t scored[BP_TERMS];

    BP_ASSERT(batch->B == engine->slots && !engine->dropped);
    count_scored(engine, batch, scored);
    accumulate(engine, batch, second_text, scored, result);
    bp_gradient_finish(&engine->reduction);
}

void bp_engine_step(bp_engine *engine, int64_t step, int64_t number, const bp_batch *batch,
                    bp_step_result *result)
{
    int64_t scored[BP_TERMS];

    BP_ASSERT(batch->B == engine->slots);
    engine->step = step;
    set_masked(engine, true);
    count_scored(engine, batch, scored);
    accumulate(engine, batch, false, scored, result);
    finish_gradient(engine, result);
    if (result->skipped)
        keep_carried(engine, step);
    else
        update(engine, number, scored[0], result);
    engine_drop_part(engine);
}

bp_err bp_engine_take_part(bp_engine *engine, const bp_model_shape *shape)
{
    engine_drop_part(engine);
    if (!shape)
        return BP_OK;
    engine_await_parameters(engine);
    return engine_make_part(engine, shape);
}

void bp_engine_evaluate(bp_engine *engine, const bp_evaluation *of, double loss_sum[BP_TERMS],
                        int64_t loss_count[BP_TERMS])
{
    set_masked(engine, false);
    engine_await_parameters(engine);
    bp_stage_evaluate(engine->part ? engine->part->stage : engine->stage, of, loss_sum, loss_count);
}

bp_network *bp_engine_network(bp_engine *engine)
{
    set_masked(engine, false);
    engine_await_parameters(engine);
    return engine->network;
}
