/* Adding up the parts, document by document. Called by score.c after the last unit, on the
 * coordinator. */
#include "infer/score/tables/merge.h"

#include "base/mem.h"
#include "infer/score/tables/tables.h"
#include "infer/score/unit.h"

#include <inttypes.h>

/* `sums` is workspace for those of one piece. */
static bp_err add_pieces(bp_score_table *table, const bp_score_result *result, bp_fixed *sums,
                         const char *path)
{
    for (int64_t i = 0; i < result->pieces; i++) {
        bp_score_piece piece = bp_score_result_piece(result, i);

        if (piece.document < 0 || piece.document >= table->plan->documents)
            return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                           "a result is damaged, with document %" PRId64 ": at %s", piece.document,
                           path);
        const bp_score_sums more = {.nll = piece.nll,
                                    .square = piece.square,
                                    .tokens = piece.tokens,
                                    .unscored = piece.text - piece.text_scored,
                                    .oov = piece.oov,
                                    .zeros = piece.zeros,
                                    .oov_zeros = piece.oov_zeros,
                                    .oov_nll = piece.oov_nll};

        bp_score_result_sums(result, i, sums);
        bp_score_table_add(table, piece.document, &more, sums);
    }
    return BP_OK;
}

static bp_err add_tokens(bp_tokens_writer *writer, const bp_score_result *result)
{
    int64_t value = 0;
    bp_err err = BP_OK;

    for (int64_t i = 0; err == BP_OK && i < result->runs; i++) {
        bp_score_run run = bp_score_result_run(result, i);

        if (run.count < 0 || run.count > result->values - value)
            return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                           "a result is damaged, with a run of %" PRId64 " tokens", run.count);
        err = bp_tokens_writer_add(
            writer, run.first, run.count,
            bp_score_result_values(result, 0) + (size_t)value * sizeof(float), result->values);
        value += run.count;
    }
    return err;
}

bp_err bp_score_table_merge(bp_score_table *table, bp_parts *parts, int64_t key_columns,
                            const char *tokens_path)
{
    int64_t statistics = table->statistics->count;
    bp_fixed *sums = bp_alloc("score.rows", statistics - 1, sizeof(*sums));
    bp_tokens_writer *writer = NULL;
    bp_part_result part = {0};
    bp_err err = BP_OK;

    if (tokens_path)
        err = bp_tokens_writer_new(&writer, tokens_path, table->plan, table->statistics);
    while (bp_parts_next(parts, &part, &err)) {
        bp_score_key_rows keys;
        bp_score_result result;

        err = bp_score_result_keys(&keys, &part.data, &part.bytes, key_columns, part.path);
        if (err == BP_OK)
            err = bp_score_result_read(&result, part.data, part.bytes, statistics, part.path);
        if (err == BP_OK)
            err = add_pieces(table, &result, sums, part.path);
        if (err == BP_OK && writer)
            err = add_tokens(writer, &result);
    }
    if (err == BP_OK && writer)
        err = bp_tokens_writer_commit(writer);
    if (err == BP_OK)
        err = bp_score_table_count(table);
    bp_tokens_writer_free(&writer);
    bp_free(sums);
    return err;
}
