/* Attention's passes between bf16 products, in AVX-512 with AVX512_BF16's conversion.
 * Source: a maximum that grows only where it must is FlashAttention-4's (Zadouri, Hoehnerbach, Shah
 * et al.).
 */
#include "math/bf16/bf16_passes.h"
#include "math/bf16/bf16_words_priv.h"
#include <immintrin.h>
#include <string.h>

#define LINE_BYTES    64
#define AHEAD         16
#define ALWAYS        static inline __attribute__((always_inline))

#define GROWTH        8.0f /* weights stay below 2^8 */
#define FLOOR_EXACTLY (_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)

/* 2^t within a relative 7.5e-5, a 52nd of bf16's half unit 2^-8: the minimax polynomial of 2^f on
 * [0, 1) by Remez's exchange, f = t - floor(t). Below 2^-149 it is 0; NaN stays NaN. */
ALWAYS __m512 power_of_2(__m512 t)
{
    __m512 f = _mm512_reduce_ps(t, FLOOR_EXACTLY);
    __m512 p = _mm512_set1_ps(0.0780245226404795f);

    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.22606715542748315f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6958335404947528f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.9999252185627154f));
    return _mm512_scalef_ps(p, t);
}

/* Two vectors to 32 bf16: `low` in the lower half. */
ALWAYS __m512i rounded(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* Word i is of even[i], and of odd[i] in its upper half. */
ALWAYS __m512i paired(__m512 even, __m512 odd)
{
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    return _mm512_permutexvar_epi16(order, rounded(even, odd));
}

/* The lanes below n. */
ALWAYS __mmask16 lanes_below(int64_t n)
{
    return n <= 0 ? 0 : n >= LANES ? 0xffff : (__mmask16)((1u << n) - 1u);
}

/* 16 values of row r from column c on, zeros past the end; `halves` is x's and a constant where
 * this is inlined. */
ALWAYS __m512 part_of_row(const bp_bf16_rows *x, int64_t r, int64_t c, bool halves)
{
    __mmask16 some = r < x->rows ? lanes_below(x->D - c) : 0;
    int64_t at = r * x->row + c;

    if (!halves)
        return _mm512_maskz_loadu_ps(some, (const float *)x->x + at);
    __m256i words = _mm256_maskz_loadu_epi16(some, (const uint16_t *)x->x + at);
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16);
}

/* A head's rows are interleaved with other heads', so each is on its own page, where hardware does
 * not prefetch: prefetch the row AHEAD of the r-th, which need not exist. */
ALWAYS void fetch_ahead(const bp_bf16_rows *x, int64_t r)
{
    int64_t bytes = x->halves ? sizeof(uint16_t) : sizeof(float);
    const char *row = (const char *)x->x + (r + AHEAD) * x->row * bytes;

    for (int64_t at = 0; at < x->D * bytes; at += LINE_BYTES)
        _mm_prefetch(row + at, _MM_HINT_T0);
}

static int64_t blocks_of(int64_t D)
{
    return (D + 31) / 32 * 32;
}

ALWAYS void pack_rows_of(uint16_t *y, const bp_bf16_rows *x, int64_t all, bool halves)
{
    int64_t width = blocks_of(x->D);

    for (int64_t r = 0; r < all; r++) {
        fetch_ahead(x, r);
        for (int64_t c = 0; c < width; c += 2 * LANES)
            _mm512_storeu_si512(y + r * width + c, rounded(part_of_row(x, r, c, halves),
                                                           part_of_row(x, r, c + LANES, halves)));
    }
}

static void pack_rows(uint16_t *y, const bp_bf16_rows *x, int64_t all)
{
    if (x->halves)
        pack_rows_of(y, x, all, true);
    else
        pack_rows_of(y, x, all, false);
}

