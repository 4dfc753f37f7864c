/* A batch of windows through the stages of a network, piece by piece. Called by network_model.c for
 * scoring. */
#include "models/network/decoding_priv.h"
#include "models/network/network_inside_priv.h"
#include "models/task/task.h"

#include "base/bounds.h"
#include "base/err.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <string.h>

#define TAG_HIDDEN 101

/* A batch goes through the pipeline in this many pieces per stage, so that stages work side by
 * side. */
#define PIECES_PER_STAGE 2

/* Targets laid out as in training: that of a whole text is the window's first, those of a span's
 * ends are at the first positions. */
static void lay_targets(const bp_batch_form *form, const int32_t *targets, bp_example *out)
{
    int64_t T = form->stream[0].T, first = 0;
    bool ends = form->targets[0] == 1 && form->targets[1] == 1;

    while (!ends && first < T - 1 && targets[first] < 0)
        first++;
    for (int k = 0; k < BP_TERMS && form->targets[k] > 0; k++)
        for (int64_t t = 0; t < form->targets[k]; t++)
            out->targets[k][t] = ends                    ? targets[k]
                                 : form->targets[k] == 1 ? targets[first]
                                                         : targets[t];
}

/* A window of a masked model is already framed and masked, one of a task framed: its positions end
 * at the first -1. */
static void make_framed(const bp_example_maker *self, const int32_t *tokens, int64_t step,
                        int64_t slot, bp_example *out)
{
    const network_pieces *pieces = self->rules;
    const int32_t *segments = pieces ? pieces->given.segments : NULL;
    int64_t T = self->form.stream[0].T, length = 0;

    (void)step;
    for (int64_t t = 0; t < T && out->segments[0]; t++)
        out->segments[0][t] = segments ? segments[(slot - pieces->given.first_slot) * T + t] : 0;
    for (int64_t t = 0; t < T; t++) {
        out->inputs[0][t] = tokens[t] < 0 ? 0 : tokens[t];
        length += tokens[t] >= 0;
    }
    *out->length[0] = (int32_t)length;
    if (pieces && pieces->trains)
        lay_targets(&self->form, pieces->given.targets + (slot - pieces->given.first_slot) * T,
                    out);
    if (self->form.stream[1].T > 0 && length > 0)
        bp_task_mirror(out, T, (int32_t)pieces->given.start);
}

bp_example_maker network_maker_of(const bp_model_shape *shape, int64_t length,
                                  int64_t source_length)
{
    const bp_objective *objective = bp_model_objective(shape);

    if (bp_model_reads_source(shape))
        return (bp_example_maker){
            .form = {.stream = {{.T = length}, {.T = source_length, .has_lengths = true}},
                     .targets = {length}}};
    if (bp_task_has_head(&shape->task)) {
        bp_example_maker maker = objective->maker(shape, length, NULL);

        maker.window = length;
        maker.make = make_framed;
        return maker;
    }
    if (objective->masks)
        return (bp_example_maker){.form = {.stream = {{.T = length, .has_lengths = true}}},
                                  .window = length,
                                  .make = make_framed};
    return objective->maker(shape, length, NULL);
}

/* Windows are examples as they are with a single stream without lengths, or if both come with the
 * batch; else examples are made of them. */
size_t network_example_bytes(const bp_example_maker *maker, int64_t windows)
{
    const bp_batch_form *form = &maker->form;
    bool plain = !maker->make || (form->stream[1].T == 0 && !form->stream[0].has_lengths);

    return plain ? 0 : bp_arena_bytes((int64_t)bp_batch_bytes(form, windows), 1);
}

size_t network_piece_bytes(const bp_network *network, const bp_example_maker *maker,
                           int64_t windows)
{
    bp_extent most = bp_extent_of(&maker->form, windows);
    bp_pass pass = {.extent = most, .B = windows};

    return network_example_bytes(maker, windows) +
           bp_arena_bytes(bp_network_activation_floats(network, &pass), sizeof(float)) +
           bp_network_scratch_bytes(network, &most, false);
}

