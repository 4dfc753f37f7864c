/* explain.texts: a file of texts becomes a corpus in a temporary file, so that all other code reads
 * only corpora. Called by texts.c. */
#include "explain/texts/texts.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/suffix.h"
#include "io/corpus/corpus_build.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ID_BYTES      1025
#define NONE          "corpus.no_documents]" /* used in the name of the temporary file */
#define OUTPUTS_BYTES ((int64_t)1 << 32)

static bp_err fail_no_text(const char *path)
{
    return BP_FAIL(BP_ERR_FORMAT, "explain.no_text",
                   "there is no text: at explain.texts = %s; give a text a line, or JSON lines "
                   "with \"text\"",
                   path);
}

static bp_err check(const char *path, const bp_corpus_built *built)
{
    if (built->invalid_bytes > 0)
        return BP_FAIL(BP_ERR_FORMAT, "text.not_utf8",
                       "%" PRId64 " bytes of the text are not valid UTF-8: the first at %s, line "
                       "%" PRId64 "; save it as UTF-8",
                       built->invalid_bytes, path, built->invalid_line);
    return built->documents == built->empty_documents ? fail_no_text(path) : BP_OK;
}

/* A model that reads whole texts needs at least one token. Name the first text without one: it is
 * the shortest, with or without an end-of-document token. */
static bp_err check_empty(const bp_corpus *corpus, const char *path, const bp_corpus_built *built)
{
    bp_corpus_file *file = bp_corpus_file_at(corpus, 0);
    const int64_t *starts;
    char id[ID_BYTES] = "";
    int64_t shortest = 0;
    bp_err err = bp_corpus_file_doc_start(file, &starts);

    for (int64_t d = 1; d < built->documents && err == BP_OK; d++)
        if (starts[d + 1] - starts[d] < starts[shortest + 1] - starts[shortest])
            shortest = d;
    if (err == BP_OK)
        err = bp_corpus_file_doc_id(file, shortest, id, sizeof id);
    if (err == BP_OK)
        err = BP_FAIL(BP_ERR_FORMAT, "explain.empty_text",
                      "%" PRId64 " of %" PRId64 " texts have no token: the first is %s, at "
                      "explain.texts = %s; leave them out",
                      built->empty_documents, built->documents, id, path);
    return err;
}

/* ---- pairs: what generate wrote for its prompts ---- */

enum { SOURCES, TARGETS, LEFT_OUT, PAIR_FILES };

/* A line of each side for each line of outputs.jsonl, so that a document is named by its line; and
 * the names of those without a text. */
typedef struct pair_files {
    const char *path;
    bp_buffer text[PAIR_FILES];
    bp_buffer *prompts; /* explain_texts.prompts */
    int64_t pairs, left_out;
} pair_files;

static void leave_out(pair_files *to, int64_t number)
{
    bp_buffer_printf(&to->text[SOURCES], "-\n");
    bp_buffer_printf(&to->text[TARGETS], "-\n");
    bp_buffer_printf(&to->text[LEFT_OUT], "%s:%" PRId64 "\n", bp_path_base(to->path), number);
    to->left_out++;
}

static bp_err take_pair(void *context, const json_t *line, int64_t number)
{
    static const char *const KEYS[] = {"prompt", "text"};
    pair_files *to = context;
    const json_t *text = json_object_get(line, "text");
    const json_t *index = json_object_get(line, "index");
    bool is_empty = json_is_string(text) && json_string_length(text) == 0;
    int64_t prompt = json_is_integer(index) ? json_integer_value(index) : -1;

    bp_buffer_add(to->prompts, &prompt, sizeof prompt);
    if (is_empty || json_is_string(json_object_get(line, "error"))) { /* too long a prompt */
        leave_out(to, number);
        return BP_OK;
    }
    for (int s = 0; s < 2; s++) {
        const json_t *value = json_object_get(line, KEYS[s]);

        if (!json_is_string(value) || json_string_length(value) == 0)
            return BP_FAIL(BP_ERR_FORMAT, "explain.no_pair",
                           "there is no \"%s\", the %s of a pair: at explain.texts = %s, line "
                           "%" PRId64 "; give outputs.jsonl of bagpipe generate",
                           KEYS[s], s == 0 ? "source" : "target", to->path, number);
        for (size_t k = 0; k < json_string_length(value); k++) {
            const char *at = json_string_value(value) + k;

            bp_buffer_add(&to->text[s], *at == '\n' || *at == '\r' || *at == '\0' ? " " : at, 1);
        }
        bp_buffer_add(&to->text[s], "\n", 1);
    }
    to->pairs++;
    return BP_OK;
}

