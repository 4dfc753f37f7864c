/* The blocks that networks are made of: embeddings, Transformer and recurrent layers, heads. The
 * split of Transformers is Megatron's (Shoeybi et al. 2019, section 3): columns then rows, heads
 * over tensor ranks, the vocabulary split in the embedding and in the cross-entropy. */
#pragma once

#include "math/kernels/cells.h"
#include "nn/core/block.h"

/* All constructors: *out is the caller's until a network takes it; nn and params are borrowed.
 * Local. Ends the program when out of memory (bp_alloc). */

/** The part for one stream: item = scale wte[inputs] + wpe[first_position + position] (may be
 * NULL) + segments[its segment] (may be NULL; segment 0 if the batch has no segments or the table
 * one row), then dropout. wte: this rank's rows of [V][C], wpe [first_position + T][C], segments
 * [S][C]; parts may share them. */
typedef struct bp_embedding_part {
    bp_param *wte, *wpe; /* borrowed; if there is only one part, its wte may be NULL: positions are
                            then added to the item */
    int item, stream;    /* item of the activations, stream of the batch */
    int64_t dropout_stream; /* its stream of dropout masks */
    bp_param *segments;     /* borrowed */
    int64_t first_position;
    bool keeps_all;         /* no dropout here: a norm precedes it (bp_row_layer_new) */
    bool positions_padding; /* positions after a text use the row of wpe before first_position,
                            which is not trained; else each its own */
    int64_t tokens_after;   /* this many positions after a text hold trained tokens; the others hold
                               padding, whose vector is not trained */
    bool starts_with_padding; /* and so does a text's first place */
    float scale;              /* scale of the tokens' vectors; 0: 1 */
    const float *sinusoids;   /* [T][C], fixed positions instead of wpe. Borrowed; may be NULL */
} bp_embedding_part;
void bp_embedding_new(bp_block **out, const bp_nn *nn, const bp_embedding_part *parts, int count);
/** Columns of the tables of such a block, or of a series that begins with one; 0 for other blocks.
 * Local. */
int64_t bp_embedding_width(const bp_block *block);
/** rows[count][width]: the word vectors of a stream's tokens, before scaling; scratch has the same
 * size. Collective over nn->tensor. */
void bp_embedding_rows(const bp_block *block, int stream, const int32_t *tokens, int64_t count,
                       float *rows, float *scratch);

/** Cosines and sines of rotary positions (kernels.h). */
struct bp_rotary;

/** Norms of queries and keys, by the root mean square, before rotation: none; per head, with a
 * gain [D] for all; over all heads together, with gains [H D] and [G D]. */
typedef enum bp_query_norm {
    BP_QUERY_NORM_NONE,
    BP_QUERY_NORM_HEADS,
    BP_QUERY_NORM_WHOLE
} bp_query_norm;

/** A mixture of experts instead of the MLP: gated MLPs of inner width F; each row goes through
 * `chosen` of them. Shares are softmax(router.weight h) over all experts, in float32; the chosen
 * have the largest shares, ties go to the first. Outputs are summed in ascending order of experts,
 * each times its share. Ranks of nn->expert share the experts out: rows are sent to the ranks of
 * their experts, and back. Source: Shazeer et al. 2017; Jiang et al. 2024, Mixtral.
 */
typedef struct bp_expert_shape {
    int64_t count;     /* 0: one MLP; all fields below but `balance` are ignored */
    int64_t chosen;    /* count at most */
    bool renormalised; /* the chosen shares are divided by their sum */
    bp_group *router;  /* the router's group: replicated and partial; borrowed */
    bp_group *weights; /* the experts' group; borrowed */
    /* The balance loss of all layers of a stack with experts together, over a micro-batch of N rows
     * (of all those layers, without padding): E sum_e n_e P_e / N^2, where n_e counts the rows that
     * choose e and P_e sums their shares before the choice. A micro-batch counts by its positions
     * (bp_pass.balance_weight, balance_loss). Only shares have gradients. Source: Fedus et al.
     * 2021, Switch Transformers, section 2.2, over all layers. */
    int balance;          /* the item of activations [rows][E] that counts choices, with a
                             gradient; 0: there is no such loss */
    bool begins, ends;    /* this layer is the stack's first, its last one; */
    int64_t sparse_count; /* layers of it with experts, */
    int64_t most;         /* of this many */
} bp_expert_shape;

/** Further terms of scores: products of queries and of keys with projections of a table of
 * distances (bp_disentangled). */
