/* Objectives: what training minimises, and how its examples are made from the corpus. */
#pragma once

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
#define BP_NOISE_KINDS "infill,permute" /* defaults */

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
    BP_NOISE_SENTINELS, /* not combined with others */
    BP_NOISES
} bp_noise;
extern const char *const bp_noise_names[BP_NOISES]; /* "permute" */
/** What surrounds the texts of a task's example. */
typedef struct bp_task_frame {
    int64_t begin, middle, end; /* tokens before, between and after texts; -1: none */
    int64_t middles;            /* number of them between two texts */
    int64_t pad;                /* fills the positions after the texts */
    int64_t padding;            /* bp_task_shape.padding */
    bool once;                  /* no second `begin` before a text that already begins with it */
    bool one_segment;           /* the second text has the first one's segment */
} bp_task_frame;

/** The rules of examples. */
typedef struct bp_example_rules {
    /* the class of a task's texts outside the domain; 0 if there is none */
    int64_t outside;
    uint64_t seed;
    int64_t member;                     /* for an ensemble, or 0 */
    int64_t vocab_size, cls, sep, mask; /* ids of special tokens */
    int64_t pad;                        /* at positions after an example; they count for nothing */
    int64_t start;                      /* first token of the targets of pairs */
    int64_t eod;                        /* ends documents; often sep; -1: none */
    bp_task_frame frame;                /* of task examples */
    bp_window_rule windows;             /* for questions and their contexts */
    bool pairs;  /* examples are pairs: for masked models by mask.next_sentence, for tasks if each
                    document has two texts */
    double rate; /* share of the tokens that are masked, at least one token */
    double keep, random;      /* share of those that stay unchanged, or become another token */
    double span;              /* mean length of masked spans; 0: single tokens, or words */
    const int32_t *separator; /* [separator_count] for bp_objective_text. Borrowed */
    int64_t separator_count;
    bool begins;           /* for bp_objective_text: a source begins with ... */
    int32_t first;         /* ... this token */
    const bool *continues; /* [vocab_size] to mask whole words: does a token continue the word
                              before it? NULL: masks single tokens. Borrowed */
    unsigned noises;       /* bit k: apply noise k */
    double noise_rate, noise_span;
    bool has_sentences;       /* apply noise to runs of sentences, else to windows */
    const int32_t *sentinels; /* [sentinel_count] ids, in their order. Borrowed */
    int64_t sentinel_count;
} bp_example_rules;

typedef struct bp_objective {
    const char *name;
    /** The loss: the sum over terms of weight times the mean over a term's scored targets. */
    int terms;
    double weight[BP_TERMS];
    const char *term[BP_TERMS]; /* names of losses to report beside the total; NULL: not */
    bool scores_all;            /* no target is ever -1: targets need no counting */
    bool pairs;                 /* examples are documents of two texts: a source and its target */
    bool noises;                /* examples are texts with noise, and the texts */
    bool masks;                 /* in scoring, inputs are already framed and masked */
    /** The maker of examples whose longest stream has T positions; rules (borrowed) NULL: only for
     * the form of examples. */
    bp_example_maker (*maker)(const struct bp_model_shape *shape, int64_t T,
                              const bp_example_rules *rules);
} bp_objective;

/** Each token given those before it. */
extern const bp_objective bp_objective_causal;

/** Masked tokens given all others: [CLS] text [SEP], where some tokens become the mask, some
 * another token, and some stay. About rate * n of n tokens are chosen: single ones, words, or
 * spans, in random order, until there are enough; never those that begin and end texts. Everything
 * is a function of (seed, member, step, slot, position). Source: Devlin et al. 2019, section 3.1;
 * Joshi et al. 2020, SpanBERT, section 3.1.
 *
 * Pairs: [CLS] A [SEP] B [SEP], padded. A is the first sentences, their number random, of a run of
 * about T - 3 tokens. Half of the time, and where the run is one sentence, B is from another
 * document, starting at any sentence of a run (target 1); else it is the rest of the run (0). If a
 * pair is too long, the longer side loses tokens at its start or end, one by one. If a side is
 * empty, there is no target. Source: Devlin et al. 2019, appendix A.2, and their
 * create_pretraining_data.py; they reuse the unused rest of a run at once, this code in another
 * epoch. */
extern const bp_objective bp_objective_masked;
/** The target given the source, token by token. */
extern const bp_objective bp_objective_seq2seq;
/** The same for a causal model: source (after the token that texts begin with, where there is one),
 * separator, target and end in one stream, with targets from the target on. A source longer than
 * the context loses its last tokens; if that is not enough, the target does. */
extern const bp_objective bp_objective_text;
/** A text given the same text with noise: token by token, between start and end as for pairs. The
 * text is a run of as many sentences of one document as fit, or a window of the stream if the
 * corpus has no sentences. With n tokens and the rate r: permute puts sentences in another order,
 * with equal probability; mask and delete take each token with probability r; infill replaces each
 * of several spans by one mask, round(r n) tokens in all, at uniformly random positions. Span
 * lengths are Poisson with mean `span`, the last one cut; a span of 0 tokens inserts a mask; rotate
 * starts the text at a random token. sentinels: round(r n) tokens in round(r n / span) spans, all
 * cuts equally likely. In the source a sentinel replaces each span; the target is the spans, each
 * after its sentinel. Everything is a function of (seed, member, step, slot, position). Source:
 * Lewis et al. 2020, section 2.2; Raffel et al. 2020, section 3.3.4, and random_spans_noise_mask of
 * their program. */
extern const bp_objective bp_objective_denoise;
#define BP_DENOISE_CONTEXT 3    /* the shortest that can be noised */
#define BP_NOISE_SPAN_MOST 1000 /* tokens */
#define BP_MASKED_CONTEXT  3    /* the shortest that can be masked */
#define BP_PAIRS_CONTEXT   5    /* [CLS] A [SEP] B [SEP] */
#define BP_MASK_RATE       0.15 /* defaults */
