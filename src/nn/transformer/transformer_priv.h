/* Shared by the files of a Transformer layer: its parts, its saved data, and the addition of a
 * branch to the residual stream. */
#pragma once

#include "math/attention/attention.h"
#include "math/attention/relative.h"
#include "math/kernels/kernels.h"
#include "nn/core/layers.h"
#include "nn/transformer/bottleneck.h"

#define INIT_STD      0.02F
#define PARALLEL_ROWS 64 /* fewer rows are too little work for several threads */

/* The branches of a layer, in their order; each begins with a norm, or ends with it (post_norm). */
typedef enum branch_kind { ATTENTION, CROSS, MLP, BRANCHES } branch_kind;

/* Its own products, whose weights an adapter may change. */
typedef enum layer_product {
    PRODUCT_QKV,
    PRODUCT_OUT,
    PRODUCT_UP,
    PRODUCT_DOWN,
    PRODUCT_CROSS_Q,
    PRODUCT_CROSS_KV,
    PRODUCT_CROSS_OUT,
    PRODUCTS
} layer_product;

/* Numbers of a layer's dropout masks, counted from shape.first_mask: of attention weights, and of
 * branches added to the residual stream. */
enum {
    DROPOUT_ATTENTION,
    DROPOUT_ATTENTION_SUM,
    DROPOUT_MLP_SUM,
    DROPOUT_CROSS,
    DROPOUT_CROSS_SUM
};

/** One expert of a layer: its gate with up, and down. */
typedef struct expert {
    bp_param *up_weight, *down_weight;
    bp_weight *up, *down;
} expert;

typedef struct layer {
    bp_block block;
    bp_layer_shape shape;
    int64_t D;              /* width of a head */
    int64_t Cl, Hl, Gl, Fl; /* this tensor rank's share of all heads' width, of heads, of heads of
                               keys, and of the inner width */
    int64_t first_head, first_key; /* of all heads, and of all heads of keys */
    bool repeats; /* other ranks' heads read some of its heads of keys, too (transformer_keys.c): */
    float *joined; /* weights and biases of q and of the keys and values that its heads read; */
    bool stale;    /* and they are to be gathered first */
    bp_param *key_weight[2], *key_bias[2];     /* of k and v: this rank's rows, by heads or not */
    bp_param *query_gain[2];                   /* of the norms of q and k; may be NULL */
    bp_param *gain[BRANCHES], *bias[BRANCHES]; /* of the norms */
    bp_param *closing_gain[BRANCHES], *closing_bias[BRANCHES]; /* of closing norms; may be NULL */
    bp_param *q_weight, *q_bias, *out_weight, *out_bias, *up_weight, *up_bias, *down_weight,
        *down_bias;                   /* biases may be NULL; gate precedes up */
    bp_weight *qkv, *out, *up, *down; /* q, k and v are contiguous: one product */
    bp_param *cross_q_weight, *cross_q_bias, *cross_k_weight, *cross_k_bias, *cross_out_weight,
        *cross_out_bias;
    bp_weight *cross_q, *cross_kv, *cross_out; /* k and v are contiguous */
    bp_param *router;                          /* [E][C] */
    expert *experts;                           /* [own_experts]; NULL: one MLP */
    int64_t first_expert, own_experts;         /* of those of all ranks of nn->expert */
    bp_param *apart_weight[2], *apart_bias[2]; /* of distances as keys, as queries; may be NULL */
    bp_weight *apart[2];
    bp_disentangled distances;           /* how many there are, for plans */
    bp_lora *adapted[PRODUCTS];          /* NULL: a product is not adapted */
    bp_bottleneck *bottleneck[BRANCHES]; /* after a branch; may be NULL */
} layer;

/* The k experts of each row: the choices of an expert are consecutive, in the order of rows. */
typedef struct routing {
    float *probabilities;      /* [rows][E] */
    float *shares;             /* [rows][k] of the chosen experts, in ascending order */
    int32_t *chosen;           /* [rows][k] */
    int32_t *order;            /* [rows * k]: row * k + which of its choices */
    int32_t *first;            /* [E + 1] where each expert's choices begin */
    int32_t *leaving, *coming; /* [ranks][own experts + 1] where experts are on several ranks: rows
                                  that go to each expert of a rank, and that come from it to each of
                                  this one's; and all rows that they are of */
} routing;

/* Kept by forward for backward: for all rows, rows = B * T, or for this rank's own (bp_nn_rows).
 * Outputs of norms and of the activation are recomputed. Without training the residual stream is
 * in place, and the rest is omitted. */
