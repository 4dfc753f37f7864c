/* bagpipe-data verify: every checksum of a file, a checkpoint, or a run folder. */
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"
#include "io/checkpoint/checkpoint.h"
#include "io/corpus/corpus_file.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READ_TOKENS ((int64_t)1 << 16)
#define DEPTH_MAX   4

static bp_err verify(const char *path, const file_options *options);

/* ---- corpora: all of it is read, as a job would ---- */

static bp_err read_all(bp_corpus_file *file)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *start, *bytes, *words, *words_split;
    int32_t *block = bp_alloc("tool.tokens", READ_TOKENS, sizeof *block);
    char id[8], *tokenizer = NULL;
    size_t tokenizer_bytes;
    bp_corpus_label label;
    bp_corpus_value value;
    bp_err err = BP_OK;

    for (int64_t first = 0; first < info->tokens && err == BP_OK; first += READ_TOKENS) {
        int64_t left = info->tokens - first;

        err = bp_corpus_file_read(file, first, left < READ_TOKENS ? left : READ_TOKENS, block);
    }
    if (err == BP_OK)
        err = bp_corpus_file_doc_start(file, &start);
    if (err == BP_OK)
        err = bp_corpus_file_doc_counts(file, &bytes, &words, &words_split);
    for (int64_t d = 0; d < info->documents && err == BP_OK && info->has_ids; d++)
        err = bp_corpus_file_doc_id(file, d, id, sizeof id);
    for (int k = 0; k < info->labels && err == BP_OK; k++)
        err = bp_corpus_file_label(file, k, &label);
    if (err == BP_OK)
        err = bp_corpus_file_segments(file, &start, &bytes);
    if (err == BP_OK)
        err = bp_corpus_file_tags(file, &label);
    for (int k = 0; k < info->values && err == BP_OK; k++)
        err = bp_corpus_file_value(file, k, &value);
    if (err == BP_OK)
        err = bp_corpus_file_tokenizer(file, &tokenizer, &tokenizer_bytes);
    bp_free(tokenizer);
    bp_free(block);
    return err;
}

static bp_err verify_corpus(const char *path)
{
    bp_corpus_file *file;
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path); /* a foreign one is refused below */

    if (err == BP_OK)
        err = bp_corpus_file_open(&file, path);
    if (err != BP_OK)
        return err;
    err = read_all(file);
    if (err == BP_OK)
        printf("%s: sound, %s documents, %s tokens\n", shown_path(path),
               grouped(bp_corpus_file_info(file)->documents),
               grouped(bp_corpus_file_info(file)->tokens));
    bp_corpus_file_close(&file);
    return err;
}

/* ---- tables, tokenizers, checkpoints ---- */

static bp_err verify_table(const char *path)
{
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path);

    if (err == BP_OK)
        printf("%s: sound, %s\n", shown_path(path), block.kind);
    return err;
}

static bp_err verify_tokenizer(const char *path)
{
    bp_tokenizer *tokenizer;
    bp_err err = bp_tokenizer_load(&tokenizer, path);

    if (err == BP_OK)
        printf("%s: readable, %s, sha256 %s (a tokenizer has no checksum of its own)\n",
               shown_path(path), bp_tokenizer_kind(tokenizer), bp_tokenizer_hash(tokenizer));
    bp_tokenizer_free(&tokenizer);
    return err;
}

static bp_err verify_checkpoint(const char *path)
{
    bp_checkpoint *checkpoint;
    bp_err err = bp_checkpoint_open(MPI_COMM_SELF, path, &checkpoint);

    if (err == BP_OK) {
        printf("%s: sound, %s tensors, digest %s\n", shown_path(path),
               grouped(bp_checkpoint_tensors(checkpoint)), bp_checkpoint_digest(checkpoint));
        bp_checkpoint_close(&checkpoint);
    }
    return err;
}

/* ---- run folders: what has checksums in them ---- */

/* Verify everything inside; each failure is reported, and the first one is the result. */
static bp_err verify_inside(const char *folder, int depth, int64_t *found)
{
    char **names, *message = NULL, target[PATH_MAX];
    int64_t count;
    bp_err first = bp_dir_list(folder, &names, &count);

    for (int64_t k = 0; k < count && (first == BP_OK || message); k++) {
        const bp_path path = bp_path_in(folder, names[k]);
        ssize_t bytes = readlink(path.text, target, sizeof target);
        /* a link to something beside it (checkpoints/best) is verified under its own name */
        bool is_second = bytes > 0 && !memchr(target, '/', (size_t)bytes);
        bp_user_block block;
        path_kind kind;
        bp_err err = BP_OK;

        if (names[k][0] != '.' && !is_second &&
            (bp_path_is_dir(path.text) || bp_has_suffix(names[k], ".h5"))) {
            err = path_kind_of(&kind, &block, path.text);
            *found += err == BP_OK && kind != PATH_FOLDER;
            if (err == BP_OK && kind != PATH_FOLDER)
                err = verify(path.text, NULL);
            else if (err == BP_OK && depth + 1 < DEPTH_MAX)
                err = verify_inside(path.text, depth + 1, found);
        }
        if (err != BP_OK && first != BP_OK)
            bp_warn_failure("%s", bp_err_text());
        if (err != BP_OK && first == BP_OK) {
            first = err;
            message = bp_strdup(bp_err_message());
        }
    }
    bp_names_free(&names, count);
    if (message)
        bp_err_set_message(message);
    bp_free(message);
    return first;
}

static bp_err verify(const char *path, const file_options *options)
{
    bp_user_block block;
    path_kind kind;
    int64_t found = 0;
    bp_err err = path_kind_of(&kind, &block, path);

    (void)options;
    if (err != BP_OK)
        return err;
    switch (kind) {
    case PATH_CORPUS:
    case PATH_FOREIGN:
        return verify_corpus(path);
    case PATH_TABLE:
        return verify_table(path);
    case PATH_JSON:
        return verify_tokenizer(path);
    case PATH_CHECKPOINT:
        return verify_checkpoint(path);
    case PATH_FOLDER:
        break;
    }
    err = verify_inside(path, 0, &found);
    if (err == BP_OK && found == 0)
        err = BP_FAIL(
            BP_ERR_INPUT, "file.no_checksums",
            "nothing that has checksums: at %s; name a corpus, a checkpoint or a run folder", path);
    return err;
}

static const bp_help_row STATUSES[] = {{"0", "every checksum is right"},
                                       {"64", "wrong command line"},
                                       {"65", "damaged; the file is named"},
                                       {"66", "a file is missing"},
                                       {0}};

static bp_err run(int argc, char **argv)
{
    static const file_tool TOOL = {.tool = &bp_tool_verify, .run = verify};

    return file_tool_run(&TOOL, argc, argv);
}

const bp_tool bp_tool_verify = {
    .name = "verify",
    .help = {.name = "bagpipe-data verify",
             .usage = "FILE...",
             .summary = "compares every checksum of files, checkpoints and run folders",
             .text = "A FILE is a corpus, a table of scores, a tokenizer.json, a checkpoint, or a "
                     "folder with any of these. It is read from end to end, and any changed byte "
                     "is noticed.",
             .examples = "  bagpipe-data verify train.h5\n"
                         "  bagpipe-data verify runs/small\n",
             .statuses = STATUSES},
    .run = run};
