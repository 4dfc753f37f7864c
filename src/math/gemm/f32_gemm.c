/* Loops of our own float32 products: threads share the sums, each packs both sides for itself. */
#include "math/gemm/f32_gemm.h"
#include "base/numbers.h"
#include "math/loops/loops.h"
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

#define BLOCK_COLUMNS 768       /* columns of the right side in L2: 0.75 MiB */
#define STRIP_ROWS    48        /* of the left side: whole cache lines of what is transposed */
#define LINE          16        /* floats */
#define PLAIN_COLUMNS 512       /* of a product whose left side is not packed, */
#define PLAIN_ROW     512       /* and floats from row to row of it: at most; */
#define PLAIN_BLOCK   256       /* its BLOCK_COLUMNS */
#define SMALL         (1 << 17) /* up to this many multiply-adds run on one thread */
#define NONE          INT64_MAX
#define SPINS         1000

#ifdef BP_LOOPS_X86
const bp_f32_kernel *bp_f32_kernel_here(void)
{
    return __builtin_cpu_supports("avx512f") ? &bp_f32_kernel_avx512 : NULL;
}
#else
const bp_f32_kernel *bp_f32_kernel_here(void)
{
    return NULL;
}
#endif

/* Columns and k of a block of the right side. */
typedef struct block {
    int64_t n, columns, k, inner;
} block;

/* A number in its own cache line. */
typedef struct number {
    _Alignas(64) atomic_llong value;
} number;

/* The state of a thread. Threads that share columns take strips of rows one by one, block after
 * block: no thread waits for a slower one until the end. */
typedef struct visit {
    const bp_f32_kernel *kernel;
    const bp_f32_product *p;
    int64_t n, n_end; /* the columns */
    number *taken;    /* strips */
    number *at;       /* [threads] the strip that each one multiplies, or one before; or NONE */
    int threads, me;
    block block, next;
    float *strip, *panels; /* its own */
    bool packs;            /* rows of the left side */
    int64_t width, depth;  /* columns of a block, and rows of its panels */
    int64_t left;          /* about the number of tiles of this block left to multiply */
} visit;

static int64_t filled_up(int64_t n, int64_t unit)
{
    return bp_divide_up(n, unit) * unit;
}

static int64_t depth_of(const bp_f32_product *p)
{
    return bp_min(filled_up(p->K, BP_F32_STEP), BP_F32_INNER);
}

/* A copy of the left side costs about as much as 8 columns. Without it, rows must end at a step,
 * and their stride must not map them to the same cache sets. */
static bool packs_left(const bp_f32_product *p)
{
    return p->a.transposed || p->K % BP_F32_STEP != 0 || p->N > PLAIN_COLUMNS ||
           p->a.row > PLAIN_ROW;
}

static int64_t block_columns(const bp_f32_product *p)
{
    return packs_left(p) ? BLOCK_COLUMNS : PLAIN_BLOCK;
}

/* Floats of a thread. */
static int64_t workspace_floats(const bp_f32_product *p)
{
    return STRIP_ROWS * BP_F32_STRIP_ROW +
           bp_min(filled_up(p->N, BP_F32_COLUMNS), block_columns(p)) * depth_of(p);
}

size_t bp_f32_workspace_bytes(const bp_f32_product *p)
{
    return (size_t)omp_get_max_threads() *
           (2 * sizeof(number) + (size_t)workspace_floats(p) * sizeof(float));
}

static const float *element_of(const bp_f32_matrix *x, int64_t row, int64_t column)
{
    return x->data + (x->transposed ? column * x->row + row : row * x->row + column);
}

static void pack_panels(const visit *v)
{
    const bp_f32_matrix *right = &v->p->b;
    const block *b = &v->block;

    for (int64_t c = 0; c < b->columns; c += BP_F32_COLUMNS)
        v->kernel->pack(v->panels + c * v->depth, BP_F32_COLUMNS, element_of(right, b->k, b->n + c),
                        right->row, right->transposed, b->inner,
                        bp_min(BP_F32_COLUMNS, b->columns - c));
}

