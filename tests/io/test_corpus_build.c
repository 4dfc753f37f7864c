/* Text to corpora by any number of ranks: the same bytes as by one, the same failures, nothing left
 * of them. */
#include "bp_test_mpi.h"

#include "base/process/signals.h"
#include "io/corpus/corpus_build.h"
#include "io/corpus/corpus_file.h"
#include "text/train/tokenizer_train.h"
#include "text/unicode/tally.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define WORLD MPI_COMM_WORLD

/* ---- texts and a tokenizer, the same in every run ---- */

static const char *const WORDS[] = {"the",
                                    "Song",
                                    "of",
                                    "a",
                                    "\xe5\xa4\xa9\xe5\x9c\xb0",
                                    "don't",
                                    "12345",
                                    "naive-looking",
                                    "\xf0\x9f\x98\x80",
                                    "and",
                                    "however,",
                                    "\xc2\xa0x",
                                    "end."};
#define WORD_COUNT ((int)(sizeof WORDS / sizeof WORDS[0]))

/* Line k: 0 to 40 words; every 11th is empty, the 5th has invalid bytes, the 7th is long. */
static void put_line(FILE *file, int k, bool quoted)
{
    int count = k % 11 == 10 ? 0 : k == 7 ? 4000 : (k * 37) % 41 + 1;

    for (int w = 0; w < count; w++)
        fprintf(file, "%s%s", w == 0 ? "" : " ", WORDS[(k * 31 + w * w + w) % WORD_COUNT]);
    if (k == 5 && !quoted)
        fputs("\xff\xfe in \xc3", file);
}

static void write_lines(const char *path, int first, int count)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    for (int k = first; k < first + count; k++) {
        put_line(file, k, false);
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

static void write_objects(const char *path, int count, int bad_line)
{
    static const char *const labels[] = {"\"news\"", "3", "true", "null", "\"\""};
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    for (int k = 0; k < count; k++) {
        fprintf(file, "{\"id\": \"doc-%d\", \"genre\": %s, \"text\": \"", k, labels[k % 5]);
        put_line(file, k, true);
        fputs(k + 1 >= bad_line && bad_line > 0 ? "\", }\n" : "\"}\n", file);
    }
    assert_int_equal(fclose(file), 0);
}

static void make_texts(void)
{
    static bool made;

    if (!made && bp_comm_is_root(WORLD)) {
        write_lines(bp_test_path("a.txt"), 0, 200);
        write_lines(bp_test_path("b.txt"), 200, 150);
        write_objects(bp_test_path("c.jsonl"), 300, 0);
        write_objects(bp_test_path("bad.jsonl"), 300, 123);
    }
    BP_MPI(MPI_Barrier(WORLD));
    made = true;
}

static bp_tokenizer *tokenizer_of_texts(const char *kind)
{
    const bp_trainer_options options = {.kind = kind, .size = 320, .format = BP_TEXT_LINES};
    const char *paths[1] = {bp_test_path("a.txt")};
    bp_trainer_report report;
    bp_tokenizer *tokenizer;

    make_texts();
    bp_test_check_err(WORLD, bp_tokenizer_train(&tokenizer, WORLD, paths, 1, &options, &report),
                      BP_OK);
    return tokenizer;
}

/* ---- building ---- */

static const char *const GENRE = "genre";

static bp_corpus_build spec_of(const bp_tokenizer *tokenizer, bp_text_format format,
                               const char *const *paths, int count, const char *out)
{
    bp_corpus_build spec = {.paths = paths,
                            .path_count = count,
                            .format = format,
                            .format_name = "a format",
                            .tokenizer = tokenizer,
                            .tool = "a test",
                            .out = out};

    if (format == BP_TEXT_JSONL) {
        spec.labels = &GENRE;
        spec.label_count = 1;
    }
    return spec;
}

static bool same_bytes(const char *a, const char *b)
{
    char *of_a = NULL, *of_b = NULL;
    size_t bytes_a, bytes_b;
    bool same = bp_file_read(a, INT32_MAX, &of_a, &bytes_a) == BP_OK &&
                bp_file_read(b, INT32_MAX, &of_b, &bytes_b) == BP_OK && bytes_a == bytes_b &&
                memcmp(of_a, of_b, bytes_a) == 0;

    bp_free(of_a);
    bp_free(of_b);
    return same;
}

static void file_is_that_of_one_rank(void **state)
{
    static const char *const kinds[] = {"bpe", "word", "char"};
    static const bp_text_format formats[] = {BP_TEXT_FILE, BP_TEXT_LINES, BP_TEXT_JSONL};

    for (int k = 0; k < 9; k++) {
        bp_tokenizer *tokenizer = tokenizer_of_texts(kinds[k / 3]);
        const char *texts[2] = {bp_test_path("a.txt"), bp_test_path("b.txt")};
        const char *objects[1] = {bp_test_path("c.jsonl")};
        bool is_jsonl = formats[k % 3] == BP_TEXT_JSONL;
        bp_corpus_built all, one;
        bp_corpus_build spec = spec_of(tokenizer, formats[k % 3], is_jsonl ? objects : texts,
                                       is_jsonl ? 1 : 2, bp_test_path("all.h5"));
        bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &all), BP_OK);
        spec.out = bp_test_path("pieces.h5");
        spec.piece_bytes = 200; /* long documents in many pieces, */
        spec.range_bytes = 300; /* and lines that are longer than ranges */
        bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &one), BP_OK);
        bp_test_check(WORLD, memcmp(&all, &one, sizeof all) == 0);
        bool same = true;
        if (bp_comm_is_root(WORLD)) {
            spec.out = bp_test_path("one.h5");
            spec.piece_bytes = 0;
            same = bp_corpus_build_file(MPI_COMM_SELF, &spec, &one) == BP_OK &&
                   memcmp(&all, &one, sizeof all) == 0 &&
                   same_bytes(spec.out, bp_test_path("all.h5")) &&
                   same_bytes(spec.out, bp_test_path("pieces.h5"));
        }
        bp_test_check(WORLD, same);
        bp_tokenizer_free(&tokenizer);
    }
}

