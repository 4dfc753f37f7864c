/* Weight gradients with AMX: the loops around bf16_gradient_amx.c.
 *
 * A thread owns rows of c, so that no part of a is transposed twice. It multiplies a block of
 * panels of them, with the transposed left side in L2, by all panels of the right side in turn,
 * held partly in L1. A k of up to ONE_RUN steps is one run; longer ones are divided into runs,
 * with sums in L2 too. Sums begin with c or 0 and run over k in order: they have the bits of the
 * other loops (bf16_gemm.c). */
#include "base/numbers.h"
#include "math/bf16/bf16_gemm.h"
#include "math/bf16/bf16_gradient_priv.h"
#include <omp.h>

#define STEP_WORDS   ((int64_t)BP_BF16_STEP / 2 * BP_BF16_COLUMNS)
#define LINE         64 /* bytes */
#define LINE_FLOATS  16
#define LEAST_STEPS  16
#define LEAST_PANELS 4 /* of either side, a thread */
#define ONE_RUN      40
#define LONG_RUN     16  /* steps of a run, if there are more */
#define HELD_STEPS   384 /* of panels of the left side, 2 KiB each, in one run */
#define RUN_PANELS   11  /* of the left side, in runs */
#define RUN_COLUMNS  24  /* panels of the right side */

static int64_t cut(int64_t n, int64_t parts, int64_t part)
{
    return n * part / parts;
}

/* A thread's work, and where it is. */
typedef struct work {
    const bp_bf16_kernel *kernel;
    const bp_bf16_gradient *product;
    int64_t steps, runs, blocks, parts; /* of K; of rows of panels and of columns of panels */
    int64_t m_first, m_last;
    uint32_t *left;
    float *sums, *finished, *edge;
    float *before, *c; /* destination of the sums in registers, and their next one; may be NULL */
    bool past;
} work;

/* A block of rows by some panels of the right side, in one run. */
typedef struct visit {
    int64_t at, m0, m1, n0, n1, first, last; /* panels; steps of k */
} visit;

/* A panel of the right side within a visit, and the next ones; the end repeats some. */
typedef struct column {
    visit v;
    int64_t n;
    const uint32_t *b, *next_b;
    float *next_c;
} column;

bool bp_bf16_takes_gradient(const bp_bf16_kernel *kernel, const bp_bf16_gradient *gradient,
                            int threads)
{
    return kernel->gradient && (uintptr_t)gradient->c % LINE == 0 &&
           gradient->c_row % LINE_FLOATS == 0 &&
           bp_divide_up(gradient->K, BP_BF16_STEP) >= LEAST_STEPS &&
           bp_divide_up(gradient->M, BP_BF16_ROWS) / threads >= LEAST_PANELS &&
           bp_divide_up(gradient->N, BP_BF16_COLUMNS) >= LEAST_PANELS;
}

/* Words of a left side, and of all of a thread. */
static int64_t left_words(int64_t K)
{
    return (K <= ONE_RUN * BP_BF16_STEP ? HELD_STEPS : RUN_PANELS * LONG_RUN) * STEP_WORDS;
}

static int64_t thread_words(int64_t K)
{
    int64_t blocks = K <= ONE_RUN * BP_BF16_STEP ? 0 : RUN_PANELS * RUN_COLUMNS + 1;

    return left_words(K) + (blocks + 2) * BP_STRIP_SUMS;
}

size_t bp_bf16_gradient_bytes(const bp_bf16_kernel *kernel, int64_t K, int threads)
{
    int64_t words = thread_words(K), least = thread_words(1);

    if (!kernel->gradient || bp_divide_up(K, BP_BF16_STEP) < LEAST_STEPS)
        return 0;
    return (size_t)(words > least ? words : least) * sizeof(uint32_t) * (size_t)threads;
}

static int64_t rows_of(const work *w, int64_t panel)
{
    return bp_min(BP_BF16_ROWS, w->product->M - panel * BP_BF16_ROWS);
}

static int64_t columns_of(const work *w, int64_t panel)
{
    return bp_min(BP_BF16_COLUMNS, w->product->N - panel * BP_BF16_COLUMNS);
}

