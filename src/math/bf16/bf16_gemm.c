/* Our own bf16 matrix products: cache blocks and threads.
 *
 * A thread owns a rectangle of c. It processes as many columns at a time as fit the right side
 * into half of the L2 cache, and k in blocks for which a panel of the left side stays in L1. With
 * an epilogue the sums of a few panels of the left side are first in the thread's own workspace,
 * in L2. Source: the loops around the micro-kernel are Goto and van de Geijn 2008; the innermost
 * one packs the left side's panel, since it is read from L1 immediately. With AMX, products of
 * many rows use other loops, with the same bits (bf16_strips.c).
 */
#include "math/bf16/bf16_gemm.h"
#include "base/numbers.h"
#include <omp.h>
#include <string.h>
#include <unistd.h>

#ifndef _SC_LEVEL1_DCACHE_SIZE /* not every C library has it */
#define _SC_LEVEL1_DCACHE_SIZE (-1)
#define _SC_LEVEL2_CACHE_SIZE  (-1)
#endif

#define STEP_WORDS ((int64_t)BP_BF16_STEP / 2 * BP_BF16_COLUMNS)
#define EQUAL_WORK                                                                                 \
    64 /* threads' shares that differ by less than one part in this many count as equal */
#define ROW_PANELS  2 /* panels of the left side that share a block of k before the next block */
#define LINE_BYTES  64
#define LINE_WORDS  16
#define LARGE_SUMS  (1 << 18)                                 /* floats */
#define EDGE_FLOATS ((int64_t)BP_BF16_ROWS * BP_BF16_COLUMNS) /* and BP_BF16_FEW_FLOATS */

size_t bp_bf16_panels_bytes(int64_t K, int64_t N)
{
    return (size_t)(bp_divide_up(K, BP_BF16_STEP) * bp_divide_up(N, BP_BF16_COLUMNS) * STEP_WORDS) *
           sizeof(uint32_t);
}

static int64_t cache_bytes(int name, int64_t otherwise)
{
    long bytes = sysconf(name);

    return bytes > 0 ? bytes : otherwise;
}

/* Steps of k for which the panels fit the L1 cache. */
static int64_t most_steps(const bp_bf16_kernel *kernel)
{
    int64_t steps = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 * 1024) / kernel->k_bytes / BP_BF16_STEP;

    return steps > 0 ? steps : 1;
}

/* Part `part` of n items in `parts` nearly equal runs. */
static int64_t cut(int64_t n, int64_t parts, int64_t part)
{
    return n * part / parts;
}

/* Row stride, in floats, of an epilogue's sums: not a multiple of a page. */
static int64_t sum_row(int64_t panels)
{
    return panels * BP_BF16_COLUMNS + LINE_WORDS;
}

/* How a product is cut up. */
typedef struct sizes {
    int64_t m_panels, n_panels; /* of the left side and of the right */
    int64_t down, across;       /* threads */
    int64_t steps, runs;        /* steps of K, and runs of steps for which the right side is held */
    int64_t run_steps, block_steps; /* of a run, and of a block within it, at most */
    int64_t n_most;                 /* panels of the right side that are held */
    int64_t left_words;             /* of a packed panel of the left side; in vectors of 16 */
    int64_t left_panels;            /* panels that a thread holds packed: all, or one at a time */
} sizes;

/* A thread's share of the sums, in panels. */
typedef struct plan {
    const bp_bf16_kernel *kernel;
    const bp_bf16_product *product;
    const sizes *sizes;
    int64_t m_first, m_last, n_first, n_last;
    bool past;      /* sums bypass the caches on writing */
    uint32_t *left; /* packed panels of the left side */
    float *sums;    /* [ROW_PANELS][rows of a panel][sum_row] for an epilogue */
    float *edge;    /* sums of a block that extends beyond c */
} plan;

/* Rows of panels by columns of panels for this many threads: minimizes the busiest thread's work,
 * then the data read. A slightly smaller maximum does not justify more reads. */
static void choose_grid(sizes *s, int threads)
{
    int64_t least = INT64_MAX, best_work = INT64_MAX, best_sides = INT64_MAX;

    for (int64_t rows = 1; rows <= threads; rows++) {
        int64_t work = bp_divide_up(s->m_panels, rows) * bp_divide_up(s->n_panels, threads / rows);
        least = work < least ? work : least;
    }
    for (int64_t rows = 1; rows <= threads; rows++) {
        int64_t columns = threads / rows;
        int64_t m = bp_divide_up(s->m_panels, rows), n = bp_divide_up(s->n_panels, columns),
                work = m * n;
        if (work > least + least / EQUAL_WORK || m + n > best_sides ||
            (m + n == best_sides && work >= best_work))
            continue;
        best_work = work;
        best_sides = m + n;
        s->down = rows;
        s->across = columns;
    }
}

