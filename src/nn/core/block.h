/* Blocks: a neural model is a list of them (embedding, layers, head).
 *
 * A block knows its parameters and how each is split over tensor ranks, says how much memory it
 * keeps from forward to backward, and runs both ways. What passes from block to block, and from
 * stage to stage, is a set of named activations. A new layer is a new file with one bp_block_ops
 * (docs/CONTRIBUTING.md has the recipe). */
#ifndef BP_NN_BLOCK_H
#define BP_NN_BLOCK_H

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

/** What all blocks of a network share. */
typedef struct bp_nn {
    bp_gemm *gemm;   /* borrowed */
    MPI_Comm tensor; /* ranks that split each layer */
    int tensor_rank, tensor_ranks;
    MPI_Comm expert;               /* data ranks that share out the experts of each layer, */
    int expert_rank, expert_ranks; /* where there are several; 0: one, which has all */
    bool sequence_parallel; /* sequence parallelism: in training a tensor rank has the residual
                               stream of only its share of the rows (bp_nn_rows) */
    bool distills;          /* training's head learns from a teacher (bp_pass.teacher) */
    uint64_t seed;          /* of dropout masks */
    float dropout;
    float label_smoothing; /* of the losses that vocabularies train by: 1 - this part of a target's
                              weight is its own, the rest is every outcome's alike */
    int64_t softmax_samples; /* outcomes besides the target that training's softmax of a larger
                                vocabulary is over; 0: all */
} bp_nn;

/** Ranks that share out experts. */
static inline int bp_nn_experts(const bp_nn *nn)
{
    return nn->expert_ranks > 1 ? nn->expert_ranks : 1;
}

/** The maximum of a micro-batch: examples, and places of each stream. */
typedef struct bp_extent {
    int64_t B, T[BP_STREAMS];
    size_t lent_bytes; /* of bp_pass.lent, whenever the block goes backward */
} bp_extent;

static inline bp_extent bp_extent_of(const bp_batch_form *form, int64_t B)
{
    return (bp_extent){.B = B, .T = {form->stream[0].T, form->stream[1].T}};
}

/** Activations (forward) or their gradients (backward) between two blocks, one after the other in
 * memory. Each is [rows][columns], rows being bp_nn_rows of its stream: B * T, or in training this
 * tensor rank's share of them. Those with a gradient come first. */
#define BP_ACTIVATIONS_ITEMS 4
typedef struct bp_activations {
    int count;
    struct {
        const char *name; /* "hidden" */
        int stream;
        int64_t columns;
        bool has_gradient;
        float *data;    /* blocks write their result over what they read; NULL: of a gradient that
                           there is none of */
        int64_t inside; /* columns of rows on their way through a block or to a later one, where
                           those are more: rows have memory for them */
    } item[BP_ACTIVATIONS_ITEMS];
} bp_activations;

/** Decoding: the rows of a pass continue sequences of which each block keeps what it needs (`cache`
 * of bp_block_ops). The pass has one example, whose places are rows of several sequences. */
typedef struct bp_continuation {
    bp_cached_rows rows; /* fewer than the pass has, where that is filled up; all have positions */
    int64_t slots, capacity; /* sequences that there may be, and positions of each */
    const int32_t *lengths;  /* [slots] positions of each after the step */
    /* [slots] a block that keeps one state of a sequence reads it from here (-1: none, the sequence
     * begins), and writes it there: which of `slots` places it takes. All that are read are read
     * before one is written */
    const int32_t *states_from, *states_to;
    float *cache;  /* of the block at work */
    void *scratch; /* for it, as `cache` says */
    /* For models that read a source: sources that there may be, and places of each. A pass without
     * rows of stream 0 reads one of them, `source`, which blocks keep what they need of; in others
     * source_rows say for each row which source it sees (as `slots`), its last place (as
     * `positions`) and the cells, each source's own */
    int64_t sources, source_capacity, source;
    bp_cached_rows source_rows;
} bp_continuation;
/** The memory of a block for that: kept, and as scratch. */
typedef struct bp_cache_need {
    int64_t sources, source_capacity; /* asked for; 0: no source is read */
    size_t kept_bytes, scratch_bytes;
} bp_cache_need;

