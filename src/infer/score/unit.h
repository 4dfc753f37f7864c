/* One work unit: its windows, cut into batches, and their results. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "infer/score/plan.h"
#include "infer/score/tables/sums.h"
#include "models/model.h"

/** Tokens of a batch, including padding (one window may be longer). The division into batches
 * affects the result's bits, so this is not a key. */
#define BP_SCORE_BATCH_TOKENS 4096

/** Inputs of a piece of a window that has no limit (bp_score_rule.piece). At most
 * BP_SCORE_BATCH_TOKENS / BP_SCORE_PIECE_INPUTS windows are computed side by side, piece by
 * piece. */
#define BP_SCORE_PIECE_INPUTS 256

/** The most tokens of a batch, and the number of windows of one if each has `inputs` inputs, the
 * most of a window (bp_score_piece_inputs). */
static inline int64_t bp_score_batch_tokens(int64_t inputs)
{
    return inputs > BP_SCORE_BATCH_TOKENS ? inputs : BP_SCORE_BATCH_TOKENS;
}

static inline int64_t bp_score_batch_windows(int64_t inputs)
{
    return bp_score_batch_tokens(inputs) / inputs;
}

/** A unit's sums for one document. In a part file the sums of the model's other statistics
 * (bp_model_statistic) follow it, one bp_fixed each. */
typedef struct bp_score_piece {
    int64_t document;
    int64_t text;        /* text tokens of the document, in its first unit; else 0 */
    int64_t text_scored; /* text tokens scored here */
    int64_t tokens;      /* tokens scored here */
    bp_fixed nll, square;
    /* tokens for words out of the vocabulary, and their part of nll; tokens of probability 0, which
     * add nothing to nll and square, and tokens that are both */
    int64_t oov, zeros, oov_zeros;
    bp_fixed oov_nll;
} bp_score_piece;

/** A run of scored tokens: entries of /tokens, all corpora one after another. */
typedef struct bp_score_run {
    int64_t first, count;
} bp_score_run;

typedef struct bp_score_unit bp_score_unit;

/** A unit's memory, reused for successive units; a batch returns `statistics` values per token.
 * `plan` is borrowed. Errors: BP_ERR_SYSTEM memory (a window without a limit is a whole document);
 * *out is NULL. */
bp_err bp_score_unit_new(bp_score_unit **out, const bp_score_plan *plan, int64_t statistics);
/** Bytes of it, except for a small part, if windows have at most this many inputs. */
size_t bp_score_unit_bytes(int64_t longest, int64_t statistics);
void bp_score_unit_free(bp_score_unit **unit);

/** Make `number` the current unit. Errors: those of bp_corpus_file_read. */
bp_err bp_score_unit_load(bp_score_unit *unit, int64_t number);
int64_t bp_score_unit_batches(const bp_score_unit *unit);
/** Fill batch b: windows of one length class, the shorter padded, or successive pieces of longer
 * ones. It stays valid until the next call. Its first_slot is unit * BP_SCORE_UNIT_INPUTS + the
 * place of its first window among those of the unit's batches. Errors: those of
 * bp_corpus_file_read. */
bp_err bp_score_unit_batch(bp_score_unit *unit, int64_t b, bp_model_batch *batch);
/** Take the result of batch b.
 *
 * Shapes:     values[statistics][windows][length] of that batch, log-probabilities first.
 * Errors:     BP_ERR_SOFTWARE a value that is not finite. */
bp_err bp_score_unit_take(bp_score_unit *unit, int64_t b, const float *values);
/** Copy a batch's rows[windows][length][columns], one per place, for scored targets, into
 * to[bp_score_unit_scored][columns], in the order of values. */
void bp_score_unit_take_rows(const bp_score_unit *unit, int64_t b, const float *rows,
                             int64_t columns, float *to);
/** The most scored targets of a unit; its windows; the entries of /tokens that a window scores, in
 * ascending order, where the first has value *value. */
int64_t bp_score_unit_capacity(const bp_score_unit *unit);
int64_t bp_score_unit_windows(const bp_score_unit *unit);
bp_score_run bp_score_unit_run(const bp_score_unit *unit, int64_t window, int64_t *value);
/** Inputs, and scored targets, of all its windows. */
int64_t bp_score_unit_inputs(const bp_score_unit *unit);
int64_t bp_score_unit_scored(const bp_score_unit *unit);

/** Append the result to `out`, after all batches are taken: four int64_t (pieces, runs, values,
 * statistics), the pieces, and if `tokens` the runs and their values[statistics][values] (float32),
 * in the byte order of the host. */
void bp_score_unit_pack(const bp_score_unit *unit, bool tokens, bp_buffer *out);

/** A packed result, in place. `values` are those of all runs, one after another, of one statistic
 * after another. */
typedef struct bp_score_result {
    int64_t pieces, runs, values, statistics;
    const char *piece_data; /* not aligned: copy with bp_score_result_piece */
    const char *run_data, *value_data;
} bp_score_result;
/** Errors: BP_ERR_FORMAT lengths that contradict each other, another number of statistics; `name`
 * is the file for messages. */
bp_err bp_score_result_read(bp_score_result *out, const char *data, size_t bytes,
                            int64_t statistics, const char *name);
/** With keys (score.states), a unit's result begins with the keys of its scored targets and ends
 * with their number, an int64_t. `data` and `bytes` are set to the part in between. */
typedef struct bp_score_key_rows {
    int64_t count;
    const float *rows; /* [count][columns], in `data`, which is aligned */
} bp_score_key_rows;
/** columns 0: there are no keys, and nothing happens. Errors: BP_ERR_FORMAT, as above. */
bp_err bp_score_result_keys(bp_score_key_rows *out, const char **data, size_t *bytes,
                            int64_t columns, const char *name);
bp_score_piece bp_score_result_piece(const bp_score_result *result, int64_t i);
/** sums[statistics - 1] of piece i, for the statistics after the log-probability. */
void bp_score_result_sums(const bp_score_result *result, int64_t i, bp_fixed *sums);
/** The values of one statistic; maybe not aligned. */
const char *bp_score_result_values(const bp_score_result *result, int64_t statistic);
bp_score_run bp_score_result_run(const bp_score_result *result, int64_t i);
