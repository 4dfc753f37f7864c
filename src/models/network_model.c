/* A network behind the face of all models (bp_model): a checkpoint's weights on the mesh, batches
 * through the stages. */
#include "models/network_model_priv.h"

#include "models/decoding_priv.h"
#include "models/network_load_priv.h"
#include "models/network_states_priv.h"
#include "models/task.h"
#include "models/variants.h"

#include "math/math.h"

#include "base/err.h"
#include "mesh/collective.h"
#include "nn/layers.h"

#include <string.h>

#define TAG_HIDDEN 101

/* A batch goes through the pipeline in so many pieces per stage, so that stages work side by side.
 */
#define PIECES_PER_STAGE 2

/* ---- the stages ---- */

/* Segments of a batch's windows (NULL: there are none), and what a decoder begins with. */
typedef struct given_segments {
    const int32_t *segments;
    int64_t first_slot, start;
} given_segments;

/* A window of a masked model is framed and masked already, one of a task framed: it has places
 * before the first -1. */
static void make_framed(const bp_example_maker *self, const int32_t *tokens, int64_t step,
                        int64_t slot, bp_example *out)
{
    const given_segments *given = self->rules;
    int64_t T = self->form.stream[0].T, length = 0;

    (void)step;
    for (int64_t t = 0; t < T && out->segments[0]; t++)
        out->segments[0][t] =
            given && given->segments ? given->segments[(slot - given->first_slot) * T + t] : 0;
    for (int64_t t = 0; t < T; t++) {
        out->inputs[0][t] = tokens[t] < 0 ? 0 : tokens[t];
        length += tokens[t] >= 0;
    }
    *out->length[0] = (int32_t)length;
    if (self->form.stream[1].T > 0 && length > 0)
        bp_task_mirror(out, T, (int32_t)given->start);
}