ALWAYS void pack_row_pairs_of(uint32_t *y, const bp_bf16_rows *x, int64_t all, bool halves)
{
    int64_t width = blocks_of(x->D);

    for (int64_t r = 0; r < all; r += 2) {
        fetch_ahead(x, r);
        fetch_ahead(x, r + 1);
        for (int64_t c = 0; c < width; c += LANES)
            _mm512_storeu_si512(y + r / 2 * width + c, paired(part_of_row(x, r, c, halves),
                                                              part_of_row(x, r + 1, c, halves)));
    }
}

static void pack_row_pairs(uint32_t *y, const bp_bf16_rows *x, int64_t all)
{
    if (x->halves)
        pack_row_pairs_of(y, x, all, true);
    else
        pack_row_pairs_of(y, x, all, false);
}

ALWAYS void pack_transposed_pairs_of(uint32_t *y, const bp_bf16_rows *x, float scale, bool halves)
{
    const __m512 factor = _mm512_set1_ps(scale);
    int64_t width = blocks_of(x->D);
    __m512i v[LANES];

    for (int64_t r = 0; r < BP_PANEL; r += LANES) {
        for (int i = 0; i < LANES; i++)
            fetch_ahead(x, r + i);
        for (int64_t c = 0; c < width; c += 2 * LANES) {
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                v[i] = rounded(_mm512_mul_ps(part_of_row(x, r + i, c, halves), factor),
                               _mm512_mul_ps(part_of_row(x, r + i, c + LANES, halves), factor));
            transpose(v);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                _mm512_storeu_si512(y + (c / 2 + i) * BP_PANEL + r, v[i]);
        }
    }
}

static void pack_transposed_pairs(uint32_t *y, const bp_bf16_rows *x, float scale)
{
    if (x->halves)
        pack_transposed_pairs_of(y, x, scale, true);
    else
        pack_transposed_pairs_of(y, x, scale, false);
}

ALWAYS void pack_transposed_rows_of(uint16_t *y, const bp_bf16_rows *x, int64_t all, bool halves)
{
    int64_t width = blocks_of(x->D);
    __m512i v[LANES];

    for (int64_t r = 0; r < all; r += 2 * LANES) {
        for (int i = 0; i < 2 * LANES; i++)
            fetch_ahead(x, r + i);
        for (int64_t c = 0; c < width; c += LANES) {
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                v[i] = paired(part_of_row(x, r + 2 * i, c, halves),
                              part_of_row(x, r + 2 * i + 1, c, halves));
            transpose(v);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                _mm512_storeu_si512(y + (c + i) * all + r, v[i]);
        }
    }
}

static void pack_transposed_rows(uint16_t *y, const bp_bf16_rows *x, int64_t all)
{
    if (x->halves)
        pack_transposed_rows_of(y, x, all, true);
    else
        pack_transposed_rows_of(y, x, all, false);
}

/* Lanes of the `half`-th 16 queries that see key k. */
ALWAYS __mmask16 lanes_that_see(int64_t k, int64_t keys, int64_t visible, int half)
{
    return k < keys ? (__mmask16)~lanes_below(k - visible - half * LANES) : 0;
}

/* Keys, in pairs, that all queries see. */
ALWAYS int64_t keys_all_see(int64_t keys, int64_t visible)
{
    int64_t all = keys <= visible ? keys : visible + 1;

    return all < 0 ? 0 : all / 2 * 2;
}

/* Maxima of the scores: four accumulators for each half, since a maximum takes four cycles. */
ALWAYS void maxima(const bp_panel_softmax *p, __m512 most[2])
{
    int64_t k = 0, all = keys_all_see(p->keys, p->visible) / 4 * 4;
    __m512 part[4][2];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        part[i / 2][i % 2] = most[i % 2];
    for (; k < all; k += 4)
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++)
            part[i / 2][i % 2] =
                _mm512_max_ps(part[i / 2][i % 2],
                              _mm512_loadu_ps(p->scores + (k + i / 2) * BP_PANEL + i % 2 * LANES));
    for (; k < p->keys; k++)
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
            part[0][half] = _mm512_mask_max_ps(
                part[0][half], lanes_that_see(k, p->keys, p->visible, half), part[0][half],
                _mm512_loadu_ps(p->scores + k * BP_PANEL + half * LANES));
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
        most[half] = _mm512_max_ps(_mm512_max_ps(part[0][half], part[1][half]),
                                   _mm512_max_ps(part[2][half], part[3][half]));
}

