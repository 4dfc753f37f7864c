/* Ids of other programs' token files, cut into documents, to the corpus writer. */
#include "token_files_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/signals.h"
#include "io/corpus/corpus_writer.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_TOKENS ((int64_t)BP_CORPUS_CHUNK_TOKENS)

typedef struct taking {
    const bp_token_files *files;
    const token_layout *layout;
    int64_t vocab_size, eod_id;
    bp_corpus_writer *writer;
    uint32_t *ids;       /* [BLOCK_TOKENS], of the current document ... */
    int64_t id_count;    /* ... that are not written yet */
    int64_t open_tokens; /* of the current document, including those ids */
    bool leads;          /* the end-of-document token precedes documents */
    bool begun;          /* a token was read */
    const char *base;    /* of the current file, without its folder, and the documents that began */
    int64_t numbers;     /* in it */
    char *id;            /* of the current document */
    int64_t documents;
    const char **names; /* of the files [path_count] */
    bp_corpus_source sources[3];
} taking;

bool bp_token_layout_is(const char *name)
{
    return token_layout_of(name) != NULL;
}

char *bp_token_layout_path(const char *name, const char *given, int k)
{
    return token_layout_path(token_layout_of(name), given, k);
}

static bp_err flush(taking *t)
{
    bp_err err = bp_corpus_writer_tokens(t->writer, t->ids, t->id_count);

    t->id_count = 0;
    return err;
}

static void begin_document(taking *t)
{
    bp_free(t->id);
    t->id = bp_sprintf("%s:%" PRId64, t->base, ++t->numbers);
}

static bp_err add_token(taking *t, uint32_t id)
{
    bp_err err = t->id_count == BLOCK_TOKENS ? flush(t) : BP_OK;

    t->ids[t->id_count++] = id;
    t->open_tokens++;
    return err;
}

static bp_err end_document(taking *t)
{
    const bp_corpus_row row = {.id = t->id};
    bp_err err = flush(t);

    t->open_tokens = 0;
    t->documents++;
    return err == BP_OK ? bp_corpus_writer_end(t->writer, &row) : err;
}

static bp_err next_id(taking *t, token_file *file, uint32_t *id)
{
    int64_t value;
    bp_err err = token_column_next(&file->tokens, &value);

    if (err == BP_OK && (value < 0 || value >= t->vocab_size))
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_token",
                      "token id %" PRId64 " is beyond the vocabulary of %" PRId64
                      ": at %s, byte %" PRId64 "; give the tokenizer or --vocab-size that the "
                      "tokens were made with",
                      value, t->vocab_size, file->path, token_column_byte(&file->tokens));
    *id = (uint32_t)value;
    return err;
}

/* Documents by the index. */
static bp_err take_indexed(taking *t, token_file *file)
{
    bp_err err = BP_OK;

    for (int64_t d = 0; d < file->documents && err == BP_OK; d++) {
        begin_document(t);
        err = t->layout->next_end(file);
        while (err == BP_OK && file->tokens.at < file->end) {
            uint32_t id;

            err = next_id(t, file, &id);
            if (err == BP_OK)
                err = add_token(t, id);
        }
        if (err == BP_OK)
            err = end_document(t);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_fail_stopped("at %s, of which nothing was kept; run the command again",
                                  t->files->out);
    }
    return err;
}

/* Documents end with the token, across files; without such a token each file is a document. */
static bp_err take_stream(taking *t, token_file *file)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < file->tokens.count && err == BP_OK; k++) {
        uint32_t id;

        err = next_id(t, file, &id);
        if (err != BP_OK)
            break;
        if (!t->begun && (int64_t)id == t->eod_id) {
            t->begun = t->leads = true;
            continue;
        }
        t->begun = true;
        if (t->open_tokens == 0)
            begin_document(t);
        err = add_token(t, id);
        if (err == BP_OK && (int64_t)id == t->eod_id)
            err = end_document(t);
        if (err == BP_OK && k % BLOCK_TOKENS == 0 && bp_signals_stop_asked())
            err = bp_fail_stopped("at %s, of which nothing was kept; run the command again",
                                  t->files->out);
    }
    return err == BP_OK && t->eod_id < 0 && t->open_tokens > 0 ? end_document(t) : err;
}