/* Makes examples of windows of `length` inputs; with their sources they are examples already. */
static bp_example_maker maker_of(const bp_model_shape *shape, int64_t length, int64_t source_length)
{
    const bp_objective *objective = bp_model_objective(shape);

    if (bp_model_reads_source(shape))
        return (bp_example_maker){
            .form = {.stream = {{.T = length}, {.T = source_length, .has_lengths = true}},
                     .targets = {length}}};
    if (shape->task.kind != BP_TASK_NONE) {
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

/* Windows are examples as they are, where there is but one stream, without lengths, or both come
 * with the batch; else examples are made of them. */
static size_t example_bytes(const bp_example_maker *maker, int64_t windows)
{
    const bp_batch_form *form = &maker->form;
    bool plain = !maker->make || (form->stream[1].T == 0 && !form->stream[0].has_lengths);

    return plain ? 0 : bp_arena_bytes((int64_t)bp_batch_bytes(form, windows), 1);
}

/* Of examples, activations and scratch of some windows. */
static size_t piece_bytes(const bp_network *network, const bp_example_maker *maker, int64_t windows)
{
    bp_extent most = bp_extent_of(&maker->form, windows);
    bp_pass pass = {.extent = most, .B = windows};

    return example_bytes(maker, windows) +
           bp_arena_bytes(bp_network_activation_floats(network, &pass), sizeof(float)) +
           bp_network_scratch_bytes(network, &most, false);
}

/* Windows of a batch that go through the pipeline at once. */
static int64_t piece_windows(int64_t windows, int stages)
{
    int64_t pieces = stages > 1 ? PIECES_PER_STAGE * stages : 1;

    return (windows + pieces - 1) / pieces;
}

/* Pieces may be longer than a training's windows. */
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
    size_t bytes = piece_bytes(self->network, maker, windows);
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

/* Some windows through this rank's stage; the head is left out where its input is asked for: it
 * lies in the piece's memory then, which this returns. */
static float *run_piece(network_model *self, bp_pass *pass, size_t used, bool head)
{
    const bp_mesh *mesh = self->mesh;
    const bp_network *network = self->network;
    const bp_nn *nn = &network->nn;
    bp_arena arena = {.base = self->memory, .size_bytes = self->memory_bytes, .used_bytes = used};
    int blocks = network->block_count - (network_is_last(self) && !head ? 1 : 0);
    float *data = bp_arena_take(&arena, bp_network_activation_floats(network, pass), sizeof(float));

    pass->scratch = &arena;
    if (mesh->pipeline_at > 0)
        bp_recv(data,
                bp_activations_floats(&network->before[0], nn, pass, false) *
                    (int64_t)sizeof(float),
                mesh->pipeline_at - 1, TAG_HIDDEN, mesh->pipeline);
    for (int k = 0; k < blocks; k++) {
        bp_activations activations = *bp_network_at(network, k);

        bp_activations_lay(&activations, nn, pass, data, false);
        if (pass->probe)
            pass->probe->block = self->first_block + k;
        bp_block_forward(network->blocks[k], pass, &activations, NULL);
    }
    if (!network_is_last(self))
        bp_send(data,
                bp_activations_floats(&network->behind[blocks - 1], nn, pass, false) *
                    (int64_t)sizeof(float),
                mesh->pipeline_at + 1, TAG_HIDDEN, mesh->pipeline);
    pass->scratch = NULL; /* it was this function's */
    return data;
}

/* Windows [first, first + windows) of a batch as the network takes them, with the batch's targets;
 * what has to be made lies at the front of the piece's memory. */
static bp_batch make_piece(network_model *self, const bp_example_maker *maker,
                           const bp_model_batch *batch, int64_t first, int64_t windows)
{
    int64_t T = batch->length, asks = bp_model_batch_asks(batch);
    const int32_t *inputs = batch->inputs + first * T, *targets = batch->targets + first * T * asks;
    bp_batch piece = bp_batch_of_places(windows, T, inputs, targets);

    if (batch->sources) {
        piece.stream[1].T = batch->source_length;
        piece.stream[1].inputs = batch->sources + first * batch->source_length;
        piece.stream[1].lengths = batch->source_lengths + first;
    }
    if (example_bytes(maker, windows) == 0)
        return piece;
    for (int64_t b = 0; b < windows; b++) {
        int32_t last = targets[(b * T + T - 1) * asks];

        memcpy(self->window, inputs + b * T, (size_t)T * sizeof *inputs);
        self->window[T] = last >= 0 ? last : 0;
        bp_example_make(maker, self->window, 0, batch->first_slot + first + b, self->memory,
                        windows, b);
    }
    piece = bp_batch_over(&maker->form, windows, self->memory);
    memset(piece.term, 0, sizeof piece.term);
    piece.term[0].count = T * asks;
    piece.term[0].targets = targets;
    return piece;
}

/* What is asked of a batch: on the last stage one of both. */
typedef struct question {
    float *logprob; /* [windows][length] */
    float *hidden;  /* [windows * length][C] */
    int64_t pass;   /* of dropout; BP_MODEL_NO_DROPOUT */
} question;

/* A batch through the pipeline, piece by piece. */
static bp_err run_batch(network_model *self, const bp_model_batch *batch, const question *asked)
{
    const bp_mesh *mesh = self->mesh;
    int64_t each = piece_windows(batch->windows, mesh->pipelines);
    given_segments given = {batch->segments, batch->first_slot, self->face.info.start_token};
    bp_example_maker maker = maker_of(&self->shape, batch->length, batch->source_length);
    bool last = network_is_last(self);
    bp_err err;

    if (maker.make == make_framed) {
        maker.rules = &given;
        if (batch->segments)
            maker.form.stream[0].has_segments = true;
    }
    BP_ASSERT(batch->length <= self->face.info.context &&
              batch->source_length <= self->face.info.context &&
              (batch->sources != NULL) == self->face.info.reads_source);
    if (batch->windows == 0 || batch->length == 0)
        return BP_OK;
    err = reserve(self, &maker, each);
    if (err == BP_OK)
        err = reserve_kept(self, batch, asked->pass);
    if (err == BP_OK)
        err = reserve_window(self, batch->length + 1);
    if (mesh->pipelines * mesh->tensors > 1)
        err = bp_agree(mesh->model, err);
    if (err != BP_OK)
        return err;
    for (int64_t first = 0; first < batch->windows; first += each) {
        int64_t tokens = first * batch->length;
        int64_t windows = first + each < batch->windows ? each : batch->windows - first;
        bp_batch piece = make_piece(self, &maker, batch, first, windows);
        bp_pass pass = bp_pass_over(&piece);

        pass.dropout = asked->pass != BP_MODEL_NO_DROPOUT;
        pass.step = asked->pass;
        pass.probe = self->probe;
        pass.first_slot = batch->first_slot + first;
        pass.first_window = batch->first_window + first;
        pass.resumes = batch->resumes;
        pass.suspends = batch->suspends;
        pass.logprob =
            last && asked->logprob ? asked->logprob + tokens * bp_model_batch_asks(batch) : NULL;
        float *data =
            run_piece(self, &pass, example_bytes(&maker, windows), asked->logprob != NULL);
        BP_ASSERT(!asked->hidden || bp_model_is_softmax(&self->shape));
        if (last && asked->hidden)
            bp_lm_head_norm(network_head(self), asked->hidden + tokens * self->C, data,
                            windows * batch->length);
    }
    return BP_OK;
}

/* ---- what is asked of it ---- */

static bp_err network_score_pass(bp_model *model, const bp_model_batch *batch, int64_t pass,
                                 float *values)
{
    network_model *self = (network_model *)model;
    const bp_mesh *mesh = self->mesh;
    bp_err err = run_batch(self, batch, &(question){.logprob = values, .pass = pass});

    if (err == BP_OK)
        bp_bcast_bytes(values,
                       batch->windows * batch->length * bp_model_batch_asks(batch) *
                           (int64_t)sizeof(float),
                       mesh->pipelines - 1, mesh->pipeline);
    return err;
}

static bp_err network_score(bp_model *model, const bp_model_batch *batch, float *values)
{
    return network_score_pass(model, batch, BP_MODEL_NO_DROPOUT, values);
}

static bp_err network_backbone(bp_model *model, const bp_model_batch *batch, int64_t pass,
                               float *hidden)
{
    return run_batch((network_model *)model, batch, &(question){.hidden = hidden, .pass = pass});
}

static void network_set_dropout(bp_model *model, float rate, uint64_t seed)
{
    network_model *self = (network_model *)model;

    self->network->nn.dropout = rate; /* blocks look here */
    self->network->nn.seed = seed;
}

static void network_set_probe(bp_model *model, bp_probe *probe)
{
    ((network_model *)model)->probe = probe;
}

static void network_logits(bp_model *model, int64_t head, const float *hidden, int64_t rows,
                           float *logits)
{
    network_model *self = (network_model *)model;
    const bp_weight *map =
        head == 0 ? bp_lm_head_map(network_head(self)) : self->heads[head - 1].map;

    bp_lm_head_logits(network_head(self), map, logits, hidden, rows);
}

static const float *network_head_weights(const bp_model *model)
{
    const network_model *self = (const network_model *)model;

    return network_is_last(self) ? bp_lm_head_values(network_head(self)) : NULL;
}

static bp_err network_add_head(bp_model *model, const float *weights, int64_t *head)
{
    network_model *self = (network_model *)model;
    int64_t rows = self->face.info.vocab_count, floats = rows * self->C;
    added_head *heads =
        bp_try_realloc("model.heads", self->heads, self->head_count + 1, sizeof *self->heads);
    bp_err err = BP_OK;

    if (!heads)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at another head; use more tensor ranks");
    self->heads = heads;
    added_head *one = &heads[self->head_count];
    *one = (added_head){0};
    *head = self->head_count + 1;
    if (network_is_last(self) && rows > 0) {
        one->values = bp_try_alloc("model.heads", floats, sizeof(float));
        if (!one->values)
            return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                           "memory is short: at another head of %lld x %lld; use more tensor ranks",
                           (long long)rows, (long long)self->C);
        memcpy(one->values, weights, (size_t)floats * sizeof(float));
        err = bp_weight_new(&one->map, self->gemm, one->values, rows, self->C);
        if (err == BP_OK)
            bp_weight_refresh(one->map);
        if (err != BP_OK || !bp_gemm_reads_values(self->gemm)) {
            bp_free(one->values);
            one->values = NULL;
        }
        if (err != BP_OK)
            return err;
    }
    self->head_count++;
    return err;
}

static void network_free(bp_model *model)
{
    network_model *self = (network_model *)model;

    for (int64_t k = 0; k < self->head_count; k++) {
        bp_weight_free(&self->heads[k].map);
        bp_free(self->heads[k].values);
    }
    bp_free(self->heads);
    for (int64_t k = 0; k < self->kept_count; k++) {
        for (int c = 0; self->kept[k].rows && c < self->network->carry_count; c++)
            bp_free(self->kept[k].rows[c]);
        bp_free(self->kept[k].rows);
    }
    bp_free(self->kept);
    if (!self->views) {
        bp_network_free(&self->network);
        bp_gemm_free(&self->gemm);
    }
    bp_free(self->values);
    bp_free(self->memory);
    bp_free(self->window);
    bp_free(self);
}

static const bp_model_ops OPS = {.score = network_score,
                                 .backbone = network_backbone,
                                 .score_pass = network_score_pass,
                                 .set_dropout = network_set_dropout,
                                 .set_probe = network_set_probe,
                                 .logits = network_logits,
                                 .add_head = network_add_head,
                                 .head_weights = network_head_weights,
                                 .states = network_states,
                                 .keys = network_keys,
                                 .free = network_free,
                                 .decode_new = network_decode_new,
                                 .decode_reset = network_decode_reset,
                                 .decode = network_decode,
                                 .decode_free = network_decode_free,
                                 .decode_sources = network_decode_sources,
                                 .decode_bytes = network_decode_bytes,
                                 .decode_states = network_decode_states,
                                 .decode_logits = network_decode_logits};

/* What one rank can do alone: the network without its values. */
static bp_err build(network_model *self, const bp_mesh *mesh, const bp_config *config,
                    const bp_model_shape *shape)
{
    bp_nn nn = {.tensor = mesh->tensor, .tensor_at = mesh->tensor_at, .tensors = mesh->tensors};
    bp_precision precision;
    bp_err err = bp_math_precision(config, &precision);

    if (err == BP_OK)
        err = bp_gemm_new_forward(&self->gemm, precision);
    nn.gemm = self->gemm;
    if (err == BP_OK)
        err = bp_model_network_new(&self->network, &nn, shape, mesh->pipeline_at, mesh->pipelines);
    if (err == BP_OK)
        bp_network_lay_out(self->network, 1);
    return err;
}

/* Heads and layers that this mesh does not divide, as one error. */
static bp_err check_shape(const bp_model_shape *shape, int tensors, int stages)
{
    static const bp_option *const NO_TABLES[] = {NULL};
    bp_config *faults = NULL;
    bp_err err = bp_config_new(&faults, NO_TABLES, NO_TABLES);

    if (err == BP_OK) {
        bp_model_shape_check(shape, tensors, stages, faults);
        err = bp_config_faults(faults);
    }
    bp_config_free(&faults);
    return err;
}

/* Which blocks are its layers. */
static void find_layers(bp_model_info *info, const bp_model_shape *shape)
{
    bp_backbone all = {.blocks = bp_model_blocks(shape) - 1, .layers_from = 1};

    if (shape->family->backbone)
        all = shape->family->backbone(shape);
    info->first_layer = all.layers_from;
    info->layers = all.blocks - all.layers_from;
}

/* A model of this shape without a network. */
static network_model *new_face(const bp_mesh *mesh, const bp_model_shape *shape)
{
    network_model *self = bp_alloc("model", 1, sizeof *self);

    self->face.ops = &OPS;
    self->face.info = (bp_model_info){.kind = shape->family->name,
                                      .statistics = 1,
                                      .width = bp_model_state_width(shape),
                                      .context = bp_model_most_inputs(shape),
                                      .vocab_size = bp_model_outcomes(shape),
                                      .words = shape->vocab_size,
                                      .task = shape->task,
                                      .log_probabilities = bp_variants_give_logs(shape),
                                      .states = network_state_form(shape)};
    find_layers(&self->face.info, shape);
    self->face.info.reads_source = bp_model_reads_source(shape);
    if (shape->family->start_token) {
        self->face.info.start_token = shape->family->start_token(shape);
        self->face.info.source_capacity = shape->context;
    }
    bp_vocab_share(&(bp_nn){.tensor_at = mesh->tensor_at, .tensors = mesh->tensors},
                   bp_model_outcomes(shape), &self->face.info.vocab_first,
                   &self->face.info.vocab_count);
    self->mesh = mesh;
    self->C = bp_model_state_width(shape);
    self->shape = *shape;
    int end;
    bp_model_stage(shape, mesh->pipeline_at, mesh->pipelines, &self->first_block, &end);
    return self;
}

/* The same whose values are not set yet: what one rank can do alone. */
static bp_err new_model(network_model **out, const bp_mesh *mesh, const bp_config *config,
                        const bp_model_shape *shape)
{
    bp_err err = check_shape(shape, mesh->tensors, mesh->pipelines);

    if (err != BP_OK)
        return err;
    *out = new_face(mesh, shape);
    return build(*out, mesh, config, shape);
}

bp_model *bp_model_view(const bp_mesh *mesh, bp_network *network, const bp_model_shape *shape)
{
    network_model *self = new_face(mesh, shape);

    self->views = true;
    self->network = network;
    self->gemm = network->nn.gemm;
    return &self->face;
}

static void hand_over(bp_model **out, network_model *self, bp_err err)
{
    if (err == BP_OK)
        *out = &self->face;
    else if (self)
        network_free(&self->face);
}

int64_t network_model_context(const bp_model_shape *shape, int64_t wish)
{
    return wish > shape->context && bp_model_may_read(shape, wish) ? wish : shape->context;
}

bp_err bp_network_model_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                             bp_checkpoint *checkpoint, bp_model_wish wish)
{
    network_model *self = NULL;
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, bp_checkpoint_state(checkpoint),
                                     bp_checkpoint_folder(checkpoint));

    *out = NULL;
    if (err == BP_OK) {
        shape.context = network_model_context(&shape, wish.context);
        err = bp_dropconnect_check(&shape, (double)wish.dropconnect.rate, "uncertainty.models");
    }
    if (err == BP_OK) {
        err = new_model(&self, mesh, config, &shape);
    }
    err = bp_agree(mesh->member, err);
    if (err == BP_OK && wish.keeps_head && network_is_last(self) && bp_model_is_softmax(&shape))
        bp_lm_head_keep_values(network_head(self));
    if (err == BP_OK)
        err = bp_network_load(self->network, mesh->member, checkpoint, 0, &wish.dropconnect,
                              &self->values);
    hand_over(out, self, err);
    return err;
}

