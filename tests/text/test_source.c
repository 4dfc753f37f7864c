/* Plain, gzip and zstd files give their text, or say what is wrong with them. */
#include "base/fault.h"
#include "base/rng.h"
#include "bp_test.h"
#include "text/documents/text_source.h"
#include <sys/stat.h>
#include <zlib.h>
#include <zstd.h>

#define TEXT_BYTES 700000

/* Text that compresses, and is longer than the reader's input buffer when compressed. */
static char *make_text(void)
{
    char *text = bp_alloc("test", TEXT_BYTES, 1);
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);

    assert_non_null(text);
    for (int64_t k = 0; k < TEXT_BYTES; k++)
        text[k] = (char)('!' + bp_rng_below(&key, (uint64_t)k, 90));
    return text;
}

typedef struct packed {
    char data[2 * TEXT_BYTES];
    size_t bytes;
} packed;

static void add_gzip(packed *out, const char *text, size_t bytes)
{
    z_stream stream = {0};

    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)text;
    stream.avail_in = (uInt)bytes;
    stream.next_out = (Bytef *)out->data + out->bytes;
    stream.avail_out = (uInt)(sizeof out->data - out->bytes);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    out->bytes += stream.total_out;
    assert_int_equal(deflateEnd(&stream), Z_OK);
}

static void add_zstd(packed *out, const char *text, size_t bytes)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    size_t written;

    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1)));
    written =
        ZSTD_compress2(context, out->data + out->bytes, sizeof out->data - out->bytes, text, bytes);
    assert_false(ZSTD_isError(written));
    out->bytes += written;
    (void)ZSTD_freeCCtx(context);
}

/* Read all of a file in reads of `step` bytes. */
static bp_err read_all(const char *path, size_t step, char *out, size_t capacity, size_t *bytes)
{
    bp_text_source *source;
    bp_err err = bp_text_source_open(&source, path);
    size_t got = step;

    *bytes = 0;
    if (err != BP_OK) {
        assert_null(source);
        return err;
    }
    while (err == BP_OK && got == step) {
        assert_true(*bytes + step <= capacity);
        err = bp_text_source_read(source, out + *bytes, step, &got);
        *bytes += got;
    }
    if (err == BP_OK) {
        assert_int_equal(bp_text_source_consumed(source), bp_file_size(path));
        bp_test_expect(bp_text_source_read(source, out, 1, &got),
                       BP_OK); /* the end stays the end */
        assert_int_equal(got, 0);
    }
    bp_text_source_close(&source);
    assert_null(source);
    return err;
}

static void check_reads(const char *path, const char *text, size_t bytes)
{
    static const size_t steps[] = {1 << 20, 65536, 997};
    static char out[3 * TEXT_BYTES];

    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        size_t got;

        bp_test_expect(read_all(path, steps[k], out, sizeof out, &got), BP_OK);
        assert_int_equal(got, bytes);
        assert_memory_equal(out, text, bytes);
    }
}

static void all_codings_give_the_text(void **state)
{
    static packed out;
    char *text = make_text();

    (void)state;
    check_reads(bp_test_write("plain", text, TEXT_BYTES), text, TEXT_BYTES);
    out.bytes = 0;
    add_gzip(&out, text, TEXT_BYTES);
    check_reads(bp_test_write("a", out.data, out.bytes), text, TEXT_BYTES); /* names don't matter */
    out.bytes = 0;
    add_zstd(&out, text, TEXT_BYTES);
    check_reads(bp_test_write("b.gz", out.data, out.bytes), text, TEXT_BYTES);
    bp_free(text);
}

static void parts_that_follow_each_other_are_one_text(void **state)
{
    static packed out;
    char *text = make_text();

    (void)state;
    out.bytes = 0;
    add_gzip(&out, text, 1000);
    add_gzip(&out, text, 0);
    add_gzip(&out, text + 1000, TEXT_BYTES - 1000);
    check_reads(bp_test_write("members.gz", out.data, out.bytes), text, TEXT_BYTES);
    out.bytes = 0;
    memcpy(out.data, "\x50\x2A\x4D\x18\x03\x00\x00\x00xyz", 11); /* a skippable frame, as pzstd's */
    out.bytes = 11;
    add_zstd(&out, text, 400000);
    add_zstd(&out, text, 0);
    add_zstd(&out, text + 400000, TEXT_BYTES - 400000);
    check_reads(bp_test_write("frames.zst", out.data, out.bytes), text, TEXT_BYTES);
    bp_free(text);
}

static void empty_and_short_files_are_plain(void **state)
{
    (void)state;
    check_reads(bp_test_write("empty", "", 0), "", 0);
    check_reads(bp_test_write("short", "\x1F\x8B", 2), "\x1F\x8B", 2);
}

static void expect_damaged(const packed *file, size_t bytes, const char *message)
{
    static char out[3 * TEXT_BYTES];
    size_t got;
    const char *path = bp_test_write("damaged", file->data, bytes);

    bp_test_expect(read_all(path, 65536, out, sizeof out, &got), BP_ERR_FORMAT);
    bp_test_message_has(message);
    bp_test_message_has(path);
}

