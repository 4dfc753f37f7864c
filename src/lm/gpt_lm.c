#include "lm/gpt_lm_priv.h"

#include "base/err.h"
#include "lm/gpt.h"
#include "mesh/collective.h"

#include <string.h>

#define TAG_HIDDEN 101

/* A batch goes through the pipeline in so many pieces per stage, so that stages work side by side.
 */
#define PIECES_PER_STAGE 2

typedef struct gpt_lm {
    bp_lm lm;
    const bp_mesh *mesh; /* borrowed */
    bp_gemm *gemm;
    bp_network *network;
    float *values;
    int64_t C;
    char *memory; /* of one piece: hidden and scratch */
    size_t memory_bytes;
} gpt_lm;

static bp_err reserve(gpt_lm *self, int64_t windows, int64_t length)
{
    size_t bytes = bp_arena_bytes(windows * length * self->C, sizeof(float)) +
                   bp_network_scratch_bytes(self->network, windows, length, false);

    if (bytes <= self->memory_bytes)
        return BP_OK;
    bp_free(self->memory);
    self->memory_bytes = 0;
    self->memory = bp_alloc("lm.scoring", (int64_t)bytes, 1);
    if (!self->memory)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "memory is short: at a batch of %lld windows of %lld tokens, which takes "
                       "%.1f MiB; use more "
                       "tensor or pipeline ranks",
                       (long long)windows, (long long)length, (double)bytes / 1048576);
    self->memory_bytes = bytes;
    return BP_OK;
}

/* Some windows through this rank's stage. On the last stage logprob is filled. */
static void run_piece(gpt_lm *self, const bp_lm_batch *piece, float *logprob)
{
    const bp_mesh *mesh = self->mesh;
    bp_arena arena = {.base = self->memory, .size_bytes = self->memory_bytes};
    int64_t floats = piece->windows * piece->length * self->C;
    float *hidden = bp_arena_take(&arena, floats, sizeof(float));
    bool last = mesh->pipeline_at == mesh->pipelines - 1;
    bp_packet packet = {.count = 1,
                        .item = {{.name = "hidden", .columns = self->C, .data = hidden}}};
    bp_pass pass = {.B = piece->windows,
                    .T = piece->length,
                    .inputs = piece->inputs,
                    .targets = piece->targets,
                    .scratch = &arena,
                    .logprob = last ? logprob : NULL};

    if (mesh->pipeline_at > 0)
        bp_recv(hidden, floats * (int64_t)sizeof(float), mesh->pipeline_at - 1, TAG_HIDDEN,
                mesh->pipeline);
    for (int k = 0; k < self->network->block_count; k++) {
        bp_block *block = self->network->blocks[k];
        block->ops->forward(block, &pass, &packet, NULL);
    }
    if (!last)
        bp_send(hidden, floats * (int64_t)sizeof(float), mesh->pipeline_at + 1, TAG_HIDDEN,
                mesh->pipeline);
}

static bp_err gpt_score(bp_lm *lm, const bp_lm_batch *batch, float *logprob)
{
    gpt_lm *self = (gpt_lm *)lm;
    const bp_mesh *mesh = self->mesh;
    int64_t pieces = mesh->pipelines > 1 ? PIECES_PER_STAGE * mesh->pipelines : 1;
    int64_t each = (batch->windows + pieces - 1) / pieces;
    bp_err err;

    BP_ASSERT(batch->length <= lm->info.context);
    if (batch->windows == 0 || batch->length == 0)
        return BP_OK;
    err = reserve(self, each, batch->length);
    if (mesh->pipelines * mesh->tensors > 1)
        err = bp_agree(mesh->model, err);
    if (err != BP_OK)
        return err;
    for (int64_t first = 0; first < batch->windows; first += each) {
        int64_t tokens = first * batch->length;
        bp_lm_batch piece = {.windows =
                                 first + each < batch->windows ? each : batch->windows - first,
                             .length = batch->length,
                             .inputs = batch->inputs + tokens,
                             .targets = batch->targets + tokens};
        run_piece(self, &piece, logprob + tokens);
    }
    bp_bcast_bytes(logprob, batch->windows * batch->length * (int64_t)sizeof(float),
                   mesh->pipelines - 1, mesh->pipeline);
    return BP_OK;
}