/** A block's result, as a probe sees it: x[rows][columns], in place, read-only. */
typedef struct bp_probed {
    int block;        /* of the whole model, from 0 */
    const char *what; /* the name of an activation after the block ("hidden"), of all examples of
                         the pass; or "attention", "cross_attention": weights before dropout; or
                         "mlp": what a Transformer layer's MLP reads, after its norm; or
                         "coefficients": what its activation leaves, by which the columns of its
                         second matrix are multiplied */
    int64_t example, head; /* of such weights: in the global batch, and among all heads */
    int64_t first;         /* of coefficients: the number of the first among all ranks' columns */
    const float *x;        /* [B * T][columns]; of weights [queries][keys] */
    int64_t rows, columns;
} bp_probed;

/** A callback that sees what passes through a network; not in training. Each rank sees what it has:
 * its stage's blocks, its tensor rank's heads. It costs the blocks no memory of the plan. */
typedef struct bp_probe bp_probe;
struct bp_probe {
    void (*see)(bp_probe *probe, const bp_probed *probed);
    bool attention;    /* weights too: products and a matrix a head of their own */
    bool mlp;          /* what MLPs read too: a norm of their own */
    bool coefficients; /* and what their activations leave */
    int block;         /* at work; set by the code that runs the blocks */
};

/** One micro-batch on its way through the blocks. */
typedef struct bp_pass {
    bp_extent extent;
    int64_t B, T;               /* of the stream that the block at work goes by */
    int stream;                 /* which that is (bp_pass_go_by) */
    int64_t slot_T[BP_STREAMS]; /* places of a slot in the global batch, by which dropout masks are
                                   numbered: more than extent.T where micro-batches are shortened */
    bp_batch batch; /* its inputs are needed by the first block, its targets by the last */
    bool training;  /* forward saves what backward needs */
    bool dropout;   /* masks are on, at the network's rate: in training, and in passes with
                       dropout at test time */
    int64_t step; /* dropout masks are a function of (seed, step, layer, slot, position, element) */
    bool second_text;       /* it is of the text that an architecture is searched on: blocks carry
                               its state apart */
    int64_t first_slot;     /* of sequence 0 in the global batch */
    bool resumes, suspends; /* outside training: sequences continue from bp_carry.kept, from row
                               first_window on; the next pass over them will */
    int64_t first_window;
    float loss_weight[BP_TERMS]; /* what the loss of one target counts in the gradient: the term's
                                    weight / (its scored targets in the global batch) */
    bool explains; /* going backward: where the loss is of a value, it is in place of that -value */
    bp_continuation *continuation; /* NULL: sequences are whole */
    bp_arena *scratch;             /* for the block at work; what it takes it gives back */
    bp_arena lent;   /* for the network's last block going backward, besides: gradients that blocks
                        before it will write first, as many bytes on all tensor ranks. Its own
                        parameters' are fresh then */
    bp_probe *probe; /* NULL: no probe */
    const struct bp_teacher *teacher; /* training: blocks learn from it too (nn/heads/distill.h);
                                         NULL: there is none */
    /* [B][T of the stream][bp_embedding_width] word vectors in the place of those of the tokens;
     * NULL: the tokens' own. Going backward, the gradients with respect to them; NULL: not asked */
    const float *vectors[BP_STREAMS];
    float *vector_gradients[BP_STREAMS];
    float states_weight;   /* what a place's loss of states counts in the gradient */
    double states_loss;    /* result of the blocks that compare theirs: the sum over places */
    float balance_weight;  /* training: what a place's balance loss (bp_expert_shape) counts in the
                              gradient */
    double balance_loss;   /* result of the layers with experts, going backward: their parts of it,
                              times the places of the pass */
    int64_t *expert_loads; /* [layers][E] going backward they add the rows that chose each; NULL:
                              not asked */
    /* results, of the last block */
    float *logprob;     /* [B][T] natural log of each target's probability, NaN where -1; NULL: not
                           asked */
    int32_t *predicted; /* outside training, of each target of term 0 that is scored the outcome
                           whose logit is the highest; NULL: not asked */
    float *log_p; /* outside training, of each target of term 0 that is scored, in their order, what
                     this rank has of the logs of all outcomes' probabilities, which the sum over
                     tensor ranks completes; NULL: not asked */
    double loss_sum[BP_TERMS]; /* sum of -logprob over the scored targets, in row order */
    int64_t loss_count[BP_TERMS];
    int64_t right; /* outside training, targets of term 0 whose logit is the highest */
} bp_pass;