#define NEWLINES_37                                                                                \
    "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"                                                         \
    "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n"
#define LINES_OF_NOTHING NEWLINES_37 NEWLINES_37 NEWLINES_37 NEWLINES_37

/* Ranges that hold nothing but empty lines, or end with some. */
static void empty_lines_are_of_one_range(void **state)
{
    bp_tokenizer *tokenizer = tokenizer_of_texts("char");
    const char *paths[2] = {bp_test_path("gaps.txt"), bp_test_path("a.txt")};
    bp_corpus_build spec = spec_of(tokenizer, BP_TEXT_LINES, paths, 2, bp_test_path("gaps-all.h5"));
    bp_corpus_built all, one;
    bool same = true;

    (void)state;
    if (bp_comm_is_root(WORLD)) {
        FILE *file = fopen(paths[0], "wb");

        assert_non_null(file);
        for (int k = 0; k < 40; k++)
            (void)fprintf(file, "%.*s%s%.*s", 37 * (k % 5), LINES_OF_NOTHING,
                          k % 3 == 0 ? "a line\r\n\r\n" : "another\n", k, LINES_OF_NOTHING);
        assert_int_equal(fclose(file), 0);
    }
    BP_MPI(MPI_Barrier(WORLD));
    spec.range_bytes = 20;
    bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &all), BP_OK);
    if (bp_comm_is_root(WORLD)) {
        spec.out = bp_test_path("gaps-one.h5");
        same = bp_corpus_build_file(MPI_COMM_SELF, &spec, &one) == BP_OK &&
               memcmp(&all, &one, sizeof all) == 0 &&
               same_bytes(spec.out, bp_test_path("gaps-all.h5"));
    }
    bp_test_check(WORLD, same);
    bp_tokenizer_free(&tokenizer);
}

/* Lines of bad documents, and ids that are numbers of lines, which a range does not know by itself.
 */
