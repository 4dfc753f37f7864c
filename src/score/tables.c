/* tokens.h5 and documents.h5: written under a temporary name, sealed, renamed. */
#include "score/tables.h"

#include "base/fs.h"
#include "base/mem.h"
#include "store/h5.h"
#include "store/user_block.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VERSION      1
#define BLOCK_TOKENS 65536
#define BLOCK_ROWS   8192
#define ID_BYTES     1025

/* ---- a file that is there or not ---- */

typedef struct table_draft {
    bp_h5 *file;
    char *path, *temporary;
} table_draft;

/* The run folder is locked, so one name will do; what a killed job left is overwritten. */
static bp_err draft_begin(table_draft *draft, const char *path)
{
    draft->path = bp_strdup(path);
    draft->temporary = bp_sprintf("%s.tmp", path);
    if (!draft->path || !draft->temporary)
        return BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", path);

    bp_err err = bp_h5_create(&draft->file, draft->temporary);
    if (err == BP_OK)
        err = bp_h5_put_int(draft->file, "/", "format_version", VERSION);
    return err;
}

static bp_err sync_parent(const char *path)
{
    char *parent = bp_sprintf("%.*s.", (int)(bp_path_base(path) - path), path);
    bp_err err = parent ? bp_path_sync(parent) : BP_FAIL(BP_ERR_SYSTEM, "no memory: at %s", path);

    bp_free(parent);
    return err;
}

static bp_err draft_commit(table_draft *draft, const char *kind)
{
    bp_user_block block = {.version = VERSION};
    bp_err err = bp_h5_close(&draft->file);

    snprintf(block.kind, sizeof(block.kind), "%s", kind);
    if (err == BP_OK)
        err = bp_user_block_seal(&block, draft->temporary);
    if (err == BP_OK && rename(draft->temporary, draft->path) != 0)
        err = bp_fail_errno(BP_ERR_IO, "rename", draft->path);
    if (err == BP_OK)
        err = sync_parent(draft->path);
    if (err == BP_OK) {
        bp_free(draft->temporary);
        draft->temporary = NULL;
    }
    return err;
}

static void draft_end(table_draft *draft)
{
    bp_h5_drop(&draft->file);
    if (draft->temporary)
        (void)unlink(draft->temporary); /* there may be none */
    bp_free(draft->temporary);
    bp_free(draft->path);
    draft->temporary = draft->path = NULL;
}

/* ---- tokens.h5 ---- */

struct bp_tokens_writer {
    table_draft draft;
    int64_t total;
    int64_t base; /* entry of block[0] */
    float *block; /* [BLOCK_TOKENS] */
};

static void clear_block(bp_tokens_writer *writer)
{
    for (int64_t i = 0; i < BLOCK_TOKENS; i++)
        writer->block[i] = NAN;
}

bp_err bp_tokens_writer_new(bp_tokens_writer **out, const char *path, const bp_score_plan *plan)
{
    bp_tokens_writer *writer = bp_alloc("score.tables", 1, sizeof(*writer));
    bp_err err = BP_OK;

    *out = NULL;
    if (!writer)
        return BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", path);
    writer->total = plan->first_token[plan->files];
    writer->block = bp_alloc("score.tables", BLOCK_TOKENS, sizeof(*writer->block));
    if (!writer->block)
        err = BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", path);
    else
        clear_block(writer);
    if (err == BP_OK)
        err = draft_begin(&writer->draft, path);
    if (err == BP_OK)
        err = bp_h5_write(writer->draft.file, "corpus_start", BP_H5_I64, plan->first_token,
                          plan->files + 1);
    if (err == BP_OK)
        err = bp_h5_make(writer->draft.file, "logprob", BP_H5_F32, writer->total);
    if (err != BP_OK)
        bp_tokens_writer_free(&writer);
    *out = writer;
    return err;
}

static bp_err flush_block(bp_tokens_writer *writer)
{
    int64_t left = writer->total - writer->base;
    int64_t count = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
    bp_err err = BP_OK;

    if (count > 0)
        err = bp_h5_write_slab(writer->draft.file, "logprob", BP_H5_F32, writer->base,
                               writer->block, count);
    writer->base += count;
    clear_block(writer);
    return err;
}

