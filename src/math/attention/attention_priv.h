/* Shared by both implementations of attention: a head, its tiles, the positions of its dropout
 * words. */
#pragma once

#include "base/numbers.h"
#include "math/attention/attention.h"
#include "math/bf16/bf16_tiles.h"
#include "math/loops/loops.h"

#define QUERIES BP_TILE_QUERIES
#define KEYS    BP_TILE_KEYS

/* One head of one sequence. */
typedef struct bp_head {
    const bp_attention_shape *shape;
    const bp_loops *loops;
    const bp_bf16_tiles *tiles; /* NULL: float32 */
    bool halves, out_halves;    /* q, k, v and their gradients are bf16; out and dout are */
    const void *q, *k, *v;
    int64_t q_row, kv_row, out_row; /* values from position to position */
    int64_t keys;                   /* that are seen; K or less */
    int64_t first_place;            /* place of (query 0, key 0) in the stream of dropout words */
    int64_t place_row;              /* positions of a query: slot_K in whole blocks of 4 */
    float scale;
    const float *bias;                             /* by distance, as in attention.h; may be NULL */
    const float *position_keys, *position_queries; /* its columns of them; may be NULL */
    int64_t position_row;                          /* values from row to row */
    bp_mask mask;
} bp_head;

/* A head's parts of the results; NULL if a pass does not use them. */
typedef struct bp_head_results {
    void *out;  /* rows, out_row apart, as dout */
    float *lse; /* [T] */
    const void *dout;
    void *dq;      /* rows as q's, */
    void *dk, *dv; /* distance from position to position: */
    int64_t dkv_row;
    float *dbias;                              /* like bias, added to; NULL: not wanted */
    float *dposition_keys, *dposition_queries; /* rows as theirs */
} bp_head_results;

/** Tiles [first, last) of queries and keys that a call of the backward pass takes, and which
 * gradients it makes: those of the queries, which need all keys, or those of keys and values, which
 * need all queries, or both. */
typedef struct bp_head_range {
    int64_t first_query, last_query, first_key, last_key;
    bool of_queries, of_keys;
} bp_head_range;

/** Value `at` of an array of floats, or of bf16 if `halves`. */
static inline float *bp_float_at(const void *x, int64_t at)
{
    return (float *)x + at;
}

static inline void *bp_value_at(const void *x, int64_t at, bool halves)
{
    return halves ? (void *)((uint16_t *)x + at) : (void *)((float *)x + at);
}

/** In a window, how many keys before and after its own place a query sees. */
static inline int64_t bp_window_before(const bp_attention_shape *shape)
{
    return shape->causal ? shape->window - 1 : shape->window / 2;
}

static inline int64_t bp_window_after(const bp_attention_shape *shape)
{
    return shape->causal ? 0 : shape->window / 2;
}

/** Keys that some of the `queries` from q on see, and all before them. */
static inline int64_t bp_keys_seen(const bp_head *one, int64_t q, int64_t queries)
{
    const bp_attention_shape *shape = one->shape;
    bool ends = shape->causal || shape->window > 0;

    return ends ? bp_min(q + queries + bp_window_after(shape), one->keys) : one->keys;
}

/** How many more keys of the tile at k than its own number a query of the tile at q sees. */
static inline int64_t bp_visible(const bp_head *one, int64_t q, int64_t k)
{
    return one->shape->causal ? q - k : one->keys;
}

static inline int64_t bp_key_heads(const bp_attention_shape *shape)
{
    return shape->key_heads > 0 ? shape->key_heads : shape->H;
}

/** Heads that share a head of keys, possibly some on other ranks; and those of key head `kv` that
 * are here: [first, bp_group_first(shape, kv + 1)). */
static inline int64_t bp_group_heads(const bp_attention_shape *shape)
{
    return shape->group > 0 ? shape->group : shape->H / bp_key_heads(shape);
}

static inline int64_t bp_group_first(const bp_attention_shape *shape, int64_t kv)
{
    int64_t first = kv * bp_group_heads(shape) - shape->before;

    return first < 0 ? 0 : bp_min(first, shape->H);
}

/* The score of an unseen key: negligible next to any score, yet finite, so that a query that has
 * seen no key yet has a maximum. Its sums are scaled by 0 once it sees a key. */
#define BP_UNSEEN (-1e30f)

/** Has a query with this largest score seen no key? */
static inline bool bp_saw_nothing(float top)
{
    return top < BP_UNSEEN / 2;
}

/** The first key, in whole units, that the queries from q on see (padding sees some key too). And,
 * for `lanes` queries from q on, the masked scores[keys][lanes] of keys from k on outside a
 * query's window. */
static inline int64_t bp_first_seen(const bp_head *one, int64_t q, int64_t unit)
{
    int64_t first = one->shape->window > 0 ? q - bp_window_before(one->shape) : 0;

    return first > 0 ? bp_min(first, one->keys - 1) / unit * unit : 0;
}

static inline void bp_head_window(const bp_head *one, float *scores, int64_t lanes, int64_t q,
                                  int64_t k, int64_t keys)
{
    const bp_attention_shape *shape = one->shape;
    int64_t before = bp_window_before(shape),
            after = shape->causal ? INT64_MAX / 2 : bp_window_after(shape);

    if (shape->window == 0 || (k >= q + lanes - 1 - before && k + keys - 1 <= q + after))
        return;
    for (int64_t j = 0; j < keys; j++)
        for (int64_t i = 0; i < lanes; i++)
            if (k + j < q + i - before || k + j > q + i + after)
                scores[j * lanes + i] = BP_UNSEEN;
}

