/* The memory plan of a rank: parameters, gradients, optimizer, activations, workspace. Printed by
 * --plan and at the start. Sizes that the plan and the engine share are also here. */
#include "math/kernels/kernels.h"
#include "train/engine/engine.h"
#include "train/engine/gradient.h"
#include "train/engine/spectral.h"
#include "train/engine/stage.h"

#include <string.h>

size_t bp_plan_total(const bp_plan *plan)
{
    return plan->program + plan->parameters + plan->copies + plan->gradients + plan->optimizer +
           plan->activations + plan->scratch + plan->input + plan->snapshot + plan->writer +
           plan->parts;
}

bp_stage_spec bp_stage_spec_for(const bp_engine_spec *spec, const bp_model_shape *shape,
                                int data_ranks, int stage, int stages)
{
    bp_example_maker maker = bp_model_objective(shape)->maker(shape, shape->context, NULL);

    return (bp_stage_spec){.most = bp_extent_of(&maker.form, spec->micro_batch),
                           .micro_batches = spec->batch / data_ranks / spec->micro_batch,
                           .stage = stage,
                           .stages = stages,
                           .schedule = spec->schedule,
                           .tree = spec->tree,
                           .recompute = spec->recompute,
                           .restart = spec->restart,
                           .squares = bp_optimizer_row_of(spec->optimizer.kind)->squares};
}

int64_t bp_engine_carried_floats(const bp_network *network, const bp_model_shape *shape,
                                 int64_t slots)
{
    int64_t columns = 0;

    for (int k = 0; shape->family->carries_state && k < network->carry_count; k++)
        columns += network->carries[k].columns;
    return columns * slots;
}

/* What several ranks have parts of would have to be summed before it is squared. */
bp_err bp_engine_check_squares(const bp_network *network, const bp_engine_spec *spec)
{
    for (int g = 0; g < network->group_count && bp_optimizer_row_of(spec->optimizer.kind)->squares;
         g++) {
        const bp_group *group = &network->groups[g];

        if (!group->frozen && group->count > 0 &&
            (group->tied || group->common > 0 || (group->partial && network->nn.tensor_ranks > 1)))
            return BP_FAIL(BP_ERR_CONFIG, "optimizer.no_squares",
                           "optimizer.kind = %s squares gradients of micro-batches, but of %s "
                           "several ranks have parts: at optimizer.kind; use %s",
                           bp_optimizer_row_of(spec->optimizer.kind)->name, group->params[0].name,
                           group->partial ? "mesh.tensor=1" : "mesh.pipeline=1");
    }
    return BP_OK;
}

/* Memory that libraries take once they are used: MPI's buffers, generated kernels, thread stacks,
 * HDF5's files. Measured: 10 to 22 MiB. */
#define LIBRARIES_BYTES ((size_t)20 << 20)

static void fill(bp_plan *plan, const bp_mesh *mesh, const bp_engine_spec *spec,
                 const bp_model_shape *shape, const bp_network *network)
{
    bp_stage_spec stage =
        bp_stage_spec_for(spec, shape, mesh->data_ranks, mesh->pipeline_rank, mesh->pipeline_ranks);
    bp_stage_bytes bytes = bp_stage_plan(&stage, network);
    bp_extent most = bp_stage_most(&stage, network);
    bp_product_bytes products = bp_network_product_bytes(network, &most);
    int moments = bp_optimizer_moments(&spec->optimizer);
    int64_t slots = spec->batch / mesh->data_ranks;
    int64_t carried = bp_engine_carried_floats(network, shape, slots);
    int64_t kept = bp_engine_carried_floats(network, shape, spec->micro_batch);
    /* and weights and moments of this rank's shards */
    int64_t bounded = bp_spectral_floats(network, shape);
    int64_t published = carried + bp_optimizer_factor_floats(&spec->optimizer, network) + bounded;
    bp_example_maker maker = bp_model_objective(shape)->maker(shape, shape->context, NULL);

    for (int g = 0; g < network->group_count; g++)
        if (network->groups[g].published) {
            int64_t first, count;

            bp_optimizer_shard(mesh, &network->groups[g], &first, &count);
            published += count * (network->groups[g].frozen ? 1 : 1 + moments);
        }
    memset(plan, 0, sizeof *plan);
    plan->program = bp_mem_resident_peak_bytes() + LIBRARIES_BYTES;
    plan->parameters = (size_t)network->floats * sizeof(float) * (spec->dropconnect > 0 ? 2 : 1);
    plan->copies = products.copies;
    plan->gradients = bytes.gradients;
    plan->optimizer = (size_t)(bp_optimizer_floats(mesh, network) * moments) * sizeof(float) +
                      bp_optimizer_more_bytes(&spec->optimizer, network) +
                      (size_t)bounded * sizeof(float);
    plan->activations = bytes.activations;
    plan->scratch = bytes.scratch + (size_t)bp_gradient_scratch(mesh, network) * sizeof(float) +
                    products.scratch + (size_t)network->table_bytes;
    plan->snapshot = (size_t)published * sizeof(float);
    plan->input = bp_batch_bytes(&maker.form, slots) + (size_t)(2 * carried + kept) * sizeof(float);
}

bp_mesh bp_engine_planned_mesh(const bp_mesh_shape *shape, int stage)
{
    return (bp_mesh){.tensor = MPI_COMM_NULL,
                     .pipeline_ranks = shape->pipeline,
                     .data_ranks = shape->data,
                     .tensor_ranks = shape->tensor,
                     .expert_ranks = bp_mesh_shape_experts(shape),
                     .pipeline_rank = stage};
}

bp_err bp_engine_planned_network(bp_network **out, bp_gemm **gemm, const bp_mesh_shape *mesh,
                                 const bp_engine_spec *spec, const bp_model_shape *shape, int stage)
{
    bp_nn nn = {.tensor = MPI_COMM_NULL,
                .expert = MPI_COMM_NULL,
                .expert_ranks = bp_mesh_shape_experts(mesh),
                .tensor_ranks = mesh->tensor,
                .sequence_parallel = bp_engine_is_sequence_parallel(spec, shape, mesh->tensor),
                .distills = spec->distills,
                .dropout = spec->dropout,
                .label_smoothing = spec->label_smoothing,
                .softmax_samples = spec->softmax_samples};
    bp_err err = bp_gemm_new(&nn.gemm, spec->precision);

    if (err == BP_OK)
        err = bp_model_network_new_chunks(out, &nn, shape, stage, mesh->pipeline,
                                          bp_engine_chunks(spec, mesh->pipeline));
    if (err == BP_OK)
        err = bp_engine_check_squares(*out, spec);
    if (err == BP_OK) {
        bp_network_lay_out(*out, BP_NORM_BLOCK);
        if (spec->tree)
            bp_network_part_sources(*out);
        bp_network_set_searched(*out, false);
    }
    *gemm = nn.gemm;
    return err;
}

bp_err bp_engine_plan(bp_plan *plan, const bp_mesh_shape *mesh_shape, const bp_engine_spec *spec,
                      const bp_model_shape *shape, int stage)
{
    bp_mesh mesh = bp_engine_planned_mesh(mesh_shape, stage);
    bp_network *network = NULL;
    bp_gemm *gemm = NULL;
    bp_err err = bp_engine_planned_network(&network, &gemm, mesh_shape, spec, shape, stage);

    if (err == BP_OK)
        fill(plan, &mesh, spec, shape, network);
    bp_network_free(&network);
    bp_gemm_free(&gemm);
    return err;
}
