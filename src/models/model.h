/* The interface of all language models. Scoring, uncertainty and reports never ask which kind it
 * is. */
#pragma once

#include "base/config/config.h"
#include "base/config/json.h"
#include "base/files/hash.h"
#include "mesh/mesh.h"
#include "models/task/task_shape.h"
#include "text/tokenizer/forced.h"
#include "text/tokenizer/tokenizer.h"
#include <stdint.h>

typedef struct bp_model bp_model;
struct bp_probe; /* nn/core/block.h */

/** Statistics of each token, in nats. A plain model returns only BP_MODEL_LOGPROB; one with
 * neighbours (infer/neighbours/neighbours.h) BP_MODEL_ALONE too, its probability without them; an
 * ensemble (infer/ensemble/ensemble.h) all of these and, from BP_MODEL_MEMBER on, each member's
 * log-probability. p is the mixture, the mean of the members' distributions p_m over the whole
 * vocabulary; a model that finds spans has distributions over the positions of a window, for the
 * start or the end of a span, and the target is a place. For a regression, log p is a value, the
 * mean of the members', with their variance and each member's; the other statistics are NaN. */
typedef enum bp_model_statistic {
    BP_MODEL_LOGPROB = 0, /* log p(target) */
    BP_MODEL_ALONE = 1,
    BP_MODEL_BOUNDARY = 1,       /* log of the probability that the next token begins a word */
    BP_MODEL_TOTAL_ENTROPY = 1,  /* H[p], as expected entropy + mutual information */
    BP_MODEL_EXPECTED_ENTROPY,   /* mean_m H[p_m] */
    BP_MODEL_MUTUAL_INFORMATION, /* mean_m KL(p_m || p) */
    BP_MODEL_LOGPROB_VARIANCE,   /* of log p_m(target) over members, divided by M */
    BP_MODEL_AGREEMENT,          /* share of members whose top token is the mixture's */
    BP_MODEL_CONFIDENCE,         /* max p */
    BP_MODEL_CORRECT,            /* 1 where the mixture's top token is the target, else 0 */
    BP_MODEL_BRIER,              /* sum_v (p_v - [v = target])^2 */
    BP_MODEL_MEMBER,             /* log p_0(target), and so on */
    /* Where info.sets, before the members: the target's rank among all outcomes by p, from 1 on,
       and sizes of conformal sets (statistics/conformal.h): all of lac's; for aps and raps the
       whole part, and `next` */
    BP_MODEL_SET_RANK = BP_MODEL_MEMBER,
    BP_MODEL_SET_LAC,
    BP_MODEL_SET_APS,
    BP_MODEL_SET_APS_NEXT,
    BP_MODEL_SET_RAPS,
    BP_MODEL_SET_RAPS_NEXT,
    BP_MODEL_SET_END,
    /* Where info.tempered, after those of sets, or in their place (bp_model_first_tempered): of the
       mixture's distribution at another temperature, p^b / sum_v p_v^b */
    BP_MODEL_TEMPERED_LOGPROB = BP_MODEL_SET_END,
    BP_MODEL_TEMPERED_CONFIDENCE,
    BP_MODEL_TEMPERED_BRIER,
    BP_MODEL_TEMPERED_END
} bp_model_statistic;
/** The name of a statistic before the members' in files: "logprob", "total_entropy"... */
const char *bp_model_statistic_name(int64_t statistic);

/** Statistics of an ensemble of tasks with a softmax, after those of the members; means over
 * members. Those of a model are a set of bits: 1 << extra (bp_model_info.extras). */
typedef enum bp_model_extra {
    BP_EXTRA_SPREAD,     /* of one prior network: the Dirichlet's differential entropy
                            (statistics/dirichlet.h) */
    BP_EXTRA_NORMALISER, /* log sum_v exp(logit_v), with the logits that the softmax reads */
    BP_EXTRA_VARIANCE,   /* of a Gaussian process: of a logit, the mean over classes */
    BP_EXTRA_DISTANCE, /* of the state from the training states (bp_member_sampler_ops.distance) */
    BP_MODEL_EXTRAS
} bp_model_extra;
/** Their names in files: "differential_entropy", ... */
const char *bp_model_extra_name(bp_model_extra extra);

/** The context of a model whose windows may have any number of inputs: they may also be handed over
 * in pieces, one batch after another (bp_model_batch.resumes). */