int64_t network_piece_windows(int64_t windows, int stages)
{
    int64_t pieces = stages > 1 ? PIECES_PER_STAGE * stages : 1;

    return (windows + pieces - 1) / pieces;
}

/* Pieces may be longer than windows in training. */
static bp_err reserve_window(network_model *self, int64_t tokens)
{
    int32_t *window;

    if (tokens <= self->window_capacity)
        return BP_OK;
    window = bp_try_realloc("model", self->window, tokens, sizeof *window);
    if (!window)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at a window of %lld tokens; use a smaller score.context",
                       (long long)tokens);
    self->window = window;
    self->window_capacity = tokens;
    return BP_OK;
}

static bp_err reserve(network_model *self, const bp_example_maker *maker, int64_t windows)
{
    size_t bytes = network_piece_bytes(self->network, maker, windows);
    int64_t length = maker->form.stream[0].T;

    if (bytes <= self->memory_bytes)
        return BP_OK;
    bp_free(self->memory);
    self->memory_bytes = 0;
    self->memory = bp_try_alloc("model.scoring", (int64_t)bytes, 1);
    if (!self->memory)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at a batch of %lld windows of %lld tokens, which takes "
                       "%.1f MiB; use more "
                       "tensor or pipeline ranks",
                       (long long)windows, (long long)length, (double)bytes / 1048576);
    self->memory_bytes = bytes;
    return BP_OK;
}

/* Allocate for the states at the end of the batch's windows; all blocks find them there. */
static bp_err reserve_kept(network_model *self, const bp_model_batch *batch, int64_t pass)
{
    bp_network *network = self->network;
    int64_t number = pass - BP_MODEL_NO_DROPOUT, windows = batch->first_window + batch->windows;

    if (network->carry_count == 0 || !(batch->resumes || batch->suspends))
        return BP_OK;
    if (number >= self->kept_count) {
        self->kept = bp_realloc("model.scoring", self->kept, number + 1, sizeof *self->kept);
        memset(self->kept + self->kept_count, 0,
               (size_t)(number + 1 - self->kept_count) * sizeof *self->kept);
        self->kept_count = number + 1;
    }
    kept_states *kept = &self->kept[number];
    if (!kept->rows)
        kept->rows = bp_alloc("model.scoring", network->carry_count, sizeof *kept->rows);
    for (int k = 0; k < network->carry_count; k++) {
        bp_carry *carry = &network->carries[k];

        if (windows > kept->windows) {
            float *rows = bp_try_realloc("model.scoring", kept->rows[k], windows * carry->columns,
                                         sizeof *rows);
            if (!rows)
                return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                               "memory is short: at the states of %lld windows; use more tensor or "
                               "pipeline ranks",
                               (long long)windows);
            kept->rows[k] = rows;
        }
        carry->kept = kept->rows[k];
    }
    kept->windows = windows > kept->windows ? windows : kept->windows;
    return BP_OK;
}

/* Memory for a pass in which a rank has `rows` rows: the rows are other ranks', and their memory
 * follows the `bytes` of this rank's batch. */
static void reserve_for_others(network_model *self, size_t bytes, int64_t rows)
{
    bytes += bp_network_scratch_bytes(self->network, &(bp_extent){rows, {1}}, false);
    if (bytes <= self->memory_bytes)
        return;
    bp_free(self->memory);
    self->memory = bp_alloc("model.scoring", (int64_t)bytes, 1);
    self->memory_bytes = bytes;
}

/* Some windows through this rank's stage; without the head if its input is requested, which is then
 * in the piece's memory, returned here. */