typedef struct saved {
    float *before[BRANCHES];                /* [own rows][C] input of each norm */
    float *mean[BRANCHES], *rstd[BRANCHES]; /* [own rows] */
    float *closed[BRANCHES];                /* [own rows][C] input of closing norms, */
    float *closed_mean[BRANCHES], *closed_rstd[BRANCHES]; /* [own rows] */
    bp_operand qkv;            /* [rows]: Hl heads of q, Gl of k, Gl of v */
    bp_operand attended;       /* [rows][Cl] */
    float *lse;                /* [B][Hl][T] */
    bp_operand up;             /* [rows][Fl] before the activation; gated [rows][2 Fl] */
    float *cross_q, *cross_kv; /* [rows][Hl][D], [source rows][2][Hl][D] */
    float *cross_attended, *cross_lse;
    float *source;  /* [own source rows][C] */
    float *entered; /* [own rows][C] the input of a layer that reads it without a norm */
    routing routes;
    float *balance; /* [E] in the stack's last layer: rows of the micro-batch that chose each, over
                       the whole stack */
    uint8_t *clipped; /* [rows][qkv columns]; NULL without clipping, or if not kept */
    float *query_before, *query_rstd;     /* inputs of the norms of q, then of k; may be NULL */
    bp_bottleneck_rows bottled[BRANCHES]; /* of own rows */
} saved;

/* Scratch of the forward pass that all branches share. */
typedef struct forward_work {
    bp_operand normed; /* [rows][C] of a norm */
    float *branch;     /* [rows][C] the branch to add to the residual stream */
} forward_work;

/* Scratch of a norm's backward pass. */
typedef struct norm_work {
    bp_operand normed; /* [rows][C] its output, made again */
    float *dnormed;    /* [rows][C] */
    float *sums;       /* also of the biases of the same branch */
} norm_work;

/* Scratch of a closing norm's backward pass. */
typedef struct closing_work {
    float *dy;   /* [own rows][C] of its output */
    float *sums; /* of its gain and bias */
} closing_work;

/* Scratch of the norms of queries and keys. */
typedef struct query_work {
    float *sums, *on_the_way, *gains;
} query_work;

/* Scratch of disentangled scores. */
typedef struct apart_work {
    bp_disentangled scores;
    int32_t *row;
    float *normed;                       /* [R][C] the table after its norm, */
    float *mean, *rstd;                  /* [R] */
    float *projected[2], *dprojected[2]; /* [R][Cl] as keys, as queries; gradients [B][R][Cl] */
    float *dnormed, *more, *sums;        /* [R][C] */
    bp_operand x, dy;                    /* of normed, and of dprojected */
} apart_work;

/* Scratch of attention's forward pass, in addition to forward_work. */
typedef struct attention_forward_work {
    bp_operand attended;
    query_work queries;
    float *bias; /* of scores, by distance; NULL: none */
    apart_work apart;
    void *scratch;
} attention_forward_work;

/* And of the MLP's. */
typedef struct mlp_forward_work {
    bp_operand active, up; /* up: as it is kept, or without memory (bp_linear_activation_alloc) */
} mlp_forward_work;

/* Scratch of the MLP's backward pass. */
typedef struct mlp_work {
    bp_operand dbranch, active, dup;
    bp_operand dactive; /* gated: [rows][Fl] */
    norm_work norm;
} mlp_work;

/* Scratch of attention's backward pass. */
typedef struct attention_work {
    bp_operand dbranch, attended, dqkv_operand;
    bp_operand dattended;            /* as saved.attended */
    bp_operand dqkv;                 /* as saved.qkv; its operand may overlap it */
    float *dbias;                    /* [qkv columns] where keys are repeated */
    float *score_bias, *dscore_bias; /* of scores, by distance; NULL: none */
    query_work queries;
    apart_work apart;
    norm_work norm;
    void *scratch;
} attention_work;

/** Has it more than an MLP? */
static inline bool layer_attends(const layer *self)
{
    return self->shape.H > 0;
}

static inline bool layer_is_gated(const layer *self)
{
    return self->shape.activation >= BP_SWIGLU;
}

/** Does a branch read the residual stream itself? */
static inline bool layer_reads_stream(const layer *self, branch_kind branch)
{
    return self->shape.post_norm || !self->gain[branch];
}

/** Columns of the products of q, k and v, and of gate and up. */
static inline int64_t layer_qkv_columns(const layer *self)
{
    return self->Cl + 2 * self->Gl * self->D;
}

