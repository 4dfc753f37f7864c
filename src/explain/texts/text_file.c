/* explain.texts: a file of texts becomes a corpus in a temporary file, so that all other code reads
 * only corpora. Called by texts.c. */
#include "explain/texts/texts.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/corpus/corpus_build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ID_BYTES 1025
#define NONE     "corpus.no_documents]" /* used in the name of the temporary file */

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

static bool ends_with(const char *path, const char *end)
{
    size_t bytes = strlen(path), last = strlen(end);

    return bytes > last && strcmp(path + bytes - last, end) == 0;
}

/* Each reading rank makes its own private file. */
bp_err explain_corpus_open(bp_corpus **out, const explain_wish *wish)
{
    const char *folder = getenv("TMPDIR");
    bool json = wish->texts && strstr(bp_path_base(wish->texts), ".jsonl");
    char *path;
    bp_corpus_built built;
    bp_err err;

    if (!wish->texts)
        return bp_corpus_open(out, wish->corpus);
    if (ends_with(wish->texts, ".tsv") || ends_with(wish->texts, ".csv"))
        return BP_FAIL(
            BP_ERR_FORMAT, "explain.columns",
            "a file of columns is not one of texts: at explain.texts = %s; make a corpus "
            "with bagpipe-data corpus --format tsv --fields NAME, for explain.corpus, or "
            "give a text a line",
            wish->texts);
    path = bp_sprintf("%s/bagpipe-%ld-texts.h5", folder && folder[0] ? folder : "/tmp",
                      (long)getpid());
    const bp_corpus_build build = {.paths = &wish->texts,
                                   .path_count = 1,
                                   .format = json ? BP_TEXT_JSONL : BP_TEXT_LINES,
                                   .format_name = json ? "jsonl" : "lines",
                                   .tokenizer = wish->tokenizer,
                                   .tool = "bagpipe explain",
                                   .out = path};
    err = bp_corpus_build_file(MPI_COMM_SELF, &build, &built);
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
