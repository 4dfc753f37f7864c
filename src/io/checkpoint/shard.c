/* One file of a checkpoint: an HDF5 file with one dataset per piece, written by one rank and read
 * by any. HDF5 lays it out; then the whole file is written sequentially, with O_DIRECT if the file
 * system supports it: this avoids a copy in the kernel, and keeps other data in the page cache. It
 * is hashed while written, and read back. */
#include "base/fault.h"
#include "base/files/fs.h"
#include "base/files/xxh.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "io/h5/h5_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_KIND    "checkpoint"
#define SHARD_VERSION 1
#define ALIGN         ((size_t)4096) /* suits all disks and file systems */

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are written as they are in memory");

struct bp_shard {
    char *path;
    bp_h5 *layout; /* until the file is laid out */
    int plain;     /* through the page cache: for existing contents, and for the user block */
    int blocks;    /* for whole blocks; may go through the page cache too */
    void *scratch;
    unsigned char *block; /* in `scratch`: bytes [at, at + filled) of the file */
    int64_t at, bytes;    /* bytes: of the file */
    size_t filled;
    XXH3_state_t *hash;             /* hash of everything after the user block */
    char text[BP_USER_BLOCK_BYTES]; /* the user block, and its hash, once sealed */
    char written[BP_USER_BLOCK_HASH];
    bool reads; /* read back */
};

/* ---- the layout ---- */

bp_err bp_shard_create(bp_shard **out, const char *path)
{
    bp_shard *shard = bp_alloc("shard", 1, sizeof *shard);
    bp_err err = bp_fault("ckpt.shard_open") ? bp_fail_create("can't create", path)
                                             : bp_h5_create(&shard->layout, path);

    shard->path = bp_strdup(path);
    shard->plain = shard->blocks = -1;
    if (err != BP_OK)
        bp_shard_free(&shard);
    *out = shard;
    return err;
}

bp_err bp_shard_add(bp_shard *shard, bp_plan_slice *slice)
{
    char name[BP_PIECE_DATASET];

    BP_ASSERT(slice->before == 0);
    bp_piece_dataset(name, slice->slice.name, slice->number);
    return bp_h5_make_array(shard->layout, name, BP_H5_F32, slice->slice.dims, slice->extent,
                            &slice->address);
}

/* ---- descriptors ---- */

static int open_blocks(const char *path, int mode)
{
    int fd = open(path, mode | O_DIRECT | O_CLOEXEC);

    return fd < 0 && errno == EINVAL ? open(path, mode | O_CLOEXEC) : fd;
}

/* Switches to the page cache: the file system refuses such a block, or it is the last, partial one.
 * False if already switched. */
static bool go_plain(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DIRECT) != 0 && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static bp_err close_both(bp_shard *shard)
{
    int failed = 0;

    if (shard->plain >= 0)
        failed |= close(shard->plain);
    if (shard->blocks >= 0)
        failed |= close(shard->blocks);
    shard->plain = shard->blocks = -1;
    return failed == 0 ? BP_OK : bp_fail_errno(BP_ERR_IO, "can't close", shard->path);
}

/* ---- writing ---- */

