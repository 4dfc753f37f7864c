/* A network as a bp_model: a checkpoint's weights on the mesh, batches through the stages. Called
 * by open.c and train/parts/samples.c. */
#include "models/network/network_model.h"

#include "models/network/decoding_priv.h"
#include "models/network/network_inside_priv.h"
#include "models/network/network_load_priv.h"
#include "models/network/network_states.h"
#include "models/network/weights.h"
#include "models/seq2seq/seq2seq.h"
#include "models/stack/variants.h"
#include "models/task/task.h"
#include "models/task/vectors.h"

#include "base/err.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <string.h>

/* ---- requests ---- */

/* From the last stage to all. */
static void share(const network_model *self, float *floats, int64_t count)
{
    bp_bcast_bytes(floats, count * (int64_t)sizeof *floats, self->mesh->pipeline_ranks - 1,
                   self->mesh->pipeline);
}

static bp_err network_score(bp_model *model, const bp_model_batch *batch, float *values)
{
    network_model *self = (network_model *)model;
    bp_err err = network_run_batch(
        self, batch, &(network_question){.logprob = values, .pass = BP_MODEL_NO_DROPOUT});

    if (err == BP_OK)
        share(self, values, batch->windows * batch->length);
    return err;
}

/* Concatenates the tensor ranks' parts of each row. */
static void complete(const network_model *self, float *log_p, int64_t floats)
{
    float *scratch;

    if (self->mesh->tensor_ranks == 1 || !network_is_last(self))
        return;
    scratch = bp_alloc("model.scoring", floats, sizeof *scratch);
    bp_all_sum(log_p, floats, scratch, self->mesh->tensor);
    bp_free(scratch);
}

static bp_err network_distribution(bp_model *model, const bp_model_batch *batch, int64_t pass,
                                   float *log_p, float *values)
{
    network_model *self = (network_model *)model;
    int64_t columns = bp_model_columns(&model->info, batch->length),
            floats = bp_model_batch_rows(batch) * columns;
    bp_err err = network_run_batch(
        self, batch,
        &(network_question){.logprob = values, .log_p = log_p, .columns = columns, .pass = pass});

    if (err != BP_OK)
        return err;
    complete(self, log_p, floats);
    share(self, log_p, floats);
    if (values)
        share(self, values, batch->windows * batch->length);
    return BP_OK;
}

static bp_err network_backbone(bp_model *model, const bp_model_batch *batch, int64_t pass,
                               float *hidden)
{
    return network_run_batch((network_model *)model, batch,
                             &(network_question){.hidden = hidden, .pass = pass});
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
    bp_free(self->gradient_memory);
    bp_free(self->mirrored);
    bp_free(self->memory);
    bp_free(self->window);
    bp_free(self->lengths);
    bp_free(self);
}

static const bp_model_ops OPS = {.score = network_score,
                                 .backbone = network_backbone,
                                 .distribution = network_distribution,
                                 .set_dropout = network_set_dropout,
                                 .set_probe = network_set_probe,
                                 .logits = network_logits,
                                 .add_head = network_add_head,
                                 .head_weights = network_head_weights,
                                 .states = network_states,
                                 .keys = network_keys,
                                 .differentiate = network_differentiate,
                                 .look_up = network_look_up,
                                 .layers = network_layers,
                                 .coefficients = network_coefficients,
                                 .values = network_values,
                                 .free = network_free,
                                 .decode_new = network_decode_new,
                                 .decode_reset = network_decode_reset,
                                 .decode = network_decode,
                                 .decode_free = network_decode_free,
                                 .decode_sources = network_decode_sources,
                                 .decode_bytes = network_decode_bytes,
                                 .decode_states = network_decode_states,
                                 .decode_logits = network_decode_logits};

/* What one rank does without communication: the network without its values. */
static bp_err build(network_model *self, const bp_mesh *mesh, const bp_config *config,
                    const bp_model_shape *shape, bool backward)
{
    bp_nn nn = {.tensor = mesh->tensor,
                .tensor_rank = mesh->tensor_rank,
                .tensor_ranks = mesh->tensor_ranks};
    bp_err err = bp_weights_gemm(&self->gemm, config, backward);

    if (mesh->lockstep && bp_model_experts(shape) > 0) {
        nn.expert = mesh->expert;
        nn.expert_rank = mesh->expert_rank;
        nn.expert_ranks = mesh->expert_ranks;
    }
    nn.gemm = self->gemm;
    if (err == BP_OK)
        err = bp_model_network_new(&self->network, &nn, shape, mesh->pipeline_rank,
                                   mesh->pipeline_ranks);
    if (err == BP_OK)
        err = bp_weights_check(self->network, config);
    if (err == BP_OK)
        bp_network_lay_out(self->network, 1);
    return err;
}

