/* Choices: for each document the one that the model finds most probable after it, as
 * lm-evaluation-harness scores multiple choice. */
#ifndef BP_INFER_SCORE_CANDIDATES_CANDIDATES_H
#define BP_INFER_SCORE_CANDIDATES_CANDIDATES_H

#include "base/config/json.h"
#include "base/files/hash.h"
#include "infer/score/plan.h"
#include "text/tokenizer/tokenizer.h"

#include <stdint.h>

/** A choice of a document: what the model is fed, and how much of that is scored. */
typedef struct bp_candidate_row {
    int64_t document;
    int64_t first, count; /* of bp_candidates.ids: context, then choice; at least 2, or 0 */
    int64_t scored;       /* of them the last `scored` are the choice's tokens; 0: it has no
                             log-probability, being empty or longer than the context */
    int64_t bytes;        /* of the choice's text */
} bp_candidate_row;

typedef struct bp_candidates {
    int64_t documents;
    int64_t *first;   /* [documents + 1] in rows */
    int64_t *answer;  /* [documents]: which of its choices is right; -1: unknown */
    int64_t unscored; /* rows without a log-probability */
    bp_candidate_row *rows;
    bool *quiet; /* [documents]: nobody asks what the model would write there; NULL: of none */
    bp_ids ids;
    int64_t count, capacity; /* of rows */
} bp_candidates;

/** Tokens that come before a context; -1: none. A document that begins with `bos` or `before` keeps
 * its own. */
typedef struct bp_candidates_prefix {
    int64_t before; /* a context with text: what the model's tokenizer puts there */
    int64_t alone;  /* takes the place of a context without text */
    int64_t bos;
} bp_candidates_prefix;

/** Read `path`, JSON Lines: line d has the "choices", texts, of document d of the plan's corpora,
 * one corpus after another, and may have "answer", the number of the right one from 0.
 *
 * A choice follows its document's text without anything between them. As lm-evaluation-harness does
 * it, white space at the end of the document goes to the choice, both are encoded together, and the
 * choice's tokens are those that follow as many as the document by itself has; where none is left,
 * the choice is encoded by itself. What is too long for the context loses its beginning.
 *
 * Owns:       clear it with bp_candidates_clear, after an error too.
 * Errors:     BP_ERR_INPUT, BP_ERR_DENIED; BP_ERR_FORMAT, with file and line: no object, no list of
 *             choices, a choice that is not text, an answer that is not one of them, more or fewer
 *             lines than documents; those of bp_corpus_file_read. */
bp_err bp_candidates_read(bp_candidates *candidates, const char *path, const bp_score_plan *plan,
                          const bp_tokenizer *tokenizer, const bp_candidates_prefix *prefix);
/** Append a row with the ids from `first` to the end, of which the first `fed` are not scored: of a
 * document whose rows are appended now, with a choice of that many bytes. Its number of scored
 * tokens is 0 where it has none, or more than `context`; ids that do not fit lose their beginning.
 */
void bp_candidates_add(bp_candidates *candidates, const bp_candidate_row *row, int64_t fed,
                       int64_t context);
/** Are the same tokens fed before what is scored of two rows? */
bool bp_candidates_same_context(const bp_candidates *candidates, const bp_candidate_row *one,
                                const bp_candidate_row *other);
/** SHA-256 of what is scored and of the answers, in 64 digits. */
void bp_candidates_hash(const bp_candidates *candidates, char out[BP_SHA256_HEX]);
void bp_candidates_clear(bp_candidates *candidates);

/** Which choice of a document has the largest value; the first of equal ones; -1: all are NaN.
 * values: [rows]. */
int64_t bp_candidates_best(const bp_candidates *candidates, const double *values, int64_t document);

/** accuracy, accuracy_per_token, accuracy_per_byte: the share of documents with an answer whose
 * best choice by summed log-probability, by that over the choice's tokens, and over its bytes is
 * the answer; each {"value", "low", "high"} with the 95 % interval of a share, from
 * BP_FEW_DOCUMENTS documents on. logprobs: [rows]; NaN: none. A document whose choices have none
 * counts in none of them. New
 * reference. */
json_t *bp_candidates_summary(const bp_candidates *candidates, const double *logprobs);

#endif
