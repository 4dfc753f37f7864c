/* Corpus files of ours: what is written is read, the same calls give the same bytes, damage is
 * noticed. */
#include "base/rng.h"
#include "bp_test.h"
#include "corpus_model.h"
#include "io/corpus/corpus_file_priv.h"
#include "io/h5/user_block.h"
#include "small_disk.h"

#include <inttypes.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const corpus_model SMALL = {
    .documents = 40, .mean_tokens = 120, .vocab_size = 50257, .eod_id = 50256, .is_task = true};
static const corpus_model LARGE = {
    .documents = 900, .mean_tokens = 500, .vocab_size = 50257, .eod_id = 50256};
static const corpus_model WIDE = {
    .documents = 60, .mean_tokens = 3000, .vocab_size = 65536, .eod_id = -1};

static void what_is_written_is_read(void **state)
{
    const corpus_model *const models[] = {&SMALL, &LARGE, &WIDE};

    for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
        const char *path = bp_test_path("corpus.h5");
        bp_test_expect(corpus_model_write(models[k], path), BP_OK);
        bp_test_expect(corpus_model_read(models[k], path), BP_OK);
    }
}

static void same_calls_give_the_same_bytes(void **state)
{
    const char *a = bp_test_path("a.h5"), *b = bp_test_path("b.h5");
    char *bytes_a, *bytes_b;
    size_t count_a, count_b;

    bp_test_expect(corpus_model_write(&LARGE, a), BP_OK);
    sleep(1); /* a time of day in the file would show */
    bp_test_expect(corpus_model_write(&LARGE, b), BP_OK);
    bp_test_expect(bp_file_read(a, INT32_MAX, &bytes_a, &count_a), BP_OK);
    bp_test_expect(bp_file_read(b, INT32_MAX, &bytes_b, &count_b), BP_OK);
    assert_int_equal(count_a, count_b);
    assert_memory_equal(bytes_a, bytes_b, count_a);
    bp_free(bytes_a);
    bp_free(bytes_b);
}

/* A part says of itself what the whole would say. */
static void parts_of_starts_are_checked(void **state)
{
    const char *path = bp_test_path("starts.h5");
    int64_t starts[41], kept;
    bp_corpus_file *file;

    bp_test_expect(corpus_model_write(&SMALL, path), BP_OK);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_test_expect(bp_corpus_file_read_doc_start(file, 0, 41, starts), BP_OK);
    bp_test_expect(bp_corpus_file_read_doc_start(file, 40, 1, &kept), BP_OK);
    assert_int_equal(kept, starts[40]);
    kept = file->info.tokens;
    file->info.tokens = starts[20] - 1; /* as if the file had fewer tokens than its starts say */
    bp_test_expect(bp_corpus_file_read_doc_start(file, 0, 20, starts), BP_OK);
    bp_test_expect(bp_corpus_file_read_doc_start(file, 10, 11, starts), BP_ERR_FORMAT);
    bp_test_message_has("[corpus.bad_doc_start]");
    bp_test_message_has("doc_start[20]");
    file->info.tokens = kept + 1; /* and as if it had more */
    bp_test_expect(bp_corpus_file_read_doc_start(file, 0, 40, starts), BP_OK);
    bp_test_expect(bp_corpus_file_read_doc_start(file, 39, 2, starts), BP_ERR_FORMAT);
    bp_test_message_has("doc_start ends with");
    bp_corpus_file_close(&file);
}

/* ---- damage ---- */

static void *read_all(const char *path, size_t *bytes)
{
    char *data;

    bp_test_expect(bp_file_read(path, INT32_MAX, &data, bytes), BP_OK);
    return data;
}

static void damage_is_an_error_that_says_so(const char *path)
{
    bp_test_expect(corpus_model_read(&SMALL, path), BP_ERR_FORMAT);
    bp_test_message_has("damaged");
    bp_test_message_has(path);
}

