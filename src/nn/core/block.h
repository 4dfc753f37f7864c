/* Blocks: a neural model is a list of them (embedding, layers, head).
 *
 * A block knows its parameters and how each is split over tensor ranks, says how much memory it
 * keeps from forward to backward, and runs both ways. Blocks and stages pass on a set of named
 * activations. A new layer is a new file with one bp_block_ops (docs/CONTRIBUTING.md has the
 * recipe). */
#pragma once

#include "base/mem.h"
#include "base/rng.h"
#include "math/attention/attention.h"
#include "math/attention/cached.h"
#include "math/gemm/linear.h"
#include "nn/core/adapter.h"
#include "tensor/batch.h"
#include "tensor/param.h"
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

/** Shared by all blocks of a network. */
typedef struct bp_nn {
    bp_gemm *gemm;   /* borrowed */
    MPI_Comm tensor; /* ranks that split each layer */
    int tensor_rank, tensor_ranks;
    MPI_Comm expert;               /* data ranks that share out the experts of each layer, */
    int expert_rank, expert_ranks; /* if there are several; 0: one, which has all */
    bool sequence_parallel; /* sequence parallelism: in training a tensor rank has the residual
                               stream of only its share of the rows (bp_nn_rows) */
    bool distills;          /* training's head learns from a teacher (bp_pass.teacher) */
    uint64_t seed;          /* seed of dropout masks */
    float dropout;
    float label_smoothing;   /* label smoothing of vocabulary losses: the target has the weight 1 -
                                this, and all outcomes share the rest equally */
    int64_t softmax_samples; /* sampled outcomes, in addition to the target, in training's softmax
                                of a larger vocabulary; 0: all */
} bp_nn;

/** Ranks that share out experts. */
static inline int bp_nn_experts(const bp_nn *nn)
{
    return nn->expert_ranks > 1 ? nn->expert_ranks : 1;
}

/** The largest micro-batch: examples, and positions of each stream. */
typedef struct bp_extent {
    int64_t B, T[BP_STREAMS];
    size_t lent_bytes; /* size of bp_pass.lent in each of the block's backward passes */
} bp_extent;

static inline bp_extent bp_extent_of(const bp_batch_form *form, int64_t B)
{
    return (bp_extent){.B = B, .T = {form->stream[0].T, form->stream[1].T}};
}

/** Activations (forward) or their gradients (backward) between two blocks, contiguous in memory.
 * Each is [rows][columns], rows being bp_nn_rows of its stream: B * T, or in training this tensor
 * rank's share of them. Those with a gradient come first. */
#define BP_ACTIVATIONS_ITEMS 4
typedef struct bp_activations {
    int count;
    struct {
        const char *name; /* "hidden" */
        int stream;
        int64_t columns;
        bool has_gradient;
        float *data;    /* blocks overwrite it with their result; NULL for a gradient that does not
                           exist */
        int64_t inside; /* columns of the widest row within a block or on the way to a later one, if
                           more than `columns`, else 0: rows have memory for them */
    } item[BP_ACTIVATIONS_ITEMS];
} bp_activations;

/** Decoding: the rows of a pass continue sequences; each block keeps what it needs of them
 *           (`cache` of bp_block_ops). The pass has one example, whose positions are rows of
 * several sequences. */
typedef struct bp_continuation {
    bp_cached_rows
        rows; /* fewer than the rows of the pass if that is padded; all rows have positions */
    int64_t slots, capacity; /* the most sequences, and positions of each */
    const int32_t *lengths;  /* [slots] positions of each sequence after the step */
    /* [slots] for a block that keeps one state per sequence: the place among `slots` to read it
     * from (-1: the sequence begins), and to write it to. All reads precede the first write */
    const int32_t *states_from, *states_to;
    float *cache;  /* the current block's cache */
    void *scratch; /* for it, as `cache` says */
    /* For models that read a source: the most sources, and positions of each. A pass without rows
     * of stream 0 reads one of them, `source`, and blocks keep what they need of it. In other
     * passes source_rows has for each row the source that it sees (as `slots`), its last place (as
     * `positions`) and the cells, separate for each source */
    int64_t sources, source_capacity, source;
    bp_cached_rows source_rows;
} bp_continuation;
/** A block's memory for decoding: kept, and scratch. */
typedef struct bp_cache_need {
    int64_t sources, source_capacity; /* asked for; 0: no source is read */
    size_t kept_bytes, scratch_bytes;
} bp_cache_need;

