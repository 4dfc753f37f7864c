/* Which tokens of a document are fed together and which are scored: the conventions of
 * docs/scoring.md. Local: no MPI. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_score_convention {
    BP_SCORE_ROLLING,  /* lm-evaluation-harness's get_rolling_token_windows */
    BP_SCORE_STRIDE,   /* Hugging Face's recipe for models of fixed length */
    BP_SCORE_HALF,     /* llama.cpp's perplexity tool */
    BP_SCORE_PLL,      /* for masked models: each token masked in turn */
    BP_SCORE_PLL_WORD, /* the same, with the tokens after it in its word masked too */
    BP_SCORE_PAIRS     /* for encoder-decoders: a target given its source */
} bp_score_convention;

/** A document of n text tokens is the line z: the token `lead` if `prefix` (of pairs the start
 * token), its n tokens, the end-of-document token if `end`. The text of a pair is its target. All
 * positions below are in z; z[0] is never scored. If a document begins with `lead`, with
 * `prefix` or without, that token is not text: it is z[0], and gets no other before it. If
 * `prefix`, the same is true of its corpus's --bos token, which `lead` replaces.
 */
typedef struct bp_score_rule {
    bp_score_convention convention;
    int64_t context; /* C: most inputs of a window; BP_MODEL_UNLIMITED: a document is one window */
    int64_t stride;  /* S */
    bool prefix, end;
    int64_t eod;   /* the end-of-document token; -1 if there is none, then end is false */
    int64_t piece; /* a longer window is computed in pieces of this many inputs; 0: whole */
    int64_t cls, sep, mask; /* special tokens of masked models */
    int64_t start;          /* for pairs: the token that replaces the preceding one */
    bool cut; /* for pairs: a pair longer than the context loses its end; else it has no window */
    int64_t lead; /* the beginning-of-text or the end-of-document token; -1 if there is none, then
                     prefix and every are false */
    bool every;   /* `lead` replaces the first input of every window */
} bp_score_rule;

/** A window feeds z[first .. first+inputs) and scores the last `scored` of the targets z[first+1 ..
 * first+inputs+1). One that scores nothing need not be computed.
 *
 * For a masked model it feeds z[first .. first+inputs-2) between two special tokens, and scores the
 * token at place `masked` of these inputs (from 1: the first of the text), which is masked. */
typedef struct bp_score_window {
    int64_t first, inputs, scored;
    int64_t masked; /* 0: not a masked model */
} bp_score_window;

/** Does the convention mask the tokens that it scores? */
static inline bool bp_score_masks(bp_score_convention convention)
{
    return convention == BP_SCORE_PLL || convention == BP_SCORE_PLL_WORD;
}

/** The input at the place of the first scored target; the others follow. */
static inline int64_t bp_score_window_target(const bp_score_window *window)
{
    return window->masked > 0 ? window->masked : window->inputs - window->scored;
}

/** The place in z of the first scored target. */
static inline int64_t bp_score_window_place(const bp_score_window *window)
{
    return window->first + bp_score_window_target(window) + (window->masked > 0 ? -1 : 1);
}

/** The most inputs of a window computed at once. */
static inline int64_t bp_score_piece_inputs(const bp_score_rule *rule)
{
    return rule->piece > 0 ? rule->piece : rule->context;
}

/** Length of z for a document of n text tokens. */
int64_t bp_score_line(const bp_score_rule *rule, int64_t text_tokens);
/** Number of windows over a line; never decreases as the line grows, except for a pair. */
int64_t bp_score_window_count(const bp_score_rule *rule, int64_t line);
/** Window w of [0, count). Windows score ascending positions, each place at most once.
 *
 * Source:     rolling: EleutherAI/lm-evaluation-harness, lm_eval/utils.py,
 *             get_rolling_token_windows with max_seq_len = C, context_len = C-S+1
 *             (make_disjoint_window then cuts the same inputs in two); stride: Hugging Face
 *             transformers, docs/source/en/perplexity.md; half: ggml-org/llama.cpp,
 *             tools/perplexity/perplexity.cpp, first = n_ctx / 2; pll: Salazar et al. 2020, "Masked
 *             Language Model Scoring", section 2.2; pll_word: Kauf and Ivanova 2023, "A Better Way
 *             to Do Masked Language Model Scoring"; both in disjoint windows of C - 2 tokens. */
bp_score_window bp_score_window_at(const bp_score_rule *rule, int64_t line, int64_t w);
