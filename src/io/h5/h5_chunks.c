/* Lengths of a foreign dataset's chunks. HDF5 1.10 copies the expected number of bytes from the
 * output of a chunk's filters, whatever its size, and so leaks process memory if it is smaller. So
 * each stored chunk is first decoded here. */
#include "io/h5/h5_parts.h"

#include "io/h5/lzf_filter.h"
#include "io/h5/zstd_filter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define FILTERS_MAX    32   /* HDF5's own limit: a bit of the mask each */
#define SCANNED_CHUNKS 1000 /* this many are always queried one by one */
#define CHECKSUM_BYTES 4    /* Fletcher32's, after the data */
#define LZF_RATIO      264  /* at most, bytes that one byte of LZF decodes to */
#define SLACK_BYTES                                                                                \
    4096 /* in addition to a chunk's size: overhead of filters on incompressible data */

typedef struct chunk_filters {
    int count;
    H5Z_filter_t id[FILTERS_MAX];
    unsigned width[FILTERS_MAX]; /* bytes of a value, of shuffle */
} chunk_filters;

/* One chunk: malloc's memory, as that of HDF5's filters is. */
typedef struct chunk_data {
    void *data;
    size_t bytes, capacity;
} chunk_data;

static void replace(chunk_data *chunk, void *data, size_t bytes)
{
    free(chunk->data);
    *chunk = (chunk_data){data, bytes, bytes};
}

/* Up to `limit` bytes, plus one if there are more. */
static bool inflate_chunk(chunk_data *chunk, size_t limit)
{
    z_stream flate = {.next_in = chunk->data, .avail_in = (uInt)chunk->bytes};
    unsigned char *out = malloc(limit + 1);
    int status = Z_MEM_ERROR;

    if (out && inflateInit(&flate) == Z_OK) {
        flate.next_out = out;
        flate.avail_out = (uInt)(limit + 1);
        status = inflate(&flate, Z_FINISH);
        (void)inflateEnd(&flate); /* Z_OK for what inflateInit has made */
    }
    bool done = status == Z_STREAM_END || (status == Z_BUF_ERROR && flate.avail_out == 0);
    if (done)
        replace(chunk, out, limit + 1 - flate.avail_out);
    else
        free(out);
    return done;
}

/* Bytes k of all values are side by side; the rest of the last value follows. */
static bool unshuffle_chunk(chunk_data *chunk, size_t width)
{
    size_t values = width > 1 ? chunk->bytes / width : 0;
    const unsigned char *in = chunk->data;
    unsigned char *out;

    if (values < 2)
        return true;
    out = malloc(chunk->bytes);
    if (!out)
        return false;
    for (size_t k = 0; k < width; k++)
        for (size_t n = 0; n < values; n++)
            out[n * width + k] = in[k * values + n];
    memcpy(out + values * width, in + values * width, chunk->bytes - values * width);
    replace(chunk, out, chunk->bytes);
    return true;
}

static bool decompress_chunk(chunk_data *chunk, const void *filter)
{
    const H5Z_class2_t *class = filter;
    size_t most = chunk->bytes < BP_ZSTD_CHUNK_LIMIT / LZF_RATIO ? LZF_RATIO * chunk->bytes
                                                                 : BP_ZSTD_CHUNK_LIMIT;
    const unsigned values[3] = {0, 0, (unsigned)most}; /* for lzf: its maximum output */
    size_t got =
        class->filter(H5Z_FLAG_REVERSE, 3, values, chunk->bytes, &chunk->capacity, &chunk->data);

    chunk->bytes = got;
    return got > 0;
}

static bool undo_filter(chunk_data *chunk, const chunk_filters *filters, int k, size_t limit)
{
    switch (filters->id[k]) {
    case H5Z_FILTER_DEFLATE:
        return inflate_chunk(chunk, limit);
    case H5Z_FILTER_SHUFFLE:
        return unshuffle_chunk(chunk, filters->width[k]);
    case H5Z_FILTER_FLETCHER32:
        chunk->bytes -= chunk->bytes < CHECKSUM_BYTES ? 0 : CHECKSUM_BYTES;
        return true;
    case BP_FILTER_LZF:
        return decompress_chunk(chunk, bp_lzf_filter);
    default:
        return decompress_chunk(chunk, bp_zstd_filter);
    }
}

/* The chunk at `offset` as it is stored, and the filters skipped when it was written. */
static bool read_chunk(chunk_data *chunk, hid_t dataset, const hsize_t *offset, uint32_t *skipped)
{
    hsize_t stored = 0;

    if (H5Dget_chunk_storage_size(dataset, offset, &stored) < 0 || stored > BP_ZSTD_CHUNK_LIMIT)
        return false;
    *chunk = (chunk_data){malloc((size_t)stored + 1), (size_t)stored, (size_t)stored};
    return chunk->data &&
           (stored == 0 || H5Dread_chunk(dataset, H5P_DEFAULT, offset, skipped, chunk->data) >= 0);
}

static bool undo_filters(chunk_data *chunk, const chunk_filters *filters, uint32_t skipped,
                         size_t limit)
{
    bool done = true;

    for (int k = filters->count - 1; k >= 0 && done; k--)
        if ((skipped >> k & 1) == 0)
            done = undo_filter(chunk, filters, k, limit);
    return done;
}

