/* Our own bf16 products, left side streaming: a block of panels of the left side is in L2, a panel
 * of the right side in L1, and each panel of the right side is multiplied with the whole block. A
 * k of up to 768 is one run; longer ones have several, with sums in L2. */
#include "base/numbers.h"
#include "math/bf16/bf16_gemm.h"
#include <string.h>

#define STEP_WORDS    ((int64_t)BP_BF16_STEP / 2 * BP_BF16_COLUMNS)
#define LINE          64 /* bytes */
#define ONE_RUN       24 /* steps of k: a panel of the right side then fills L1 */
#define SHORT_RUN     16 /* where there are many */
#define LEAST_STEPS   16
#define LEAST_PANELS  8   /* of the left side, of a thread */
#define LEAST_COLUMNS 4   /* panels of the right side */
#define HELD_STEPS    384 /* of panels of the left side, 2 KiB each, in one run */
#define RUN_PANELS    11  /* of the left side, in runs */
#define RUN_COLUMNS   24  /* panels of the right side */
#define A_COLUMNS     16  /* during this many of the last ones the next left side is prefetched */
#define PAST_FLOATS   (1 << 18) /* this many sums or more bypass the caches */

static int64_t cut(int64_t n, int64_t parts, int64_t part)
{
    return n * part / parts;
}

typedef struct strips {
    const bp_bf16_kernel *kernel;
    const bp_bf16_product *product;
    const bp_loops *loops;
    int64_t steps, runs;
    bool direct, past;
    uint32_t *left;
    float *sums, *finished, *bias;
    float *before;      /* destination of the block in registers; NULL if there is no block */
    bp_strip_rows rows; /* and from there */
} strips;

/* One block of rows by some panels of the right side, in one run. */
typedef struct visit {
    int64_t m0, m1, n0, n1, run;
    int64_t next_m0, next_m1, next_run; /* the next one; next_m0 < 0: no next */
} visit;

bool bp_bf16_strips_take(const bp_bf16_kernel *kernel, int64_t K)
{
    return kernel->strip && bp_divide_up(K, BP_BF16_STEP) >= LEAST_STEPS;
}

static bool rows_are_lines(const bp_bf16_product *product)
{
    return (uintptr_t)product->c % LINE == 0 && product->c_row * 4 % LINE == 0;
}

bool bp_bf16_strips_gain(const bp_bf16_kernel *kernel, const bp_bf16_product *product, int64_t rows,
                         int64_t columns)
{
    if (product->transposed || product->accumulate || product->epilogue ||
        !bp_bf16_strips_take(kernel, product->K))
        return false;
    return product->halves ||
           (rows_are_lines(product) && rows >= LEAST_PANELS && columns >= LEAST_COLUMNS);
}

size_t bp_bf16_strips_bytes(int64_t M, int64_t K)
{
    int64_t panels = bp_divide_up(M, BP_BF16_ROWS), steps = bp_divide_up(K, BP_BF16_STEP);
    int64_t held = bp_min(HELD_STEPS, panels * bp_min(steps, ONE_RUN));
    int64_t blocks = steps > ONE_RUN ? bp_min(panels, RUN_PANELS) * RUN_COLUMNS : 0;

    return (size_t)(held * STEP_WORDS + (blocks + 1) * BP_STRIP_SUMS + BP_BF16_COLUMNS) *
           sizeof(float);
}

static int64_t run_at(const strips *s, int64_t run)
{
    return cut(s->steps, s->runs, run);
}

/* Tile loads read rows in place if their stride is an odd number of whole lines. */
static bool rows_are_good(const bp_bf16_product *product)
{
    int64_t bytes = product->a_row * 2;

    return bytes % LINE == 0 && bytes / LINE % 2 == 1 && (uintptr_t)product->a % LINE == 0;
}

static int64_t rows_of(const strips *s, int64_t panel)
{
    return bp_min(BP_BF16_ROWS, s->product->M - panel * BP_BF16_ROWS);
}

/* Whether rows of a panel are read in place, in a run that ends within them. */
static bool is_direct(const strips *s, int64_t panel, int64_t run)
{
    return s->direct && rows_of(s, panel) == BP_BF16_ROWS &&
           run_at(s, run + 1) * BP_BF16_STEP <= s->product->K;
}

