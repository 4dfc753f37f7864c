/* Lists the operations of a step. FLOPs of blocks are from bp_model_block_cost; communication of
 * tensor ranks is from docs/measurements/communication.md. */
#include "train/scale/step_program.h"

#include "base/mem.h"
#include "train/engine/gradient.h"
#include "train/engine/tree.h"

#include <string.h>

const char *const bp_step_kind_names[BP_STEP_KINDS] = {"compute", "receive", "send",    "tensor",
                                                       "experts", "reduce",  "reduced", "tied",
                                                       "agree",   "gather",  "gathered"};

#define FLOAT ((double)sizeof(float))

typedef struct writer {
    const bp_engine_spec *spec;
    const bp_model_shape *shape;
    const bp_network *network;
    bp_mesh mesh;
    bp_pipeline pipeline;
    bp_step_stage *out;
    int stage;
    double rows, copies; /* of a micro-batch; bytes of products' copies for a float of parameters */
    const bp_chunk_messages *messages;
    const double *costs; /* of each block of the model, FLOPs of a token */
} writer;

static void add(writer *w, const bp_step_op *op)
{
    bp_step_stage *out = w->out;
    bp_step_op *last = out->count > 0 ? &out->ops[out->count - 1] : NULL;

    if (op->kind == BP_STEP_COMPUTE && last && last->kind == BP_STEP_COMPUTE) {
        last->flops += op->flops;
        last->passes += op->passes;
        return;
    }
    if (out->count == out->capacity) {
        out->capacity = out->capacity > 0 ? 2 * out->capacity : 256;
        out->ops = bp_realloc("scale.step", out->ops, out->capacity, sizeof *out->ops);
    }
    out->ops[out->count++] = *op;
}

static void add_compute(writer *w, double flops, double passes)
{
    if (flops > 0 || passes > 0)
        add(w, &(bp_step_op){BP_STEP_COMPUTE, .flops = flops, .passes = passes});
}

/* ---- a block ---- */

static int log2_up(int ranks)
{
    int rounds = 0;

    while (1 << rounds < ranks)
        rounds++;
    return rounds;
}

/* Adds the bytes that a tensor rank sends for a block, per element of the residual stream and half
 * layer. Embedding and head have one sum, layers two. */
static void add_tensor(writer *w, int number, bool backward)
{
    int T = w->mesh.tensor_ranks, blocks = bp_model_blocks(w->shape);
    bool halves = w->spec->precision == BP_BF16, shares = w->network->nn.sequence_parallel;
    double each = !shares ? 8 : backward ? (halves ? 8 : 12) : (halves ? 6 : 8);
    double parts = number == 0 || number == blocks - 1 ? (backward == (number > 0)) : 2;

    if (T > 1 && parts > 0)
        add(w,
            &(bp_step_op){BP_STEP_TENSOR, .rounds = 2 * (int)parts,
                          .bytes = parts * each * w->rows * (double)w->shape->width * (T - 1) / T});
}

static double expert_flops(const writer *w, int number)
{
    return bp_model_expert_cost(w->shape, number) * w->rows / w->mesh.tensor_ranks;
}

/* Without experts that several ranks share out. */
static double block_flops(const writer *w, int number)
{
    return w->costs[number] * w->rows / w->mesh.tensor_ranks -
           (w->mesh.expert_ranks > 1 ? expert_flops(w, number) : 0);
}

/* Backward computes gate and up again, and sends gradients and shares besides
 * (docs/parallelism.md). */
static void add_experts(writer *w, int number, bool backward)
{
    int E = w->mesh.expert_ranks;
    double flops = expert_flops(w, number), width = (double)w->shape->width,
           rows = w->rows * (double)w->shape->stack.chosen * (E - 1) / E,
           value = w->spec->precision == BP_BF16 ? sizeof(uint16_t) : FLOAT;

    if (E > 1 && flops > 0)
        add(w, &(bp_step_op){BP_STEP_EXPERTS, .rounds = log2_up(E),
                             .flops = (backward ? 8.0 / 3 : 1) * flops,
                             .bytes = rows * (backward ? 2 * width * value + FLOAT : width * value),
                             .back = rows * (width + backward) * FLOAT});
}

/* Waits for the parameters of block k, and copies them for products. */
static void add_ready(writer *w, int k)
{
    for (int g = 0; g < w->network->group_count; g++) {
        const bp_group *group = &w->network->groups[g];

        if (group->block != k || group->frozen)
            continue;
        add(w, &(bp_step_op){BP_STEP_GATHERED, .group = g});
        add_compute(w, 0, (double)group->padded * (w->copies > 0 ? FLOAT + w->copies : 0));
    }
}

