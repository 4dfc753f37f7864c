/* The forward pass of a scan, in chunks of SCAN_CHUNK positions. First the states that enter the
 * chunks, head by head; then the outputs of each chunk's positions, chunk by chunk with all heads.
 * Threads share heads, then chunks, so that no sum depends on the number of threads. */
#include "math/kernels/scan_priv.h"

#include "math/kernels/kernels.h"
#include "math/loops/loops.h"

/* y[t] += sum over j <= t of mix[t][j] x[j] in runs of rows, which read no positions after their
 * last. */
static void mix_rows(float *y, const scan_worker *w, const float *x, const scan_place *at)
{
    enum { RUN = 12 };
    int64_t P = at->work->P;

    for (int64_t t = 0; t < at->rows; t += RUN) {
        int64_t rows = at->rows - t < RUN ? at->rows - t : RUN;

        bp_loops_best()->tile_product(&(bp_tile){.c = y + t * P,
                                                 .c_row = P,
                                                 .a = w->mix + t * SCAN_CHUNK,
                                                 .a_row = SCAN_CHUNK,
                                                 .a_column = 1,
                                                 .b = x,
                                                 .b_row = P,
                                                 .M = rows,
                                                 .N = P,
                                                 .K = t + rows,
                                                 .accumulate = true});
    }
}

/* The outputs of the positions of chunk k, all heads. */
static void forward_chunk(float *y, const bp_scan *of, const scan_work *work, int64_t row,
                          int64_t k)
{
    scan_worker w = scan_worker_of(work, k);

    for (int64_t h = 0; h < of->H; h++) {
        scan_place at = scan_place_of(of, work, row, h, k);

        if (scan_is_first_of_group(of, h)) {
            scan_take_bc(&w, &at);
            scan_set_cb(&w, &at);
        }
        scan_take_x(&w, &at);
        scan_set_factors(&w, &at);
        scan_set_mix(&w, &at);
        scan_scale_rows(w.scaled, w.c, w.entering, at.rows, work->N);
        scan_read_state(w.y, w.scaled, scan_state_of(work->states, &at), &at);
        mix_rows(w.y, &w, w.x, &at);
        for (int64_t t = 0; t < at.rows; t++) {
            float *to = y + (row + at.first + t) * of->H * of->P + h * of->P;

            for (int64_t p = 0; p < of->P; p++)
                to[p] = w.y[t * work->P + p] + of->skip[h] * w.x[t * work->P + p];
        }
    }
}

void bp_scan_forward(float *y, const bp_scan *of, const float *before, float *after,
                     bp_arena *scratch)
{
    size_t mark = scratch->used_bytes;
    scan_work work = scan_lay_out(scratch, of->T, of->H, of->P, of->N, false);
    int64_t state = of->N * of->P;

    for (int64_t b = 0; b < of->B; b++) {
        int64_t row = b * of->T, first = b * of->H * state;

#pragma omp parallel for schedule(static)
        for (int64_t h = 0; h < of->H; h++)
            scan_run_states(of, &work, row, h, before ? before + first + h * state : NULL,
                            after ? after + first + h * state : NULL);
#pragma omp parallel for schedule(static)
        for (int64_t k = 0; k < work.chunks; k++)
            forward_chunk(y, of, &work, row, k);
    }
    scratch->used_bytes = mark;
}
