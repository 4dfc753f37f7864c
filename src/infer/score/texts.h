/* Texts in memory, scored or probed by one process: bagpipe-data metrics. Local, on a model that
 * one rank holds whole. */
#pragma once

#include "infer/score/windows.h"
#include "models/model.h"
#include "text/tokenizer/tokenizer.h"

/** Text k is tokens [starts[k], starts[k + 1]). */
typedef struct bp_token_texts {
    int64_t count;
    const int64_t *starts; /* [count + 1] */
    const int32_t *tokens; /* ids of the model */
} bp_token_texts;

/** The rule by which `bagpipe score` reads texts for the model if no key is set. `tokenizer` (NULL:
 * only ids are known) has the special tokens that the model needs. Errors: BP_ERR_CONFIG a model of
 * another kind of text (a source and a target), or a tokenizer without them. */
bp_err bp_texts_rule(bp_score_rule *rule, const bp_model_info *model,
                     const bp_tokenizer *tokenizer);

/** nll[texts->count], in nats, of scored[texts->count] tokens of each, as in `bagpipe score`, but
 * INFINITY if a token has probability 0.
 *
 * Errors:     BP_ERR_SYSTEM memory; BP_ERR_SOFTWARE a log-probability that is not finite. */
bp_err bp_texts_score(double *nll, int64_t *scored, bp_model *model, const bp_score_rule *rule,
                      const bp_token_texts *texts);

/** Which state of a token to read. */
#define BP_TEXTS_LAST (-1) /* the last layer; for a causal model, after its last norm */

/** states[tokens of all texts][columns]: the output of layer `layer` (0: the embedding;
 * BP_TEXTS_LAST) for each token, numbered as hidden_states in Hugging Face. A causal model reads
 * the prefix first (score.prefix = auto); a masked model reads a text between its special tokens.
 * Both read a text longer than their context in disjoint windows. Columns: bp_texts_columns of that
 * layer.
 *
 * Errors:     BP_ERR_SYSTEM memory. */
bp_err bp_texts_states(float *states, bp_model *model, const bp_score_rule *rule,
                       const bp_token_texts *texts, int64_t layer);
/** Errors: BP_ERR_CONFIG a model that keeps no states, or has no such layer; BP_ERR_SYSTEM. */
bp_err bp_texts_columns(int64_t *columns, bp_model *model, const bp_score_rule *rule,
                        int64_t layer);
/** The most tokens of a text that are read in one window. */
int64_t bp_texts_window(const bp_score_rule *rule);