static inline int64_t layer_up_columns(const layer *self)
{
    return layer_is_gated(self) ? 2 * self->Fl : self->Fl;
}

/** A pass as blocks of the source's stream see it. */
bp_pass layer_source_pass(const layer *self, const bp_pass *pass);
bp_rng_key layer_dropout_key(const layer *self, const bp_pass *pass, int which);
bp_attention_shape layer_attention_shape(const layer *self, const bp_pass *pass, bool cross,
                                         const bp_rng_key *key);
void *layer_alloc_attention(const layer *self, bp_arena *arena, const bp_pass *pass, bool cross);
/** Rotate queries and keys, or their gradients (back), by their positions. */
void layer_rotate(const layer *self, const bp_pass *pass, float *qkv, bool back);
/** The biases of scores by distance, computed in `bias`; NULL: none. */
void layer_set_bias(const layer *self, bp_attention_shape *shape, float *bias);
/** How distances are put into buckets. */
/** Do scores depend on distance? */
static inline bool layer_has_score_bias(const layer *self)
{
    return self->shape.relative || self->shape.alibi;
}
static inline bp_relative layer_relative(const layer *self)
{
    return (bp_relative){self->shape.relative_buckets, self->shape.relative_distance,
                         self->shape.sees_all};
}

/** `columns`: of the widest bias other than those of C. */
norm_work layer_alloc_norm(const layer *self, bp_arena *arena, int64_t rows, int64_t columns);
closing_work layer_alloc_closing(const layer *self, bp_arena *arena, int64_t own);
/** The operand of a branch's gradient dout: dout itself if it has all rows, without dropout or
 * rounding. */
bp_operand layer_alloc_dbranch(const layer *self, bp_arena *arena, const bp_pass *pass,
                               const float *dout);

/* transformer_memory.c: `kept` has the parts of the scratch that a pass keeps; these are not
 * allocated again. */
saved layer_alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass);
forward_work layer_alloc_forward(const layer *self, bp_arena *arena, const bp_pass *pass);
attention_forward_work layer_alloc_attention_forward(const layer *self, bp_arena *arena,
                                                     const bp_pass *pass, const saved *kept);
mlp_forward_work layer_alloc_mlp_forward(const layer *self, bp_arena *arena, const bp_pass *pass,
                                         const saved *kept);
/** dout: operands may overlap it. */
mlp_work layer_alloc_mlp(const layer *self, bp_arena *arena, const bp_pass *pass,
                         const float *dout);
attention_work layer_alloc_attention_backward(const layer *self, bp_arena *arena,
                                              const bp_pass *pass, const float *dout,
                                              const saved *kept);
size_t layer_saved_bytes(const bp_block *block, const bp_extent *most);
bool layer_repeat(const bp_block *block, const bp_extent *all, const bp_extent *some, void *to,
                  void *from);
size_t layer_scratch_bytes(const bp_block *block, const bp_extent *most, bool training);
bp_product_bytes layer_product_bytes(const bp_block *block, const bp_extent *most);

/* transformer_adapter.c */
void layer_adapt(bp_block *block, const bp_adapter *adapter, bp_group *split, bp_group *whole);
bp_err layer_bind_bottlenecks(layer *self);
/** The weights' own values, or those that an adapter changes. */
bp_err layer_bind_product(layer *self, layer_product which, bp_weight **out, float *base,
                          int64_t outs, int64_t ins);
void layer_refresh_adapted(layer *self);
/** The gradients of the `count` contiguous weights of a product, or of its adapter; skips frozen
 * ones. */
void layer_backward_weight(layer *self, bp_pass *pass, layer_product which, bp_param *weights,
                           int count, const bp_operand *dy, const bp_operand *x);
/** Scratch of backward, and of forward, for an adapter. */
size_t layer_adapted_scratch(const layer *self, int64_t rows);
size_t layer_bottled_scratch(const layer *self, int64_t rows);
void layer_add_adapted(const layer *self, int64_t rows, bp_product_bytes *bytes);
void layer_free_adapted(layer *self);
/* transformer_params.c */
void layer_add_params(layer *self, bp_group *split, bp_group *whole);

/** h = base + the branch in `work`, and work->normed = the norm that the next branch reads: of h,
 * or of base for parallel branches. With post_norm h = the norm of that sum, and work->normed = h;
 * with closing_only no norm, and work->normed = h. */
