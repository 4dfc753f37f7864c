/* Choices: for each document the one that the model finds most probable behind it, as
 * lm-evaluation-harness scores multiple choice. */
#ifndef BP_INFER_SCORE_CANDIDATES_CANDIDATES_H
#define BP_INFER_SCORE_CANDIDATES_CANDIDATES_H

#include "base/hash.h"
#include "base/json.h"
#include "infer/score/plan.h"
#include "text/tokenizer.h"

#include <stdint.h>

/** A choice of a document: what the model is fed, and how much of that is scored. */
typedef struct bp_candidate_row {
    int64_t document;
    int64_t first, count; /* of bp_candidates.ids: context, then choice; at least 2 */
    int64_t scored;       /* of them the last `scored` are the choice's tokens */
    int64_t bytes;        /* of the choice's text */
} bp_candidate_row;

typedef struct bp_candidates {
    int64_t documents;
    int64_t *first;  /* [documents + 1] in rows */
    int64_t *answer; /* [documents]: which of its choices is right; -1: unknown */
    bp_candidate_row *rows;
    bp_ids ids;
} bp_candidates;

/** Read `path`, JSON Lines: line d has the "choices", texts, of document d of the plan's corpora,
 * one corpus after another, and may have "answer", the number of the right one from 0.
 *
 * A choice follows its document's text without anything between them. As lm-evaluation-harness does
 * it, spaces at the end of the document go to the choice, both are encoded together, and the
 * choice's tokens are those behind as many as the document alone has. What is too long for the
 * context loses its beginning.
 *
 * Owns:       clear it with bp_candidates_clear, after an error too.
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT, with file and line: no object, no list of
 *             2 choices or more, an empty choice, an answer that is none of them, more or fewer
 * lines than documents, a document without text, a choice without tokens or longer than the
 *             context; those of bp_corpus_file_read. */
bp_err bp_candidates_read(bp_candidates *candidates, const char *path, const bp_score_plan *plan,
                          const bp_tokenizer *tokenizer);
/** SHA-256 of what is scored and of the answers, in 64 digits. */
void bp_candidates_hash(const bp_candidates *candidates, char out[BP_SHA256_HEX]);
void bp_candidates_clear(bp_candidates *candidates);

/** Which choice of a document has the largest value; of equal ones the first.
 * values: [rows]. */
int64_t bp_candidates_best(const bp_candidates *candidates, const double *values, int64_t document);

/** accuracy, accuracy_per_token, accuracy_per_byte: the share of documents with an answer whose
 * best choice by summed log-probability, by that over the choice's tokens, and over its bytes is
 * the answer; each {"value", "low", "high"} with the 95 % interval of 1,000 resamples of documents.
 * logprobs: [rows]. New reference. */
json_t *bp_candidates_summary(const bp_candidates *candidates, const double *logprobs,
                              uint64_t seed);

#endif
