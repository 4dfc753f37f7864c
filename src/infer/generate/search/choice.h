/* The next token of a sequence, chosen from a row of a model's scores. Local: no MPI.
 *
 * A row is changed in this order: repetition, presence and frequency penalty, no-repeat n-grams
 * and tokens that are forced (bp_choice_penalise); temperature, top-k, top-p
 * (bp_choice_candidates); then one of the tokens that are left is drawn. */
#pragma once

#include "text/tokenizer/forced.h"

typedef struct bp_choice_rule {
    int64_t vocab_size;        /* V */
    bool samples;              /* draw; false: the best token (also if temperature is 0) */
    double temperature;        /* > 0 if it draws */
    int64_t top_k;             /* 0: all */
    double top_p;              /* 1: all */
    double repetition_penalty; /* 1: none */
    double presence_penalty;   /* 0: none */
    double frequency_penalty;  /* 0: none */
    int64_t no_repeat_ngram;   /* n; 0: none */
    uint64_t seed;
    const bp_forced *forced; /* borrowed; NULL if no token is forced */
} bp_choice_rule;

/** A sequence so far: a prompt and the tokens after it. */
typedef struct bp_sequence {
    const int32_t *tokens; /* [count] */
    int64_t prompt, count; /* the first `prompt` of them are the prompt's */
    int64_t most;          /* maximum, with the prompt's; 0: no limit */
} bp_sequence;

/** A token that may be drawn; probabilities of a set add up to 1. */
typedef struct bp_candidate {
    double score; /* less the best one's, over the temperature */
    double probability;
    int32_t token;
} bp_candidate;

/** Memory of one thread that chooses. */
typedef struct bp_choice {
    const bp_choice_rule *rule; /* borrowed */
    double *scores;             /* [V] */
    int32_t *seen;              /* [V] all 0 between calls */
    bp_candidate *candidates;   /* [V] */
    int64_t count;              /* of candidates */
} bp_choice;

void bp_choice_init(bp_choice *choice, const bp_choice_rule *rule);
void bp_choice_clear(bp_choice *choice);
/** Bytes that it takes. */
int64_t bp_choice_bytes(int64_t vocab_size);

/** Penalties and no-repeat n-grams, in place: scores[V].
 *
 * Repetition: the score of a token of prompt or output is divided by the penalty where it is
 * positive, else multiplied. Presence and frequency: a token of the output loses the presence
 * penalty once, and the frequency penalty once per occurrence. A token that would repeat an n-gram
 * of prompt and output gets -infinity, and so does a token that is never written. If a token is
 * forced, its score becomes 0 and all others -infinity.
 * Source: Keskar et al. 2019, section 4.1 (repetition), as transformers has it; OpenAI's API
 * reference (presence, frequency); transformers' NoRepeatNGramLogitsProcessor,
 * NoBadWordsLogitsProcessor, ForcedBOSTokenLogitsProcessor, ForcedEOSTokenLogitsProcessor. */
void bp_choice_penalise(bp_choice *choice, const bp_sequence *sequence, double *scores);
/** The token that must follow; -1: any may. */
int64_t bp_choice_forced(const bp_choice_rule *rule, const bp_sequence *sequence);

/** Apply temperature, top-k and top-p to scores[V] and put the remaining tokens in
 * choice->candidates: if a token was removed, best first (the lower id first among equal scores),
 * else in the order of ids. top-k keeps the top_k best; top-p keeps the fewest best ones whose
 * probability, among those that top-k left, is top_p or more. Tokens with score -infinity are never
 * included. Source: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p). */
void bp_choice_candidates(bp_choice *choice, const double *scores);

/** Draw one of the candidates by u, uniform in [0, 1); -1: there are no candidates. */
int32_t bp_choice_draw(const bp_choice *choice, double u);

/** u of a draw: a function of seed, prompt, sample and position in the output. */
double bp_choice_uniform(uint64_t seed, int64_t prompt, int64_t sample, int64_t position);

/** Choose the token that follows `sequence` by logits[V], which are not changed; -1 if no token is
 * left. */
int32_t bp_choice_next(bp_choice *choice, const bp_sequence *sequence, const float *logits,
                       double u);
