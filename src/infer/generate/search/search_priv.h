/* A prompt's texts while they grow. */
#pragma once

#include "infer/generate/search/search.h"

/** A sequence with the statistics of its new tokens. */
typedef struct search_line {
    int32_t *tokens;   /* [prompt + tokens] prompt, then output */
    double *logprobs;  /* [tokens] */
    float *statistics; /* [tokens][2]; NULL: none */
    int64_t count;     /* of new tokens */
    bool ended;
    bp_finish finish;
    double score; /* for a beam: the sum so far, in the end over count^length_penalty */
} search_line;

/** A beam with one more token. */
typedef struct search_continuation {
    double score; /* the sum */
    int32_t beam, token;
} search_continuation;

struct bp_search {
    const bp_search_spec *spec; /* borrowed */
    int64_t number, prompt, tokens, slots;
    int64_t steps;      /* taken */
    search_line *lines; /* [slots] samples, or the beams that continue, `live` of them */
    int64_t live;
    search_line *spare;  /* [slots] for a beam search: the beams of the next step */
    search_line *closed; /* [beams + 1] hypotheses, the best first */
    int64_t closed_count;
    search_continuation *best;       /* [search_continuations] */
    int32_t *counts, *fed, *parents; /* [slots] */
};

/** The line as it is, for the choice of its next token. */
static inline bp_sequence search_sequence(const bp_search *search, const search_line *line)
{
    return (bp_sequence){.tokens = line->tokens,
                         .prompt = search->prompt,
                         .count = search->prompt + line->count,
                         .most = search->prompt + search->tokens};
}

/** Space for a prompt and all new tokens; search_line_clear(). */
void search_line_new(search_line *line, const bp_search *search, bool statistics);
void search_line_clear(search_line *line);
void search_line_copy(search_line *to, const search_line *from, const bp_search *search);
/** Put a token after the line, with its statistics from row `row`. */
void search_line_add(search_line *line, const bp_search *search, const bp_search_rows *rows,
                     int64_t row, int32_t token);
/** Does the line end with the token that was added last? Sets ended and finish. */
void search_line_update(search_line *line, const bp_search *search);

/** How many of the best continuations are ranked: twice the beams, plus the beams once for each
 * further end token, as in transformers. */
int64_t search_continuations(const bp_search_spec *spec);

/** A step of a beam search: the best continuations of the live beams are ranked together;
 * one that ends closes a hypothesis if it is among the first `beams`, and is dropped at a lower
 * rank. The others continue until there are `beams` of them. The search is over when `beams`
 * hypotheses are closed and the step's best sum / n^penalty does not beat the worst of them, or
 * after the last step, when the live beams join the hypotheses. n counts new tokens, the end token
 * too. False: it is over.
 *
 * Penalties change log-probabilities, as in transformers; temperature, top-k and top-p do nothing.
 * Source: transformers 4.48, BeamSearchScorer and GenerationMixin._beam_search. */
bool search_beam_step(bp_search *search, bp_choice *choice, const bp_search_rows *rows);