static void damage_is_reported(void **state)
{
    static packed out;
    char *text = make_text();

    (void)state;
    for (int k = 0; k < 2; k++) {
        out.bytes = 0;
        k == 0 ? add_gzip(&out, text, TEXT_BYTES) : add_zstd(&out, text, TEXT_BYTES);
        expect_damaged(&out, out.bytes - 1, "[text.damaged]");
        expect_damaged(&out, out.bytes / 2, "[text.damaged]");
        expect_damaged(&out, 12, "[text.damaged]");
        out.data[out.bytes] = 'x';
        expect_damaged(&out, out.bytes + 1, "[text.damaged]");
        memcpy(out.data + out.bytes, "garbage, long enough for a header", 33);
        expect_damaged(&out, out.bytes + 33, "[text.damaged]");
        out.data[out.bytes / 2] ^= 0x10;
        expect_damaged(&out, out.bytes, "[text.damaged]");
    }
    bp_free(text);
}

static void other_codings_are_refused(void **state)
{
    static const struct {
        const char *text, *message;
        size_t bytes;
    } cases[] = {{"BZh91AY&SYx", "bzip2 ... a.gz ... [text.other_coding]", 11},
                 {"BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0", "bzip2", 14},
                 {"\xfd\x37zXZ\0\0", "compressed with xz", 7},
                 {"\xff\xfet\0", "UTF-16 ... iconv -f utf-16", 4},
                 {"\xfe\xff\0t", "UTF-16", 4}};
    bp_text_source *source;

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const char *path = bp_test_write("a.gz", cases[k].text, cases[k].bytes);

        bp_test_expect(bp_text_source_open(&source, path), BP_ERR_FORMAT);
        bp_test_message_has(cases[k].message);
    }
    check_reads(bp_test_write("a", "BZh9 is text", 12), "BZh9 is text", 12);
    check_reads(bp_test_write("a", "\xfd\x37zX", 4), "\xfd\x37zX", 4);
}

/* 2^28: more memory than a reader should be made to take. */
static void large_zstd_window_is_refused(void **state)
{
    static packed out;
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_inBuffer in = {"text", 4, 0};
    ZSTD_outBuffer frame = {out.data, sizeof out.data, 0};

    (void)state;
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 28)));
    assert_int_equal(ZSTD_compressStream2(context, &frame, &in, ZSTD_e_flush), 0);
    assert_int_equal(ZSTD_compressStream2(context, &frame, &in, ZSTD_e_end), 0);
    (void)ZSTD_freeCCtx(context);
    expect_damaged(&out, frame.pos, "--long=27");
}

/* A frame of blocks that each repeat one byte 128 Ki times: 4 bytes in the file for one. */
static void a_bomb_is_refused(void **state)
{
    const size_t blocks = 16000; /* 2 GiB */
    unsigned char *bomb = bp_alloc("test.bomb", (int64_t)(6 + 4 * blocks), 1);
    const unsigned char head[6] = {0x28, 0xB5, 0x2F, 0xFD, 0, 0x58}, block[4] = {2, 0, 16, 'a'};
    char *text = bp_alloc("test.text", 1 << 20, 1);
    bp_text_source *source;
    int64_t total = 0;
    bp_err err = BP_OK;

    (void)state;
    memcpy(bomb, head, sizeof head);
    for (size_t k = 0; k < blocks; k++)
        memcpy(bomb + 6 + 4 * k, block, 4);
    bp_test_expect(bp_text_source_open(&source, bp_test_write("bomb.zst", bomb, 6 + 4 * blocks)),
                   BP_OK);
    for (size_t bytes = 1; err == BP_OK && bytes > 0; total += (int64_t)bytes)
        err = bp_text_source_read(source, text, 1 << 20, &bytes);
    assert_int_equal(err, BP_ERR_FORMAT);
    bp_test_message_has("[text.damaged]");
    assert_true(total < (int64_t)700 << 20);
    bp_text_source_close(&source);
    bp_free(text);
    bp_free(bomb);
}

static void missing_files_and_folders_are_reported(void **state)
{
    bp_text_source *source;
    const char *folder = bp_test_path("folder");
    const char *fifo = bp_test_path("fifo");

    (void)state;
    bp_test_expect(bp_text_source_open(&source, bp_test_path("none")), BP_ERR_INPUT);
    bp_test_expect(bp_dir_make(folder), BP_OK);
    bp_test_expect(bp_text_source_open(&source, folder), BP_ERR_INPUT);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    bp_test_expect(bp_text_source_open(&source, fifo), BP_ERR_INPUT); /* and does not wait */
    assert_null(source);
}

static void unreadable_disk_is_reported(void **state)
{
    static char out[3 * TEXT_BYTES];
    char *text = make_text();
    const char *path = bp_test_write("plain", text, TEXT_BYTES);
    size_t got;

    (void)state;
    bp_fault_arm("text.read:2");
    bp_test_expect(read_all(path, 65536, out, sizeof out, &got), BP_ERR_IO);
    bp_test_message_has(path);
    bp_fault_arm(NULL);
    bp_free(text);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_codings_give_the_text),
        cmocka_unit_test(parts_that_follow_each_other_are_one_text),
        cmocka_unit_test(empty_and_short_files_are_plain),
        cmocka_unit_test(damage_is_reported),
        cmocka_unit_test(other_codings_are_refused),
        cmocka_unit_test(large_zstd_window_is_refused),
        cmocka_unit_test(a_bomb_is_refused),
        cmocka_unit_test(missing_files_and_folders_are_reported),
        cmocka_unit_test(unreadable_disk_is_reported),
    };

    return BP_TEST_RUN(tests);
}