/** What a block carries for each batch slot from one training window to the next (a recurrent
 * state): the logical tensor NAME [batch][columns], equal on all tensor ranks. Step s writes
 * rows[s & 1] and reads rows[(s - 1) & 1], as often as it runs forward (recomputation), so steps
 * follow each other by one. A skipped step leaves what it began with. The network owns the struct
 * (bp_network_add_carry); the engine owns what `rows` point at, begins it with zeros, and saves the
 * copy of the last step. Outside training, a sequence that comes in pieces has its row in `kept`,
 * which is read before it is written. */
typedef struct bp_carry {
    char name[BP_PARAM_NAME]; /* "carry/h.0.state" */
    int64_t columns;
    int64_t first_slot; /* of this data rank */
    float *rows[2]; /* [slots of this data rank][columns], by parity of the step; NULL: nothing is
                       carried, and each window begins with zeros */
    float *kept;    /* [windows][columns]; NULL: no pass resumes or suspends */
} bp_carry;

/** The rows that a pass's examples begin with, and where what they end with goes,
 * [pass->B][columns]. NULL: zeros, nowhere. Borrowed. Local. */
const float *bp_carry_before(const bp_carry *carry, const bp_pass *pass);
float *bp_carry_after(const bp_carry *carry, const bp_pass *pass);

typedef struct bp_block bp_block;

/** Memory of matrix products, for the plan. */
typedef struct bp_product_bytes {
    size_t copies;  /* of weights, in the layouts and precision that products like */
    size_t scratch; /* the most that one product takes */
} bp_product_bytes;

typedef struct bp_block_ops {
    const char *kind;
    /** Bytes kept from forward to backward for one micro-batch, and scratch for either. Local. */
    size_t (*saved_bytes)(const bp_block *block, const bp_extent *most);
    size_t (*scratch_bytes)(const bp_block *block, const bp_extent *most, bool training);
    /** What its matrix products take besides: copies of its weights, and the largest scratch inside
     * bp_gemm. Local. */
    bp_product_bytes (*product_bytes)(const bp_block *block, const bp_extent *most);
    /** The values are bound: make the copies that products want. Called once. */
    bp_err (*bind)(bp_block *block);
    /** The values have changed. */
    void (*refresh)(bp_block *block);
    /** activations: those after the block (before it, where nothing passes on). Called through
     * bp_block_forward and bp_block_backward. Collective over nn->tensor. `saved` is NULL unless
     * pass->training. */
    void (*forward)(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
    /** Take part in the forward pass of other ranks of nn->expert with no rows of its own.
     * Scratch: that of the pass with the most. NULL: they need nothing of it.
     * Collective over nn->expert. */
    void (*assist)(bp_block *block, bp_arena *scratch);
    /** Can it continue sequences (pass->continuation)? What it takes for `slots` sequences of
     * `capacity` positions. NULL: it can't. Local. */
    bool (*cache)(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need);
    /** Collective over nn->tensor. The activations hold gradients of the outputs, and leave with
     * those of the inputs; parameters' gradients are added to, fresh ones (param.h) are
     * overwritten: in replicated groups by this rank's rows only, in the others by all rows. A
     * gradient that is NULL (a frozen group) is left out. */
    void (*backward)(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
    /** What a training pass over some->B examples kept at `from`, for all->B, a multiple, of which
     * example b reads what example b % some->B reads, and differs in targets alone: `to` is as
     * after a pass over them. NULL of both: only says whether it can. NULL: only a block that keeps
     * nothing can. No tensor rank has a share of the rows. Local. */
    bool (*repeat)(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                   void *from);
    /** Add the parameters of an adapter, once, before anything is planned or bound: of LoRA what is
     * cut over tensor ranks to `split`, the rest to `whole`, which is partial (param.h) then; of a
     * bottleneck all to `whole`. NULL: it takes no adapter. Local. */
    void (*adapt)(bp_block *block, const bp_adapter *adapter, bp_group *split, bp_group *whole);
    /** The block that it goes around. NULL: none. Local. */
    const bp_block *(*inner)(const bp_block *block);
    void (*free)(bp_block *block);
} bp_block_ops;

/** The head of every block; a block's own struct begins with it. */
struct bp_block {
    const bp_block_ops *ops;
    const bp_nn *nn; /* borrowed from the network */
    int stream;      /* whose places its rows are */
};

/** What is inside of the blocks that go around it; any other block: itself. Local. */
const bp_block *bp_block_inner(const bp_block *block);

void bp_block_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
void bp_block_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved);
/** bp_block_ops.repeat of any block. Local. */
bool bp_block_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                     void *from);
/** For it: `times` copies, one after the other; nothing where `to` is NULL. Local. */
void bp_repeat_floats(float *to, const float *from, int64_t floats, int64_t times);
void bp_repeat_rows(const bp_operand *to, const bp_operand *from, int64_t times);
/** The same of activations. Data are laid (bp_activations_lay). Local. */
void bp_activations_repeat(bp_activations *to, const bp_activations *from, const bp_nn *nn,
                           const bp_pass *all, const bp_pass *some);
