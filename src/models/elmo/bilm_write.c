/* A model becomes a bilm-tf folder. Called by elmo.c. */
#include "models/elmo/bilm_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/h5/h5.h"
#include "models/shape/shape_json.h"
#include "nn/core/layers.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION 1

/* ---- options.json ---- */

static json_t *filters_json(const bp_model_shape *shape)
{
    json_t *filters = json_array();

    for (int k = 0; k < BP_MODEL_PAIRS && bp_elmo_sizes_of(shape)->filters[k] != 0; k++) {
        int64_t pair = bp_elmo_sizes_of(shape)->filters[k];

        (void)json_array_append_new(filters, json_pack("[I, I]", (json_int_t)bp_pair_first(pair),
                                                       (json_int_t)bp_pair_second(pair)));
    }
    return filters;
}

/* n_characters counts the mask that readers put before the table. */
static bp_err write_options(const bp_model_shape *shape, const char *folder)
{
    json_t *options = json_pack(
        "{s:b, s:{s:s, s:{s:I}, s:o, s:i, s:i, s:I}, s:{s:f, s:I, s:I, s:f, s:I, s:b}, s:I, s:I}",
        "bidirectional", 1, "char_cnn", "activation",
        bp_elmo_sizes_of(shape)->activation ? "tanh" : "relu", "embedding", "dim",
        (json_int_t)bp_elmo_sizes_of(shape)->embedding, "filters", filters_json(shape),
        "max_characters_per_token", BP_WORD_CHARACTERS, "n_characters", BP_CHARACTERS + 1,
        "n_highway", (json_int_t)bp_elmo_sizes_of(shape)->highway, "lstm", "cell_clip",
        bp_elmo_sizes_of(shape)->cell_clip, "dim", (json_int_t)shape->width, "n_layers",
        (json_int_t)shape->layers, "proj_clip", bp_elmo_sizes_of(shape)->projection_clip,
        "projection_dim", (json_int_t)bp_elmo_sizes_of(shape)->projection, "use_skip_connections",
        bp_elmo_sizes_of(shape)->no_skip == 0, "n_tokens_vocab", (json_int_t)shape->vocab_size,
        "unroll_steps", (json_int_t)shape->context);
    char *path = bp_path_join(folder, BILM_OPTIONS);
    bp_err err = bp_json_save(path, options);

    bp_free(path);
    json_decref(options);
    return err;
}

/* ---- weights ---- */

/* One of our tensors, checked. */
static bp_err load(bp_checkpoint *checkpoint, const bilm_tensor *one, float *ours)
{
    bp_slice slice = {.dims = one->dims, .data = ours};
    bp_err err;

    (void)snprintf(slice.name, sizeof slice.name, "%s", one->ours);
    memcpy(slice.shape, one->shape, sizeof one->shape);
    memcpy(slice.extent, one->shape, sizeof one->shape);
    err = bp_checkpoint_load(checkpoint, &slice, 1);
    return err == BP_OK ? bp_checkpoint_check_digests(checkpoint, &slice, 1) : err;
}

static bp_err write_dataset(bp_h5 *file, const bilm_tensor *one, const float *theirs)
{
    int64_t count = 1;
    bp_err err = bp_h5_make_array(file, one->theirs, BP_H5_F32, one->their_dims, one->extent, NULL);

    for (int d = 0; d < one->their_dims; d++)
        count *= one->extent[d];
    return err == BP_OK ? bp_h5_write_slab(file, one->theirs, BP_H5_F32, 0, theirs, count) : err;
}

static bp_err gather(bp_checkpoint *checkpoint, const bilm_tensors *tensors, float *theirs)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < tensors->count && err == BP_OK; k++) {
        const bilm_tensor *one = &tensors->list[k];
        int64_t floats = one->shape[0] * (one->dims == 2 ? one->shape[1] : 1);
        float *ours = bp_try_alloc("elmo.bilm", floats, sizeof *ours);

        err = ours ? load(checkpoint, one, ours) : bp_fail_memory("a tensor", floats, sizeof *ours);
        if (err == BP_OK && one->form != BILM_SPELLED)
            bilm_give(theirs + one->place, ours, one);
        bp_free(ours);
    }
    return err;
}

