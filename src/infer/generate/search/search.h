/* One prompt, continued by a strategy: the inputs of its slots step by step, and the texts at the
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
#pragma once

#include "infer/generate/search/choice.h"
#include "infer/generate/search/stops.h"
#include "text/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_finish {
    BP_FINISH_LENGTH, /* the requested number of tokens, or the most that fit */
    BP_FINISH_EOD,    /* the end token, which is the last one */
    BP_FINISH_STOP    /* a stop text is in it */
} bp_finish;
/** "length", "eod", "stop". */
const char *bp_finish_name(bp_finish finish);

typedef struct bp_search_spec {
    bp_choice_rule choice;
    int64_t beams;         /* of a beam search; 0: greedy, or samples */
    int64_t texts;         /* texts requested of each prompt */
    double length_penalty; /* of a beam search */
    int64_t end;           /* the token that ends a text; -1: none */
    bp_ends ends;          /* all of them, if there are several */
    const bp_stops *stops; /* borrowed; NULL: none */
} bp_search_spec;

/** Does the token end a text? */
static inline bool bp_search_ends(const bp_search_spec *spec, int64_t token)
{
    return token == spec->end || bp_ends_have(&spec->ends, token);
}

/** K: sequences fed side by side for a prompt. */
int64_t bp_search_slots(const bp_search_spec *spec);

/** The model's output for the slots, [K] each; the entries of a slot that was not fed are not
 * read. */
typedef struct bp_search_rows {
    const float *logits;     /* [K][V] */
    const double *log_sums;  /* [K] log of the sum of exp(logits) */
    const float *statistics; /* [K][2] entropy, mutual information; NULL if not requested */
} bp_search_rows;

/** The next inputs of the slots. [K] each; borrowed until the next step. */
typedef struct bp_search_next {
    const int32_t *counts; /* 1, or 0: nothing */
    const int32_t *tokens; /* where counts is 1 */
    const int32_t *parents;
} bp_search_next;

/** A text. Borrowed from the search. */
typedef struct bp_search_text {
    const int32_t *tokens;   /* [count] new ones, the end token included */
    const double *logprobs;  /* [count] by the unmodified model; 0 for a forced token */
    const float *statistics; /* [count][2]; NULL if not requested */
    int64_t count;
    bp_finish finish;
    double score; /* for a beam: the sum of its scores / count^length_penalty */
} bp_search_text;

typedef struct bp_search bp_search;

/** Begin a prompt of `length` tokens, number `number` of all, to be continued by at most `tokens`
 * tokens (1 or more). All arguments except spec are copied. `statistics`: each step returns
 * them. */
void bp_search_new(bp_search **out, const bp_search_spec *spec, const int32_t *prompt,
                   int64_t length, int64_t number, int64_t tokens, bool statistics);
void bp_search_free(bp_search **search);

/** Take the model's output, and choose. False: all texts are complete, *next is undefined. */
bool bp_search_step(bp_search *search, bp_choice *choice, const bp_search_rows *rows,
                    bp_search_next *next);

/** Texts in the order of output: samples by number, beams by score, the best first; the requested
 * number, or fewer if the beams found fewer. */
int64_t bp_search_texts(const bp_search *search);
bp_search_text bp_search_text_at(const bp_search *search, int64_t k);
