/* Attention in tiles, forward and backward: no T x T matrix is ever stored.
 * Source: Dao et al. 2022 (FlashAttention), equations of section 3; the statistics kept are the
 * log-sum-exp of each row.
 *
 * Bits: the result at a position of a (sequence, head) does not depend on the threads, on other
 * data in the call, on keys after a sequence's length, or, when causal, on later positions.
 *
 * Dropout: the weight of (sequence s, head h, query t, key k), numbered in the global batch and
 * over all heads, is kept iff the word of bp_rng_block at place ((s all_heads + h) T + t) K4 + k
 * is at least dropout 2^32, and then multiplied by 1 / (1 - dropout); K4 is K rounded up to a
 * multiple of 4, and the word of a place is word place % 4 of block place / 4.
 *
 * In BF16 the products use bf16 if that is faster (AMX, or AVX512_BF16 at full speed), else
 * float32; scores and sums are always float32. The weights in bf16 products are rounded, so their
 * exponentials are within a relative 7.5e-5 there, a 52nd of that rounding.
 */
#pragma once

#include "base/rng.h"
#include "math/gemm/linear.h"
#include <stdint.h>

/** Disentangled scores: for query q and key k, with r = row[q - k + K - 1], the score is scale (q
 * k + q keys[r] + queries[r] k). Source: He et al. 2021, "DeBERTa", section 3.1. */
typedef struct bp_disentangled {
    int64_t rows;                /* R */
    const int32_t *row;          /* [bp_bias_floats], each below R */
    const float *keys, *queries; /* [R][H D], for the heads on this rank */
} bp_disentangled;

typedef struct bp_attention_shape {
    int64_t B, T, H, D; /* T: query positions; H: the heads on this rank */
    int64_t K;          /* key positions; 0: T, the queries' own */
    int64_t key_heads;  /* heads of keys and values; 0: H */
    int64_t group,
        before; /* head h reads key head (h + before) / group: `group` heads share one, and `before`
                   of head 0's group are on other ranks; group 0: H / key_heads */
    const int32_t *lengths; /* [B] number of first keys that are seen; NULL: all */
    bool causal;            /* a query sees its own position and earlier ones; K is T */
    int64_t window; /* only the last `window` of those, itself included; not causal: those up to
                       window / 2 away on either side, with K = T; 0: all */
    bool entmax; /* weights are the 1.5-entmax of scores (kernels/entmax.h), not their softmax: lse
                    then has its thresholds. Computed by plain loops */
    float scale; /* scale of scores; 0: 1/sqrt(D) */
    float cap;   /* scores become cap tanh(score / cap), before a bias; 0: no cap. Not with entmax,
                    nor, in BF16, with a bias */
    const float *bias; /* [H] rows of bp_bias_floats: head h adds element q - k + K - 1 of its row
                          to the score of (query q, key k); may be NULL */
    const bp_disentangled
        *apart;    /* disentangled scores, as above: not causal, without cap or entmax, with as many
                      key heads as heads, and K = T. Products are float32. May be NULL */
    float dropout; /* rate for the attention weights; 0: no dropout */
    const bp_rng_key *key;  /* key of the dropout masks */
    int64_t first_sequence; /* index of sequence 0 in the global batch, */
    int64_t first_head;     /* of head 0 among all_heads: the mask is a function of (sequence, head,
                               query, key position) */
    int64_t all_heads;
    int64_t slot_T, slot_K; /* query and key positions of a sequence in the global batch, by which
                               masks are numbered; 0: T and K */
} bp_attention_shape;

/** Queries [H][D], keys and values [key_heads][D] of a position; positions are this many values
 * apart. They are float32, or bf16 (halves), where bp_attention_takes_halves. */
typedef struct bp_attention_input {
    const void *q, *k, *v; /* for B sequences of T, and of K positions */
    int64_t q_row, kv_row;
    bool halves;
} bp_attention_input;
/** Buffers for their gradients, in the form of the input. */
typedef struct bp_attention_gradients {
    void *dq, *dk, *dv;
    float *dbias; /* [B][H] rows like the bias's; only with a bias; NULL: not wanted */
    float *dposition_keys, *dposition_queries; /* [B][R][H D]; only for disentangled scores */
} bp_attention_gradients;

/** Inputs laid out as [B][T][3][H][D], and as [B][T][H][D] with a separate [B][K][2][H][D]. */
static inline bp_attention_input bp_attention_of_qkv(const float *qkv, int64_t H, int64_t D)
{
    return (bp_attention_input){qkv, qkv + H * D, qkv + 2 * H * D, 3 * H * D, 3 * H * D, false};
}

/** Inputs of grouped heads, as [B][T]: q of H heads, k and v of key_heads. */
static inline bp_attention_input bp_attention_of_groups(const bp_operand *qkv, int64_t H,
                                                        int64_t key_heads, int64_t D)
{
    bool halves = qkv->form == BP_OPERAND_BF16;
    const char *q = qkv->data, *k = q + H * D * (halves ? 2 : 4);

    return (bp_attention_input){q,           k,           k + key_heads * D * (halves ? 2 : 4),
                                qkv->stride, qkv->stride, halves};
}

/** The pointers for gradients that are laid out as such an input. */
static inline bp_attention_gradients bp_attention_gradients_as(const bp_attention_input *in)
{
    return (bp_attention_gradients){.dq = (void *)in->q, .dk = (void *)in->k, .dv = (void *)in->v};
}

static inline bp_attention_input bp_attention_of_q_kv(const float *q, const float *kv, int64_t H,
                                                      int64_t D)
{
    return (bp_attention_input){q, kv, kv + H * D, H * D, 2 * H * D, false};
}

/** Floats of a head's row of biases. The ones after T + K - 1 are read but have no effect: they
 * must be finite. */
int64_t bp_bias_floats(const bp_attention_shape *shape);

/** Whether the input and its gradients may be bf16, and, independently, `out` and `dout`: products
 * use bf16, and query heads do not share keys. Results are then rounded once, and delta, a query's
 * sum of dout out, uses the rounded values. */
bool bp_attention_takes_halves(const bp_gemm *gemm, const bp_attention_shape *shape);
/** Shapes: out[B T][H D], float32 or bf16, lse[B][H][T]. A query that sees no key gets 0.
 *  scratch: bp_attention_scratch_bytes, uninitialised, aligned to 64 bytes. */
void bp_attention_forward(bp_gemm *gemm, const bp_operand *out, float *lse,
                          const bp_attention_input *in, const bp_attention_shape *shape,
                          void *scratch);
/** Gradients, in rows like the input's, given dout, and out (in the form and stride of dout) and
 * lse as forward left them. The gradients are overwritten; those of keys after a length are 0. */
void bp_attention_backward(bp_gemm *gemm, const bp_attention_gradients *to, const bp_operand *dout,
                           const bp_operand *out, const float *lse, const bp_attention_input *in,
                           const bp_attention_shape *shape, void *scratch);
/** The weights of head h of sequence b, before dropout, as out[T][K]: 0 where a query does not see
 * a key. `lse` as forward left it. Plain loops: for inspection, not for training. */
void bp_attention_weights(float *out, const bp_attention_input *in, const float *lse,
                          const bp_attention_shape *shape, int64_t b, int64_t h);
/** Bytes for the threads set now (bp_math_set_threads comes first). */
size_t bp_attention_scratch_bytes(bp_precision precision, const bp_attention_shape *shape);
