/* The inputs of a scan's chunk: its memory, its rows, the factors of its positions and the states
 * that enter it. Called by scan.c and scan_backward.c. */
#include "math/kernels/scan_priv.h"

#include "math/kernels/kernels.h"
#include "math/loops/loops.h"

#include <string.h>

/* Small products write columns of whole vectors. */
static int64_t whole(int64_t columns)
{
    return (columns + 15) / 16 * 16;
}

static scan_worker worker_at(bp_arena *arena, const scan_work *work, bool backward)
{
    int64_t P = SCAN_CHUNK * work->P, N = SCAN_CHUNK * work->N, square = SCAN_CHUNK * SCAN_CHUNK;
    scan_worker out = {.x = bp_arena_floats(arena, P),
                       .y = bp_arena_floats(arena, P),
                       .b = bp_arena_floats(arena, N),
                       .c = bp_arena_floats(arena, N),
                       .scaled = bp_arena_floats(arena, N),
                       .cb = bp_arena_floats(arena, square),
                       .decay = bp_arena_floats(arena, square),
                       .mix = bp_arena_floats(arena, square),
                       .entering = bp_arena_floats(arena, SCAN_CHUNK),
                       .taking = bp_arena_floats(arena, SCAN_CHUNK)};

    if (!backward)
        return out;
    out.dy = bp_arena_floats(arena, P);
    out.db = bp_arena_floats(arena, N);
    out.dc = bp_arena_floats(arena, N);
    out.read = bp_arena_floats(arena, N);
    out.dmix = bp_arena_floats(arena, square);
    return out;
}

scan_work scan_lay_out(bp_arena *arena, int64_t T, int64_t H, int64_t P, int64_t N, bool backward)
{
    scan_work out = {.chunks = (T + SCAN_CHUNK - 1) / SCAN_CHUNK, .P = whole(P), .N = whole(N)};
    int64_t states = H * (out.chunks + 1) * N * out.P, workers = H > out.chunks ? H : out.chunks;
    bp_arena one = {0};

    worker_at(&one, &out, backward);
    out.worker_floats = (int64_t)(one.used_bytes / sizeof(float));
    out.decays = bp_arena_floats(arena, H * T);
    out.states = bp_arena_floats(arena, states);
    out.slopes = backward ? bp_arena_floats(arena, states) : NULL;
    out.sums = (double *)(void *)bp_arena_floats(arena, backward ? 4 * out.chunks * H : 0);
    out.workers = bp_arena_floats(arena, workers * out.worker_floats);
    return out;
}

size_t bp_scan_scratch_bytes(int64_t T, int64_t H, int64_t P, int64_t N, bool backward)
{
    bp_arena count = {0};

    scan_lay_out(&count, T, H, P, N, backward);
    return count.used_bytes;
}

scan_place scan_place_of(const bp_scan *of, const scan_work *work, int64_t row, int64_t h,
                         int64_t k)
{
    int64_t left = of->T - k * SCAN_CHUNK;

    return (scan_place){of, work, row, h, k, k * SCAN_CHUNK, left < SCAN_CHUNK ? left : SCAN_CHUNK};
}

scan_worker scan_worker_of(const scan_work *work, int64_t index)
{
    bp_arena arena = {.base = (char *)(work->workers + index * work->worker_floats),
                      .size_bytes = SIZE_MAX};

    return worker_at(&arena, work, work->slopes != NULL);
}

void scan_take(float *to, int64_t width, const float *x, int64_t row, const scan_place *at,
               int64_t first, int64_t columns)
{
    for (int64_t t = 0; t < at->rows; t++) {
        memcpy(to + t * width, x + (at->row + at->first + t) * row + first,
               (size_t)columns * sizeof *to);
        bp_zero(to + t * width + columns, width - columns);
    }
}

void scan_take_x(const scan_worker *w, const scan_place *at)
{
    scan_take(w->x, at->work->P, at->of->x, at->of->x_row, at, at->h * at->of->P, at->of->P);
}

void scan_take_bc(const scan_worker *w, const scan_place *at)
{
    int64_t first = scan_group_of(at->of, at->h) * at->of->N;

    scan_take(w->b, at->work->N, at->of->b, at->of->bc_row, at, first, at->of->N);
    scan_take(w->c, at->work->N, at->of->c, at->of->bc_row, at, first, at->of->N);
}