static void gpt_free(bp_lm *lm)
{
    gpt_lm *self = (gpt_lm *)lm;

    bp_network_free(&self->network);
    bp_gemm_free(&self->gemm);
    bp_free(self->values);
    bp_free(self->memory);
    bp_free(self);
}

static const bp_lm_ops OPS = {.score = gpt_score, .free = gpt_free};

/* What one rank can do alone: the network and room for its values. */
static bp_err build(gpt_lm *self, const bp_mesh *mesh, const bp_config *config,
                    const bp_gpt_shape *shape)
{
    bp_nn nn = {.tensor = mesh->tensor, .tensor_at = mesh->tensor_at, .tensors = mesh->tensors};
    bp_precision precision;
    bp_err err = bp_math_precision(config, &precision);

    if (err == BP_OK)
        err = bp_gemm_new(&self->gemm, precision);
    nn.gemm = self->gemm;
    if (err == BP_OK)
        err = bp_gpt_network_new(&self->network, &nn, shape, mesh->pipeline_at, mesh->pipelines);
    if (err != BP_OK)
        return err;
    bp_network_lay_out(self->network, 1);
    self->values = bp_alloc("lm.parameters", self->network->floats, sizeof(float));
    if (!self->values)
        return BP_FAIL(BP_ERR_SYSTEM,
                       "memory is short: at %lld parameters; use more tensor or pipeline ranks",
                       (long long)self->network->floats);
    return bp_network_bind_values(self->network, self->values);
}

static bp_err load_values(gpt_lm *self, bp_checkpoint *checkpoint, const bp_mesh *mesh)
{
    int64_t capacity = bp_network_box_capacity(self->network), used = 0;
    bp_box *boxes = bp_alloc("lm.boxes", capacity, sizeof *boxes);
    bp_err err = boxes ? BP_OK
                       : BP_FAIL(BP_ERR_SYSTEM, "memory is short: at %lld boxes; use more ranks",
                                 (long long)capacity);

    err = bp_agree(mesh->member, err);
    for (int g = 0; g < self->network->group_count && err == BP_OK; g++) {
        const bp_group *group = &self->network->groups[g];
        bp_network_boxes(self->network, g, "", self->values + group->place, 0, group->floats, boxes,
                         &used, capacity);
    }
    if (err == BP_OK)
        err = bp_checkpoint_load(checkpoint, boxes, used);
    bp_free(boxes);
    if (err == BP_OK)
        bp_network_refresh(self->network);
    return err;
}

/* Heads and layers that this mesh does not divide, as one error. */
static bp_err check_shape(const bp_gpt_shape *shape, const bp_mesh *mesh)
{
    static const bp_option *const NO_TABLES[] = {NULL};
    bp_config *faults = NULL;
    bp_err err = bp_config_new(&faults, NO_TABLES, NO_TABLES);

    if (err == BP_OK) {
        bp_gpt_shape_check(shape, mesh->tensors, mesh->pipelines, faults);
        err = bp_config_faults(faults);
    }
    bp_config_free(&faults);
    return err;
}

bp_err bp_gpt_lm_open(bp_lm **out, const bp_mesh *mesh, const bp_config *config,
                      bp_checkpoint *checkpoint)
{
    gpt_lm *self = bp_alloc("lm.gpt", 1, sizeof *self);
    bp_gpt_shape shape;
    bp_err err =
        self ? BP_OK : BP_FAIL(BP_ERR_SYSTEM, "memory is short: at the model; use more ranks");

    *out = NULL;
    if (err == BP_OK)
        err = bp_gpt_shape_read(&shape, bp_checkpoint_state(checkpoint),
                                bp_checkpoint_folder(checkpoint));
    if (err == BP_OK)
        err = check_shape(&shape, mesh);
    if (err == BP_OK) {
        self->lm.ops = &OPS;
        self->lm.info = (bp_lm_info){.kind = "gpt",
                                     .channels = 1,
                                     .width = shape.width,
                                     .context = shape.context,
                                     .vocab_size = shape.vocab_size};
        self->mesh = mesh;
        self->C = shape.width;
        err = build(self, mesh, config, &shape);
    }
    err = bp_agree(mesh->member, err);
    if (err == BP_OK)
        err = load_values(self, checkpoint, mesh);
    if (err != BP_OK) {
        if (self)
            gpt_free(&self->lm);
        return err;
    }
    *out = &self->lm;
    return BP_OK;
}