static bp_err write_pairs(char *const *paths, int64_t *left_out, bp_buffer *prompts,
                          const char *outputs)
{
    pair_files files = {.path = outputs, .prompts = prompts};
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_file_read(outputs, OUTPUTS_BYTES, &text, &bytes);

    if (err == BP_OK)
        err = bp_json_lines(text, bytes, outputs, take_pair, &files);
    if (err == BP_OK && files.pairs == 0)
        err = fail_no_text(outputs);
    if (err == BP_OK && files.left_out > 0)
        BP_WARN("explain.left_out",
                "%" PRId64 " lines have no text, as the source was too long or the text empty, and "
                "are not explained: at explain.texts = %s",
                files.left_out, outputs);
    for (int k = 0; k < PAIR_FILES; k++) {
        if (err == BP_OK)
            err = bp_file_write(paths[k], files.text[k].data ? files.text[k].data : "",
                                files.text[k].bytes);
        bp_buffer_clear(&files.text[k]);
    }
    *left_out = files.left_out;
    bp_free(text);
    return err;
}

/* ---- the corpus ---- */

static bp_err build_texts(bp_corpus_built *built, const explain_wish *wish, const char *path)
{
    bool json = strstr(bp_path_base(wish->texts), ".jsonl");
    const bp_corpus_build build = {.paths = &wish->texts,
                                   .path_count = 1,
                                   .format = json ? BP_TEXT_JSONL : BP_TEXT_LINES,
                                   .format_name = json ? "jsonl" : "lines",
                                   .tokenizer = wish->tokenizer,
                                   .tool = "bagpipe explain",
                                   .out = path};

    return bp_corpus_build_file(MPI_COMM_SELF, &build, built);
}

/* The file of sources has the name of outputs.jsonl, by which documents are named. */
static bp_err build_pairs(bp_corpus_built *built, bp_buffer *prompts, const explain_wish *wish,
                          const char *path)
{
    char *folder = bp_sprintf("%s.pairs", path);
    char *files[PAIR_FILES] = {bp_sprintf("%s/%s", folder, bp_path_base(wish->texts)),
                               bp_sprintf("%s/bagpipe.targets", folder),
                               bp_sprintf("%s/bagpipe.left_out", folder)};
    int64_t left_out = 0;
    bp_err err = mkdir(folder, 0700) == 0 || errno == EEXIST
                     ? write_pairs(files, &left_out, prompts, wish->texts)
                     : bp_fail_create("can't make", folder);
    const bp_corpus_build build = {.paths = (const char *const *)files,
                                   .path_count = 2,
                                   .format = BP_TEXT_PAIRS,
                                   .format_name = "pairs",
                                   .tokenizer = wish->tokenizer,
                                   .list = left_out > 0 ? files[LEFT_OUT] : NULL,
                                   .tool = "bagpipe explain",
                                   .out = path};

    if (err == BP_OK)
        err = bp_corpus_build_file(MPI_COMM_SELF, &build, built);
    for (int k = 0; k < PAIR_FILES; k++) {
        (void)unlink(files[k]);
        bp_free(files[k]);
    }
    (void)rmdir(folder);
    bp_free(folder);
    return err;
}

/* Each reading rank makes its own private file. */
bp_err explain_corpus_open(bp_corpus **out, const explain_wish *wish, bp_buffer *prompts)
{
    const char *folder = getenv("TMPDIR");
    const bp_model_info *info = wish->info;
    bool pairs = info->reads_source && !bp_task_has_head(&info->task);
    char *path;
    bp_corpus_built built;
    bp_err err;

    if (!wish->texts)
        return bp_corpus_open(out, wish->corpus);
    if (bp_has_suffix(wish->texts, ".tsv") || bp_has_suffix(wish->texts, ".csv"))
        return BP_FAIL(
            BP_ERR_FORMAT, "explain.columns",
            "a file of columns is not one of texts: at explain.texts = %s; make a corpus "
            "with bagpipe-data corpus --format tsv --fields NAME, for explain.corpus, or "
            "give a text a line",
            wish->texts);
    path = bp_sprintf("%s/bagpipe-%ld-texts.h5", folder && folder[0] ? folder : "/tmp",
                      (long)getpid());
    err = pairs ? build_pairs(&built, prompts, wish, path) : build_texts(&built, wish, path);
    if (err == BP_ERR_FORMAT && strncmp(bp_err_id(bp_err_message()), NONE, strlen(NONE)) == 0)
        err = fail_no_text(wish->texts);
    if (err == BP_OK)
        err = check(wish->texts, &built);
    if (err == BP_OK)
        err = bp_corpus_open(out, path);
    (void)unlink(path); /* it stays open */
    if (err == BP_OK && built.empty_documents > 0 &&
        (wish->info->masks || bp_task_has_head(&wish->info->task)))
        err = check_empty(*out, wish->texts, &built);
    bp_free(path);
    return err;
}
