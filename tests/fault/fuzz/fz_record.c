/* Records and compressed chunks. The first byte picks: zstd frames and LZF as HDF5's filters decode
 * them, part files of scores against a twin that knows which records are sound, packed results,
 * chunks of tokens. */
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/mem.h"
#include "fuzz.h"
#include "infer/score/unit.h"
#include "io/corpus/corpus_chunks.h"
#include "io/corpus/corpus_writer.h"
#include "io/h5/lzf_filter.h"
#include "io/h5/zstd_filter.h"
#include "job/parts.h"

#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- filters ---- */

/* One chunk through a filter; *data is malloc's, as HDF5's buffers are. */
static size_t filter(const void *class, bool decode, unsigned value, uint8_t **data, size_t bytes)
{
    const H5Z_class2_t *f = class;
    const unsigned values[3] = {value, 0, value};
    size_t capacity = bytes;
    void *buffer = *data;
    size_t got = f->filter(decode ? H5Z_FLAG_REVERSE : 0, 3, values, bytes, &capacity, &buffer);

    FUZZ_CHECK(got <= capacity);
    if (got == 0)
        FUZZ_CHECK(buffer == *data && capacity == bytes); /* as it was */
    *data = buffer;
    return got;
}

static uint8_t *copy_of(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);

    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data, bytes);
    return copy;
}

/* Touch what came out: sanitizers see bytes that nobody wrote, or beyond the end. */
static void use(const uint8_t *data, size_t bytes)
{
    volatile uint8_t sum = 0;

    for (size_t k = 0; k < bytes; k += 1 + bytes / 4096)
        sum = (uint8_t)(sum + data[k]);
}

static void try_zstd(fuzz_bytes *in)
{
    uint8_t *data = copy_of(in->data, in->left);
    size_t got = filter(bp_zstd_filter, true, 3, &data, in->left);

    FUZZ_CHECK(got <= BP_ZSTD_CHUNK_LIMIT);
    use(data, got);
    free(data);
}

static void try_zstd_both_ways(fuzz_bytes *in)
{
    unsigned level = fuzz_u8(in);
    uint8_t *data = copy_of(in->data, in->left);
    size_t packed, got;

    packed = filter(bp_zstd_filter, false, level, &data, in->left);
    FUZZ_CHECK(packed > 0);
    got = filter(bp_zstd_filter, true, level, &data, packed);
    FUZZ_CHECK(got == in->left); /* an empty chunk, which HDF5 has not, is refused */
    FUZZ_CHECK(got == 0 || memcmp(data, in->data, got) == 0);
    free(data);
}

static void try_lzf(fuzz_bytes *in)
{
    size_t capacity = fuzz_u16(in);
    uint8_t *out = malloc(capacity + 1), *data;
    size_t direct, got;

    FUZZ_CHECK(out != NULL);
    direct = bp_lzf_decode(out, capacity, in->data, in->left);
    FUZZ_CHECK(direct <= capacity);
    data = copy_of(in->data, in->left);
    got = filter(bp_lzf_filter, true, (unsigned)capacity, &data, in->left);
    FUZZ_CHECK(got == (capacity == 0 ? 0 : direct));
    FUZZ_CHECK(got == 0 || memcmp(out, data, got) == 0);
    FUZZ_CHECK(filter(bp_lzf_filter, false, (unsigned)capacity, &data, got) == 0); /* no encoder */
    free(out);
    free(data);
}

/* ---- part files ---- */

#define UNITS      16
#define KEY        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define PART_BYTES 65536

typedef struct record { /* as parts.h says: all of it in the host's order */
    uint64_t magic;
    int64_t unit, bytes;
    uint64_t result_hash, header_hash;
} record;

typedef struct twin {
    const uint8_t *result[UNITS]; /* where the first sound one of each unit is; NULL: none */
    size_t bytes[UNITS];
    bool torn; /* nothing after the first unsound record counts */
} twin;

/* A record of the input, sound unless its flags say otherwise; its length in the file. */
static size_t put_record(uint8_t *at, fuzz_bytes *in, twin *expected)
{
    int flags = fuzz_u8(in), unit = (int8_t)fuzz_u8(in);
    size_t bytes = fuzz_u8(in);
    const uint8_t *result = at + sizeof(record);
    record head = {.magic = UINT64_C(0x31544e5554524150), .unit = unit};
    bool sound = (flags & 15) == 0;

    bytes = bytes < in->left ? bytes : in->left;
    head.bytes = (flags & 1) != 0 ? fuzz_i64(in) : (int64_t)bytes;
    bytes = bytes < in->left ? bytes : in->left;
    memcpy(at + sizeof head, in->data, bytes);
    head.result_hash = bp_xxh3(result, bytes) + ((flags & 2) != 0);
    head.magic += (flags & 4) != 0;
    head.header_hash = bp_xxh3(&head, offsetof(record, header_hash)) + ((flags & 8) != 0);
    memcpy(at, &head, sizeof head);
    in->data += bytes;
    in->left -= bytes;
    if ((flags & 15) == 1 && head.bytes == (int64_t)bytes)
        sound = true; /* it happened to be right */
    expected->torn = expected->torn || !sound;
    if (!expected->torn && unit >= 0 && unit < UNITS && expected->result[unit] == NULL) {
        expected->result[unit] = result;
        expected->bytes[unit] = bytes;
    }
    return sizeof head + bytes;
}

