/* What the model predicts for texts that are made of a document: some of its inputs removed, or
 * replaced. They are run in batches. Collective over settings->group, with equal arguments. */
#ifndef BP_EXPLAIN_VARIANTS_H
#define BP_EXPLAIN_VARIANTS_H

#include "explain/method.h"

#define EXPLAIN_LOG_P 1000000 /* log-probabilities of words that a batch has, or one row */

typedef struct explain_variants {
    bp_model *lm;
    const bp_explain_settings *settings;
    const bp_explained *document;
    bool best;        /* what is preferred is wanted too */
    int64_t each;     /* targets of a text */
    int64_t outcomes; /* values of a text: ln p of all classes, or of its targets; where `best`,
                         ln p(target) and the outcome that is preferred (of a regression its value,
                         and 0) */
    int64_t target;   /* the one that is explained where a text has one; else 0 */
    int64_t length;   /* places of a window */
    int64_t word_end; /* after the word at the target's place */
    int64_t capacity; /* windows of a batch */
    int64_t count;    /* windows that wait */
    int32_t *inputs, *segments, *targets; /* [capacity][length] */
    int32_t *places; /* [capacity][each] of targets; of an answer the token that it begins or ends
                        at */
    int32_t *sources, *source_lengths; /* [capacity][S], [capacity] */
    float *values;                     /* [capacity][vocab_size], or [capacity][length] */
    double *out;                       /* where the next batch's go */
    bp_err err;                        /* the first: nothing is run after it */
} explain_variants;

/** Does one pass over a text predict all targets of its document? Else each has its own. */
bool explain_variants_at_once(const bp_explain_settings *settings, const bp_explained *document);
/** Which of a text's values is of target k. */
int64_t explain_variants_column(const bp_explain_settings *settings, const bp_explained *document,
                                int64_t k);
/** Values of a text where what is preferred is not asked for. */
int64_t explain_variants_outcomes(const bp_explain_settings *settings,
                                  const bp_explained *document);
/** bp_explain_method.lacks of sets of words. */
const char *explain_variants_lacks_sets(const bp_model_info *info);
/** Does it say which class a text is of? */
bool explain_variants_classifies(const bp_model_info *info);
/** What a text is worth: the probability of classes, tags and places of answers, of words ln p, a
 * value itself. */
double explain_variants_value(const bp_explain_settings *settings, double value);

/** Texts for target k (0 where they are predicted at once, unless `best`). Owns: _end(). Errors:
 * those of memory are in ->err, agreed. */
void explain_variants_begin(explain_variants *out, bp_model *lm,
                            const bp_explain_settings *settings, const bp_explained *document,
                            int64_t k, bool best);
/** A text with those inputs whose kept[length + S] is 1; others go, or are replaced
 * (explain.removal). Where they go, the word stays whose tag is explained, and the tokens at which
 * an answer begins and ends. out[outcomes] gets natural logs of probabilities, by the time of _end.
 * Texts follow one another: each begins where the one before ended. */
void explain_variants_keep(explain_variants *self, const uint8_t *kept);
/** The document with tokens[T] in place of its own, of one with a source tokens[S] in place of
 * that. */
void explain_variants_replace(explain_variants *self, const int32_t *tokens);
/** Runs what waits. Errors: BP_ERR_STOPPED; BP_ERR_SYSTEM memory: the same on all ranks. */
bp_err explain_variants_end(explain_variants *self);

#endif
