/* Written under a temporary name, sealed, renamed; read only after its hash was compared. */
#include "io/checkpoint/head_samples.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define KIND    "head-samples"
#define VERSION 1
#define WEIGHTS "weights"

struct bp_head_samples {
    bp_h5 *file;       /* being read; NULL else */
    bp_h5_draft draft; /* being written; zeros else */
    bp_head_samples_info info;
    int64_t written; /* floats */
};

static int64_t floats_of(const bp_head_samples_info *info)
{
    return info->samples * info->vocab_size * info->width;
}

/* Their product, and its bytes, fit 63 bits. */
static bool is_sane(const bp_head_samples_info *info)
{
    int64_t floats;

    return info->samples > 0 && info->vocab_size > 0 && info->width > 0 &&
           !__builtin_mul_overflow(info->samples, info->vocab_size, &floats) &&
           !__builtin_mul_overflow(floats, info->width, &floats) &&
           floats <= INT64_MAX / (int64_t)sizeof(float);
}

void bp_head_samples_close(bp_head_samples **file)
{
    if (!*file)
        return;
    bp_h5_drop(&(*file)->file);
    bp_h5_draft_end(&(*file)->draft);
    bp_free(*file);
    *file = NULL;
}

/* ---- writing ---- */

/* The attributes of a file, with their offsets in its info. */
static const struct attribute {
    const char *name;
    size_t at, bytes; /* bytes of a text; 0: a number */
} ATTRIBUTES[] = {
    {"samples", offsetof(bp_head_samples_info, samples), 0},
    {"vocab_size", offsetof(bp_head_samples_info, vocab_size), 0},
    {"width", offsetof(bp_head_samples_info, width), 0},
    {"model_digest", offsetof(bp_head_samples_info, model_digest), BP_SHA256_HEX},
    {"digest", offsetof(bp_head_samples_info, digest), BP_SHA256_HEX},
    {"notes", offsetof(bp_head_samples_info, notes), sizeof((bp_head_samples_info){0}.notes)}};
#define ATTRIBUTE_COUNT (sizeof ATTRIBUTES / sizeof ATTRIBUTES[0])

static bp_err put_attributes(bp_h5 *out, const bp_head_samples_info *info)
{
    bp_err err = BP_OK;

    for (size_t k = 0; k < ATTRIBUTE_COUNT && err == BP_OK; k++) {
        const struct attribute *one = &ATTRIBUTES[k];
        const void *at = (const char *)info + one->at;

        err = one->bytes > 0 ? bp_h5_put_text(out, "/", one->name, at)
                             : bp_h5_put_int(out, "/", one->name, *(const int64_t *)at);
    }
    return err;
}

bp_err bp_head_samples_create(bp_head_samples **out, const char *path,
                              const bp_head_samples_info *info)
{
    bp_head_samples *file = bp_alloc("head_samples", 1, sizeof *file);
    bp_err err;

    BP_ASSERT(is_sane(info));
    file->info = *info;
    err = bp_h5_draft_begin(&file->draft, path, VERSION);
    if (err == BP_OK)
        err = put_attributes(file->draft.file, info);
    if (err == BP_OK)
        err = bp_h5_make(file->draft.file, WEIGHTS, BP_H5_F32, floats_of(info));
    if (err != BP_OK)
        bp_head_samples_close(&file);
    *out = file;
    return err;
}

/* The place of rows in the dataset. */
static int64_t place_of(const bp_head_samples_info *info, int64_t sample, int64_t first,
                        int64_t count)
{
    BP_ASSERT(sample >= 0 && sample < info->samples);
    BP_ASSERT(first >= 0 && count >= 0 && count <= info->vocab_size - first);
    return (sample * info->vocab_size + first) * info->width;
}

bp_err bp_head_samples_write(bp_head_samples *file, int64_t sample, int64_t first, int64_t count,
                             const float *weights)
{
    int64_t place = place_of(&file->info, sample, first, count);

    file->written += count * file->info.width;
    return bp_h5_write_slab(file->draft.file, WEIGHTS, BP_H5_F32, place, weights,
                            count * file->info.width);
}