#define BP_MODEL_UNLIMITED (INT64_MAX / 4)

/** Where info.may_be_zero: a natural logarithm below this means probability 0. */
#define BP_MODEL_ZERO (-200)

/** The states of a token that layers keep: the number of layers, and the columns of each. */
typedef struct bp_state_form {
    int64_t layers, columns; /* 0: the model keeps no states */
    bool keys;               /* one layer, of bp_model_ops.keys and not of `states` */
} bp_state_form;

/** A text whose states are requested. */
typedef struct bp_model_text {
    const int32_t *tokens; /* [count] */
    int64_t count;
    int32_t eod; /* the end-of-document token, before the text and after it */
} bp_model_text;

typedef struct bp_model_info {
    const char *kind;   /* "gpt", "ensemble" */
    int64_t members;    /* of an ensemble; 0: a plain model */
    int64_t statistics; /* 1, one more with neighbours, `boundaries` and `entropy`; or
                           bp_model_first_member + members, one more for each of `extras` */
    unsigned extras;    /* an ensemble's bp_model_extra */
    bool sets;          /* an ensemble's: has statistics of conformal sets */
    bool tempered;      /* an ensemble's: has statistics at another temperature */
    bool boundaries;    /* its second statistic is BP_MODEL_BOUNDARY (infer/score/boundaries.h) */
    bool entropy;       /* its last statistic is the entropy of its distribution (there too) */
    int64_t width;      /* of the state before the vocabulary (bp_model_ops.backbone) */
    int64_t vocab_first, vocab_count; /* this rank's part of the vocabulary (bp_model_ops.logits) */
    int64_t context;                  /* most inputs a window may have, or BP_MODEL_UNLIMITED */
    int64_t order; /* each token is predicted from the order - 1 before it; 0: from all inputs */
    int64_t trained_context; /* the inputs of training, where `context` exceeds them and there is a
                                table of learned positions; else 0 */
    int64_t vocab_size;      /* outcomes; of a language model its words */
    int64_t words;           /* of its inputs */
    int64_t heads; /* query heads of each layer with attention; 0: no attention, or the decoder's
                      number is not the encoder's */
    int first_layer, layers; /* of a network: block first_layer is its first layer; the one before
                                it embeds. In an encoder-decoder they are the decoder's, whose
                                embedded words are the output of the blocks before, */
    int first_source_layer, source_layers; /* and these the encoder's; else 0 */
    int64_t layer_width; /* columns of each layer's output, and of the first one's input; 0: widths
                            differ */
    bp_task_shape task;  /* whose outcomes they are; kind 0: a language model. For a kind of whole
                            texts, a target may be at any place of its text, and the state there is
                            that of the whole text; see bp_model_batch.targets */
    char labels_hash[BP_SHA256_HEX]; /* of the names of classes; "": none */
    bool frames;   /* it reads a text between the tokens of the roles cls and sep */
    bool sees_all; /* an encoder: positions see those after them too */
    bool masks; /* a masked model: a target is at its own place, and inputs after a window's end are
                   -1 */
    bool log_probabilities; /* `logits` are natural logs of probabilities, not the logits of one
                               linear map; the call is collective over mesh->tensor then */
    bool capped_logits;     /* `logits` are capped: they are not a linear map */
    bool may_be_zero;       /* probabilities may be 0: their logarithm is below BP_MODEL_ZERO */
    int64_t eod_id;         /* end-of-document token; -1: none */
    bool has_bos, has_first;
    int64_t bos_id;   /* if has_bos: the beginning-of-text token */
    int64_t first_id; /* if has_first: the token that its tokenizer puts before a text */
    bp_ends ends;     /* tokens that end generated text: eod_id first, if there is one */
    bp_forced forced; /* tokens that its files force or forbid in generated text */
    int64_t step;     /* of the checkpoint */
    char tokenizer_hash[BP_SHA256_HEX]; /* "": unknown */
    char digest[65];                    /* of the weights, independent of how they are split */
    bp_state_form states;               /* of bp_model_ops.states, or of keys */
    int64_t vector_width;               /* of a word vector; 0: its inputs have no vectors */
    int64_t keys; /* of each layer's MLP: coefficients per place (bp_model_ops.coefficients); 0 if a
                     layer has no MLP or has experts, if layers differ, or with an adapter */
    bool gated;   /* coefficients have either sign: the MLP is gated */
    bool reads_source;       /* it continues a target given a source (bp_model_decode_sources), */
    int64_t start_token;     /* which begins with this */
    bool tags_follow;        /* bp_source_form.tags_follow */
    int64_t source_capacity; /* longest source of later decodings: the context, unless it is
                            set to less */
} bp_model_info;

