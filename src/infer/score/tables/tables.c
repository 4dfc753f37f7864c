/* tokens.h5 and documents.h5: written under a temporary name, sealed, renamed. Called by merge.c
 * and score.c. */
#include "infer/score/tables/tables.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/tables/summary.h"
#include "io/h5/h5.h"

#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#define VERSION      1
#define BLOCK_VALUES 65536 /* buffered before they are written, or the size of 256 rows */
#define BLOCK_ROWS   BP_SCORE_COUNTS
#define BLOCK_TOKENS 16384
#define MEMBER_GRID  "member_logprob"

/* ---- blocks of statistics ---- */

/* A block is columns[plain_columns][rows] of the statistics with separate datasets, followed by the
 * grid[rows][members] of the members' log-probabilities. An ensemble's last column is computed from
 * another one (BP_SCORE_UNBIASED). */
static int64_t plain_columns(const bp_token_statistics *statistics)
{
    return statistics->count - statistics->members + (statistics->members > 0);
}

static const char *column_name(const bp_token_statistics *statistics, int64_t c)
{
    return c < statistics->count - statistics->members ? bp_token_statistics_column(statistics, c)
                                                       : BP_SCORE_UNBIASED;
}

static int64_t block_rows(const bp_token_statistics *statistics)
{
    return BLOCK_VALUES / statistics->count > 256 ? BLOCK_VALUES / statistics->count : 256;
}

static int64_t block_values(const bp_token_statistics *statistics)
{
    return block_rows(statistics) * (plain_columns(statistics) + statistics->members);
}

/* Datasets of `rows` values for each column, of the grid, and of the members' names. */
static bp_err make_statistics(bp_h5 *out, const bp_token_statistics *statistics, bp_h5_type type,
                              int64_t rows)
{
    bp_err err = BP_OK;

    for (int64_t c = 0; err == BP_OK && c < plain_columns(statistics); c++)
        err = bp_h5_make(out, column_name(statistics, c), type, rows);
    if (err == BP_OK && statistics->members > 0)
        err = bp_h5_make_array(out, MEMBER_GRID, type, 2,
                               (const int64_t[]){rows, statistics->members}, NULL);
    if (err == BP_OK && statistics->members > 0)
        err = bp_h5_write_texts(out, "member_names", (const char *const *)statistics->names,
                                statistics->members);
    return err;
}

/* The first `count` rows of a block, as rows from `first` on. `type` is BP_H5_F32 or BP_H5_F64. */
static bp_err write_statistics(bp_h5 *out, const bp_token_statistics *statistics, bp_h5_type type,
                               const void *block, int64_t first, int64_t count)
{
    int64_t columns = plain_columns(statistics), members = statistics->members;
    size_t column_bytes =
        (size_t)block_rows(statistics) * (type == BP_H5_F32 ? sizeof(float) : sizeof(double));
    const char *from = block;
    bp_err err = BP_OK;

    for (int64_t c = 0; err == BP_OK && c < columns; c++, from += column_bytes)
        err = bp_h5_write_slab(out, column_name(statistics, c), type, first, from, count);
    if (err == BP_OK && members > 0)
        err = bp_h5_write_slab(out, MEMBER_GRID, type, first * members, from, count * members);
    return err;
}

/* ---- tokens.h5 ---- */

struct bp_tokens_writer {
    bp_h5_draft draft;
    const bp_token_statistics *statistics;
    const char *kind;
    int64_t total;
    int64_t base; /* entry of the block's first row */
    float *block;
};

static void clear_block(bp_tokens_writer *writer)
{
    for (int64_t i = 0; i < block_values(writer->statistics); i++)
        writer->block[i] = NAN;
}

/* Names of the corpora, and the begin of each, under `name` and under the old name (which means
 * documents in one file and entries in another). */
static bp_err write_corpora(bp_h5 *out, const char *name, const int64_t *starts,
                            const bp_score_plan *plan)
{
    char **names = bp_alloc("score.tables", plan->files, sizeof *names);
    bp_err err = bp_h5_write(out, "corpus_start", BP_H5_I64, starts, plan->files + 1);

    for (int64_t k = 0; k < plan->files; k++)
        names[k] = bp_score_corpus_name(bp_corpus_file_path(bp_corpus_file_at(plan->corpus, k)));
    if (err == BP_OK)
        err = bp_h5_write(out, name, BP_H5_I64, starts, plan->files + 1);
    if (err == BP_OK)
        err = bp_h5_write_texts(out, "corpus_names", (const char *const *)names, plan->files);
    bp_names_free(&names, plan->files);
    return err;
}