typedef struct bp_layer_distances {
    bp_param *table; /* [rows][C], whole on each tensor rank, in a partial group to which this layer
                        adds gradients; borrowed. NULL: no such terms */
    bp_param *gain, *bias;           /* of the table's norm; NULL if it has no norm */
    int64_t rows, buckets, distance; /* bp_distances */
    bool own; /* separate projections "attn.position.q" and "attn.position.k", with biases; else
                 those of queries and keys */
} bp_layer_distances;

/** Sizes of a Transformer layer; H, G and F are whole, the constructor takes this rank's share. */
typedef struct bp_layer_shape {
    int64_t C, H, F;   /* width, heads, inner width of the MLP. H 0: no attention and no "ln1", only
                          the MLP after its norm */
    int64_t G;         /* heads of keys and values, which heads share in groups; 0: H */
    int64_t D;         /* width of a head; 0: C / H */
    bool rms;          /* norms by the root mean square, without biases */
    bool no_norm_bias; /* norms about the mean have no biases either */
    float epsilon;     /* epsilon of the norms; 0: 1e-5 */
    bool no_bias;      /* products have no biases; */
    bool qkv_bias;     /* but those of q, k and v */
    bool no_attention_bias;   /* attention's products have no biases */
    bp_activation activation; /* kernels.h has them; 0: GELU by tanh. The MLP is down(f(up)), with
                                 BP_SWIGLU down(silu(gate) up), with BP_GEGLU
                                 or BP_GEGLU_EXACT down(gelu(gate) up) */
    bool parallel; /* attention and MLP both read the layer's input, each through its norm, and both
                      are added to it */
    bool one_norm; /* in a parallel layer: both read through the same norm, "ln1" */
    bool post_norm; /* norms follow the branches, which read the residual stream itself. Not for a
                       parallel layer */
    bool closing_norms; /* each branch has its own norm, "attn.ln" and "mlp.ln", before it is added.
                           Such a layer also has norms before its branches, and does not cross; */
    bool closing_only; /* with closing norms only: branches read the residual stream itself. Not for
                          a parallel layer */
    bool no_first_norm; /* attention reads the residual stream itself, without "ln1"; other norms
                           are unchanged. Not with post_norm or a parallel layer */
    float branch_scale; /* scale of the branches added to the residual stream; 0: 1 */
    bool unscaled; /* scores are unscaled products of queries and keys; queries' initial weights are
                      sqrt(D) times smaller instead */
    float scale;   /* scale of scores, unless unscaled; 0: 1/sqrt(D) */
    float score_cap; /* scores become cap tanh(score / cap); 0: no cap */
    bp_param
        *relative; /* [relative_buckets][H], this rank's heads: added to a score of attention() by
                      the bucket of its distance (math/attention/relative.h), on both sides if it
                      sees_all; borrowed; this layer adds gradients to its group. May be NULL */
    int64_t relative_buckets, relative_distance;
    bp_layer_distances apart; /* for attention(), in a layer that sees_all, does not cross, and has
                                 as many heads of keys as heads, with biases */
    bool alibi; /* a score of attention() gets its head's slope times the key's offset from the
                   query (math/attention/relative.h). Only in a causal layer without `relative` that
                   does not cross */
    const struct bp_rotary
        *rotary; /* queries and keys are rotated by their positions; borrowed; NULL: no rotation */
    float clip;  /* queries, keys and values of attention() are clipped to +- this after such norms,
                    before rotation; 0: no clip */
    bp_query_norm
        query_norm;        /* of attention(); "attn.q.ln.gain" and "attn.k.ln.gain" are then in */
    bp_group *query_group; /* a replicated and partial group; borrowed. NULL without such norms */
    bp_expert_shape experts;
    int64_t
        layers; /* layers of the whole model: residual projections start at std / sqrt(2 layers) */
    int64_t number;               /* of this layer, from 0 */
    const char *stack;            /* its params are "STACK.NUMBER.attn.q.weight"...; borrowed */
    int64_t first_dropout_stream; /* the first of its 3 streams of dropout masks, or 5 if it
                                     crosses: 4 number + 1 if 0 is the embedding's */
    int64_t window; /* a position sees this many of the last ones, itself included, or with sees_all
                       those up to half of this away; 0: all */
    bool entmax;    /* attention's weights are the 1.5-entmax of scores */
    bool sees_all;  /* not causal: a position sees its whole sequence */
    int item, stream; /* the item of the activations that it works on, and the item's stream */
    bool crosses;     /* also attends to another item, between attention and MLP, */
    int source_item, source_stream;
} bp_layer_shape;

