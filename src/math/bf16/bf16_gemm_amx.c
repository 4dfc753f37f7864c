/* bf16 products by AMX: a block of 32 x 32 sums is in four tile registers, two more hold each
 * side. The left side's panel stays in L1; the right side comes from L2 by stream loads, which do
 * not evict the left side's lines. */
#include "math/bf16/amx_priv.h"
#include "math/bf16/bf16_gemm.h"
#include "math/bf16/bf16_gradient_priv.h"
#include <string.h>

static void block(const bp_bf16_block *t)
{
    const uint32_t *a = t->a, *b = t->b;

    bp_bf16_fetch(&t->ahead, 0, t->ahead.rows);
    if (t->from)
        load_sums(t->from, t->from_row);
    else
        clear_sums();
    for (int64_t step = 0; step < t->steps; step++, a += STEP_WORDS, b += STEP_WORDS) {
        _tile_loadd(4, a, 4 * TILE);
        _tile_stream_loadd(6, b, 4 * BP_BF16_COLUMNS);
        _tile_stream_loadd(7, b + TILE, 4 * BP_BF16_COLUMNS);
        _tile_loadd(5, a + TILE * TILE, 4 * TILE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    store_sums(t->c, t->c_row);
}

static int64_t multiply_adds(float *out, const float *operands, int64_t times)
{
    float sums[TILE * TILE];
    uint16_t halves[4][TILE * 2 * TILE];

    for (int i = 0; i < 4 * TILE * 2 * TILE; i++) {
        uint32_t bits;
        memcpy(&bits, &operands[i], sizeof bits);
        halves[i / (TILE * 2 * TILE)][i % (TILE * 2 * TILE)] = (uint16_t)(bits >> 16);
    }
    begin();
    clear_sums();
    _tile_loadd(4, halves[0], 4 * TILE);
    _tile_loadd(5, halves[1], 4 * TILE);
    _tile_loadd(6, halves[2], 4 * TILE);
    _tile_loadd(7, halves[3], 4 * TILE);
    for (int64_t t = 0; t < times; t++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 4 * TILE);
    end();
    *out += sums[0];
    return times * 4 * 2 * TILE * TILE * 2 * TILE;
}

/* Writes row r of finished sums to its destination. */
ALWAYS void write_row(const float *sums, const bp_strip_rows *to, int64_t r, bool past)
{
    const float *from = sums + r * BP_BF16_COLUMNS;
    __m512 left = _mm512_load_ps(from), right = _mm512_load_ps(from + TILE);

    if (to->halves) {
        void *halves = to->halves + r * to->c_row;
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(right, left);
        if (past)
            _mm512_stream_si512(halves, both);
        else
            _mm512_storeu_si512(halves, both);
    } else if (past) {
        _mm512_stream_ps(to->c + r * to->c_row, left);
        _mm512_stream_ps(to->c + r * to->c_row + TILE, right);
    } else {
        _mm512_storeu_ps(to->c + r * to->c_row, left);
        _mm512_storeu_ps(to->c + r * to->c_row + TILE, right);
    }
}

static inline bool has_rows(const bp_strip_rows *to)
{
    return to->c || to->halves;
}

ALWAYS void write_rows(const float *sums, const bp_strip_rows *to, int64_t r, bool past)
{
    write_row(sums, to, r, past);
    write_row(sums, to, r + 1, past);
}

/* A strip block's prefetches and destination: constants. */
typedef struct strip_form {
    int b_lines;
    bool runs, next_a, rows;
} strip_form;

/* Quarter i of a block of sums. */
#define QUARTER(sums, i) ((sums) + (i) / 2 * TILE * BP_BF16_COLUMNS + (i) % 2 * TILE)

ALWAYS void strip_fetch(const bp_strip_block *t, strip_form form, int64_t step)
{
#pragma GCC unroll 4
    for (int i = 0; i < form.b_lines; i++)
        _mm_prefetch((const char *)(t->next_b + (step * form.b_lines + i) * TILE), _MM_HINT_T1);
    if (form.next_a) {
        _mm_prefetch(t->next_a[0] + step * 64, _MM_HINT_T1);
        _mm_prefetch(t->next_a[1] + step * 64, _MM_HINT_T1);
    }
    if (form.runs) /* a block's 64 lines in 16 steps */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            _mm_prefetch((const char *)(t->next_sums + (step * 4 + i) * TILE), _MM_HINT_T0);
}

/* Stores quarter i of the previous sums, and starts that of this block. */
#define STRIP_BEGIN(i, left, right)                                                                \
    do {                                                                                           \
        if (t->before)                                                                             \
            _tile_stored(i, QUARTER(t->before, i), 4 * BP_BF16_COLUMNS);                           \
        if (!t->start)                                                                             \
            _tile_zero(i);                                                                         \
        else if (t->start_is_row)                                                                  \
            _tile_loadd(i, t->start + (i) % 2 * TILE, 0);                                          \
        else                                                                                       \
            _tile_loadd(i, QUARTER(t->start, i), 4 * BP_BF16_COLUMNS);                             \
        _tile_dpbf16ps(i, left, right);                                                            \
    } while (0)

ALWAYS void strip_step(const bp_strip_block *t, strip_form form, int64_t step, bool stream_b)
{
    const char *a = t->a + step * t->a_step;
    const uint32_t *b = t->b + step * STEP_WORDS;

    if (stream_b)
        _tile_stream_loadd(6, b, 4 * BP_BF16_COLUMNS);
    else
        _tile_loadd(6, b, 4 * BP_BF16_COLUMNS);
    _tile_stream_loadd(4, a, t->a_row);
    _tile_stream_loadd(5, a + t->a_half, t->a_row);
    if (stream_b)
        _tile_stream_loadd(7, b + TILE, 4 * BP_BF16_COLUMNS);
    else
        _tile_loadd(7, b + TILE, 4 * BP_BF16_COLUMNS);
    strip_fetch(t, form, step);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

ALWAYS void strip_of(const bp_strip_block *t, strip_form form)
{
    int64_t wait = t->steps >= 20 ? 4 : t->steps - 16, plain = t->steps < 20 ? t->steps : 20, step;

    _tile_stream_loadd(4, t->a, t->a_row);
    _tile_loadd(6, t->b, 4 * BP_BF16_COLUMNS);
    _tile_loadd(7, t->b + TILE, 4 * BP_BF16_COLUMNS);
    _tile_stream_loadd(5, t->a + t->a_half, t->a_row);
    STRIP_BEGIN(0, 4, 6);
    STRIP_BEGIN(2, 5, 6);
    STRIP_BEGIN(1, 4, 7);
    STRIP_BEGIN(3, 5, 7);
    strip_fetch(t, form, 0);
    if (wait <= 0)
        wait = 1;
    for (step = 1; step < wait; step++)
        strip_step(t, form, step, false);
    int64_t r = 0;
    for (; step < plain; step++) {
        strip_step(t, form, step, false);
        if (form.rows) {
            write_rows(t->before, &t->rows, r, t->past);
            r += 2;
        }
    }
    for (; step < t->steps; step++)
        strip_step(t, form, step, true);
    if (form.rows)
        for (; r < 2 * TILE; r += 2)
            write_rows(t->before, &t->rows, r, t->past);
}

ALWAYS void strip_runs(const bp_strip_block *t, bool next_a)
{
    if (has_rows(&t->rows))
        strip_of(t, (strip_form){3, true, next_a, true});
    else
        strip_of(t, (strip_form){3, true, next_a, false});
}

ALWAYS void strip_once(const bp_strip_block *t, int b_lines, bool next_a)
{
    if (has_rows(&t->rows))
        strip_of(t, (strip_form){b_lines, false, next_a, true});
    else
        strip_of(t, (strip_form){b_lines, false, false, false});
}

WIDE static void strip(const bp_strip_block *t)
{
    bool next_a = t->next_a[0] != NULL;

    if (t->runs && next_a)
        strip_runs(t, true);
    else if (t->runs)
        strip_runs(t, false);
    else if (t->b_lines == 2 && next_a)
        strip_once(t, 2, true);
    else if (t->b_lines == 2)
        strip_once(t, 2, false);
    else if (next_a)
        strip_once(t, 4, true);
    else
        strip_once(t, 4, false);
}

WIDE static void strip_end(float *before, const bp_strip_rows *rows, bool past)
{
    store_sums(before, BP_BF16_COLUMNS);
    for (int64_t r = 0; has_rows(rows) && r < 2 * TILE; r += 2)
        write_rows(before, rows, r, past);
    _mm_sfence(); /* makes non-temporal stores visible to later readers */
}

#define AHEAD_WORDS 1024 /* prefetch distance: two steps */

static inline void few_step(const uint16_t *a, int64_t a_row, const uint32_t *b)
{
#pragma GCC unroll 32
    for (int line = 0; line < STEP_WORDS / TILE; line++)
        __builtin_prefetch(b + AHEAD_WORDS + line * TILE);
    _tile_loadd(4, a, a_row * 2);
    _tile_loadd(6, b, 4 * BP_BF16_COLUMNS);
    _tile_loadd(7, b + TILE, 4 * BP_BF16_COLUMNS);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
}

/* Tiles of this many rows. */
static void few(const bp_bf16_few *t)
{
    tile_layout rows = layout;

    rows.rows[0] = rows.rows[1] = rows.rows[4] = (uint8_t)t->rows;
    __asm__ volatile("" : : "r"(&rows) : "memory"); /* all of it is read */
    _tile_loadconfig(&rows);
    if (t->start) {
        _tile_loadd(0, t->start, 0);
        _tile_loadd(1, t->start + TILE, 0);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    for (int64_t step = 0; step < t->steps - 1; step++)
        few_step(t->a + step * BP_BF16_STEP, t->a_row, t->b + step * STEP_WORDS);
    few_step(t->last, BP_BF16_STEP, t->b + (t->steps - 1) * STEP_WORDS);
    _tile_stored(0, t->c, t->c_row * 4);
    _tile_stored(1, t->c + TILE, t->c_row * 4);
    _tile_release();
}

const bp_bf16_kernel bp_bf16_kernel_amx = {
    .name = "amx",
    .rows = 2 * TILE,
    .k_bytes = 2 * (2 * TILE), /* a panel of the left side */
    .k_blocks = 1,
    .begin = begin,
    .end = end,
    .pack = bp_bf16_pack_tiles,
    .pack_transposed = bp_bf16_pack_tiles_transposed,
    .block = block,
    .pack_right = bp_bf16_pack_rows,
    .pack_weight = bp_bf16_pack_weight,
    .strip = strip,
    .strip_end = strip_end,
    .gradient = &bp_gradient_kernel_amx,
    .few = few,
    .multiply_adds = multiply_adds,
};