/* Visit `at`, or the last one. */
static visit visit_at(const work *w, int64_t at)
{
    at = bp_min(at, w->runs * w->blocks * w->parts - 1);
    int64_t run = at % w->runs, block = at / w->runs % w->blocks, part = at / w->runs / w->blocks,
            rows = w->m_last - w->m_first, columns = bp_divide_up(w->product->N, BP_BF16_COLUMNS);

    return (visit){.at = at,
                   .m0 = w->m_first + cut(rows, w->blocks, block),
                   .m1 = w->m_first + cut(rows, w->blocks, block + 1),
                   .n0 = cut(columns, w->parts, part),
                   .n1 = cut(columns, w->parts, part + 1),
                   .first = cut(w->steps, w->runs, run),
                   .last = cut(w->steps, w->runs, run + 1)};
}

static const uint16_t *left_at(const work *w, int64_t m, int64_t step)
{
    const bp_bf16_gradient *product = w->product;
    int64_t row = step * BP_BF16_STEP;
    bool more = product->a_more && row >= product->k_more;

    return (more ? product->a_more + (row - product->k_more) * product->a_row
                 : product->a + row * product->a_row) +
           m * BP_BF16_ROWS;
}

static float *place_of(const work *w, int64_t m, int64_t n)
{
    return w->product->c + m * BP_BF16_ROWS * w->product->c_row + n * BP_BF16_COLUMNS;
}

static const uint32_t *right_at(const work *w, int64_t n, int64_t step)
{
    return w->product->b + (n * w->steps + step) * STEP_WORDS;
}

static column column_of(const work *w, const visit *v, const visit *next, int64_t n)
{
    bool last = n + 1 == v->n1;
    int64_t after = last ? next->n0 : n + 1;

    return (column){.v = *v,
                    .n = n,
                    .b = right_at(w, n, v->first),
                    .next_b = right_at(w, after, last ? next->first : v->first),
                    .next_c = place_of(w, last ? next->m0 : v->m0, after)};
}

/* The visit's rows of the operands: the last visit may not fill its steps. */
static int64_t depth_of(const work *w, const visit *v)
{
    return bp_min(v->last * BP_BF16_STEP, w->product->K) - v->first * BP_BF16_STEP;
}

static void turn_left(const work *w, const visit *v)
{
    int64_t steps = v->last - v->first, depth = depth_of(w, v), panels = v->m1 - v->m0;

    for (int64_t step = 0; step < steps; step++) {
        bp_bf16_ahead next = {.row = w->product->a_row};
        if (step + 1 < steps)
            next =
                (bp_bf16_ahead){left_at(w, v->m0, v->first + step + 1), w->product->a_row,
                                bp_min(panels * BP_BF16_ROWS, w->product->M - v->m0 * BP_BF16_ROWS),
                                bp_min(BP_BF16_STEP, depth - (step + 1) * BP_BF16_STEP)};
        for (int64_t m = v->m0; m < v->m1; m++) {
            bp_bf16_fetch_part(&next, m - v->m0, panels);
            w->kernel->pack_transposed(w->left + ((m - v->m0) * steps + step) * STEP_WORDS,
                                       left_at(w, m, v->first + step), w->product->a_row,
                                       rows_of(w, m),
                                       bp_min(BP_BF16_STEP, depth - step * BP_BF16_STEP));
        }
    }
}

/* A block at an edge, from rows into quarters or back. */
static void copy_edge(const work *w, int64_t m, int64_t n, float *quarters, bool back)
{
    for (int64_t r = 0; r < rows_of(w, m); r++)
        for (int64_t c = 0; c < columns_of(w, n); c++) {
            float *one = place_of(w, m, n) + r * w->product->c_row + c,
                  *other = quarters + (r / 16 * 2 + c / 16) * 256 + r % 16 * 16 + c % 16;
            *(back ? one : other) = *(back ? other : one);
        }
}

static bool is_edge(const work *w, int64_t m, int64_t n)
{
    return rows_of(w, m) < BP_BF16_ROWS || columns_of(w, n) < BP_BF16_COLUMNS;
}