/** A block's result, as a probe sees it: x[rows][columns], in place, read-only. */
typedef struct bp_probed {
    int block; /* index in the whole model, from 0 */
    const char
        *what; /* the name of an activation after the block ("hidden"), of all examples of the pass;
                  or "attention", "cross_attention": weights before dropout; or "mlp": the input of
                  a Transformer layer's MLP, after its norm; or "coefficients": the output of its
                  activation, which multiplies the columns of its second matrix */
    int64_t example,
        head;       /* for weights: the example in the global batch, and the head among all heads */
    int64_t first;  /* for coefficients: the number of the first one among all ranks' columns */
    const float *x; /* [B * T][columns]; [queries][keys] for weights */
    int64_t rows, columns;
} bp_probed;

/** A callback that sees the activations of a network; not in training. Each rank sees its own: its
 * stage's blocks, its tensor rank's heads. The memory plan of blocks does not depend on it. */
typedef struct bp_probe bp_probe;
struct bp_probe {
    void (*see)(bp_probe *probe, const bp_probed *probed);
    bool attention; /* attention weights too, at the cost of extra products and a matrix per head */
    bool mlp;       /* inputs of MLPs too, at the cost of an extra norm */
    bool coefficients; /* and what their activations leave */
    int block;         /* the current block; set by the code that runs the blocks */
};

/** One micro-batch on its way through the blocks. */
typedef struct bp_pass {
    bp_extent extent;
    int64_t B, T; /* examples, and positions of the current block's stream */
    int stream;   /* which that is (bp_pass_go_by) */
    int64_t
        slot_T[BP_STREAMS]; /* positions of a slot in the global batch, by which dropout masks are
                               numbered: more than extent.T where micro-batches are shortened */
    bp_batch batch;         /* the first block needs its inputs, the last one its targets */
    bool training;          /* forward saves what backward needs */
    bool dropout;           /* masks are on, at the network's rate: in training, and in passes with
                               dropout at test time */
    int64_t step; /* dropout masks are a function of (seed, step, layer, slot, position, element) */
    bool second_text;       /* a pass over the text for architecture search: blocks carry its state
                               separately */
    int64_t first_slot;     /* slot of sequence 0 in the global batch */
    bool resumes, suspends; /* outside training: this pass continues sequences from bp_carry.kept,
                               from row first_window on; the next pass over them will */
    int64_t first_window;
    int64_t restart;             /* 1 + the token that begins a document, where blocks forget their
                                    carried state; 0: they never do */
    float loss_weight[BP_TERMS]; /* the weight of one target's loss in the gradient: the term's
                                    weight / (its scored targets in the global batch) */
    bool explains;               /* backward: -value replaces the loss of a value */
    bp_continuation *continuation; /* NULL: sequences are whole */
    bp_arena *scratch;             /* for the current block, which frees what it takes */
    bp_arena lent;   /* extra scratch for the backward pass of the network's last block: gradients
                        that earlier blocks will write first, equal bytes on all tensor ranks. The
                        last block's own gradients are fresh then */
    bp_probe *probe; /* NULL: no probe */
    const struct bp_teacher *teacher; /* training: blocks learn from it too (nn/heads/distill.h);
                                         NULL if there is no teacher */
    /* [B][T of the stream][bp_embedding_width] word vectors instead of those of the tokens; NULL:
     * the tokens' own. In the backward pass, their gradients; NULL: not wanted */
    const float *vectors[BP_STREAMS];
    float *vector_gradients[BP_STREAMS];
    float states_weight;  /* the weight of a place's loss of states in the gradient */
    double states_loss;   /* result of the blocks that compare states: the sum over positions */
    float balance_weight; /* training: the weight of a place's balance loss (bp_expert_shape) in the
                             gradient */
    double balance_loss;  /* result of the backward pass of layers with experts: their parts of it,
                             times the positions of the pass */
    int64_t *expert_loads; /* [layers][E] their backward pass adds the rows that chose each; NULL:
                              not wanted */
    /* results, of the last block */
    float *logprob;     /* [B][T] natural log of each target's probability, NaN where -1; NULL: not
                           wanted */
    int32_t *predicted; /* outside training, for each scored target of term 0 the outcome with the
                           highest logit; NULL: not wanted */
    float *log_p; /* outside training, for each scored target of term 0, in order, this rank's part
                     of the logs of all outcomes' probabilities; the sum over tensor ranks completes
                     them. NULL: not wanted */
    double loss_sum[BP_TERMS]; /* sum of -logprob over the scored targets, in row order */
    int64_t loss_count[BP_TERMS];
    int64_t
        right; /* outside training, the number of targets of term 0 whose logit is the highest */
} bp_pass;