/** h += out(attention(ln1(h))), for parallel branches together with the MLP's; if it crosses, h +=
 * cross.out(attention of cross.ln(h) to the source, which has no norm here); h +=
 * down(f(up(ln2(h)))). With post_norm h = ln1(h + out(attention(h))), h = cross.ln(h +
 * cross.out(...)) where it crosses, and h = ln2(h + down(f(up(h)))). With closing_norms h +=
 * attn.ln(out(attention(ln1(h)))), and h += mlp.ln(down(f(up(ln2(h))))), without ln1 and ln2 with
 * closing_only. Keys after a sequence's length are not seen. A layer that crosses, or has a causal
 * window, is only causal in its own stream: there padding sees padding, as in the reference
 * models. Tensor ranks divide H and F. Where they do not divide G, each rank whose heads share a
 * head of keys has a copy of it. Adds its params to the groups: `split` is cut over tensor ranks,
 * `whole` is replicated. */
void bp_transformer_layer_new(bp_block **out, const bp_nn *nn, const bp_layer_shape *shape,
                              bp_group *split, bp_group *whole);
/** Entries of its matrices over all tensor ranks: each is one multiplication per token. Local. */
int64_t bp_transformer_layer_products(const bp_layer_shape *shape);

/** An operation on each row by itself: a product with an activation, a norm, dropout. */
typedef struct bp_row_shape {
    const char *name; /* its params are "NAME.weight" [O][I], "NAME.bias" [O], "NAME.ln.gain" [O],
                         "NAME.ln.bias" [O]; borrowed */
    int64_t I, O;     /* columns before and after it */
    bool has_product; /* else I = O */
    bp_activation activation; /* after the product, of one number */
    float epsilon;            /* of the norm */
    int64_t dropout_stream;   /* the stream of its dropout masks, or BP_NO_DROPOUT */
    int item, stream;
    bool rms;               /* the norm is by the root mean square, without "NAME.ln.bias" */
    bool no_norm_bias;      /* nor has it that, about the mean */
    bool no_bias;           /* of the product */
    float scale;            /* scale of its output; 0: 1 */
    bool linear;            /* only the norm follows the product */
    bool no_norm;           /* and no norm */
    bp_param *gain, *shift; /* norm parameters of another such layer; borrowed. NULL: its own */
} bp_row_shape;
#define BP_NO_DROPOUT (-1)

/** x = dropout(ln(f(weight x + bias))): the norm after an embedding, the transform before a head,
 * a projection. All columns are on each tensor rank; rows are shared out (bp_nn_rows). Adds its
 * params to the replicated group. Source: Devlin et al. 2019, BERT, following its published
 * code. */
void bp_row_layer_new(bp_block **out, const bp_nn *nn, const bp_row_shape *shape, bp_group *group);

/** A head that classifies a whole example by its first place. */
typedef struct bp_pooled_shape {
    int64_t C, classes;
    int item, stream,
        term; /* the term has one target per example; a batch without it is unchanged */
    int64_t dropout_stream; /* the stream of its dropout masks, between pooler and classes;
                               BP_NO_DROPOUT */
} bp_pooled_shape;

/** Cross-entropy of softmax(class.weight tanh(pooler.weight h + pooler.bias) + class.bias), where
 * h is an example's first row; later blocks read the same item. Adds "pooler.weight" [C][C],
 * "pooler.bias" [C], "class.weight" [classes][C], "class.bias" [classes] to the replicated group.
 * In training forward keeps only its input; backward computes the loss and all gradients. Source:
 * Devlin et al. 2019, section 3.1 (next sentence prediction). */
void bp_pooled_head_new(bp_block **out, const bp_nn *nn, const bp_pooled_shape *shape,
                        bp_group *group);

/** What the head of a task reads. */
typedef enum bp_pool { BP_POOL_NONE, BP_POOL_FIRST, BP_POOL_MEAN, BP_POOL_LAST } bp_pool;
typedef struct bp_pooling_shape {
    int64_t C;
    const char *norm; /* name of the norm of the positions' states, applied first; borrowed. NULL:
                         no norm */
    bool rms, no_norm_bias;
    float epsilon;
    bp_pool pool;   /* a text's state: that of its first place, of its last place before padding, or
                       the mean before padding; NONE: each place keeps its own */
    bool pooler;    /* the text's state becomes tanh(pooler.weight h + pooler.bias), */
    bool gelu;      /* or GELU of that, as in ELECTRA's head, */
    bool relu;      /* or ReLU, as in DistilBERT's */
    bool is_last;   /* there is no head: outside training bp_pass.log_p gets a text's state, */
    int64_t vector; /* or, if not 0, this many numbers, f(vector.weight h + vector.bias): f as of a
                       pooler, */
    bool linear, unbiased;  /* or none; without that bias */
    int64_t dropout_stream; /* the stream of its dropout masks, applied last; BP_NO_DROPOUT */
    int item, stream;
} bp_pooling_shape;