/* Adds the sums that a leaf of the tree completes; after the last leaf, also starts the sums over
 * data ranks. */
static void add_leaf(writer *w, const bp_action *action, int k)
{
    int merges = w->spec->tree ? bp_tree_merges(action->micro_batch, w->pipeline.micro_batches) : 0;

    for (int g = w->network->group_count - 1; g >= 0; g--) {
        const bp_group *group = &w->network->groups[g];

        if (group->block != k || group->frozen)
            continue;
        add_compute(w, 0, 3 * FLOAT * merges * (double)group->padded * bp_group_sums(group));
        if (action->micro_batch == w->pipeline.micro_batches - 1)
            add(w, &(bp_step_op){BP_STEP_REDUCE, .group = g});
    }
}

/* ---- a micro-batch through a chunk ---- */

static void add_forward(writer *w, const bp_action *action, int first_number)
{
    int first = bp_network_chunk_first(w->network, action->chunk),
        end = w->network->chunk_end[action->chunk];
    double bytes = FLOAT * (double)w->messages[action->chunk].input;

    if (bp_action_receives(&w->pipeline, w->stage, action))
        add(w, &(bp_step_op){BP_STEP_RECEIVE, .bytes = bytes});
    for (int k = first; k < end; k++) {
        int number = first_number + k - first;

        if (action->micro_batch == 0)
            add_ready(w, k);
        add_compute(w, block_flops(w, number), 0);
        add_experts(w, number, false);
        add_tensor(w, number, false);
    }
    if (bp_action_sends(&w->pipeline, w->stage, action))
        add(w, &(bp_step_op){BP_STEP_SEND,
                             .bytes = FLOAT * (double)w->messages[action->chunk].output});
}

static void add_backward(writer *w, const bp_action *action, int first_number)
{
    int first = bp_network_chunk_first(w->network, action->chunk),
        end = w->network->chunk_end[action->chunk];
    double bytes = FLOAT * (double)w->messages[action->chunk].output_gradient;
    bool sends = bp_action_sends(&w->pipeline, w->stage, action);

    if (bp_action_receives(&w->pipeline, w->stage, action))
        add(w, &(bp_step_op){BP_STEP_RECEIVE, .backward = true, .bytes = bytes});
    for (int k = end - 1; k >= first; k--) {
        int number = first_number + k - first;

        add_compute(w, (w->spec->recompute ? 3 : 2) * block_flops(w, number), 0);
        if (w->spec->recompute)
            add_experts(w, number, false);
        add_experts(w, number, true);
        add_tensor(w, number, true);
        if (!sends)
            add_leaf(w, action, k);
    }
    if (sends)
        add(w, &(bp_step_op){BP_STEP_SEND, .backward = true,
                             .bytes = FLOAT * (double)w->messages[action->chunk].input_gradient});
    for (int k = end - 1; k >= first && sends; k--)
        add_leaf(w, action, k);
}

static void add_actions(writer *w)
{
    int64_t count = bp_schedule_actions(&w->pipeline);
    bp_action *actions = bp_alloc("scale.step", count, sizeof *actions);
    int first[BP_NETWORK_CHUNKS], end; /* of the model's blocks */

    for (int c = 0; c < w->pipeline.chunks; c++)
        bp_model_chunk(w->shape,
                       &(bp_model_place){w->stage, w->pipeline.stages, c, w->pipeline.chunks},
                       &first[c], &end);
    bp_schedule_fill(actions, &w->pipeline, w->stage);
    for (int64_t k = 0; k < count; k++)
        (actions[k].backward ? add_backward : add_forward)(w, &actions[k], first[actions[k].chunk]);
    bp_free(actions);
}

/* ---- after the last micro-batch ---- */

static void add_update(writer *w, int g)
{
    int64_t first, count;
    int moments = bp_optimizer_moments(&w->spec->optimizer);

    bp_optimizer_shard(&w->mesh, &w->network->groups[g], &first, &count);
    add_compute(w, 0, (8.0 * moments + 12) * (double)count);
    add(w, &(bp_step_op){BP_STEP_GATHER, .group = g});
}

/* Adds the sums of parameters shared by tensor ranks or stages, the norm, and the update in the
 * order of blocks. */