/** A state that a block carries for each batch slot from one training window to the next
 * (recurrent): the logical tensor NAME [batch][columns], equal on all tensor ranks. Step s writes
 * rows[s & 1] and reads rows[(s - 1) & 1] in each of its forward passes (recomputation), so step
 * numbers increase by one. A skipped step leaves the state that it read. The network owns the
 * struct (bp_network_add_carry); the engine owns the memory of `rows`, initializes it to zero, and
 * saves the copy of the last step. Outside training, a sequence in pieces has its row in `kept`,
 * which is read before it is written. */
typedef struct bp_carry {
    char name[BP_PARAM_NAME]; /* "carry/h.0.state" */
    int64_t columns;
    int64_t first_slot; /* of this data rank */
    float *rows[2]; /* [slots of this data rank][columns], by parity of the step; NULL: each window
                       begins with zeros */
    float *kept;    /* [windows][columns]; NULL: no pass resumes or suspends */
} bp_carry;

/** Does example b begin a document at place t (pass->restart), so that no state goes into it?
 * Local. */
static inline bool bp_pass_restarts(const bp_pass *pass, int64_t b, int64_t t)
{
    return pass->restart > 0 &&
           pass->batch.stream[pass->stream].inputs[b * pass->T + t] == pass->restart - 1;
}

/** The initial rows of a pass's examples, and the destination of their final rows,
 * [pass->B][columns]. NULL: zeros; discarded. Borrowed. Local. */
const float *bp_carry_before(const bp_carry *carry, const bp_pass *pass);
float *bp_carry_after(const bp_carry *carry, const bp_pass *pass);

typedef struct bp_block bp_block;

/** Memory of matrix products, for the plan. */
typedef struct bp_product_bytes {
    size_t copies;  /* copies of weights, in the layouts and precision of matrix products */
    size_t scratch; /* the most that one product takes */
} bp_product_bytes;