/* The last document, if no token ended it. */
static bp_err end_last(taking *t)
{
    bp_err err = BP_OK;

    if (t->open_tokens > 0 && t->leads)
        err = add_token(t, (uint32_t)t->eod_id);
    return err == BP_OK && t->open_tokens > 0 ? end_document(t) : err;
}

/* ---- from beginning to end ---- */

static bp_err check_sizes(taking *t, const token_file *file)
{
    const bp_token_files *files = t->files;

    t->vocab_size = files->vocab_size > 0 ? files->vocab_size : file->vocab_size;
    t->eod_id = files->vocab_size > 0 ? files->eod_id : file->eod_id;
    if (t->vocab_size == 0)
        return BP_FAIL(BP_ERR_USAGE, "tokens.no_vocabulary",
                       "the file does not say how large its vocabulary is: at %s; give --tokenizer "
                       "or --vocab-size",
                       file->path);
    if (t->eod_id >= t->vocab_size)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_number",
                       "%" PRId64 " is beyond the vocabulary of %" PRId64
                       ": at --eod; give an id below it",
                       t->eod_id, t->vocab_size);
    return BP_OK;
}

static bp_err make_writer(taking *t)
{
    const bp_token_files *files = t->files;

    t->names = bp_alloc("io.token_files", files->path_count, sizeof *t->names);
    for (int k = 0; k < files->path_count; k++)
        t->names[k] = bp_path_base(files->paths[k]);
    t->sources[0] = (bp_corpus_source){"tool", &files->tool, 1};
    t->sources[1] = (bp_corpus_source){"format", &files->layout, 1};
    t->sources[2] = (bp_corpus_source){"files", t->names, files->path_count};
    const bp_corpus_spec spec = {.vocab_size = t->vocab_size,
                                 .eod_id = t->eod_id,
                                 .roles = files->roles,
                                 .ends_as_given = true,
                                 .tokenizer_hash =
                                     files->tokenizer_hash ? files->tokenizer_hash : "",
                                 .tokenizer = files->tokenizer,
                                 .has_ids = true,
                                 .without_bytes = true,
                                 .without_words = true,
                                 .without_words_split = true,
                                 .sources = t->sources,
                                 .source_count = 3};

    return bp_corpus_writer_new(&t->writer, files->out, &spec);
}

static bp_err take_file(taking *t, const char *given)
{
    token_file file = {
        .layout = t->layout, .fd = -1, .index_fd = -1, .documents = -1, .eod_id = -1};
    bp_err err = t->layout->open(&file, given, t->files);

    file.tokens.path = file.path;
    file.tokens.fd = file.fd;
    if (err == BP_OK && file.tokens.count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "tokens.empty",
                      "there are no tokens: at %s, byte %" PRId64 "; leave the file out", file.path,
                      file.tokens.offset);
    if (err == BP_OK && !t->writer)
        err = check_sizes(t, &file);
    if (err == BP_OK && !t->writer)
        err = make_writer(t);
    t->base = bp_path_base(given);
    t->numbers = 0;
    if (err == BP_OK)
        err = t->layout->next_end ? take_indexed(t, &file) : take_stream(t, &file);
    token_file_close(&file);
    return err;
}

bp_err bp_token_files_convert(const bp_token_files *files, bp_corpus_converted *out)
{
    taking t = {.files = files, .layout = token_layout_of(files->layout)};
    bp_err err = BP_OK;

    t.ids = bp_alloc("io.block", BLOCK_TOKENS, sizeof *t.ids);
    for (int k = 0; k < files->path_count && err == BP_OK; k++)
        err = take_file(&t, files->paths[k]);
    if (err == BP_OK)
        err = end_last(&t);
    if (err == BP_OK)
        err = bp_corpus_writer_commit(t.writer);
    if (err == BP_OK)
        *out = (bp_corpus_converted){bp_corpus_writer_token_count(t.writer), t.documents,
                                     bp_corpus_writer_open_ends(t.writer), ""};
    bp_corpus_writer_free(&t.writer);
    bp_free(t.names);
    bp_free(t.ids);
    bp_free(t.id);
    return err;
}
