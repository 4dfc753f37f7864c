/* tokens.h5 and documents.h5: written under a temporary name, sealed, renamed. */
#include "infer/score/tables/tables.h"

#include "infer/score/tables/tables_priv.h"

#include "base/mem.h"
#include "infer/score/tables/token_hash.h"
#include "io/h5/h5.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define VERSION      1
#define BLOCK_VALUES 65536 /* held before they are written, or as many as 256 rows have */
#define BLOCK_ROWS   8192
#define MEMBER_GRID  "member_logprob"

/* ---- tokens.h5 ---- */

struct bp_tokens_writer {
    bp_h5_draft draft;
    const bp_token_statistics *statistics;
    int64_t total;
    int64_t plain;   /* statistics that are datasets of their own: all but the members' */
    int64_t rows;    /* of a block */
    int64_t base;    /* entry of a block's first row */
    float *block;    /* [plain][rows] */
    float *grid;     /* [rows][members] */
    float *unbiased; /* [rows]: of an ensemble */
};

static int64_t plain_statistics(const bp_token_statistics *statistics)
{
    return statistics->count - statistics->members;
}

/* Rows of a block of some columns. */
static int64_t block_rows(int64_t columns)
{
    return BLOCK_VALUES / columns > 256 ? BLOCK_VALUES / columns : 256;
}

static void clear_block(bp_tokens_writer *writer)
{
    for (int64_t i = 0; i < writer->rows * writer->plain; i++)
        writer->block[i] = NAN;
    for (int64_t i = 0; i < writer->rows * writer->statistics->members; i++)
        writer->grid[i] = NAN;
}

/* Datasets of `rows` values for each statistic from `first` on, and of the members' names. */
static bp_err make_statistics(bp_h5 *file, const bp_token_statistics *statistics, bp_h5_type type,
                              int64_t rows)
{
    bp_err err = BP_OK;

    for (int64_t c = 0; err == BP_OK && c < plain_statistics(statistics); c++)
        err = bp_h5_make(file, bp_model_statistic_name(c), type, rows);
    if (err != BP_OK || statistics->members == 0)
        return err;
    err = bp_h5_make(file, BP_SCORE_UNBIASED, type, rows);
    if (err == BP_OK)
        err = bp_h5_make_array(file, MEMBER_GRID, type, 2,
                               (const int64_t[]){rows, statistics->members}, NULL);
    if (err == BP_OK)
        err = bp_h5_write_texts(file, "member_names", (const char *const *)statistics->names,
                                statistics->members);
    return err;
}

static bp_err start_tokens(bp_tokens_writer *writer, const char *path, const bp_score_plan *plan)
{
    bp_err err = bp_h5_draft_begin(&writer->draft, path, VERSION);

    if (err == BP_OK)
        err = bp_h5_write(writer->draft.file, "corpus_start", BP_H5_I64, plan->first_token,
                          plan->files + 1);
    if (err == BP_OK)
        err = make_statistics(writer->draft.file, writer->statistics, BP_H5_F32, writer->total);
    if (err == BP_OK)
        err = bp_score_text_write(writer->draft.file, plan);
    return err;
}

bp_err bp_tokens_writer_new(bp_tokens_writer **out, const char *path, const bp_score_plan *plan,
                            const bp_token_statistics *statistics)
{
    bp_tokens_writer *writer = bp_alloc("score.tables", 1, sizeof(*writer));
    bp_err err = BP_OK;

    *out = NULL;
    writer->statistics = statistics;
    writer->total = plan->first_token[plan->files];
    writer->plain = plain_statistics(statistics);
    writer->rows = block_rows(statistics->count);
    writer->block = bp_alloc("score.tables", writer->rows * writer->plain, sizeof(*writer->block));
    writer->grid =
        bp_alloc("score.tables", writer->rows * statistics->members, sizeof(*writer->grid));
    writer->unbiased = bp_alloc("score.tables", writer->rows, sizeof(*writer->unbiased));
    clear_block(writer);
    err = start_tokens(writer, path, plan);
    if (err != BP_OK)
        bp_tokens_writer_free(&writer);
    *out = writer;
    return err;
}

static bp_err write_unbiased(bp_tokens_writer *writer, int64_t count)
{
    const float *variance = writer->block + BP_MODEL_LOGPROB_VARIANCE * writer->rows;
    double factor = bp_score_unbiased_factor(writer->statistics->members);

    for (int64_t i = 0; i < count; i++)
        writer->unbiased[i] = (float)((double)variance[i] * factor);
    return bp_h5_write_slab(writer->draft.file, BP_SCORE_UNBIASED, BP_H5_F32, writer->base,
                            writer->unbiased, count);
}

static bp_err flush_block(bp_tokens_writer *writer)
{
    int64_t left = writer->total - writer->base, members = writer->statistics->members;
    int64_t count = left < writer->rows ? left : writer->rows;
    bp_err err = BP_OK;

    for (int64_t c = 0; err == BP_OK && count > 0 && c < writer->plain; c++)
        err = bp_h5_write_slab(writer->draft.file, bp_model_statistic_name(c), BP_H5_F32,
                               writer->base, writer->block + c * writer->rows, count);
    if (err == BP_OK && count > 0 && members > 0)
        err = write_unbiased(writer, count);
    if (err == BP_OK && count > 0 && members > 0)
        err = bp_h5_write_slab(writer->draft.file, MEMBER_GRID, BP_H5_F32, writer->base * members,
                               writer->grid, count * members);
    writer->base += count;
    clear_block(writer);
    return err;
}