static void compare_parts(const char *folder, const twin *expected)
{
    const char *result, *path;
    bp_parts *parts;
    size_t bytes;

    FUZZ_CHECK(bp_parts_open(&parts, folder, KEY, UNITS, false) == BP_OK);
    for (int u = 0; u < UNITS; u++) {
        FUZZ_CHECK(parts->done[u] == (expected->result[u] != NULL));
        if (expected->result[u] == NULL)
            continue;
        FUZZ_CHECK(bp_parts_read(parts, u, &result, &bytes, &path) == BP_OK);
        FUZZ_CHECK(bytes == expected->bytes[u]);
        FUZZ_CHECK(bytes == 0 || memcmp(result, expected->result[u], bytes) == 0);
    }
    FUZZ_CHECK(parts->start == 8);
    bp_parts_free(&parts);
}

static void try_parts(fuzz_bytes *in)
{
    static uint8_t file[PART_BYTES];
    static bool made;
    char folder[300];
    size_t used = 128;
    twin expected = {.torn = false};

    (void)snprintf(folder, sizeof folder, "%s/parts", fuzz_folder());
    if (!made)
        FUZZ_CHECK(bp_dir_make(folder) == BP_OK);
    made = true;
    memset(file, ' ', 128);
    memcpy(file, "bagpipe score part 2\nwork " KEY "\n", 91);
    file[127] = '\n';
    while (in->left > 1 && used + sizeof(record) + 256 < sizeof file)
        used += put_record(file + used, in, &expected);
    if (in->left > 0) /* a torn tail: less than a header */
        file[used++] = fuzz_u8(in);
    (void)fuzz_file_named("parts/7-0.part", file, used);
    compare_parts(folder, &expected);
}

/* ---- packed results ---- */

static void try_result(fuzz_bytes *in)
{
    int64_t statistics = 1 + fuzz_below(in, 4);
    char *data = bp_alloc("fuzz.result", (int64_t)in->left, 1); /* so that its end is seen */
    bp_score_result result;
    bp_fixed sums[4];
    bp_err err;

    FUZZ_CHECK(data != NULL);
    memcpy(data, in->data, in->left);
    err = bp_score_result_read(&result, data, in->left, statistics, "fuzz.part");
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        FUZZ_CHECK(result.statistics == statistics);
        for (int64_t i = 0; i < result.pieces; i++) {
            (void)bp_score_result_piece(&result, i);
            bp_score_result_sums(&result, i, sums);
        }
        for (int64_t i = 0; i < result.runs; i++)
            (void)bp_score_result_run(&result, i);
        for (int64_t c = 0; c < statistics; c++)
            use((const uint8_t *)bp_score_result_values(&result, c),
                (size_t)result.values * sizeof(float));
        FUZZ_CHECK(bp_score_result_values(&result, statistics) == data + in->left);
    }
    bp_free(data);
}

/* ---- chunks of tokens ---- */

/* `bytes` of the input as chunk 0, with the right hash, of a corpus of one chunk. */
static void try_chunks(fuzz_bytes *in)
{
    int64_t vocab_size = 1 + fuzz_u16(in), first = fuzz_u16(in), count = 1 + fuzz_u8(in);
    bool tell_wrong = fuzz_below(in, 8) == 7;
    const char *path = fuzz_file(in->data, in->left);
    bp_extent extent = {0, in->left, bp_xxh3(in->data, in->left) + tell_wrong};
    bp_chunks_spec spec = {.fd = open(path, O_RDONLY | O_CLOEXEC),
                           .path = path,
                           .extents = &extent,
                           .tokens = BP_CORPUS_CHUNK_TOKENS,
                           .vocab_size = vocab_size,
                           .token_bytes = 2};
    int32_t tokens[256];
    bp_chunks *chunks;
    bp_err err;

    FUZZ_CHECK(spec.fd >= 0);
    count = first + count > spec.tokens ? spec.tokens - first : count;
    err = bp_chunks_new(&chunks, &spec);
    fuzz_check_error(err);
    for (int twice = 0; err == BP_OK && twice < 2; twice++) {
        bp_err read = bp_chunks_read(chunks, first, count, tokens);

        fuzz_check_error(read);
        FUZZ_CHECK(read == BP_OK || read == BP_ERR_FORMAT);
        FUZZ_CHECK(read != BP_OK || !tell_wrong);
        for (int64_t k = 0; read == BP_OK && k < count; k++)
            FUZZ_CHECK(tokens[k] >= 0 && tokens[k] < vocab_size);
    }
    bp_chunks_free(&chunks);
    FUZZ_CHECK(close(spec.fd) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const tries[])(fuzz_bytes * in) = {try_zstd,  try_zstd_both_ways, try_lzf,
                                                     try_parts, try_result,         try_chunks};
    fuzz_bytes in = {data, bytes};
    int which = fuzz_below(&in, 6);

    fuzz_begin();
    tries[which](&in);
    fuzz_end();
    return 0;
}