static void lists_are_those_of_one_rank(void **state)
{
    static const char ids[] = "a.txt:17\nb.txt:1\nb.txt:149\na.txt:3\nnone.txt:1\n";
    bp_tokenizer *tokenizer = tokenizer_of_texts("char");
    const char *texts[2] = {bp_test_path("a.txt"), bp_test_path("b.txt")};
    const char *objects[1] = {bp_test_path("bad.jsonl")};
    const char *list = bp_test_path("ids.txt"), *skipped = bp_test_path("skipped.jsonl");

    (void)state;
    if (bp_comm_is_root(WORLD))
        bp_test_write("ids.txt", ids, sizeof ids - 1);
    BP_MPI(MPI_Barrier(WORLD));
    for (int k = 0; k < 3; k++) {
        bool is_jsonl = k == 2, same = true;
        bp_corpus_build spec =
            spec_of(tokenizer, is_jsonl ? BP_TEXT_JSONL : BP_TEXT_LINES, is_jsonl ? objects : texts,
                    is_jsonl ? 1 : 2, bp_test_path("listed-all.h5"));
        bp_corpus_built all, one;

        spec.range_bytes = 500;
        spec.list = is_jsonl ? NULL : list;
        spec.takes_listed = k == 1;
        spec.skips_bad = is_jsonl;
        spec.skip_count = 1000;
        spec.skip_list = is_jsonl ? skipped : NULL;
        bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &all), BP_OK);
        if (bp_comm_is_root(WORLD)) {
            spec.out = bp_test_path("listed-one.h5");
            spec.skip_list = is_jsonl ? bp_test_path("skipped-one.jsonl") : NULL;
            same = bp_corpus_build_file(MPI_COMM_SELF, &spec, &one) == BP_OK &&
                   memcmp(&all, &one, sizeof all) == 0 &&
                   same_bytes(spec.out, bp_test_path("listed-all.h5")) &&
                   (!is_jsonl || same_bytes(spec.skip_list, skipped)) &&
                   (is_jsonl ? one.skipped_bad == 178 : one.listed == 5 && one.found == 4);
        }
        bp_test_check(WORLD, same);
    }
    bp_tokenizer_free(&tokenizer);
}

/* The plain loop: line by line with bp_encode and bp_text_count. */
static void compare_lines(const char *text_path, const char *corpus_path,
                          const bp_tokenizer *tokenizer)
{
    const int64_t *start, *bytes, *words, *words_split;
    bp_corpus_file *file;
    bp_encoder *encoder;
    bp_ids ids = {0};
    int64_t document = 0, line_number = 0;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t got;
    FILE *text = fopen(text_path, "rb");

    assert_non_null(text);
    bp_test_expect(bp_corpus_file_open(&file, corpus_path), BP_OK);
    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_corpus_file_doc_start(file, &start), BP_OK);
    bp_test_expect(bp_corpus_file_doc_counts(file, &bytes, &words, &words_split), BP_OK);
    while ((got = getline(&line, &capacity, text)) >= 0) {
        bp_text_counts counts;
        int32_t tokens[65536];
        char id[64], expected[64];
        line_number++;
        if (got == 1) /* the newline alone: no document */
            continue;
        ids.count = 0;
        bp_test_expect(bp_encode(encoder, line, (size_t)got - 1, &ids), BP_OK);
        bp_text_count(&counts, line, (size_t)got - 1);
        assert_int_equal(start[document + 1] - start[document], ids.count + 1);
        bp_test_expect(bp_corpus_file_read(file, start[document], ids.count + 1, tokens), BP_OK);
        assert_memory_equal(tokens, ids.data, (size_t)ids.count * sizeof *tokens);
        assert_int_equal(tokens[ids.count], bp_tokenizer_eod(tokenizer));
        assert_int_equal(bytes[document], got - 1);
        assert_int_equal(words[document], counts.words);
        assert_int_equal(words_split[document], counts.words_split);
        bp_test_expect(bp_corpus_file_doc_id(file, document, id, sizeof id), BP_OK);
        snprintf(expected, sizeof expected, "a.txt:%" PRId64, line_number);
        assert_string_equal(id, expected);
        document++;
    }
    assert_int_equal(document, bp_corpus_file_info(file)->documents);
    assert_string_equal(bp_corpus_file_info(file)->tokenizer_hash, bp_tokenizer_hash(tokenizer));
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_corpus_file_close(&file);
    free(line);
    assert_int_equal(fclose(text), 0);
}

