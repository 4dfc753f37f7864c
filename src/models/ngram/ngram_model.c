/* Scoring with an n-gram model: each rank maps the file, whose pages a node's ranks share, or each
 * rank of a model group has a part of it. Called by ngram.c. */
#include "models/ngram/ngram_model_priv.h"

#include "base/err.h"
#include "base/mem.h"
#include "models/ngram/ngram_lookup_priv.h"
#include "models/ngram/ngram_split_priv.h"

#include <string.h>

typedef struct ngram_model {
    bp_model face;
    ngram_file file;    /* of all n-grams; a split model has none */
    ngram_split *split; /* over a model group's ranks; NULL if it is not split */
    ngram_state *kept;  /* [kept_count] last states of windows of the last batch that suspends */
    int64_t kept_count;
    ngram_sequence *parts; /* [parts_capacity] of the windows of a batch */
    int64_t parts_capacity;
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

static bp_err reserve_parts(ngram_model *self, int64_t count)
{
    ngram_sequence *parts;

    if (count <= self->parts_capacity)
        return BP_OK;
    parts = bp_try_realloc("ngram.model", self->parts, count, sizeof *parts);
    if (!parts)
        return bp_fail_memory("the parts of windows", count, sizeof *parts);
    self->parts = parts;
    self->parts_capacity = count;
    return BP_OK;
}

/* What precedes a window's first input. */
static ngram_state begin_window(const ngram_model *self, const bp_model_batch *batch, int64_t w)
{
    return batch->resumes ? self->kept[batch->first_window + w] : (ngram_state){0};
}

static void end_window(ngram_model *self, const bp_model_batch *batch, int64_t w, ngram_state state)
{
    if (batch->suspends)
        self->kept[batch->first_window + w] = state;
}

#define PART 32 /* inputs of a part, where few windows are split */

/* The parts of window w: a part's initial state follows from the order - 1 inputs before it. */
static int64_t add_parts(const ngram_model *self, ngram_sequence *out, const bp_model_batch *batch,
                         int64_t w, float *values)
{
    int64_t length = batch->length, part = batch->windows < NGRAM_WALKS ? PART : length, count = 0;
    int64_t before = self->file.order - 1;

    for (int64_t first = 0; first < length; first += part, count++) {
        int64_t back = first < before ? first : before, at = w * length + first - back;
        int64_t left = length - first, now = left < part + part / 2 ? left : part;

        out[count] = (ngram_sequence){.inputs = batch->inputs + at,
                                      .targets = batch->targets + at,
                                      .values = values + at,
                                      .length = back + now,
                                      .first = back,
                                      .eod = (int32_t)self->face.info.eod_id};
        if (back == first)
            out[count].state = begin_window(self, batch, w);
        first += now - part; /* the last one takes the rest */
    }
    return count;
}

static bp_err score(bp_model *model, const bp_model_batch *batch, float *values)
{
    ngram_model *self = (ngram_model *)model;
    int64_t most = batch->windows * (batch->length / PART + 1), count = 0;
    bp_err err = reserve_kept(self, batch);

    if (err == BP_OK)
        err = reserve_parts(self, most);
    if (err != BP_OK)
        return err;
    for (int64_t w = 0; w < batch->windows; w++)
        count += add_parts(self, self->parts + count, batch, w, values);
    ngram_walk(&self->file, self->parts, count);
    for (int64_t w = 0, k = 0; w < batch->windows; w++) { /* the last part of each window */
        const int32_t *end = batch->inputs + (w + 1) * batch->length;

        while (self->parts[k].inputs + self->parts[k].length != end)
            k++;
        end_window(self, batch, w, self->parts[k].state);
    }
    return BP_OK;
}

/* The states after the inputs: `logits` continues from them. */
static bp_err backbone(bp_model *model, const bp_model_batch *batch, int64_t pass, float *hidden)
{
    ngram_model *self = (ngram_model *)model;
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

static void logits(bp_model *model, int64_t head, const float *hidden, int64_t rows, float *out)
{
    const ngram_model *self = (const ngram_model *)model;

    BP_ASSERT(head == 0);
    for (int64_t r = 0; r < rows; r++) {
        ngram_state state;

        memcpy(&state, hidden + r * NGRAM_STATE_WIDTH, sizeof state);
        ngram_distribution(&self->file, state, out + r * self->file.V);
    }
}

static bp_err score_split(bp_model *model, const bp_model_batch *batch, float *values)
{
    return ngram_split_score(((ngram_model *)model)->split, batch, model->info.eod_id, values);
}

static void free_model(bp_model *model)
{
    ngram_model *self = (ngram_model *)model;

    ngram_file_close(&self->file);
    ngram_split_free(&self->split);
    bp_free(self->kept);
    bp_free(self->parts);
    bp_free(self);
}

static const bp_model_ops OPS = {
    .score = score, .backbone = backbone, .logits = logits, .free = free_model};
static const bp_model_ops SPLIT_OPS = {.score = score_split, .free = free_model};

static const ngram_file *file_of(const ngram_model *self)
{
    return self->split ? ngram_split_file(self->split) : &self->file;
}

static bp_err check_file(const ngram_file *file, const bp_checkpoint *checkpoint)
{
    const json_t *model = json_object_get(bp_checkpoint_state(checkpoint), "model");

    if (json_integer_value(json_object_get(model, "order")) == file->order &&
        json_integer_value(json_object_get(model, "vocab_size")) == file->V)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "ngram.other_model",
                   "the manifest describes another model than its file holds, of order %d and %lld "
                   "ids: at %s; the checkpoint is wrong",
                   file->order, (long long)file->V, bp_checkpoint_folder(checkpoint));
}

bp_err ngram_model_open_file(bp_model **out, const bp_mesh *mesh, const char *path)
{
    ngram_model *self = bp_alloc("ngram.model", 1, sizeof *self);
    bool splits = bp_comm_size(mesh->model) > 1;
    bp_err err = splits ? ngram_split_open(&self->split, path, mesh->model)
                        : ngram_file_open(&self->file, path);

    _Static_assert(sizeof(ngram_state) == NGRAM_STATE_WIDTH * sizeof(float),
                   "a state is a hidden row");
    err = bp_agree(mesh->member, err);
    self->face.ops = splits ? &SPLIT_OPS : &OPS;
    self->face.info.width = NGRAM_STATE_WIDTH;
    self->face.info.statistics = 1;
    self->face.info.context = BP_MODEL_UNLIMITED;
    self->face.info.order = err == BP_OK ? file_of(self)->order : 0;
    self->face.info.vocab_size = self->face.info.vocab_count = file_of(self)->V;
    if (err != BP_OK)
        free_model(&self->face);
    *out = err == BP_OK ? &self->face : NULL;
    return err;
}

bp_err ngram_model_open(bp_model **out, const bp_mesh *mesh, const bp_checkpoint *checkpoint)
{
    const char *path = bp_checkpoint_attachment(checkpoint);
    bp_err err = path ? BP_OK
                      : BP_FAIL(BP_ERR_FORMAT, "ngram.no_file",
                                "the checkpoint has no file of n-grams: at %s",
                                bp_checkpoint_folder(checkpoint));

    *out = NULL;
    err = bp_agree(mesh->member, err);
    if (err == BP_OK)
        err = ngram_model_open_file(out, mesh, path);
    if (err == BP_OK)
        err = bp_agree(mesh->member, check_file(file_of((const ngram_model *)*out), checkpoint));
    if (err != BP_OK)
        bp_model_free(out);
    return err;
}
