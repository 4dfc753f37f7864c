/* Soft targets over a vocabulary that is split over tensor ranks. Called by lm_head_backward.c for
 * each chunk. */
#include "nn/heads/distill.h"

#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

bp_distill_work bp_distill_alloc(bp_arena *arena, int64_t rows, int64_t V)
{
    bp_distill_work work = {.q = bp_arena_floats(arena, rows * V)};

    work.work = bp_arena_floats(arena, rows * V);
    work.max = bp_arena_floats(arena, 2 * rows);
    work.sums = (double *)(void *)bp_arena_floats(arena, 2 * 2 * rows);
    work.one = bp_arena_floats(arena, rows);
    work.none = (int32_t *)(void *)bp_arena_floats(arena, rows);
    return work;
}

static void multiply(float *to, const float *from, float factor, int64_t n)
{
#pragma omp parallel for simd schedule(static) if (n > 8192)
    for (int64_t i = 0; i < n; i++)
        to[i] = factor * from[i];
}

/* work->work, logits at the temperature, becomes weight softmax; the statistics are kept. */
static void take_softmax(const bp_distill_work *work, const bp_distilled *rows, float weight,
                         MPI_Comm tensor)
{
    bp_operand here = bp_operand_floats(work->work, rows->rows, rows->V);

    bp_logit_statistics(work->max, work->sums,
                        &(bp_logit_rows){.logits = work->work,
                                         .targets = work->none,
                                         .rows = rows->rows,
                                         .V = rows->V,
                                         .first = rows->first,
                                         .stride = rows->V},
                        tensor);
    for (int64_t r = 0; r < rows->rows; r++)
        work->one[r] = weight;
    if (rows->V > 0)
        bp_softmax_gradient(&here,
                            &(bp_logit_rows){work->work, work->none, here.rows, here.columns,
                                             rows->first, here.columns},
                            work->max, work->sums, work->one, NULL);
}

/* sums[r] = sum_v q z */
static void dot_rows(double *sums, const float *q, const float *z, int64_t rows, int64_t V)
{
#pragma omp parallel for schedule(static) if (rows * V > 8192)
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0;

        for (int64_t v = 0; v < V; v++)
            sum += (double)q[r * V + v] * (double)z[r * V + v];
        sums[r] = sum;
    }
}

/* A member's logits for gathered rows, run by run; those of rows that are not scored are 0. */
static void ask(const bp_teacher *teacher, int member, const bp_pass *pass,
                const bp_distilled *rows, float *logits)
{
    const int32_t *positions = rows->positions;

    if (!positions) {
        teacher->logits(teacher, member, pass->first_slot, pass->T, rows->first_place, rows->rows,
                        logits);
        return;
    }
    bp_zero(logits, rows->rows * rows->V);
    for (int64_t r = 0, n; r < rows->rows; r += n) {
        bool scored = rows->targets[r] >= 0;

        for (n = 1; scored && r + n < rows->rows && rows->targets[r + n] >= 0 &&
                    positions[r + n] == positions[r] + n;)
            n++;
        if (scored)
            teacher->logits(teacher, member, pass->first_slot, pass->T, positions[r], n,
                            logits + r * rows->V);
    }
}

double bp_distill(const bp_teacher *teacher, const bp_pass *pass, const bp_distill_work *work,
                  const bp_distilled *rows, MPI_Comm tensor)
{
    int64_t n = rows->rows * rows->V;
    float cooled = (float)(1 / teacher->temperature),
          slope = (float)(teacher->weight * teacher->temperature);
    double *dots = bp_arena_take(pass->scratch, rows->rows, sizeof *dots), loss = 0;

    for (int64_t r = 0; r < rows->rows; r++)
        work->none[r] = -1;
    bp_zero(work->q, n);
    for (int m = 0; m < teacher->members; m++) {
        ask(teacher, m, pass, rows, work->work);
        multiply(work->work, work->work, cooled, n);
        take_softmax(work, rows, 1 / (float)teacher->members, tensor);
        bp_add(work->q, work->work, n);
    }
    multiply(work->work, rows->logits, cooled, n);
    dot_rows(dots, work->q, work->work, rows->rows, rows->V);
    bp_all_sum_double(dots, rows->rows, tensor);
    take_softmax(work, rows, 1, tensor);
    for (int64_t r = 0; r < rows->rows; r++)
        if (rows->targets[r] >= 0)
            loss += (double)work->max[r] + log(work->sums[r]) - dots[r];
#pragma omp parallel for simd schedule(static) if (n > 8192)
    for (int64_t i = 0; i < n; i++)
        work->work[i] = slope * (work->work[i] - work->q[i]);
    return teacher->weight * teacher->temperature * teacher->temperature * loss;
}