static bool raise_tops(const bp_panel_softmax *p)
{
    __m512 most[2] = {_mm512_loadu_ps(p->top), _mm512_loadu_ps(p->top + LANES)};
    bool grown = false;

    maxima(p, most);
    for (int64_t at = 0; at < BP_PANEL; at += LANES) {
        __m512 old = _mm512_loadu_ps(p->top + at), top = most[at / LANES];
        __m512 factor = _mm512_set1_ps(1.0f);
        __mmask16 grows =
            _mm512_cmp_ps_mask(top, _mm512_add_ps(old, _mm512_set1_ps(GROWTH)), _CMP_GT_OQ);
        if (grows) {
            factor = _mm512_mask_mov_ps(factor, grows, power_of_2(_mm512_sub_ps(old, top)));
            _mm512_storeu_ps(p->top + at, _mm512_mask_mov_ps(old, grows, top));
            _mm512_storeu_ps(p->sum + at, _mm512_mul_ps(_mm512_loadu_ps(p->sum + at), factor));
            grown = true;
        }
        _mm512_storeu_ps(p->factor + at, factor);
    }
    return grown;
}

/* Weights of keys k and k + 1; `masked` and `dropped` are constants where this is inlined. */
ALWAYS void weigh_pair(const bp_panel_softmax *p, int64_t k, const __m512 top[2], __m512 sum[2],
                       bool masked, bool dropped)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        const float *scores = p->scores + k * BP_PANEL + half * LANES;
        __m512 even = power_of_2(_mm512_sub_ps(_mm512_loadu_ps(scores), top[half])),
               odd = power_of_2(_mm512_sub_ps(_mm512_loadu_ps(scores + BP_PANEL), top[half]));
        if (masked) {
            even = _mm512_maskz_mov_ps(lanes_that_see(k, p->keys, p->visible, half), even);
            odd = _mm512_maskz_mov_ps(lanes_that_see(k + 1, p->keys, p->visible, half), odd);
        }
        sum[half] = _mm512_add_ps(sum[half], _mm512_add_ps(even, odd));
        if (dropped) {
            even = _mm512_maskz_mov_ps(p->kept[k][half], even);
            odd = _mm512_maskz_mov_ps(p->kept[k + 1][half], odd);
        }
        _mm512_storeu_si512(p->weights + k / 2 * BP_PANEL + half * LANES, paired(even, odd));
    }
}

ALWAYS void weigh(const bp_panel_softmax *p, bool dropped)
{
    int64_t k = 0, all = keys_all_see(p->keys, p->visible), end = blocks_of(p->keys);
    __m512 top[2] = {_mm512_loadu_ps(p->top), _mm512_loadu_ps(p->top + LANES)};
    __m512 sum[2] = {_mm512_loadu_ps(p->sum), _mm512_loadu_ps(p->sum + LANES)};

    for (; k < all; k += 2)
        weigh_pair(p, k, top, sum, false, dropped);
    for (; k < end; k += 2)
        weigh_pair(p, k, top, sum, true, dropped);
    _mm512_storeu_ps(p->sum, sum[0]);
    _mm512_storeu_ps(p->sum + LANES, sum[1]);
}

static bool softmax(const bp_panel_softmax *panel)
{
    bool grown = raise_tops(panel);

    if (panel->kept)
        weigh(panel, true);
    else
        weigh(panel, false);
    return grown;
}

/* 1 - (score / cap)^2 of capped scores; one that no query sees counts as -cap. */
ALWAYS __m512 slope_of(__m512 score, float cap)
{
    const __m512 one = _mm512_set1_ps(1);
    __m512 share = _mm512_max_ps(_mm512_mul_ps(score, _mm512_set1_ps(1 / cap)),
                                 _mm512_sub_ps(_mm512_setzero_ps(), one));

    return _mm512_fnmadd_ps(share, share, one);
}