static void set_decays(const scan_place *at)
{
    float *decays = at->work->decays + at->h * at->of->T + at->first;
    double sum = 0;

    for (int64_t t = 0; t < at->rows; t++) {
        sum += (double)at->of->rate[at->h] * (double)scan_step_of(at, t);
        decays[t] = (float)sum;
    }
}

void scan_set_factors(const scan_worker *w, const scan_place *at)
{
    const bp_loops *loops = bp_loops_best();
    const float *decays = scan_decays_of(at);

    for (int64_t t = 0; t < at->rows; t++)
        w->taking[t] = -decays[t];
    loops->exp_scale(w->entering, w->taking, at->rows, 0, 1);
    loops->exp_scale(w->taking, decays, at->rows, decays[at->rows - 1], 1);
    for (int64_t t = 0; t < at->rows; t++)
        w->taking[t] *= scan_step_of(at, t);
}

void scan_scale_rows(float *to, const float *x, const float *factors, int64_t rows, int64_t n)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < n; i++)
            to[t * n + i] = x[t * n + i] * factors[t];
}

void scan_move_state(float *state, const float *from, float factor, const float *scaled,
                     const float *rows, const scan_place *at)
{
    int64_t N = at->of->N, P = at->work->P;

    for (int64_t i = 0; i < N * P; i++)
        state[i] = from[i] * factor;
    bp_loops_best()->tile_product(&(bp_tile){.c = state,
                                             .c_row = P,
                                             .a = scaled,
                                             .a_row = 1,
                                             .a_column = at->work->N,
                                             .b = rows,
                                             .b_row = P,
                                             .M = N,
                                             .N = P,
                                             .K = at->rows,
                                             .accumulate = true});
}

void scan_run_states(const bp_scan *of, const scan_work *work, int64_t row, int64_t h,
                     const float *before, float *after)
{
    scan_worker w = scan_worker_of(work, h);
    int64_t P = of->P, N = of->N, wide = work->P;
    scan_place at = scan_place_of(of, work, row, h, 0);
    float *state = scan_state_of(work->states, &at);

    bp_zero(state, N * wide);
    for (int64_t n = 0; before && n < N; n++)
        memcpy(state + n * wide, before + n * P, (size_t)P * sizeof *state);
    for (int64_t k = 0; k < work->chunks; k++, state += N * wide) {
        at = scan_place_of(of, work, row, h, k);
        set_decays(&at);
        if (k + 1 == work->chunks && !after)
            return;
        scan_set_factors(&w, &at);
        scan_take_x(&w, &at);
        scan_take_bc(&w, &at);
        scan_scale_rows(w.scaled, w.b, w.taking, at.rows, work->N);
        scan_move_state(state + N * wide, state, w.entering[at.rows - 1], w.scaled, w.x, &at);
    }
    for (int64_t n = 0; n < N; n++)
        memcpy(after + n * P, state + n * wide, (size_t)P * sizeof *after);
}

void scan_set_cb(const scan_worker *w, const scan_place *at)
{
    bp_loops_best()->dots(&(bp_dots){.y = w->cb,
                                     .y_row = SCAN_CHUNK,
                                     .x = w->c,
                                     .x_row = at->work->N,
                                     .w = w->b,
                                     .w_row = at->work->N,
                                     .rows = at->rows,
                                     .outs = at->rows,
                                     .ins = at->of->N});
}

void scan_set_mix(const scan_worker *w, const scan_place *at)
{
    const bp_loops *loops = bp_loops_best();
    const float *decays = scan_decays_of(at);

    for (int64_t t = 0; t < at->rows; t++) {
        float *decay = w->decay + t * SCAN_CHUNK, *mix = w->mix + t * SCAN_CHUNK;

        loops->exp_scale(decay, decays, t + 1, decays[t], 1);
        for (int64_t j = 0; j <= t; j++)
            mix[j] = w->cb[t * SCAN_CHUNK + j] * decay[j] * scan_step_of(at, j);
        bp_zero(mix + t + 1, SCAN_CHUNK - t - 1);
    }
}

void scan_read_state(float *y, const float *scaled, const float *state, const scan_place *at)
{
    bp_loops_best()->tile_product(&(bp_tile){.c = y,
                                             .c_row = at->work->P,
                                             .a = scaled,
                                             .a_row = at->work->N,
                                             .a_column = 1,
                                             .b = state,
                                             .b_row = at->work->P,
                                             .M = at->rows,
                                             .N = at->work->P,
                                             .K = at->of->N});
}
