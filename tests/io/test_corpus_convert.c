/* Corpora that h5py wrote, good and bad, converted; and h5py and h5dump on native ones, through the
 * plugin. */
#include "bp_test.h"
#include "corpus_model.h"
#include "io/corpus/corpus_convert.h"
#include "io/corpus/corpus_file.h"
#include "io/h5/lzf_filter.h"

#include <inttypes.h>

#define PYTHON "/usr/bin/python3"

/* Run a command with the plugin; fails the test unless it exits with 0. */
static void run(const char *command)
{
    int status = system(command);

    if (status != 0)
        print_error("'%s' exited with %d\n", command, status);
    assert_int_equal(status, 0);
}

static void need_h5py(void)
{
    static int there = -1; /* not asked yet */

    if (there < 0)
        there = system(PYTHON " -c 'import h5py' 2> /dev/null") == 0;
    if (!there)
        bp_test_skip("there is no " PYTHON " with h5py");
    assert_int_equal(setenv("HDF5_PLUGIN_PATH", BP_TEST_PLUGIN, 1), 0);
}

/* The files of foreign.py, made once. */
static const char *foreign(const char *name)
{
    static bool made;
    char command[2 * PATH_MAX];

    need_h5py();
    if (!made) {
        bp_test_expect(bp_dir_make(bp_test_path("foreign")), BP_OK);
        snprintf(command, sizeof command, PYTHON " '%s/foreign.py' '%s'", BP_TEST_SCRIPTS,
                 bp_test_path("foreign"));
        run(command);
        made = true;
    }
    char file[64];
    snprintf(file, sizeof file, "foreign/%s.h5", name);
    return bp_test_path(file);
}

static bp_corpus_converted converted; /* of the last conversion */

static bp_err convert(const char *path)
{
    const bp_corpus_conversion conversion = {
        .source = path, .out = bp_test_path("native.h5"), .tool = "a test"};

    return bp_corpus_convert(&conversion, &converted);
}

/* The native file of a foreign one, open. */
static bp_corpus_file *native(const char *path)
{
    bp_corpus_file *file;

    bp_test_expect(convert(path), BP_OK);
    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("native.h5")), BP_OK);
    return file;
}

static int32_t token_of(int64_t k)
{
    return k % 1000 == 999 ? 120 : (int32_t)((k * 7919 + 13) % 120);
}

static void good_files_are_converted(void **state)
{
    static const char *const names[] = {
        "good-i1",      "good-u1",         "good-i2",        "good-u2",          "good-i4",
        "good-u4",      "good-i8",         "good-u8",        "good-bigu2",       "good-bigi8",
        "good-chunked", "good-gzip",       "good-shuffle",   "good-lzf",         "good-zstd",
        "good-mask",    "good-zstd-level", "good-one-chunk", "good-lzf-shuffle", "good-libver",
        "good-all"};
    char hash[33] = "";

    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        int32_t tokens[5000];
        const int64_t *start;
        bp_corpus_file *file = native(foreign(names[n]));
        const bp_corpus_info *info = bp_corpus_file_info(file);
        assert_false(info->open_ends);
        assert_int_equal(info->tokens, 5000);
        assert_int_equal(info->documents, 5);
        assert_int_equal(info->vocab_size, 121);
        assert_int_equal(info->eod_id, 120);
        bp_test_expect(bp_corpus_file_read(file, 0, 5000, tokens), BP_OK);
        for (int64_t k = 0; k < 5000; k++)
            assert_int_equal(tokens[k], token_of(k));
        bp_test_expect(bp_corpus_file_read(file, 1234, 10, tokens), BP_OK);
        assert_int_equal(tokens[9], token_of(1243));
        bp_test_expect(bp_corpus_file_doc_start(file, &start), BP_OK);
        for (int64_t d = 0; d <= 5; d++)
            assert_int_equal(start[d], 1000 * d);
        if (n == 0)
            snprintf(hash, sizeof hash, "%s", info->content_hash);
        if (strcmp(names[n], "good-all") != 0)             /* which has columns besides */
            assert_string_equal(info->content_hash, hash); /* the same, whatever the storage */
        bp_corpus_file_close(&file);
    }
}

