/* The model's predictions for texts made from a document, with some of its inputs removed or
 * replaced. The texts are run in batches. Collective over settings->group, with equal arguments. */
#pragma once

#include "explain/method.h"

#define EXPLAIN_LOG_P 1000000 /* the most log-probabilities of words of a batch, or one row */

typedef struct explain_variants {
    bp_model *model;
    const bp_explain_settings *settings;
    const bp_explained *document;
    bool best;        /* the preferred outcome is requested too */
    int64_t each;     /* targets of a text */
    int64_t outcomes; /* values of a text: ln p of all classes, or of its targets; if `best`, ln
                         p(target) and the preferred outcome (for a regression its value, and 0) */
    int64_t target;   /* the one explained, if a text has one; else 0 */
    int64_t length;   /* positions of a window */
    int64_t word_end; /* after the word at the target's place */
    int64_t capacity; /* windows of a batch */
    int64_t count;    /* pending windows */
    int32_t *inputs, *segments, *targets; /* [capacity][length] */
    int32_t *positions; /* [capacity][each] of targets; for an answer, the token at which it begins
                        or ends */
    int32_t *sources, *source_lengths; /* [capacity][S], [capacity] */
    float *values;                     /* [capacity][vocab_size], or [capacity][length] */
    double *out;                       /* destination of the next batch's results */
    bp_err err;                        /* the first error: nothing is run after it */
} explain_variants;

/** Does one pass over a text predict all targets of its document? Else each has its own pass. */
bool explain_variants_at_once(const bp_explain_settings *settings, const bp_explained *document);
/** Index of target k's value among a text's values. */
int64_t explain_variants_column(const bp_explain_settings *settings, const bp_explained *document,
                                int64_t k);
/** Number of values of a text if the preferred outcome is not requested. */
int64_t explain_variants_outcomes(const bp_explain_settings *settings,
                                  const bp_explained *document);
/** Does the model classify whole texts? */
bool explain_variants_classifies(const bp_model_info *info);
/** The value of a text: the probability of classes, tags and positions of answers; ln p of words; a
 * regression's value itself. */
double explain_variants_value(const bp_explain_settings *settings, double value);

/** Begin texts for target k (0 if targets are predicted at once, unless `best`). Owns: _end().
 * Errors: those of memory are in ->err, agreed. */
void explain_variants_begin(explain_variants *out, bp_model *model,
                            const bp_explain_settings *settings, const bp_explained *document,
                            int64_t k, bool best);
/** Add a text with the inputs whose kept[length + S] is 1; the others are removed or replaced
 * (explain.removal). Removal keeps the word whose tag is explained, and the tokens at which an
 * answer begins and ends. out[outcomes] gets natural logs of probabilities, at the latest in _end.
 * Texts follow one another: each begins where the one before ended. */
void explain_variants_keep(explain_variants *self, const uint8_t *kept);
/** Add the document with tokens[T] instead of its own; if it has a source, with tokens[S] instead
 * of that. */
void explain_variants_replace(explain_variants *self, const int32_t *tokens);
/** Runs the pending windows. Errors: BP_ERR_STOPPED; BP_ERR_SYSTEM memory: the same on all
 * ranks. */
bp_err explain_variants_end(explain_variants *self);