/* Scores are capped, in units of 1 / factor; `slopes`: as bp_cap. */
static inline void bp_head_cap(const bp_head *one, float *scores, float *slopes, int64_t n,
                               float factor)
{
    if (one->shape->cap > 0)
        bp_cap(one->loops, scores, slopes, factor * one->shape->cap, n);
}

/** Positions of keys. */
static inline int64_t bp_key_positions(const bp_attention_shape *shape)
{
    return shape->K > 0 ? shape->K : shape->T;
}

/** The biases of a key and the queries from q on, contiguous; and of their gradients. */
static inline int64_t bp_bias_at(const bp_head *one, int64_t q, int64_t k)
{
    return q - k + bp_key_positions(one->shape) - 1;
}

/* For `lanes` queries from q on: scores[keys][lanes] of those keys from k on += factor bias; and
 * the gradient of the first `rows` of them. */
static inline void bp_head_bias(const bp_head *one, float *scores, int64_t lanes, int64_t q,
                                int64_t k, int64_t keys, float factor)
{
    if (!one->bias)
        return;
    for (int64_t j = 0; j < keys; j++)
        one->loops->weighted_rows(scores + j * lanes, &factor,
                                  one->bias + bp_bias_at(one, q, k + j), 1, lanes, lanes);
}

static inline void bp_head_bias_gradient(const bp_head *one, float *dbias, const float *dscores,
                                         int64_t lanes, int64_t q, int64_t k, int64_t keys)
{
    int64_t rows = bp_min(lanes, one->shape->T - q);

    if (!dbias)
        return;
    for (int64_t j = 0; j < keys; j++) {
        int64_t last = bp_visible(one, q, k), i = j > last ? j - last : 0; /* sees the key */

        if (i < rows)
            one->loops->add(dbias + bp_bias_at(one, q + i, k + j), dscores + j * lanes + i,
                            rows - i);
    }
}

/** Factors [keys][QUERIES] of the tile's dropout. */
void bp_head_mask(const bp_head *one, float *mask, int64_t q, int64_t k, int64_t keys);
/** Initial maxima and sums, of queries that have seen no key. */
void bp_head_start(float *max, float *sum);
/** Write out and lse of the tile's queries: sums[D][QUERIES] over their sum. */
void bp_head_finish(const bp_head *one, const bp_head_results *results, float *sums,
                    const float *max, float *sum, int64_t q, int64_t rows);
/** Read lse and make delta[q] = sum over d of dout out, of the tile's queries: the normalisation's
 * correction of a gradient. `workspace` has [D][QUERIES]; douts[D][QUERIES] is dout transposed. */
void bp_head_statistics(const bp_head *one, const bp_head_results *results, float *lse,
                        float *delta, float *workspace, const float *douts, int64_t q,
                        int64_t rows);
/** Write dk, which is scaled here, and dv of the range: rows of `width`, the first is key 0's. */
void bp_head_store_gradients(const bp_head *one, const bp_head_results *results,
                             const bp_head_range *range, float *dkeys, const float *dvalues,
                             int64_t width);

/** The range's first key, in whole tiles; and one past the last key that some of the `rows`
 * queries from q on see. */
static inline int64_t bp_range_first(const bp_head_range *range)
{
    return range->first_key * KEYS;
}

static inline int64_t bp_range_last(const bp_head *one, const bp_head_range *range, int64_t q,
                                    int64_t rows)
{
    return bp_min(range->last_key * KEYS, bp_keys_seen(one, q, rows));
}

/** Query tiles [first, last) of one head, and a range of the backward pass; scratch in floats. */
void bp_head_forward_f32(const bp_head *one, const bp_head_results *results, int64_t first,
                         int64_t last, float *scratch);
void bp_head_backward_f32(const bp_head *one, const bp_head_results *results,
                          const bp_head_range *range, float *scratch);
int64_t bp_head_scratch_f32(const bp_attention_shape *shape);
void bp_head_forward_bf16(const bp_head *one, const bp_head_results *results, int64_t first,
                          int64_t last, float *scratch);
void bp_head_backward_bf16(const bp_head *one, const bp_head_results *results,
                           const bp_head_range *range, float *scratch);
int64_t bp_head_scratch_bf16(const bp_attention_shape *shape);
/* disentangled.c: for a head with disentangled scores, in separate scratch. First the data that
 * all queries share, then that of a tile's queries[D][QUERIES], already scaled. */
int64_t bp_apart_scratch(const bp_attention_shape *shape);
void bp_apart_begin(const bp_head *one, float *scratch, bool backward);
void bp_apart_queries(const bp_head *one, float *scratch, const float *queries, bool backward);
/** scores[keys][QUERIES] += the terms of positions; and their gradients. */
void bp_apart_scores(const bp_head *one, float *scratch, float *scores, int64_t q, int64_t k,
                     int64_t keys);
void bp_apart_score_gradients(const bp_head *one, float *scratch, const float *dscores, int64_t q,
                              int64_t k, int64_t keys);
/** After a tile's keys: dqueries[D][QUERIES] += their part, scaled later. After all tiles:
 * dkeys[K][Dp] += theirs, and the gradients of positions are written. */
void bp_apart_end_queries(const bp_head *one, float *scratch, float *dqueries,
                          const float *query_rows);
void bp_apart_end(const bp_head *one, const bp_head_results *results, float *scratch, float *dkeys);
/** Rows [first_row, last_row) of one head whose weights are entmax's, and the whole backward pass
 * of it. */
void bp_head_forward_entmax(const bp_head *one, const bp_head_results *results, int64_t first_row,
                            int64_t last_row, float *scratch);
void bp_head_backward_entmax(const bp_head *one, const bp_head_results *results, float *scratch);
int64_t bp_head_scratch_entmax(const bp_attention_shape *shape);