static void columns_are_kept(void **state)
{
    const int64_t *bytes, *words, *words_split;
    bp_corpus_label label;
    char id[16];

    bp_corpus_file *file = native(foreign("good-all"));
    assert_int_equal(strlen(bp_corpus_file_info(file)->tokenizer_hash), 64);
    assert_int_equal(bp_corpus_file_info(file)->labels, 1);
    bp_test_expect(bp_corpus_file_doc_counts(file, &bytes, &words, &words_split), BP_OK);
    assert_int_equal(bytes[4], 400);
    assert_int_equal(words[4], 40);
    assert_null(words_split);
    bp_test_expect(bp_corpus_file_doc_id(file, 2, id, sizeof id), BP_OK);
    assert_string_equal(id, "three");
    bp_test_expect(bp_corpus_file_doc_id(file, 2, id, 4), BP_OK);
    assert_string_equal(id, "thr");
    bp_test_expect(bp_corpus_file_label(file, 0, &label), BP_OK);
    assert_string_equal(label.name, "genre");
    assert_string_equal(label.values[label.codes[4]], "fiction");
    bp_corpus_file_close(&file);
}

static void bad_files_are_refused_with_the_reason(void **state)
{
    static const struct {
        const char *name, *message;
    } files[] = {
        {"bad-beyond", "token id 121 ... 121 ... [corpus.bad_token]"},
        {"bad-beyond", "/tokens[4321]"},
        {"bad-negative", "-1 ... [corpus.bad_token]"},
        {"bad-huge", "[corpus.bad_token]"},
        {"bad-unsorted", "1000 ... 2000 ... [corpus.bad_doc_start]"},
        {"bad-start", "5 ... [corpus.bad_doc_start]"},
        {"bad-end", "5001 ... [corpus.bad_doc_start]"},
        {"bad-short", "4999 ... [corpus.bad_doc_start]"},
        {"bad-no-starts", "[corpus.bad_doc_start]"},
        {"bad-real-starts", "[corpus.wrong_type]"},
        {"bad-no-tokens", "/tokens is missing"},
        {"bad-no-doc-start", "/doc_start is missing"},
        {"bad-no-vocab", "[h5.missing_attribute]"},
        {"bad-vocab", "0 ... [corpus.bad_vocab_size]"},
        {"bad-vocab-text", "[h5.wrong_attribute]"},
        {"bad-eod", "121 ... [corpus.bad_token]"},
        {"bad-reals", "[corpus.wrong_type]"},
        {"bad-2d", "2 dimensions ... [h5.wrong_dims]"},
        {"bad-filter", "6 ... [h5.unknown_filter]"},
        {"bad-unknown-filter", "32099 ... [h5.unknown_filter]"},
        {"bad-soft", "a soft link ... [h5.link]"},
        {"bad-loop", "a soft link ... [h5.link]"},
        {"bad-external-link", "an external link ... [h5.link]"},
        {"bad-group", "[h5.not_a_dataset]"},
        {"bad-type", "[h5.not_a_dataset]"},
        {"bad-virtual", "virtual"},
        {"bad-external-storage", "[h5.external]"},
        {"bad-vlen", "[h5.wrong_type]"},
        {"bad-text", "[corpus.wrong_type]"},
        {"bad-absurd", "[h5.claims_too_much]"},
        {"bad-unwritten", "[h5.claims_too_much]"},
        {"bad-half", "2 ... 5 ... [h5.claims_too_much]"},
        {"bad-chunk", "536870912 values ... [h5.large_chunks]"},
        {"bad-soft-column", "[h5.link]"},
        {"bad-soft-labels", "[h5.link]"},
        {"bad-bytes", "4 values ... 5 ... [corpus.wrong_length]"},
        {"bad-words", "4 values ... 5 ... [corpus.wrong_length]"},
        {"bad-ids", "[h5.wrong_type]"},
        {"bad-label-names", "/label_names/genre is missing"},
        {"bad-label", "code 2 ... [label.unknown_code]"},
    };

    (void)remove(bp_test_path("native.h5"));
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        bp_test_expect(convert(foreign(files[k].name)), BP_ERR_FORMAT);
        assert_false(bp_path_exists(bp_test_path("native.h5")));
        bp_test_message_has(files[k].message);
        bp_test_message_has(files[k].name);
    }
}

static void chunks_of_another_length_are_refused(void **state)
{
    static const char *const storages[] = {"none",     "gzip",    "lzf",         "zstd",
                                           "gzip-sum", "shuffle", "zstd-shuffle"};
    char name[64];

    for (size_t k = 0; k < 2 * (sizeof storages / sizeof storages[0]); k++) {
        bool is_short = k % 2 == 0;

        snprintf(name, sizeof name, "bad-%s-%s", storages[k / 2], is_short ? "short" : "long");
        bp_test_expect(convert(foreign(name)), BP_ERR_FORMAT);
        assert_false(bp_path_exists(bp_test_path("native.h5")));
        bp_test_message_has(is_short
                                ? "chunk 2 of /tokens ... fewer ... 2000 ... [h5.chunk_length]"
                                : "chunk 2 of /tokens ... more ... 2000 ... [h5.chunk_length]");
    }
    bp_test_expect(convert(foreign("bad-starts-short")), BP_ERR_FORMAT);
    bp_test_message_has("chunk 2 of /doc_start ... fewer ... 16 ... [h5.chunk_length]");
    bp_test_expect(convert(foreign("bad-starts-long")), BP_ERR_FORMAT);
    bp_test_message_has("chunk 1 of /doc_start ... more ... 16 ... [h5.chunk_length]");
}

