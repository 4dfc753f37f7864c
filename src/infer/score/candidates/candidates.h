/* Choices: for each document, the most probable continuation according to the model, as
 * lm-evaluation-harness scores multiple choice. */
#pragma once

#include "base/config/json.h"
#include "base/files/hash.h"
#include "infer/score/plan.h"
#include "text/tokenizer/tokenizer.h"

#include <stdint.h>

/** A choice of a document: the input of the model, and how much of it is scored. */
typedef struct bp_candidate_row {
    int64_t document;
    int64_t first, count; /* of bp_candidates.ids: context, then choice; at least 2, or 0 */
    int64_t scored; /* the last `scored` of them are the choice's tokens; 0: no log-probability,
                       because the choice is empty or longer than the context */
    int64_t bytes;  /* of the choice's text */
} bp_candidate_row;

typedef struct bp_candidates {
    int64_t documents;
    int64_t *first;   /* [documents + 1] in rows */
    int64_t *answer;  /* [documents]: index of the right choice; -1: unknown */
    int64_t unscored; /* rows without a log-probability */
    bp_candidate_row *rows;
    bool *quiet; /* [documents]: the model's own continuation is not needed; NULL: it is needed for
                    all */
    bp_ids ids;
    int64_t count, capacity; /* of rows */
} bp_candidates;

/** Tokens put before a context; -1 if there is none. A document that begins with `bos` or `before`
 * keeps its own. */
typedef struct bp_candidates_prefix {
    int64_t before; /* before a context with text: as the model's tokenizer does */
    int64_t alone;  /* replaces a context without text */
    int64_t bos;
} bp_candidates_prefix;

/** Read `path`, JSON Lines: line d has the "choices", texts, of document d of the plan's corpora,
 * one corpus after another, and may have "answer", the number of the right one from 0.
 *
 * A choice follows its document's text directly. As in lm-evaluation-harness, white space at the
 * end of the document moves to the choice, and both are encoded together. If the document by itself
 * has n tokens, the choice's are those after the first n; if none is left, the choice is encoded by
 * itself. Text that is too long for the context loses its beginning.
 *
 * Owns:       clear it with bp_candidates_clear, after an error too.
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT, with file and line: not an object, no
 *             list of choices, a choice that is not text, an answer that is not one of them, more
 *             or fewer lines than documents; those of bp_corpus_file_read. */
bp_err bp_candidates_read(bp_candidates *candidates, const char *path, const bp_score_plan *plan,
                          const bp_tokenizer *tokenizer, const bp_candidates_prefix *prefix);
/** Append a row to the current document: the ids from `first` to the end, the first `fed` of them
 * not scored, for a choice of that many bytes. Its number of scored tokens is 0 if there are none
 * or more than `context`; ids that do not fit lose their beginning.
 */
void bp_candidates_add(bp_candidates *candidates, const bp_candidate_row *row, int64_t fed,
                       int64_t context);
/** Do two rows have the same tokens before the scored ones? */
bool bp_candidates_same_context(const bp_candidates *candidates, const bp_candidate_row *one,
                                const bp_candidate_row *other);
/** SHA-256 of the rows and answers, in 64 digits. */
void bp_candidates_hash(const bp_candidates *candidates, char out[BP_SHA256_HEX]);
void bp_candidates_clear(bp_candidates *candidates);

/** Index of the choice with the largest value, the first of equal ones; -1 if all are NaN. values:
 * [rows]. */
int64_t bp_candidates_best(const bp_candidates *candidates, const double *values, int64_t document);

/** accuracy, accuracy_per_token, accuracy_per_byte: the share of documents with an answer whose
 * best choice is the answer. The best choice is by summed log-probability, by that per token, or by
 * that per byte. Each is {"value", "low", "high"} with the 95 % interval of a share, from
 * BP_FEW_DOCUMENTS documents on, or clusters of them (cluster[documents], NULL: none), by resamples
 * then; where the answer is one of several equal ones that are best,
 * "ties" too, their number, and "shared", the value if each were chosen equally often. logprobs:
 * [rows]; NaN if there is none. A document without any is not counted. New reference. */
json_t *bp_candidates_summary(const bp_candidates *candidates, const double *logprobs,
                              const int64_t *cluster, uint64_t seed);
