/* Flipped bits and cut files, in every kind of file that bagpipe writes: flips SAMPLES COUNT SEED
 * (started by test_flips.py, which makes the samples). Each time one bit of one file is turned, or
 * its end is lost; the code that reads such files in a job must say so in one line, or read what it
 * would have read; then the file is mended.
 *
 *     checkpoint   any byte of any of its files: bp_checkpoint_open says damaged
 *     corpus       any byte: bp_user_block_verify says damaged, and reading as a job does tells,
 *                  or gives the same tokens
 *     table        documents.h5 and tokens.h5 of scores: as the corpus's first half
 *     parts        finished units of a scoring job: those still said to be there are unchanged
 *     journal      metrics.jsonl, events.jsonl: whole lines remain; nothing is computed from them
 *     lock         the run is taken, or refused in one line: never twice, epochs decide by names
 *
 * Prints a line a kind; its status is 1 when anything went unnoticed. A crash is a crash. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/signals.h"
#include "io/checkpoint/checkpoint.h"
#include "io/corpus/corpus_file.h"
#include "io/h5/user_block.h"
#include "job/parts.h"
#include "mesh/mesh.h"
#include "run/lock/run_lock.h"
#include "run/run_journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT ((int64_t)1 << 28)

typedef enum verdict { NOTICED, HARMLESS, UNNOTICED } verdict;

typedef struct sample {
    const char *kind;
    char *folder, *path; /* what is read, and the file that is damaged */
    char *content;
    size_t bytes;
    verdict (*check)(const struct sample *sample);
} sample;

#define SAMPLES_MAX 64
static sample samples[SAMPLES_MAX];
static int sample_count;

static const char *why = ""; /* of UNNOTICED */

/* ---- what was read before anything was damaged ---- */

static struct {
    int32_t *tokens;
    int64_t token_count;
    char key[65];
    int64_t units;
    char **results;
    size_t *result_bytes;
} sound;

/* ---- verdicts ---- */

/* A refusal: the right status, and one line that names what is damaged. */
static verdict refused(bp_err err, bp_err expected, const char *word)
{
    const char *message = bp_err_message();

    why = "another status";
    if (err != expected)
        return UNNOTICED;
    why = "no line, or more than one, or without its word";
    return message[0] != 0 && strchr(message, '\n') == NULL && strstr(message, word) != NULL
               ? NOTICED
               : UNNOTICED;
}

static verdict check_checkpoint(const sample *one)
{
    bp_checkpoint *checkpoint = NULL;
    bp_err err = bp_checkpoint_open(MPI_COMM_SELF, one->folder, &checkpoint);

    if (err != BP_OK)
        return refused(err, BP_ERR_FORMAT, "damaged");
    bp_checkpoint_close(&checkpoint);
    why = "it was opened";
    return UNNOTICED;
}

static verdict check_block(const sample *one)
{
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, one->path);

    why = "it verifies";
    return err == BP_OK ? UNNOTICED : refused(err, BP_ERR_FORMAT, "damaged");
}

/* All tokens as a job reads them; NULL with the error. */
static bp_err read_tokens(const char *path, int32_t **tokens, int64_t *count)
{
    bp_corpus_file *file = NULL;
    bp_err err = bp_corpus_file_open(&file, path);

    *tokens = NULL;
    if (err == BP_OK) {
        *count = bp_corpus_file_info(file)->tokens;
        *tokens = bp_alloc("flips", *count, sizeof **tokens);
        err = *tokens == NULL ? bp_fail_memory("tokens", *count, 4)
                              : bp_corpus_file_read(file, 0, *count, *tokens);
    }
    bp_corpus_file_close(&file);
    return err;
}

static verdict check_corpus(const sample *one)
{
    verdict block = check_block(one);
    int32_t *tokens;
    int64_t count = 0;
    bp_err err;

    if (block != NOTICED)
        return block;
    err = read_tokens(one->path, &tokens, &count);
    if (err != BP_OK)
        block = refused(err, BP_ERR_FORMAT, "");
    else if (count != sound.token_count ||
             memcmp(tokens, sound.tokens, (size_t)count * sizeof *tokens) != 0) {
        why = "other tokens were read";
        block = UNNOTICED;
    }
    bp_free(tokens);
    return block;
}

