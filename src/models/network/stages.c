/* Cuts blocks into pipeline stages, and makes a stage's part of the network. */
#include "models/stack/stack.h"
#include "models/task/task.h"

#include <string.h>

/* Costs by which the pipeline is cut, for each block. */
typedef struct costs {
    double *block;
    int blocks;
} costs;

/* Owns: the caller's, bp_free(). */
static costs costs_of(const bp_model_shape *shape)
{
    int blocks = bp_model_blocks(shape);
    costs out = {bp_alloc("nn.costs", blocks, sizeof(double)), blocks};

    for (int block = 0; block < blocks; block++)
        out.block[block] = bp_model_block_cost(shape, block);
    return out;
}

/* The cut in which no stage costs more than `limit` except those of a single block, and every stage
 * has a block. Returns the number of stages; its stage `stage` is blocks [*first, *end). */
static int cut_under(const costs *of, double limit, int stages, int stage, int *first, int *end)
{
    int blocks = of->blocks, used = 0;
    double cost = 0;

    *first = 0;
    *end = blocks;
    for (int block = 0; block < blocks; block++) {
        bool must_cut = used < stages - 1 && blocks - block <= stages - 1 - used;
        if (block > 0 && (must_cut || cost + of->block[block] > limit)) {
            if (used == stage)
                *end = block;
            used++;
            if (used == stage)
                *first = block;
            cost = 0;
        }
        cost += of->block[block];
    }
    return used + 1;
}

/* As bp_model_stage, for a model with these block costs. */
static void cut(const costs *of, int stage, int stages, int *first, int *end)
{
    double low = 0, high = 0;

    BP_ASSERT(stage < stages && stages <= of->blocks);
    for (int block = 0; block < of->blocks; block++)
        high += of->block[block];
    for (int round = 0; round < 60; round++) { /* the smallest limit that needs no more stages */
        double middle = (low + high) / 2;
        if (cut_under(of, middle, stages, stage, first, end) <= stages)
            high = middle;
        else
            low = middle;
    }
    cut_under(of, high, stages, stage, first, end);
}

void bp_model_stage(const bp_model_shape *shape, int stage, int stages, int *first, int *end)
{
    costs of = costs_of(shape);

    cut(&of, stage, stages, first, end);
    bp_free(of.block);
}

/* Inner blocks of each chunk of a stage: the stage's own, distributed so that its chunks have
 * similar costs; the model's last block counts for the last chunk. False if a chunk would have no
 * block. */
static bool deal_blocks(const costs *of, int stage, int stages, int chunks, int *counts)
{
    int first, end, last = of->blocks - 1;
    bool has_last = stage == stages - 1, fits = true;
    double sums[BP_NETWORK_CHUNKS] = {0};

    cut(of, stage, stages, &first, &end);
    memset(counts, 0, (size_t)chunks * sizeof *counts);
    if (has_last)
        sums[chunks - 1] = of->block[last];
    for (int block = first; block < end; block++) {
        int cheapest = 0;

        if (block == 0 || block == last)
            continue;
        for (int c = 1; c < chunks; c++)
            cheapest = sums[c] < sums[cheapest] ? c : cheapest;
        sums[cheapest] += of->block[block];
        counts[cheapest]++;
    }
    for (int c = 0; c < chunks; c++)
        fits = fits && (counts[c] > 0 || (stage == 0 && c == 0) || (has_last && c == chunks - 1));
    return fits;
}

static void cut_chunk(const costs *of, const bp_model_place *at, int *first, int *end)
{
    int run = at->chunk * at->stages + at->stage, before = 0, own = 0;
    int counts[BP_NETWORK_CHUNKS];

    BP_ASSERT(at->chunks <= BP_NETWORK_CHUNKS && at->chunk < at->chunks);
    for (int stage = 0; stage < at->stages; stage++) {
        if (!deal_blocks(of, stage, at->stages, at->chunks, counts)) {
            cut(of, run, at->stages * at->chunks, first, end);
            return;
        }
        for (int c = 0; c < at->chunks; c++) {
            int other = c * at->stages + stage;

            before += other < run ? counts[c] : 0;
            own += other == run ? counts[c] : 0;
        }
    }
    *first = run == 0 ? 0 : 1 + before;
    *end = 1 + before + own + (run == at->stages * at->chunks - 1);
}