/** hidden [B * T][C] becomes the input of a task's head. If positions are pooled, the row of a
 * text's first place becomes the text's state; outside training all its rows do. Adds "NORM.gain",
 * "NORM.bias" [C], "pooler.weight" [C][C] and "pooler.bias" [C], or "vector.weight" [vector][C] and
 * "vector.bias" [vector], where present, to the replicated group. Source: Devlin et al. 2019,
 * section 4.1; Radford et al. 2018, section 3.2 (the last token). */
void bp_pooling_new(bp_block **out, const bp_nn *nn, const bp_pooling_shape *shape,
                    bp_group *group);

/** A head that predicts a value of each text, or finds a span in it. */
typedef struct bp_text_head_shape {
    int64_t C;
    bool finds_spans; /* two terms, `term` and the next: the positions where a span begins and ends,
                         one of each per text. Else one term with a value (bp_target_value) per
                         text, from the row of its first place */
    bool unbiased;    /* without "task.bias" */
    int item, stream, term;
} bp_text_head_shape;

/** A Gaussian process instead of a head's linear map. */
typedef struct bp_features_shape {
    int64_t C, D, K;     /* width of a text's state; features; classes, at most C */
    double length_scale; /* scale of the kernel exp(-|h - h'|^2 / (2 length_scale^2)) */
} bp_features_shape;

/** A text's row of item 0, as bp_pooling_new leaves it, becomes the logits of its K classes, then,
 * where K < C, the mean of v_k over classes, and zeros: task.weight phi, phi = sqrt(2/D)
 * cos(sngp.directions h + sngp.phases). Outside training they are divided by sqrt(1 + pi/8 v_k),
 * v_k = |R_k^T phi|^2, where sngp.factor holds the upper triangular R_k one below another, whose
 * R_k R_k^T is the covariance of the weights of class k; all 0: it is unknown, and v_k = 0. Adds
 * "task.weight" [K][D] to the replicated group, and to `frozen`, replicated too, "sngp.directions"
 * [D][C], "sngp.phases" [D] and "sngp.factor" [K D][D]. Source: Liu et al. 2020, "Simple and
 * principled uncertainty estimation with deterministic deep learning via distance awareness", 3.1;
 * the mean field: Lu et al. 2020, "Mean-field approximation to Gaussian-softmax integral". */
void bp_random_features_new(bp_block **out, const bp_nn *nn, const bp_features_shape *shape,
                            bp_group *group, bp_group *frozen);
bool bp_is_random_features(const bp_block *block);
/** Set a callback that sees features[n][D] and logits[n][K] of the texts of each pass outside
 * training, before variances are computed; NULL: no probe. Borrowed. Local. */
typedef struct bp_feature_watch {
    void (*see)(void *context, const float *features, const float *logits, int64_t n);
    void *context;
} bp_feature_watch;
void bp_random_features_watch(bp_block *block, const bp_feature_watch *watch);
/** R [D][D] of a class, to be written. Local. */
float *bp_random_features_factor(bp_block *block, int64_t class);

/** task.weight h + task.bias: squared error of a value; or, for each end, cross-entropy of a
 * softmax over all positions of a text, including padding. pass->logprob, if term 0 has a target
 * per place: the text's value; or, for the first place, log p(a span begins at its target), and for
 * the second, log p(it ends at its target). pass->log_p: the value; or one outcome per place. Adds
 * "task.weight" [1 or 2][C] and "task.bias" to the replicated group. Source: Devlin et al. 2019,
 * section 4.2 (spans). */
void bp_text_head_new(bp_block **out, const bp_nn *nn, const bp_text_head_shape *shape,
                      bp_group *group);

/** Several blocks as one, which a pipeline does not split. The series owns the blocks, all of one
 * stream; in decoding at most one of them keeps a cache. */
#define BP_SERIES_BLOCKS 4
void bp_series_new(bp_block **out, const bp_nn *nn, bp_block *const *blocks, int count);
/** The first block of a series; any other block itself. */
const bp_block *bp_series_first(const bp_block *block);

/** A convolution beside a block. */
typedef struct bp_convolution_shape {
    int64_t C, K, G;          /* width; taps, an odd number; groups of columns, which divide C */
    bool tanh;                /* the activation; else, */
    bp_activation activation; /* of one number */
    float epsilon;            /* of the norm */
    int64_t dropout_stream;   /* the stream of its dropout masks */
} bp_convolution_shape;