static void add_end(writer *w)
{
    const bp_network *network = w->network;
    int data = log2_up(w->mesh.data_ranks), groups = 0, T = w->mesh.tensor_ranks;
    int64_t first, count;

    add(w, &(bp_step_op){BP_STEP_AGREE, .rounds = data + log2_up(w->pipeline.stages)});
    add(w, &(bp_step_op){BP_STEP_REDUCED});
    for (int g = 0; g < network->group_count; g++) {
        const bp_group *group = &network->groups[g];

        if (group->frozen)
            continue;
        groups++;
        bp_optimizer_shard(&w->mesh, group, &first, &count);
        if (T > 1 && group->replicated && (network->nn.sequence_parallel || group->partial))
            add(w, &(bp_step_op){BP_STEP_TENSOR, .rounds = 2,
                                 .bytes = 2 * FLOAT * (double)count * (T - 1) / T});
        if (group->tied && w->pipeline.stages > 1)
            add(w, &(bp_step_op){BP_STEP_TIED, .bytes = FLOAT * (double)count});
        add_compute(w, 0, FLOAT * (double)count);
    }
    add(w, &(bp_step_op){BP_STEP_AGREE, .rounds = data * groups + log2_up(w->pipeline.stages * T)});
    for (int b = 0; b < network->block_count; b++)
        for (int g = 0; g < network->group_count; g++)
            if (network->groups[g].block == b && !network->groups[g].frozen)
                add_update(w, g);
}

static void list_groups(writer *w)
{
    const bp_network *network = w->network;

    w->out->group_count = network->group_count;
    w->out->groups = bp_alloc("scale.step", network->group_count, sizeof *w->out->groups);
    for (int g = 0; g < network->group_count; g++) {
        int holders = bp_optimizer_holders(&w->mesh, &network->groups[g]);

        w->out->groups[g] = (bp_step_group){network->groups[g].padded / BP_NORM_BLOCK,
                                            BP_NORM_BLOCK, holders, w->mesh.data_ranks / holders};
    }
}

static void write_stage(writer *w)
{
    bp_stage_spec stage =
        bp_stage_spec_for(w->spec, w->shape, w->mesh.data_ranks, w->stage, w->pipeline.stages);
    bp_chunk_messages *messages = bp_alloc("scale.step", w->pipeline.chunks, sizeof *messages);
    bp_extent most = bp_stage_most(&stage, w->network);

    bp_stage_messages(messages, &stage, w->network);
    w->messages = messages;
    w->rows = (double)w->spec->micro_batch * (double)w->shape->context;
    w->copies =
        (double)bp_network_product_bytes(w->network, &most).copies / (double)w->network->floats;
    list_groups(w);
    add_actions(w);
    add_end(w);
    bp_free(messages);
}

bp_err bp_step_program_new(bp_step_program **out, const bp_mesh_shape *mesh,
                           const bp_engine_spec *spec, const bp_model_shape *shape)
{
    bp_step_program *self = bp_alloc("scale.step", 1, sizeof *self);
    bp_pipeline pipeline = {.schedule = spec->schedule,
                            .stages = mesh->pipeline,
                            .chunks = bp_engine_chunks(spec, mesh->pipeline),
                            .micro_batches = spec->batch / mesh->data / spec->micro_batch};
    int blocks = bp_model_blocks(shape);
    double *costs = bp_alloc("scale.step", blocks, sizeof *costs);
    bp_err err = BP_OK;

    for (int k = 0; k < blocks; k++)
        costs[k] = bp_model_block_cost(shape, k);
    self->mesh = *mesh;
    self->overlap = spec->overlap;
    self->value_bytes = (int)(spec->sums_bf16 ? sizeof(uint16_t) : sizeof(float));
    self->messages = pipeline.micro_batches * pipeline.chunks;
    self->tokens = (double)spec->batch * (double)shape->context;
    self->stages = bp_alloc("scale.step", mesh->pipeline, sizeof *self->stages);
    for (int s = 0; s < mesh->pipeline && err == BP_OK; s++) {
        writer w = {.spec = spec,
                    .shape = shape,
                    .pipeline = pipeline,
                    .out = &self->stages[s],
                    .costs = costs,
                    .stage = s};
        bp_network *network = NULL;
        bp_gemm *gemm = NULL;

        w.mesh = bp_engine_planned_mesh(mesh, s);
        err = bp_engine_planned_network(&network, &gemm, mesh, spec, shape, s);
        w.network = network;
        if (err == BP_OK)
            write_stage(&w);
        bp_network_free(&network);
        bp_gemm_free(&gemm);
    }
    bp_free(costs);
    if (err != BP_OK)
        bp_step_program_free(&self);
    *out = self;
    return err;
}

void bp_step_program_free(bp_step_program **program)
{
    bp_step_program *self = *program;

    if (!self)
        return;
    for (int s = 0; s < self->mesh.pipeline; s++) {
        bp_free(self->stages[s].ops);
        bp_free(self->stages[s].groups);
    }
    bp_free(self->stages);
    bp_free(self);
    *program = NULL;
}