/* One key of the backward pass: its row of dscores, rounded. */
ALWAYS __m512i key_gradient(const bp_panel_gradient *p, int64_t k, const __m512 lse[2],
                            const __m512 delta[2], bool masked, bool dropped, bool capped)
{
    const __m512 factor = _mm512_set1_ps(p->kept_factor);
    __m512 weight[2], dscore[2];

#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        int64_t at = k * BP_PANEL + half * LANES;
        __m512 dweight = _mm512_loadu_ps(p->dweights + at);
        weight[half] = power_of_2(_mm512_sub_ps(_mm512_loadu_ps(p->scores + at), lse[half]));
        if (masked)
            weight[half] =
                _mm512_maskz_mov_ps(lanes_that_see(k, p->keys, p->visible, half), weight[half]);
        if (dropped)
            dweight = _mm512_maskz_mul_ps(p->kept[k][half], dweight, factor);
        dscore[half] = _mm512_mul_ps(weight[half], _mm512_sub_ps(dweight, delta[half]));
        if (capped)
            dscore[half] =
                _mm512_mul_ps(dscore[half], slope_of(_mm512_loadu_ps(p->scores + at), p->cap));
        if (masked) /* unseen elements may have any content */
            dscore[half] =
                _mm512_maskz_mov_ps(lanes_that_see(k, p->keys, p->visible, half), dscore[half]);
        if (dropped)
            weight[half] = _mm512_maskz_mov_ps(p->kept[k][half], weight[half]);
    }
    __m512i row = rounded(dscore[0], dscore[1]);
    _mm512_storeu_si512(p->weights + k * p->row, rounded(weight[0], weight[1]));
    _mm512_storeu_si512(p->dscores + k * p->row, row);
    return row;
}

/* Interleaving within 128 bits puts queries 0-3, 8-11, 16-19, 24-27 first: the panel's order. */
ALWAYS void gradients(const bp_panel_gradient *p, bool dropped, bool capped)
{
    int64_t all = keys_all_see(p->keys, p->visible), end = blocks_of(p->keys);
    const __m512 lse[2] = {_mm512_loadu_ps(p->lse), _mm512_loadu_ps(p->lse + LANES)};
    const __m512 delta[2] = {_mm512_loadu_ps(p->delta), _mm512_loadu_ps(p->delta + LANES)};

    for (int64_t k = 0; k < end; k += 2) {
        __m512i even, odd;
        if (k < all) {
            even = key_gradient(p, k, lse, delta, false, dropped, capped);
            odd = key_gradient(p, k + 1, lse, delta, false, dropped, capped);
        } else {
            even = key_gradient(p, k, lse, delta, true, dropped, capped);
            odd = key_gradient(p, k + 1, lse, delta, true, dropped, capped);
        }
        _mm512_storeu_si512(p->pairs + k / 2 * BP_PANEL, _mm512_unpacklo_epi16(even, odd));
        _mm512_storeu_si512(p->pairs + k / 2 * BP_PANEL + LANES, _mm512_unpackhi_epi16(even, odd));
    }
}

static void gradient(const bp_panel_gradient *panel)
{
    if (panel->cap > 0)
        panel->kept ? gradients(panel, true, true) : gradients(panel, false, true);
    else if (panel->kept)
        gradients(panel, true, false);
    else
        gradients(panel, false, false);
}

static void scale_panel(float *y, const float *factors, int64_t rows)
{
    const __m512 low = _mm512_loadu_ps(factors), high = _mm512_loadu_ps(factors + LANES);

    for (int64_t r = 0; r < rows; r++, y += BP_PANEL) {
        _mm512_storeu_ps(y, _mm512_mul_ps(_mm512_loadu_ps(y), low));
        _mm512_storeu_ps(y + LANES, _mm512_mul_ps(_mm512_loadu_ps(y + LANES), high));
    }
}