static void documents_are_those_of_the_text(void **state)
{
    bp_tokenizer *tokenizer = tokenizer_of_texts("bpe");
    const char *texts[1] = {bp_test_path("a.txt")};
    const bp_corpus_build spec =
        spec_of(tokenizer, BP_TEXT_LINES, texts, 1, bp_test_path("lines.h5"));
    bp_corpus_built built;

    bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &built), BP_OK);
    bp_test_check(WORLD, built.invalid_bytes == 3 && built.skipped_lines == 18 &&
                             built.documents == 182 && built.empty_documents == 0);
    if (bp_comm_is_root(WORLD))
        compare_lines(texts[0], spec.out, tokenizer);
    bp_tokenizer_free(&tokenizer);
}

static void labels_and_ids_are_those_of_the_objects(void **state)
{
    static const char *const expected[5] = {"news", "3", "true", "", ""};
    bp_tokenizer *tokenizer = tokenizer_of_texts("bpe");
    const char *objects[1] = {bp_test_path("c.jsonl")};
    const bp_corpus_build spec =
        spec_of(tokenizer, BP_TEXT_JSONL, objects, 1, bp_test_path("labels.h5"));
    bp_corpus_built built;

    bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &built), BP_OK);
    bp_test_check(WORLD, built.documents == 300 && built.empty_documents == 27 &&
                             built.invalid_bytes == 0);
    if (bp_comm_is_root(WORLD)) {
        bp_corpus_file *file;
        bp_corpus_label label;
        char id[32], name[32], *text;
        size_t bytes;
        bp_test_expect(bp_corpus_file_open(&file, spec.out), BP_OK);
        bp_test_expect(bp_corpus_file_label(file, 0, &label), BP_OK);
        for (int64_t d = 0; d < 300; d++) {
            snprintf(name, sizeof name, "doc-%" PRId64, d);
            bp_test_expect(bp_corpus_file_doc_id(file, d, id, sizeof id), BP_OK);
            assert_string_equal(id, name);
            assert_string_equal(label.values[label.codes[d]], expected[d % 5]);
        }
        char *canonical = bp_tokenizer_text(tokenizer);
        bp_test_expect(bp_corpus_file_tokenizer(file, &text, &bytes), BP_OK);
        assert_string_equal(text, canonical);
        bp_free(canonical);
        bp_free(text);
        bp_corpus_file_close(&file);
    }
    bp_tokenizer_free(&tokenizer);
}

/* An empty file is a document with nothing but its end; one letter a document of one token. */
static void empty_and_one_token_documents_are_kept(void **state)
{
    bp_tokenizer *tokenizer = tokenizer_of_texts("bpe");
    const char *paths[3] = {bp_test_path("empty"), bp_test_path("letter"), bp_test_path("empty")};
    const bp_corpus_build spec =
        spec_of(tokenizer, BP_TEXT_FILE, paths, 3, bp_test_path("small.h5"));
    bp_corpus_built built;

    if (bp_comm_is_root(WORLD)) {
        bp_test_write("empty", "", 0);
        bp_test_write("letter", "x", 1);
    }
    BP_MPI(MPI_Barrier(WORLD));
    bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &built), BP_OK);
    bp_test_check(WORLD, built.documents == 3 && built.tokens == 4 && built.empty_documents == 2 &&
                             built.bytes == 1 && built.words == 1);
    bp_tokenizer_free(&tokenizer);
}