bp_err bp_shard_lay_out(bp_shard *shard)
{
    bp_err err = bp_h5_close(&shard->layout);
    struct stat status;

    if (err != BP_OK)
        return err;
    shard->plain = open(shard->path, O_RDWR | O_CLOEXEC);
    if (shard->plain >= 0)
        shard->blocks = open_blocks(shard->path, O_WRONLY);
    if (shard->plain < 0 || shard->blocks < 0)
        return bp_fail_errno(BP_ERR_IO, "can't open for writing", shard->path);
    if (fstat(shard->plain, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", shard->path);
    shard->bytes = (int64_t)status.st_size;
    BP_ASSERT(shard->bytes >= BP_USER_BLOCK_BYTES);
    (void)posix_fadvise(shard->plain, 0, 0,
                        POSIX_FADV_RANDOM); /* advice: failure does not matter */

    shard->scratch = bp_alloc("shard.block", (int64_t)(BP_SHARD_BLOCK_BYTES + ALIGN), 1);
    shard->block =
        (unsigned char *)shard->scratch + (ALIGN - (uintptr_t)shard->scratch % ALIGN) % ALIGN;
    shard->filled = BP_USER_BLOCK_BYTES; /* zeros: written at the end, and not hashed */
    shard->hash = bp_xxh128_new();
    return BP_OK;
}

static bp_err write_block(bp_shard *shard)
{
    int status;

    if (shard->filled % ALIGN != 0)
        (void)go_plain(shard->blocks);
    status = bp_pwrite_all(shard->blocks, shard->block, shard->filled, shard->at);
    if (status != 0 && errno == EINVAL && go_plain(shard->blocks))
        status = bp_pwrite_all(shard->blocks, shard->block, shard->filled, shard->at);
    if (status != 0)
        return bp_fail_errno(BP_ERR_IO, "can't write", shard->path);
    shard->at += (int64_t)shard->filled;
    shard->filled = 0;
    return BP_OK;
}

/* data NULL: the file's existing contents. */
static bp_err append(bp_shard *shard, const unsigned char *data, size_t bytes)
{
    bp_err err = BP_OK;

    while (bytes > 0 && err == BP_OK) {
        unsigned char *to = shard->block + shard->filled;
        size_t left = BP_SHARD_BLOCK_BYTES - shard->filled, now = bytes < left ? bytes : left;

        if (data)
            memcpy(to, data, now);
        else if (bp_pread_all(shard->plain, to, now, shard->at + (int64_t)shard->filled) != 0)
            return bp_fail_errno(BP_ERR_IO, "can't read", shard->path);
        bp_xxh128_add(shard->hash, to, now);
        data = data ? data + now : NULL;
        bytes -= now;
        shard->filled += now;
        if (shard->filled == BP_SHARD_BLOCK_BYTES)
            err = write_block(shard);
    }
    return err;
}

/* The file keeps its contents up to `offset`. */
static bp_err keep_until(bp_shard *shard, int64_t offset)
{
    int64_t place = shard->at + (int64_t)shard->filled;

    BP_ASSERT(offset >= place);
    return append(shard, NULL, (size_t)(offset - place));
}

bp_err bp_shard_write(bp_shard *shard, const bp_plan_slice *piece, const bp_part *part,
                      const float *values)
{
    bp_err err =
        bp_fault("ckpt.shard_half") ? bp_fail_errno(BP_ERR_IO, "can't write", shard->path) : BP_OK;

    if (err == BP_OK)
        err = keep_until(shard, piece->address + part->first * (int64_t)sizeof *values);
    return err == BP_OK
               ? append(shard, (const unsigned char *)values, (size_t)part->count * sizeof *values)
               : err;
}

static bp_err stamp(bp_shard *shard)
{
    bp_user_block block = {.kind = SHARD_KIND, .version = SHARD_VERSION, .bytes = shard->bytes};

    bp_xxh128_hex(shard->written, XXH3_128bits_digest(shard->hash));
    memcpy(block.hash, shard->written, sizeof block.hash);
    bp_user_block_text(&block, shard->text);
    if (bp_pwrite_all(shard->plain, shard->text, sizeof shard->text, 0) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't write", shard->path);
    if (bp_fault("ckpt.fsync_file") || fsync(shard->plain) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't bring to disk", shard->path);
    /* reading back must read from disk; advice: failure does not matter */
    (void)posix_fadvise(shard->plain, 0, 0, POSIX_FADV_DONTNEED);
    return BP_OK;
}

bp_err bp_shard_seal(bp_shard *shard)
{
    bp_err err, closed;

    if (bp_fault("ckpt.shard_close"))
        return BP_FAIL(BP_ERR_IO, "fault.injected", "can't close (fault injected): at %s",
                       shard->path);
    err = keep_until(shard, shard->bytes);
    if (err == BP_OK && shard->filled > 0)
        err = write_block(shard);
    if (err == BP_OK)
        err = stamp(shard);
    closed = close_both(shard);
    return err == BP_OK ? closed : err;
}

void bp_shard_free(bp_shard **at)
{
    bp_shard *shard = *at;

    *at = NULL;
    if (!shard)
        return;
    bp_h5_drop(&shard->layout);
    (void)close_both(shard); /* files to keep are sealed */
    XXH3_freeState(shard->hash);
    bp_free(shard->scratch);
    bp_free(shard->path);
    bp_free(shard);
}

/* ---- reading back ---- */

/* 0 at the end of the file, -1 on failure. */
static ssize_t read_block(const bp_shard *shard)
{
    for (;;) {
        ssize_t got = pread(shard->blocks, shard->block, BP_SHARD_BLOCK_BYTES, (off_t)shard->at);

        if (got >= 0 || (errno != EINTR && !(errno == EINVAL && go_plain(shard->blocks))))
            return got;
    }
}

static bp_err hash_block(bp_shard *shard, size_t bytes)
{
    size_t skipped = shard->at == 0 ? BP_USER_BLOCK_BYTES : 0;

    if (bytes < skipped || memcmp(shard->block, shard->text, skipped) != 0)
        return BP_FAIL(BP_ERR_IO, "checkpoint.not_written",
                       "the user block is read back otherwise than it was written: at %s",
                       shard->path);
    bp_xxh128_add(shard->hash, shard->block + skipped, bytes - skipped);
    shard->at += (int64_t)bytes;
    return BP_OK;
}

static bp_err compare(const bp_shard *shard)
{
    char hash[BP_USER_BLOCK_HASH];

    bp_xxh128_hex(hash, XXH3_128bits_digest(shard->hash));
    if (shard->at == shard->bytes && strcmp(hash, shard->written) == 0 &&
        !bp_fault("ckpt.read_back"))
        return BP_OK;
    return BP_FAIL(BP_ERR_IO, "checkpoint.not_written",
                   "what was written is read back otherwise (XXH3-128 %s of %lld bytes instead of "
                   "%s of %lld): at %s; the disk, its driver or memory erred",
                   hash, (long long)shard->at, shard->written, (long long)shard->bytes,
                   shard->path);
}

bp_err bp_shard_read_back(bp_shard *shard, bool *more, char hash[BP_USER_BLOCK_HASH],
                          int64_t *bytes)
{
    ssize_t got;
    bp_err err;

    if (!shard->reads) {
        shard->blocks = open_blocks(shard->path, O_RDONLY);
        if (shard->blocks < 0)
            return bp_fail_errno(BP_ERR_IO, "can't open", shard->path);
        shard->at = 0;
        shard->reads = true;
        XXH3_freeState(shard->hash);
        shard->hash = bp_xxh128_new();
    }
    got = read_block(shard);
    *more = got > 0;
    if (got < 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", shard->path);
    err = got > 0 ? hash_block(shard, (size_t)got) : compare(shard);
    if (got == 0) {
        *bytes = shard->at;
        memcpy(hash, shard->written, sizeof shard->written);
    }
    return err;
}

/* ---- reading ---- */

bp_err bp_shard_verify(const char *path, const char hash[BP_USER_BLOCK_HASH])
{
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path);

    if (err == BP_OK)
        err = bp_user_block_expect(&block, SHARD_KIND, SHARD_VERSION, path);
    if (err == BP_ERR_FORMAT || (err == BP_OK && strcmp(block.hash, hash) != 0))
        err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.damaged",
                      "the XXH3-128 of %s is not that of the manifest: at %s", bp_path_base(path),
                      path);
    return err;
}

/* A piece must be contiguous, inside the file, of a floating-point type, and of that extent,
 * whatever program wrote it. */
static bool is_piece(hid_t dataset, int dims, const int64_t *extent)
{
    hid_t plist = H5Dget_create_plist(dataset), type = H5Dget_type(dataset);
    hid_t space = H5Dget_space(dataset);
    hsize_t found[BP_TENSOR_DIMS] = {0};
    bool is = H5Pget_layout(plist) == H5D_CONTIGUOUS && H5Pget_external_count(plist) == 0 &&
              H5Tget_class(type) == H5T_FLOAT && H5Tget_size(type) == sizeof(float) &&
              H5Dget_offset(dataset) != HADDR_UNDEF && H5Sget_simple_extent_ndims(space) == dims &&
              H5Sget_simple_extent_dims(space, found, NULL) == dims;

    for (int d = 0; d < dims; d++)
        is = is && found[d] == (hsize_t)extent[d];
    bp_h5_release(plist);
    bp_h5_release(type);
    bp_h5_release(space);
    bp_h5_forget();
    return is;
}

/* The box [offset, offset + size) of the array `whole` that begins at `from`. */
static hid_t select_box(int dims, const int64_t *whole, const int64_t *offset, const int64_t *from,
                        const int64_t *size)
{
    hsize_t extent[BP_TENSOR_DIMS], begin[BP_TENSOR_DIMS], count[BP_TENSOR_DIMS];
    hid_t space;

    for (int d = 0; d < dims; d++) {
        extent[d] = (hsize_t)whole[d];
        begin[d] = (hsize_t)(offset[d] - from[d]);
        count[d] = (hsize_t)size[d];
    }
    space = H5Screate_simple(dims, extent, NULL);
    (void)H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, NULL, count, NULL); /* it is inside */
    return space;
}

/* Reads the intersection of piece and slice from the file directly into the slice. */
static herr_t read_common(hid_t dataset, const bp_manifest_piece *piece, const bp_slice *slice)
{
    int64_t offset[BP_TENSOR_DIMS], size[BP_TENSOR_DIMS];
    hid_t rows, memory;
    herr_t status;

    if (!bp_slice_intersect(slice->dims, piece->offset, piece->extent, slice->offset, slice->extent,
                            offset, size))
        return 0;
    bp_heartbeat_progress();
    rows = select_box(slice->dims, piece->extent, offset, piece->offset, size);
    memory = select_box(slice->dims, slice->extent, offset, slice->offset, size);
    status = H5Dread(dataset, H5T_NATIVE_FLOAT, memory, rows, H5P_DEFAULT, slice->data);
    bp_h5_release(rows);
    bp_h5_release(memory);
    return status;
}

bp_err bp_shard_read(bp_h5 *file, const bp_manifest *manifest, const bp_manifest_tensor *tensor,
                     const bp_manifest_piece *piece, const bp_slice *slice)
{
    char name[BP_PIECE_DATASET];
    hid_t dataset;
    bp_err err = BP_OK;

    bp_manifest_dataset(name, manifest, tensor, piece);
    if (!bp_h5_has(file, name + 1)) /* reached only by hard links */
        return BP_FAIL(BP_ERR_FORMAT, "checkpoint.no_dataset",
                       "dataset %s of tensor '%s' is missing: in %s", name, tensor->name,
                       bp_h5_path(file));
    bp_h5_lock();
    dataset = H5Dopen2(file->id, name, H5P_DEFAULT);
    if (dataset < 0)
        err = bp_h5_fail(file, "can't open the dataset", name);
    else if (!is_piece(dataset, slice->dims, piece->extent))
        err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.wrong_dataset",
                      "dataset %s is not the contiguous float32 piece that the manifest says: "
                      "in %s",
                      name, bp_h5_path(file));
    else if (read_common(dataset, piece, slice) < 0)
        err = bp_h5_fail(file, "can't read the dataset", name);
    bp_h5_release(dataset);
    bp_h5_unlock();
    return err;
}
