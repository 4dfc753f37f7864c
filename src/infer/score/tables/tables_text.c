/* The parts of the score files that come from the corpora themselves. Called by
 * infer/score/states/keys.c, tables.c and infer/score/vectors/vectors.c. */
#include "infer/score/tables/tables.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"

#include <string.h>

#define BLOCK_ROWS 8192
#define ID_BYTES   1025

/* ---- ids of documents ---- */

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

bp_err bp_score_ids_write(bp_h5 *out, const bp_score_plan *plan)
{
    size_t width;
    bp_err err = find_id_width(plan, &width);
    char *block = bp_alloc("score.tables", BLOCK_ROWS, width);

    if (err == BP_OK)
        err = bp_h5_make_text(out, "doc_id", width, plan->documents);
    for (int64_t file = 0; err == BP_OK && file < plan->files; file++)
        err = write_file_ids(out, plan, file, width, block);
    bp_free(block);
    return err;
}

/* ---- tokens.h5: ids of tokens, and their texts ---- */

/* Two bytes per token if the vocabulary allows it; HDF5 converts them. */
static bp_err write_tokens(bp_h5 *out, const bp_score_plan *plan)
{
    bool narrow = bp_corpus_vocab_size(plan->corpus) <= UINT16_MAX;
    int32_t *block = bp_alloc("score.tables", BLOCK_ROWS, sizeof(*block));
    bp_err err =
        bp_h5_make(out, "tokens", narrow ? BP_H5_U16 : BP_H5_U32, plan->first_token[plan->files]);

    for (int64_t file = 0; err == BP_OK && file < plan->files; file++) {
        int64_t base = plan->first_token[file], total = plan->first_token[file + 1] - base;

        for (int64_t first = 0; err == BP_OK && first < total; first += BLOCK_ROWS) {
            int64_t count = total - first < BLOCK_ROWS ? total - first : BLOCK_ROWS;

            bp_heartbeat_progress();
            err = bp_corpus_file_read(bp_corpus_file_at(plan->corpus, file), first, count, block);
            if (err == BP_OK)
                err = bp_h5_write_slab(out, "tokens", BP_H5_U32, base + first, block, count);
        }
    }
    bp_free(block);
    return err;
}

/* Where documents begin in the entries of all corpora; the last one's end. */
static bp_err write_starts(bp_h5 *out, const bp_score_plan *plan)
{
    int64_t *block = bp_alloc("score.tables", BLOCK_ROWS, sizeof(*block));
    bp_err err = bp_h5_make(out, "doc_start", BP_H5_I64, plan->documents + 1);

    for (int64_t first = 0; err == BP_OK && first <= plan->documents; first += BLOCK_ROWS) {
        int64_t left = plan->documents + 1 - first, count = left < BLOCK_ROWS ? left : BLOCK_ROWS;

        for (int64_t i = 0; i < count && err == BP_OK; i++) {
            int64_t d = first + i, file = d < plan->documents ? bp_score_plan_file(plan, d) : -1;
            const int64_t *start;

            block[i] = plan->first_token[file < 0 ? plan->files : file];
            if (file < 0)
                break;
            err = bp_document_starts_at(plan->starts, file, d - plan->first_document[file], &start);
            block[i] += err == BP_OK ? start[0] : 0;
        }
        if (err == BP_OK)
            err = bp_h5_write_slab(out, "doc_start", BP_H5_I64, first, block, count);
    }
    bp_free(block);
    return err;
}

/* All corpora have the same tokenizer; its text comes from the first that has it. */
static bp_err write_tokenizer(bp_h5 *out, const bp_corpus *corpus)
{
    const char *hash = bp_corpus_tokenizer_hash(corpus);
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_h5_put_int(out, "/", "vocab_size", bp_corpus_vocab_size(corpus));

    if (err == BP_OK && hash[0])
        err = bp_h5_put_text(out, "/", "tokenizer_hash", hash);
    for (int64_t k = 0; err == BP_OK && !text && k < bp_corpus_files(corpus); k++)
        err = bp_corpus_file_tokenizer(bp_corpus_file_at(corpus, k), &text, &bytes);
    if (err == BP_OK && text)
        err = bp_h5_write(out, "source/tokenizer", BP_H5_U8, text, (int64_t)bytes);
    bp_free(text);
    return err;
}

bp_err bp_score_text_write(bp_h5 *out, const bp_score_plan *plan)
{
    bp_err err = write_tokenizer(out, plan->corpus);

    if (err == BP_OK)
        err = write_starts(out, plan);
    if (err == BP_OK)
        err = bp_score_ids_write(out, plan);
    return err == BP_OK ? write_tokens(out, plan) : err;
}
