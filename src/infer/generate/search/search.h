/* One prompt, continued by a strategy: what its slots are fed step by step, and the texts at the
 * end. Local: no MPI.
 *
 *     bp_search_new(&search, &spec, prompt, length, number);
 *     feed the prompt to slot 0
 *     while (bp_search_step(search, choice, &rows, &next))
 *         feed next.tokens to the slots with next.counts 1, each after slot next.parents
 *     for (k = 0; k < bp_search_texts(search); k++) bp_search_text_at(search, k);
 *
 * Greedy and sampled texts have a slot each, and are independent of each other. Beams are those of
 * transformers' beam_search with early_stopping=False: search_beam_step in search_priv.h. */
#ifndef BP_INFER_GENERATE_SEARCH_SEARCH_H
#define BP_INFER_GENERATE_SEARCH_SEARCH_H

#include "infer/generate/search/choice.h"
#include "infer/generate/search/stops.h"
#include "text/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_finish {
    BP_FINISH_LENGTH, /* as many tokens as were asked for, or as fit */
    BP_FINISH_EOD,    /* the end token, which is the last one */
    BP_FINISH_STOP    /* a stop text is in it */
} bp_finish;
/** "length", "eod", "stop". */
const char *bp_finish_name(bp_finish finish);

typedef struct bp_search_spec {
    bp_choice_rule choice;
    int64_t beams;         /* for a beam search; 0: greedy, or samples */
    int64_t texts;         /* that are wanted of each prompt: `samples` */
    double length_penalty; /* of a beam search */
    int64_t end;           /* the token that ends a text; -1: none */
    bp_ends ends;          /* all of them, where there are others too */
    const bp_stops *stops; /* borrowed; NULL: none */
} bp_search_spec;

/** Does the token end a text? */
static inline bool bp_search_ends(const bp_search_spec *spec, int64_t token)
{
    return token == spec->end || bp_ends_have(&spec->ends, token);
}

/** Sequences that are fed side by side for a prompt: K. */
int64_t bp_search_slots(const bp_search_spec *spec);

/** The model's output for the slots, [K] each; the entries of a slot that was not fed are not
 * read. */
typedef struct bp_search_rows {
    const float *logits;     /* [K][V] */
    const double *log_sums;  /* [K] log of the sum of exp(logits) */
    const float *statistics; /* [K][2] entropy, mutual information; NULL: not asked for */
} bp_search_rows;

/** What the slots are fed next. [K] each; borrowed until the next step. */
typedef struct bp_search_next {
    const int32_t *counts; /* 1, or 0: nothing */
    const int32_t *tokens; /* where counts is 1 */
    const int32_t *parents;
} bp_search_next;

/** A text. Borrowed from the search. */
typedef struct bp_search_text {
    const int32_t *tokens;   /* [count] new ones, the end token included */
    const double *logprobs;  /* [count] of the model as it is; 0 of a forced one */
    const float *statistics; /* [count][2]; NULL: not asked for */
    int64_t count;
    bp_finish finish;
    double score; /* for a beam: the sum of its scores / count^length_penalty */
} bp_search_text;

typedef struct bp_search bp_search;

/** A prompt of `length` tokens, which is number `number` of all, and is to get `tokens` more at
 * most (1 or more). All is copied but spec. `statistics`: each step returns them. */
void bp_search_new(bp_search **out, const bp_search_spec *spec, const int32_t *prompt,
                   int64_t length, int64_t number, int64_t tokens, bool statistics);
void bp_search_free(bp_search **search);

/** Take the model's output, and choose. False: all texts are complete, *next is undefined. */
bool bp_search_step(bp_search *search, bp_choice *choice, const bp_search_rows *rows,
                    bp_search_next *next);

/** Texts in the order of output: samples as they were numbered, beams by score, the best first; as
 * many as are wanted, or as the beams have found. */
int64_t bp_search_texts(const bp_search *search);
bp_search_text bp_search_text_at(const bp_search *search, int64_t k);

#endif