/** hidden = conv.ln(inner(hidden) + f(dropout(convolution of hidden))), where a place reads K / 2
 * positions on either side, zeros outside of its text. Owns the inner block, a Transformer layer
 * that works on item 0. Adds "conv.weight" [C][C / G K], "conv.bias", "conv.ln.gain" and
 * "conv.ln.bias" [C] to the replicated group. Source: He et al. 2021, DeBERTa, following the
 * published code of its second version. */
void bp_convolution_new(bp_block **out, bp_block *inner, const bp_convolution_shape *shape,
                        bp_group *group);

/** The block between a generator and a discriminator. */
typedef struct bp_replacement_shape {
    bp_embedding_part embedding; /* embedding of the text with the generator's tokens, on item 0 */
    const bp_block *head;        /* bp_lm_head_new's, which reads item 0 too; borrowed */
    int term;                    /* the head's: positions with a target are replaced */
    int ids_item; /* the item with each place's token, one column, without a gradient */
} bp_replacement_shape;

/** At each place with a target of the head it draws a token from the head's distribution, by
 * inversion of the cumulative probabilities: in training a function of (seed, step, slot, place),
 * else of (seed, the example's tokens, place). Item 0 becomes the embedding of that text. The
 * head's rows get no gradient from here, only from the head's own loss. All rows are on each tensor
 * rank (bp_model_family.whole_rows). Source: Clark et al. 2020, section 3.1. */
void bp_replacement_new(bp_block **out, const bp_nn *nn, const bp_replacement_shape *shape);

/** A head that classifies each place. */
typedef struct bp_binary_shape {
    int64_t C;
    int stream, term; /* the term's targets are tokens; -1: not scored */
    int ids_item;     /* as above; 0: the tokens are the batch's inputs */
} bp_binary_shape;

/** Binary cross-entropy of sigmoid(replaced.weight h + replaced.bias), where h is item 0, and the
 * label is whether a place's token differs from its target. All rows are on each tensor rank. In
 * training forward keeps only what it reads; backward computes the loss and all gradients. Adds
 * "replaced.weight" [1][C] and "replaced.bias" [1] to the replicated group. Source: Clark et al.
 * 2020, section 3.1. */
void bp_binary_head_new(bp_block **out, const bp_nn *nn, const bp_binary_shape *shape,
                        bp_group *group);

/** The input of SpanBERT's boundary objective. */
#define BP_BOUNDARY_POSITIONS                                                                      \
    20 /* positions of a span that have a number; later ones are not scored */
typedef struct bp_boundary_shape {
    int64_t C;
    int item; /* of 3 C columns, after item 0, */
    int term; /* runs of its positions with a target are the masked spans */
} bp_boundary_shape;

/** The item's row of a place in a span becomes item 0's states before and after the span, followed
 * by boundary.positions at the place's number in the span, from 0. Other rows are 0. Adds
 * "boundary.positions" [20][C] to the replicated group. Source: Joshi et al. 2020, section 3.2; as
 * in their program, adjacent spans count as one. */
void bp_boundary_new(bp_block **out, const bp_nn *nn, const bp_boundary_shape *shape,
                     bp_group *group);

/** A cell that is a graph. Node 0 is h' + c (tanh(h) - h'), where h' is the previous state, and c,
 * h are the two halves of "input.weight" x + "hidden.weight" h'. Node i, from 1 on, is an edge
 * (bp_node_edge) from an earlier one, whose sums are rows [2 H (i - 1), 2 H i) of "nodes.weight"
 * times that node. In a mixed cell, node i is the sum of such edges from all earlier nodes with
 * the same weight, each with the shares softmax("mix"[edge]); edges are ordered by node, then by
 * source. All nodes of a mixed cell, node 0 too, then get a batch normalisation without an affine
 * map, per position, over the sequences of a micro-batch; other cells have none. The new state is
 * the mean of the nodes from 1 on. There are no biases. Source: Liu, Simonyan and Yang 2019, DARTS,
 * section 2.1 and appendix A.1.2. */
#define BP_CELL_NODES 16
typedef struct bp_cell_graph {
    int nodes; /* from 1 on */
    bool mixed;
    struct {
        bp_cell_operation operation;
        int from;          /* 0 is node 0 */
    } node[BP_CELL_NODES]; /* of node i at i - 1; not read for a mixed cell */
    bp_group *mix; /* for a mixed cell: the replicated group of "h.NUMBER.mix" [edges][operations],
                      and of its moments "h.NUMBER.mix.m" and "h.NUMBER.mix.v"; borrowed */
} bp_cell_graph;
/** Edges of such a cell. */
int bp_cell_graph_edges(const bp_cell_graph *graph);

