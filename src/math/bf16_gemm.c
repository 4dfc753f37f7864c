/* Our own bf16 matrix products: cache blocks and threads.
 *
 * A thread owns a rectangle of c. Of it, it takes as many columns as the right side has in half of
 * the second cache; of these, k in blocks for which a panel of the left side stays in the first.
 * Source: the loops around the micro-kernel are Goto and van de Geijn 2008; the left side's panel
 *         is packed in the innermost of them, since it is read from the first cache at once.
 */
#include "math/bf16_gemm_priv.h"
#include <omp.h>
#include <string.h>
#include <unistd.h>

#ifndef _SC_LEVEL1_DCACHE_SIZE /* not every C library tells */
#define _SC_LEVEL1_DCACHE_SIZE (-1)
#define _SC_LEVEL2_CACHE_SIZE  (-1)
#endif

#define STEP_WORDS  ((int64_t)BP_BF16_STEP / 2 * BP_BF16_COLUMNS)
#define ROW_PANELS  2 /* of the left side that share blocks of k before the next */
#define LINE_BYTES  64
#define EDGE_FLOATS ((int64_t)BP_BF16_ROWS * BP_BF16_COLUMNS)

static int64_t up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

size_t bp_bf16_panels_bytes(int64_t K, int64_t N)
{
    return (size_t)(up(K, BP_BF16_STEP) * up(N, BP_BF16_COLUMNS) * STEP_WORDS) * sizeof(uint32_t);
}

static int64_t cache_bytes(int name, int64_t otherwise)
{
    long bytes = sysconf(name);

    return bytes > 0 ? bytes : otherwise;
}

/* Steps of k for which the panels fit the first cache. */
static int64_t most_steps(const bp_bf16_kernel *kernel)
{
    int64_t steps = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 32 * 1024) / kernel->k_bytes / BP_BF16_STEP;

    return steps > 0 ? steps : 1;
}

/* Part `part` of n things in `parts` runs as equal as can be. */
static int64_t cut(int64_t n, int64_t parts, int64_t part)
{
    return n * part / parts;
}

/* A thread's share of the sums, in panels, and how it is cut up. */
typedef struct plan {
    const bp_bf16_kernel *kernel;
    const bp_bf16_product *product;
    int64_t m_first, m_last, n_first, n_last;
    int64_t steps, block_steps; /* of K; of a block of k, at most */
    uint32_t *left;             /* the packed panel of the left side */
    float *edge;                /* sums of a block that reaches beyond c */
} plan;

/* Rows of panels by columns of panels for so many threads: the least work for the busiest one, then
 * the least to read. */
static void choose_grid(int64_t *down, int64_t *across, int64_t m_panels, int64_t n_panels,
                        int threads)
{
    int64_t best_work = INT64_MAX, best_sides = INT64_MAX;

    for (int64_t rows = 1; rows <= threads; rows++) {
        int64_t columns = threads / rows, m = up(m_panels, rows), n = up(n_panels, columns);
        if (m * n > best_work || (m * n == best_work && m + n >= best_sides))
            continue;
        best_work = m * n;
        best_sides = m + n;
        *down = rows;
        *across = columns;
    }
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
    block->c_row = block->from_row = BP_BF16_COLUMNS;
    p->kernel->block(block);
    for (int64_t r = 0; r < rows; r++)
        memcpy(c + r * c_row, p->edge + r * BP_BF16_COLUMNS, row_bytes);
}

/* A panel of the left side in steps [first, last) of k: what is packed and multiplied at a time. */
typedef struct visit {
    int64_t panel, first, last;
} visit;

/* Where the left side's elements of a visit begin, and their bounds. */
static const uint16_t *left_at(const plan *p, const visit *v, int64_t *rows, int64_t *k)
{
    const bp_bf16_product *product = p->product;
    int64_t m = v->panel * p->kernel->rows, begin = v->first * BP_BF16_STEP;

    *rows = product->M - m < p->kernel->rows ? product->M - m : p->kernel->rows;
    *k = (v->last < p->steps ? v->last * BP_BF16_STEP : product->K) - begin;
    return product->a + (product->turned ? begin * product->a_row + m : m * product->a_row + begin);
}

/* Asks the second cache for part `part` of `parts` of a visit's left side. */
static void fetch_left(const plan *p, const visit *v, int64_t part, int64_t parts)
{
    int64_t rows, k;
    const uint16_t *a = left_at(p, v, &rows, &k);
    int64_t runs = p->product->turned ? k : rows, run = p->product->turned ? rows : k;

    for (int64_t r = cut(runs, parts, part); r < cut(runs, parts, part + 1); r++) {
        const uint16_t *first = a + r * p->product->a_row;
        for (int64_t i = 0; i < run; i += LINE_BYTES / 2)
            __builtin_prefetch(first + i, 0, 2);
        __builtin_prefetch(first + run - 1, 0, 2);
    }
}

/* Asks for the sums to the right of a block, which the next one begins or ends with. */
static void fetch_sums(const plan *p, const bp_bf16_block *block, int64_t m)
{
    int64_t rows = p->product->M - m < p->kernel->rows ? p->product->M - m : p->kernel->rows;

    for (int64_t r = 0; r < rows; r++) {
        const float *c = block->c + r * block->c_row + BP_BF16_COLUMNS;
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + BP_BF16_COLUMNS / 2, 1);
    }
}

