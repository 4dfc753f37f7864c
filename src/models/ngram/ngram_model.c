/* Scoring with an n-gram model: each rank maps the file, whose pages a node's ranks share. */
#include "models/ngram/ngram_model_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "models/ngram/ngram_lookup_priv.h"

#include <math.h>
#include <string.h>

typedef struct ngram_model {
    bp_model face;
    ngram_file file;
    ngram_state *kept; /* [kept_count] what windows of the last batch that suspends ended with */
    int64_t kept_count;
} ngram_model;

static ngram_state read_token(const ngram_model *self, ngram_state state, int32_t token)
{
    if (token == self->face.info.eod_id)
        return ngram_start(&self->file); /* a document ends, another one begins */
    (void)ngram_step(&self->file, &state, (uint32_t)token, NULL);
    return state;
}

static bp_err reserve_kept(ngram_model *self, const bp_model_batch *batch)
{
    int64_t windows = batch->first_window + batch->windows;
    ngram_state *kept;

    if (!batch->suspends || windows <= self->kept_count)
        return BP_OK;
    kept = bp_try_realloc("ngram.model", self->kept, windows, sizeof *kept);
    if (!kept)
        return bp_fail_memory("the states of windows", windows, sizeof *kept);
    self->kept = kept;
    self->kept_count = windows;
    return BP_OK;
}

/* What a window's first input comes behind. */
static ngram_state begin_window(const ngram_model *self, const bp_model_batch *batch, int64_t w)
{
    return batch->resumes ? self->kept[batch->first_window + w] : (ngram_state){0};
}

static void end_window(ngram_model *self, const bp_model_batch *batch, int64_t w, ngram_state state)
{
    if (batch->suspends)
        self->kept[batch->first_window + w] = state;
}

/* Natural logarithms of the targets' probabilities; the target is the next input, mostly. Returns
 * the state behind the last input. */
static ngram_state score_window(const ngram_model *self, ngram_state state, const int32_t *inputs,
                                const int32_t *targets, int64_t length, float *values)
{
    state = read_token(self, state, inputs[0]);
    for (int64_t j = 0; j < length; j++) {
        ngram_state next = state;

        values[j] = NAN;
        if (targets[j] >= 0)
            values[j] =
                (float)(ngram_step(&self->file, &next, (uint32_t)targets[j], NULL) * M_LN10);
        if (j + 1 == length)
            break;
        state = targets[j] == inputs[j + 1] && targets[j] != self->face.info.eod_id
                    ? next
                    : read_token(self, state, inputs[j + 1]);
    }
    return state;
}

static bp_err score(bp_model *lm, const bp_model_batch *batch, float *values)
{
    ngram_model *self = (ngram_model *)lm;
    int64_t length = batch->length;
    bp_err err = reserve_kept(self, batch);

    for (int64_t w = 0; w < batch->windows && err == BP_OK; w++)
        end_window(self, batch, w,
                   score_window(self, begin_window(self, batch, w), batch->inputs + w * length,
                                batch->targets + w * length, length, values + w * length));
    return err;
}

/* The states behind the inputs: `logits` goes on from them. */
static bp_err backbone(bp_model *lm, const bp_model_batch *batch, int64_t pass, float *hidden)
{
    ngram_model *self = (ngram_model *)lm;
    bp_err err = reserve_kept(self, batch);

    BP_ASSERT(pass == BP_MODEL_NO_DROPOUT);
    for (int64_t w = 0; w < batch->windows && err == BP_OK; w++) {
        ngram_state state = begin_window(self, batch, w);

        for (int64_t j = 0; j < batch->length; j++, hidden += NGRAM_STATE_WIDTH) {
            state = read_token(self, state, batch->inputs[w * batch->length + j]);
            memcpy(hidden, &state, sizeof state);
        }
        end_window(self, batch, w, state);
    }
    return err;
}

static void logits(bp_model *lm, int64_t head, const float *hidden, int64_t rows, float *out)
{
    const ngram_model *self = (const ngram_model *)lm;

    BP_ASSERT(head == 0);
    for (int64_t r = 0; r < rows; r++) {
        ngram_state state;

        memcpy(&state, hidden + r * NGRAM_STATE_WIDTH, sizeof state);
        ngram_distribution(&self->file, state, out + r * self->file.V);
    }
}

static void free_model(bp_model *lm)
{
    ngram_model *self = (ngram_model *)lm;

    ngram_file_close(&self->file);
    bp_free(self->kept);
    bp_free(self);
}

static const bp_model_ops OPS = {
    .score = score, .backbone = backbone, .logits = logits, .free = free_model};

static bp_err check_file(const ngram_model *self, const bp_checkpoint *checkpoint)
{
    const json_t *model = json_object_get(bp_checkpoint_state(checkpoint), "model");

    if (json_integer_value(json_object_get(model, "order")) == self->file.order &&
        json_integer_value(json_object_get(model, "vocab_size")) == self->file.V)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "ngram.other_model",
                   "the manifest tells of another model than its file holds, of order %d and %lld "
                   "ids: at %s; the checkpoint is wrong",
                   self->file.order, (long long)self->file.V, bp_checkpoint_folder(checkpoint));
}

static bp_err open_file(ngram_model *self, const bp_checkpoint *checkpoint)
{
    const char *path = bp_checkpoint_attachment(checkpoint);
    bp_err err;

    _Static_assert(sizeof(ngram_state) == NGRAM_STATE_WIDTH * sizeof(float),
                   "a state is a hidden row");
    if (!path)
        return BP_FAIL(BP_ERR_FORMAT, "ngram.no_file",
                       "the checkpoint has no file of n-grams: at %s",
                       bp_checkpoint_folder(checkpoint));
    err = ngram_file_open(&self->file, path);
    return err == BP_OK ? check_file(self, checkpoint) : err;
}

bp_err ngram_model_open(bp_model **out, const bp_mesh *mesh, const bp_checkpoint *checkpoint)
{
    ngram_model *self = bp_alloc("ngram.model", 1, sizeof *self);
    bp_err err = mesh->tensors > 1 || mesh->pipelines > 1
                     ? BP_FAIL(BP_ERR_CONFIG, "ngram.split_mesh",
                               "mesh.tensor = %d and mesh.pipeline = %d, but a model of counts is "
                               "not split over them: at score.model; leave both at 1",
                               mesh->tensors, mesh->pipelines)
                     : BP_OK;

    if (err == BP_OK)
        err = open_file(self, checkpoint);
    err = bp_agree(mesh->member, err);
    self->face.ops = &OPS;
    self->face.info.width = NGRAM_STATE_WIDTH;
    self->face.info.statistics = 1;
    self->face.info.context = BP_MODEL_UNLIMITED;
    self->face.info.vocab_size = self->face.info.vocab_count = self->file.V;
    if (err != BP_OK)
        free_model(&self->face);
    *out = err == BP_OK ? &self->face : NULL;
    return err;
}