/** A recurrent layer. */
typedef struct bp_recurrent_shape {
    bp_recurrent_cell cell;
    bp_cell_graph graph; /* of BP_CELL_GRAPH */
    int64_t I, H;        /* width of its inputs, and of its state, which is its output */
    int64_t number;      /* of this layer, from 0: its params are "h.NUMBER.input.weight" [G H][I],
                            "h.NUMBER.hidden.weight" [G H][H], "h.NUMBER.hidden.bias" [G H] and
                            "h.NUMBER.input.bias" [G H], of an LSTM four of [H]: ".i", ".f", ".g", ".o"
                            after it. Gates: rnn 1, lstm 4 (i f g o), gru 3 (r z n). A graph has
                            "h.NUMBER.input.weight", "h.NUMBER.hidden.weight", both of 2 gates (c h), and
                            "h.NUMBER.nodes.weight" [2 H nodes][H] */
    int64_t dropout_stream; /* the stream of its outputs' dropout masks; the recurrent state has no
                               dropout (Zaremba et al. 2014) */
    bp_carry *second; /* for a mixed cell: h of passes over another text (bp_pass.second_text) */
    bp_carry *h, *c;  /* state carried from window to window, H columns each; c: only for an LSTM.
                         NULL: each window begins with zeros. Borrowed */
} bp_recurrent_shape;

/** hidden [B * T][I] becomes [B * T][H]: item 0 of the activations, the only one unless I = H. Not
 * split over tensor ranks (bp_model_family.carries_state). Gradients stop at the start of a window
 * (truncated back-propagation through time). In decoding a sequence has one state. Adds its params
 * to the replicated group. */
void bp_recurrent_layer_new(bp_block **out, const bp_nn *nn, const bp_recurrent_shape *shape,
                            bp_group *group);

/** Sizes of a state-space layer (Mamba-2). */
typedef struct bp_state_space_shape {
    int64_t C, H, P, N; /* width; heads of P numbers; each number's states */
    int64_t G, K;       /* groups of heads that read the same B and C; taps of the convolution */
    float epsilon;      /* of both norms */
    float least_step, most_step; /* bounds of dt; most_step 0: no bound */
    float branch_scale;          /* of what is added to hidden; 0: 1 */
    int64_t layers, number;      /* of the model; of this layer, from 0 */
    int64_t dropout_stream;      /* the stream of dropout masks */
    bp_carry *taps, *states; /* with the columns of the functions below; NULL: windows begin with
                                zeros. Borrowed */
} bp_state_space_shape;

/** hidden += out(norm(y silu(z))), where y is the scan (math/kernels/scan.h) of silu(convolution
 * of x) with B and C, each silu(its convolution) too, steps dt = softplus(dt + bias) and rates
 * exp(decay); z, x, B, C, dt are products of one norm of hidden. Tensor ranks divide H, and G
 * divides H. In decoding a sequence has one state. Adds to `split`, which is cut over tensor ranks,
 * "h.NUMBER.z.weight" and "x.weight" [H P][C], "dt.weight" [H][C], "out.weight" [C][H P], "x.taps"
 * [H P][K], "x.bias" and "gate.gain" [H P], "dt.bias", "decay" and "skip" [H]; to `whole`, which is
 * replicated, "bc.weight" [2 G N][C], "bc.taps" [2 G N][K], "bc.bias" [2 G N] and "ln.gain" [C].
 * Source: Dao and Gu 2024. */
void bp_state_space_new(bp_block **out, const bp_nn *nn, const bp_state_space_shape *shape,
                        bp_group *split, bp_group *whole);
/** Columns of its carried state on one of `tensors` ranks: rows of the convolution, and states. */
int64_t bp_state_space_taps(const bp_state_space_shape *shape, int tensor_ranks);
int64_t bp_state_space_states(const bp_state_space_shape *shape, int tensor_ranks);

/** Words from their characters. */
#define BP_WORD_CHARACTERS 50  /* of a word, including markers and padding */
#define BP_CHARACTERS      261 /* the 256 bytes, and markers: see BP_WORD_BEGIN */
/** Markers: start and end of a text, start and end of a word, and padding after a word. */
enum { BP_TEXT_BEGIN = 256, BP_TEXT_END, BP_WORD_BEGIN, BP_WORD_END, BP_WORD_PADDING };
#define BP_WORD_FILTERS 16 /* widths, most */
typedef struct bp_word_shape {
    int64_t V, P;      /* words; width of their vectors */
    int64_t D;         /* of a character's vector */
    int filter_counts; /* convolutions */
    struct {
        int64_t width, count;
    } filters[BP_WORD_FILTERS]; /* `count` filters of `width` characters */
    int64_t highways;
    bool tanh;               /* the convolutions' activation; else ReLU */
    bool projects;           /* if false, the filters have P outputs in total */
    const float *characters; /* [V + 1][BP_WORD_CHARACTERS] initial values of the table; NULL:
                                zeros. Borrowed */
    bool twice;              /* a second item, of stream 1, for the other direction */
    int second_term; /* the term of the second item: outside training its rows are 0 if that is not
                        scored */
} bp_word_shape;