/* The query in a column of the panel's order. */
static int64_t query_of(int64_t column)
{
    return column % LANES / 4 * 8 + column / LANES * 4 + column % 4;
}

/* Stores some of the 16 floats at y; `past`: bypasses the caches if they are a line. Rows of one
 * head are far apart, so fetching their lines dominates. So gradients, three rows for each row of
 * output, bypass the caches, and the output's lines are prefetched immediately. */
ALWAYS void store_part(float *y, __mmask16 some, __m512 x, bool past)
{
    if (past && some == 0xffff && (uintptr_t)y % LINE_BYTES == 0)
        _mm512_stream_ps(y, x);
    else
        _mm512_mask_storeu_ps(y, some, x);
}

/* Stores the first n of 32 values at y, rounded; may bypass the caches too. */
ALWAYS void store_halves(uint16_t *y, int64_t n, __m512 low, __m512 high, bool past)
{
    if (past && n >= 2 * LANES && (uintptr_t)y % LINE_BYTES == 0)
        _mm512_stream_si512((void *)y, rounded(low, high));
    else
        _mm512_mask_storeu_epi16(y, first_halves(n), rounded(low, high));
}

/* Columns [d, d + 32) of 16 queries from q on, transposed. */
ALWAYS void turn_square(__m512i v[2][LANES], const float *x, int64_t d, int64_t q)
{
#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
            v[part][i] = _mm512_loadu_si512(x + (d + part * LANES + i) * BP_PANEL + q);
        transpose(v[part]);
    }
}

ALWAYS void turn_back_of(void *y, int64_t y_row, const float *x, const float *factors,
                         const bp_bf16_rows *shape, bool in_panel_order, bool halves)
{
    __m512i v[2][LANES];

    for (int64_t d = 0; d < shape->D; d += 2 * LANES)
        for (int64_t q = 0; q < BP_PANEL; q += LANES) {
            turn_square(v, x, d, q);
            for (int i = 0; i < LANES; i++) {
                int64_t r = in_panel_order ? query_of(q + i) : q + i, at = r * y_row + d,
                        n = shape->D - d;
                if (r >= shape->rows)
                    continue;
                __m512 factor = _mm512_set1_ps(factors[r]),
                       low = _mm512_mul_ps((__m512)v[0][i], factor),
                       high = _mm512_mul_ps((__m512)v[1][i], factor);
                if (halves) {
                    store_halves((uint16_t *)y + at, n, low, high, in_panel_order);
                    continue;
                }
                store_part((float *)y + at, lanes_below(n), low, in_panel_order);
                store_part((float *)y + at + LANES, lanes_below(n - LANES), high, in_panel_order);
            }
        }
}

static void turn_back(void *y, int64_t y_row, const float *x, const float *factors,
                      const bp_bf16_rows *shape, bool in_panel_order)
{
    int64_t bytes = shape->halves ? sizeof(uint16_t) : sizeof(float);

    for (int64_t r = 0; !in_panel_order && r < shape->rows; r++)
        for (int64_t at = 0; at < shape->D * bytes; at += LINE_BYTES)
            __builtin_prefetch((char *)y + r * y_row * bytes + at, 1, 3);
    if (shape->halves)
        turn_back_of(y, y_row, x, factors, shape, in_panel_order, true);
    else
        turn_back_of(y, y_row, x, factors, shape, in_panel_order, false);
    if (in_panel_order)
        _mm_sfence();
}

static void scaled_rows(void *y, int64_t y_row, const float *x, float factor,
                        const bp_bf16_rows *shape)
{
    const __m512 by = _mm512_set1_ps(factor);
    int64_t width = blocks_of(shape->D);

    for (int64_t r = 0; r < shape->rows; r++)
        for (int64_t d = 0; d < shape->D; d += 2 * LANES) {
            __m512 low = _mm512_mul_ps(_mm512_loadu_ps(x + r * width + d), by),
                   high = _mm512_mul_ps(_mm512_loadu_ps(x + r * width + d + LANES), by);
            int64_t at = r * y_row + d, n = shape->D - d;
            if (shape->halves) {
                store_halves((uint16_t *)y + at, n, low, high, true);
                continue;
            }
            store_part((float *)y + at, lanes_below(n), low, true);
            store_part((float *)y + at + LANES, lanes_below(n - LANES), high, true);
        }
    _mm_sfence();
}