/* Stores the registers to their destination. */
static void flush(work *w)
{
    bp_gradient_block last = {
        .before = w->before, .c = w->c, .c_row = w->product->c_row, .past = w->past};

    if (w->before)
        w->kernel->gradient->end(&last);
    w->before = w->c = NULL;
}

/* The initial sums of a block, and of the next one. */
static void start_of(const work *w, const column *one, int64_t m, float *sums,
                     bp_gradient_block *block)
{
    const visit *v = &one->v;

    block->start = v->first > 0 ? sums : NULL;
    if (v->first > 0 || !w->product->accumulate)
        return;
    block->start = place_of(w, m, one->n);
    block->start_row = w->product->c_row;
    if (is_edge(w, m, one->n)) {
        copy_edge(w, m, one->n, w->edge, false);
        block->start = w->edge;
        block->start_row = 0;
    }
    block->next_start = m + 1 < v->m1 ? place_of(w, m + 1, one->n) : one->next_c;
}

static void multiply_block(work *w, const column *one, int64_t m)
{
    const visit *v = &one->v;
    int64_t steps = v->last - v->first, mb = v->m1 - v->m0;
    float *sums = w->sums + ((one->n - v->n0) * mb + m - v->m0) * BP_STRIP_SUMS;
    bp_gradient_block block = {.a = w->left + (m - v->m0) * steps * STEP_WORDS,
                               .b = one->b,
                               .steps = steps,
                               .next_sums = w->runs > 1 ? sums + BP_STRIP_SUMS : NULL,
                               .before = w->before,
                               .c = w->c,
                               .c_row = w->product->c_row,
                               .past = w->past,
                               .next_b = one->next_b +
                                         (m - v->m0) * steps * BP_GRADIENT_LINES * LINE_FLOATS};

    start_of(w, one, m, sums, &block);
    w->kernel->gradient->block(&block);
    w->before = v->last < w->steps ? sums : w->finished;
    w->c = v->last < w->steps || is_edge(w, m, one->n) ? NULL : place_of(w, m, one->n);
    if (v->last == w->steps && is_edge(w, m, one->n)) {
        flush(w);
        copy_edge(w, m, one->n, w->finished, true);
    }
}

static void multiply_rows(work *w)
{
    visit v = visit_at(w, 0);

    w->kernel->begin();
    for (int64_t at = -1; v.at != at;) {
        visit next = visit_at(w, v.at + 1);
        turn_left(w, &v);
        for (int64_t n = v.n0; n < v.n1; n++) {
            column one = column_of(w, &v, &next, n);
            for (int64_t m = v.m0; m < v.m1; m++)
                multiply_block(w, &one, m);
        }
        at = v.at;
        v = next;
    }
    flush(w);
    w->kernel->end();
}

void bp_bf16_multiply_gradient(const bp_bf16_kernel *kernel, const bp_bf16_gradient *gradient,
                               void *scratch)
{
    int64_t steps = bp_divide_up(gradient->K, BP_BF16_STEP),
            panels = bp_divide_up(gradient->M, BP_BF16_ROWS), threads = omp_get_max_threads();

#pragma omp parallel for schedule(static) if (threads > 1)
    for (int64_t i = 0; i < threads; i++) {
        work w = {.kernel = kernel,
                  .product = gradient,
                  .steps = steps,
                  .runs = steps <= ONE_RUN ? 1 : bp_divide_up(steps, LONG_RUN),
                  .m_first = cut(panels, threads, i),
                  .m_last = cut(panels, threads, i + 1)};
        w.blocks = bp_divide_up(w.m_last - w.m_first, w.runs > 1 ? RUN_PANELS : HELD_STEPS / steps);
        w.parts =
            w.runs > 1 ? bp_divide_up(bp_divide_up(gradient->N, BP_BF16_COLUMNS), RUN_COLUMNS) : 1;
        w.past = !gradient->accumulate || w.runs > 1;
        w.left = (uint32_t *)scratch + i * thread_words(gradient->K);
        w.finished = (float *)(w.left + left_words(gradient->K));
        w.edge = w.finished + BP_STRIP_SUMS;
        w.sums = w.edge + BP_STRIP_SUMS;
        multiply_rows(&w);
    }
}