/* Reports heads and layers that this mesh does not divide, as one error. */
static bp_err check_shape(const bp_model_shape *shape, int tensor_ranks, int stages, int experts)
{
    static const bp_option *const NO_TABLES[] = {NULL};
    bp_config *faults = NULL;
    bp_err err = bp_config_new(&faults, NO_TABLES, NO_TABLES);

    if (err == BP_OK) {
        bp_model_shape_check(shape, tensor_ranks, stages, faults);
        if (bp_model_experts(shape) > 0)
            bp_model_check_experts(shape, experts, faults);
        err = bp_config_faults(faults);
    }
    bp_config_free(&faults);
    return err;
}

/* Columns of the states that layers read and write; 0 if they differ, or there are none. */
static int64_t layer_width(const bp_model_info *info, const bp_model_shape *shape)
{
    int64_t width = -1;

    for (int l = 0; l <= info->layers && info->layers > 0; l++) {
        const bp_activations left = bp_model_block_output(shape, info->first_layer - 1 + l);
        bool is_like = strcmp(left.item[0].name, "hidden") == 0 &&
                       (width < 0 || width == left.item[0].columns);

        width = is_like ? left.item[0].columns : 0;
    }
    return width > 0 ? width : 0;
}

/* 0 if there are no Transformer layers, or the decoder's heads differ in number from the encoder's.
 */
static int64_t heads_of_all(const bp_model_shape *shape)
{
    bool differ = shape->family->seq2seq && bp_seq2seq_decoder_heads(shape) != shape->heads;

    return shape->family->key_block && !differ ? shape->heads : 0;
}

/* Finds the blocks that are its layers. */
static void find_layers(bp_model_info *info, const bp_model_shape *shape)
{
    bp_backbone all = {.blocks = bp_model_blocks(shape) - 1, .layers_from = 1};

    if (bp_family_has_backbone(shape->family))
        all = shape->family->blocks->backbone(shape);
    info->first_layer = all.layers_from;
    info->layers = all.blocks - all.layers_from;
    if (shape->family->source) {
        bp_block_run of[2];

        shape->family->source->stacks(shape, of);
        info->first_layer = of[0].first;
        info->layers = of[0].count;
        info->first_source_layer = of[1].first;
        info->source_layers = of[1].count;
    }
    info->layer_width = layer_width(info, shape);
}

/* A model of this shape without a network. */
static network_model *new_face(const bp_mesh *mesh, const bp_model_shape *shape)
{
    network_model *self = bp_alloc("model", 1, sizeof *self);

    self->face.ops = &OPS;
    self->face.info =
        (bp_model_info){.kind = shape->family->name,
                        .statistics = 1,
                        .width = bp_model_state_width(shape),
                        .context = bp_model_most_inputs(shape),
                        .order = shape->family->order ? shape->family->order(shape) : 0,
                        .vocab_size = bp_model_outcomes(shape),
                        .words = shape->vocab_size,
                        .task = shape->task,
                        .log_probabilities = bp_variants_give_logs(shape),
                        .capped_logits = bp_model_caps_logits(shape),
                        .states = network_state_form(shape)};
    find_layers(&self->face.info, shape);
    self->face.info.heads = heads_of_all(shape);
    self->face.info.reads_source = bp_model_reads_source(shape);
    if (shape->family->source) {
        self->face.info.start_token = shape->family->source->start_token(shape);
        self->face.info.source_capacity = shape->context;
    }
    bp_vocab_share(&(bp_nn){.tensor_rank = mesh->tensor_rank, .tensor_ranks = mesh->tensor_ranks},
                   bp_model_outcomes(shape), &self->face.info.vocab_first,
                   &self->face.info.vocab_count);
    self->mesh = mesh;
    self->C = bp_model_state_width(shape);
    self->shape = *shape;
    int end;
    bp_model_stage(shape, mesh->pipeline_rank, mesh->pipeline_ranks, &self->first_block, &end);
    return self;
}