typedef struct bp_block_ops {
    const char *kind;
    /** Bytes kept from forward to backward for one micro-batch, and scratch for either. Local. */
    size_t (*saved_bytes)(const bp_block *block, const bp_extent *most);
    size_t (*scratch_bytes)(const bp_block *block, const bp_extent *most, bool training);
    /** Further memory of its matrix products: copies of its weights, and the largest scratch
     * inside bp_gemm. Local. */
    bp_product_bytes (*product_bytes)(const bp_block *block, const bp_extent *most);
    /** Make the weight copies for products, once the values are bound. Called once. */
    bp_err (*bind)(bp_block *block);
    /** The values have changed. */
    void (*refresh)(bp_block *block);
    /** activations: those after the block (before it, where it passes nothing on). Called through
     * bp_block_forward and bp_block_backward. Collective over nn->tensor. `saved` is NULL unless
     * pass->training. */
    void (*forward)(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
    /** Take part in the forward pass of other ranks of nn->expert with no rows of its own.
     * Scratch: that of the largest pass. NULL: not needed. Collective over nn->expert. */
    void (*assist)(bp_block *block, bp_arena *scratch);
    /** Memory to continue `slots` sequences of `capacity` positions (pass->continuation). NULL: it
     * can't continue sequences. Local. */
    bool (*cache)(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need);
    /** Collective over nn->tensor. The activations hold gradients of the outputs, and leave with
     * those of the inputs; parameters' gradients are added to, fresh ones (param.h) are
     * overwritten: in replicated groups by this rank's rows only, in the others by all rows. A
     * NULL gradient (a frozen group) is skipped. */
    void (*backward)(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
    /** Replicate what a training pass over some->B examples kept at `from`, for all->B examples, a
     * multiple: example b has the inputs of example b % some->B, and differs only in targets. `to`
     * is then as after a pass over all. With both NULL, only returns whether it can. NULL: only a
     * block that keeps nothing can. Not with rows shared over tensor ranks. Local. */
    bool (*repeat)(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                   void *from);
    /** Add the parameters of an adapter, once, before anything is planned or bound: for LoRA,
     * those cut over tensor ranks to `split`, the rest to `whole`, which is then partial
     * (param.h); for a bottleneck, all to `whole`. NULL: it takes no adapter. Local. */
    void (*adapt)(bp_block *block, const bp_adapter *adapter, bp_group *split, bp_group *whole);
    /** The block that it wraps. NULL if it wraps no block. Local. */
    const bp_block *(*inner)(const bp_block *block);
    void (*free)(bp_block *block);
} bp_block_ops;

/** The head of every block; a block's own struct begins with it. */
struct bp_block {
    const bp_block_ops *ops;
    const bp_nn *nn; /* borrowed from the network */
    int stream;      /* whose positions its rows are */
};

/** The innermost block of nested wrappers; for any other block, itself. Local. */
const bp_block *bp_block_inner(const bp_block *block);

void bp_block_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
void bp_block_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
/** bp_block_ops of a block that keeps nothing, multiplies no matrix and owns only itself. Local. */
size_t bp_block_saves_nothing(const bp_block *block, const bp_extent *most);
bp_product_bytes bp_block_no_products(const bp_block *block, const bp_extent *most);
bp_err bp_block_binds_nothing(bp_block *block);
void bp_block_refreshes_nothing(bp_block *block);
void bp_block_free_alone(bp_block *block);
/** bp_block_ops.repeat of any block. Local. */
bool bp_block_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                     void *from);
/** Helper for it: `times` contiguous copies; does nothing if `to` is NULL. Local. */
void bp_repeat_floats(float *to, const float *from, int64_t floats, int64_t times);
void bp_repeat_rows(const bp_operand *to, const bp_operand *from, int64_t times);
/** The same for activations, which are laid out (bp_activations_lay). Local. */
void bp_activations_repeat(bp_activations *to, const bp_activations *from, const bp_nn *nn,
                           const bp_pass *all, const bp_pass *some);
/** Show pass->probe, if it is set, the activations after the current block; */
void bp_probe_activations(const bp_pass *pass, const bp_activations *activations);
/** and the weights of an attention that has just gone forward, head by head. */
void bp_probe_attention(const bp_pass *pass, const char *what, const bp_attention_input *in,
                        const float *lse, const bp_attention_shape *shape);
/** and the input of a layer's MLP: the norm of h[B * T][columns], or h itself without a norm
 * (NULL). */
void bp_probe_mlp(const bp_pass *pass, const float *h, int64_t columns, const bp_norm *norm);
/** and this tensor rank's coefficients; the first one has number `first`. */
void bp_probe_coefficients(const bp_pass *pass, const bp_operand *active, int64_t first);
/** A pass over a batch, in its extent; and a planned pass, as a block will see it. */
bp_pass bp_pass_over(const bp_batch *batch);
bp_pass bp_pass_planned(const bp_block *block, const bp_extent *most, bool training);
/** T becomes that of a stream. */
static inline void bp_pass_go_by(bp_pass *pass, int stream)
{
    pass->stream = stream;
    pass->T = pass->extent.T[stream];
}

/** Floats of activations between blocks on this rank; of their gradients. pass->training says
 * whether tensor ranks share the rows out. */
int64_t bp_activations_floats(const bp_activations *activations, const bp_nn *nn,
                              const bp_pass *pass, bool gradients);
/** Place them at `data`. */
void bp_activations_lay(bp_activations *activations, const bp_nn *nn, const bp_pass *pass,
                        float *data, bool gradients);

/** Count a weight [outs][ins] that multiplies `rows` rows. */
void bp_product_bytes_add(bp_product_bytes *bytes, const bp_nn *nn, int64_t rows, int64_t outs,
                          int64_t ins);
/** The same for products whose rows are already operands. */
void bp_product_bytes_add_operands(bp_product_bytes *bytes, const bp_nn *nn, int64_t rows,
                                   int64_t outs, int64_t ins);

/** The gradients of `count` contiguous weights in one product: bp_linear_backward_weight_operand,
 * except for frozen ones. Local. */
void bp_nn_backward_weight(const bp_nn *nn, bp_param *weights, int count, const bp_operand *dy,
                           const bp_operand *x);

/** The key of one dropout mask; `stream` distinguishes a network's masks. Elements are numbered
 * across slots of one length. Training has one length; at test time windows have several lengths,
 * each with its own keys, so that no two windows share a mask. */
static inline bp_rng_key bp_dropout_key(const bp_nn *nn, const bp_pass *pass, int64_t stream)
{
    return bp_rng_key_of(nn->seed, BP_RNG_DROPOUT, pass->training ? 0 : pass->T, pass->step,
                         stream);
}

/* Between two products that are split over tensor ranks, the row-wise operations (norms,
 * residuals, dropout) either run on all ranks, or are shared out by rows. Then the sum after one
 * product is scattered, and the rows are gathered before the next. Source: Korthikanti et al.
 * 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2. */

/** Rows [first, first + count) of a pass that this rank has of the residual stream: all, or its
 * share. */
typedef struct bp_row_range {
    int64_t first, count;
} bp_row_range;
bp_row_range bp_nn_rows(const bp_nn *nn, const bp_pass *pass);
/** The place of this rank's first row among all rows of the global batch, where each slot has its
 * length before shortening: it keys dropout masks. */
static inline int64_t bp_nn_first_row(const bp_nn *nn, const bp_pass *pass)
{
    return pass->first_slot * pass->slot_T[pass->stream] + bp_nn_rows(nn, pass).first;
}
/** Can a micro-batch of this many rows be shared out? */
static inline bool bp_rows_divide(int64_t rows, int tensor_ranks)
{
    return tensor_ranks > 1 && rows % tensor_ranks == 0;
}

/** Sum a block's partial result x[B * T][C] over tensor ranks. Then this rank's rows are complete;
 * the others only if it has all rows. Takes bp_nn_sum_floats of scratch from the pass, none with
 * one rank. Collective over nn->tensor. */
void bp_nn_sum(const bp_nn *nn, bp_pass *pass, float *x, int64_t C);
int64_t bp_nn_sum_floats(const bp_nn *nn, const bp_pass *pass, int64_t C);
/** This rank's rows of an operand [B * T][...]; and gather all rows once each rank has made its
 * own. Collective (gather) over nn->tensor. */
bp_operand bp_nn_own(const bp_nn *nn, const bp_pass *pass, const bp_operand *all);
void bp_nn_gather(const bp_nn *nn, const bp_pass *pass, const bp_operand *all);