/** Of an ensemble: the place of BP_MODEL_TEMPERED_LOGPROB, if info.tempered. */
static inline int64_t bp_model_first_tempered(const bp_model_info *info)
{
    return info->sets ? BP_MODEL_SET_END : BP_MODEL_MEMBER;
}

/** Of an ensemble: the statistic of member 0. */
static inline int64_t bp_model_first_member(const bp_model_info *info)
{
    return bp_model_first_tempered(info) +
           (info->tempered ? BP_MODEL_TEMPERED_END - BP_MODEL_TEMPERED_LOGPROB : 0);
}

/** The beginning-of-text token; -1: none. */
static inline int64_t bp_model_bos(const bp_model_info *info)
{
    return info->has_bos ? info->bos_id : -1;
}

/** The token that its tokenizer puts before a text; -1 if there is none. */
static inline int64_t bp_model_first(const bp_model_info *info)
{
    return info->has_first ? info->first_id : -1;
}

/** How many of `extras` there are before `extra`; BP_MODEL_EXTRAS: all. */
static inline int64_t bp_model_extras_before(unsigned extras, int extra)
{
    int64_t count = 0;

    for (int e = 0; e < extra; e++)
        count += (extras >> e) & 1;
    return count;
}

/** Is it an ensemble of one prior network? Its mutual information is between the outcome and the
 * probabilities. */
static inline bool bp_model_is_prior(const bp_model_info *info)
{
    return info->members == 1 && info->task.precision > 0;
}

/** Windows of one length; shorter ones are padded on the right by the caller, with targets -1
 * there. For a model without a limit they may be pieces of longer windows: a piece continues the
 * piece at the same place before it, which was full. */
typedef struct bp_model_batch {
    int64_t windows, length;
    const int32_t *inputs;   /* [windows][length] */
    const int32_t *targets;  /* [windows][length]; -1: not scored. For spans, the first is the place
                                where the window's span begins, the second where it ends */
    const int32_t *segments; /* [windows][length] of a task's texts, where inputs after a text's end
                                are -1 */
    int64_t
        first_slot; /* index of window 0 among all windows scored: a key of dropout at test time */
    int64_t first_window; /* index of window 0, where a batch comes in parts */
    bool resumes;  /* all windows continue those of the batch before, which had at least as many */
    bool suspends; /* the next batch resumes: the model keeps its state */
    /* For a model that reads a source (info.reads_source), the window's: */
    int64_t source_length;
    const int32_t *sources;        /* [windows][source_length] */
    const int32_t *source_lengths; /* [windows], 1 at least: the rest is padding */
    /* Word vectors that replace those of inputs and sources, [windows][length] [info.vector_width]
     * and [windows][source_length][info.vector_width]; NULL: their own. For a model with
     * `differentiate` */
    const float *vectors, *source_vectors;
    int64_t alike; /* for `differentiate`: window w has the inputs and vectors of window w % alike,
                      and differs only in its targets: one forward pass over the first `alike` may
                      serve all. 0: each has its own inputs */
} bp_model_batch;

/** Positions that have a target. */
int64_t bp_model_batch_rows(const bp_model_batch *batch);
/** Windows [first, first + count) of a batch. */
bp_model_batch bp_model_batch_part(const bp_model_batch *batch, int64_t first, int64_t count);

/** A model that continues sequences token by token, made by its `decode_new`. Its own struct begins
 * with this head. */
typedef struct bp_decoding {
    bp_model *model; /* borrowed */
    int groups;
    int64_t slots, capacity;
} bp_decoding;

/** The next tokens for each slot of a group. Equal on all ranks of mesh->model (mesh->replica for
 * an ensemble). */
typedef struct bp_decode_step {
    int64_t slots;          /* slots [0, slots) take part: at most those of decode_new */
    const int32_t *counts;  /* [slots] number of tokens for each: a prompt's at first, then 1, or 0.
                               A slot's total stays within `capacity` */
    const int32_t *tokens;  /* [sum of counts]: those of slot 0, then of slot 1, ... */
    const int32_t *parents; /* [slots] slot s continues the sequence that slot parents[s] had before
                               this step (beams: an index table changes, no cache is copied), also
                               where its count is 0; NULL: each continues its own */
} bp_decode_step;

