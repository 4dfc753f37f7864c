/* The tokenizer of a model. Called by jobs that encode their own texts. */
#include "infer/ensemble/model_tokenizer.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <string.h>

/* The tokenizer.json in a checkpoint, if there is one. */
static bp_err load_kept(bp_tokenizer **out, const char *checkpoint)
{
    char *folder = NULL, *path = NULL;
    json_t *manifest = NULL;
    bp_err err = bp_checkpoint_read_metadata(checkpoint, &folder, &manifest);

    if (err == BP_OK)
        path = bp_path_join(folder, "tokenizer.json");
    if (err == BP_OK && bp_path_exists(path))
        err = bp_tokenizer_load(out, path);
    json_decref(manifest);
    bp_free(path);
    bp_free(folder);
    return err;
}

/* That of the model, or of the first member that has one. */
static bp_err load_of_model(bp_tokenizer **out, const char *path)
{
    bp_ensemble_list list = {0};
    bp_err err;

    if (!bp_ensemble_is(path))
        return load_kept(out, path);
    err = bp_ensemble_list_load(&list, path);
    for (int64_t k = 0; err == BP_OK && !*out && k < list.count; k++)
        err = load_kept(out, list.members[k].path);
    bp_ensemble_list_clear(&list);
    return err;
}

/* The tokenizer of tokenizer.path, or the model's; NULL if there is none. On the root, local.
 * Errors: those of bp_tokenizer_load; BP_ERR_FORMAT it does not match the model. */
static bp_err find_tokenizer(bp_tokenizer **out, const bp_config *config, const char *checkpoint,
                             const bp_model_info *model)
{
    const char *path = bp_run_keys_of(config)->tokenizer_path;
    bp_err err;

    *out = NULL;
    err = path ? bp_tokenizer_load(out, path) : load_of_model(out, checkpoint);
    if (err == BP_OK && *out && model->tokenizer_hash[0] &&
        !bp_tokenizer_same_hash(model->tokenizer_hash, bp_tokenizer_hash(*out))) {
        err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                      "the tokenizer is not that of the model, %s and %s: at %s; give the model's, "
                      "or none",
                      bp_tokenizer_hash(*out), model->tokenizer_hash,
                      path ? path : "the model's tokenizer.json");
        bp_tokenizer_free(out);
    }
    if (err == BP_OK && *out && bp_tokenizer_size(*out) > model->words) {
        err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.too_large",
                      "the tokenizer has %" PRId64 " tokens, more than the model's vocabulary of "
                      "%" PRId64 ": at %s; give the model's own",
                      bp_tokenizer_size(*out), model->words,
                      path ? path : "the model's tokenizer.json");
        bp_tokenizer_free(out);
    }
    return err;
}

bp_err bp_model_tokenizer_open(bp_tokenizer **out, const bp_config *config, const char *checkpoint,
                               const bp_model_info *model, MPI_Comm world)
{
    bool root = bp_comm_is_root(world);
    char *text = NULL;
    bp_err err;

    *out = NULL;
    err = root ? find_tokenizer(out, config, checkpoint, model) : BP_OK;
    if (*out)
        text = bp_tokenizer_text(*out);
    err = bp_agree(world, err);
    if (err == BP_OK)
        bp_bcast_text(&text, 0, world);
    if (err == BP_OK && text && !root)
        err = bp_tokenizer_parse(out, text, strlen(text), "the tokenizer");
    bp_free(text);
    return bp_agree(world, err);
}
