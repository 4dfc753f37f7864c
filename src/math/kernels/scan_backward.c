/* The backward pass of a scan, in the order of the forward pass (scan.c): states forward, their
 * gradients backward, then chunks. */
#include "math/kernels/scan_priv.h"

#include "math/kernels/kernels.h"
#include "math/loops/loops.h"

#include <string.h>

static void take_dy(const scan_worker *w, const float *dy, const scan_place *at)
{
    scan_take(w->dy, at->work->P, dy, at->of->H * at->of->P, at, at->h * at->of->P, at->of->P);
}

/* The gradients of the states that leave the chunks of head h, from the last chunk on: slopes[k +
 * 1] is chunk k's, from the next chunks. */
static void run_slopes(const bp_scan *of, const scan_work *work, int64_t row, int64_t h,
                       const float *dy)
{
    scan_worker w = scan_worker_of(work, h);

    for (int64_t k = work->chunks; k > 0; k--) {
        scan_place at = scan_place_of(of, work, row, h, k);
        float *slope = scan_state_of(work->slopes, &at);

        if (k == work->chunks) {
            bp_zero(slope, of->N * work->P);
            continue;
        }
        scan_set_factors(&w, &at);
        scan_take_bc(&w, &at);
        take_dy(&w, dy, &at);
        scan_scale_rows(w.scaled, w.c, w.entering, at.rows, work->N);
        scan_move_state(slope, slope + of->N * work->P, w.entering[at.rows - 1], w.scaled, w.dy,
                        &at);
    }
}

/* to[t][n] = x[t] state[n], over P. */
static void read_rows(float *to, const float *x, const float *state, const scan_place *at)
{
    bp_loops_best()->dots(&(bp_dots){.y = to,
                                     .y_row = at->work->N,
                                     .x = x,
                                     .x_row = at->work->P,
                                     .w = state,
                                     .w_row = at->work->P,
                                     .rows = at->rows,
                                     .outs = at->of->N,
                                     .ins = at->of->P});
}