static float *run_piece(network_model *self, bp_pass *pass, size_t used, bool head)
{
    const bp_mesh *mesh = self->mesh;
    const bp_network *network = self->network;
    const bp_nn *nn = &network->nn;
    bp_arena arena = {.base = self->memory, .size_bytes = self->memory_bytes, .used_bytes = used};
    int blocks = network->block_count - (network_is_last(self) && !head ? 1 : 0);
    float *data = bp_arena_take(&arena, bp_network_activation_floats(network, pass), sizeof(float));

    pass->scratch = &arena;
    if (mesh->pipeline_rank > 0)
        bp_recv(data,
                bp_activations_floats(&network->inputs[0], nn, pass, false) *
                    (int64_t)sizeof(float),
                mesh->pipeline_rank - 1, TAG_HIDDEN, mesh->pipeline);
    for (int k = 0; k < blocks; k++) {
        bp_activations activations = *bp_network_at(network, k);

        bp_activations_lay(&activations, nn, pass, data, false);
        if (pass->probe)
            pass->probe->block = self->first_block + k;
        bp_block_forward(network->blocks[k], pass, &activations, NULL);
    }
    if (!network_is_last(self))
        bp_send(data,
                bp_activations_floats(&network->outputs[blocks - 1], nn, pass, false) *
                    (int64_t)sizeof(float),
                mesh->pipeline_rank + 1, TAG_HIDDEN, mesh->pipeline);
    pass->scratch = NULL; /* it was this function's */
    return data;
}

/* The inputs of each window: up to its last target, or all if it has no target. */
static bp_err find_lengths(network_model *self, const bp_model_batch *batch)
{
    int64_t T = batch->length;

    if (batch->windows > self->length_capacity) {
        int32_t *lengths =
            bp_try_realloc("model.scoring", self->lengths, batch->windows, sizeof *lengths);
        if (!lengths)
            return bp_fail_memory("the lengths of windows", batch->windows, sizeof *lengths);
        self->lengths = lengths;
        self->length_capacity = batch->windows;
    }
    for (int64_t w = 0; w < batch->windows; w++) {
        int64_t length = T;

        while (length > 0 && batch->targets[w * T + length - 1] < 0)
            length--;
        self->lengths[w] = (int32_t)(length > 0 ? length : T);
    }
    return BP_OK;
}

/* Windows [first, first + windows) of a batch in the network's form, with the batch's targets; what
 * is made for them is in `bytes`. */
static bp_batch make_piece(network_model *self, const network_pieces *pieces,
                           const bp_model_batch *batch, int64_t first, int64_t windows, char *bytes)
{
    const bp_example_maker *maker = &pieces->maker;
    bool trains = pieces->trains && bp_task_has_head(&self->shape.task);
    int64_t T = batch->length;
    const int32_t *inputs = batch->inputs + first * T, *targets = batch->targets + first * T;
    bp_batch piece = bp_batch_of_positions(windows, T, inputs, targets);

    if (batch->sources) {
        piece.stream[1].T = batch->source_length;
        piece.stream[1].inputs = batch->sources + first * batch->source_length;
        piece.stream[1].lengths = batch->source_lengths + first;
    }
    if (self->network->changes_after > 0)
        piece.stream[0].lengths = self->lengths + first;
    if (network_example_bytes(maker, windows) == 0)
        return piece;
    bp_bounds_set(bytes, network_example_bytes(maker, windows), 0); /* an arena's before */
    for (int64_t b = 0; b < windows; b++) {
        int32_t last = targets[b * T + T - 1];

        memcpy(self->window, inputs + b * T, (size_t)T * sizeof *inputs);
        self->window[T] = last >= 0 ? last : 0;
        bp_example_make(maker, self->window, 0, batch->first_slot + first + b, bytes, windows, b);
    }
    piece = bp_batch_over(&maker->form, windows, bytes);
    if (trains)
        return piece;
    memset(piece.term, 0, sizeof piece.term);
    piece.term[0].count = T;
    piece.term[0].targets = targets;
    return piece;
}

/* ---- a decoder that reads its source again ---- */

bool network_mirrors(const network_pieces *pieces)
{
    return pieces->maker.make == make_framed && pieces->maker.form.stream[1].T > 0;
}

static int64_t mirrored_floats(int64_t windows, int64_t T, int64_t E)
{
    return (windows * T + 1) * E; /* and scratch for a row */
}

size_t network_mirrored_bytes(const bp_network *network, const bp_example_maker *maker,
                              int64_t windows)
{
    int64_t E = bp_embedding_width(network->blocks[0]);

    return maker->make == make_framed && maker->form.stream[1].T > 0
               ? (size_t)mirrored_floats(windows, maker->form.stream[0].T, E) * sizeof(float)
               : 0;
}