/** Items 0, and 1 if it has two: the vectors [B * T][P] of the words of streams 0 and 1. A word's
 * characters go through convolutions of several widths, the largest value of each over the word,
 * the activation, highway layers and a projection. Each distinct word of a micro-batch is computed
 * once; with a forward-only gemm, once overall. The word spelled as the end of a text (only
 * BP_TEXT_END) separates texts: stream 0 reads the last row of the table, the start of a text,
 * instead. Adds to `frozen` the table "characters" [V + 1][50], and to `whole` "char_embed"
 * [261][D], for the K-th width "cnn.K.weight" [count][width D] and "cnn.K.bias", for highway K
 * "highway.K.carry.weight" [F][F], "highway.K.carry.bias", "highway.K.transform.weight",
 * "highway.K.transform.bias", and "projection.weight" [P][F], "projection.bias"; F is the total
 * number of filters. Source: Kim et al. 2016; Peters et al. 2018; initial values are bilm-tf's. */
void bp_word_characters_new(bp_block **out, const bp_nn *nn, const bp_word_shape *shape,
                            bp_group *frozen, bp_group *whole);

/** An LSTM layer with a projection. */
typedef struct bp_projected_lstm_shape {
    int64_t P, H; /* width of its inputs, its state and its outputs; units. P = H: the units'
                     outputs are the state, without a projection */
    const char
        *name; /* its params are "NAME.input.weight" [4 H][P], "NAME.hidden.weight" [4 H][P],
                  "NAME.bias" [4 H] (1 is added to the forget gate's at run time) and, unless P = H,
                  "NAME.projection.weight" [P][H]. Gates: i, f, g, o. Borrowed for the call */
    float cell_clip, projection_clip; /* above 0 */
    bool from_end;                    /* it reads a window from its last place to its first */
    bool skips;                       /* its input is added to its output */
    bool drops_output;                /* dropout after it too; its input always has dropout */
    int64_t dropout_stream;           /* the first of its two streams of dropout masks */
    int item, stream, term;  /* the item of the activations, its stream, and its term of the
                                objective. Outside training, if that is not scored, a layer that
                                reads from the end leaves its rows unchanged */
    bp_carry *state, *cells; /* state carried from window to window, P and H columns. NULL: each
                                window begins with zeros. Borrowed */
} bp_projected_lstm_shape;

/** hidden [B * T][P] becomes the states [B * T][P], with its input added if it skips. Not split
 * over tensor ranks (bp_model_family.carries_state). Gradients stop at the start of a window. It
 * does not decode. Adds its params to the replicated group. Source: Sak et al. 2014, section 2.1,
 * without peepholes; the clips and their gradients are TensorFlow's (LSTMCell). */
void bp_projected_lstm_new(bp_block **out, const bp_nn *nn, const bp_projected_lstm_shape *shape,
                           bp_group *group);

/** The hidden layer of a feed-forward language model. */
typedef struct bp_feedforward_shape {
    int64_t E, H;           /* width of a word vector; units */
    int64_t words;          /* words that a row reads: its own, and those before it */
    bool direct;            /* the word vectors are output too, after the units */
    int64_t dropout_stream; /* the stream of its units' dropout masks */
    bp_carry *before; /* outside training, the words before a piece, (words - 1) E columns; NULL if
                         words = 1. Borrowed */
} bp_feedforward_shape;

/** hidden [B * T][E] becomes [B * T][H], or [H + words E] with direct connections: tanh(weight x +
 * bias), followed by x, the vectors of a row's words, latest first (0 before the window). Item 0
 * of the activations; not split over tensor ranks (bp_model_family.unlimited). Adds its params
 * "hidden.weight" [H][words E] and "hidden.bias" [H] to the replicated group. Source: Bengio et
 * al. 2003, section 2. */
void bp_feedforward_layer_new(bp_block **out, const bp_nn *nn, const bp_feedforward_shape *shape,
                              bp_group *group);

/** A prior network: logits are the logarithms of a Dirichlet's parameters. All 0: a softmax. */
typedef struct bp_dirichlet_shape {
    double precision; /* target in training for a text in the domain */
    double smoothing; /* the share of each class other than the text's */
    int64_t classes;  /* number of classes, over all tensor ranks; as a target: a text outside the
                         domain */
} bp_dirichlet_shape;