/* One visit, over panels [n0, n1) of the right side; `next` (NULL: none) comes after it. */
static void sum_panel(const plan *p, const visit *v, const visit *next, int64_t n0, int64_t n1)
{
    const bp_bf16_product *product = p->product;
    bp_bf16_pack_left *pack = product->turned ? p->kernel->pack_turned : p->kernel->pack;
    int64_t m = v->panel * p->kernel->rows, rows, k, panel_words = p->steps * STEP_WORDS;
    const uint16_t *left = left_at(p, v, &rows, &k);
    const uint32_t *right = product->b + v->first * STEP_WORDS;

    pack(p->left, left, product->a_row, rows, k);
    for (int64_t j = n0; j < n1; j++) {
        int64_t n = j * BP_BF16_COLUMNS;
        float *c = product->c + m * product->c_row + n;
        bp_bf16_block block = {.c = c,
                               .from = c,
                               .c_row = product->c_row,
                               .from_row = product->c_row,
                               .a = p->left,
                               .b = right + j * panel_words,
                               .next_b = right + (j + 1 < n1 ? j + 1 : n0) * panel_words,
                               .steps = v->last - v->first};
        if (v->first == 0 && !product->accumulate) {
            block.from = product->bias ? product->bias + n : NULL;
            block.from_row = 0;
        }
        if (next)
            fetch_left(p, next, j - n0, n1 - n0);
        if (j + 2 < n1)
            fetch_sums(p, &block, m);
        sum_block(p, m, n, &block);
    }
}

/* Panels [n0, n1) of the right side, steps [first, last) of k, which the second cache holds, by all
 * of the thread's rows: a few panels of the left side, whose sums the second cache holds too, in
 * every block of k before the next few. */
static void sum_columns(const plan *p, int64_t n0, int64_t n1, int64_t first, int64_t last)
{
    int64_t blocks = up(last - first, p->block_steps), group = blocks > 1 ? ROW_PANELS : 1;
    visit held = {0};
    bool holds = false;

    for (int64_t m = p->m_first; m < p->m_last; m += group)
        for (int64_t block = 0; block < blocks; block++)
            for (int64_t panel = m; panel < m + group && panel < p->m_last; panel++) {
                visit next = {panel, first + cut(last - first, blocks, block),
                              first + cut(last - first, blocks, block + 1)};
                if (holds)
                    sum_panel(p, &held, &next, n0, n1);
                held = next;
                holds = true;
            }
    if (holds)
        sum_panel(p, &held, NULL, n0, n1);
}

static void sum_rectangle(const plan *p)
{
    int64_t run = p->block_steps * p->kernel->k_blocks, runs = up(p->steps, run);
    int64_t run_steps = up(p->steps, runs), columns = p->n_last - p->n_first;
    int64_t half_l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 1024 * 1024) * 5 / 8;
    int64_t most = half_l2 / (run_steps * STEP_WORDS * (int64_t)sizeof(uint32_t));
    int64_t parts = up(columns, most > 0 ? most : 1);

    p->kernel->begin();
    for (int64_t part = 0; part < parts; part++)
        for (int64_t i = 0; i < runs; i++)
            sum_columns(p, p->n_first + cut(columns, parts, part),
                        p->n_first + cut(columns, parts, part + 1), cut(p->steps, runs, i),
                        cut(p->steps, runs, i + 1));
    p->kernel->end();
}

/* Words of a packed panel of the left side: a store may write a vector too many. */
static size_t left_bytes(const bp_bf16_kernel *kernel)
{
    return (size_t)((most_steps(kernel) * BP_BF16_STEP / 2 * kernel->rows + 2 * 16) *
                    (int64_t)sizeof(uint32_t));
}

static size_t thread_bytes(const bp_bf16_kernel *kernel)
{
    size_t bytes = left_bytes(kernel) + EDGE_FLOATS * sizeof(float);

    return (size_t)up((int64_t)bytes, LINE_BYTES) * LINE_BYTES;
}

size_t bp_bf16_scratch_bytes(const bp_bf16_kernel *kernel, int threads)
{
    return thread_bytes(kernel) * (size_t)threads;
}

void bp_bf16_multiply(const bp_bf16_kernel *kernel, const bp_bf16_product *product, void *scratch)
{
    int64_t m_panels = up(product->M, kernel->rows), n_panels = up(product->N, BP_BF16_COLUMNS);
    int64_t steps = up(product->K, BP_BF16_STEP), most = most_steps(kernel);
    int64_t down = 1, across = 1;

    choose_grid(&down, &across, m_panels, n_panels, omp_get_max_threads());
#pragma omp parallel for schedule(static) num_threads((int)(down * across))
    for (int64_t i = 0; i < down * across; i++) {
        char *room = (char *)scratch + (size_t)i * thread_bytes(kernel);
        plan p = {.kernel = kernel,
                  .product = product,
                  .m_first = cut(m_panels, down, i / across),
                  .m_last = cut(m_panels, down, i / across + 1),
                  .n_first = cut(n_panels, across, i % across),
                  .n_last = cut(n_panels, across, i % across + 1),
                  .steps = steps,
                  .block_steps = up(steps, up(steps, most)),
                  .left = (uint32_t *)room,
                  .edge = (float *)(room + left_bytes(kernel))};
        sum_rectangle(&p);
    }
}