static double dot(const float *x, const float *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* dx of a chunk: mix^T dy + taking b slope + skip dy. Uses w->scaled and w->y. */
static void give_x(const bp_scan_gradients *to, const scan_worker *w, const float *slope,
                   const scan_place *at)
{
    const bp_scan *of = at->of;
    int64_t P = at->work->P;

    scan_scale_rows(w->scaled, w->b, w->taking, at->rows, at->work->N);
    scan_read_state(w->y, w->scaled, slope, at);
    bp_loops_best()->tile_product(&(bp_tile){.c = w->y,
                                             .c_row = P,
                                             .a = w->mix,
                                             .a_row = 1,
                                             .a_column = SCAN_CHUNK,
                                             .b = w->dy,
                                             .b_row = P,
                                             .M = at->rows,
                                             .N = P,
                                             .K = at->rows,
                                             .accumulate = true});
    for (int64_t t = 0; t < at->rows; t++) {
        float *dx = to->dx + (at->row + at->first + t) * of->x_row + at->h * of->P;

        for (int64_t p = 0; p < of->P; p++)
            dx[p] = w->y[t * P + p] + of->skip[at->h] * w->dy[t * P + p];
    }
}

/* The gradient through mix: becomes that of cb, in w->dmix; adds to ds[t] of the decays, and
 * dstep[t] of dt. */
static void open_mix(const scan_worker *w, double *ds, double *dstep, const scan_place *at)
{
    bp_loops_best()->dots(&(bp_dots){.y = w->dmix,
                                     .y_row = SCAN_CHUNK,
                                     .x = w->dy,
                                     .x_row = at->work->P,
                                     .w = w->x,
                                     .w_row = at->work->P,
                                     .rows = at->rows,
                                     .outs = at->rows,
                                     .ins = at->of->P});
    for (int64_t t = 0; t < at->rows; t++) {
        float *dmix = w->dmix + t * SCAN_CHUNK;

        for (int64_t j = 0; j <= t; j++) {
            float step = scan_step_of(at, j), through = dmix[j] * w->decay[t * SCAN_CHUNK + j];
            double by_step = (double)through * (double)w->cb[t * SCAN_CHUNK + j];

            dmix[j] = through * step;
            dstep[j] += by_step;
            ds[t] += by_step * (double)step;
            ds[j] -= by_step * (double)step;
        }
        bp_zero(dmix + t + 1, SCAN_CHUNK - t - 1);
    }
}

/* sums[t][N] += dmix rows (or, back, its columns) times rows[j][N]. */
static void mix_groups(float *sums, const scan_worker *w, const float *rows, bool back,
                       const scan_place *at)
{
    bp_loops_best()->tile_product(&(bp_tile){.c = sums,
                                             .c_row = at->work->N,
                                             .a = w->dmix,
                                             .a_row = back ? 1 : SCAN_CHUNK,
                                             .a_column = back ? SCAN_CHUNK : 1,
                                             .b = rows,
                                             .b_row = at->work->N,
                                             .M = at->rows,
                                             .N = at->work->N,
                                             .K = at->rows,
                                             .accumulate = true});
}

/* The gradients through the entering state (dc) and the leaving one (db). */
static void open_states(const scan_worker *w, const float *state, const float *slope, double *ds,
                        double *dstep, const scan_place *at)
{
    int64_t N = at->of->N, wide = at->work->N, last = at->rows - 1;

    read_rows(w->read, w->dy, state, at);
    for (int64_t t = 0; t < at->rows; t++) {
        for (int64_t n = 0; n < N; n++)
            w->dc[t * wide + n] += w->entering[t] * w->read[t * wide + n];
        ds[t] += (double)w->entering[t] * dot(w->c + t * wide, w->read + t * wide, N);
    }
    read_rows(w->read, w->x, slope, at);
    for (int64_t t = 0; t < at->rows; t++) {
        double read = dot(w->b + t * wide, w->read + t * wide, N);
        double left = (double)w->decay[last * SCAN_CHUNK + t]; /* of what came at t */

        for (int64_t n = 0; n < N; n++)
            w->db[t * wide + n] += w->taking[t] * w->read[t * wide + n];
        dstep[t] += left * read;
        ds[t] -= (double)w->taking[t] * read;
        ds[last] += (double)w->taking[t] * read;
    }
    ds[last] += (double)w->entering[last] * dot(state, slope, N * at->work->P);
}

/* Decays are sums of rate dt, negated in exponents. */
static void give_steps(const bp_scan_gradients *to, const double *ds, const double *dstep,
                       const scan_place *at)
{
    const bp_scan *of = at->of;
    double *sums = at->work->sums + (at->k * of->H + at->h) * 2, later = 0;

    sums[0] = 0;
    for (int64_t t = at->rows - 1; t >= 0; t--) {
        later += ds[t];
        to->ddt[(at->row + at->first + t) * of->H + at->h] =
            (float)(dstep[t] - (double)of->rate[at->h] * later);
        sums[0] -= (double)scan_step_of(at, t) * later;
    }
}

static void backward_head(const bp_scan_gradients *to, const scan_worker *w, const float *dy,
                          const scan_place *at)
{
    scan_place next = *at;
    double ds[SCAN_CHUNK] = {0}, dstep[SCAN_CHUNK] = {0};
    const float *state = scan_state_of(at->work->states, at), *slope;

    next.k++;
    slope = scan_state_of(at->work->slopes, &next);
    scan_take_x(w, at);
    take_dy(w, dy, at);
    scan_set_factors(w, at);
    scan_set_mix(w, at);
    give_x(to, w, slope, at);
    open_mix(w, ds, dstep, at);
    mix_groups(w->dc, w, w->b, false, at);
    mix_groups(w->db, w, w->c, true, at);
    open_states(w, state, slope, ds, dstep, at);
    give_steps(to, ds, dstep, at);
    at->work->sums[(at->k * at->of->H + at->h) * 2 + 1] = dot(w->dy, w->x, at->rows * at->work->P);
}

/* A group's rows of db and dc are sums over its heads. */
static void give_group(const bp_scan_gradients *to, const scan_worker *w, const scan_place *at)
{
    int64_t N = at->of->N, first = scan_group_of(at->of, at->h) * N;

    for (int64_t t = 0; t < at->rows; t++) {
        int64_t row = (at->row + at->first + t) * at->of->bc_row + first;

        memcpy(to->db + row, w->db + t * at->work->N, (size_t)N * sizeof *w->db);
        memcpy(to->dc + row, w->dc + t * at->work->N, (size_t)N * sizeof *w->dc);
    }
}

static void backward_chunk(const bp_scan_gradients *to, const bp_scan *of, const scan_work *work,
                           int64_t row, int64_t k, const float *dy)
{
    scan_worker w = scan_worker_of(work, k);

    for (int64_t h = 0; h < of->H; h++) {
        scan_place at = scan_place_of(of, work, row, h, k);

        if (scan_is_first_of_group(of, h)) {
            scan_take_bc(&w, &at);
            scan_set_cb(&w, &at);
            bp_zero(w.db, SCAN_CHUNK * work->N);
            bp_zero(w.dc, SCAN_CHUNK * work->N);
        }
        backward_head(to, &w, dy, &at);
        if (h + 1 == of->H || scan_is_first_of_group(of, h + 1))
            give_group(to, &w, &at);
    }
}

static void add_sums(const bp_scan_gradients *to, const bp_scan *of, const scan_work *work)
{
    for (int64_t h = 0; h < of->H; h++) {
        double rate = 0, skip = 0;

        for (int64_t k = 0; k < work->chunks; k++) {
            rate += work->sums[(k * of->H + h) * 2];
            skip += work->sums[(k * of->H + h) * 2 + 1];
        }
        to->drate[h] += (float)rate;
        to->dskip[h] += (float)skip;
    }
}

void bp_scan_backward(const bp_scan_gradients *to, const bp_scan *of, const float *dy,
                      bp_arena *scratch)
{
    size_t mark = scratch->used_bytes;
    scan_work work = scan_lay_out(scratch, of->T, of->H, of->P, of->N, true);

    for (int64_t b = 0; b < of->B; b++) {
        int64_t row = b * of->T;

#pragma omp parallel for schedule(static)
        for (int64_t h = 0; h < of->H; h++) {
            scan_run_states(of, &work, row, h, NULL, NULL);
            run_slopes(of, &work, row, h, dy);
        }
#pragma omp parallel for schedule(static)
        for (int64_t k = 0; k < work.chunks; k++)
            backward_chunk(to, of, &work, row, k, dy);
        add_sums(to, of, &work);
    }
    scratch->used_bytes = mark;
}
