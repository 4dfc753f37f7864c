/* Optimizer updates and the sums of squares for clipping. */
#include "base/trace.h"
#include "math/kernels/kernels.h"
#include "math/loops/loops.h"
#include <math.h>
#include <omp.h>
#include <string.h>

#define SERIAL_FLOATS 8192 /* fewer are not worth a team */
#define SHARE_FLOATS  1024 /* threads take whole multiples */

void bp_square_sums(double *sums, const float *x, int64_t n)
{
    const bp_loops *loops = bp_loops_best();
    int64_t blocks = (n + BP_NORM_BLOCK - 1) / BP_NORM_BLOCK;

    BP_TRACE(BP_TRACE_GRADIENT, 0, 4.0 * (double)n);
#pragma omp parallel for schedule(static) if (blocks > 2)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * BP_NORM_BLOCK;
        sums[block] =
            loops->square_sum(x + first, n - first < BP_NORM_BLOCK ? n - first : BP_NORM_BLOCK);
    }
}

/* Integer sums do not depend on order: threads may add them in any order. */
uint32_t bp_bit_sum(const float *x, int64_t n)
{
    const bp_loops *loops = bp_loops_best();
    uint32_t sum = 0;

#pragma omp parallel reduction(+ : sum) if (n > SERIAL_FLOATS)
    {
        int64_t first, last;
        bp_share(n, SHARE_FLOATS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        sum += loops->bit_sum(x + first, last - first);
    }
    return sum;
}

static void add_sums(uint32_t to[BP_SUMS], const uint32_t sums[BP_SUMS])
{
    for (int k = 0; k < BP_SUMS; k++)
        to[k] += sums[k];
}

/* Threads share the parameters out. */
static bp_update_sums update(bp_update_loop loop, const bp_updated *at,
                             const bp_update_constants *constants)
{
    float *w = at->w, *m = at->m, *v = at->v;
    const float *g = at->g;
    uint32_t before[BP_SUMS] = {0}, after[BP_SUMS] = {0};
    bp_update_sums all;

#pragma omp parallel reduction(+ : before[:BP_SUMS], after[:BP_SUMS]) if (at->n > SERIAL_FLOATS)
    {
        int64_t first, last;
        bp_share(at->n, SHARE_FLOATS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        bp_update_sums sums =
            loop(w + first, m + first, v ? v + first : NULL, g + first, last - first, constants);
        add_sums(before, sums.before);
        add_sums(after, sums.after);
    }
    memcpy(all.before, before, sizeof before);
    memcpy(all.after, after, sizeof after);
    return all;
}

static bp_update_constants adam_constants(const bp_adamw *rule)
{
    return (bp_update_constants){
        .rate = (float)rule->rate,
        .beta1 = (float)rule->beta1,
        .rest1 = (float)(1.0 - rule->beta1),
        .beta2 = (float)rule->beta2,
        .rest2 = (float)(1.0 - rule->beta2),
        .correction1 = (float)(1.0 / (1.0 - pow(rule->beta1, (double)rule->step))),
        .correction2 = (float)(1.0 / (1.0 - pow(rule->beta2, (double)rule->step))),
        .epsilon = (float)rule->epsilon,
        .decay = (float)rule->decay,
        .gradient_scale = (float)rule->gradient_scale,
    };
}

bp_update_sums bp_adamw_update(float *w, float *m, float *v, const float *g, int64_t n,
                               const bp_adamw *rule)
{
    bp_update_constants constants = adam_constants(rule);

    return update(bp_loops_best()->adamw, &(bp_updated){w, m, v, g, n}, &constants);
}

static bp_update_constants constants_of(const bp_torch_rule *rule, double keep)
{
    return (bp_update_constants){.rate = (float)rule->rate,
                                 .beta1 = (float)keep,
                                 .rest1 = (float)(1 - keep),
                                 .beta2 = (float)rule->momentum,
                                 .epsilon = (float)rule->epsilon,
                                 .decay = (float)rule->decay,
                                 .gradient_scale = (float)rule->gradient_scale};
}

bp_update_sums bp_sgd_update(const bp_updated *at, const bp_torch_rule *rule)
{
    bp_update_constants constants = constants_of(rule, rule->momentum);

    return update(bp_loops_best()->sgd, at, &constants);
}

bp_update_sums bp_adagrad_update(const bp_updated *at, const bp_torch_rule *rule)
{
    bp_update_constants constants = constants_of(rule, 0);

    return update(bp_loops_best()->adagrad, at, &constants);
}

bp_update_sums bp_adadelta_update(const bp_updated *at, const bp_torch_rule *rule)
{
    bp_update_constants constants = constants_of(rule, rule->keep);

    return update(bp_loops_best()->adadelta, at, &constants);
}

bp_update_sums bp_rmsprop_update(const bp_updated *at, const bp_torch_rule *rule)
{
    const bp_loops *loops = bp_loops_best();
    bp_update_constants constants = constants_of(rule, rule->keep);

    return update(at->v ? loops->rmsprop_momentum : loops->rmsprop, at, &constants);
}

void bp_lamb_moments(const bp_updated *at, const bp_adamw *rule)
{
    const bp_loops *loops = bp_loops_best();
    bp_update_constants constants = adam_constants(rule);

#pragma omp parallel if (at->n > SERIAL_FLOATS)
    {
        int64_t first, last;
        bp_share(at->n, SHARE_FLOATS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        loops->lamb_moments(at->m + first, at->v + first, at->g + first, last - first, &constants);
    }
}

/* Where piece k of a run ends that begins at place `first` of its group. */
static int64_t piece_end(int64_t first, int64_t k, int64_t n)
{
    int64_t end = (first / BP_NORM_BLOCK + k + 1) * BP_NORM_BLOCK - first;

    return end < n ? end : n;
}

static int64_t pieces_of(int64_t first, int64_t n)
{
    return (first + n + BP_NORM_BLOCK - 1) / BP_NORM_BLOCK - first / BP_NORM_BLOCK;
}

int64_t bp_block_pieces(int64_t n)
{
    return n / BP_NORM_BLOCK + 2;
}

void bp_lamb_squares(double sums[2], double *scratch, const bp_updated *at, int64_t first,
                     const bp_adamw *rule)
{
    const bp_loops *loops = bp_loops_best();
    bp_update_constants constants = adam_constants(rule);
    int64_t pieces = pieces_of(first, at->n);

#pragma omp parallel for schedule(static) if (pieces > 2)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t begin = k == 0 ? 0 : piece_end(first, k - 1, at->n);
        loops->lamb_squares(scratch + 2 * k, at->w + begin, at->m + begin, at->v + begin,
                            piece_end(first, k, at->n) - begin, &constants);
    }
    for (int64_t k = 0; k < 2 * pieces; k++)
        sums[k % 2] += scratch[k];
}

void bp_lamb_apply(const bp_updated *at, const bp_adamw *rule, double trust)
{
    const bp_loops *loops = bp_loops_best();
    bp_update_constants constants = adam_constants(rule);

    constants.rate = (float)(rule->rate * trust);
#pragma omp parallel if (at->n > SERIAL_FLOATS)
    {
        int64_t first, last;
        bp_share(at->n, SHARE_FLOATS, omp_get_num_threads(), omp_get_thread_num(), &first, &last);
        loops->lamb_apply(at->w + first, at->m + first, at->v + first, last - first, &constants);
    }
}

void bp_blocks_square_sum(double *sum, double *scratch, const float *x, int64_t n, int64_t first)
{
    const bp_loops *loops = bp_loops_best();
    int64_t pieces = pieces_of(first, n);

#pragma omp parallel for schedule(static) if (pieces > 2)
    for (int64_t k = 0; k < pieces; k++) {
        int64_t begin = k == 0 ? 0 : piece_end(first, k - 1, n);
        scratch[k] = loops->square_sum(x + begin, piece_end(first, k, n) - begin);
    }
    for (int64_t k = 0; k < pieces; k++)
        *sum += scratch[k];
}

/* The part of a row that is in one block: [*begin, *end) of the run. */
typedef struct row_part {
    int64_t row, column, begin, end;
} row_part;

/* The part that begins at element `begin` of the run. */
static row_part part_at(const bp_factored *at, int64_t begin)
{
    int64_t place = at->place + begin, row = place / at->columns,
            end = (row + 1) * at->columns - at->place,
            block = ((at->first + begin) / BP_NORM_BLOCK + 1) * BP_NORM_BLOCK - at->first;

    end = end < block ? end : block;
    return (row_part){row, place % at->columns, begin, end < at->n ? end : at->n};
}

#define PARTS_AT_ONCE  512
#define FLOATS_AT_ONCE (1 << 17) /* elements of a part: still in cache when read again */

/* Parts of a run that threads share out, and each part's sum. */
typedef struct part_list {
    row_part part[PARTS_AT_ONCE];
    double sum[PARTS_AT_ONCE];
    int count;
    int64_t floats;
} part_list;

/* The next parts, from element `begin` of the run on; false at the end. */
static bool list_parts(part_list *list, const bp_factored *at, int64_t begin)
{
    int64_t first = begin;

    for (list->count = 0;
         list->count < PARTS_AT_ONCE && begin < at->n && begin - first < FLOATS_AT_ONCE;
         list->count++) {
        list->part[list->count] = part_at(at, begin);
        begin = list->part[list->count].end;
    }
    list->floats = begin - first;
    return list->count > 0;
}

static int64_t list_end(const part_list *list)
{
    return list->part[list->count - 1].end;
}

/* Adds the parts' sums for columns [first, end), each part's rows in order. */
static void add_columns(const part_list *list, const bp_factored *at, const float *g, int64_t first,
                        int64_t end, float scale, float floor)
{
    const bp_loops *loops = bp_loops_best();

    for (int k = 0; k < list->count; k++) {
        const row_part *part = &list->part[k];
        int64_t from = first > part->column ? first : part->column,
                after = part->column + part->end - part->begin;

        after = after < end ? after : end;
        if (from < after)
            loops->factor_columns(at->column_sums + from, g + part->begin + from - part->column,
                                  after - from, scale, floor);
    }
}

/* A row's parts are added in order, whichever rank holds them, as are a column's rows. Threads
 * share out the parts, then the columns; one thread takes both at once. */
void bp_factor_sums(const bp_factored *at, const float *g, double scale, double floor)
{
    const bp_loops *loops = bp_loops_best();
    part_list list;

    for (int64_t begin = 0; list_parts(&list, at, begin); begin = list_end(&list)) {
        bool shared = list.floats > SERIAL_FLOATS && omp_get_max_threads() > 1;
#pragma omp parallel if (shared)
        {
            int64_t first, end;

#pragma omp for schedule(static) nowait
            for (int k = 0; k < list.count; k++) {
                const row_part *part = &list.part[k];

                list.sum[k] = loops->factor_sum(shared ? NULL : at->column_sums + part->column,
                                                g + part->begin, part->end - part->begin,
                                                (float)scale, (float)floor);
            }
            bp_share(at->columns, 16, omp_get_num_threads(), omp_get_thread_num(), &first, &end);
            if (shared)
                add_columns(&list, at, g, first, end, (float)scale, (float)floor);
        }
        for (int k = 0; k < list.count; k++)
            at->row_sums[list.part[k].row] += list.sum[k];
    }
}

void bp_factor_squares(double *sum, const bp_factored *at, const float *g)
{
    const bp_loops *loops = bp_loops_best();
    part_list list;

    for (int64_t begin = 0; list_parts(&list, at, begin); begin = list_end(&list)) {
#pragma omp parallel for schedule(static) if (list.floats > SERIAL_FLOATS)
        for (int k = 0; k < list.count; k++)
            list.sum[k] = loops->factor_squares(
                g + list.part[k].begin, at->column + list.part[k].column,
                list.part[k].end - list.part[k].begin, at->row[list.part[k].row]);
        for (int k = 0; k < list.count; k++)
            *sum += list.sum[k];
    }
}

void bp_factor_apply(float *w, const bp_factored *at, const float *g, double rate, double keep)
{
    const bp_loops *loops = bp_loops_best();
    int64_t rows = (at->place + at->n - 1) / at->columns - at->place / at->columns + 1;

#pragma omp parallel for schedule(static) if (at->n > SERIAL_FLOATS)
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = at->place / at->columns + r, begin = row * at->columns - at->place,
                end = begin + at->columns, column = 0;

        if (begin < 0) {
            column = -begin;
            begin = 0;
        }
        end = end < at->n ? end : at->n;
        loops->factor_apply(w + begin, g + begin, at->column + column, end - begin,
                            (float)(rate * (double)at->row[row]), (float)keep);
    }
}