/** The sources of a group's sequences: sequence s has source s / slots_each. */
typedef struct bp_decode_sources {
    int64_t count, slots_each;
    const int64_t *starts; /* [count + 1] in tokens */
    const int32_t *tokens;
} bp_decode_sources;

/** Statistics of a next token's distribution (bp_model_ops.decode), in nats. */
typedef enum bp_decode_statistic {
    BP_DECODE_ENTROPY = 0,        /* of the model's, or the mixture's (total), distribution */
    BP_DECODE_MUTUAL_INFORMATION, /* of an ensemble's members; 0 for a plain model */
    BP_DECODE_STATISTICS
} bp_decode_statistic;

/** No dropout in bp_model_ops.backbone. */
#define BP_MODEL_NO_DROPOUT (-1)

typedef struct bp_model_ops {
    /** values[statistics][windows][length]: BP_MODEL_LOGPROB is the natural log of each target's
     * probability given the inputs up to its place; NaN in all statistics where the target is -1.
     * Collective over mesh->replica (mesh->model where there is one member), with equal arguments
     * on all its ranks; the result is valid on all. batch->length and batch->source_length are at
     * most info.context (BP_ASSERT). Errors: BP_ERR_SYSTEM memory, the same on all ranks. */
    bp_err (*score)(bp_model *model, const bp_model_batch *batch, float *values);

    /** The full distributions of rows, in one pass: log_p[rows][bp_model_columns] of each place
     * that has a target, in their order: natural logs of the probabilities of all outcomes, a
     * regression's value. `values`: as in `score`; NULL if not needed. pass: as in `backbone`, for
     * a model that is not an ensemble. A NULL function: not available (n-grams, neighbours). Not
     * for a language model with several softmaxes or entmax (BP_ASSERT). Otherwise as `score`. */
    bp_err (*distribution)(bp_model *model, const bp_model_batch *batch, int64_t pass, float *log_p,
                           float *values);

    /* The parts that an ensemble, the Laplace approximation and explanations combine themselves;
     * NULL for a model that does not support it (an ensemble). Collective over mesh->model unless
     * said otherwise. */

    /** hidden[windows * length][width]: the input of the last linear map, valid on the ranks of the
     * last pipeline stage. pass: BP_MODEL_NO_DROPOUT, or the number of a pass with dropout at the
     * rate of `set_dropout`, whose masks are a function of (seed, pass, layer, slot, place). A head
     * of values or spans has no such rows: the layers run (a probe sees them), and hidden stays as
     * it is. */
    bp_err (*backbone)(bp_model *model, const bp_model_batch *batch, int64_t pass, float *hidden);
    /** Rate and seed of later passes with dropout; equal on all ranks of mesh->model. Local. */
    void (*set_dropout)(bp_model *model, float rate, uint64_t seed);
    /** Later batches of `score` and `backbone` go through the probe (nn/core/block.h), the head
     * only in `score`; NULL: no probe. Borrowed. Local. */
    void (*set_probe)(bp_model *model, struct bp_probe *probe);
    /** logits[rows][vocab_count]: this rank's part of the vocabulary, on the last pipeline stage.
     * head 0 is the model's own, others were added. Row r does not depend on the other rows. No
     * MPI, except with info.log_probabilities. */
    void (*logits)(bp_model *model, int64_t head, const float *hidden, int64_t rows, float *logits);
    /** Another matrix [vocab_count][width] for `logits`, copied; *head is its number, 1, 2... On
     * ranks of other stages weights is NULL. Errors: BP_ERR_SYSTEM. Local. */
    bp_err (*add_head)(bp_model *model, const float *weights, int64_t *head);
    /** The model's own matrix [vocab_count][width]; borrowed; NULL on ranks of other stages, and
     * where the model was not opened with it (bp_model_open_with_head). */
    const float *(*head_weights)(const bp_model *model);
    /** states[layers][count][columns] of a whole text, sized by info.states; NULL where
     * info.states.layers is 0. Valid on all ranks of mesh->model. Errors: BP_ERR_SYSTEM memory, the
     * same on all ranks. */
    bp_err (*states)(bp_model *model, const bp_model_text *text, float *states);
    /** As `score`, and keys[windows * length][info.states.columns] of every place, with or without
     * a target: the input of the last Transformer layer's MLP, after its norm. NULL where
     * info.states.layers is 0. Valid on all ranks of mesh->model. Source: Khandelwal et al. 2020,
     * "Generalization through Memorization: Nearest Neighbor Language Models", section 5. */
    bp_err (*keys)(bp_model *model, const bp_model_batch *batch, float *values, float *keys);
    /** The gradients, with respect to the word vectors, of the sum of log p(target) over each
     * window's targets: gradients[windows][length][info.vector_width] and, where the model reads a
     * source, source_gradients[windows][source_length][info.vector_width]. Vectors are the rows of
     * the embedding's table, before scaling and positions; an encoder-decoder with the head of a
     * task reads each twice, and its gradient is the sum of both. For a model of
     * bp_model_open_differentiable with info.vector_width > 0, and without info.may_be_zero: entmax
     * has a loss of its own. Valid on all ranks of mesh->model. Errors: as `score`. */
    bp_err (*differentiate)(bp_model *model, const bp_model_batch *batch, float *gradients,
                            float *source_gradients);
    /** states[info.layers + 1][length][info.width] of a batch of one window: the first layer's
     * input (after the projection of a narrow embedding) and each layer's output. Each has gone
     * through the blocks between layers and vocabulary (a norm, the transform of a masked model),
     * recomputed for it: rows for `logits`. For a model with info.layer_width > 0. Valid on the
     * ranks of the last pipeline stage. Errors: as `score`. */
    bp_err (*layers)(bp_model *model, const bp_model_batch *batch, float *states);
    /** coefficients[info.layers][length][info.keys] of a batch of one window: each layer's MLP
     * multiplies its values by them. Valid on all ranks of mesh->model. Errors: as `score`. For a
     * model of bp_model_open_differentiable with info.keys > 0, as `values`. Source: Geva et al.
     * 2021, "Transformer Feed-Forward Layers Are Key-Value Memories". */
    bp_err (*coefficients)(bp_model *model, const bp_model_batch *batch, float *coefficients);
    /** rows[count][info.width]: values `first` and those after it of a layer, from 0 on: columns of
     * its MLP's second matrix; scratch is as large. Valid on all ranks of mesh->model. */
    void (*values)(bp_model *model, int64_t layer, int64_t first, int64_t count, float *rows,
                   float *scratch);
    /** rows[count][info.vector_width]: the word vectors of tokens, of sources or of inputs; scratch
     * is as large. Valid on all ranks of mesh->model. */
    void (*look_up)(bp_model *model, bool of_source, const int32_t *tokens, int64_t count,
                    float *rows, float *scratch);
    void (*free)(bp_model *model);

    /* Decoding; NULL for a model that can't decode. Called through bp_model_decode_new and the
     * functions after it, where they are documented. */
    bp_err (*decode_new)(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                         int64_t capacity);
    void (*decode_reset)(bp_decoding *decoding, int group);
    void (*decode)(bp_decoding *decoding, int group, const bp_decode_step *step, float *logits,
                   float *statistics);
    void (*decode_free)(bp_decoding *decoding);
    void (*decode_sources)(bp_decoding *decoding, int group, const bp_decode_sources *sources);
    /* The parts that an ensemble combines: a step up to hidden[slots with tokens][width], the input
     * of the last linear map, valid on the last pipeline stage; and logits of such rows, as
     * `logits` returns them. */
    void (*decode_states)(bp_decoding *decoding, int group, const bp_decode_step *step,
                          float *hidden);
    void (*decode_logits)(bp_decoding *decoding, int64_t head, const float *hidden, int64_t rows,
                          float *logits);
    int64_t (*decode_bytes)(const bp_model *model, int groups, int64_t slots, int64_t capacity);
} bp_model_ops;

