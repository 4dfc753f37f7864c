/* Blocks of weight gradients by AMX: tiles 0 to 3 hold the sums, the left side comes from L2 by
 * stream loads, as does the part of the right side that does not fit L1. */
#include "math/bf16/amx_priv.h"
#include "math/bf16/bf16_gradient_priv.h"

#define PLAIN 20 /* steps of the right side that stay in L1 */
#define WAIT  2  /* steps from the tiles' stores on to the first rows */

/* Writes row r of finished sums from quarters to its destination. */
ALWAYS void gradient_row(const bp_gradient_block *t, int64_t r, bool past)
{
    const float *from = t->before + r / TILE * 2 * TILE * TILE + r % TILE * TILE;
    float *c = t->c + r * t->c_row;
    __m512 left = _mm512_load_ps(from), right = _mm512_load_ps(from + TILE * TILE);

    if (past) {
        _mm512_stream_ps(c, left);
        _mm512_stream_ps(c + TILE, right);
    } else {
        _mm512_storeu_ps(c, left);
        _mm512_storeu_ps(c + TILE, right);
    }
}

/* A block's prefetches and writes: constants. */
typedef struct gradient_form {
    int start_rows, rows; /* rows of the next start, and to be written, per step */
    bool sums, past;
} gradient_form;

ALWAYS void gradient_fetch(const bp_gradient_block *t, gradient_form f, int64_t step)
{
#pragma GCC unroll 2
    for (int i = 0; i < f.start_rows; i++) {
        const float *row = t->next_start + (step * f.start_rows + i) * t->c_row;
        _mm_prefetch((const char *)row, _MM_HINT_T1);
        _mm_prefetch((const char *)(row + TILE), _MM_HINT_T1);
    }
#pragma GCC unroll 3
    for (int i = 0; i < BP_GRADIENT_LINES; i++)
        _mm_prefetch((const char *)(t->next_b + (step * BP_GRADIENT_LINES + i) * TILE),
                     _MM_HINT_T1);
    if (f.sums) /* a block's 64 lines in 16 steps */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            _mm_prefetch((const char *)(t->next_sums + (step * 4 + i) * TILE), _MM_HINT_T0);
}

/* Stores quarter i of the previous sums, and starts that of this block. */
#define BEGIN_QUARTER(i, left, right)                                                              \
    do {                                                                                           \
        if (t->before)                                                                             \
            _tile_stored(i, t->before + (i)*TILE * TILE, 4 * TILE);                                \
        if (!t->start)                                                                             \
            _tile_zero(i);                                                                         \
        else if (t->start_row)                                                                     \
            _tile_stream_loadd(i, t->start + (i) / 2 * TILE * t->start_row + (i) % 2 * TILE,       \
                               t->start_row * 4);                                                  \
        else                                                                                       \
            _tile_loadd(i, t->start + (i)*TILE * TILE, 4 * TILE);                                  \
        _tile_dpbf16ps(i, left, right);                                                            \
    } while (0)

ALWAYS void gradient_step(const bp_gradient_block *t, gradient_form f, int64_t step, bool stream)
{
    const uint32_t *a = t->a + step * STEP_WORDS, *b = t->b + step * STEP_WORDS;

    if (stream)
        _tile_stream_loadd(6, b, 8 * TILE);
    else
        _tile_loadd(6, b, 8 * TILE);
    _tile_stream_loadd(4, a, 4 * TILE);
    _tile_stream_loadd(5, a + TILE * TILE, 4 * TILE);
    if (stream)
        _tile_stream_loadd(7, b + TILE, 8 * TILE);
    else
        _tile_loadd(7, b + TILE, 8 * TILE);
    gradient_fetch(t, f, step);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* Up to `count` rows, from row r on. */
ALWAYS void gradient_write(const bp_gradient_block *t, gradient_form f, int64_t r, int64_t count)
{
    for (int64_t i = 0; i < count && r + i < 2 * TILE; i++)
        gradient_row(t, r + i, f.past);
}

ALWAYS void block_of(const bp_gradient_block *t, gradient_form f)
{
    int64_t plain = t->steps < PLAIN ? t->steps : PLAIN, step, r = 0;

    _tile_stream_loadd(4, t->a, 4 * TILE);
    _tile_loadd(6, t->b, 8 * TILE);
    _tile_loadd(7, t->b + TILE, 8 * TILE);
    _tile_stream_loadd(5, t->a + TILE * TILE, 4 * TILE);
    BEGIN_QUARTER(0, 4, 6);
    BEGIN_QUARTER(2, 5, 6);
    BEGIN_QUARTER(1, 4, 7);
    BEGIN_QUARTER(3, 5, 7);
    gradient_fetch(t, f, 0);
    for (step = 1; step < WAIT; step++)
        gradient_step(t, f, step, false);
    for (; step < plain; step++, r += f.rows) {
        gradient_step(t, f, step, false);
        gradient_write(t, f, r, f.rows);
    }
    for (; step < t->steps; step++, r += f.rows) {
        gradient_step(t, f, step, true);
        gradient_write(t, f, r, f.rows);
    }
    if (f.rows)
        gradient_write(t, f, r, 2 * TILE);
}

WIDE static void gradient_block(const bp_gradient_block *t)
{
    if (t->next_sums && t->c && t->past)
        block_of(t, (gradient_form){0, 2, true, true});
    else if (t->next_sums && t->c)
        block_of(t, (gradient_form){0, 2, true, false});
    else if (t->next_sums && t->next_start)
        block_of(t, (gradient_form){2, 0, true, false});
    else if (t->next_sums)
        block_of(t, (gradient_form){0, 0, true, false});
    else if (t->c && t->past)
        block_of(t, (gradient_form){0, 1, false, true});
    else if (t->c && t->steps >= 2 * TILE)
        block_of(t, (gradient_form){1, 1, false, false});
    else if (t->c)
        block_of(t, (gradient_form){2, 2, false, false});
    else
        block_of(t, (gradient_form){0, 0, false, false});
}

WIDE static void gradient_end(const bp_gradient_block *t)
{
    _tile_stored(0, t->before, 4 * TILE);
    _tile_stored(1, t->before + TILE * TILE, 4 * TILE);
    _tile_stored(2, t->before + 2 * TILE * TILE, 4 * TILE);
    _tile_stored(3, t->before + 3 * TILE * TILE, 4 * TILE);
    for (int64_t r = 0; t->c && r < 2 * TILE; r++)
        gradient_row(t, r, t->past);
    _mm_sfence(); /* makes non-temporal stores visible to later readers */
}

const bp_gradient_kernel bp_gradient_kernel_amx = {gradient_block, gradient_end};