/* With the whole file hashed at the opening, and as in files too large for that. */
static void flipped_bits_are_noticed(void **state)
{
    const int64_t whole = bp_corpus_hash_whole_bytes;
    const char *path = bp_test_path("small.h5");
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, 0, 0, 0);
    size_t bytes;

    bp_test_expect(corpus_model_write(&SMALL, path), BP_OK);
    char *data = read_all(path, &bytes);
    for (int64_t k = 0; k < 600; k++) {
        /* half of them in the last 3 KiB and the first 1 KiB, where HDF5's structures lie */
        int64_t at = k % 4 == 0   ? bp_rng_below(&key, (uint64_t)k, 1024)
                     : k % 4 == 1 ? (int64_t)bytes - 1 - bp_rng_below(&key, (uint64_t)k, 3072)
                                  : bp_rng_below(&key, (uint64_t)k, (int64_t)bytes);
        char kept = data[at];
        data[at] = (char)(kept ^ (1 << (k % 8)));
        const char *flipped = bp_test_write("flipped.h5", data, bytes);
        bp_corpus_hash_whole_bytes = k % 8 < 4 ? 0 : whole;
        damage_is_an_error_that_says_so(flipped);
        data[at] = kept;
    }
    bp_corpus_hash_whole_bytes = 0;
    bp_test_expect(corpus_model_read(&SMALL, bp_test_write("flipped.h5", data, bytes)), BP_OK);
    bp_corpus_hash_whole_bytes = whole;
    bp_free(data);
}

static void cut_files_are_noticed(void **state)
{
    const char *path = bp_test_path("small.h5");
    size_t bytes;

    bp_test_expect(corpus_model_write(&SMALL, path), BP_OK);
    char *data = read_all(path, &bytes);
    for (size_t k = 0; k < 64; k++)
        damage_is_an_error_that_says_so(bp_test_write("cut.h5", data, k * bytes / 64));
    damage_is_an_error_that_says_so(bp_test_write("cut.h5", data, bytes - 1));
    bp_free(data);
}

static void file_cut_while_it_is_read_is_an_error(void **state)
{
    const int64_t whole = bp_corpus_hash_whole_bytes;
    const char *path = bp_test_path("cut_later.h5");
    int32_t tokens[10];
    bp_corpus_file *file;

    bp_test_expect(corpus_model_write(&LARGE, path), BP_OK);
    bp_corpus_hash_whole_bytes = 0;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_hash_whole_bytes = whole;
    assert_int_equal(truncate(path, 5000), 0);
    bp_test_expect(bp_corpus_file_read(file, bp_corpus_file_info(file)->tokens - 10, 10, tokens),
                   BP_ERR_FORMAT);
    bp_test_message_has("[corpus.truncated]");
    bp_corpus_file_close(&file);
}

/* A failure that a helper thread met reaches the caller, who may go on elsewhere. */
static void damaged_chunk_does_not_stand_in_the_way_of_others(void **state)
{
    const int64_t whole = bp_corpus_hash_whole_bytes;
    const corpus_model model = {
        .documents = 300, .mean_tokens = 2000, .vocab_size = 300, .eod_id = 0};
    const char *path = bp_test_path("chunks.h5");
    int32_t *tokens = bp_alloc("test", 65536, sizeof *tokens);
    bp_corpus_file *file;
    FILE *raw;

    bp_test_expect(corpus_model_write(&model, path), BP_OK);
    bp_corpus_hash_whole_bytes = 0;
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_corpus_hash_whole_bytes = whole;
    assert_true(bp_corpus_file_info(file)->tokens > 8 * 65536);
    raw = fopen(path, "r+b");
    assert_non_null(raw);
    assert_int_equal(fseek(raw, (long)(file->extents.rows[2].offset + 100), SEEK_SET), 0);
    assert_int_equal(fwrite("damage", 1, 6, raw), 6);
    assert_int_equal(fclose(raw), 0);
    for (int64_t chunk = 0; chunk < 8; chunk++) {
        bp_err err = bp_corpus_file_read(file, chunk * 65536, 65536, tokens);
        bp_test_expect(err, chunk == 2 ? BP_ERR_FORMAT : BP_OK);
        if (chunk == 2) {
            bp_test_message_has("[corpus.damaged]");
            bp_test_message_has("chunk 2 ... [corpus.damaged]");
        }
    }
    bp_corpus_file_close(&file);
    bp_free(tokens);
}

/* ---- other wrong files ---- */