void layer_join(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                branch_kind branch, const float *base, float *h, branch_kind next);
/** h = base + the MLP's branch; with post_norm the norm of that. */
void layer_end(layer *self, bp_pass *pass, const saved *kept, forward_work *work, const float *base,
               float *h);
/** work->normed = the first branch's norm of x; x itself where branches read the stream. */
void layer_enter(layer *self, bp_pass *pass, const saved *kept, forward_work *work, const float *x);
bp_cached_shape layer_cached_shape(const layer *self, int64_t slots, int64_t capacity);
/** The gradient of a branch before its dropout, and its bias's, from that of the sum it was added
 * to. */
void layer_open_residual(const layer *self, const bp_pass *pass, const saved *kept,
                         const bp_operand *dbranch, const bp_bias_gradient *bias, const float *dout,
                         branch_kind branch);
/** dh = the gradient before the norm that follows a branch; dy: scratch [own rows][C] for the
 * gradient after it. */
void layer_open_norm(const layer *self, const bp_pass *pass, branch_kind branch, const saved *kept,
                     const norm_work *work, float *dh, float *dy);
/** `to` = the input of a branch's first product, recomputed. Collective over nn->tensor. */
void layer_fill_normed(const layer *self, const bp_pass *pass, branch_kind branch,
                       const saved *kept, const bp_operand *to);
/** The backward pass of a branch's norm, after its output's gradient is summed over tensor ranks;
 * where branches read the stream dh += only that sum. work->normed is the input of the branch's
 * first product. */
void layer_backward_norm(const layer *self, bp_pass *pass, branch_kind branch, const saved *kept,
                         const norm_work *work, float *dh);
/** The values and the gradient of a parameter; NULL if the layer lacks it. */
static inline const float *layer_value_of(const bp_param *param)
{
    return param ? param->value : NULL;
}
static inline float *layer_gradient_of(const bp_param *param)
{
    return param ? param->gradient : NULL;
}
/** NULL without such a bias. */
static inline const bp_bias_gradient *layer_wanted(const bp_bias_gradient *bias)
{
    return bias->sums ? bias : NULL;
}
/** For the projections that end a branch: a residual stream that no norm follows grows with their
 * number (Radford et al. 2019, section 2.3). */
float layer_residual_std(const layer *self);
/** The initial standard deviation of queries' weights. */
float layer_query_std(const layer *self);
/** The bias of the product that makes q, k and v; may be NULL. */
const float *layer_qkv_bias(const layer *self);
/** A bias after a row split belongs to the sum: one rank adds it. */
const float *layer_bias_once(const layer *self, const bp_param *bias);
/** The name of a parameter: buffer[BP_PARAM_NAME]. */
const char *layer_param_name(char *buffer, const layer *self, const char *part);

/* transformer_backward.c */
/** As bp_block_ops.backward. */
void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *memory);

/* transformer_keys.c: if `repeats`. keys_join returns the destination of gathered weights and
 * biases: values of qkv. keys_gather is collective over nn->tensor, and does nothing unless the
 * values have changed since the last call. */
float *keys_join(layer *self);
size_t keys_joined_bytes(const layer *self);
size_t keys_scratch(const layer *self, bool training);
void keys_gather(layer *self, bp_pass *pass);
/** Adds to the gradients of q, k and v, and of their biases unless dbias[qkv columns] is NULL. */
void keys_backward(layer *self, bp_pass *pass, const bp_operand *dqkv, const bp_operand *normed,
                   const float *dbias);
void keys_free(layer *self);

/* disentangled.c: scores by content and distance; no effect if the layer has no such scores.
 * Local. */
void apart_add_params(layer *self, bp_group *split);
bp_err apart_bind(layer *self);
void apart_refresh(layer *self);
void apart_free(layer *self);
apart_work apart_alloc(const layer *self, bp_arena *arena, const bp_pass *pass, bool backward);
/** Sets shape->apart to the table's projections, in `work`. */
void apart_forward(const layer *self, bp_attention_shape *shape, apart_work *work);
/** Where attention's backward pass writes gradients; and the gradients derived from them, after
 * those of q, k and v. */
void apart_give(const layer *self, bp_attention_gradients *to, const apart_work *work);
void apart_backward(layer *self, const bp_pass *pass, apart_work *work);

/* query_norms.c: norms of q and k before rotation; no effect if the layer has no such norms. In
 * place, of all rows; collective over nn->tensor. */
void query_add_params(layer *self, bp_group *group);
/* Copies, `times` times, of the data that a pass over some examples kept. */
void query_repeat(const layer *self, const bp_pass *some, const saved *to, const saved *from,
                  int64_t times);