/* Prefetches of a strip's i-th tile: a row of the next strip, which begins at m, or 16 columns if
 * transposed, ... */
static void ask_left(bp_f32_tile *t, const visit *v, int64_t m, int64_t i)
{
    const bp_f32_matrix *left = &v->p->a;
    int64_t groups = BP_F32_INNER / BP_F32_STEP;

    if (left->transposed) {
        t->next[0] = element_of(left, m + bp_min(i / groups * LINE, STRIP_ROWS - 1),
                                v->block.k + i % groups * BP_F32_STEP);
        t->next_step[0] = left->row;
    } else {
        t->next[0] = element_of(left, m + bp_min(i, STRIP_ROWS - 1), v->block.k);
        t->next_step[0] = LINE;
    }
}

/* ... and a run of lines of the next block of the right side, so that all of it is prefetched by
 * the block's last tiles. */
static void ask_right(bp_f32_tile *t, const visit *v)
{
    const bp_f32_matrix *right = &v->p->b;
    const block *next = &v->next;
    int64_t runs = right->transposed ? 1 : bp_divide_up(next->columns, BP_F32_INNER),
            rows = right->transposed ? next->columns : next->inner,
            run = v->left < rows * runs ? v->left : 0, k = next->k, n = next->n;

    if (right->transposed)
        n += run;
    else
        k += run / runs;
    t->next[1] = element_of(right, k, n) + run % runs * BP_F32_INNER;
    t->next_step[1] = LINE;
}

/* Rows of a strip, whose first is m + first, by all panels. */
static void multiply_rows(visit *v, bp_f32_tile *t, int64_t m, int64_t first, int64_t tiles)
{
    static const float zeros[BP_F32_COLUMNS];
    const bp_f32_product *p = v->p;
    const block *b = &v->block;

    t->a = v->packs ? v->strip + first * BP_F32_STRIP_ROW : element_of(&p->a, m + first, b->k);
    for (int64_t c = 0; c < b->columns; c += BP_F32_COLUMNS, tiles++) {
        t->c = p->c + (m + first) * p->c_row + b->n + c;
        t->start = t->start_row > 0 ? t->c : p->start ? p->start + b->n + c : zeros;
        t->b = v->panels + c * v->depth;
        t->columns = bp_min(BP_F32_COLUMNS, b->columns - c);
        v->left--;
        ask_left(t, v, m + v->threads * STRIP_ROWS, tiles);
        ask_right(t, v);
        v->kernel->multiply(t);
    }
}

/* As few tiles as possible, with about equal rows: few rows leave registers empty. */
static void multiply_strip(visit *v, int64_t m, int64_t rows)
{
    const bp_f32_product *p = v->p;
    const block *b = &v->block;
    int64_t count = bp_divide_up(rows, BP_F32_ROWS),
            panels = bp_divide_up(b->columns, BP_F32_COLUMNS);
    bp_f32_tile t = {.c_row = p->c_row,
                     .start_row = b->k > 0 || p->start == p->c ? p->c_row : 0,
                     .a_row = v->packs ? BP_F32_STRIP_ROW : p->a.row,
                     .inner = filled_up(b->inner, BP_F32_STEP)};

    if (v->packs)
        v->kernel->pack(v->strip, BP_F32_STRIP_ROW, element_of(&p->a, m, b->k), p->a.row,
                        p->a.transposed, rows, b->inner);
    for (int64_t i = 0; i < count; i++) {
        int64_t first = rows * i / count;
        t.rows = rows * (i + 1) / count - first;
        multiply_rows(v, &t, m, first, i * panels);
    }
}

static block block_of(const visit *v, int64_t i)
{
    int64_t blocks = bp_divide_up(v->p->K, BP_F32_INNER), k = i % blocks * BP_F32_INNER,
            n = v->n + i / blocks * v->width;

    return (block){n, bp_min(v->width, v->n_end - n), k, bp_min(BP_F32_INNER, v->p->K - k)};
}