static void what_can_not_be_opened_is_said(void **state)
{
    bp_corpus_file *file;

    bp_test_expect(bp_corpus_file_open(&file, bp_test_path("missing.h5")), BP_ERR_INPUT);
    assert_null(file);
    bp_test_expect(bp_corpus_file_open(&file, bp_test_folder()), BP_ERR_INPUT);
    bp_test_expect(bp_corpus_file_open(&file, bp_test_write("empty.h5", "", 0)), BP_ERR_FORMAT);
    bp_test_message_has("[h5.empty]");
    bp_test_expect(bp_corpus_file_open(&file, bp_test_write("text.h5", "some text", 9)),
                   BP_ERR_FORMAT);
    bp_test_message_has("bagpipe-data corpus ... [corpus.is_text]");
    bp_test_expect(bp_corpus_file_open(&file, bp_test_write("noise.h5", "\1\2\3 noise", 9)),
                   BP_ERR_FORMAT);
    bp_test_message_has("[h5.truncated]");
}

static void file_of_another_kind_or_version_is_named(void **state)
{
    bp_user_block block = {.kind = "score-tokens", .version = 1};
    const char *path = bp_test_write("other.h5", "", 0);
    bp_corpus_file *file;

    assert_int_equal(truncate(path, 4096), 0);
    bp_test_expect(bp_user_block_seal(&block, path), BP_OK);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_test_message_has("'score-tokens' ... 'corpus' ... [h5.wrong_kind]");
    block = (bp_user_block){.kind = BP_CORPUS_KIND, .version = 7};
    bp_test_expect(bp_user_block_seal(&block, path), BP_OK);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_test_message_has("[h5.unknown_version]");
    bp_test_message_has("format_version 7 ... [h5.unknown_version]");
    block = (bp_user_block){
        .kind = BP_CORPUS_KIND, .version = 1, .detail = "checksums 512 9999999999 outside "};
    bp_test_expect(bp_user_block_seal(&block, path), BP_OK);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_ERR_FORMAT);
    bp_test_message_has("[corpus.damaged]");
}

/* ---- reading ---- */

static void runs_at_random_are_those_of_the_whole(void **state)
{
    const char *path = bp_test_path("random.h5");
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_TEST, 0, 0, 0);
    bp_corpus_file *file;

    bp_test_expect(corpus_model_write(&LARGE, path), BP_OK);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    int64_t count = bp_corpus_file_info(file)->tokens;
    int32_t *all = bp_alloc("test", count, sizeof *all),
            *run = bp_alloc("test", count, sizeof *run);
    bp_test_expect(bp_corpus_file_read(file, 0, count, all), BP_OK);
    for (uint64_t k = 0; k < 300; k++) {
        int64_t first = bp_rng_below(&key, 2 * k, count);
        int64_t length = bp_rng_below(&key, 2 * k + 1, k % 10 == 0 ? count - first + 1 : 2000);
        length = length < count - first ? length : count - first;
        bp_test_expect(bp_corpus_file_read(file, first, length, run), BP_OK);
        assert_memory_equal(run, all + first, (size_t)length * sizeof *run);
    }
    bp_test_expect(bp_corpus_file_read(file, count, 0, run), BP_OK);
    bp_free(all);
    bp_free(run);
    bp_corpus_file_close(&file);
}

/* ---- writing ---- */