static void jobs_refuse_a_foreign_file_with_the_remedy(void **state)
{
    bp_corpus_file *file;

    bp_test_expect(bp_corpus_file_open(&file, foreign("good-u2")), BP_ERR_FORMAT);
    assert_null(file);
    bp_test_message_has("--format hdf5 --out ... [corpus.foreign]");
    bp_test_message_has("good-u2-native.h5 ... [corpus.foreign]");
}

static void native_file_needs_no_conversion(void **state)
{
    char *once = strdup(bp_test_path("once.h5"));

    bp_corpus_file *file = native(foreign("good-u2"));
    bp_corpus_file_close(&file);
    assert_int_equal(rename(bp_test_path("native.h5"), once), 0);
    bp_test_expect(convert(once), BP_ERR_FORMAT);
    bp_test_message_has("[corpus.native]");
    free(once);
}

/* What the child may take is nothing here: it is ended by the kernel or by its parent. */
static void reading_that_takes_too_long_is_refused(void **state)
{
    double seconds = bp_corpus_convert_seconds;

    bp_corpus_convert_seconds = -0.05;
    bp_test_expect(convert(foreign("good-gzip")), BP_ERR_FORMAT);
    bp_corpus_convert_seconds = seconds;
    bp_test_message_has("[h5.too_slow]");
}

static void cut_files_are_refused(void **state)
{
    char *data;
    size_t bytes;

    bp_test_expect(bp_file_read(foreign("good-gzip"), INT32_MAX, &data, &bytes), BP_OK);
    for (size_t k = 0; k < 64; k++) {
        bp_test_expect(convert(bp_test_write("cut.h5", data, k * bytes / 64)), BP_ERR_FORMAT);
    }
    bp_free(data);
}

/* Whatever HDF5 makes of a damaged structure happens to another process. */
static void damaged_files_harm_nobody(void **state)
{
    int refused = 0;
    char *data;
    size_t bytes;

    bp_test_expect(bp_file_read(foreign("good-libver"), INT32_MAX, &data, &bytes), BP_OK);
    for (size_t k = 0; k < 200; k++) {
        size_t at = 8 + (k * 2654435761u) % (bytes - 8);
        char was = data[at];
        data[at] = (char)~was;
        bp_err err = convert(bp_test_write("damaged.h5", data, bytes));
        assert_true(err == BP_OK || err == BP_ERR_FORMAT || err == BP_ERR_IO);
        refused += err != BP_OK;
        data[at] = was;
    }
    assert_true(refused > 0);
    bp_free(data);
}

static const corpus_model MODEL = {
    .documents = 200, .mean_tokens = 800, .vocab_size = 50257, .eod_id = 50256};

static void dump_tokens(const char *corpus, const char *path)
{
    bp_corpus_file *file;

    bp_test_expect(bp_corpus_file_open(&file, corpus), BP_OK);
    int64_t count = bp_corpus_file_info(file)->tokens;
    int32_t *tokens = bp_alloc("test", count, sizeof *tokens);
    bp_test_expect(bp_corpus_file_read(file, 0, count, tokens), BP_OK);
    bp_test_expect(bp_file_write(path, tokens, (size_t)count * sizeof *tokens), BP_OK);
    bp_free(tokens);
    bp_corpus_file_close(&file);
}

static void h5py_reads_ours_and_we_read_what_it_writes(void **state)
{
    const char *ours = bp_test_path("ours.h5"), *dump = bp_test_path("tokens.bin");
    const char *copy = bp_test_path("copy.h5");
    char command[4 * PATH_MAX];

    need_h5py();
    bp_test_expect(corpus_model_write(&MODEL, ours), BP_OK);
    dump_tokens(ours, dump);
    snprintf(command, sizeof command, PYTHON " '%s/read_ours.py' '%s' '%s' '%s'", BP_TEST_SCRIPTS,
             ours, dump, copy);
    run(command);
    bp_test_expect(convert(copy), BP_OK);
    bp_test_expect(corpus_model_read(&MODEL, bp_test_path("native.h5")), BP_OK);
}

