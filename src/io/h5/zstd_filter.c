/* HDF5's registered filter 32015 (zstd). See zstd_filter.h: nothing of libhdf5 or bagpipe is called
 * here. */
#include "zstd_filter.h"

#include <hdf5.h>
#include <stdlib.h>
#include <zstd.h>

/* Decodes a frame without its size to a growing buffer. */
static size_t decompress_unknown(const void *data, size_t bytes, size_t *capacity, void **out)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    ZSTD_inBuffer in = {data, bytes, 0};
    ZSTD_outBuffer to = {NULL, 0, 0};
    size_t left = stream ? 1 : 0;

    while (left != 0 && !ZSTD_isError(left)) {
        if (to.pos == to.size) {
            size_t more = to.size == 0 ? 4 * bytes + 65536 : 2 * to.size;
            void *grown = more <= BP_ZSTD_CHUNK_LIMIT ? realloc(to.dst, more) : NULL;
            if (!grown)
                break;
            to.dst = grown;
            to.size = more;
        }
        left = ZSTD_decompressStream(stream, &to, &in);
        if (left != 0 && in.pos == in.size && to.pos < to.size)
            break; /* the data ends inside the frame */
    }
    if (!stream || left != 0) {
        free(to.dst);
        to = (ZSTD_outBuffer){NULL, 0, 0};
    }
    ZSTD_freeDStream(stream);
    *out = to.dst;
    *capacity = to.size;
    return to.pos;
}

static size_t decompress_known(const void *data, size_t bytes, size_t content, void **out)
{
    size_t got;

    *out = content <= BP_ZSTD_CHUNK_LIMIT ? malloc(content) : NULL;
    if (!*out)
        return 0;
    got = ZSTD_decompress(*out, content, data, bytes);
    if (ZSTD_isError(got)) {
        free(*out);
        *out = NULL;
        return 0;
    }
    return got;
}

/* Decompresses one chunk. */
static size_t decompress(size_t bytes, size_t *buffer_bytes, void **buffer)
{
    unsigned long long content = ZSTD_getFrameContentSize(*buffer, bytes);
    size_t capacity = (size_t)content;
    void *out = NULL;
    size_t got;

    if (content == ZSTD_CONTENTSIZE_ERROR || content == 0)
        return 0;
    if (content == ZSTD_CONTENTSIZE_UNKNOWN)
        got = decompress_unknown(*buffer, bytes, &capacity, &out);
    else
        got = decompress_known(*buffer, bytes, capacity, &out);
    if (!out || got == 0) { /* a frame of no bytes is not a chunk */
        free(out);
        return 0;
    }
    free(*buffer);
    *buffer = out;
    *buffer_bytes = capacity;
    return got;
}

static size_t compress(int level, size_t bytes, size_t *buffer_bytes, void **buffer)
{
    size_t capacity = ZSTD_compressBound(bytes);
    void *out = malloc(capacity);
    size_t got;

    if (!out)
        return 0;
    got = ZSTD_compress(out, capacity, *buffer, bytes, level);
    if (ZSTD_isError(got)) {
        free(out);
        return 0;
    }
    free(*buffer);
    *buffer = out;
    *buffer_bytes = capacity;
    return got;
}

/* The filter: 0 means that it failed, and *buffer is unchanged. HDF5's buffers are malloc's. */
static size_t filter(unsigned flags, size_t value_count, const unsigned values[], size_t bytes,
                     size_t *buffer_bytes, void **buffer)
{
    int level = BP_ZSTD_LEVEL;

    if (flags & H5Z_FLAG_REVERSE)
        return decompress(bytes, buffer_bytes, buffer);
    if (value_count > 0 && values[0] <= (unsigned)ZSTD_maxCLevel())
        level = (int)values[0];
    return compress(level, bytes, buffer_bytes, buffer);
}

static const H5Z_class2_t FILTER_CLASS = {
    .version = H5Z_CLASS_T_VERS,
    .id = BP_FILTER_ZSTD,
    .encoder_present = 1,
    .decoder_present = 1,
    .name = "Zstandard compression: http://www.zstd.net",
    .can_apply = NULL,
    .set_local = NULL,
    .filter = filter,
};

const void *const bp_zstd_filter = &FILTER_CLASS;