/* One row per entry; starts[files + 1] of corpora among them, the last is the number of rows. */
static bp_err begin_writer(bp_tokens_writer **out, const char *path, const char *kind,
                           const bp_score_plan *plan, const int64_t *starts,
                           const bp_token_statistics *statistics)
{
    bp_tokens_writer *writer = bp_alloc("score.tables", 1, sizeof(*writer));
    bp_err err = bp_h5_draft_begin(&writer->draft, path, VERSION);

    writer->statistics = statistics;
    writer->kind = kind;
    writer->total = starts[plan->files];
    writer->block = bp_alloc("score.tables", block_values(statistics), sizeof(*writer->block));
    clear_block(writer);
    if (err == BP_OK)
        err = write_corpora(writer->draft.file, "corpus_first_entry", starts, plan);
    if (err == BP_OK)
        err = make_statistics(writer->draft.file, statistics, BP_H5_F32, writer->total);
    if (err != BP_OK)
        bp_tokens_writer_free(&writer);
    *out = writer;
    return err;
}

bp_err bp_tokens_writer_new(bp_tokens_writer **out, const char *path, const bp_score_plan *plan,
                            const bp_token_statistics *statistics)
{
    bp_err err = begin_writer(out, path, "score-tokens", plan, plan->first_token, statistics);

    if (err == BP_OK)
        err = bp_score_text_write((*out)->draft.file, plan);
    if (err != BP_OK)
        bp_tokens_writer_free(out);
    return err;
}

static bp_err put_cut(bp_h5 *out, const bp_outcomes *outcomes)
{
    bp_err err = bp_h5_put_int(out, "/", "documents_cut", outcomes->cut);

    return err == BP_OK ? bp_h5_put_int(out, "/", "places", outcomes->positions) : err;
}

bp_err bp_outcomes_write(const char *path, const bp_outcomes *outcomes)
{
    const bp_score_plan *plan = outcomes->plan;
    int64_t *starts = bp_alloc("score.tables", plan->files + 1, sizeof *starts);
    bp_tokens_writer *writer;
    bp_err err;

    for (int64_t f = 0; f < plan->files; f++) {
        starts[f + 1] = starts[f];
        for (int64_t d = plan->first_document[f]; d < plan->first_document[f + 1]; d++)
            starts[f + 1] += outcomes->predictions[d];
    }
    err = begin_writer(&writer, path, "score-outcomes", plan, starts, outcomes->statistics);
    if (err == BP_OK)
        err = bp_score_ids_write(writer->draft.file, plan);
    if (err == BP_OK)
        err = put_cut(writer->draft.file, outcomes);
    if (err == BP_OK)
        err = bp_h5_write(writer->draft.file, "predictions", BP_H5_I64, outcomes->predictions,
                          plan->documents);
    for (int e = 0; err == BP_OK && e < BP_MODEL_EXTRAS; e++)
        if (outcomes->extras >> e & 1)
            err = bp_h5_write(writer->draft.file, bp_model_extra_name((bp_model_extra)e), BP_H5_F32,
                              outcomes->values + (outcomes->statistics->count +
                                                  bp_model_extras_before(outcomes->extras, e)) *
                                                     outcomes->count,
                              outcomes->count);
    if (err == BP_OK && outcomes->label)
        err = bp_h5_write(writer->draft.file, "label", BP_H5_F32, outcomes->label, outcomes->count);
    if (err == BP_OK && outcomes->label && outcomes->outcome_names)
        err = bp_h5_write_texts(writer->draft.file, "outcome_names", outcomes->outcome_names,
                                outcomes->outcomes);
    if (err == BP_OK)
        err = bp_tokens_writer_add(writer, 0, outcomes->count, (const char *)outcomes->values,
                                   outcomes->count);
    if (err == BP_OK)
        err = bp_tokens_writer_commit(writer);
    bp_tokens_writer_free(&writer);
    bp_free(starts);
    return err;
}