void bp_model_chunk(const bp_model_shape *shape, const bp_model_place *at, int *first, int *end)
{
    costs of = costs_of(shape);

    cut_chunk(&of, at, first, end);
    bp_free(of.block);
}

/* Blocks of all chunks of a stage. */
static int count_blocks(const bp_model_shape *shape, int stage, int stages, int chunks)
{
    int count = 0, first, end;

    for (int c = 0; c < chunks; c++) {
        bp_model_chunk(shape, &(bp_model_place){stage, stages, c, chunks}, &first, &end);
        count += end - first;
    }
    return count;
}

/* Elements of all params except an adapter's; or of those that train. */
static int64_t count_parameters(const bp_network *network, bool trained)
{
    int64_t count = 0;

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count &&
                        !(trained ? network->groups[g].frozen : network->groups[g].added);
             k++)
            count += bp_param_floats(&network->groups[g].params[k]);
    return count;
}

/* What an adapter adds to the last block. */
static void adapt_block(bp_network *network, const bp_adapter *adapter)
{
    bp_block *block = network->blocks[network->block_count - 1];
    bool lora = adapter->kind == BP_ADAPTER_LORA;
    bp_group *split = NULL, *whole;

    if (!block->ops->adapt)
        return;
    if (lora) {
        split = bp_network_add_group(network, false);
        split->block = network->block_count - 1;
        split->added = true;
    }
    whole = bp_network_add_group(network, true);
    whole->block = network->block_count - 1;
    whole->added = true;
    whole->partial = lora;
    block->ops->adapt(block, adapter, split, whole);
}

/* 0 for the head, 1 for the last layer; for what comes before all layers, their number plus 1. */
static int64_t depth_of(const bp_model_shape *shape, int number)
{
    bp_backbone backbone = bp_model_has_depth(shape) ? shape->family->blocks->backbone(shape)
                                                     : (bp_backbone){.layers_from = -1};
    int64_t layer = number - backbone.layers_from;

    if (backbone.layers_from < 0 || number >= backbone.blocks)
        return 0;
    return layer < 0 ? shape->layers + 1 : shape->layers - layer;
}

bool bp_model_has_depth(const bp_model_shape *shape)
{
    return bp_family_has_backbone(shape->family) && !shape->family->source &&
           (bp_task_has_head(&shape->task) || !shape->family->whole_rows);
}

int bp_model_state_block(const bp_model_shape *shape, int64_t layer)
{
    return shape->family->blocks->backbone(shape).layers_from + (int)layer - 1;
}

/* The last block compares its states with a teacher's, if requested. */
static void match_block(bp_network *network, const bp_model_shape *shape, int number)
{
    const bp_state_matches *states = &shape->states;

    for (int k = 0; k < (int)states->count; k++) {
        bp_state_match match = {k, states->layer[k], shape->width, states->columns};
        bp_block **block = &network->blocks[network->block_count - 1];
        bp_group *group = NULL;

        if (number != bp_model_state_block(shape, match.layer))
            continue;
        if (match.C != match.columns) {
            group = bp_network_add_group(network, true);
            group->block = network->block_count - 1;
            group->added = group->passing = true;
        }
        bp_state_match_new(block, *block, &match, group);
    }
}

/* The gains of norms, which would be initialised to 1. */
static void begin_at_one(bp_group *group)
{
    for (int k = 0; k < group->count; k++)
        if (group->params[k].init == BP_INIT_ONE) {
            group->params[k].init = BP_INIT_ZERO;
            group->params[k].from_one = true;
        }
}

/* A block of the family, or of the task's head; parameters that training does not change have no
 * moments. */