static bp_err reserve_mirrored(network_model *self, const bp_model_batch *batch)
{
    int64_t floats = mirrored_floats(batch->windows, batch->length, self->face.info.vector_width);

    if (!network_is_first(self) || floats <= self->mirrored_capacity)
        return BP_OK;
    bp_free(self->mirrored);
    self->mirrored_capacity = 0;
    self->mirrored = bp_try_alloc("model.mirrored", floats, sizeof *self->mirrored);
    if (!self->mirrored)
        return bp_fail_memory("a decoder's word vectors", floats, sizeof *self->mirrored);
    self->mirrored_capacity = floats;
    return BP_OK;
}

/* The vectors of windows [first, first + windows): those of the start token, then of the text. */
static void mirror_vectors(network_model *self, const bp_model_batch *batch, int64_t first,
                           int64_t windows)
{
    int64_t T = batch->length, E = self->face.info.vector_width;
    int32_t start = (int32_t)self->face.info.start_token;
    float *to, *scratch;

    if (!network_is_first(self)) /* only the first stage has the memory */
        return;
    to = self->mirrored + first * T * E;
    scratch = self->mirrored + batch->windows * T * E;
    bp_embedding_rows(self->network->blocks[0], 0, &start, 1, to, scratch);
    for (int64_t w = 0; w < windows; w++) {
        if (w > 0)
            memcpy(to + w * T * E, to, (size_t)E * sizeof *to);
        memcpy(to + (w * T + 1) * E, batch->vectors + (first + w) * T * E,
               (size_t)((T - 1) * E) * sizeof *to);
    }
}

bp_pass network_piece_pass(network_model *self, const network_pieces *pieces,
                           const bp_model_batch *batch, int64_t first, int64_t windows, char *bytes)
{
    bp_batch piece = make_piece(self, pieces, batch, first, windows, bytes);
    bp_pass pass = bp_pass_over(&piece);
    int64_t E = self->face.info.vector_width;

    pass.first_slot = batch->first_slot + first;
    pass.first_window = batch->first_window + first;
    if (batch->vectors && network_mirrors(pieces)) {
        mirror_vectors(self, batch, first, windows);
        pass.vectors[0] = self->mirrored ? self->mirrored + first * batch->length * E : NULL;
        pass.vectors[1] = batch->vectors + first * batch->length * E;
    } else if (batch->vectors) {
        pass.vectors[0] = batch->vectors + first * batch->length * E;
    }
    if (batch->source_vectors)
        pass.vectors[1] = batch->source_vectors + first * batch->source_length * E;
    return pass;
}

bp_err network_pieces_begin(network_pieces *pieces, network_model *self,
                            const bp_model_batch *batch)
{
    bp_err err = reserve_window(self, batch->length + 1);

    *pieces = (network_pieces){
        .maker = network_maker_of(&self->shape, batch->length, batch->source_length),
        .given = {batch->segments, batch->targets, batch->first_slot, self->face.info.start_token}};
    if (pieces->maker.make == make_framed) {
        pieces->maker.rules = pieces;
        if (batch->segments)
            pieces->maker.form.stream[0].has_segments = true;
    }
    BP_ASSERT(batch->length <= self->face.info.context &&
              batch->source_length <= self->face.info.context &&
              (batch->sources != NULL) == self->face.info.reads_source);
    if (err == BP_OK && self->network->changes_after > 0)
        err = find_lengths(self, batch);
    if (err == BP_OK && network_mirrors(pieces) && !bp_gemm_is_forward_only(self->gemm))
        err = reserve_mirrored(self, batch);
    return err;
}