static void examples_of_the_documentation_run(void **state)
{
    static const int32_t expected[6] = {5, 17, 3, 8, 8, 2};
    char command[4 * PATH_MAX];
    int32_t tokens[6];

    need_h5py();
    bp_test_expect(corpus_model_write(&MODEL, bp_test_path("corpus.h5")), BP_OK);
    snprintf(command, sizeof command,
             "cd '%s' && " PYTHON " '%s/run_examples.py' '%s/formats.md' 'Corpus file' > out.txt",
             bp_test_folder(), BP_TEST_SCRIPTS, BP_TEST_DOCS);
    run(command);
    bp_corpus_file *file = native(bp_test_path("foreign.h5"));
    assert_int_equal(bp_corpus_file_info(file)->documents, 3);
    bp_test_expect(bp_corpus_file_read(file, 0, 6, tokens), BP_OK);
    assert_memory_equal(tokens, expected, sizeof expected);
    bp_corpus_file_close(&file);
}

static void h5dump_reads_ours(void **state)
{
    const char *ours = bp_test_path("ours.h5"), *dumped = bp_test_path("dumped.bin");
    const char *expected = bp_test_path("expected.bin");
    char command[4 * PATH_MAX];

    if (system("command -v h5dump > /dev/null") != 0)
        bp_test_skip("there is no h5dump");
    assert_int_equal(setenv("HDF5_PLUGIN_PATH", BP_TEST_PLUGIN, 1), 0);
    bp_test_expect(corpus_model_write(&MODEL, ours), BP_OK);
    snprintf(command, sizeof command, "h5dump -d /tokens -b LE -o '%s' '%s' > /dev/null", dumped,
             ours);
    run(command);
    dump_tokens(ours, expected);
    char *narrow, *wide;
    size_t narrow_bytes, wide_bytes;
    bp_test_expect(bp_file_read(dumped, INT32_MAX, &narrow, &narrow_bytes), BP_OK);
    bp_test_expect(bp_file_read(expected, INT32_MAX, &wide, &wide_bytes), BP_OK);
    assert_int_equal(2 * narrow_bytes, wide_bytes);
    for (size_t k = 0; k < narrow_bytes / 2; k++)
        assert_int_equal(((const uint16_t *)(const void *)narrow)[k],
                         ((const uint32_t *)(const void *)wide)[k]);
    bp_free(narrow);
    bp_free(wide);
}

static void plugin_links_no_hdf5(void **state)
{
    if (system("command -v ldd > /dev/null") != 0)
        bp_test_skip("there is no ldd");
    assert_int_not_equal(system("ldd '" BP_TEST_PLUGIN "/libh5zstd.so' | grep hdf5"), 0);
    assert_int_equal(system("ldd '" BP_TEST_PLUGIN "/libh5zstd.so' | grep -q zstd"), 0);
}

/* Every cut and many changes of a stream: never beyond the buffers (the sanitizers watch), never
 * more than fit. */
static void damaged_lzf_is_refused_or_bounded(void **state)
{
    static const unsigned char data[] = {2, 'a', 'b', 'c', 0x20 | 0, 2, 0xe0, 3, 2, 0, 'x'};
    unsigned char changed[sizeof data], out[64];

    /* three letters; 3 from 3 back; 12 from 3 back; one letter */
    assert_int_equal(bp_lzf_decode(out, sizeof out, data, sizeof data), 19);
    assert_memory_equal(out, "abcabcabcabcabcabcx", 19);
    assert_int_equal(bp_lzf_decode(out, 18, data, sizeof data), 0);
    for (size_t cut = 1; cut < sizeof data; cut++)
        assert_true(bp_lzf_decode(out, sizeof out, data, cut) <= 18);
    for (size_t at = 0; at < sizeof data; at++)
        for (int value = 0; value < 256; value++) {
            memcpy(changed, data, sizeof data);
            changed[at] = (unsigned char)value;
            assert_true(bp_lzf_decode(out, sizeof out, changed, sizeof changed) <= sizeof out);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_are_converted),
        cmocka_unit_test(columns_are_kept),
        cmocka_unit_test(bad_files_are_refused_with_the_reason),
        cmocka_unit_test(chunks_of_another_length_are_refused),
        cmocka_unit_test(jobs_refuse_a_foreign_file_with_the_remedy),
        cmocka_unit_test(native_file_needs_no_conversion),
        cmocka_unit_test(reading_that_takes_too_long_is_refused),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(damaged_files_harm_nobody),
        cmocka_unit_test(h5py_reads_ours_and_we_read_what_it_writes),
        cmocka_unit_test(examples_of_the_documentation_run),
        cmocka_unit_test(h5dump_reads_ours),
        cmocka_unit_test(plugin_links_no_hdf5),
        cmocka_unit_test(damaged_lzf_is_refused_or_bounded),
    };
    return BP_TEST_RUN(tests);
}