static void pack_rows(const strips *s, const visit *v)
{
    const bp_bf16_product *product = s->product;
    int64_t first = run_at(s, v->run), last = run_at(s, v->run + 1);
    int64_t k = bp_min(last * BP_BF16_STEP, product->K) - first * BP_BF16_STEP;

    for (int64_t m = v->m0; m < v->m1; m++)
        if (!is_direct(s, m, v->run))
            s->kernel->pack(s->left + (m - v->m0) * (last - first) * STEP_WORDS,
                            product->a + m * BP_BF16_ROWS * product->a_row + first * BP_BF16_STEP,
                            product->a_row, rows_of(s, m), k);
}

static void left_of(const strips *s, const visit *v, int64_t m, bp_strip_block *block)
{
    const bp_bf16_product *product = s->product;
    int64_t first = run_at(s, v->run), steps = run_at(s, v->run + 1) - first;

    if (is_direct(s, m, v->run)) {
        block->a =
            (const char *)(product->a + m * BP_BF16_ROWS * product->a_row + first * BP_BF16_STEP);
        block->a_row = product->a_row * 2;
        block->a_half = block->a_row * BP_BF16_ROWS / 2;
        block->a_step = LINE;
    } else {
        block->a = (const char *)(s->left + (m - v->m0) * steps * STEP_WORDS);
        block->a_row = LINE;
        block->a_half = LINE * BP_BF16_ROWS / 2;
        block->a_step = LINE * BP_BF16_ROWS;
    }
}

static void next_left(const strips *s, const visit *v, int64_t m, int64_t n, bp_strip_block *block)
{
    const bp_bf16_product *product = s->product;
    int64_t from = v->n1 - A_COLUMNS > v->n0 ? v->n1 - A_COLUMNS : v->n0;

    if (v->next_m0 < 0 || n < from)
        return;
    for (int i = 0; i < 2; i++) {
        int64_t row =
            v->next_m0 * BP_BF16_ROWS + ((n - from) * (v->m1 - v->m0) + m - v->m0) * 2 + i;
        row = bp_min(row, bp_min(v->next_m1 * BP_BF16_ROWS, product->M) - 1);
        block->next_a[i] = (const char *)(product->a + row * product->a_row +
                                          run_at(s, v->next_run) * BP_BF16_STEP);
    }
}

/* Where a block's sums go when they are finished. */
static bp_strip_rows rows_at(const strips *s, int64_t m, int64_t n)
{
    const bp_bf16_product *product = s->product;
    int64_t at = m * BP_BF16_ROWS * product->c_row + n * BP_BF16_COLUMNS;

    if (product->halves)
        return (bp_strip_rows){.halves = product->halves + at, .c_row = product->c_row};
    return (bp_strip_rows){.c = product->c + at, .c_row = product->c_row};
}

/* A block at an edge of the sums. */
static void write_edge(const strips *s, const bp_strip_rows *to, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *from = s->finished + r * BP_BF16_COLUMNS;
        if (to->halves)
            s->loops->to_bf16(to->halves + r * to->c_row, from, columns);
        else
            memcpy(to->c + r * to->c_row, from, (size_t)columns * sizeof *from);
    }
}

static void start_of(const strips *s, const visit *v, int64_t n, float *sums, bp_strip_block *block)
{
    const bp_bf16_product *product = s->product;
    int64_t at = n * BP_BF16_COLUMNS;

    if (v->run > 0) {
        block->start = sums;
    } else if (product->bias) {
        block->start = product->bias + at;
        block->start_is_row = true;
        if (product->N - at < BP_BF16_COLUMNS) {
            memcpy(s->bias, block->start, (size_t)(product->N - at) * sizeof(float));
            block->start = s->bias;
        }
    }
}

/* Stores the registers to their destination. */
static void flush(strips *s)
{
    if (s->before)
        s->kernel->strip_end(s->before, &s->rows, s->past);
    s->before = NULL;
}

/* A block in registers has its last sums. */
static void finish_block(strips *s, int64_t m, int64_t n)
{
    bp_strip_rows to = rows_at(s, m, n);
    int64_t rows = rows_of(s, m),
            columns = bp_min(BP_BF16_COLUMNS, s->product->N - n * BP_BF16_COLUMNS);

    if (rows == BP_BF16_ROWS && columns == BP_BF16_COLUMNS) {
        s->rows = to;
    } else {
        flush(s);
        write_edge(s, &to, rows, columns);
    }
}