bp_err network_run_batch(network_model *self, const bp_model_batch *batch,
                         const network_question *asked)
{
    const bp_mesh *mesh = self->mesh;
    int64_t each = network_piece_windows(batch->windows, mesh->pipeline_ranks);
    network_pieces pieces;
    bool last = network_is_last(self);
    float *log_p = last ? asked->log_p : NULL;
    bp_err err;

    if (batch->windows == 0 || batch->length == 0)
        return BP_OK;
    err = network_pieces_begin(&pieces, self, batch);
    if (err == BP_OK)
        err = reserve(self, &pieces.maker, each);
    if (err == BP_OK)
        err = reserve_kept(self, batch, asked->pass);
    if (mesh->pipeline_ranks * mesh->tensor_ranks > 1)
        err = bp_agree(mesh->model, err);
    if (err != BP_OK)
        return err;
    for (int64_t first = 0; first < batch->windows; first += each) {
        int64_t tokens = first * batch->length;
        int64_t windows = first + each < batch->windows ? each : batch->windows - first;
        int64_t rows = windows * batch->length, most = network_begin_pass(self, false, rows);

        if (most > rows)
            reserve_for_others(self, network_piece_bytes(self->network, &pieces.maker, windows),
                               most);
        bp_pass pass = network_piece_pass(self, &pieces, batch, first, windows, self->memory);

        pass.dropout = asked->pass != BP_MODEL_NO_DROPOUT;
        pass.step = asked->pass;
        pass.probe = self->probe;
        pass.resumes = batch->resumes;
        pass.suspends = batch->suspends;
        pass.logprob = last && asked->logprob ? asked->logprob + tokens : NULL;
        pass.log_p = log_p;
        if (log_p) {
            bp_model_batch part = bp_model_batch_part(batch, first, windows);
            log_p += bp_model_batch_rows(&part) * asked->columns;
        }
        float *data = run_piece(self, &pass, network_example_bytes(&pieces.maker, windows),
                                asked->hidden == NULL);
        if (last && asked->hidden && bp_model_is_softmax(&self->shape))
            bp_lm_head_norm(network_head(self), asked->hidden + tokens * self->C, data,
                            windows * batch->length);
    }
    return BP_OK;
}

/* A pass of other ranks, which need this rank's experts. */
static void assist(void *context, bool few, int64_t rows)
{
    network_model *self = context;

    reserve_for_others(self, 0, rows);
    bp_gemm_take_few_rows(self->gemm, few);
    for (int k = 0; k < self->network->block_count; k++) {
        bp_block *block = self->network->blocks[k];
        bp_arena arena = {.base = self->memory, .size_bytes = self->memory_bytes};

        if (block->ops->assist)
            block->ops->assist(block, &arena);
    }
    bp_gemm_take_few_rows(self->gemm, false);
}

void network_join_lockstep(network_model *self)
{
    if (network_shares_passes(self))
        self->lockstep = bp_lockstep_add(self->mesh->lockstep, &(bp_lockstep_model){assist, self});
}

/* Columns of the states after block k of this stage; -1: before its first block. */
static int64_t columns_after(const network_model *self, int k)
{
    return bp_model_block_output(&self->shape, self->first_block + k).item[0].columns;
}

void network_run_blocks(network_model *self, const bp_model_batch *batch, int first, int end,
                        float *hidden)
{
    const bp_network *network = self->network;
    network_pieces pieces;
    bp_err err = network_pieces_begin(&pieces, self, batch);
    size_t row = (size_t)batch->length * sizeof *hidden;

    BP_ASSERT(err == BP_OK); /* scoring has reserved all of it */
    bp_pass pass = network_piece_pass(self, &pieces, batch, 0, 1, self->memory);
    bp_arena arena = {.base = self->memory,
                      .size_bytes = self->memory_bytes,
                      .used_bytes = network_example_bytes(&pieces.maker, 1)};
    int64_t floats = bp_network_activation_floats(network, &pass);
    float *data = bp_arena_take(&arena, floats, sizeof(float));

    pass.scratch = &arena;
    bp_zero(data, floats);
    for (int k = first; k < end; k++) {
        bp_activations activations = *bp_network_at(network, k);

        bp_activations_lay(&activations, &network->nn, &pass, data, false);
        if (k == first)
            memcpy(activations.item[0].data, hidden, row * (size_t)columns_after(self, first - 1));
        bp_block_forward(network->blocks[k], &pass, &activations, NULL);
        if (k == end - 1)
            memcpy(hidden, activations.item[0].data, row * (size_t)columns_after(self, k));
    }
}