/* Panels of the right side that fit most of the L2 cache. */
static int64_t held_panels(int64_t steps)
{
    int64_t bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1024 * 1024) * 5 / 8;
    int64_t panels = bytes / (steps * STEP_WORDS * (int64_t)sizeof(uint32_t));

    return panels > 0 ? panels : 1;
}

static int64_t left_words(const bp_bf16_kernel *kernel, int64_t steps)
{
    return steps * BP_BF16_STEP / 2 * kernel->rows + 2 * LINE_WORDS;
}

/* The left side is packed once: panel by panel if all columns read each at once, else all of it (a
 * store may write one vector past the end, for which each panel has space). */
static sizes sizes_of(const bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K, int threads)
{
    sizes s = {.m_panels = bp_divide_up(M, kernel->rows),
               .n_panels = bp_divide_up(N, BP_BF16_COLUMNS),
               .steps = bp_divide_up(K, BP_BF16_STEP)};
    int64_t most = most_steps(kernel);

    choose_grid(&s, threads);
    s.runs = bp_divide_up(s.steps, most * kernel->k_blocks);
    s.run_steps = bp_divide_up(s.steps, s.runs);
    s.block_steps = bp_divide_up(s.run_steps, bp_divide_up(s.run_steps, most));
    s.n_most = bp_min(held_panels(s.run_steps), s.n_panels > 0 ? s.n_panels : 1);
    bool at_once = bp_divide_up(s.n_panels, s.across) <= s.n_most;
    s.left_panels = at_once ? 1 : bp_divide_up(s.m_panels, s.down);
    s.left_words = left_words(kernel, at_once ? s.block_steps : s.run_steps);
    return s;
}

/* The block of sums at row m, column n, whole or at an edge of c. */
static void sum_block(const plan *p, int64_t m, int64_t n, bp_bf16_block *block)
{
    const bp_bf16_product *product = p->product;
    int64_t rows = product->M - m, columns = product->N - n;

    if (rows >= p->kernel->rows && columns >= BP_BF16_COLUMNS) {
        p->kernel->block(block);
        return;
    }
    rows = rows < p->kernel->rows ? rows : p->kernel->rows;
    columns = columns < BP_BF16_COLUMNS ? columns : BP_BF16_COLUMNS;
    size_t row_bytes = (size_t)columns * sizeof(float);
    float *c = block->c;
    int64_t c_row = block->c_row;
    for (int64_t r = 0; block->from && r < rows; r++)
        memcpy(p->edge + r * BP_BF16_COLUMNS, block->from + r * block->from_row, row_bytes);
    block->from = block->from ? p->edge : NULL;
    block->c = p->edge;
    block->past = false;
    block->c_row = block->from_row = BP_BF16_COLUMNS;
    p->kernel->block(block);
    for (int64_t r = 0; r < rows; r++)
        memcpy(c + r * c_row, p->edge + r * BP_BF16_COLUMNS, row_bytes);
}

/* A panel of the left side in steps [first, last) of k: the unit of multiplication. */
typedef struct visit {
    int64_t panel, first, last;
    uint32_t *left; /* packed, or where it will be */
    bool packed;
} visit;

/* Start and bounds of the left side's elements in a visit. */
static const uint16_t *left_at(const plan *p, const visit *v, int64_t *rows, int64_t *k)
{
    const bp_bf16_product *product = p->product;
    int64_t m = v->panel * p->kernel->rows, begin = v->first * BP_BF16_STEP;

    *rows = product->M - m < p->kernel->rows ? product->M - m : p->kernel->rows;
    *k = (v->last < p->sizes->steps ? v->last * BP_BF16_STEP : product->K) - begin;
    if (product->a_more && begin >= product->k_more)
        return product->a_more + (begin - product->k_more) * product->a_row + m;
    return product->a +
           (product->transposed ? begin * product->a_row + m : m * product->a_row + begin);
}