bp_err bp_head_samples_commit(bp_head_samples **out)
{
    bp_head_samples *file = *out;
    bp_err err;

    BP_ASSERT(file->draft.file && file->written == floats_of(&file->info));
    err = bp_h5_draft_commit(&file->draft, KIND, VERSION);
    bp_head_samples_close(out);
    return err;
}

/* ---- reading ---- */

static bp_err get_attributes(bp_h5 *in, bp_head_samples_info *info)
{
    bp_err err = BP_OK;

    for (size_t k = 0; k < ATTRIBUTE_COUNT && err == BP_OK; k++) {
        const struct attribute *one = &ATTRIBUTES[k];
        void *at = (char *)info + one->at;

        err = one->bytes > 0 ? bp_h5_get_text(in, "/", one->name, at, one->bytes)
                             : bp_h5_get_int(in, "/", one->name, at);
    }
    return err;
}

/* Hashes and opens the same descriptor. `hash`: that of the file verified by another rank; if "",
 * verifies it here, and sets it. */
static bp_err open_verified(bp_h5 **out, const char *path, char hash[BP_USER_BLOCK_HASH])
{
    bp_user_block block;
    int fd;
    bp_err err = bp_file_open(path, &fd, NULL);

    if (err != BP_OK)
        return err;
    err = hash[0] == '\0' ? bp_user_block_verify_fd(&block, fd, path)
                          : bp_user_block_read_fd(&block, fd, path);
    if (err == BP_OK)
        err = bp_user_block_expect(&block, KIND, VERSION, path);
    if (err == BP_OK && hash[0] != '\0' && strcmp(block.hash, hash) != 0)
        err =
            BP_FAIL(BP_ERR_FORMAT, "samples.damaged",
                    "damaged: at %s, which is another file than rank 0 reads; make it anew", path);
    if (err == BP_OK)
        memcpy(hash, block.hash, sizeof block.hash);
    if (err == BP_OK)
        err = bp_h5_open_fd(out, fd, path);
    (void)close(fd); /* only read from */
    return err;
}

static bp_err open_file(bp_head_samples *file, const char *path, char hash[BP_USER_BLOCK_HASH])
{
    const bp_head_samples_info *info = &file->info;
    bp_h5_shape shape;
    bp_err err = open_verified(&file->file, path, hash);

    if (err == BP_OK)
        err = get_attributes(file->file, &file->info);
    if (err == BP_OK)
        err = bp_h5_shape_of(file->file, WEIGHTS, &shape);
    if (err == BP_OK && (!is_sane(info) || shape.is_text || !shape.is_real ||
                         shape.count != floats_of(info) || shape.width != sizeof(float)))
        err = BP_FAIL(BP_ERR_FORMAT, "samples.damaged",
                      "damaged: at %s, whose /" WEIGHTS " is not %" PRId64 " x %" PRId64
                      " x %" PRId64 " values; make it anew",
                      path, info->samples, info->vocab_size, info->width);
    return err;
}

bp_err bp_head_samples_open(bp_head_samples **out, MPI_Comm comm, const char *path)
{
    bp_head_samples *file = bp_alloc("head_samples", 1, sizeof *file);
    bool root = bp_comm_is_root(comm);
    char hash[BP_USER_BLOCK_HASH] = "";
    bp_err err = bp_agree(comm, root ? open_file(file, path, hash) : BP_OK);

    bp_bcast_bytes(hash, sizeof hash, 0, comm);
    if (err == BP_OK)
        err = bp_agree(comm, root ? BP_OK : open_file(file, path, hash));
    if (err != BP_OK)
        bp_head_samples_close(&file);
    *out = file;
    return err;
}

const bp_head_samples_info *bp_head_samples_info_of(const bp_head_samples *file)
{
    return &file->info;
}

bp_err bp_head_samples_read(bp_head_samples *file, int64_t sample, int64_t first, int64_t count,
                            float *weights)
{
    return bp_h5_read(file->file, WEIGHTS, BP_H5_F32, place_of(&file->info, sample, first, count),
                      weights, count * file->info.width);
}