/** The head of every language model; a model's own struct begins with it. */
struct bp_model {
    const bp_model_ops *ops;
    bp_model_info info;
};

/** The work of a rank in scoring, or in decoding, of a job that may not have begun. */
typedef struct bp_model_task {
    const bp_mesh_shape *mesh;
    int stage;
    int64_t windows, length; /* of a batch; 0: no scoring */
    int groups;              /* of bp_model_decode_new; 0: no decoding */
    int64_t slots, capacity;
    const char *vectors; /* as bp_model_open_vectors; NULL: none */
    bool differentiates; /* as bp_model_open_differentiable; windows > 0 */
} bp_model_task;

/** The memory for that, in bytes: weights with their copies, work on a batch, and what
 * bp_model_decode_new takes. */
typedef struct bp_model_memory {
    int64_t weights_bytes, work_bytes, decode_bytes;
    int64_t node_bytes;                 /* that all ranks of a node share: a file that is mapped */
    int64_t vocab_size, width, context; /* of the model */
} bp_model_memory;

/** Local, after all decodings of it are freed. NULL in *model is accepted. */
void bp_model_free(bp_model **model);

/** The statistics of a batch, as bp_model_ops.score says. Rows do not depend on each other, nor on
 * the rest of the batch.
 *
 * Collective: over mesh->replica; the batch is equal on all its ranks.
 * Shapes:     values[info.statistics][windows][length], valid on all ranks.
 * Errors:     BP_ERR_SYSTEM memory: the same on all ranks of mesh->replica. */
