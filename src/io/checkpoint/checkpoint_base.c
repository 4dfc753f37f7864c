/* A checkpoint of only an adapter: its other tensors are those of its base, a checkpoint that its
 * state names by path and digest. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"

#include <string.h>

/* Reads the state's "base", and checks that the path exists. On the root. */
static bp_err look_for(const json_t *base, const char *folder)
{
    const char *path, *digest;
    bp_err err = bp_json_get_string(base, "path", &path, folder);

    if (err == BP_OK)
        err = bp_json_get_string(base, "digest", &digest, folder);
    if (err == BP_OK && !bp_path_exists(path))
        err = BP_FAIL(BP_ERR_INPUT, "checkpoint.no_base",
                      "the checkpoint holds only an adapter, and the model that it adapts is not "
                      "at %s: at %s; put the checkpoint with the digest %.12s... back there",
                      path, folder, digest);
    return err;
}

static bp_err check_base(const bp_checkpoint *checkpoint, const json_t *named)
{
    const bp_checkpoint *base = checkpoint->base;
    const char *digest = json_string_value(json_object_get(named, "digest"));

    if (base->base || json_object_get(base->manifest->state, "base"))
        return BP_FAIL(BP_ERR_FORMAT, "checkpoint.other_base",
                       "the model that the adapter adapts is an adapter itself: at %s",
                       base->folder);
    if (strcmp(digest, base->digest) == 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "checkpoint.other_base",
                   "the adapter was trained beside a model with the digest %.12s..., and this one "
                   "has %.12s...: at %s; put the checkpoint that it began with back there",
                   digest, base->digest, base->folder);
}

bp_err bp_checkpoint_open_base(bp_checkpoint *checkpoint)
{
    const json_t *named = json_object_get(checkpoint->manifest->state, "base");
    MPI_Comm comm = checkpoint->comm;
    bp_err err;

    if (!named)
        return BP_OK;
    err = bp_agree(comm, bp_comm_is_root(comm) ? look_for(named, checkpoint->folder) : BP_OK);
    if (err == BP_OK)
        err =
            bp_checkpoint_open_without_base(comm, json_string_value(json_object_get(named, "path")),
                                            &checkpoint->base, &(bool){false});
    return err == BP_OK ? check_base(checkpoint, named) : err;
}

/* Both lists are sorted by name; from the base, only the model's tensors that the checkpoint does
 * not have. */
void bp_checkpoint_list_tensors(bp_checkpoint *checkpoint)
{
    const bp_manifest *own = checkpoint->manifest,
                      *base = checkpoint->base ? checkpoint->base->manifest : NULL;
    int64_t theirs = base ? base->tensor_count : 0, k = 0, j = 0;

    bp_free(checkpoint->tensors);
    checkpoint->tensors =
        bp_alloc("checkpoint", own->tensor_count + theirs, sizeof *checkpoint->tensors);
    checkpoint->tensor_count = 0;
    while (k < own->tensor_count || j < theirs) {
        int order = j == theirs              ? -1
                    : k == own->tensor_count ? 1
                                             : strcmp(own->tensors[k].name, base->tensors[j].name);
        const bp_manifest_tensor *tensor = order <= 0 ? &own->tensors[k++] : &base->tensors[j];

        j += order >= 0;
        if (order <= 0 || !strchr(tensor->name, '/'))
            checkpoint->tensors[checkpoint->tensor_count++] = tensor;
    }
}

const bp_checkpoint *bp_checkpoint_base(const bp_checkpoint *checkpoint)
{
    return checkpoint->base;
}

bool bp_checkpoint_is_of_base(const bp_checkpoint *checkpoint, const char *tensor)
{
    return checkpoint->base && !bp_manifest_find(checkpoint->manifest, tensor) &&
           !strchr(tensor, '/') && bp_manifest_find(checkpoint->base->manifest, tensor);
}
