/* Imports besides Hugging Face's folders and GGUF files, and what all imports share: called by
 * import.c. */
#include "import_others.h"

#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/log.h"
#include "base/mem.h"
#include "models/forms.h"

#include <unistd.h>

void import_add_roles(json_t *state, const bp_tokenizer *tokenizer)
{
    int64_t roles[BP_ROLES];

    for (int role = 0; role < BP_ROLES; role++)
        roles[role] = !tokenizer ? -1 : bp_tokenizer_role(tokenizer, (bp_role)role);
    bp_roles_put(state, roles, !tokenizer ? NULL : bp_tokenizer_ends(tokenizer));
}

bp_err import_save(bp_checkpoint_commit *commit, const char *out, const bp_tokenizer *tokenizer,
                   const bp_slice *slices, int64_t count, const json_t *state)
{
    char *parent = bp_sprintf("%.*s", (int)(bp_path_base(out) - out), out),
         *text = tokenizer ? bp_tokenizer_text(tokenizer) : NULL;
    bp_err err;

    commit->parent = parent && parent[0] != '\0' ? parent : ".";
    commit->name = bp_path_base(out);
    commit->tokenizer = text;
    bp_hidden_sweep(out, BP_HIDDEN_FOLDER);
    err = bp_checkpoint_save(MPI_COMM_SELF, commit, slices, count, state);
    bp_free(text);
    bp_free(parent);
    return err;
}

/* ---- text files ---- */

static bp_err save_text(const bp_model_import *text, const char *out, const bp_tokenizer *tokenizer)
{
    bp_checkpoint_commit commit = {.attachment = text->slice_count > 0 ? NULL : text->file};
    json_t *state = json_pack(
        "{s:i, s:o, s:s, s:I, s:s}", "step", 0, "model", bp_model_shape_json(&text->shape),
        "tokenizer_hash", !tokenizer ? "" : bp_tokenizer_hash(tokenizer), "eod_id",
        (json_int_t)text->eod_id, "origin", text->shape.family->text_form->name);
    bp_err err;

    import_add_roles(state, tokenizer);
    (void)json_object_update_missing(state, text->state);
    err = import_save(&commit, out, tokenizer, text->slices, text->slice_count, state);
    json_decref(state);
    return err;
}

bp_err import_text(const bp_model_family *family, const exchange_arguments *arguments)
{
    char *file = bp_sprintf("%s.model.tmp", arguments->out);
    bp_model_import text = {.file = file};
    bp_tokenizer *given = NULL;
    bp_err err = arguments->tokenizer ? bp_tokenizer_load(&given, arguments->tokenizer) : BP_OK;

    if (err == BP_OK)
        err = family->text_form->read(family, &text, arguments->from, given);
    if (err == BP_OK)
        err = save_text(&text, arguments->out,
                        arguments->no_tokenizer ? NULL
                        : given                 ? given
                                                : text.tokenizer);
    if (err == BP_OK)
        bp_log("checkpoint: %s, a model of %s, kind %s", arguments->out, family->text_form->name,
               family->name);
    (void)unlink(file);
    for (int64_t k = 0; k < text.slice_count; k++)
        bp_free(text.slices[k].data);
    json_decref(text.state);
    bp_tokenizer_free(&text.tokenizer);
    bp_tokenizer_free(&given);
    bp_free(file);
    return err;
}

/* ---- folders of other programs ---- */

static bp_err save_folder(const bp_model_folder *folder, const char *out,
                          const bp_tokenizer *tokenizer)
{
    bp_checkpoint_commit commit = {.fetch = folder->fetch, .context = folder->context};
    json_t *state = json_pack(
        "{s:i, s:o, s:s, s:I, s:I, s:s}", "step", 0, "model", bp_model_shape_json(&folder->shape),
        "tokenizer_hash", !tokenizer ? "" : bp_tokenizer_hash(tokenizer), "eod_id",
        (json_int_t)(!tokenizer ? -1 : bp_tokenizer_eod(tokenizer)), "vocab_size",
        (json_int_t)folder->shape.vocab_size, "origin", folder->shape.family->folder->name);
    bp_err err;

    import_add_roles(state, tokenizer);
    err = import_save(&commit, out, tokenizer, folder->slices, folder->count, state);
    json_decref(state);
    return err;
}

bp_err import_folder(const bp_model_family *family, const exchange_arguments *arguments)
{
    bp_model_folder folder = {0};
    bp_tokenizer *given = NULL;
    bp_err err = arguments->tokenizer ? bp_tokenizer_load(&given, arguments->tokenizer) : BP_OK;

    if (err == BP_OK)
        err = family->folder->read(family, &folder, arguments->from, given);
    if (err == BP_OK)
        err = save_folder(&folder, arguments->out,
                          arguments->no_tokenizer ? NULL
                          : given                 ? given
                                                  : folder.tokenizer);
    if (err == BP_OK)
        bp_log("checkpoint: %s, a model of %s, kind %s, %lld words, %lld tensors", arguments->out,
               family->folder->name, family->name, (long long)folder.shape.vocab_size,
               (long long)folder.count);
    bp_tokenizer_free(&folder.tokenizer);
    if (folder.close)
        folder.close(&folder);
    bp_tokenizer_free(&given);
    return err;
}
