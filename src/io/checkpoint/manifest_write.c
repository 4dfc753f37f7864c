/* Writing a manifest as text, and broadcasting it from the rank that read it. Called by
 * checkpoint_save.c and checkpoint_open.c. */
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "mesh/collective.h"

#include <string.h>

/* ---- sharing ---- */

static void *share_array(void *mine, int64_t count, size_t each, const char *label, MPI_Comm comm)
{
    if (!bp_comm_is_root(comm))
        mine = bp_alloc(label, count, each);
    bp_bcast_bytes(mine, count * (int64_t)each, 0, comm);
    return mine;
}

void bp_manifest_share(bp_manifest **manifest, MPI_Comm comm)
{
    bool root = bp_comm_is_root(comm);
    bp_manifest *m = root ? *manifest : bp_alloc("manifest", 1, sizeof *m);
    int64_t counts[4] = {m->file_count, m->tensor_count, m->piece_count, m->name_bytes};
    char *state = root ? bp_json_text(m->state) : NULL;

    bp_bcast_bytes(counts, sizeof counts, 0, comm);
    bp_bcast_text(&state, 0, comm);
    m->files = share_array(m->files, counts[0], sizeof *m->files, "manifest.files", comm);
    m->tensors = share_array(m->tensors, counts[1], sizeof *m->tensors, "manifest.tensors", comm);
    m->pieces = share_array(m->pieces, counts[2], sizeof *m->pieces, "manifest.pieces", comm);
    m->names = share_array(m->names, counts[3], 1, "manifest.names", comm);
    if (!root) {
        m->file_count = counts[0];
        m->tensor_count = counts[1];
        m->piece_count = counts[2];
        m->name_bytes = counts[3];
        BP_CHECK(bp_json_parse(&m->state, state, strlen(state), "manifest.json") == BP_OK);
    }
    bp_free(state);
    *manifest = m;
}

/* ---- writing ---- */

/* No call of jansson fails here: running out of memory ends the job, and values are valid. */
static json_t *extents_json(int dims, const int64_t *values)
{
    json_t *list = json_array();

    for (int d = 0; d < dims; d++)
        (void)json_array_append_new(list, json_integer(values[d]));
    return list;
}

static json_t *piece_object(const bp_manifest *manifest, const bp_manifest_tensor *tensor,
                            const bp_manifest_piece *piece)
{
    char dataset[BP_PIECE_DATASET];

    bp_manifest_dataset(dataset, manifest, tensor, piece);
    return json_pack("{s:s, s:s, s:o, s:o}", "file", manifest->files[piece->file].name, "dataset",
                     dataset, "offset", extents_json(tensor->dims, piece->offset), "extent",
                     extents_json(tensor->dims, piece->extent));
}

static json_t *piece_integers(const bp_manifest_tensor *tensor, const bp_manifest_piece *piece)
{
    json_t *list = json_pack("[I, I]", (json_int_t)piece->file, (json_int_t)piece->dataset);
    json_t *offset = extents_json(tensor->dims, piece->offset),
           *extent = extents_json(tensor->dims, piece->extent);

    (void)json_array_extend(list, offset);
    (void)json_array_extend(list, extent);
    json_decref(offset);
    json_decref(extent);
    return list;
}

static json_t *tensor_json(const bp_manifest *manifest, const bp_manifest_tensor *tensor,
                           bool plain)
{
    json_t *pieces = json_array();
    char digest[33];

    for (int64_t k = 0; k < tensor->count; k++) {
        const bp_manifest_piece *piece = &manifest->pieces[tensor->first + k];

        (void)json_array_append_new(pieces, plain || piece->dataset < 0
                                                ? piece_object(manifest, tensor, piece)
                                                : piece_integers(tensor, piece));
    }
    bp_digest_text(digest, &tensor->digest);
    return json_pack("{s:s, s:s, s:o, s:s, s:o}", "name", tensor->name, "dtype", "float32", "shape",
                     extents_json(tensor->dims, tensor->shape), "digest", digest, "pieces", pieces);
}

bp_err bp_manifest_text(const bp_manifest *manifest, char **text)
{
    bool plain = manifest->piece_count <= bp_manifest_plain_pieces;
    json_t *files = json_array(), *tensors = json_array(), *root;

    for (int64_t k = 0; k < manifest->file_count; k++) {
        const bp_manifest_file *file = &manifest->files[k];
        bool quick = file->xxh3[0] != '\0';

        (void)json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "name", file->name, "bytes",
                                                     (json_int_t)file->bytes,
                                                     quick ? "xxh3_128" : "sha256",
                                                     quick ? file->xxh3 : file->sha256));
    }
    for (int64_t k = 0; k < manifest->tensor_count; k++)
        (void)json_array_append_new(tensors, tensor_json(manifest, &manifest->tensors[k], plain));
    root = json_pack("{s:s, s:i, s:O, s:o, s:o}", "format", BP_MANIFEST_FORMAT, "format_version",
                     !plain                                     ? BP_MANIFEST_VERSION
                     : json_object_get(manifest->state, "base") ? BP_MANIFEST_VERSION_PART
                                                                : BP_MANIFEST_VERSION_WHOLE,
                     "state", manifest->state, "files", files, "tensors", tensors);
    *text = plain ? bp_json_text(root) : bp_json_line(root);
    json_decref(root);
    if (strlen(*text) > (size_t)bp_manifest_limit_bytes) {
        bp_free(*text);
        *text = NULL;
        return BP_FAIL(BP_ERR_FORMAT, "manifest.too_large",
                       "a manifest of %lld pieces is longer than %lld bytes",
                       (long long)manifest->piece_count, (long long)bp_manifest_limit_bytes);
    }
    return BP_OK;
}
