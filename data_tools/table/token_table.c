/* The table of a score's tokens, with their texts. Called by table.c and encode.c. */
#include "token_table.h"

#include "base/config/csv.h"
#include "base/log.h"
#include "base/mem.h"
#include "scores.h"
#include "table_columns.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DOCUMENTS 4096 /* whose begins and ids are held */

typedef struct token_table {
    table columns; /* /logprob and what else has a value a token */
    int64_t *ids;  /* [columns.block_rows]: of tokens */
    bp_buffer texts;
    size_t *text_at;    /* [vocabulary + 1]: where a token's text begins in texts */
    int64_t vocabulary; /* 0: there is no tokenizer */
    int64_t documents;
    int64_t held;    /* the first document that is held */
    int64_t *starts; /* [DOCUMENTS + 1] */
    char *names;     /* [DOCUMENTS][name_bytes] */
    size_t name_bytes;
    int64_t corpora, *corpus_start; /* [corpora + 1] entries; 0: the file does not name them */
    char *corpus_names;             /* [corpora][corpus_bytes] */
    size_t corpus_bytes;
} token_table;

bool token_table_is(const bp_user_block *block, bp_h5 *h5)
{
    if (strcmp(block->kind, "score-tokens") != 0)
        return false;
    if (bp_h5_has(h5, "tokens") && bp_h5_has(h5, "doc_start") && bp_h5_has(h5, "doc_id"))
        return true;
    BP_WARN("scores.no_token_ids",
            "the file is of an older version, without the ids of its tokens: at %s; score again to "
            "have their text",
            bp_h5_path(h5));
    return false;
}

/* ---- texts of tokens ---- */

static bp_err load_given(bp_tokenizer **out, bp_h5 *h5, const char *path)
{
    char hash[BP_SHA256_HEX] = "";
    int64_t vocab_size = 0;
    bp_err err = bp_h5_get_int(h5, "/", "vocab_size", &vocab_size);

    if (err == BP_OK && bp_h5_has_attribute(h5, "/", "tokenizer_hash"))
        err = bp_h5_get_text(h5, "/", "tokenizer_hash", hash, sizeof hash);
    if (err == BP_OK)
        err = bp_tokenizer_load(out, path);
    if (err == BP_OK && hash[0] != '\0' && !bp_tokenizer_same_hash(hash, bp_tokenizer_hash(*out)))
        err =
            BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                    "the tokenizer's hash is %.16s..., and that of the scored corpus %.16s...: at "
                    "%s; give the corpus's tokenizer",
                    bp_tokenizer_hash(*out), hash, path);
    else if (err == BP_OK && bp_tokenizer_size(*out) > vocab_size)
        err = BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                      "the tokenizer has %" PRId64 " tokens, and the scored corpus %" PRId64
                      ": at %s; give the corpus's tokenizer",
                      bp_tokenizer_size(*out), vocab_size, path);
    return err;
}

bp_err add_token_text(bp_buffer *out, const bp_tokenizer *tokenizer, int64_t id)
{
    bp_buffer text = {0};
    bp_err err = bp_tokenizer_token_text(tokenizer, id, &text);

    bp_buffer_add(out, "\"'", bp_csv_is_formula(text.data ? text.data : "", text.bytes) ? 2 : 1);
    for (size_t k = 0; k < text.bytes && err == BP_OK; k++)
        bp_buffer_add(out, text.data[k] == '"' ? "\"\"" : &text.data[k],
                      text.data[k] == '"' ? 2 : 1);
    bp_buffer_add(out, "\"", 1);
    bp_buffer_clear(&text);
    return err;
}

static bp_err spell_vocabulary(token_table *t, const bp_tokenizer *tokenizer)
{
    int64_t size = bp_tokenizer_size(tokenizer);
    bp_err err = BP_OK;

    t->text_at = bp_alloc("tool.texts", size + 1, sizeof *t->text_at);
    for (int64_t id = 0; id < size && err == BP_OK; id++) {
        err = add_token_text(&t->texts, tokenizer, id);
        t->text_at[id + 1] = t->texts.bytes;
    }
    t->vocabulary = err == BP_OK ? size : 0;
    return err;
}

static bp_err load_texts(token_table *t, bp_h5 *h5, const char *given)
{
    bp_tokenizer *tokenizer = NULL;
    bp_err err = given ? load_given(&tokenizer, h5, given) : score_tokenizer_load(&tokenizer, h5);

    if (err == BP_OK && tokenizer)
        err = spell_vocabulary(t, tokenizer);
    else if (err == BP_OK)
        BP_WARN("scores.no_tokenizer",
                "the scored corpus keeps no tokenizer, so the column text is empty: at %s; give it "
                "with --tokenizer",
                bp_h5_path(h5));
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* ---- documents ---- */

static bp_err damaged(const token_table *t, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                   "damaged: '%s' is not as scores have it: at %s; score again", what,
                   bp_h5_path(t->columns.h5));
}

/* Hold the documents from `first` on. */
static bp_err hold_documents(token_table *t, int64_t first)
{
    bp_h5 *h5 = t->columns.h5;
    int64_t left = t->documents - first, count = left < DOCUMENTS ? left : DOCUMENTS;
    bp_err err = bp_h5_read(h5, "doc_start", BP_H5_I64, first, t->starts, count + 1);

    if (err == BP_OK)
        err = bp_h5_read_text(h5, "doc_id", t->name_bytes, first, t->names, count);
    for (int64_t k = 0; err == BP_OK && k < count; k++)
        if (t->starts[k] < 0 || t->starts[k + 1] < t->starts[k])
            err = damaged(t, "doc_start");
    t->held = first;
    return err;
}

