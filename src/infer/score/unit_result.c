/* Packed results of units, read in place. Written by unit.c; called by the merges. */
#include "infer/score/unit.h"

#include <inttypes.h>
#include <string.h>

static size_t piece_bytes(int64_t statistics)
{
    return sizeof(bp_score_piece) + (size_t)(statistics - 1) * sizeof(bp_fixed);
}

bp_err bp_score_result_read(bp_score_result *out, const char *data, size_t bytes,
                            int64_t statistics, const char *name)
{
    const size_t each[3] = {piece_bytes(statistics), sizeof(bp_score_run),
                            (size_t)statistics * sizeof(float)};
    int64_t counts[4];
    size_t want = sizeof(counts);

    if (bytes < want)
        return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                       "a result is damaged, with %zu bytes: at %s", bytes, name);
    memcpy(counts, data, sizeof(counts));
    if (counts[3] != statistics)
        return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                       "a result is damaged, with %" PRId64 " values a token, not %" PRId64
                       ": at %s",
                       counts[3], statistics, name);
    for (int i = 0; i < 3; i++) {
        if (counts[i] < 0 || (uint64_t)counts[i] > (bytes - want) / each[i])
            return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                           "a result is damaged, with a count of %" PRId64 ": at %s", counts[i],
                           name);
        want += (size_t)counts[i] * each[i];
    }
    if (want != bytes)
        return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                       "a result is damaged, with %zu bytes, not %zu: at %s", bytes, want, name);
    *out = (bp_score_result){
        .pieces = counts[0], .runs = counts[1], .values = counts[2], .statistics = statistics};
    out->piece_data = data + sizeof(counts);
    out->run_data = out->piece_data + (size_t)counts[0] * each[0];
    out->value_data = out->run_data + (size_t)counts[1] * each[1];
    return BP_OK;
}

bp_err bp_score_result_keys(bp_score_key_rows *out, const char **data, size_t *bytes,
                            int64_t columns, const char *name)
{
    size_t row = (size_t)columns * sizeof(float), tail = sizeof(out->count);

    *out = (bp_score_key_rows){.rows = (const float *)(const void *)*data};
    if (columns == 0)
        return BP_OK;
    if (*bytes >= tail)
        memcpy(&out->count, *data + *bytes - tail, tail);
    if (*bytes < tail || out->count < 0 || (uint64_t)out->count > (*bytes - tail) / row)
        return BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                       "a result is damaged, with %" PRId64 " keys in %zu bytes: at %s", out->count,
                       *bytes, name);
    *data += (size_t)out->count * row;
    *bytes -= (size_t)out->count * row + tail;
    return BP_OK;
}

bp_score_piece bp_score_result_piece(const bp_score_result *result, int64_t i)
{
    bp_score_piece piece;

    memcpy(&piece, result->piece_data + (size_t)i * piece_bytes(result->statistics), sizeof(piece));
    return piece;
}

void bp_score_result_sums(const bp_score_result *result, int64_t i, bp_fixed *sums)
{
    memcpy(sums,
           result->piece_data + (size_t)i * piece_bytes(result->statistics) +
               sizeof(bp_score_piece),
           (size_t)(result->statistics - 1) * sizeof(*sums));
}

const char *bp_score_result_values(const bp_score_result *result, int64_t statistic)
{
    return result->value_data + (size_t)(statistic * result->values) * sizeof(float);
}

bp_score_run bp_score_result_run(const bp_score_result *result, int64_t i)
{
    bp_score_run run;

    memcpy(&run, result->run_data + (size_t)i * sizeof(run), sizeof(run));
    return run;
}