bp_err bp_outcomes_write_values(const char *path, const bp_outcomes *outcomes, const float *label)
{
    int64_t n = outcomes->count, M = outcomes->statistics->members;
    const float *values = outcomes->values;
    float *grid = bp_alloc("score.tables", n * M, sizeof *grid);
    bp_h5_draft draft = {0};
    bp_err err = bp_h5_draft_begin(&draft, path, VERSION);

    for (int64_t k = 0; k < n * M; k++)
        grid[k] = values[(BP_MODEL_MEMBER + k % M) * n + k / M];
    if (err == BP_OK)
        err = put_cut(draft.file, outcomes);
    if (err == BP_OK)
        err = bp_h5_write(draft.file, "label", BP_H5_F32, label, n);
    if (err == BP_OK)
        err = bp_h5_write(draft.file, "prediction", BP_H5_F32, values + BP_MODEL_LOGPROB * n, n);
    if (err == BP_OK)
        err = bp_h5_write(draft.file, "variance", BP_H5_F32, values + BP_MODEL_LOGPROB_VARIANCE * n,
                          n);
    if (err == BP_OK)
        err = bp_h5_make_array(draft.file, "member_prediction", BP_H5_F32, 2,
                               (const int64_t[]){n, M}, NULL);
    if (err == BP_OK)
        err = bp_h5_write_slab(draft.file, "member_prediction", BP_H5_F32, 0, grid, n * M);
    if (err == BP_OK)
        err = bp_h5_write_texts(draft.file, "member_names",
                                (const char *const *)outcomes->statistics->names, M);
    if (err == BP_OK)
        err = bp_h5_write(draft.file, "predictions", BP_H5_I64, outcomes->predictions,
                          outcomes->plan->documents);
    if (err == BP_OK)
        err = bp_score_ids_write(draft.file, outcomes->plan);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, "score-outcomes", VERSION);
    bp_h5_draft_end(&draft);
    bp_free(grid);
    return err;
}

static bp_err flush_block(bp_tokens_writer *writer)
{
    const bp_token_statistics *statistics = writer->statistics;
    int64_t left = writer->total - writer->base, rows = block_rows(statistics);
    int64_t count = left < rows ? left : rows;
    double factor = bp_score_unbiased_factor(statistics->members);
    bp_err err = BP_OK;

    if (statistics->members > 0) {
        const float *variance = writer->block + BP_MODEL_LOGPROB_VARIANCE * rows;
        float *unbiased = writer->block + (plain_columns(statistics) - 1) * rows;

        for (int64_t i = 0; i < count; i++)
            unbiased[i] = (float)((double)variance[i] * factor);
    }
    if (count > 0)
        err = write_statistics(writer->draft.file, statistics, BP_H5_F32, writer->block,
                               writer->base, count);
    writer->base += count;
    clear_block(writer);
    return err;
}

/* All statistics of `count` entries, the first at `place` of the block. */
static void fill_block(bp_tokens_writer *writer, int64_t place, int64_t count, const char *values,
                       int64_t stride)
{
    int64_t members = writer->statistics->members, plain = writer->statistics->count - members;
    int64_t rows = block_rows(writer->statistics);
    float *grid = writer->block + plain_columns(writer->statistics) * rows;

    for (int64_t c = 0; c < plain; c++)
        memcpy(writer->block + c * rows + place, values + (size_t)(c * stride) * sizeof(float),
               (size_t)count * sizeof(float));
    for (int64_t m = 0; m < members; m++) {
        const char *from = values + (size_t)((plain + m) * stride) * sizeof(float);

        for (int64_t i = 0; i < count; i++)
            memcpy(&grid[(place + i) * members + m], from + (size_t)i * sizeof(float),
                   sizeof(float));
    }
}

bp_err bp_tokens_writer_add(bp_tokens_writer *writer, int64_t first, int64_t count,
                            const char *values, int64_t stride)
{
    int64_t rows = block_rows(writer->statistics);
    bp_err err = BP_OK;

    if (first < writer->base || count < 0 || count > writer->total - first)
        return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                       "a result is damaged, with tokens %" PRId64 " to %" PRId64 ": at %s", first,
                       first + count, writer->draft.place.path);
    while (err == BP_OK && count > 0) {
        int64_t place = first - writer->base;

        if (place >= rows) {
            err = flush_block(writer);
            continue;
        }
        int64_t part = rows - place < count ? rows - place : count;
        fill_block(writer, place, part, values, stride);
        values += (size_t)part * sizeof(float);
        first += part;
        count -= part;
    }
    return err;
}