static verdict check_parts(const sample *one)
{
    bp_parts *parts = NULL;
    bp_err err = bp_parts_open(&parts, one->folder, sound.key, sound.units, false);
    verdict found = HARMLESS;

    if (err != BP_OK)
        return refused(err, BP_ERR_FORMAT, "");
    for (int64_t unit = 0; unit < sound.units && found != UNNOTICED; unit++) {
        const char *result, *path;
        size_t bytes;

        if (!parts->done[unit]) {
            if (sound.results[unit] != NULL)
                found = NOTICED;
            continue;
        }
        err = bp_parts_read(parts, unit, &result, &bytes, &path);
        why = "another result was read";
        if (err != BP_OK)
            found = refused(err, BP_ERR_FORMAT, "damaged");
        else if (sound.results[unit] == NULL || bytes != sound.result_bytes[unit] ||
                 memcmp(result, sound.results[unit], bytes) != 0)
            found = UNNOTICED;
    }
    bp_parts_free(&parts);
    return found;
}

static verdict check_journal(const sample *one)
{
    const char *name = bp_path_base(one->path);
    run_journal journal;
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = run_journal_open(&journal, one->folder, name);

    if (err == BP_OK && name[0] == 'm')
        err = run_journal_cut(&journal, 1000000, 0);
    run_journal_close(&journal);
    if (err == BP_OK)
        err = bp_file_read(one->path, FILE_LIMIT, &text, &bytes);
    why = "half a line remains";
    verdict found = err == BP_OK && (bytes == 0 || text[bytes - 1] == '\n') ? HARMLESS : UNNOTICED;
    if (found == HARMLESS && bytes < one->bytes)
        found = NOTICED;
    bp_free(text);
    return found;
}

/* Taking the lock leaves a higher number: it is taken away again. */
static void remove_later_epochs(const sample *one)
{
    char **names;
    int64_t count;

    if (bp_dir_list(one->folder, &names, &count) != BP_OK)
        return;
    for (int64_t k = 0; k < count; k++) {
        char *path = bp_path_join(one->folder, names[k]);

        if (strcmp(path, one->path) != 0)
            (void)unlink(path);
        bp_free(path);
    }
    bp_names_free(&names, count);
}

static verdict check_lock(const sample *one)
{
    char run[4096];
    run_lock *lock = NULL;
    verdict found = HARMLESS;
    bp_err err;

    (void)snprintf(run, sizeof run, "%.*s", (int)(strlen(one->folder) - strlen("/lock")),
                   one->folder);
    err = run_lock_take(&lock, run, 0.05);
    if (err == BP_ERR_BUSY)
        found = refused(err, BP_ERR_BUSY, "");
    else if (err != BP_OK)
        found = refused(err, BP_ERR_FORMAT, "damaged");
    (void)run_lock_release(&lock);
    remove_later_epochs(one);
    return found;
}

/* ---- samples ---- */

static void fail(const char *what, const char *path)
{
    (void)fprintf(stderr, "flips: %s: %s: %s\n", what, path, bp_err_message());
    exit(2);
}

static void add(const char *kind, const char *folder, const char *name,
                verdict (*check)(const sample *))
{
    sample *one = &samples[sample_count++];

    BP_ASSERT(sample_count <= SAMPLES_MAX);
    *one = (sample){.kind = kind,
                    .folder = bp_strdup(folder),
                    .path = bp_path_join(folder, name),
                    .check = check};
    if (bp_file_read(one->path, FILE_LIMIT, &one->content, &one->bytes) != BP_OK)
        fail("can't read a sample", one->path);
}

static void add_all(const char *kind, const char *top, const char *inside,
                    verdict (*check)(const sample *))
{
    char *folder = bp_path_join(top, inside), **names;
    int64_t count;

    if (bp_dir_list(folder, &names, &count) != BP_OK)
        fail("can't list samples", folder);
    for (int64_t k = 0; k < count; k++)
        add(kind, folder, names[k], check);
    bp_names_free(&names, count);
    bp_free(folder);
}