static bp_err write_weights(bp_checkpoint *checkpoint, const bp_model_shape *shape,
                            const char *folder)
{
    bilm_tensors tensors = bilm_tensors_of(shape);
    float *theirs = bp_try_alloc("elmo.bilm", tensors.floats, sizeof *theirs);
    char *path = bp_path_join(folder, BILM_WEIGHTS);
    bp_h5_draft draft = {0};
    bp_err err = theirs ? gather(checkpoint, &tensors, theirs)
                        : bp_fail_memory("the model's weights", tensors.floats, sizeof *theirs);

    if (err == BP_OK)
        err = bp_h5_draft_begin(&draft, path, VERSION);
    for (int64_t k = 0; k < tensors.count && err == BP_OK; k++)
        if (!tensors.list[k].again && tensors.list[k].form != BILM_SPELLED)
            err = write_dataset(draft.file, &tensors.list[k], theirs + tensors.list[k].place);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, "bilm-weights", VERSION);
    bp_h5_draft_end(&draft);
    bp_free(path);
    bp_free(theirs);
    bp_free(tensors.list);
    return err;
}

/* ---- words ---- */

static bp_err write_words(const bp_tokenizer *tokenizer, const char *folder)
{
    char *words = bp_path_join(folder, BILM_WORDS), *json = bp_path_join(folder, BILM_TOKENIZER);
    bp_buffer text = {0};
    bp_err err = BP_OK;

    for (int64_t id = 0; id < bp_tokenizer_size(tokenizer) && err == BP_OK; id++) {
        if (id == bp_tokenizer_eod(tokenizer))
            bp_buffer_printf(&text, BILM_END);
        else if (id == bp_tokenizer_unk(tokenizer))
            bp_buffer_printf(&text, BP_ELMO_UNKNOWN);
        else
            err = bp_tokenizer_token_bytes(tokenizer, id, &text);
        bp_buffer_printf(&text, "\n");
    }
    if (err == BP_OK)
        err = bp_file_write(words, text.data, text.bytes);
    if (err == BP_OK)
        err = bp_tokenizer_save(tokenizer, json);
    bp_buffer_clear(&text);
    bp_free(json);
    bp_free(words);
    return err;
}

/* ---- the folder ---- */

static bp_err write_folder(const bp_model_family *family, bp_checkpoint *checkpoint,
                           const bp_tokenizer *tokenizer, const char *hidden, const char *out)
{
    bp_model_shape shape;
    bp_err err = bp_model_shape_read_as(&shape, family, bp_checkpoint_state(checkpoint),
                                        bp_checkpoint_folder(checkpoint));

    if (err == BP_OK)
        err = write_options(&shape, hidden);
    if (err == BP_OK)
        err = write_weights(checkpoint, &shape, hidden);
    if (err == BP_OK && tokenizer)
        err = write_words(tokenizer, hidden);
    if (err == BP_OK)
        err = bp_path_sync(hidden);
    return err == BP_OK ? bp_rename_new(hidden, out) : err;
}

static void remove_quietly(const char *folder)
{
    char *message = bp_strdup(bp_err_message());

    if (bp_dir_remove(folder) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_err_set_message(message);
    bp_free(message);
}

bp_err bilm_write(const bp_model_family *family, bp_checkpoint *checkpoint,
                  const bp_tokenizer *tokenizer, const char *out)
{
    char *hidden = NULL;
    int lock = -1;
    bp_err err;

    bp_hidden_sweep(out, BP_HIDDEN_FOLDER);
    err = bp_hidden_make(out, BP_HIDDEN_FOLDER, &hidden, &lock);
    if (err == BP_OK) {
        err = write_folder(family, checkpoint, tokenizer, hidden, out);
        if (err != BP_OK)
            remove_quietly(hidden);
    }
    if (lock >= 0)
        (void)close(lock);
    bp_free(hidden);
    return err;
}