/* Part `part` of `parts` of a visit's left side. */
static bp_bf16_ahead left_part(const plan *p, const visit *v, int64_t part, int64_t parts)
{
    int64_t rows, k;
    const uint16_t *a = left_at(p, v, &rows, &k);
    bp_bf16_ahead out = {a, p->product->a_row, p->product->transposed ? rows : k,
                         p->product->transposed ? k : rows};

    if (v->packed) /* as if it were rows of a line each */
        out = (bp_bf16_ahead){(const uint16_t *)v->left, LINE_BYTES / 2, LINE_BYTES / 2,
                              (v->last - v->first) * p->kernel->rows};
    int64_t first = cut(out.rows, parts, part);
    out.rows = cut(out.rows, parts, part + 1) - first;
    out.at += first * out.row;
    return out;
}

static int64_t rows_from(const plan *p, int64_t m)
{
    return p->product->M - m < p->kernel->rows ? p->product->M - m : p->kernel->rows;
}

/* Prefetches the sums to the right of a block, where the next block begins or ends. */
static void fetch_sums(const plan *p, const bp_bf16_block *block, int64_t m)
{
    int64_t rows = rows_from(p, m);

    BP_HAS_AN_EFFECT;
    for (int64_t r = 0; r < rows; r++) {
        const float *c = block->c + r * block->c_row + BP_BF16_COLUMNS;
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + BP_BF16_COLUMNS / 2, 1);
    }
}

static const uint16_t *half_at(const bp_operand *operand, int64_t r, int64_t c)
{
    return (const uint16_t *)operand->data + r * operand->stride + c;
}

/* Prefetches the epilogue's inputs and outputs for this block's sums. */
static void fetch_operands(const plan *p, int64_t m, int64_t n)
{
    const bp_epilogue *epilogue = p->product->epilogue;
    int64_t rows = rows_from(p, m);

    BP_HAS_AN_EFFECT;
    for (int64_t r = m; epilogue->read && r < m + rows; r++)
        __builtin_prefetch(half_at(epilogue->read, r, n));
    for (int i = 0; i < 2; i++)
        for (int64_t r = m; epilogue->written[i] && r < m + rows; r++)
            __builtin_prefetch(half_at(epilogue->written[i], r, n), 1);
}

/* The location of the thread's sums for a visit's panel. */
static float *panel_workspace(const plan *p, const visit *v)
{
    int64_t place = (v->panel - p->m_first) % ROW_PANELS;

    return p->sums + place * p->kernel->rows * sum_row(p->sizes->n_most);
}

/* Finished sums of a panel, columns [first, last), through the epilogue. */
static void finish_panel(const plan *p, const visit *v, int64_t first, int64_t last)
{
    const bp_epilogue *epilogue = p->product->epilogue;
    int64_t m = v->panel * p->kernel->rows, rows = rows_from(p, m), row = sum_row(p->sizes->n_most);
    float *sums = p->product->panel_sums ? p->product->panel_sums + v->panel * p->product->N : NULL;

    last = last < p->product->N ? last : p->product->N;
    if (sums)
        memset(sums + first, 0, (size_t)(last - first) * sizeof *sums);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = first; n < last; n += BP_PASS_COLUMNS)
            epilogue->pass(epilogue->context, panel_workspace(p, v) + r * row + n - first, m + r, n,
                           bp_min(BP_PASS_COLUMNS, last - n), sums ? sums + n : NULL);
}

static void pack_left(const plan *p, const visit *v)
{
    int64_t rows, k, row = p->product->a_row;
    const uint16_t *a = left_at(p, v, &rows, &k);
    int64_t here = p->product->k_more - v->first * BP_BF16_STEP;

    if (!p->product->transposed) {
        p->kernel->pack(v->left, a, row, rows, k);
        return;
    }
    here = p->product->a_more && here > 0 && here < k ? here : k;
    p->kernel->pack_transposed(v->left, a, row, rows, here);
    if (here < k)
        p->kernel->pack_transposed(v->left + here / 2 * p->kernel->rows,
                                   p->product->a_more + v->panel * p->kernel->rows, row, rows,
                                   k - here);
}

