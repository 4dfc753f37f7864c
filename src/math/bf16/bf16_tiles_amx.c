/* bf16 products by AMX: a block of 32 x 32 sums is in four tile registers, two more hold each
 * side; sums of a block are stored while the next one begins. oneDNN requests the permission to
 * use the registers; without it this file is not used. */
#include "math/bf16/amx_priv.h"
#include "math/bf16/bf16_passes.h"
#include "math/bf16/bf16_tiles.h"

/* Where the sums in registers go. */
typedef struct run {
    float *c; /* NULL: nothing is in registers */
    int64_t c_row;
} run;

static inline float *quarter(float *c, int64_t row, int i)
{
    return c + i / 2 * TILE * row + i % 2 * TILE;
}

/* Stores quarter i of the previous sums, and starts that of the block at c. */
#define BEGIN(i, left, right)                                                                      \
    do {                                                                                           \
        if (r->c)                                                                                  \
            _tile_stored(i, quarter(r->c, r->c_row, i), r->c_row * 4);                             \
        if (t->accumulate)                                                                         \
            _tile_loadd(i, quarter(c, t->c_row, i), t->c_row * 4);                                 \
        else                                                                                       \
            _tile_zero(i);                                                                         \
        _tile_dpbf16ps(i, left, right);                                                            \
    } while (0)

static inline void load_step(const bp_bf16_tile *t, int64_t m, int64_t n, int64_t k)
{
    const uint16_t *a = t->a + m * t->a_row + k;
    const uint32_t *b = t->b + k / 2 * t->b_row + n;

    if (t->a_streams) {
        _tile_stream_loadd(4, a, t->a_row * 2);
        _tile_stream_loadd(5, a + TILE * t->a_row, t->a_row * 2);
    } else {
        _tile_loadd(4, a, t->a_row * 2);
        _tile_loadd(5, a + TILE * t->a_row, t->a_row * 2);
    }
    _tile_loadd(6, b, t->b_row * 4);
    _tile_loadd(7, b + TILE, t->b_row * 4);
}

static void block(run *r, const bp_bf16_tile *t, int64_t m, int64_t n)
{
    float *c = t->c + m * t->c_row + n;

    load_step(t, m, n, 0);
    BEGIN(0, 4, 6);
    BEGIN(1, 4, 7);
    BEGIN(2, 5, 6);
    BEGIN(3, 5, 7);
    for (int64_t k = 2 * TILE; k < t->K; k += 2 * TILE) {
        load_step(t, m, n, k);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    r->c = c;
    r->c_row = t->c_row;
}

/* Two steps of k: the right side's four tiles stay in registers while the left side's stream, 16
 * rows at a time. */
static void short_columns(const bp_bf16_tile *t, int64_t n)
{
    const uint32_t *b = t->b + n;

    _tile_loadd(4, b, t->b_row * 4);
    _tile_loadd(5, b + TILE, t->b_row * 4);
    _tile_loadd(6, b + TILE * t->b_row, t->b_row * 4);
    _tile_loadd(7, b + TILE * t->b_row + TILE, t->b_row * 4);
    for (int64_t m = 0; m < t->M; m += TILE) {
        const uint16_t *a = t->a + m * t->a_row;
        float *c = t->c + m * t->c_row + n;
        _tile_stream_loadd(2, a, t->a_row * 2);
        _tile_stream_loadd(3, a + 2 * TILE, t->a_row * 2);
        if (t->accumulate) {
            _tile_loadd(0, c, t->c_row * 4);
            _tile_loadd(1, c + TILE, t->c_row * 4);
        } else {
            _tile_zero(0);
            _tile_zero(1);
        }
        _tile_dpbf16ps(0, 2, 4);
        _tile_dpbf16ps(1, 2, 5);
        _tile_dpbf16ps(0, 3, 6);
        _tile_dpbf16ps(1, 3, 7);
        _tile_stored(0, c, t->c_row * 4);
        _tile_stored(1, c + TILE, t->c_row * 4);
    }
}

static void flush(run *r)
{
    if (r->c)
        store_sums(r->c, r->c_row);
    r->c = NULL;
}

static void product(run *r, const bp_bf16_tile *t)
{
    bool is_short = t->K == 4 * TILE;

    if (is_short)
        flush(r);
    for (int64_t n = 0; n < t->N; n += 2 * TILE)
        if (is_short)
            short_columns(t, n);
        else
            for (int64_t m = 0; m < t->M; m += 2 * TILE)
                block(r, t, m, n);
}

static void products(const bp_bf16_tile *tiles, int count)
{
    run r = {0};

    for (int i = 0; i < count; i++)
        product(&r, &tiles[i]);
    flush(&r);
}

const bp_bf16_tiles bp_bf16_tiles_amx = {begin, end, products, &bp_bf16_passes_avx512};
