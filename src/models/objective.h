/* Objectives: what a training minimises, and how its examples are made of the corpus. */
#ifndef BP_MODELS_OBJECTIVE_H
#define BP_MODELS_OBJECTIVE_H

#include "base/config/config.h"
#include "tensor/batch.h"

struct bp_model_shape;

extern const bp_option bp_mask_options[]; /* mask.* */

/** Values of bp_mask_options (docs: --help). */
typedef struct bp_mask_keys {
    double rate, keep, random, span;
    bool whole_words, next_sentence;
} bp_mask_keys;

static inline const bp_mask_keys *bp_mask_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_mask_options);
}

extern const bp_option bp_noise_options[]; /* train.objective, noise.* */
#define BP_OBJECTIVES  "causal|masked|replaced|bidirectional|seq2seq|denoise"
#define BP_NOISE_KINDS "infill,permute" /* if nothing is given */

/** Values of bp_noise_options (docs: --help). */
typedef struct bp_noise_keys {
    const char *objective, *kinds;
    double rate, span;
} bp_noise_keys;

static inline const bp_noise_keys *bp_noise_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_noise_options);
}

/** Noises, in the order in which they are applied. */
typedef enum bp_noise {
    BP_NOISE_PERMUTE,
    BP_NOISE_MASK,
    BP_NOISE_DELETE,
    BP_NOISE_INFILL,
    BP_NOISE_ROTATE,
    BP_NOISE_SENTINELS, /* not with others */
    BP_NOISES
} bp_noise;
extern const char *const bp_noise_names[BP_NOISES]; /* "permute" */
/** What surrounds the texts of a task's example. */
typedef struct bp_task_frame {
    int64_t begin, middle, end; /* tokens before, between and after texts; -1: none */
    int64_t middles;            /* so many stand between two texts */
    int64_t pad;                /* the token of places after them */
    bool once;                  /* a text that begins with `begin` itself gets no second one */
    bool one_segment;           /* the second text is of the first one's segment */
} bp_task_frame;

/** The rules of examples, besides tokens. */
typedef struct bp_example_rules {
    /* the class of a task's texts outside the domain; 0: there is none */
    int64_t outside;
    uint64_t seed;
    int64_t member;                     /* for an ensemble, or 0 */
    int64_t vocab_size, cls, sep, mask; /* ids of special tokens */
    int64_t pad;                        /* at places after an example; they count for nothing */
    int64_t start;                      /* what targets of pairs begin with */
    int64_t eod;                        /* ends documents; often sep; -1: none */
    bp_task_frame frame;                /* of tasks */
    bp_window_rule windows;             /* of questions and their contexts */
    bool pairs;          /* examples are pairs: of masked models by mask.next_sentence, of tasks
                            where each document has two texts */
    double rate;         /* this share of the tokens is masked, at least one token */
    double keep, random; /* of those, this share stays unchanged, or becomes another token */
    double span;         /* mean length of masked spans; 0: single tokens, or words */
    const int32_t *separator; /* [separator_count] of bp_objective_text. Borrowed */
    int64_t separator_count;
    bool begins;           /* of bp_objective_text: a source begins with ... */
    int32_t first;         /* ... this token */
    const bool *continues; /* [vocab_size] whole words are masked: does a token continue the word
                              before it? NULL: tokens are masked one by one. Borrowed */
    unsigned noises;       /* bit k: noise k is applied */
    double noise_rate, noise_span;
    bool has_sentences;       /* noised are runs of sentences, else windows */
    const int32_t *sentinels; /* [sentinel_count] ids, in their order. Borrowed */
    int64_t sentinel_count;
} bp_example_rules;

typedef struct bp_objective {
    const char *name;
    /** The loss: the sum over terms of weight times the mean over a term's scored targets. */
    int terms;
    double weight[BP_TERMS];
    const char *term[BP_TERMS]; /* names of losses to report beside the whole one; NULL: not */
    bool scores_all; /* no target of an example is ever -1: nothing needs to be counted */
    bool pairs;      /* examples are documents of two texts: a source and its target */
    bool noises;     /* examples are texts with noise, and the texts */
    bool masks;      /* inputs of scoring are framed, and have masks, already */
    /** The maker of examples whose longest stream has T places; rules (borrowed) NULL: only their
     * form is asked for. */
    bp_example_maker (*maker)(const struct bp_model_shape *shape, int64_t T,
                              const bp_example_rules *rules);
} bp_objective;

/** Each token given those before it. */
extern const bp_objective bp_objective_causal;

/** Masked tokens given all others: [CLS] text [SEP], of which some are replaced by the mask, some
 * by another token, and some stay. Chosen are about rate * n of n tokens: single ones, words, or
 * spans, in a random order, until there are enough; never those that begin and end texts. All is a
 * function of (seed, member, step, slot, position). Source: Devlin et al. 2019, section 3.1; Joshi
 * et al. 2020, SpanBERT, section 3.1.
 *
 * Pairs: [CLS] A [SEP] B [SEP], padded. A is the first sentences of a run that has about T - 3
 * tokens, as many as a draw says. Half of the time, and where the run is one sentence, B is of
 * another document, from any sentence of a run on (target 1); else it is the rest of the run (0).
 * Of a pair that is too long, the longer side loses tokens at its begin or end, one by one. If a
 * side is empty, there is no target. Source: Devlin et al. 2019, appendix A.2, and their
 * create_pretraining_data.py; there the rest of a run that a pair left over is used again at once,
 * here in another epoch. */
extern const bp_objective bp_objective_masked;
/** The target given the source, token by token. */
extern const bp_objective bp_objective_seq2seq;
/** The same of a causal model: source (after the token that texts begin with, where there is one),
 * separator, target and end in one stream, with targets from the target on. A source longer than
 * the context loses its last tokens; if that is not enough, the target does. */
extern const bp_objective bp_objective_text;
/** A text given the same text with noise: token by token, between start and end as of pairs. The
 * text is a run of sentences of one document, as many as fit, or, of a corpus without sentences, a
 * window of the stream. With n tokens and the rate r: permute puts sentences in another order, with
 * equal probability; mask and delete take each token with probability r; infill replaces spans by a
 * mask each, round(r n) tokens in all, whose lengths are Poisson's with mean `span`, the last one
 * cut, at places of equal probability (a span of 0 tokens inserts a mask); rotate lets the text
 * begin at any token. sentinels: round(r n) tokens in round(r n / span) spans, with equal
 * probability of all cuts; in the source a sentinel stands for each, the target is the spans, each
 * after its sentinel. All is a function of (seed, member, step, slot, position). Source: Lewis et
 * al. 2020, section 2.2; Raffel et al. 2020, section 3.3.4, and random_spans_noise_mask of their
 * program. */
extern const bp_objective bp_objective_denoise;
#define BP_DENOISE_CONTEXT 3    /* the shortest that can be noised */
#define BP_NOISE_SPAN_MOST 1000 /* tokens */
#define BP_MASKED_CONTEXT  3    /* the shortest that can be masked */
#define BP_PAIRS_CONTEXT   5    /* [CLS] A [SEP] B [SEP] */
#define BP_MASK_RATE       0.15 /* if nothing is given */

#endif