static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    const bp_model_family *family = shape->family;
    bool of_task = bp_task_has_head(&shape->task), adapts = shape->adapter.kind != BP_ADAPTER_NONE;
    int backbone = of_task ? family->blocks->backbone(shape).blocks : 0,
        before = network->group_count;

    adapts = adapts && !(of_task && number >= backbone);
    if (of_task && number >= backbone)
        bp_task_add_block(network, shape, number - backbone, shared);
    else
        family->blocks->add(network, shape, number, shared);
    if (adapts)
        adapt_block(network, &shape->adapter);
    match_block(network, shape, number);
    for (int g = before; g < network->group_count; g++) {
        bp_group *group = &network->groups[g];

        if (family->stack && family->stack->gains_from_one)
            begin_at_one(group);
        group->depth = depth_of(shape, number);
        group->frozen = group->frozen || number < shape->task.frozen || (adapts && !group->added);
    }
}

static void add_common(bp_network *network, const bp_model_shape *shape, int stage)
{
    int before = network->group_count;

    shape->family->blocks->add_common(network, shape, stage);
    for (int g = before; g < network->group_count; g++)
        network->groups[g].frozen = shape->adapter.kind != BP_ADAPTER_NONE;
}

bp_err bp_model_network_new_chunks(bp_network **out, const bp_nn *nn, const bp_model_shape *shape,
                                   int stage, int stages, int chunks)
{
    const bp_model_family *family = shape->family;
    int blocks = count_blocks(shape, stage, stages, chunks);
    bool adapts = shape->adapter.kind != BP_ADAPTER_NONE;
    bp_network *network = NULL;
    bp_param *shared = NULL;

    bp_network_new(&network, nn, blocks,
                   (3 + 2 * adapts + bp_stack_is_hybrid(family->stack) +
                    (shape->stack.experts > 0) + (shape->stack.relative_layers > 0)) *
                           blocks +
                       1 + (shape->softmaxes > 1) +
                       (family->blocks->add_common ? BP_MODEL_COMMON * chunks : 0) +
                       2 * bp_task_keeps_words(shape) + (int)shape->states.count);
    BP_ASSERT(stages > 1 || chunks == 1);
    if (family->blocks->begin && nn->gemm) /* else its parameters are only counted */
        family->blocks->begin(network, shape);
    if (family->blocks->add_shared &&
        (!bp_task_has_head(&shape->task) || bp_task_keeps_words(shape)))
        shared = family->blocks->add_shared(network, shape, stage, stages, blocks);
    if (shared) {
        network->groups[0].frozen = adapts || shape->task.frozen > 0;
        network->groups[0].depth = depth_of(shape, 0);
    }
    for (int c = 0; c < chunks; c++) {
        int first, end;

        bp_model_chunk(shape, &(bp_model_place){stage, stages, c, chunks}, &first, &end);
        if (first > 0)
            network->inputs[c] = bp_model_block_output(shape, first - 1);
        if (family->blocks->add_common)
            add_common(network, shape, stage);
        for (int number = first; number < end; number++) {
            add_block(network, shape, number, shared);
            if (number < bp_model_blocks(shape) - 1)
                network->outputs[network->block_count - 1] = bp_model_block_output(shape, number);
        }
        bp_network_end_chunk(network);
    }
    *out = network;
    return BP_OK;
}

bp_err bp_model_network_new(bp_network **out, const bp_nn *nn, const bp_model_shape *shape,
                            int stage, int stages)
{
    return bp_model_network_new_chunks(out, nn, shape, stage, stages, 1);
}

static int64_t parameters_of(const bp_model_shape *shape, bool trained)
{
    const bp_nn nn = {.tensor = MPI_COMM_NULL, .tensor_ranks = 1};
    bp_network *network = NULL;
    int64_t count = 0;

    if (bp_model_network_new(&network, &nn, shape, 0, 1) == BP_OK)
        count = count_parameters(network, trained);
    bp_network_free(&network);
    return count;
}

int64_t bp_model_parameters(const bp_model_shape *shape)
{
    return shape->family->blocks ? parameters_of(shape, false)
                                 : shape->family->facts(shape).parameters;
}

int64_t bp_model_trained_parameters(const bp_model_shape *shape)
{
    return parameters_of(shape, true);
}