/* The same with values not yet set: without communication. */
static bp_err new_model(network_model **out, const bp_mesh *mesh, const bp_config *config,
                        const bp_model_shape *shape, bool backward)
{
    bp_err err = check_shape(shape, mesh->tensor_ranks, mesh->pipeline_ranks,
                             mesh->lockstep ? mesh->expert_ranks : 1);

    if (err != BP_OK)
        return err;
    *out = new_face(mesh, shape);
    return build(*out, mesh, config, shape, backward);
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
    if (err == BP_OK) {
        network_join_lockstep(self);
        *out = &self->face;
    } else if (self) {
        network_free(&self->face);
    }
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
    if (err == BP_OK && wish.vectors)
        err = bp_task_give_vectors(&shape, bp_checkpoint_state(checkpoint),
                                   bp_task_pool_named(wish.vectors),
                                   bp_checkpoint_folder(checkpoint));
    if (err == BP_OK) {
        shape.context = network_model_context(&shape, wish.context);
        err = bp_dropconnect_check(&shape, (double)wish.dropconnect.rate, "uncertainty.models");
    }
    if (err == BP_OK) {
        err = new_model(&self, mesh, config, &shape, wish.differentiates);
    }
    err = bp_agree(mesh->member, err);
    if (err == BP_OK && wish.keeps_head && network_is_last(self) && bp_model_is_softmax(&shape))
        bp_lm_head_keep_values(network_head(self));
    if (err == BP_OK)
        err = bp_network_load(self->network, mesh->member, checkpoint, 0, &wish.dropconnect,
                              &self->values);
    if (err == BP_OK) {
        network_find_vectors(self);
        network_find_keys(self);
    }
    hand_over(out, self, err);
    return err;
}

bp_err bp_network_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model_shape *shape, uint64_t seed)
{
    network_model *self = NULL;
    bp_err err = bp_agree(mesh->member, new_model(&self, mesh, config, shape, false));

    *out = NULL;
    if (err == BP_OK)
        err = bp_network_load(self->network, mesh->member, NULL, seed, NULL, &self->values);
    hand_over(out, self, err);
    return err;
}

/* For a network that is laid out, on the task's stage; 0 if it can't decode. */
static int64_t decode_bytes_of(bp_network *network, const bp_model_shape *shape,
                               const bp_model_task *task)
{
    bp_mesh mesh = {.pipeline_ranks = task->mesh->pipeline, .pipeline_rank = task->stage};
    network_model model = {.mesh = &mesh,
                           .gemm = network->nn.gemm,
                           .network = network,
                           .C = bp_model_state_width(shape)};

    if (task->groups == 0)
        return 0;
    model.face.info.source_capacity = shape->family->source ? shape->context : 0;
    bp_vocab_share(&network->nn, bp_model_outcomes(shape), &model.face.info.vocab_first,
                   &model.face.info.vocab_count);
    return network_decode_bytes(&model.face, task->groups, task->slots, task->capacity);
}

bp_err bp_model_estimate_shape(bp_model_memory *out, const bp_model_shape *shape,
                               const bp_config *config, const bp_model_task *task)
{
    int tensors = task->mesh->tensor, stages = task->mesh->pipeline,
        experts = bp_mesh_shape_experts(task->mesh);
    int64_t windows = network_piece_windows(task->windows, stages);
    bp_example_maker maker = network_maker_of(shape, task->length, task->length);
    bp_extent most = bp_extent_of(&maker.form, windows);
    bp_nn nn = {.tensor = MPI_COMM_NULL,
                .tensor_ranks = tensors,
                .expert = MPI_COMM_NULL,
                .expert_ranks = bp_model_experts(shape) > 0 ? experts : 1};
    bp_network *network = NULL;
    bp_err err = check_shape(shape, tensors, stages, experts);

    if (err == BP_OK)
        err = bp_weights_gemm(&nn.gemm, config, task->differentiates);
    if (err == BP_OK)
        err = bp_model_network_new(&network, &nn, shape, task->stage, stages);
    if (err == BP_OK)
        err = bp_weights_check(network, config);
    if (err == BP_OK) {
        bp_network_lay_out(network, 1);
        bp_product_bytes products = bp_network_product_bytes(network, &most);
        bp_network_load_bytes load = bp_network_load_plan(network);
        int64_t work =
            windows > 0
                ? (int64_t)(products.scratch + network_piece_bytes(network, &maker, windows))
                : 0;
        if (task->differentiates)
            work = (int64_t)(products.scratch + network_gradient_bytes(network, &maker, windows) +
                             network_mirrored_bytes(network, &maker, task->windows));
        work += network->table_bytes;
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