static bp_err fail_length(const bp_h5 *file, const char *name, int64_t k, uint64_t have,
                          uint64_t need)
{
    return BP_FAIL(BP_ERR_FORMAT, "h5.chunk_length",
                   "chunk %" PRId64 " of /%s holds %s than %" PRIu64
                   " bytes: at %s, which is damaged",
                   k, name + (name[0] == '/'), have > need ? "more" : "fewer", need, file->path);
}

/* Checks that chunk number `k` decodes to the expected size. */
static bp_err check_chunk(bp_h5 *file, const char *name, hid_t dataset, int64_t k,
                          const hsize_t *offset, const chunk_filters *filters, size_t need)
{
    chunk_data chunk = {0};
    uint32_t skipped = 0;
    bp_err err = BP_OK;

    if (!read_chunk(&chunk, dataset, offset, &skipped))
        err = bp_h5_fail(file, "can't read a chunk of", name);
    else if (!undo_filters(&chunk, filters, skipped, need + need / 64 + SLACK_BYTES))
        err = BP_FAIL(BP_ERR_FORMAT, "h5.failed",
                      "can't read dataset /%s: chunk %" PRId64 " can't be decompressed: at %s",
                      name + (name[0] == '/'), k, file->path);
    else if (chunk.bytes != need)
        err = fail_length(file, name, k, chunk.bytes, need);
    free(chunk.data);
    return err;
}

/* For chunks without filters, HDF5 reads the expected number of bytes. The stored size of each is
 * only in the index, where single queries are slow, so the total is checked first. */
static bp_err check_bare_chunks(bp_h5 *file, const char *name, hid_t dataset, size_t need)
{
    hid_t space = H5Dget_space(dataset);
    hsize_t count = 0;
    bool known = H5Dget_num_chunks(dataset, space, &count) >= 0;
    bool is_sure = H5Dget_storage_size(dataset) == count * need && count > SCANNED_CHUNKS;
    bp_err err = BP_OK;

    for (hsize_t k = 0; k < count && known && !is_sure && err == BP_OK; k++) {
        hsize_t offset[H5S_MAX_RANK], bytes = 0;
        unsigned mask = 0;
        haddr_t address;

        known = H5Dget_chunk_info(dataset, space, k, offset, &mask, &address, &bytes) >= 0;
        if (known && bytes != need)
            err = fail_length(file, name, (int64_t)k, bytes, need);
    }
    bp_h5_release(space);
    return known ? err : bp_h5_fail(file, "can't read the chunks of", name);
}

static void find_filters(chunk_filters *filters, hid_t creation)
{
    filters->count = H5Pget_nfilters(creation);
    for (int k = 0; k < filters->count; k++) {
        unsigned flags = 0, config = 0, values[8] = {0};
        size_t count = sizeof values / sizeof values[0];

        filters->id[k] =
            H5Pget_filter2(creation, (unsigned)k, &flags, &count, values, 0, NULL, &config);
        filters->width[k] = values[0];
    }
}

/* The next chunk in row-major order; false after the last one. */
static bool next_chunk(hsize_t *offset, const hsize_t *chunk, const hsize_t *extent, int dims)
{
    for (int d = dims - 1; d >= 0; d--) {
        offset[d] += chunk[d];
        if (offset[d] < extent[d])
            return true;
        offset[d] = 0;
    }
    return false;
}

static bool is_whole(const hsize_t *offset, const hsize_t *chunk, const hsize_t *extent, int dims)
{
    bool whole = true;

    for (int d = 0; d < dims; d++)
        whole = whole && offset[d] + chunk[d] <= extent[d];
    return whole;
}

bp_err bp_h5_walk_lengths(bp_h5 *file, const char *name, hid_t dataset, hid_t creation,
                          const bp_h5_shape *shape)
{
    static const chunk_filters NONE = {0};
    hsize_t chunk[H5S_MAX_RANK] = {0}, extent[H5S_MAX_RANK] = {0}, offset[H5S_MAX_RANK] = {0};
    chunk_filters filters;
    hid_t space = H5Dget_space(dataset);
    unsigned options = 0;
    size_t need = shape->width;
    bool known = H5Pget_chunk(creation, shape->dims, chunk) == shape->dims &&
                 H5Sget_simple_extent_dims(space, extent, NULL) == shape->dims &&
                 H5Pget_chunk_opts(creation, &options) >= 0;
    bp_err err = BP_OK;

    bp_h5_release(space);
    if (!known || H5Pget_nfilters(creation) > FILTERS_MAX)
        return bp_h5_fail(file, "can't read the chunks of", name);
    find_filters(&filters, creation);
    for (int d = 0; d < shape->dims; d++)
        need *= (size_t)chunk[d];
    if (filters.count == 0 || shape->count == 0)
        return check_bare_chunks(file, name, dataset, need);
    for (int64_t k = 0; err == BP_OK; k++) {
        bool bare = (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0 &&
                    !is_whole(offset, chunk, extent, shape->dims);

        err = check_chunk(file, name, dataset, k, offset, bare ? &NONE : &filters, need);
        if (!next_chunk(offset, chunk, extent, shape->dims))
            break;
    }
    return err;
}