/** The input of a head, and its loss term. */
typedef struct bp_head_shape {
    const char *norm; /* the name of its norm: "ln_f"; borrowed. NULL if it has no norm */
    bp_param *bias;   /* of the logits, this rank's part of [V] (bp_vocab_share,
                         bp_group_add_vector_part); borrowed. NULL: none */
    bool rms;         /* by the root mean square */
    float epsilon;    /* 0: 1e-5 */
    int item, stream, term;
    bool sparse; /* some targets may be -1, or there is one per example: training uses only scored
                    rows */
    bool passes_on; /* other blocks follow, which read the same item */
    bool twice; /* two directions: it also reads another item, with as many positions and columns,
                   for another term */
    int second_item, second_term;
    float cap;   /* logits become cap tanh(logit / cap), for a single softmax; 0: no cap */
    float scale; /* of logits, of one softmax; 0: 1 */
    bool entmax; /* outcomes are the 1.5-entmax of logits, with its own loss
                    (math/kernels/entmax.h); only for a single softmax */
    bp_dirichlet_shape
        dirichlet;     /* the prior network's loss in training; only for a single softmax */
    int64_t softmaxes; /* number of mixed softmaxes (softmax_mixture_priv.h); 0, 1: one */
    bp_group *mixture; /* if softmaxes > 1: gets "head.states.weight" [K C][C] and
                          "head.priors.weight" [K][C], cut by rows over tensor ranks */
} bp_head_shape;
#define BP_HEAD_SOFTMAXES 64 /* the most */

/** Final norm and softmax cross-entropy over outcomes (a vocabulary, classes) that are split over
 * tensor ranks, by chunks of rows: all logits never exist at once. A target per place belongs to
 * that place's row, a target per example to the row of its first place. wte: this rank's rows of
 * [V][C], possibly tied to an embedding. In training forward keeps only its input; backward
 * computes the loss and all gradients at once. */
void bp_lm_head_new(bp_block **out, const bp_nn *nn, const bp_head_shape *shape, bp_param *wte,
                    bp_group *whole);

/** The head's pieces, for callers that need more than a target's probability. `head` is of
 * bp_lm_head_new. Local.
 *
 * The final norm: normed[rows][C] is the input of the vocabulary's matrix; may be in place. */
void bp_lm_head_norm(const bp_block *head, float *normed, const float *hidden, int64_t rows);
/** This rank's rows of the vocabulary as a linear map; NULL if it has no rows. Borrowed. */
const bp_weight *bp_lm_head_map(const bp_block *head);
/** The logits' bias for this rank's rows of the vocabulary; may be NULL. Borrowed. */
const float *bp_lm_head_bias(const bp_block *head);
/** logits[rows][V here] of rows after the norm, by a map with as many rows as the head's own. For
 * a mixture of softmaxes, and for entmax, the natural logs of the probabilities, whose softmax is
 * the distribution (below -200 where a probability is 0). Collective over nn->tensor of such
 * heads. */
void bp_lm_head_logits(const bp_block *head, const bp_weight *map, float *logits,
                       const float *hidden, int64_t rows);
/** The map as plain values [V here][C]. Borrowed. NULL if products read a copy, and keeping the
 * values was not requested before loading. */
const float *bp_lm_head_values(const bp_block *head);
void bp_lm_head_keep_values(const bp_block *head);

/** This rank's rows of a vocabulary: ceil(V / tensors) each, fewer on the last ranks (no
 * padding). */
void bp_vocab_share(const bp_nn *nn, int64_t V, int64_t *first, int64_t *count);

/** Scored rows are padded to a multiple of this before the vocabulary's products, so that these
 * see few shapes; `most` is the capacity. */
#define BP_HEAD_ROW_CLASS 64
int64_t bp_head_filled_rows(int64_t rows, int64_t most);

/** Over the whole vocabulary: max[rows] (and as many floats after it to work in), and
 * sums[2][rows]: of exp(logit - max), and the target's logit. Collective over `tensor`, with equal
 * targets; equal results on all ranks. */
void bp_logit_statistics(float *max, double *sums, const bp_logit_rows *in, MPI_Comm tensor);
/** sums[V here] += the columns of dlogits, in row order: a bias's gradient. Local. */
void bp_logit_column_sums(float *sums, const bp_operand *dlogits);
/** log p(target) of row r, from these: one formula, so that all callers get the same bits. */
double bp_logit_logprob(const float *max, const double *sums, int64_t rows, int64_t r);
/** The same for any outcome of row r, given its logit. */
double bp_logit_log_p(const float *max, const double *sums, int64_t r, double logit);
