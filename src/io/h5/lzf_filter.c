/* Decoding of LZF, as an HDF5 filter: foreign files of h5py have it. */
#include "lzf_filter.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_LIMIT ((size_t)1 << 30)

size_t bp_lzf_decode(void *out, size_t capacity, const void *data, size_t bytes)
{
    const unsigned char *in = data;
    const unsigned char *const end = in + bytes;
    unsigned char *const start = out;
    unsigned char *at = start;

    while (in < end) {
        size_t control = *in++;
        if (control < 32) { /* control + 1 literal bytes */
            size_t run = control + 1;
            if (run > (size_t)(end - in) || run > capacity - (size_t)(at - start))
                return 0;
            memcpy(at, in, run);
            at += run;
            in += run;
            continue;
        }
        /* a copy of length + 2 bytes from `back` bytes before; the two may overlap */
        size_t length = control >> 5;
        size_t back = (control & 31) << 8;
        if (length == 7) {
            if (in == end)
                return 0;
            length += *in++;
        }
        if (in == end)
            return 0;
        back += (size_t)*in++ + 1;
        length += 2;
        if (back > (size_t)(at - start) || length > capacity - (size_t)(at - start))
            return 0;
        for (size_t k = 0; k < length; k++, at++)
            *at = *(at - back); /* NOLINT: bytes before `at` were written here */
    }
    return (size_t)(at - start);
}

static size_t filter(unsigned flags, size_t value_count, const unsigned values[], size_t bytes,
                     size_t *buffer_bytes, void **buffer)
{
    size_t capacity = value_count >= 3 ? values[2] : *buffer_bytes;
    void *out;
    size_t got;

    if (!(flags & H5Z_FLAG_REVERSE) || capacity == 0 || capacity > CHUNK_LIMIT)
        return 0;
    out = malloc(capacity);
    if (!out)
        return 0;
    got = bp_lzf_decode(out, capacity, *buffer, bytes);
    if (got == 0) {
        free(out);
        return 0;
    }
    free(*buffer);
    *buffer = out;
    *buffer_bytes = capacity;
    return got;
}

static const H5Z_class2_t FILTER_CLASS = {
    .version = H5Z_CLASS_T_VERS,
    .id = BP_FILTER_LZF,
    .encoder_present = 0,
    .decoder_present = 1,
    .name = "lzf",
    .can_apply = NULL,
    .set_local = NULL,
    .filter = filter,
};

const void *const bp_lzf_filter = &FILTER_CLASS;