ALWAYS void row_products_of(float *delta, const void *a, const bp_bf16_rows *x, bool halves)
{
    bp_bf16_rows other = {a, x->rows, x->D, x->row, x->halves};

    for (int64_t r = 0; r < BP_PANEL; r++) {
        __m512 sum = _mm512_setzero_ps();
        fetch_ahead(x, r);
        fetch_ahead(&other, r);
        for (int64_t d = 0; d < x->D; d += LANES)
            sum = _mm512_fmadd_ps(part_of_row(x, r, d, halves), part_of_row(&other, r, d, halves),
                                  sum);
        delta[r] = _mm512_reduce_add_ps(sum);
    }
}

static void row_products(float *delta, const void *a, const bp_bf16_rows *x)
{
    if (x->halves)
        row_products_of(delta, a, x, true);
    else
        row_products_of(delta, a, x, false);
}

/* The ten rounds of Philox4x32 on the counters of 32 queries: in word[j][i], at 64-bit lane l, the
 * low half is word j of query 16 (i / 2) + 2 l + i % 2. */
ALWAYS void philox(__m512i word[4][4], const bp_rng_key *key)
{
    const __m512i multiplier0 = _mm512_set1_epi64(0xD2511F53),
                  multiplier1 = _mm512_set1_epi64(0xCD9E8D57);
    uint32_t k0 = key->key[0], k1 = key->key[1];

    for (int round = 0; round < 10; round++) {
        const __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i p0 = _mm512_mul_epu32(word[0][i], multiplier0),
                    p1 = _mm512_mul_epu32(word[2][i], multiplier1);
            word[0][i] =
                _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), word[1][i], key0, 0x96);
            word[2][i] =
                _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), word[3][i], key1, 0x96);
            word[1][i] = p1;
            word[3][i] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static void mask_panel(bp_panel_bits *kept, const bp_mask *mask, int64_t keys, int64_t first,
                       int64_t stride)
{
    const __m512i threshold = _mm512_set1_epi32((int)mask->threshold);
    __m512i block[4], word[4][4];

    for (int i = 0; i < 4; i++)
        for (int l = 0; l < 8; l++)
            ((long long *)&block[i])[l] = (first + (16 * (i / 2) + 2 * l + i % 2) * stride) / 4;
    for (int64_t k = 0; k < keys; k += 4) {
        for (int i = 0; i < 4; i++) {
            word[0][i] = _mm512_add_epi64(block[i], _mm512_set1_epi64(k / 4));
            word[1][i] = _mm512_srli_epi64(word[0][i], 32);
            word[2][i] = _mm512_set1_epi64(mask->key->stream[0]);
            word[3][i] = _mm512_set1_epi64(mask->key->stream[1]);
        }
        philox(word, mask->key);
        for (int j = 0; j < 4; j++)
            for (int half = 0; half < 2; half++) {
                __m512i all = _mm512_mask_shuffle_epi32(word[j][2 * half], 0xaaaa,
                                                        word[j][2 * half + 1], 0xa0);
                kept[k + j][half] = _mm512_cmpge_epu32_mask(all, threshold);
            }
    }
}

const bp_bf16_passes bp_bf16_passes_avx512 = {
    .rows = pack_rows,
    .row_pairs = pack_row_pairs,
    .transposed_pairs = pack_transposed_pairs,
    .transposed_rows = pack_transposed_rows,
    .softmax = softmax,
    .gradient = gradient,
    .scale_panel = scale_panel,
    .turn_back = turn_back,
    .scaled_rows = scaled_rows,
    .row_products = row_products,
    .mask = mask_panel,
};
