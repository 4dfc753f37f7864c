/* Gradients of log-probabilities with respect to the word vectors that a network reads: a batch
 * forward and backward through the stages, piece by piece, without gradients of parameters. Called
 * for explanations. */
#include "models/network/network_inside_priv.h"

#include "base/bounds.h"
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <string.h>

enum { TAG_FORWARD = 111, TAG_BACKWARD };

/* Activations between blocks, forward and backward, and the data that each block keeps for
 * backward. */
typedef struct gradient_memory {
    float *data, *gradients; /* of activations */
    char *kept;              /* [block_count] one after the other */
    char *some;              /* the most that a block keeps for half the windows, or for one */
    bp_arena scratch;
} gradient_memory;

static size_t kept_bytes(const bp_network *network, int block, const bp_extent *most)
{
    const bp_block *self = network->blocks[block];

    return bp_arena_bytes((int64_t)self->ops->saved_bytes(self, most), 1);
}

static bp_pass planned_pass(const bp_extent *most)
{
    return (bp_pass){.extent = *most, .B = most->B, .training = true};
}

/* The memory of a piece within `arena`, which is only counted if it has no base. */
static gradient_memory lay_out(const bp_network *network, const bp_extent *most, bp_arena *arena)
{
    bp_pass pass = planned_pass(most);
    bp_extent half = *most;
    int64_t between = bp_network_activation_floats(network, &pass), kept = 0, some = 0;
    gradient_memory memory = {.data = bp_arena_floats(arena, between),
                              .gradients = bp_arena_floats(arena, between)};

    half.B = (most->B + 1) / 2;
    for (int k = 0; k < network->block_count; k++) {
        int64_t bytes = (int64_t)kept_bytes(network, k, &half);

        kept += (int64_t)kept_bytes(network, k, most);
        some = bytes > some ? bytes : some;
    }
    memory.kept = bp_arena_place(arena, kept, 1);
    memory.some = bp_arena_place(arena, some, 1);
    memory.scratch.size_bytes = bp_network_scratch_bytes(network, most, true);
    memory.scratch.base = bp_arena_place(arena, (int64_t)memory.scratch.size_bytes, 1);
    return memory;
}

size_t network_gradient_bytes(const bp_network *network, const bp_example_maker *maker,
                              int64_t windows)
{
    bp_extent most = bp_extent_of(&maker->form, windows);
    bp_arena count = {.used_bytes = network_example_bytes(maker, windows)};

    (void)lay_out(network, &most, &count);
    return count.used_bytes;
}

static bp_err reserve(network_model *self, const bp_example_maker *maker, int64_t windows)
{
    size_t bytes = network_gradient_bytes(self->network, maker, windows);

    if (bytes <= self->gradient_memory_bytes)
        return BP_OK;
    bp_free(self->gradient_memory);
    self->gradient_memory_bytes = 0;
    self->gradient_memory = bp_try_alloc("model.gradients", (int64_t)bytes, 1);
    if (!self->gradient_memory)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at the gradients of %lld windows of %lld tokens, which "
                       "take %.1f MiB; use more tensor or pipeline ranks",
                       (long long)windows, (long long)maker->form.stream[0].T,
                       (double)bytes / 1048576);
    self->gradient_memory_bytes = bytes;
    return BP_OK;
}

static bp_activations laid_out(const bp_network *network, const bp_activations *of,
                               const bp_pass *pass, float *data, bool gradients)
{
    bp_activations activations = *of;

    bp_activations_lay(&activations, &network->nn, pass, data, gradients);
    return activations;
}

/* Messages between this stage and the one before it, or the next one. */
static int64_t message_bytes(const bp_network *network, const bp_activations *of,
                             const bp_pass *pass, bool gradients)
{
    return bp_activations_floats(of, &network->nn, pass, gradients) * (int64_t)sizeof(float);
}

/* Blocks [first, end) of the stage. `repeats`: the data kept by the pass is copied for that many
 * windows. */
static void run_blocks(const network_model *self, bp_pass *pass, const gradient_memory *memory,
                       float *data, int first, int end, const bp_extent *repeats)
{
    const bp_network *network = self->network;
    const bp_extent *extent = repeats ? repeats : &pass->extent;
    char *kept = memory->kept;

    for (int k = 0; k < end; kept += kept_bytes(network, k++, extent)) {
        bp_activations activations =
            laid_out(network, bp_network_at(network, k), pass, data, false);

        if (k < first)
            continue;
        if (repeats) /* the block before had the memory */
            bp_bounds_set(memory->some, kept_bytes(network, k, &pass->extent), 0);
        bp_block_forward(network->blocks[k], pass, &activations, repeats ? memory->some : kept);
        if (repeats)
            (void)bp_block_repeat(network->blocks[k], repeats, &pass->extent, kept, memory->some);
    }
}