bp_err bp_tokens_writer_add(bp_tokens_writer *writer, int64_t first, int64_t count,
                            const char *values)
{
    if (first < writer->base || count < 0 || count > writer->total - first)
        return BP_FAIL(BP_ERR_FORMAT,
                       "a result is damaged, with tokens %" PRId64 " to %" PRId64 ": at %s", first,
                       first + count, writer->draft.path);
    while (count > 0) {
        int64_t place = first - writer->base;

        if (place >= BLOCK_TOKENS) {
            bp_err err = flush_block(writer);

            if (err != BP_OK)
                return err;
            continue;
        }
        int64_t part = BLOCK_TOKENS - place < count ? BLOCK_TOKENS - place : count;
        memcpy(writer->block + place, values, (size_t)part * sizeof(float));
        values += (size_t)part * sizeof(float);
        first += part;
        count -= part;
    }
    return BP_OK;
}

bp_err bp_tokens_writer_commit(bp_tokens_writer *writer)
{
    bp_err err = BP_OK;

    while (err == BP_OK && writer->base < writer->total)
        err = flush_block(writer);
    return err == BP_OK ? draft_commit(&writer->draft, "score-tokens") : err;
}

void bp_tokens_writer_free(bp_tokens_writer **writer)
{
    if (!*writer)
        return;
    draft_end(&(*writer)->draft);
    bp_free((*writer)->block);
    bp_free(*writer);
    *writer = NULL;
}

/* ---- documents.h5 ---- */

/* Documents [first, first + count) of one file, as columns. */
typedef struct row_block {
    double nll[BLOCK_ROWS], perplexity[BLOCK_ROWS];
    int64_t tokens[BLOCK_ROWS], bytes[BLOCK_ROWS], words[BLOCK_ROWS];
} row_block;

static bp_err make_columns(bp_h5 *out, const bp_score_plan *plan)
{
    bp_err err = bp_h5_write(out, "corpus_start", BP_H5_I64, plan->first_document, plan->files + 1);

    if (err == BP_OK)
        err = bp_h5_make(out, "nll", BP_H5_F64, plan->documents);
    if (err == BP_OK)
        err = bp_h5_make(out, "tokens", BP_H5_I64, plan->documents);
    if (err == BP_OK)
        err = bp_h5_make(out, "bytes", BP_H5_I64, plan->documents);
    if (err == BP_OK)
        err = bp_h5_make(out, "words", BP_H5_I64, plan->documents);
    if (err == BP_OK)
        err = bp_h5_make(out, "perplexity", BP_H5_F64, plan->documents);
    return err;
}

static bp_err write_block(bp_h5 *out, const row_block *block, int64_t first, int64_t count)
{
    bp_err err = bp_h5_write_slab(out, "nll", BP_H5_F64, first, block->nll, count);

    if (err == BP_OK)
        err = bp_h5_write_slab(out, "tokens", BP_H5_I64, first, block->tokens, count);
    if (err == BP_OK)
        err = bp_h5_write_slab(out, "bytes", BP_H5_I64, first, block->bytes, count);
    if (err == BP_OK)
        err = bp_h5_write_slab(out, "words", BP_H5_I64, first, block->words, count);
    if (err == BP_OK)
        err = bp_h5_write_slab(out, "perplexity", BP_H5_F64, first, block->perplexity, count);
    return err;
}

static bp_err write_file_rows(bp_h5 *out, const bp_score_table *table, int64_t file,
                              row_block *block)
{
    int64_t first = table->plan->first_document[file], end = table->plan->first_document[file + 1];
    bp_score_counts counts;
    bp_err err = bp_score_counts_of(table->plan, file, &counts);

    while (err == BP_OK && first < end) {
        int64_t count = end - first < BLOCK_ROWS ? end - first : BLOCK_ROWS;

        for (int64_t i = 0; i < count; i++) {
            bp_score_sums sums = bp_score_document_sums(table, &counts, file, first + i);

            block->nll[i] = bp_fixed_real(sums.nll);
            block->tokens[i] = sums.tokens;
            block->bytes[i] = sums.no_bytes ? -1 : sums.bytes;
            block->words[i] = sums.no_words ? -1 : sums.words;
            block->perplexity[i] = exp(block->nll[i] / (double)sums.tokens);
        }
        err = write_block(out, block, first, count);
        first += count;
    }
    return err;
}