/** Show pass->probe, if it is set, the activations after the current block; */
void bp_probe_activations(const bp_pass *pass, const bp_activations *activations);
/** and the weights of an attention that has just gone forward, head by head. */
void bp_probe_attention(const bp_pass *pass, const char *what, const bp_attention_input *in,
                        const float *lse, const bp_attention_shape *shape);
/** and what a layer's MLP reads: the norm of h[B * T][columns]; without one (NULL) h itself. */
void bp_probe_mlp(const bp_pass *pass, const float *h, int64_t columns, const bp_norm *norm);
/** Coefficients, those of this tensor rank, the first of which has number `first`. */
void bp_probe_coefficients(const bp_pass *pass, const bp_operand *active, int64_t first);
/** A pass over a batch, in its extent; and one that is only planned, as a block will see it. */
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
/** The same of products whose rows are operands already. */
void bp_product_bytes_add_operands(bp_product_bytes *bytes, const bp_nn *nn, int64_t rows,
                                   int64_t outs, int64_t ins);

/** The gradients of `count` weights that are contiguous and make one product of it:
 * bp_linear_backward_weight_operand, except for frozen ones. Local. */
void bp_nn_backward_weight(const bp_nn *nn, bp_param *weights, int count, const bp_operand *dy,
                           const bp_operand *x);

/** The key of one dropout mask; `stream` distinguishes a network's masks. Elements are numbered
 * through slots of one length. Training has one; at test time windows are of several lengths, and
 * each length has keys of its own, so that no two windows share a mask. */
static inline bp_rng_key bp_dropout_key(const bp_nn *nn, const bp_pass *pass, int64_t stream)
{
    return bp_rng_key_of(nn->seed, BP_RNG_DROPOUT, pass->training ? 0 : pass->T, pass->step,
                         stream);
}

/* Between two products that are split over tensor ranks, what concerns each row by itself (norms,
 * residuals, dropout) is either done by all ranks alike, or shared out by rows: the sum after one
 * product is scattered then, and the rows are gathered before the next. Source: Korthikanti et al.
 * 2022, "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2. */

/** Rows [first, first + count) of a pass that this rank has of the residual stream: all, or its
 * share. */
typedef struct bp_row_range {
    int64_t first, count;
} bp_row_range;
bp_row_range bp_nn_rows(const bp_nn *nn, const bp_pass *pass);
/** The place of this rank's first row among all rows of the global batch, each slot with as many
 * places as before a micro-batch is shortened: it keys dropout masks. */
static inline int64_t bp_nn_first_row(const bp_nn *nn, const bp_pass *pass)
{
    return pass->first_slot * pass->slot_T[pass->stream] + bp_nn_rows(nn, pass).first;
}
/** Can a micro-batch of this many rows be shared out? */
static inline bool bp_rows_divide(int64_t rows, int tensor_ranks)
{
    return tensor_ranks > 1 && rows % tensor_ranks == 0;
}

/** Sum a block's partial result x[B * T][C] over tensor ranks: then this rank's rows of it are
 * complete, and the others only if it has all rows. Takes bp_nn_sum_floats of scratch from the
 * pass, none with one rank. Collective over nn->tensor. */
void bp_nn_sum(const bp_nn *nn, bp_pass *pass, float *x, int64_t C);
int64_t bp_nn_sum_floats(const bp_nn *nn, const bp_pass *pass, int64_t C);
/** This rank's rows of an operand [B * T][...], and all of it once each rank has made its own.
 * Collective (gather) over nn->tensor. */
bp_operand bp_nn_own(const bp_nn *nn, const bp_pass *pass, const bp_operand *all);
void bp_nn_gather(const bp_nn *nn, const bp_pass *pass, const bp_operand *all);

#endif