static bp_err open_documents(token_table *t)
{
    bp_h5_shape starts, names;
    bp_err err = bp_h5_shape_of(t->columns.h5, "doc_start", &starts);

    if (err == BP_OK)
        err = bp_h5_shape_of(t->columns.h5, "doc_id", &names);
    if (err != BP_OK)
        return err;
    t->documents = names.count;
    t->name_bytes = names.width;
    if (!names.is_text || names.dims != 1 || starts.is_text || starts.dims != 1 ||
        starts.count != t->documents + 1)
        return damaged(t, "doc_start");
    t->starts = bp_alloc("tool.documents", DOCUMENTS + 1, sizeof *t->starts);
    t->names = bp_alloc("tool.documents", DOCUMENTS, t->name_bytes);
    return hold_documents(t, 0);
}

static bp_err open_corpora(token_table *t)
{
    bp_h5 *h5 = t->columns.h5;
    bp_h5_shape starts, names;
    bp_err err;

    if (!bp_h5_has(h5, "corpus_names") || !bp_h5_has(h5, "corpus_first_entry"))
        return BP_OK; /* of an older version */
    err = bp_h5_shape_of(h5, "corpus_first_entry", &starts);
    if (err == BP_OK)
        err = bp_h5_shape_of(h5, "corpus_names", &names);
    if (err != BP_OK)
        return err;
    if (!names.is_text || names.dims != 1 || starts.is_text || starts.count != names.count + 1)
        return damaged(t, "corpus_first_entry");
    t->corpora = names.count;
    t->corpus_bytes = names.width;
    t->corpus_start = bp_alloc("tool.documents", t->corpora + 1, sizeof *t->corpus_start);
    t->corpus_names = bp_alloc("tool.documents", t->corpora, t->corpus_bytes);
    err = bp_h5_read(h5, "corpus_first_entry", BP_H5_I64, 0, t->corpus_start, t->corpora + 1);
    return err == BP_OK ? bp_h5_read_text(h5, "corpus_names", t->corpus_bytes, 0, t->corpus_names,
                                          t->corpora)
                        : err;
}

/* *document, from where it is, to the one that holds an entry. */
static bp_err find_document(token_table *t, int64_t entry, int64_t *document)
{
    while (entry >= t->starts[*document - t->held + 1]) { /* empty ones are passed, too */
        bp_err err = BP_OK;

        if (++*document == t->documents)
            return damaged(t, "doc_start");
        if (*document == t->held + DOCUMENTS)
            err = hold_documents(t, *document);
        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

/* ---- rows ---- */

static void put_token(const token_table *t, int64_t document, int64_t entry, int64_t id)
{
    const char *name = t->names + (size_t)(document - t->held) * t->name_bytes;

    printf("%" PRId64 ",", document);
    put_csv(stdout, name, t->name_bytes);
    if (t->corpora > 0) {
        int64_t k = 0;

        while (k + 1 < t->corpora && entry >= t->corpus_start[k + 1])
            k++;
        putchar(',');
        put_csv(stdout, t->corpus_names + (size_t)k * t->corpus_bytes, t->corpus_bytes);
    }
    printf(",%" PRId64 ",%" PRId64 ",", entry - t->starts[document - t->held], id);
    if (id >= 0 && id < t->vocabulary)
        (void)fwrite(t->texts.data + t->text_at[id], 1, t->text_at[id + 1] - t->text_at[id],
                     stdout);
}

static bp_err put_rows(token_table *t, int64_t rows)
{
    int64_t document = 0;
    bp_err err = BP_OK;

    for (int64_t first = 0; first < rows && err == BP_OK && !ferror(stdout);
         first += t->columns.block_rows) {
        int64_t left = rows - first;
        int64_t now = left < t->columns.block_rows ? left : t->columns.block_rows;

        err = bp_h5_read(t->columns.h5, "tokens", BP_H5_I64, first, t->ids, now);
        if (err == BP_OK)
            err = table_load(&t->columns, first, now);
        for (int64_t k = 0; k < now && err == BP_OK; k++) {
            err = find_document(t, first + k, &document);
            if (err == BP_OK) {
                put_token(t, document, first + k, t->ids[k]);
                table_put_row(&t->columns, k);
            }
        }
    }
    return err;
}

static bp_err print(token_table *t, const file_options *options)
{
    static const char *const OTHERS[] = {
        "tokens",       "doc_start",          "doc_id", "corpus_start", "source/tokenizer",
        "corpus_names", "corpus_first_entry", NULL};
    bp_err err = table_find_columns(&t->columns, "logprob", OTHERS);

    if (err == BP_OK)
        err = load_texts(t, t->columns.h5, options->tokenizer);
    if (err == BP_OK && t->columns.rows > 0)
        err = open_documents(t);
    if (err == BP_OK)
        err = open_corpora(t);
    if (err == BP_OK) {
        t->ids = bp_alloc("tool.tokens", t->columns.block_rows, sizeof *t->ids);
        err = BP_OK;
    }
    if (err != BP_OK)
        return err;
    printf("document,doc_id%s,position,token,text", t->corpora > 0 ? ",corpus" : "");
    table_put_heads(&t->columns);
    int64_t rows = t->columns.rows;
    return put_rows(t, options->head >= 0 && options->head < rows ? options->head : rows);
}

bp_err token_table_print(bp_h5 *h5, const file_options *options)
{
    token_table t = {.columns = {.h5 = h5}};
    bp_err err = print(&t, options);

    bp_free(t.ids);
    bp_free(t.names);
    bp_free(t.corpus_names);
    bp_free(t.corpus_start);
    bp_free(t.starts);
    bp_free(t.text_at);
    bp_buffer_clear(&t.texts);
    table_clear(&t.columns);
    return err;
}