bp_err bp_network_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model_shape *shape, uint64_t seed)
{
    network_model *self = NULL;
    bp_err err = bp_agree(mesh->member, new_model(&self, mesh, config, shape));

    *out = NULL;
    if (err == BP_OK)
        err = bp_network_load(self->network, mesh->member, NULL, seed, NULL, &self->values);
    hand_over(out, self, err);
    return err;
}

/* Of a network that is laid out, on the task's stage; 0 where it can't decode. */
static int64_t decode_bytes_of(bp_network *network, const bp_model_shape *shape,
                               const bp_model_task *task)
{
    bp_mesh mesh = {.pipelines = task->mesh->pipeline, .pipeline_at = task->stage};
    network_model model = {.mesh = &mesh,
                           .gemm = network->nn.gemm,
                           .network = network,
                           .C = bp_model_state_width(shape)};

    if (task->groups == 0)
        return 0;
    model.face.info.source_capacity = shape->family->start_token ? shape->context : 0;
    bp_vocab_share(&network->nn, bp_model_outcomes(shape), &model.face.info.vocab_first,
                   &model.face.info.vocab_count);
    return network_decode_bytes(&model.face, task->groups, task->slots, task->capacity);
}

bp_err bp_model_estimate_shape(bp_model_memory *out, const bp_model_shape *shape,
                               const bp_config *config, const bp_model_task *task)
{
    int tensors = task->mesh->tensor, stages = task->mesh->pipeline;
    int64_t windows = piece_windows(task->windows, stages);
    bp_example_maker maker = maker_of(shape, task->length, task->length);
    bp_extent most = bp_extent_of(&maker.form, windows);
    bp_nn nn = {.tensor = MPI_COMM_NULL, .tensors = tensors};
    bp_network *network = NULL;
    bp_precision precision;
    bp_err err = check_shape(shape, tensors, stages);

    if (err == BP_OK)
        err = bp_math_precision(config, &precision);
    if (err == BP_OK)
        err = bp_gemm_new_forward(&nn.gemm, precision);
    if (err == BP_OK)
        err = bp_model_network_new(&network, &nn, shape, task->stage, stages);
    if (err == BP_OK) {
        bp_network_lay_out(network, 1);
        bp_product_bytes products = bp_network_product_bytes(network, &most);
        bp_network_load_bytes load = bp_network_load_plan(network);
        int64_t work =
            windows > 0 ? (int64_t)(products.scratch + piece_bytes(network, &maker, windows)) : 0;
        *out = (bp_model_memory){
            .weights_bytes = load.held + (int64_t)products.copies,
            .work_bytes = work > load.staged ? work : load.staged, /* not both at a time */
            .decode_bytes = decode_bytes_of(network, shape, task),
            .vocab_size = bp_model_outcomes(shape),
            .width = bp_model_state_width(shape),
            .context = bp_model_most_inputs(shape)};
    }
    bp_network_free(&network);
    bp_gemm_free(&nn.gemm);
    return err;
}