static bp_err write_rows(bp_h5 *out, const bp_score_table *table)
{
    row_block *block = bp_alloc("score.tables", 1, sizeof(*block));
    bp_err err = block ? make_columns(out, table->plan)
                       : BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", bp_h5_path(out));

    for (int64_t file = 0; err == BP_OK && file < table->plan->files; file++)
        err = write_file_rows(out, table, file, block);
    bp_free(block);
    return err;
}

static bp_err find_id_width(const bp_score_plan *plan, size_t *width)
{
    char id[ID_BYTES];

    *width = 1;
    for (int64_t file = 0; file < plan->files; file++) {
        bp_corpus_file *corpus = bp_corpus_file_at(plan->corpus, file);

        for (int64_t d = 0; d < bp_corpus_file_info(corpus)->documents; d++) {
            bp_err err = bp_corpus_file_doc_id(corpus, d, id, sizeof(id));

            if (err != BP_OK)
                return err;
            *width = strlen(id) > *width ? strlen(id) : *width;
        }
    }
    return BP_OK;
}

static bp_err write_file_ids(bp_h5 *out, const bp_score_plan *plan, int64_t file, size_t width,
                             char *block)
{
    bp_corpus_file *corpus = bp_corpus_file_at(plan->corpus, file);
    int64_t documents = bp_corpus_file_info(corpus)->documents;
    bp_err err = BP_OK;

    for (int64_t first = 0; err == BP_OK && first < documents; first += BLOCK_ROWS) {
        int64_t count = documents - first < BLOCK_ROWS ? documents - first : BLOCK_ROWS;

        memset(block, 0, BLOCK_ROWS * width);
        for (int64_t i = 0; err == BP_OK && i < count; i++) {
            char id[ID_BYTES];

            err = bp_corpus_file_doc_id(corpus, first + i, id, sizeof(id));
            if (err == BP_OK)
                memcpy(block + (size_t)i * width, id, strlen(id));
        }
        if (err == BP_OK)
            err = bp_h5_write_text_slab(out, "doc_id", width, plan->first_document[file] + first,
                                        block, count);
    }
    return err;
}

static bp_err write_ids(bp_h5 *out, const bp_score_plan *plan)
{
    size_t width;
    char *block = NULL;
    bp_err err = find_id_width(plan, &width);

    if (err == BP_OK)
        err = bp_h5_make_text(out, "doc_id", width, plan->documents);
    if (err == BP_OK) {
        block = bp_alloc("score.tables", BLOCK_ROWS, width);
        if (!block)
            err = BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", bp_h5_path(out));
    }
    for (int64_t file = 0; err == BP_OK && file < plan->files; file++)
        err = write_file_ids(out, plan, file, width, block);
    bp_free(block);
    return err;
}

/* Codes as in corpora; a document whose corpus has no such label gets the number after the last
 * value. */
static bp_err write_label(bp_h5 *out, const bp_score_column *column, int64_t documents)
{
    char *codes_name = bp_sprintf("labels/%s", column->name);
    char *names_name = bp_sprintf("label_names/%s", column->name);
    uint32_t *codes = bp_alloc("score.tables", documents, sizeof(*codes));
    bp_err err = BP_OK;

    if (!codes_name || !names_name || !codes)
        err = BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", bp_h5_path(out));
    for (int64_t d = 0; err == BP_OK && d < documents; d++)
        codes[d] = (uint32_t)(column->codes[d] < 0 ? column->value_count : column->codes[d]);
    if (err == BP_OK)
        err = bp_h5_write(out, codes_name, BP_H5_U32, codes, documents);
    if (err == BP_OK)
        err = bp_h5_write_texts(out, names_name, (const char *const *)column->values,
                                column->value_count);
    bp_free(codes);
    bp_free(names_name);
    bp_free(codes_name);
    return err;
}

bp_err bp_documents_write(const bp_score_table *table, const char *path)
{
    table_draft draft = {0};
    bp_err err = draft_begin(&draft, path);

    if (err == BP_OK)
        err = write_rows(draft.file, table);
    if (err == BP_OK)
        err = write_ids(draft.file, table->plan);
    for (int64_t i = 0; err == BP_OK && i < table->column_count; i++)
        err = write_label(draft.file, &table->columns[i], table->plan->documents);
    if (err == BP_OK)
        err = draft_commit(&draft, "score-documents");
    draft_end(&draft);
    return err;
}