/* All statistics of `count` entries, the first at `place` of the block. */
static void fill_block(bp_tokens_writer *writer, int64_t place, int64_t count, const char *values,
                       int64_t stride)
{
    int64_t members = writer->statistics->members;

    for (int64_t c = 0; c < writer->plain; c++)
        memcpy(writer->block + c * writer->rows + place,
               values + (size_t)(c * stride) * sizeof(float), (size_t)count * sizeof(float));
    for (int64_t m = 0; m < members; m++) {
        const char *from = values + (size_t)((writer->plain + m) * stride) * sizeof(float);

        for (int64_t i = 0; i < count; i++)
            memcpy(&writer->grid[(place + i) * members + m], from + (size_t)i * sizeof(float),
                   sizeof(float));
    }
}

bp_err bp_tokens_writer_add(bp_tokens_writer *writer, int64_t first, int64_t count,
                            const char *values, int64_t stride)
{
    if (first < writer->base || count < 0 || count > writer->total - first)
        return BP_FAIL(BP_ERR_FORMAT,
                       "a result is damaged, with tokens %" PRId64 " to %" PRId64 ": at %s", first,
                       first + count, writer->draft.path);
    while (count > 0) {
        int64_t place = first - writer->base;

        if (place >= writer->rows) {
            bp_err err = flush_block(writer);

            if (err != BP_OK)
                return err;
            continue;
        }
        int64_t part = writer->rows - place < count ? writer->rows - place : count;
        fill_block(writer, place, part, values, stride);
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
    return err == BP_OK ? bp_h5_draft_commit(&writer->draft, "score-tokens", VERSION) : err;
}

void bp_tokens_writer_free(bp_tokens_writer **writer)
{
    if (!*writer)
        return;
    bp_h5_draft_end(&(*writer)->draft);
    bp_free((*writer)->unbiased);
    bp_free((*writer)->grid);
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

/* An ensemble's columns: the means of its statistics over the scored tokens of each document. */
static bp_err write_means(bp_h5 *out, const bp_score_table *table)
{
    const bp_token_statistics *statistics = table->statistics;
    int64_t documents = table->plan->documents, plain = plain_statistics(statistics);
    int64_t rows = block_rows(statistics->count), members = statistics->members;
    double factor = bp_score_unbiased_factor(members);
    double *block = bp_alloc("score.tables", rows * statistics->count, sizeof(*block));
    bp_err err = block ? make_statistics(out, statistics, BP_H5_F64, documents)
                       : BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", bp_h5_path(out));

    for (int64_t first = 0; err == BP_OK && first < documents; first += rows) {
        int64_t count = documents - first < rows ? documents - first : rows;

        for (int64_t i = 0; i < count; i++) {
            const bp_score_row *row = &table->rows[first + i];
            const bp_fixed *sums = bp_score_document_statistics(table, first + i);

            for (int64_t c = 0; c < statistics->count; c++) {
                double mean = bp_fixed_real(c == 0 ? -row->nll : sums[c - 1]) / (double)row->tokens;

                block[c < plain ? c * rows + i : plain * rows + i * members + c - plain] = mean;
            }
        }
        for (int64_t c = 0; err == BP_OK && c < plain; c++)
            err = bp_h5_write_slab(out, bp_model_statistic_name(c), BP_H5_F64, first,
                                   block + c * rows, count);
        if (err == BP_OK)
            err = bp_h5_write_slab(out, MEMBER_GRID, BP_H5_F64, first * members,
                                   block + plain * rows, count * members);
        for (int64_t i = 0; i < count; i++)
            block[i] = block[BP_MODEL_LOGPROB_VARIANCE * rows + i] * factor;
        if (err == BP_OK)
            err = bp_h5_write_slab(out, BP_SCORE_UNBIASED, BP_H5_F64, first, block, count);
    }
    bp_free(block);
    return err;
}

/* What tells texts of equal counts apart; the corpora are read once more for it. */
static bp_err write_hashes(bp_h5 *out, const bp_score_plan *plan)
{
    uint64_t *block = bp_alloc("score.tables", BLOCK_ROWS, sizeof(*block));
    bp_token_hasher *hasher = NULL;
    bp_err err = block ? bp_token_hasher_new(&hasher)
                       : BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", bp_h5_path(out));

    if (err == BP_OK)
        err = bp_h5_make(out, "token_hash", BP_H5_U64, plan->documents);
    for (int64_t first = 0; err == BP_OK && first < plan->documents; first += BLOCK_ROWS) {
        int64_t left = plan->documents - first, count = left < BLOCK_ROWS ? left : BLOCK_ROWS;

        for (int64_t i = 0; err == BP_OK && i < count; i++)
            err = bp_token_hash_of(hasher, plan, first + i, &block[i]);
        if (err == BP_OK)
            err = bp_h5_write_slab(out, "token_hash", BP_H5_U64, first, block, count);
    }
    bp_token_hasher_free(&hasher);
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
    bp_h5_draft draft = {0};
    bp_err err = bp_h5_draft_begin(&draft, path, VERSION);

    if (err == BP_OK)
        err = write_rows(draft.file, table);
    if (err == BP_OK && table->statistics->members > 0)
        err = write_means(draft.file, table);
    if (err == BP_OK)
        err = bp_score_ids_write(draft.file, table->plan);
    if (err == BP_OK)
        err = write_hashes(draft.file, table->plan);
    for (int64_t i = 0; err == BP_OK && i < table->column_count; i++)
        err = write_label(draft.file, &table->columns[i], table->plan->documents);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, "score-documents", VERSION);
    bp_h5_draft_end(&draft);
    return err;
}