bp_err bp_tokens_writer_commit(bp_tokens_writer *writer)
{
    bp_err err = BP_OK;

    while (err == BP_OK && writer->base < writer->total)
        err = flush_block(writer);
    return err == BP_OK ? bp_h5_draft_commit(&writer->draft, writer->kind, VERSION) : err;
}

void bp_tokens_writer_free(bp_tokens_writer **writer)
{
    if (!*writer)
        return;
    bp_h5_draft_end(&(*writer)->draft);
    bp_free((*writer)->block);
    bp_free(*writer);
    *writer = NULL;
}

/* ---- documents.h5 ---- */

/* Documents [first, first + count) of one file, as columns. */
typedef struct row_block {
    double nll[BLOCK_ROWS], perplexity[BLOCK_ROWS];
    bp_score_counts counts;
} row_block;

static const struct {
    const char *name;
    bp_h5_type type;
} COLUMNS[] = {{"nll", BP_H5_F64},
               {"tokens", BP_H5_I64},
               {"bytes", BP_H5_I64},
               {"words", BP_H5_I64},
               {"perplexity", BP_H5_F64}};
#define COLUMN_COUNT (sizeof COLUMNS / sizeof COLUMNS[0])

static void set_unknown(int64_t *values, bool known)
{
    for (int64_t i = 0; !known && i < BLOCK_ROWS; i++)
        values[i] = -1;
}

static bp_err write_file_rows(bp_h5 *out, const bp_score_table *table, int64_t file,
                              row_block *block)
{
    int64_t first = table->plan->first_document[file], end = table->plan->first_document[file + 1];
    bp_score_counts *counts = &block->counts;
    bp_err err = BP_OK;

    while (err == BP_OK && first < end) {
        int64_t count = end - first < BLOCK_ROWS ? end - first : BLOCK_ROWS;
        const void *const values[COLUMN_COUNT] = {block->nll, table->tokens + first, counts->bytes,
                                                  counts->words, block->perplexity};

        for (int64_t i = 0; i < count; i++) {
            block->nll[i] = bp_score_document_nll(table, first + i);
            block->perplexity[i] = exp(block->nll[i] / (double)table->tokens[first + i]);
        }
        err = bp_score_counts_read(counts, table->plan, file, first, count);
        set_unknown(counts->bytes, counts->has_bytes);
        set_unknown(counts->words, counts->has_words);
        for (size_t c = 0; err == BP_OK && c < COLUMN_COUNT; c++)
            err = bp_h5_write_slab(out, COLUMNS[c].name, COLUMNS[c].type, first, values[c], count);
        first += count;
    }
    return err;
}

/* Which of /corpus_names each document is of. */
static bp_err write_corpus_codes(bp_h5 *out, const bp_score_plan *plan)
{
    uint32_t *codes = bp_alloc("score.tables", plan->documents, sizeof *codes);
    bp_err err;

    for (int64_t file = 0; file < plan->files; file++)
        for (int64_t d = plan->first_document[file]; d < plan->first_document[file + 1]; d++)
            codes[d] = (uint32_t)file;
    err = bp_h5_write(out, "corpus", BP_H5_U32, codes, plan->documents);
    bp_free(codes);
    return err;
}

static bp_err write_rows(bp_h5 *out, const bp_score_table *table)
{
    const bp_score_plan *plan = table->plan;
    row_block *block = bp_alloc("score.tables", 1, sizeof(*block));
    bp_err err = write_corpora(out, "corpus_first_document", plan->first_document, plan);

    if (err == BP_OK)
        err = write_corpus_codes(out, plan);
    for (size_t c = 0; err == BP_OK && c < COLUMN_COUNT; c++)
        err = bp_h5_make(out, COLUMNS[c].name, COLUMNS[c].type, plan->documents);
    for (int64_t file = 0; err == BP_OK && file < plan->files; file++)
        err = write_file_rows(out, table, file, block);
    bp_free(block);
    return err;
}