/* Takes the next strip. The value that others see meanwhile is never later than the strip they
 * must wait for. */
static int64_t take(visit *v)
{
    atomic_store(&v->at[v->me].value, atomic_load(&v->taken->value));
    int64_t i = atomic_fetch_add(&v->taken->value, 1);
    atomic_store(&v->at[v->me].value, i);
    return i;
}

/* Waits until all strips up to the last-th are done. */
static void wait_for(const visit *v, int64_t last)
{
    for (int i = 0; i < v->threads; i++)
        for (int spins = 0; atomic_load(&v->at[i].value) <= last; spins++)
            if (spins >= SPINS)
                sched_yield();
}

static void enter_block(visit *v, int64_t i, int64_t blocks)
{
    v->block = block_of(v, i);
    v->next = block_of(v, i + 1 < blocks ? i + 1 : i);
    pack_panels(v);
}

/* A strip finishes its sums of one block of k before the next block. */
static void multiply_columns(visit *v)
{
    int64_t strips = bp_divide_up(v->p->M, STRIP_ROWS), inside = -1,
            blocks = bp_divide_up(v->n_end - v->n, v->width) * bp_divide_up(v->p->K, BP_F32_INNER);

    for (int64_t i = take(v); i < blocks * strips; i = take(v)) {
        int64_t s = i % strips, m = s * STRIP_ROWS;

        if (i / strips != inside)
            enter_block(v, i / strips, blocks);
        inside = i / strips;
        v->left = (strips - s) / v->threads * (STRIP_ROWS / BP_F32_ROWS) *
                  bp_divide_up(v->block.columns, BP_F32_COLUMNS);
        wait_for(v, i - strips);
        multiply_strip(v, m, bp_min(STRIP_ROWS, v->p->M - m));
    }
    atomic_store(&v->at[v->me].value, NONE);
}

/* The number of parts of the columns, with the threads divided among them: minimizes a thread's
 * work. Packing a column costs about as much as 16 rows, packing a row about as much as 8 columns.
 * More parts must save 1/32, since the threads of one part balance their load. */
static int column_parts(const bp_f32_product *p, int threads)
{
    int best = 1;
    int64_t best_work = INT64_MAX;

    for (int parts = 1; parts <= threads; parts++) {
        int64_t columns = bp_divide_up(bp_divide_up(p->N, BP_F32_COLUMNS), parts) * BP_F32_COLUMNS,
                strips = bp_divide_up(bp_divide_up(p->M, STRIP_ROWS), threads / parts),
                work = (bp_min(strips * STRIP_ROWS, p->M) + 16) * (columns + 8);
        if (threads % parts == 0 && work < best_work - best_work / 32) {
            best = parts;
            best_work = work;
        }
    }
    return best;
}

void bp_f32_multiply(const bp_f32_kernel *kernel, const bp_f32_product *p, void *workspace)
{
    int threads = p->M * p->N * p->K > SMALL ? omp_get_max_threads() : 1,
        across = column_parts(p, threads), down = threads / across;
    int64_t floats = workspace_floats(p);
    number *taken = workspace, *all = taken + threads;

    for (int i = 0; i < threads; i++) {
        atomic_init(&taken[i].value, 0);
        atomic_init(&all[i].value, NONE);
    }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int i = 0; i < threads; i++) {
        visit v = {.kernel = kernel,
                   .p = p,
                   .taken = &taken[i / down],
                   .at = all + i / down * down,
                   .threads = down,
                   .me = i % down,
                   .packs = packs_left(p),
                   .width = block_columns(p),
                   .depth = depth_of(p),
                   .strip = (float *)(all + threads) + i * floats};
        v.panels = v.strip + STRIP_ROWS * BP_F32_STRIP_ROW;
        bp_share(p->N, BP_F32_COLUMNS, across, i / down, &v.n, &v.n_end);
        multiply_columns(&v);
    }
}