static void receive(const network_model *self, const bp_pass *pass, float *data)
{
    if (self->mesh->pipeline_rank > 0)
        bp_recv(data, message_bytes(self->network, &self->network->inputs[0], pass, false),
                self->mesh->pipeline_rank - 1, TAG_FORWARD, self->mesh->pipeline);
}

static void run_forward(const network_model *self, bp_pass *pass, const gradient_memory *memory)
{
    const bp_network *network = self->network;
    const bp_activations *output = &network->outputs[network->block_count - 1];

    receive(self, pass, memory->data);
    run_blocks(self, pass, memory, memory->data, 0, network->block_count, NULL);
    if (!network_is_last(self))
        bp_send(memory->data, message_bytes(network, output, pass, false),
                self->mesh->pipeline_rank + 1, TAG_FORWARD, self->mesh->pipeline);
}

/* As run_forward, without the head, for windows that are alike: `some` is a pass over the first
 * ones, in the memory of the later gradients. */
static void run_forward_alike(const network_model *self, bp_pass *some,
                              const gradient_memory *memory, const bp_extent *all)
{
    const bp_network *network = self->network;
    int last = network->block_count - 1;

    receive(self, some, memory->gradients);
    run_blocks(self, some, memory, memory->gradients, 0, last + !network_is_last(self), all);
    if (!network_is_last(self))
        bp_send(memory->gradients, message_bytes(network, &network->outputs[last], some, false),
                self->mesh->pipeline_rank + 1, TAG_FORWARD, self->mesh->pipeline);
}

/* The head after that, which reads targets, for all windows. */
static void run_head(const network_model *self, bp_pass *pass, const bp_pass *some,
                     const gradient_memory *memory)
{
    const bp_network *network = self->network;
    int last = network->block_count - 1;
    const bp_activations *at = bp_network_at(network, last);
    bp_activations from = laid_out(network, at, some, memory->gradients, false),
                   to = laid_out(network, at, pass, memory->data, false);

    if (!network_is_last(self))
        return;
    bp_activations_repeat(&to, &from, &network->nn, pass, some);
    run_blocks(self, pass, memory, memory->data, last, last + 1, NULL);
}

/* After the model's last block there is no gradient yet, except what that block writes. */
static void begin_backward(const network_model *self, bp_pass *pass, const gradient_memory *memory)
{
    const bp_mesh *mesh = self->mesh;
    const bp_network *network = self->network;
    int last = network->block_count - 1;
    const bp_activations *at = bp_network_at(network, last);

    if (network_is_last(self))
        bp_zero(memory->gradients, bp_activations_floats(at, &network->nn, pass, true));
    else
        bp_recv(memory->gradients, message_bytes(network, &network->outputs[last], pass, true),
                mesh->pipeline_rank + 1, TAG_BACKWARD, mesh->pipeline);
}

static void run_backward(const network_model *self, bp_pass *pass, const gradient_memory *memory)
{
    const bp_mesh *mesh = self->mesh;
    const bp_network *network = self->network;
    char *kept = memory->kept;

    for (int k = 0; k < network->block_count; k++)
        kept += kept_bytes(network, k, &pass->extent);
    begin_backward(self, pass, memory);
    for (int k = network->block_count - 1; k >= 0; k--) {
        bp_activations gradients =
            laid_out(network, bp_network_at(network, k), pass, memory->gradients, true);

        kept -= kept_bytes(network, k, &pass->extent);
        bp_block_backward(network->blocks[k], pass, &gradients, kept);
    }
    if (mesh->pipeline_rank > 0)
        bp_send(memory->gradients, message_bytes(network, &network->inputs[0], pass, true),
                mesh->pipeline_rank - 1, TAG_BACKWARD, mesh->pipeline);
}

/* From the first stage to all. */
static void share(const network_model *self, float *floats, int64_t count)
{
    bp_bcast_bytes(floats, count * (int64_t)sizeof *floats, 0, self->mesh->pipeline);
}

/* A pass over windows [first, first + windows) of the batch, with memory for it. */
static bp_pass begin_pass(network_model *self, const network_pieces *pieces,
                          const bp_model_batch *batch, int64_t first, int64_t windows)
{
    bp_pass pass = network_piece_pass(self, pieces, batch, first, windows, self->gradient_memory);

    pass.training = true;
    pass.explains = true;
    for (int term = 0; term < BP_TERMS; term++)
        pass.loss_weight[term] = -1; /* the loss is -log p */
    return pass;
}

/* Can one forward pass serve several windows? */
static bool shares(const network_model *self, const bp_model_batch *batch)
{
    return self->repeats && batch->alike > 0;
}

/* Windows of a piece: windows that are alike stay together, if there is room for two. */
static int64_t piece_windows(const network_model *self, const bp_model_batch *batch)
{
    int64_t each = network_piece_windows(batch->windows, self->mesh->pipeline_ranks);

    return shares(self, batch) && each >= 2 * batch->alike ? each / batch->alike * batch->alike
                                                           : each;
}