/* The key that part files begin with stands in their block. */
static void read_sound_parts(const sample *one)
{
    const char *key = strstr(one->content, "work ");
    bp_parts *parts = NULL;

    if (key == NULL)
        fail("no key in a part file", one->path);
    (void)snprintf(sound.key, sizeof sound.key, "%.64s", key + 5);
    sound.units = 64; /* more than there are: those beyond are never done */
    if (bp_parts_open(&parts, one->folder, sound.key, sound.units, false) != BP_OK ||
        parts->done_count == 0)
        fail("no units in the part files", one->folder);
    sound.results = bp_alloc("flips", sound.units, sizeof *sound.results);
    sound.result_bytes = bp_alloc("flips", sound.units, sizeof *sound.result_bytes);
    for (int64_t unit = 0; unit < sound.units; unit++) {
        const char *result, *path;

        if (!parts->done[unit])
            continue;
        if (bp_parts_read(parts, unit, &result, &sound.result_bytes[unit], &path) != BP_OK)
            fail("can't read a unit", one->folder);
        sound.results[unit] = bp_alloc("flips", (int64_t)sound.result_bytes[unit] + 1, 1);
        memcpy(sound.results[unit], result, sound.result_bytes[unit]);
    }
    bp_parts_free(&parts);
}

static void open_samples(const char *top)
{
    int parts;

    add_all("checkpoint", top, "checkpoint", check_checkpoint);
    add_all("corpus", top, "corpus", check_corpus);
    if (read_tokens(samples[sample_count - 1].path, &sound.tokens, &sound.token_count) != BP_OK)
        fail("can't read the corpus", samples[sample_count - 1].path);
    add_all("table", top, "table", check_block);
    parts = sample_count;
    add_all("parts", top, "parts", check_parts);
    read_sound_parts(&samples[parts]);
    add_all("journal", top, "journal", check_journal);
    add_all("lock", top, "run/lock", check_lock);
}

/* ---- damage ---- */

static uint64_t draw_state;

/* xorshift64*: the same damage for the same seed everywhere. */
static uint64_t draw(uint64_t below)
{
    draw_state ^= draw_state >> 12;
    draw_state ^= draw_state << 25;
    draw_state ^= draw_state >> 27;
    return (draw_state * 2685821657736338717ULL >> 16) % below;
}

/* The whole file, or its first `bytes` with byte `at` turned by `mask`. */
static void put(const sample *one, size_t bytes, size_t at, char mask)
{
    int fd = open(one->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    char flipped = (char)(one->content[at] ^ mask);

    if (fd < 0 || bp_write_all(fd, one->content, bytes) != 0 ||
        (mask != 0 && pwrite(fd, &flipped, 1, (off_t)at) != 1) || close(fd) != 0)
        fail("can't write", one->path);
}

/* A byte of the beginning, where formats keep what matters, of the end, or any. */
static size_t draw_place(size_t bytes)
{
    uint64_t part = draw(4), near = bytes < 4096 ? bytes : 4096;

    if (part == 0)
        return draw(near);
    if (part == 1)
        return bytes - 1 - draw(near);
    return draw(bytes);
}

static verdict damage(const sample *one, bool cut, size_t at, int bit)
{
    verdict found;

    put(one, cut ? at : one->bytes, at, cut ? 0 : (char)(1 << bit));
    found = one->check(one);
    put(one, one->bytes, 0, 0);
    if (found == UNNOTICED)
        (void)fprintf(stderr, "unnoticed: %s %s, %s %zu of %zu%s%.0d: %s: %s\n", one->kind,
                      one->path, cut ? "cut at" : "byte", at, one->bytes, cut ? "" : ", bit ", bit,
                      why, bp_err_message());
    return found;
}

int main(int argc, char **argv)
{
    long counts[SAMPLES_MAX][3] = {{0}}, wanted = argc == 4 ? atol(argv[2]) : 0, unnoticed = 0;

    bp_signals_init();
    if (argc != 4 || bp_mpi_start(&argc, &argv) != BP_OK)
        return 2;
    open_samples(argv[1]);
    draw_state = 0x9e3779b97f4a7c15ULL ^ (uint64_t)atol(argv[3]);
    for (long k = 0; k < wanted; k++) {
        int which = (int)draw((uint64_t)sample_count);
        const sample *one = &samples[which];
        bool cut = draw(5) == 0;
        size_t at = draw_place(one->bytes);
        verdict found = damage(one, cut, at, (int)draw(8));

        counts[which][found]++;
        unnoticed += found == UNNOTICED;
    }
    for (int k = 0; k < sample_count; k++)
        printf("%s %s: %ld noticed, %ld harmless, %ld unnoticed\n", samples[k].kind,
               bp_path_base(samples[k].path), counts[k][NOTICED], counts[k][HARMLESS],
               counts[k][UNNOTICED]);
    printf("all: %ld damaged, %ld unnoticed\n", wanted, unnoticed);
    bp_mpi_finish();
    return unnoticed > 0;
}
