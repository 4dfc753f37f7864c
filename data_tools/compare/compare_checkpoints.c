/* bagpipe-data compare of two checkpoints: equal to the bit, or the first tensor that differs. */
#include "compare_checkpoints.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"
#include "io/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MANIFEST_BYTES (INT64_C(1) << 30)

/* Who compares weights that differ may have meant how well they predict. */
#define PREDICTIONS                                                                                \
    "; which one predicts better is seen by scoring one corpus with both and comparing those runs"

/* A folder of scores is not one, even where it is in the run folder of a training. */
static bool has(const char *folder, const char *name)
{
    bool there = bp_path_exists(bp_path_in(folder, name).text);

    return there;
}

bool names_checkpoint(const char *path)
{
    if (has(path, "summary.json") || has(path, "score"))
        return false;
    return bp_checkpoint_is_folder(path) || has(path, "checkpoints");
}

static const char *text_of(const json_t *tensor, const char *key)
{
    const char *text = json_string_value(json_object_get(tensor, key));

    return text ? text : "";
}

/* One tensor of each side, of which at least one is there. */
static bp_err compare_tensor(const json_t *const tensor[2], const char *const folder[2])
{
    const json_t *shape[2] = {json_object_get(tensor[0], "shape"),
                              json_object_get(tensor[1], "shape")};

    for (int side = 0; side < 2; side++)
        if (!tensor[side])
            return BP_FAIL(BP_ERR_FORMAT, "compare.tensor_missing",
                           "tensor %s is missing: at %s; it is in %s" PREDICTIONS,
                           text_of(tensor[!side], "name"), folder[side], folder[!side]);
    if (!json_equal(shape[0], shape[1]))
        return BP_FAIL(BP_ERR_FORMAT, "compare.other_shape",
                       "tensor %s has another shape: at %s and %s" PREDICTIONS,
                       text_of(tensor[0], "name"), folder[0], folder[1]);
    if (strcmp(text_of(tensor[0], "digest"), text_of(tensor[1], "digest")) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "compare.other_tensor",
                       "tensor %s differs, digests %.12s... and %.12s...: at %s and %s" PREDICTIONS,
                       text_of(tensor[0], "name"), text_of(tensor[0], "digest"),
                       text_of(tensor[1], "digest"), folder[0], folder[1]);
    return BP_OK;
}

/* Models of two kinds have no tensors in common that are worth naming. */
static bp_err compare_kinds(json_t *const manifest[2], const char *const folder[2])
{
    const char *kind[2];

    for (int side = 0; side < 2; side++)
        kind[side] =
            text_of(json_object_get(json_object_get(manifest[side], "state"), "model"), "kind");
    return strcmp(kind[0], kind[1]) == 0
               ? BP_OK
               : BP_FAIL(BP_ERR_FORMAT, "compare.other_kind",
                         "the models are of two kinds, %s and %s: at %s and %s" PREDICTIONS,
                         kind[0], kind[1], folder[0], folder[1]);
}

/* A tensor of the optimizer's state, or that each batch slot carries on. */
static bool is_state(const json_t *tensor)
{
    return strchr(text_of(tensor, "name"), '/') != NULL;
}

static bool has_state(const json_t *list)
{
    const json_t *tensor;
    size_t k;

    json_array_foreach(list, k, tensor)
    {
        if (is_state(tensor))
            return true;
    }
    return false;
}

/* Both lists are sorted by name. Where one side has no state (it was imported, or averaged),
 * weights are compared: *state is the side that has it, else -1; *count: tensors compared. */
static bp_err compare_tensors(json_t *const manifest[2], const char *const folder[2], int *state,
                              int64_t *count)
{
    const json_t *list[2] = {json_object_get(manifest[0], "tensors"),
                             json_object_get(manifest[1], "tensors")};
    bool has[2] = {has_state(list[0]), has_state(list[1])};
    size_t at[2] = {0, 0};
    bp_err err = BP_OK;

    *state = has[0] == has[1] ? -1 : has[1];
    for (*count = 0; err == BP_OK; ++*count) {
        for (int side = 0; side < 2; side++)
            while (*state >= 0 && is_state(json_array_get(list[side], at[side])))
                at[side]++;
        const json_t *tensor[2] = {json_array_get(list[0], at[0]), json_array_get(list[1], at[1])};
        int order = !tensor[0] || !tensor[1]
                        ? 0
                        : strcmp(text_of(tensor[0], "name"), text_of(tensor[1], "name"));

        if (!tensor[0] && !tensor[1])
            break;
        if (order != 0)
            tensor[order < 0] = NULL;
        err = compare_tensor(tensor, folder);
        at[0]++;
        at[1]++;
    }
    return err;
}

bp_err compare_checkpoints(const char *const paths[2])
{
    bp_checkpoint *checkpoint[2] = {NULL, NULL};
    json_t *manifest[2] = {NULL, NULL};
    const char *folder[2] = {"", ""};
    int64_t count;
    int state;
    bp_err err = BP_OK;

    for (int side = 0; side < 2 && err == BP_OK; side++) {
        char *file;

        /* every byte of it is verified: digests in the manifest are those of the data */
        err = bp_checkpoint_open_any(MPI_COMM_SELF, paths[side], &checkpoint[side]);
        if (err != BP_OK)
            break;
        folder[side] = bp_checkpoint_folder(checkpoint[side]);
        file = bp_path_join(folder[side], "manifest.json");
        err = bp_json_load(&manifest[side], file, MANIFEST_BYTES);
        bp_free(file);
    }
    if (err == BP_OK)
        err = compare_kinds(manifest, folder);
    if (err == BP_OK)
        err = compare_tensors(manifest, folder, &state, &count);
    if (err == BP_OK) {
        printf("equal to the bit: %" PRId64 " tensors, digest of the model %.12s...: ", count,
               bp_checkpoint_digest(checkpoint[0]));
        put_clean(folder[0], SIZE_MAX, "");
        printf(" and ");
        put_clean(folder[1], SIZE_MAX, "");
        if (state >= 0) {
            printf("; weights alone, as only one has the optimizer's state: ");
            put_clean(folder[state], SIZE_MAX, "");
        }
        putchar('\n');
    }
    for (int side = 0; side < 2; side++) {
        json_decref(manifest[side]);
        bp_checkpoint_close(&checkpoint[side]);
    }
    return err;
}