/* Compressed input gives the corpus of the plain text, but for the name that it keeps. */
static void compressed_text_is_read(void **state)
{
    bp_tokenizer *tokenizer = tokenizer_of_texts("bpe");
    const char *paths[3] = {bp_test_path("a.txt"), bp_test_path("gz/a.txt"),
                            bp_test_path("zst/a.txt")};
    int there = 1;

    if (bp_comm_is_root(WORLD)) {
        char command[4 * PATH_MAX];
        bp_test_expect(bp_dir_make(bp_test_path("gz")), BP_OK);
        bp_test_expect(bp_dir_make(bp_test_path("zst")), BP_OK);
        snprintf(command, sizeof command, "gzip -c '%s' > '%s' && zstd -q -c '%s' > '%s'", paths[0],
                 paths[1], paths[0], paths[2]);
        there = system("command -v gzip zstd > /dev/null") == 0 && system(command) == 0;
    }
    BP_MPI(MPI_Bcast(&there, 1, MPI_INT, 0, WORLD));
    if (!there) {
        bp_tokenizer_free(&tokenizer);
        bp_test_skip("there is no gzip or zstd");
    }
    for (int k = 0; k < 3; k++) {
        static const char *const names[3] = {"plain.h5", "gz.h5", "zst.h5"};
        const bp_corpus_build spec =
            spec_of(tokenizer, BP_TEXT_LINES, &paths[k], 1, bp_test_path(names[k]));
        bp_corpus_built built;
        bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &built), BP_OK);
        bp_test_check(WORLD,
                      !bp_comm_is_root(WORLD) || same_bytes(spec.out, bp_test_path("plain.h5")));
    }
    bp_tokenizer_free(&tokenizer);
}

/* ---- failures ---- */

/* A folder of its own for the output, so that what is left there is seen. */
static const char *fresh_folder(void)
{
    const char *folder = bp_test_path("out");

    if (bp_comm_is_root(WORLD)) {
        bp_test_expect(bp_dir_remove(folder), BP_OK);
        bp_test_expect(bp_dir_make(folder), BP_OK);
    }
    BP_MPI(MPI_Barrier(WORLD));
    return folder;
}

static bool is_empty(const char *folder)
{
    char **names;
    int64_t count = 1;

    if (bp_dir_list(folder, &names, &count) != BP_OK)
        return false;
    bp_names_free(&names, count);
    return count == 0;
}

/* The build fails on all ranks with this code and words, and leaves nothing in the folder. */
static void fails_alike(const bp_corpus_build *spec, bp_err code, const char *words)
{
    bp_corpus_built built;

    bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, spec, &built), code);
    bp_test_check_said(WORLD, words);
    bp_test_check(WORLD, is_empty(bp_test_path("out")));
}

static void faults_of_the_input_are_named_alike(void **state)
{
    bp_tokenizer *tokenizer = tokenizer_of_texts("bpe");
    const char *bad[1] = {bp_test_path("bad.jsonl")}, *missing[1] = {bp_test_path("missing.txt")};
    const char *invalid[1] = {bp_test_path("a.txt")}, *empty[1] = {bp_test_path("nothing")};
    const char *texts[1] = {bp_test_path("a.txt")};
    static const char *const other = "colour";
    bp_corpus_build spec;

    (void)fresh_folder();
    spec = spec_of(tokenizer, BP_TEXT_JSONL, bad, 1, bp_test_path("out/c.h5"));
    fails_alike(&spec, BP_ERR_FORMAT, "bad.jsonl, line 123 ... [json.invalid]");
    spec.range_bytes = 1000;
    fails_alike(&spec, BP_ERR_FORMAT, "bad.jsonl, line 123 ... [json.invalid]");
    spec = spec_of(tokenizer, BP_TEXT_LINES, missing, 1, bp_test_path("out/c.h5"));
    fails_alike(&spec, BP_ERR_INPUT, "missing.txt");
    spec = spec_of(tokenizer, BP_TEXT_JSONL, invalid, 1, bp_test_path("out/c.h5"));
    fails_alike(&spec, BP_ERR_FORMAT, "a.txt, line 1 ... [json.invalid]");
    if (bp_comm_is_root(WORLD))
        bp_test_write("nothing", "\n\n", 2);
    BP_MPI(MPI_Barrier(WORLD));
    spec = spec_of(tokenizer, BP_TEXT_LINES, empty, 1, bp_test_path("out/c.h5"));
    fails_alike(&spec, BP_ERR_FORMAT, "[corpus.no_documents]");
    const char *objects[1] = {bp_test_path("c.jsonl")};
    spec = spec_of(tokenizer, BP_TEXT_JSONL, objects, 1, bp_test_path("out/c.h5"));
    spec.labels = &other;
    fails_alike(&spec, BP_ERR_FORMAT, "'colour' ... [label.missing]");
    spec = spec_of(tokenizer, BP_TEXT_LINES, texts, 1, bp_test_path("out/no/c.h5"));
    fails_alike(&spec, BP_ERR_CREATE, "out/no/c.h5");
    spec.out = bp_test_folder();
    fails_alike(&spec, BP_ERR_CREATE, "[file.not_replaced]");
    bp_tokenizer_free(&tokenizer);
}