static void multiply_block(strips *s, const visit *v, int64_t m, int64_t n)
{
    const bp_bf16_product *product = s->product;
    int64_t first = run_at(s, v->run), steps = run_at(s, v->run + 1) - first, mb = v->m1 - v->m0;
    bool last = v->run + 1 == s->runs;
    float *sums = s->sums + ((n - v->n0) * mb + m - v->m0) * BP_STRIP_SUMS;
    const uint32_t *b = product->b + (n * s->steps + first) * STEP_WORDS;
    bp_strip_block block = {.b = b, .steps = steps, .past = s->past, .runs = s->runs > 1};

    left_of(s, v, m, &block);
    start_of(s, v, n, sums, &block);
    next_left(s, v, m, n, &block);
    block.before = s->before;
    block.rows = s->rows;
    block.next_sums = sums + BP_STRIP_SUMS;
    block.b_lines = block.runs ? 3 : mb >= 16 ? 2 : 4;
    block.next_b = n + 1 < v->n1
                       ? b + s->steps * STEP_WORDS
                       : product->b + (v->n0 * s->steps + run_at(s, v->next_run)) * STEP_WORDS;
    block.next_b += (m - v->m0) * steps * block.b_lines * (LINE / 4);
    s->kernel->strip(&block);
    s->before = last ? s->finished : sums;
    s->rows = (bp_strip_rows){0};
    if (last)
        finish_block(s, m, n);
}

static void multiply_visit(strips *s, const visit *v)
{
    pack_rows(s, v);
    for (int64_t n = v->n0; n < v->n1; n++)
        for (int64_t m = v->m0; m < v->m1; m++)
            multiply_block(s, v, m, n);
}

void bp_bf16_strips(const bp_bf16_kernel *kernel, const bp_bf16_product *product,
                    const bp_strip_share *share, void *scratch)
{
    int64_t steps = bp_divide_up(product->K, BP_BF16_STEP), rows = share->m_last - share->m_first,
            columns = share->n_last - share->n_first;
    int64_t most = steps <= 3 * ONE_RUN ? ONE_RUN : SHORT_RUN;
    strips s = {.kernel = kernel,
                .product = product,
                .loops = bp_loops_best(),
                .steps = steps,
                .runs = bp_divide_up(steps, most),
                .direct = rows_are_good(product),
                .finished = scratch};
    int64_t parts = s.runs > 1 ? bp_divide_up(columns, RUN_COLUMNS) : 1,
            blocks = bp_divide_up(rows, s.runs > 1 ? RUN_PANELS : HELD_STEPS / steps);

    s.past = product->M * product->N >= PAST_FLOATS &&
             (!product->halves ||
              ((uintptr_t)product->halves % LINE == 0 && product->c_row * 2 % LINE == 0));
    s.bias = s.finished + BP_STRIP_SUMS;
    s.left = (uint32_t *)(s.bias + BP_BF16_COLUMNS);
    s.sums =
        (float *)(s.left + (s.runs > 1 ? bp_divide_up(rows, blocks) * bp_divide_up(steps, s.runs)
                                       : bp_divide_up(rows, blocks) * steps) *
                               STEP_WORDS);
    kernel->begin();
    for (int64_t i = 0; i < parts * blocks * s.runs; i++) {
        int64_t at = i / s.runs, next = (i + 1) / s.runs % blocks;
        visit v = {.m0 = share->m_first + cut(rows, blocks, at % blocks),
                   .m1 = share->m_first + cut(rows, blocks, at % blocks + 1),
                   .n0 = share->n_first + cut(columns, parts, at / blocks),
                   .n1 = share->n_first + cut(columns, parts, at / blocks + 1),
                   .run = i % s.runs,
                   .next_m0 = -1,
                   .next_run = (i + 1) % s.runs};
        if (i + 1 < parts * blocks * s.runs) {
            v.next_m0 = share->m_first + cut(rows, blocks, next);
            v.next_m1 = share->m_first + cut(rows, blocks, next + 1);
        }
        multiply_visit(&s, &v);
    }
    flush(&s);
    kernel->end();
}