static const char HASH[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static bp_err write_row(const char *path, const bp_corpus_spec *spec, const uint32_t *ids,
                        int64_t count, const bp_corpus_row *row)
{
    bp_corpus_writer *writer;
    bp_err err = bp_corpus_writer_new(&writer, path, spec);

    if (err == BP_OK)
        err = bp_corpus_writer_tokens(writer, ids, count);
    if (err == BP_OK)
        err = bp_corpus_writer_end(writer, row);
    if (err == BP_OK)
        err = bp_corpus_writer_commit(writer);
    bp_corpus_writer_free(&writer);
    return err;
}

static void nothing_is_left_in(const char *folder)
{
    char **names;
    int64_t count;

    bp_test_expect(bp_dir_list(folder, &names, &count), BP_OK);
    assert_int_equal(count, 0);
    bp_names_free(&names, count);
}

static void wrong_rows_are_refused_and_leave_nothing(void **state)
{
    static const uint32_t ids[3] = {1, 9, 10};
    static const char *const names[2] = {"genre", "genre"};
    static char long_text[2000];
    const char *label = "", *long_label = long_text;
    bp_corpus_row row = {.bytes = 3, .words = 1, .words_split = 1, .id = "a", .labels = &label};
    bp_corpus_spec spec = {.vocab_size = 10, .eod_id = -1, .tokenizer_hash = HASH, .has_ids = true};
    const char *folder = bp_test_path("left"), *path = bp_test_path("left/c.h5");

    bp_test_expect(bp_dir_make(folder), BP_OK);
    memset(long_text, 'x', sizeof long_text - 1);
    bp_test_expect(write_row(path, &spec, ids, 3, &row), BP_ERR_FORMAT);
    bp_test_message_has("[corpus.bad_token]");
    bp_test_message_has("token id 10 ... [corpus.bad_token]");
    row.id = long_text;
    bp_test_expect(write_row(path, &spec, ids, 2, &row), BP_ERR_FORMAT);
    bp_test_message_has("[corpus.id_too_long]");
    bp_test_message_has("1999 bytes ... [corpus.id_too_long]");
    row.id = "a";
    spec.labels = names;
    spec.label_count = 1;
    bp_test_expect(write_row(path, &spec, ids, 2, &row), BP_ERR_FORMAT);
    bp_test_message_has("[label.missing]");
    bp_test_message_has("genre");
    row.labels = &long_label;
    bp_test_expect(write_row(path, &spec, ids, 2, &row), BP_ERR_FORMAT);
    bp_test_message_has("[label.too_long]");
    bp_test_message_has("1999 bytes ... [label.too_long]");
    spec.label_count = 2;
    bp_test_expect(write_row(path, &spec, ids, 2, &row), BP_ERR_USAGE);
    bp_test_message_has("[label.twice]");
    static const char *const slash = "a/b";
    spec.labels = &slash;
    spec.label_count = 1;
    bp_test_expect(write_row(path, &spec, ids, 2, &row), BP_ERR_USAGE);
    nothing_is_left_in(folder);
}

static void corpus_without_documents_or_tokens_is_refused(void **state)
{
    const bp_corpus_spec spec = {.vocab_size = 10, .eod_id = -1, .tokenizer_hash = HASH};
    const bp_corpus_row row = {.id = ""};
    bp_corpus_writer *writer;

    bp_test_expect(bp_corpus_writer_new(&writer, bp_test_path("none.h5"), &spec), BP_OK);
    bp_test_expect(bp_corpus_writer_commit(writer), BP_ERR_FORMAT);
    bp_test_message_has("[corpus.no_documents]");
    bp_corpus_writer_free(&writer);
    bp_test_expect(write_row(bp_test_path("none.h5"), &spec, NULL, 0, &row), BP_ERR_FORMAT);
    bp_test_message_has("[corpus.no_tokens]");
    assert_false(bp_path_exists(bp_test_path("none.h5")));
}

/* One document of one token, without end-of-document token, ids or labels: the least there can be.
 */
static void least_corpus_is_read(void **state)
{
    const bp_corpus_spec spec = {.vocab_size = 1, .eod_id = -1, .tokenizer_hash = HASH};
    const bp_corpus_row row = {.bytes = 1};
    const uint32_t id = 0;
    const char *path = bp_test_path("least.h5");
    char text[8] = "x", *tokenizer;
    size_t bytes;
    int32_t token = -1;
    bp_corpus_file *file;

    bp_test_expect(write_row(path, &spec, &id, 1, &row), BP_OK);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    assert_int_equal(bp_corpus_file_info(file)->tokens, 1);
    assert_int_equal(bp_corpus_file_info(file)->eod_id, -1);
    assert_false(bp_corpus_file_info(file)->has_ids);
    bp_test_expect(bp_corpus_file_read(file, 0, 1, &token), BP_OK);
    assert_int_equal(token, 0);
    bp_test_expect(bp_corpus_file_doc_id(file, 0, text, sizeof text), BP_OK);
    assert_string_equal(text, "");
    bp_test_expect(bp_corpus_file_tokenizer(file, &tokenizer, &bytes), BP_OK);
    assert_null(tokenizer);
    bp_corpus_file_close(&file);
}

static void output_that_can_not_be_is_said_at_the_start(void **state)
{
    const bp_corpus_spec spec = {.vocab_size = 10, .eod_id = -1, .tokenizer_hash = HASH};
    bp_corpus_writer *writer;
    bp_err err;

    bp_test_expect(bp_corpus_writer_new(&writer, bp_test_path("no/such/folder.h5"), &spec),
                   BP_ERR_CREATE);
    assert_null(writer);
    bp_test_expect(bp_corpus_writer_new(&writer, bp_test_folder(), &spec), BP_ERR_CREATE);
    bp_test_expect(bp_corpus_writer_new(&writer, "/dev/null", &spec), BP_ERR_CREATE);
    assert_int_equal(chmod(bp_test_folder(), 0755), 0);
    if (geteuid() == 0 && seteuid(65534) != 0)
        bp_test_skip("can't become another user");
    err = bp_corpus_writer_new(&writer, getuid() == 0 ? bp_test_path("denied.h5") : "/denied.h5",
                               &spec);
    if (getuid() == 0)
        assert_int_equal(seteuid(0), 0);
    bp_test_expect(err, BP_ERR_DENIED);
}

/* ---- what killed runs leave ---- */

/* A writer that is killed in the middle of its work. */
static void kill_a_writer(const char *path)
{
    const bp_corpus_spec spec = {.vocab_size = 10, .eod_id = -1, .tokenizer_hash = HASH};
    bp_corpus_writer *writer;
    int status;
    pid_t child;

    fflush(stdout);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (bp_corpus_writer_new(&writer, path, &spec) == BP_OK)
            raise(SIGKILL);
        _exit(1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static int64_t files_in(const char *folder)
{
    char **names;
    int64_t count;

    bp_test_expect(bp_dir_list(folder, &names, &count), BP_OK);
    bp_names_free(&names, count);
    return count;
}

static void what_a_killed_run_left_goes_at_the_next(void **state)
{
    const char *folder = bp_test_path("killed"), *path = bp_test_path("killed/c.h5");

    bp_test_expect(bp_dir_make(folder), BP_OK);
    kill_a_writer(path);
    assert_int_equal(files_in(folder), 1);
    bp_test_write("killed/.c.h5.0000000000004711.tmp", "", 0);   /* another one */
    bp_test_write("killed/.c.h5.x.0000000000004711.tmp", "", 0); /* of c.h5.x */
    bp_test_write("killed/.c.h5.backup.tmp", "", 0);             /* the user's */
    bp_test_write("killed/.d.h5.0000000000004711.tmp", "", 0);   /* of d.h5 */
    bp_test_expect(corpus_model_write(&SMALL, path), BP_OK);
    assert_int_equal(files_in(folder), 4);
    bp_test_expect(corpus_model_read(&SMALL, path), BP_OK);
    assert_false(bp_path_exists(bp_test_path("killed/.c.h5.0000000000004711.tmp")));
}

/* Two at once: each has a file of its own, and the last to commit has the name. */
static void what_another_run_writes_is_left_alone(void **state)
{
    const bp_corpus_spec spec = {.vocab_size = 10, .eod_id = -1, .tokenizer_hash = HASH};
    const bp_corpus_row row = {.bytes = 1};
    const char *folder = bp_test_path("two"), *path = bp_test_path("two/c.h5");
    const uint32_t id = 3;
    bp_corpus_writer *writer;
    bp_corpus_file *file;

    bp_test_expect(bp_dir_make(folder), BP_OK);
    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    bp_test_expect(bp_corpus_writer_tokens(writer, &id, 1), BP_OK);
    bp_test_expect(bp_corpus_writer_end(writer, &row), BP_OK);
    bp_test_expect(corpus_model_write(&SMALL, path), BP_OK);
    assert_int_equal(files_in(folder), 2);
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    assert_int_equal(files_in(folder), 1);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    assert_int_equal(bp_corpus_file_info(file)->tokens, 1);
    bp_corpus_file_close(&file);
}

/* ---- full disks ---- */

/* The failure's message is of the file that the user named, not of the temporary one. */
static bp_err write_large(const char *path)
{
    bp_err err = corpus_model_write(&LARGE, path);

    if (err != BP_OK &&
        (strstr(bp_err_message(), path) == NULL || strstr(bp_err_message(), ".tmp") != NULL)) {
        print_error("the message is \"%s\"\n", bp_err_message());
        return BP_ERR_SYSTEM;
    }
    return err;
}

/* At every size of disk that is too small: in the chunks, in the columns, in the last structures.
 */
static void full_disk_leaves_nothing(void **state)
{
    const char *path = bp_test_path("whole.h5");
    int64_t bytes;

    bp_test_expect(write_large(path), BP_OK);
    bytes = bp_file_size(path);
    for (int64_t limit = 4096; limit < bytes; limit += bytes / 6)
        assert_int_equal(on_small_disk(SMALL_DISK_LIMIT, (long)limit, write_large), BP_ERR_IO);
    assert_int_equal(on_small_disk(SMALL_DISK_LIMIT, (long)bytes - 1, write_large), BP_ERR_IO);
    assert_int_equal(on_small_disk(SMALL_DISK_LIMIT, (long)bytes, write_large), BP_OK);
    assert_int_equal(on_small_disk(SMALL_DISK_TMPFS, 256 << 10, write_large), BP_ERR_IO);
    assert_int_equal(on_small_disk(SMALL_DISK_TMPFS, 64 << 20, write_large), BP_OK);
}

/* 400,000 documents go through the spills' files: 3.2 MB a column, 256 KiB of it in memory. */
static void many_documents_do_not_stay_in_memory(void **state)
{
    const bp_corpus_spec spec = {
        .vocab_size = 10, .eod_id = 9, .tokenizer_hash = HASH, .has_ids = true};
    const char *path = bp_test_path("many.h5");
    bp_corpus_writer *writer;
    bp_corpus_file *file;
    const int64_t *start;
    char id[32], expected[32];

    size_t before = bp_mem_now_bytes(), most = 0;
    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (int64_t d = 0; d < 400000; d++) {
        const uint32_t token = (uint32_t)(d % 9);
        snprintf(id, sizeof id, "id-%" PRId64, d);
        const bp_corpus_row row = {.bytes = d, .words = 1, .words_split = 1, .id = id};
        bp_test_expect(bp_corpus_writer_tokens(writer, &token, d % 2), BP_OK);
        bp_test_expect(bp_corpus_writer_end(writer, &row), BP_OK);
        most = bp_mem_now_bytes() - before > most ? bp_mem_now_bytes() - before : most;
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    assert_true(most < 3u << 20);
    bp_test_expect(bp_corpus_file_open(&file, path), BP_OK);
    bp_test_expect(bp_corpus_file_doc_start(file, &start), BP_OK);
    for (int64_t d = 0; d < 400000; d += 777) {
        assert_int_equal(start[d], d + d / 2);
        bp_test_expect(bp_corpus_file_doc_id(file, d, id, sizeof id), BP_OK);
        snprintf(expected, sizeof expected, "id-%" PRId64, d);
        assert_string_equal(id, expected);
    }
    bp_corpus_file_close(&file);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(same_calls_give_the_same_bytes),
        cmocka_unit_test(parts_of_starts_are_checked),
        cmocka_unit_test(flipped_bits_are_noticed),
        cmocka_unit_test(cut_files_are_noticed),
        cmocka_unit_test(file_cut_while_it_is_read_is_an_error),
        cmocka_unit_test(damaged_chunk_does_not_stand_in_the_way_of_others),
        cmocka_unit_test(what_can_not_be_opened_is_said),
        cmocka_unit_test(file_of_another_kind_or_version_is_named),
        cmocka_unit_test(runs_at_random_are_those_of_the_whole),
        cmocka_unit_test(wrong_rows_are_refused_and_leave_nothing),
        cmocka_unit_test(corpus_without_documents_or_tokens_is_refused),
        cmocka_unit_test(least_corpus_is_read),
        cmocka_unit_test(output_that_can_not_be_is_said_at_the_start),
        cmocka_unit_test(what_a_killed_run_left_goes_at_the_next),
        cmocka_unit_test(what_another_run_writes_is_left_alone),
        cmocka_unit_test(full_disk_leaves_nothing),
        cmocka_unit_test(many_documents_do_not_stay_in_memory),
    };
    return BP_TEST_RUN(tests);
}
