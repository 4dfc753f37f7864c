/* Attention to cached keys and values: the scores of a position with all keys, their softmax, then
 * the sum of values. Positions of one sequence, and heads that share keys, read them together. */
#include "math/attention/cached.h"

#include "base/err.h"
#include "base/trace.h"
#include "math/kernels/entmax.h"
#include "math/loops/loops.h"
#include <math.h>
#include <omp.h>
#include <string.h>

#define LINES 8   /* minimum rows of scores in a task: queries times heads of a group */
#define CHUNK 128 /* positions whose keys or values stay in the L1 cache */

typedef struct work {
    float *out, *cache;
    const float *qkv;
    const bp_cached_rows *rows;
    const bp_cached_shape *shape;
    const bp_loops *loops;
    float scale;
} work;

/* Some rows of one sequence, and one head of keys with the heads that read it. */
typedef struct task {
    int64_t row, rows, head;
    int64_t first, heads; /* that read it */
    float *scores;        /* [rows][heads of a group][capacity] */
} task;

/* The most heads that read one head of keys. */
static int64_t heads_of_group(const bp_cached_shape *shape)
{
    int64_t all = shape->group > 0 ? shape->group : shape->H / shape->key_heads;

    return all < shape->H ? all : shape->H;
}

/* The first head that reads key head `kv`. */
static int64_t first_head(const bp_cached_shape *shape, int64_t kv)
{
    int64_t group = shape->group > 0 ? shape->group : shape->H / shape->key_heads,
            first = kv * group - shape->before;

    return first < 0 ? 0 : first < shape->H ? first : shape->H;
}

/* Rows of a task. */
static int64_t most_rows(const bp_cached_shape *shape)
{
    int64_t rows = LINES / heads_of_group(shape);

    return rows > 0 ? rows : 1;
}

static int64_t scores_floats(const bp_cached_shape *shape)
{
    return (most_rows(shape) * heads_of_group(shape) * shape->capacity + 15) / 16 * 16;
}

int64_t bp_cached_floats(const bp_cached_shape *shape)
{
    return 2 * shape->slots * shape->key_heads * shape->capacity * shape->D;
}

size_t bp_cached_scratch_bytes(const bp_cached_shape *shape)
{
    return (size_t)(omp_get_max_threads() * scores_floats(shape)) * sizeof(float);
}

static int64_t row_floats(const bp_cached_shape *shape)
{
    return (shape->H + (shape->stored ? 0 : 2 * shape->key_heads)) * shape->D;
}

/* For keys (which 0) or values (1). */
static float *cell_of(const work *all, int which, int64_t slot, int64_t head, int64_t position)
{
    const bp_cached_shape *shape = all->shape;

    return all->cache +
           (((which * shape->slots + slot) * shape->key_heads + head) * shape->capacity +
            position) *
               shape->D;
}

static const int32_t *cells_of(const work *all, int64_t row)
{
    return all->rows->cells + all->rows->slots[row] * all->shape->capacity;
}

static void store(const work *all, int64_t row)
{
    const bp_cached_shape *shape = all->shape;
    int64_t position = all->rows->positions[row], slot = cells_of(all, row)[position];
    const float *from = all->qkv + row * row_floats(shape) + shape->H * shape->D;

    BP_ASSERT(position < shape->capacity && slot >= 0 && slot < shape->slots);
    for (int which = 0; which < 2; which++)
        for (int64_t head = 0; head < shape->key_heads; head++, from += shape->D)
            memcpy(cell_of(all, which, slot, head, position), from,
                   (size_t)shape->D * sizeof *from);
}

static int64_t first_seen(const work *all, int64_t row)
{
    int64_t position = all->rows->positions[row], window = all->shape->window;

    return window > 0 && position >= window ? position - window + 1 : 0;
}

/* How many positions from `at` on, up to `end`, are contiguous in the cache. */
static int64_t run_length(const int32_t *cells, int64_t at, int64_t end)
{
    int64_t n = 1;

    end = end < at + CHUNK ? end : at + CHUNK;
    while (at + n < end && cells[at + n] == cells[at])
        n++;
    return n;
}

static float *scores_of(const work *all, const task *t, int64_t row, int64_t head)
{
    return t->scores + (row * heads_of_group(all->shape) + head) * all->shape->capacity;
}

/* Products of the task's queries with keys [at, at + n). */
static void score_run(const work *all, const task *t, const float *keys, int64_t at, int64_t n)
{
    const bp_cached_shape *shape = all->shape;
    int64_t group = heads_of_group(shape), queries = row_floats(shape);
    const float *q = all->qkv + t->row * queries + t->first * shape->D;
    bp_dots dots = {.w = keys, .w_row = shape->D, .outs = n, .ins = shape->D};

    if (t->rows == 1) {
        dots.rows = t->heads;
        dots.x = q;
        dots.x_row = shape->D;
        dots.y = scores_of(all, t, 0, 0) + at;
        dots.y_row = shape->capacity;
        all->loops->dots(&dots);
        return;
    }
    for (int64_t head = 0; head < t->heads; head++) {
        dots.rows = t->rows;
        dots.x = q + head * shape->D;
        dots.x_row = queries;
        dots.y = scores_of(all, t, 0, head) + at;
        dots.y_row = group * shape->capacity;
        all->loops->dots(&dots);
    }
}

