/* Manifests of checkpoints: what is accepted has pieces that tile every tensor (counted element by
 * element where it is small), and is written as a text that reads back as itself. */
#include "base/mem.h"
#include "fuzz.h"
#include "io/checkpoint/checkpoint_priv.h"

#include <string.h>

#define SMALL 4096 /* elements of a tensor that are counted one by one */

/* Raise the count of each element of the piece. */
static void count_piece(uint8_t *seen, const bp_manifest_tensor *tensor,
                        const bp_manifest_piece *piece)
{
    int64_t volume = 1;

    for (int d = 0; d < tensor->dims; d++)
        volume *= piece->extent[d];
    for (int64_t k = 0; k < volume; k++) {
        int64_t rest = k, place = 0, scale = 1;

        for (int d = tensor->dims - 1; d >= 0; d--) {
            place += scale * (piece->offset[d] + rest % piece->extent[d]);
            rest /= piece->extent[d];
            scale *= tensor->shape[d];
        }
        seen[place]++;
    }
}

static void check_tensor(const bp_manifest *manifest, const bp_manifest_tensor *tensor)
{
    uint8_t seen[SMALL] = {0};
    int64_t volume;

    FUZZ_CHECK(bp_manifest_find(manifest, tensor->name) == tensor);
    FUZZ_CHECK(tensor->first >= 0 && tensor->first + tensor->count <= manifest->piece_count);
    FUZZ_CHECK(bp_slice_volume(tensor->dims, tensor->shape, &volume));
    for (int64_t k = 0; k < tensor->count; k++) {
        const bp_manifest_piece *piece = &manifest->pieces[tensor->first + k];

        FUZZ_CHECK(piece->file >= 0 && piece->file < manifest->file_count);
        for (int d = 0; d < tensor->dims; d++)
            FUZZ_CHECK(piece->offset[d] >= 0 && piece->extent[d] >= 0 &&
                       piece->offset[d] + piece->extent[d] <= tensor->shape[d]);
        if (volume <= SMALL)
            count_piece(seen, tensor, piece);
    }
    for (int64_t k = 0; volume <= SMALL && k < volume; k++)
        FUZZ_CHECK(seen[k] == 1);
}

static void read_again(const bp_manifest *manifest)
{
    bp_manifest *again;
    char *text, *text_again;
    bool foreign;

    FUZZ_CHECK(bp_manifest_text(manifest, &text) == BP_OK);
    FUZZ_CHECK(bp_manifest_parse(&again, &foreign, text, strlen(text), "again") == BP_OK);
    FUZZ_CHECK(bp_manifest_text(again, &text_again) == BP_OK);
    FUZZ_CHECK(strcmp(text, text_again) == 0);
    bp_free(text);
    bp_free(text_again);
    bp_manifest_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    bp_manifest *manifest;
    bool foreign;
    bp_err err;

    fuzz_begin();
    err = bp_manifest_parse(&manifest, &foreign, (const char *)data, bytes, "manifest.json");
    fuzz_check_error(err);
    FUZZ_CHECK((manifest != NULL) == (err == BP_OK));
    FUZZ_CHECK(!foreign || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        for (int64_t k = 0; k < manifest->tensor_count; k++)
            check_tensor(manifest, &manifest->tensors[k]);
        FUZZ_CHECK(bp_manifest_find(manifest, "no.such.tensor.is.here") == NULL);
        read_again(manifest);
    }
    bp_manifest_free(&manifest);
    fuzz_end();
    return 0;
}