/* Windows [first, first + windows) of the batch, forward and backward. */
static void run_piece(network_model *self, const network_pieces *pieces,
                      const bp_model_batch *batch, int64_t first, int64_t windows,
                      float *const vector_gradients[BP_STREAMS])
{
    bool alike = shares(self, batch) && windows > batch->alike && first % batch->alike == 0 &&
                 windows % batch->alike == 0;
    bp_arena arena = {.base = self->gradient_memory,
                      .size_bytes = self->gradient_memory_bytes,
                      .used_bytes = network_example_bytes(&pieces->maker, windows)};
    bp_extent extent = bp_extent_of(&pieces->maker.form, windows);
    gradient_memory memory = lay_out(self->network, &extent, &arena);
    bp_pass pass, some;

    if (alike) { /* its examples run before those of all windows are made in the same memory */
        some = begin_pass(self, pieces, batch, first, batch->alike);
        some.scratch = &memory.scratch;
        run_forward_alike(self, &some, &memory, &extent);
    }
    pass = begin_pass(self, pieces, batch, first, windows);
    pass.scratch = &memory.scratch;
    for (int stream = 0; stream < BP_STREAMS; stream++)
        pass.vector_gradients[stream] = vector_gradients[stream];
    if (alike)
        run_head(self, &pass, &some, &memory);
    else
        run_forward(self, &pass, &memory);
    run_backward(self, &pass, &memory);
}

/* The text's vectors are read by the encoder and, a place later, by the decoder. */
static void add_mirrored(const network_model *self, const bp_model_batch *batch, int64_t first,
                         int64_t windows, float *gradients)
{
    int64_t T = batch->length, E = self->face.info.vector_width;

    for (int64_t w = first; w < first + windows && network_is_first(self); w++)
        bp_add(gradients + w * T * E, self->mirrored + (w * T + 1) * E, (T - 1) * E);
}

bp_err network_differentiate(bp_model *model, const bp_model_batch *batch, float *gradients,
                             float *source_gradients)
{
    network_model *self = (network_model *)model;
    const bp_mesh *mesh = self->mesh;
    int64_t each = piece_windows(self, batch), E = model->info.vector_width, T = batch->length,
            S = batch->source_length;
    network_pieces pieces;
    bp_err err;

    BP_ASSERT(E > 0 && !bp_gemm_is_forward_only(self->gemm) && batch->windows > 0);
    err = network_pieces_begin(&pieces, self, batch);
    pieces.trains = bp_task_has_head(&self->shape.task);
    if (err == BP_OK)
        err = reserve(self, &pieces.maker, each);
    err = bp_agree(mesh->model, err);
    for (int64_t first = 0; first < batch->windows && err == BP_OK; first += each) {
        int64_t windows = first + each < batch->windows ? each : batch->windows - first;
        float *to[BP_STREAMS] = {gradients + first * T * E,
                                 batch->sources ? source_gradients + first * S * E : NULL};

        if (network_mirrors(&pieces) && network_is_first(self)) {
            to[1] = to[0];
            to[0] = self->mirrored + first * T * E;
        }
        run_piece(self, &pieces, batch, first, windows, to);
        if (network_mirrors(&pieces))
            add_mirrored(self, batch, first, windows, gradients);
    }
    if (err != BP_OK)
        return err;
    share(self, gradients, batch->windows * T * E);
    if (batch->sources)
        share(self, source_gradients, batch->windows * S * E);
    return BP_OK;
}

void network_look_up(bp_model *model, bool of_source, const int32_t *tokens, int64_t count,
                     float *rows, float *scratch)
{
    network_model *self = (network_model *)model;

    if (self->mesh->pipeline_rank == 0)
        bp_embedding_rows(self->network->blocks[0], of_source, tokens, count, rows, scratch);
    share(self, rows, count * model->info.vector_width);
}

void network_find_vectors(network_model *self)
{
    bp_model_info *info = &self->face.info;
    const bp_network *network = self->network;
    bp_extent two = {2, {1, 1}, 0}, one = {1, {1, 1}, 0};

    if (self->mesh->pipeline_rank == 0)
        info->vector_width = bp_embedding_width(self->network->blocks[0]);
    bp_bcast_bytes(&info->vector_width, sizeof info->vector_width, 0, self->mesh->pipeline);
    self->repeats = network->changes_after == 0 && !network->nn.sequence_parallel;
    for (int k = 0; k < network->block_count - network_is_last(self) && self->repeats; k++)
        self->repeats = bp_block_repeat(network->blocks[k], &two, &one, NULL, NULL);
    self->repeats = bp_all_max_int(!self->repeats, self->mesh->pipeline) == 0;
}