/* Over the positions that row `row` of the task sees. */
static const float *bias_of(const work *all, const task *t, int64_t row, int64_t head)
{
    int64_t capacity = all->shape->capacity, seen = all->rows->positions[t->row + row] + 1;

    return all->shape->bias + (t->first + head) * capacity + capacity - seen +
           first_seen(all, t->row + row);
}

/* The scores of row `row` of the task become weights that sum to 1. */
static void weigh(const work *all, const task *t, int64_t row)
{
    int64_t first = first_seen(all, t->row + row),
            keys = all->rows->positions[t->row + row] + 1 - first;

    for (int64_t head = 0; head < t->heads; head++) {
        float *scores = scores_of(all, t, row, head) + first, max;
        double sum;

        all->loops->scale(scores, all->scale, keys);
        if (all->shape->cap > 0)
            bp_cap(all->loops, scores, NULL, all->shape->cap, keys);
        if (all->shape->bias)
            all->loops->add(scores, bias_of(all, t, row, head), keys);
        if (all->shape->entmax) {
            double tau = bp_entmax_tau(scores, keys);

            all->loops->threshold_square(scores, scores, keys, tau, 1);
            continue;
        }
        all->loops->softmax_statistics(&max, &sum, scores, keys);
        all->loops->exp_scale(scores, scores, keys, max, (float)(1.0 / sum));
    }
}

/* Adds values [at, at + n) to the sums of the queries that see them. */
static void sum_run(const work *all, const task *t, const float *values, int64_t at, int64_t n)
{
    const bp_cached_shape *shape = all->shape;
    int64_t D = shape->D;

    for (int64_t row = 0; row < t->rows; row++) {
        int64_t first = first_seen(all, t->row + row), end = all->rows->positions[t->row + row] + 1;

        first = first > at ? first : at;
        end = end < at + n ? end : at + n;
        for (int64_t head = 0; head < t->heads && first < end; head++)
            all->loops->weighted_rows(all->out + ((t->row + row) * shape->H + t->first + head) * D,
                                      scores_of(all, t, row, head) + first,
                                      values + (first - at) * D, end - first, D, D);
    }
}

static void attend(const work *all, const task *t)
{
    const bp_cached_shape *shape = all->shape;
    const int32_t *cells = cells_of(all, t->row);
    int64_t last = t->row + t->rows - 1, end = all->rows->positions[last] + 1, n;
    int64_t first = first_seen(all, t->row);

    for (int64_t at = first; at < end; at += n) {
        n = run_length(cells, at, end);
        score_run(all, t, cell_of(all, 0, cells[at], t->head, at), at, n);
    }
    for (int64_t row = 0; row < t->rows; row++) {
        weigh(all, t, row);
        memset(all->out + ((t->row + row) * shape->H + t->first) * shape->D, 0,
               (size_t)(t->heads * shape->D) * sizeof(float));
    }
    for (int64_t at = first; at < end; at += n) {
        n = run_length(cells, at, end);
        sum_run(all, t, cell_of(all, 1, cells[at], t->head, at), at, n);
    }
}

/* The rows from `row` on that make a task: of one sequence. */
static int64_t task_rows(const work *all, int64_t row)
{
    const bp_cached_rows *rows = all->rows;
    int64_t n = 1, most = most_rows(all->shape);

    while (n < most && row + n < rows->count && rows->slots[row + n] == rows->slots[row])
        n++;
    return n;
}

void bp_attention_cached(float *out, float *cache, const float *qkv, const bp_cached_rows *rows,
                         const bp_cached_shape *shape, void *scratch)
{
    float scale = shape->scale > 0 ? shape->scale : 1.0f / sqrtf((float)shape->D);
    work all = {out, cache, qkv, rows, shape, bp_loops_best(), scale};
    int64_t heads = shape->key_heads;

    BP_TRACE(BP_TRACE_ATTENTION_FORWARD, 0, 0);
    for (int64_t row = 0; !shape->stored && row < rows->count; row++)
        store(&all, row);
#pragma omp parallel
    {
        task t = {.scores = (float *)scratch + omp_get_thread_num() * scores_floats(shape)};
        int64_t number = 0;

        for (t.row = 0; t.row < rows->count; t.row += t.rows) {
            t.rows = task_rows(&all, t.row);
            for (t.head = 0; t.head < heads; t.head++) {
                t.first = first_head(shape, t.head);
                t.heads = first_head(shape, t.head + 1) - t.first;
                if (number++ % omp_get_num_threads() == omp_get_thread_num())
                    attend(&all, &t);
            }
        }
    }
}