void query_alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass, saved *kept);
query_work query_alloc(const layer *self, bp_arena *arena, const bp_pass *pass, bool backward);
void query_forward(const layer *self, const bp_pass *pass, float *qkv, const saved *kept,
                   const query_work *work);
void query_backward(const layer *self, const bp_pass *pass, float *dqkv, const saved *kept,
                    const query_work *work);

/* Clips after the norms, and of gradients: a clipped value has gradient 0. No effect if the layer
 * does not clip. */
void query_clip(const layer *self, float *qkv, int64_t rows, uint8_t *clipped);
void query_clip_backward(const layer *self, float *dqkv, int64_t rows, const uint8_t *clipped);

/* experts.c: the MLP's branch of a layer with experts. */
void experts_add_params(layer *self);
bp_err experts_bind(layer *self);
void experts_refresh(layer *self);
void experts_free(layer *self);
void experts_add_products(const layer *self, int64_t rows, bp_product_bytes *bytes);
/** Scratch of forward, or of backward. */
void experts_plan(const layer *self, bp_arena *arena, const bp_pass *pass, const saved *kept,
                  bool backward);
/** Are there experts of other ranks? */
static inline bool experts_travel(const layer *self)
{
    return bp_nn_experts(self->block.nn) > 1;
}
/** branch[rows][C] = the output of the experts for the rows of `normed`. */
void experts_forward(layer *self, bp_pass *pass, const saved *kept, const bp_operand *normed,
                     float *branch);
/** bp_block_ops.assist, of a layer whose experts are on several ranks. */
void experts_assist(layer *self, bp_arena *scratch);
/** As the MLP's; `balance`: gradients of the item, of own rows; may be NULL. */
void experts_backward(layer *self, bp_pass *pass, const saved *kept, const float *dout, float *dh,
                      const float *balance);

/* expert_router.c */
routing router_alloc(const layer *self, bp_arena *arena, int64_t rows);
/** Shares of the rows, and their order by experts. Collective: no. */
void router_forward(const layer *self, const routing *routes, const bp_operand *normed);
/** dlogits[rows][E] from dshares, and from dP[E], which times pass->balance_weight is added to the
 * gradient of each share before the choice, except for rows of padding; dP may be NULL. */
void router_backward(const layer *self, const bp_pass *pass, const saved *kept, float *dlogits,
                     const float *dshares, const float *dP);
/** dx[rows][C] += dlogits times the router's weights; and the gradient of these. */
void router_backward_input(const layer *self, float *dx, const float *dlogits, int64_t rows);
void router_backward_weight(const layer *self, const float *dlogits, const bp_operand *normed);

/* expert_balance.c: the item of activations that counts choices; no effect without it. */
/** Is row r of a pass no padding? */
bool balance_counts(const bp_pass *pass, int64_t r);
void balance_forward(const layer *self, const bp_pass *pass, const saved *kept,
                     bp_activations *activations);
/** Going backward, the item's gradient begins at the stack's last layer. */
void balance_begin(const layer *self, const bp_pass *pass, const saved *kept,
                   bp_activations *gradients);
/** The layer's part of the loss, and its load. */
void balance_add(const layer *self, bp_pass *pass, const saved *kept, const float *dP);

/* cross_attention.c: the branch that attends to the source. */
void cross_add_params(layer *self, bp_group *split, bp_group *whole);
void cross_repeat(const layer *self, const bp_pass *some, const saved *to, const saved *from,
                  int64_t times);
void cross_alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass, saved *kept);
size_t cross_scratch(const layer *self, const bp_pass *pass, bool training);
void cross_add_products(const layer *self, const bp_extent *most, bp_product_bytes *bytes);
bp_err cross_bind(layer *self);
void cross_refresh(layer *self);
void cross_forward(layer *self, bp_pass *pass, const saved *kept, forward_work *work,
                   const float *source, const float *base, float *h);
/** own: scratch [own rows][C] if norms follow branches. */
void cross_backward(layer *self, bp_pass *pass, const saved *kept, float *dh, float *own,
                    float *dsource);
void cross_free(layer *self);
/** Decoding: cache for the keys and values of sources, after those of sequences; and those of the
 * source that this pass reads, kept there. */
void cross_cache(const layer *self, bp_cache_need *need);
void cross_keep(layer *self, bp_pass *pass, const saved *kept, const float *source);
/** Floats that precede them in the cache. */
int64_t layer_cached_floats(const layer *self, int64_t slots, int64_t capacity);