bp_err bp_model_score(bp_model *model, const bp_model_batch *batch, float *values);

/** Outcomes of a row in windows of `length` positions: for spans, each place is one. */
int64_t bp_model_columns(const bp_model_info *info, int64_t length);
/** As bp_model_ops.distribution, without dropout. */
bp_err bp_model_distribution(bp_model *model, const bp_model_batch *batch, float *log_p,
                             float *values);

/** Allocate for `groups` groups of `slots` sequences each, which may grow to `capacity` positions:
 * this rank's caches of keys and values, and the workspace of a step. A step allocates nothing.
 *
 * Collective: over mesh->model (mesh->replica for an ensemble), with equal arguments.
 * Owns:       *out is the caller's, bp_model_decode_free() before bp_model_free(); model is
 * borrowed. Errors:     BP_ERR_CONFIG a model that can't decode (passes with dropout), or a
 * capacity beyond its context; BP_ERR_SYSTEM memory: the same on all ranks, *out NULL. */
bp_err bp_model_decode_new(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                           int64_t capacity);
/** Local. NULL in *decoding is accepted. */
void bp_model_decode_free(bp_decoding **decoding);

/** Clear a group's sequences: new prompts may begin. Local. */
void bp_model_decode_reset(bp_decoding *decoding, int group);

/** For a model that reads a source (info.reads_source): read the sources of a group, before its
 * first step. The encoder runs once per source, separately, so that its bits depend on no other
 * source; blocks keep the keys and values that sequences attend to. Collective as bp_model_decode;
 * equal on all ranks. A source has 1 to info.source_capacity tokens. */
void bp_model_decode_sources(bp_decoding *decoding, int group, const bp_decode_sources *sources);

/** This rank's part of one step of a group. Stage 0 embeds the tokens, each stage receives from the
 * one before it and sends to the next. A call returns when this stage's part is done, so calls for
 * several groups keep all stages busy.
 *
 * Collective: over mesh->tensor (for an ensemble mesh->across too); ranks of all stages call it for
 *             the same groups in the same order, with equal steps.
 * Shapes:     logits[step->slots][info.vocab_count]: for the token after the last one fed, this
 *             rank's part of the outcomes; an ensemble returns the natural logs of its mixture's
 *             probabilities instead, the same on all ranks of mesh->across. statistics[step->slots]
 *             [BP_DECODE_STATISTICS], equal on all ranks of the last stage; NULL if not needed.
 *             Both are valid on ranks of the last pipeline stage, and may be NULL on others; rows
 *             of slots with count 0 stay as they are.
 *
 * Bits: in float32 a network's row depends only on its own sequence: not on what else is in the
 * step or the cache, on the threads, or on how its tokens were split into steps. It differs from
 * scoring in the order of sums: log-probabilities agree to about 1e-6 of their size. In bf16 the
 * matrix products are the library's, where a row may depend on the number of rows.
 */
void bp_model_decode(bp_decoding *decoding, int group, const bp_decode_step *step, float *logits,
                     float *statistics);

/** What bp_model_decode_new takes on this rank, in bytes; 0 for a model that can't decode.
 * Local. */
int64_t bp_model_decode_bytes(const bp_model *model, int groups, int64_t slots, int64_t capacity);