/* One visit, over panels [n0, n1) of the right side; `next` follows it (may be NULL). */
static void sum_panel(const plan *p, const visit *v, const visit *next, int64_t n0, int64_t n1)
{
    const bp_bf16_product *product = p->product;
    int64_t m = v->panel * p->kernel->rows, panel_words = p->sizes->steps * STEP_WORDS;
    const uint32_t *right = product->b + v->first * STEP_WORDS;
    bool last = v->last == p->sizes->steps;
    int64_t row = product->epilogue ? sum_row(p->sizes->n_most) : product->c_row;
    float *sums = product->epilogue ? panel_workspace(p, v)
                                    : product->c + m * product->c_row + n0 * BP_BF16_COLUMNS;

    if (!v->packed)
        pack_left(p, v);
    for (int64_t j = n0; j < n1; j++) {
        int64_t n = j * BP_BF16_COLUMNS;
        float *c = sums + n - n0 * BP_BF16_COLUMNS;
        bp_bf16_block block = {.c = c,
                               .from = c,
                               .c_row = row,
                               .from_row = row,
                               .a = v->left,
                               .b = right + j * panel_words,
                               .steps = v->last - v->first,
                               .past = p->past};
        if (v->first == 0 && !product->accumulate) {
            block.from = product->bias ? product->bias + n : NULL;
            block.from_row = 0;
        }
        if (next)
            block.ahead = left_part(p, next, j - n0, n1 - n0);
        if (product->epilogue && last)
            fetch_operands(p, m, n);
        else if (!product->epilogue && j + 2 < n1 && !p->past)
            fetch_sums(p, &block, m);
        sum_block(p, m, n, &block);
    }
    if (product->epilogue && last)
        finish_panel(p, v, n0 * BP_BF16_COLUMNS, n1 * BP_BF16_COLUMNS);
}

/* Panels [n0, n1) of the right side in a run of k, held in L2, by all of the thread's rows: a few
 * panels of the left side, with sums in L2 too, go through every block of k before the next few. */
static void sum_columns(const plan *p, int64_t n0, int64_t n1, int64_t run)
{
    const sizes *s = p->sizes;
    int64_t first = cut(s->steps, s->runs, run), steps = cut(s->steps, s->runs, run + 1) - first;
    int64_t blocks = bp_divide_up(steps, s->block_steps), group = blocks > 1 ? ROW_PANELS : 1;
    visit held = {.panel = -1};

    for (int64_t m = p->m_first; m < p->m_last; m += group)
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t panel = m; panel < m + group && panel < p->m_last; panel++) {
                int64_t at = cut(steps, blocks, block);
                visit next = {panel, first + at, first + cut(steps, blocks, block + 1), p->left,
                              false};
                if (s->left_panels > 1) {
                    next.left += (panel - p->m_first) * s->left_words +
                                 at * BP_BF16_STEP / 2 * p->kernel->rows;
                    next.packed = n0 > p->n_first;
                }
                if (held.panel >= 0)
                    sum_panel(p, &held, &next, n0, n1);
                held = next;
            }
    if (held.panel >= 0)
        sum_panel(p, &held, NULL, n0, n1);
}

static void sum_rectangle(const plan *p)
{
    int64_t columns = p->n_last - p->n_first, parts = bp_divide_up(columns, p->sizes->n_most);

    p->kernel->begin();
    for (int64_t run = 0; run < p->sizes->runs; run++)
        for (int64_t part = 0; part < parts; part++)
            sum_columns(p, p->n_first + cut(columns, parts, part),
                        p->n_first + cut(columns, parts, part + 1), run);
    p->kernel->end();
}

/* An epilogue that rounds. */
static void round_row(const void *context, const float *x, int64_t r, int64_t c, int64_t n,
                      float *sums)
{
    const bp_bf16_product *product = context;

    (void)sums;
    bp_loops_best()->to_bf16(product->halves + r * product->c_row + c, x, n);
}