/* An ensemble's columns: the means of its statistics over the scored tokens of each document. */
static bp_err write_means(bp_h5 *out, const bp_score_table *table)
{
    const bp_token_statistics *statistics = table->statistics;
    int64_t documents = table->plan->documents, rows = block_rows(statistics);
    int64_t members = statistics->members, plain = statistics->count - members;
    double factor = bp_score_unbiased_factor(members);
    double *block = bp_alloc("score.tables", block_values(statistics), sizeof(*block));
    double *unbiased = block + plain * rows, *grid = unbiased + rows;
    bp_err err = make_statistics(out, statistics, BP_H5_F64, documents);

    for (int64_t first = 0; err == BP_OK && first < documents; first += rows) {
        int64_t count = documents - first < rows ? documents - first : rows;

        for (int64_t i = 0; i < count; i++) {
            const bp_fixed *sums = bp_score_document_statistics(table, first + i);

            for (int64_t c = 0; c < statistics->count; c++)
                *(c < plain ? &block[c * rows + i] : &grid[i * members + c - plain]) =
                    bp_fixed_real(c == 0 ? -table->nll[first + i] : sums[c - 1]) /
                    (double)table->tokens[first + i];
            unbiased[i] = block[BP_MODEL_LOGPROB_VARIANCE * rows + i] * factor;
        }
        err = write_statistics(out, statistics, BP_H5_F64, block, first, count);
    }
    bp_free(block);
    return err;
}

/* XXH3-64 of the text tokens of a document (of both texts of a pair) as little-endian uint32,
 * without the end-of-document token; whether the document is scored or not. tokens[BLOCK_TOKENS] is
 * scratch. */
static bp_err hash_tokens(XXH3_state_t *state, int32_t *tokens, const bp_score_plan *plan,
                          int64_t document, uint64_t *hash)
{
    bp_score_document text;
    bp_err err = bp_score_plan_document(plan, document, &text);

    BP_CHECK(XXH3_64bits_reset(state) == XXH_OK);
    for (int64_t at = -text.source; err == BP_OK && at < text.text; at += BLOCK_TOKENS) {
        int64_t now = text.text - at < BLOCK_TOKENS ? text.text - at : BLOCK_TOKENS;

        err = bp_corpus_file_read(bp_corpus_file_at(plan->corpus, text.file), text.start + at, now,
                                  tokens);
        for (int64_t k = 0; err == BP_OK && k < now; k++)
            tokens[k] = (int32_t)htole32((uint32_t)tokens[k]);
        BP_CHECK(XXH3_64bits_update(state, tokens, (size_t)now * sizeof(*tokens)) == XXH_OK);
    }
    *hash = XXH3_64bits_digest(state);
    return err;
}

/* Hashes distinguish texts with equal counts. The corpora are read again for them. */
static bp_err write_hashes(bp_h5 *out, const bp_score_plan *plan)
{
    uint64_t *block = bp_alloc("score.tables", BLOCK_ROWS, sizeof(*block));
    int32_t *tokens = bp_alloc("score.tables", BLOCK_TOKENS, sizeof(*tokens));
    XXH3_state_t *state = XXH3_createState();
    bp_err err = state ? bp_h5_make(out, "token_hash", BP_H5_U64, plan->documents)
                       : bp_fail_memory("a hash", 1, sizeof(*block));

    for (int64_t first = 0; err == BP_OK && first < plan->documents; first += BLOCK_ROWS) {
        int64_t left = plan->documents - first, count = left < BLOCK_ROWS ? left : BLOCK_ROWS;

        for (int64_t i = 0; err == BP_OK && i < count; i++)
            err = hash_tokens(state, tokens, plan, first + i, &block[i]);
        if (err == BP_OK)
            err = bp_h5_write_slab(out, "token_hash", BP_H5_U64, first, block, count);
    }
    XXH3_freeState(state); /* NULL is accepted */
    bp_free(tokens);
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

    for (int64_t d = 0; d < documents; d++)
        codes[d] = (uint32_t)(column->codes[d] < 0 ? column->value_count : column->codes[d]);
    bp_err err = bp_h5_write(out, codes_name, BP_H5_U32, codes, documents);
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