static void full_disk_is_reported_by_all(void **state)
{
    bp_tokenizer *tokenizer =
        tokenizer_of_texts("char"); /* many tokens: several chunks are on their way */
    const char *paths[40];
    struct rlimit usual, small;
    bp_corpus_build spec;

    (void)fresh_folder();
    for (int k = 0; k < 40; k++)
        paths[k] = bp_test_path("a.txt");
    spec = spec_of(tokenizer, BP_TEXT_FILE, paths, 40, bp_test_path("out/c.h5"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    small = usual;
    small.rlim_cur = 30000;
    if (bp_comm_is_root(WORLD))
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    fails_alike(&spec, BP_ERR_IO, "File too large ... [file.no_space]");
    if (bp_comm_is_root(WORLD))
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    bp_corpus_built built;
    bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &built), BP_OK);
    bp_tokenizer_free(&tokenizer);
}

/* Ten times the text takes no more memory. */
static void memory_does_not_grow_with_the_text(void **state)
{
    bp_tokenizer *tokenizer = tokenizer_of_texts("bpe");
    const char *paths[200];
    size_t peak = 0;

    for (int k = 0; k < 200; k++)
        paths[k] = bp_test_path(k % 2 == 0 ? "a.txt" : "b.txt");
    for (int round = 0; round < 2; round++) {
        const bp_corpus_build spec = spec_of(tokenizer, BP_TEXT_LINES, paths, round == 0 ? 20 : 200,
                                             bp_test_path("large.h5"));
        bp_corpus_built built;
        bp_test_check_err(WORLD, bp_corpus_build_file(WORLD, &spec, &built), BP_OK);
        bp_test_check(WORLD, round == 0 || bp_mem_peak_bytes() < peak + (1u << 20));
        peak = bp_mem_peak_bytes();
    }
    bp_tokenizer_free(&tokenizer);
}

/* The last test: the signal stays. */
static void signal_stops_the_build(void **state)
{
    bp_tokenizer *tokenizer = tokenizer_of_texts("bpe");
    const char *texts[1] = {bp_test_path("a.txt")};
    const bp_corpus_build spec =
        spec_of(tokenizer, BP_TEXT_LINES, texts, 1, bp_test_path("out/c.h5"));

    (void)fresh_folder();
    assert_int_equal(raise(SIGUSR1), 0);
    fails_alike(&spec, BP_ERR_STOPPED, "[run.stopped]");
    bp_tokenizer_free(&tokenizer);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_is_that_of_one_rank),
        cmocka_unit_test(empty_lines_are_of_one_range),
        cmocka_unit_test(lists_are_those_of_one_rank),
        cmocka_unit_test(documents_are_those_of_the_text),
        cmocka_unit_test(labels_and_ids_are_those_of_the_objects),
        cmocka_unit_test(empty_and_one_token_documents_are_kept),
        cmocka_unit_test(compressed_text_is_read),
        cmocka_unit_test(faults_of_the_input_are_named_alike),
        cmocka_unit_test(full_disk_is_reported_by_all),
        cmocka_unit_test(memory_does_not_grow_with_the_text),
        cmocka_unit_test(signal_stops_the_build),
    };
    bp_signals_init();
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