static size_t thread_bytes(const sizes *s)
{
    return (size_t)(s->left_panels * s->left_words + EDGE_FLOATS) * sizeof(float);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t bp_bf16_scratch_bytes(const bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K,
                             int threads)
{
    sizes s = sizes_of(kernel, M, N, K, threads);
    size_t strips = bp_bf16_strips_take(kernel, K) ? bp_bf16_strips_bytes(M, K) : 0;

    return larger(thread_bytes(&s), strips) * (size_t)(s.down * s.across);
}

/* Each of the threads that share columns may hold all rows; there are at most as many of them as
 * the columns exceed those taken at once. */
size_t bp_bf16_most_scratch_bytes(const bp_bf16_kernel *kernel, int64_t M, int64_t N, int64_t K,
                                  int threads)
{
    int64_t steps = bp_divide_up(K, BP_BF16_STEP), most = most_steps(kernel) * kernel->k_blocks;
    steps = steps < most ? steps : most;
    int64_t across = (bp_divide_up(N, BP_BF16_COLUMNS) - 1) / held_panels(steps);
    across = across < threads ? across : threads;
    int64_t panels = across * (bp_divide_up(M, kernel->rows) + threads) + threads;

    size_t strips =
        bp_bf16_strips_take(kernel, K) ? bp_bf16_strips_bytes(M, K) * (size_t)threads : 0;

    return larger((size_t)(panels * left_words(kernel, steps) + threads * EDGE_FLOATS) *
                      sizeof(float),
                  strips);
}

bool bp_bf16_takes_epilogue(const bp_bf16_kernel *kernel, int64_t K)
{
    return bp_divide_up(K, BP_BF16_STEP) <= most_steps(kernel) * kernel->k_blocks &&
           !bp_bf16_strips_take(kernel, K);
}

bool bp_bf16_takes_halves(const bp_bf16_kernel *kernel, int64_t K)
{
    return bp_bf16_strips_take(kernel, K) || bp_bf16_takes_epilogue(kernel, K);
}

/* For one thread. */
static size_t sums_bytes(const bp_bf16_kernel *kernel, int64_t n_most)
{
    return (size_t)(ROW_PANELS * kernel->rows * sum_row(n_most)) * sizeof(float);
}

size_t bp_bf16_epilogue_bytes(const bp_bf16_kernel *kernel, int64_t N, int64_t K, int threads)
{
    int64_t panels = held_panels(bp_divide_up(K, BP_BF16_STEP));

    if (bp_bf16_strips_take(kernel, K))
        return 0;
    return (size_t)threads * sums_bytes(kernel, bp_min(panels, bp_divide_up(N, BP_BF16_COLUMNS)));
}

static bool are_strips(const bp_bf16_kernel *kernel, const bp_bf16_product *product, const sizes *s)
{
    return bp_bf16_strips_gain(kernel, product, bp_divide_up(s->m_panels, s->down),
                               bp_divide_up(s->n_panels, s->across));
}

bool bp_bf16_takes_strips(const bp_bf16_kernel *kernel, const bp_bf16_product *product, int threads)
{
    sizes s = sizes_of(kernel, product->M, product->N, product->K, threads);

    return are_strips(kernel, product, &s);
}

/* A weight's gradient that is written once, in whole lines, and fills the second cache: nothing
 * reads it before all of it is there. */
static bool bypasses(const bp_bf16_kernel *kernel, const bp_bf16_product *product, const sizes *s)
{
    return kernel->past && product->transposed && !product->accumulate && s->runs == 1 &&
           (uintptr_t)product->c % LINE_BYTES == 0 && product->c_row % LINE_WORDS == 0 &&
           product->M * product->N >= LARGE_SUMS;
}

void bp_bf16_multiply(const bp_bf16_kernel *kernel, const bp_bf16_product *product, void *scratch)
{
    sizes s = sizes_of(kernel, product->M, product->N, product->K, omp_get_max_threads());
    bool strips = are_strips(kernel, product, &s), few = kernel->few && bp_bf16_is_few(product);
    size_t bytes = strips ? bp_bf16_strips_bytes(product->M, product->K) : thread_bytes(&s);
    char *sums = (char *)scratch + bytes * (size_t)(s.down * s.across);
    bp_epilogue rounding = {.pass = round_row, .context = product};
    bp_bf16_product through = *product;

    if (product->halves && !strips) {
        through.epilogue = &rounding;
        product = &through;
    }

    /* By the whole team, even if some threads are idle: GNU's runtime ends the threads beyond a
     * smaller team, and recreates them for the next. */
#pragma omp parallel for schedule(static) if (s.down * s.across > 1)
    for (int64_t i = 0; i < s.down * s.across; i++) {
        float *edge = (float *)((char *)scratch + (size_t)i * bytes);
        plan p = {.kernel = kernel,
                  .product = product,
                  .sizes = &s,
                  .past = bypasses(kernel, product, &s),
                  .m_first = cut(s.m_panels, s.down, i / s.across),
                  .m_last = cut(s.m_panels, s.down, i / s.across + 1),
                  .n_first = cut(s.n_panels, s.across, i % s.across),
                  .n_last = cut(s.n_panels, s.across, i % s.across + 1),
                  .left = (uint32_t *)(edge + EDGE_FLOATS),
                  .sums = (float *)(sums + (size_t)i * sums_bytes(kernel, s.n_most)),
                  .edge = edge};
        if (few)
            bp_bf16_multiply_few(kernel, product, p.n_first, p.n_last, edge);
        else if (strips)
            bp_bf16_strips(kernel, product,
                           &(bp_strip_share){p.m_first, p.m_last, p.n_first, p.n_last}, edge);
        else
            sum_rectangle(&p);
    }
}
