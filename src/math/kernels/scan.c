/* A scan in chunks of CHUNK places. First the states that enter the chunks, head by head; then what
 * the places of each chunk read, chunk by chunk with all heads: threads share heads, then chunks,
 * so that no sum depends on how many there are. Backward goes the same way twice: states forward,
 * their gradients backward, then chunks. */
#include "math/kernels/scan.h"

#include "math/kernels/kernels.h"
#include "math/loops/loops.h"

#include <string.h>

#define CHUNK 64

/* Small products write columns of whole vectors. */
static int64_t whole(int64_t columns)
{
    return (columns + 15) / 16 * 16;
}

/* For one sequence; P and N are those of the scan, made whole. */
typedef struct scan_work {
    int64_t chunks, P, N;
    float *decays;  /* [H][T] sums of rate dt from a chunk's first place on */
    float *states;  /* [H][chunks + 1][N][P] that enter a chunk, and the last one */
    float *slopes;  /* the same of gradients; NULL: forward */
    float *workers; /* one for each head or chunk */
    int64_t worker_floats;
    double *sums; /* [chunks][H][2] of rates and skips */
} scan_work;

/* What a chunk of a head is computed in. */
typedef struct worker {
    float *x, *dy;            /* [CHUNK][P] */
    float *b, *c;             /* [CHUNK][N] of a group */
    float *scaled;            /* [CHUNK][N] b or c times a factor of each place */
    float *cb, *decay, *mix;  /* [CHUNK][CHUNK] */
    float *entering, *taking; /* [CHUNK] factors: of the state that enters, and of what comes */
    float *y;                 /* [CHUNK][P] */
    float *db, *dc, *read;    /* [CHUNK][N] */
    float *dmix;              /* [CHUNK][CHUNK] */
} worker;

static worker worker_at(bp_arena *arena, const scan_work *work, bool backward)
{
    int64_t P = CHUNK * work->P, N = CHUNK * work->N, square = CHUNK * CHUNK;
    worker out = {.x = bp_arena_floats(arena, P),
                  .y = bp_arena_floats(arena, P),
                  .b = bp_arena_floats(arena, N),
                  .c = bp_arena_floats(arena, N),
                  .scaled = bp_arena_floats(arena, N),
                  .cb = bp_arena_floats(arena, square),
                  .decay = bp_arena_floats(arena, square),
                  .mix = bp_arena_floats(arena, square),
                  .entering = bp_arena_floats(arena, CHUNK),
                  .taking = bp_arena_floats(arena, CHUNK)};

    if (!backward)
        return out;
    out.dy = bp_arena_floats(arena, P);
    out.db = bp_arena_floats(arena, N);
    out.dc = bp_arena_floats(arena, N);
    out.read = bp_arena_floats(arena, N);
    out.dmix = bp_arena_floats(arena, square);
    return out;
}

static scan_work lay_out(bp_arena *arena, int64_t T, int64_t H, int64_t P, int64_t N, bool backward)
{
    scan_work out = {.chunks = (T + CHUNK - 1) / CHUNK, .P = whole(P), .N = whole(N)};
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

    lay_out(&count, T, H, P, N, backward);
    return count.used_bytes;
}

/* Chunk k of head h of a sequence that begins in row `row`. */
typedef struct place {
    const bp_scan *of;
    const scan_work *work;
    int64_t row, h, k, first, rows; /* places [first, first + rows) of the sequence */
} place;

static place place_of(const bp_scan *of, const scan_work *work, int64_t row, int64_t h, int64_t k)
{
    int64_t left = of->T - k * CHUNK;

    return (place){of, work, row, h, k, k * CHUNK, left < CHUNK ? left : CHUNK};
}

static worker worker_of(const scan_work *work, int64_t index)
{
    bp_arena arena = {.base = (char *)(work->workers + index * work->worker_floats),
                      .size_bytes = SIZE_MAX};

    return worker_at(&arena, work, work->slopes != NULL);
}

static float *state_of(float *states, const place *at)
{
    return states + (at->h * (at->work->chunks + 1) + at->k) * at->of->N * at->work->P;
}

static const float *decays_of(const place *at)
{
    return at->work->decays + at->h * at->of->T + at->first;
}

static float step_of(const place *at, int64_t t)
{
    return at->of->dt[(at->row + at->first + t) * at->of->H + at->h];
}

/* to[rows][width] = columns [first, first + columns) of rows of x, and zeros. */
static void take(float *to, int64_t width, const float *x, int64_t row, const place *at,
                 int64_t first, int64_t columns)
{
    for (int64_t t = 0; t < at->rows; t++) {
        memcpy(to + t * width, x + (at->row + at->first + t) * row + first,
               (size_t)columns * sizeof *to);
        bp_zero(to + t * width + columns, width - columns);
    }
}

static void take_x(const worker *w, const place *at)
{
    take(w->x, at->work->P, at->of->x, at->of->x_row, at, at->h * at->of->P, at->of->P);
}

static int64_t group_of(const bp_scan *of, int64_t h)
{
    return (of->first_head + h) / of->share - of->first_head / of->share;
}

static void take_bc(const worker *w, const place *at)
{
    int64_t first = group_of(at->of, at->h) * at->of->N;

    take(w->b, at->work->N, at->of->b, at->of->bc_row, at, first, at->of->N);
    take(w->c, at->work->N, at->of->c, at->of->bc_row, at, first, at->of->N);
}

static void set_decays(const place *at)
{
    float *decays = at->work->decays + at->h * at->of->T + at->first;
    double sum = 0;

    for (int64_t t = 0; t < at->rows; t++) {
        sum += (double)at->of->rate[at->h] * (double)step_of(at, t);
        decays[t] = (float)sum;
    }
}

/* entering[t] = exp(-decay t): how much of the state that enters is left; taking[t] = exp(decay t -
 * the last decay) dt: how much of what comes is left at the chunk's end. */
static void set_factors(const worker *w, const place *at)
{
    const bp_loops *loops = bp_loops_best();
    const float *decays = decays_of(at);

    for (int64_t t = 0; t < at->rows; t++)
        w->taking[t] = -decays[t];
    loops->exp_scale(w->entering, w->taking, at->rows, 0, 1);
    loops->exp_scale(w->taking, decays, at->rows, decays[at->rows - 1], 1);
    for (int64_t t = 0; t < at->rows; t++)
        w->taking[t] *= step_of(at, t);
}

static void scale_rows(float *to, const float *x, const float *factors, int64_t rows, int64_t n)
{
    for (int64_t t = 0; t < rows; t++)
        for (int64_t i = 0; i < n; i++)
            to[t * n + i] = x[t * n + i] * factors[t];
}

/* state[N][P] = factor state + sum over places of scaled[t][N] rows[t][P]. */
static void move_state(float *state, const float *from, float factor, const float *scaled,
                       const float *rows, const place *at)
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

/* The states that enter the chunks of head h, and the last one. */
static void run_states(const bp_scan *of, const scan_work *work, int64_t row, int64_t h,
                       const float *before, float *after)
{
    worker w = worker_of(work, h);
    int64_t P = of->P, N = of->N, wide = work->P;
    place at = place_of(of, work, row, h, 0);
    float *state = state_of(work->states, &at);

    bp_zero(state, N * wide);
    for (int64_t n = 0; before && n < N; n++)
        memcpy(state + n * wide, before + n * P, (size_t)P * sizeof *state);
    for (int64_t k = 0; k < work->chunks; k++, state += N * wide) {
        at = place_of(of, work, row, h, k);
        set_decays(&at);
        if (k + 1 == work->chunks && !after)
            return;
        set_factors(&w, &at);
        take_x(&w, &at);
        take_bc(&w, &at);
        scale_rows(w.scaled, w.b, w.taking, at.rows, work->N);
        move_state(state + N * wide, state, w.entering[at.rows - 1], w.scaled, w.x, &at);
    }
    for (int64_t n = 0; n < N; n++)
        memcpy(after + n * P, state + n * wide, (size_t)P * sizeof *after);
}

/* cb[t][j] = c_t b_j of a group, which its heads share. */
static void set_cb(const worker *w, const place *at)
{
    bp_loops_best()->dots(&(bp_dots){.y = w->cb,
                                     .y_row = CHUNK,
                                     .x = w->c,
                                     .x_row = at->work->N,
                                     .w = w->b,
                                     .w_row = at->work->N,
                                     .rows = at->rows,
                                     .outs = at->rows,
                                     .ins = at->of->N});
}

/* decay[t][j] = exp(decay j - decay t), and mix = cb decay dt_j, which a place t reads of j <= t.
 */
static void set_mix(const worker *w, const place *at)
{
    const bp_loops *loops = bp_loops_best();
    const float *decays = decays_of(at);

    for (int64_t t = 0; t < at->rows; t++) {
        float *decay = w->decay + t * CHUNK, *mix = w->mix + t * CHUNK;

        loops->exp_scale(decay, decays, t + 1, decays[t], 1);
        for (int64_t j = 0; j <= t; j++)
            mix[j] = w->cb[t * CHUNK + j] * decay[j] * step_of(at, j);
        bp_zero(mix + t + 1, CHUNK - t - 1);
    }
}

/* y[t] += sum over j <= t of mix[t][j] x[j] in runs of rows, which read no places after their
 * last. */
static void mix_rows(float *y, const worker *w, const float *x, const place *at)
{
    enum { RUN = 12 };
    int64_t P = at->work->P;

    for (int64_t t = 0; t < at->rows; t += RUN) {
        int64_t rows = at->rows - t < RUN ? at->rows - t : RUN;

        bp_loops_best()->tile_product(&(bp_tile){.c = y + t * P,
                                                 .c_row = P,
                                                 .a = w->mix + t * CHUNK,
                                                 .a_row = CHUNK,
                                                 .a_column = 1,
                                                 .b = x,
                                                 .b_row = P,
                                                 .M = rows,
                                                 .N = P,
                                                 .K = t + rows,
                                                 .accumulate = true});
    }
}

/* y[t] = scaled[t] state: of the state that entered. */
static void read_state(float *y, const float *scaled, const float *state, const place *at)
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

static bool is_first_of_group(const bp_scan *of, int64_t h)
{
    return h == 0 || group_of(of, h) != group_of(of, h - 1);
}

/* What the places of chunk k read, all heads. */
static void forward_chunk(float *y, const bp_scan *of, const scan_work *work, int64_t row,
                          int64_t k)
{
    worker w = worker_of(work, k);

    for (int64_t h = 0; h < of->H; h++) {
        place at = place_of(of, work, row, h, k);

        if (is_first_of_group(of, h)) {
            take_bc(&w, &at);
            set_cb(&w, &at);
        }
        take_x(&w, &at);
        set_factors(&w, &at);
        set_mix(&w, &at);
        scale_rows(w.scaled, w.c, w.entering, at.rows, work->N);
        read_state(w.y, w.scaled, state_of(work->states, &at), &at);
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
    scan_work work = lay_out(scratch, of->T, of->H, of->P, of->N, false);
    int64_t state = of->N * of->P;

    for (int64_t b = 0; b < of->B; b++) {
        int64_t row = b * of->T, first = b * of->H * state;

#pragma omp parallel for schedule(static)
        for (int64_t h = 0; h < of->H; h++)
            run_states(of, &work, row, h, before ? before + first + h * state : NULL,
                       after ? after + first + h * state : NULL);
#pragma omp parallel for schedule(static)
        for (int64_t k = 0; k < work.chunks; k++)
            forward_chunk(y, of, &work, row, k);
    }
    scratch->used_bytes = mark;
}

/* ---- backward ---- */

static void take_dy(const worker *w, const float *dy, const place *at)
{
    take(w->dy, at->work->P, dy, at->of->H * at->of->P, at, at->h * at->of->P, at->of->P);
}

/* The gradients of the states that leave the chunks of head h, from the last chunk on: slopes[k +
 * 1] is what the next chunks make of chunk k's. */
static void run_slopes(const bp_scan *of, const scan_work *work, int64_t row, int64_t h,
                       const float *dy)
{
    worker w = worker_of(work, h);

    for (int64_t k = work->chunks; k > 0; k--) {
        place at = place_of(of, work, row, h, k);
        float *slope = state_of(work->slopes, &at);

        if (k == work->chunks) {
            bp_zero(slope, of->N * work->P);
            continue;
        }
        set_factors(&w, &at);
        take_bc(&w, &at);
        take_dy(&w, dy, &at);
        scale_rows(w.scaled, w.c, w.entering, at.rows, work->N);
        move_state(slope, slope + of->N * work->P, w.entering[at.rows - 1], w.scaled, w.dy, &at);
    }
}

/* to[t][n] = x[t] state[n], over P. */
static void read_rows(float *to, const float *x, const float *state, const place *at)
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
static void give_x(const bp_scan_gradients *to, const worker *w, const float *slope,
                   const place *at)
{
    const bp_scan *of = at->of;
    int64_t P = at->work->P;

    scale_rows(w->scaled, w->b, w->taking, at->rows, at->work->N);
    read_state(w->y, w->scaled, slope, at);
    bp_loops_best()->tile_product(&(bp_tile){.c = w->y,
                                             .c_row = P,
                                             .a = w->mix,
                                             .a_row = 1,
                                             .a_column = CHUNK,
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

/* What goes through mix: its gradient becomes that of cb, in w->dmix; ds[t] of the decays, and
 * dstep[t] of dt. */
static void open_mix(const worker *w, double *ds, double *dstep, const place *at)
{
    bp_loops_best()->dots(&(bp_dots){.y = w->dmix,
                                     .y_row = CHUNK,
                                     .x = w->dy,
                                     .x_row = at->work->P,
                                     .w = w->x,
                                     .w_row = at->work->P,
                                     .rows = at->rows,
                                     .outs = at->rows,
                                     .ins = at->of->P});
    for (int64_t t = 0; t < at->rows; t++) {
        float *dmix = w->dmix + t * CHUNK;

        for (int64_t j = 0; j <= t; j++) {
            float step = step_of(at, j), through = dmix[j] * w->decay[t * CHUNK + j];
            double by_step = (double)through * (double)w->cb[t * CHUNK + j];

            dmix[j] = through * step;
            dstep[j] += by_step;
            ds[t] += by_step * (double)step;
            ds[j] -= by_step * (double)step;
        }
        bp_zero(dmix + t + 1, CHUNK - t - 1);
    }
}

/* sums[t][N] += dmix rows (or, back, its columns) times rows[j][N]. */
static void mix_groups(float *sums, const worker *w, const float *rows, bool back, const place *at)
{
    bp_loops_best()->tile_product(&(bp_tile){.c = sums,
                                             .c_row = at->work->N,
                                             .a = w->dmix,
                                             .a_row = back ? 1 : CHUNK,
                                             .a_column = back ? CHUNK : 1,
                                             .b = rows,
                                             .b_row = at->work->N,
                                             .M = at->rows,
                                             .N = at->work->N,
                                             .K = at->rows,
                                             .accumulate = true});
}

/* What goes through the state that enters (dc) and the one that leaves (db). */
static void open_states(const worker *w, const float *state, const float *slope, double *ds,
                        double *dstep, const place *at)
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
        double left = (double)w->decay[last * CHUNK + t]; /* of what came at t */

        for (int64_t n = 0; n < N; n++)
            w->db[t * wide + n] += w->taking[t] * w->read[t * wide + n];
        dstep[t] += left * read;
        ds[t] -= (double)w->taking[t] * read;
        ds[last] += (double)w->taking[t] * read;
    }
    ds[last] += (double)w->entering[last] * dot(state, slope, N * at->work->P);
}

/* Decays are sums of rate dt, and are negated in exponents. */
static void give_steps(const bp_scan_gradients *to, const double *ds, const double *dstep,
                       const place *at)
{
    const bp_scan *of = at->of;
    double *sums = at->work->sums + (at->k * of->H + at->h) * 2, later = 0;

    sums[0] = 0;
    for (int64_t t = at->rows - 1; t >= 0; t--) {
        later += ds[t];
        to->ddt[(at->row + at->first + t) * of->H + at->h] =
            (float)(dstep[t] - (double)of->rate[at->h] * later);
        sums[0] -= (double)step_of(at, t) * later;
    }
}

static void backward_head(const bp_scan_gradients *to, const worker *w, const float *dy,
                          const place *at)
{
    place next = *at;
    double ds[CHUNK] = {0}, dstep[CHUNK] = {0};
    const float *state = state_of(at->work->states, at), *slope;

    next.k++;
    slope = state_of(at->work->slopes, &next);
    take_x(w, at);
    take_dy(w, dy, at);
    set_factors(w, at);
    set_mix(w, at);
    give_x(to, w, slope, at);
    open_mix(w, ds, dstep, at);
    mix_groups(w->dc, w, w->b, false, at);
    mix_groups(w->db, w, w->c, true, at);
    open_states(w, state, slope, ds, dstep, at);
    give_steps(to, ds, dstep, at);
    at->work->sums[(at->k * at->of->H + at->h) * 2 + 1] = dot(w->dy, w->x, at->rows * at->work->P);
}

/* Rows of db and dc of a group are those of its heads together. */
static void give_group(const bp_scan_gradients *to, const worker *w, const place *at)
{
    int64_t N = at->of->N, first = group_of(at->of, at->h) * N;

    for (int64_t t = 0; t < at->rows; t++) {
        int64_t row = (at->row + at->first + t) * at->of->bc_row + first;

        memcpy(to->db + row, w->db + t * at->work->N, (size_t)N * sizeof *w->db);
        memcpy(to->dc + row, w->dc + t * at->work->N, (size_t)N * sizeof *w->dc);
    }
}

static void backward_chunk(const bp_scan_gradients *to, const bp_scan *of, const scan_work *work,
                           int64_t row, int64_t k, const float *dy)
{
    worker w = worker_of(work, k);

    for (int64_t h = 0; h < of->H; h++) {
        place at = place_of(of, work, row, h, k);

        if (is_first_of_group(of, h)) {
            take_bc(&w, &at);
            set_cb(&w, &at);
            bp_zero(w.db, CHUNK * work->N);
            bp_zero(w.dc, CHUNK * work->N);
        }
        backward_head(to, &w, dy, &at);
        if (h + 1 == of->H || is_first_of_group(of, h + 1))
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
    scan_work work = lay_out(scratch, of->T, of->H, of->P, of->N, true);

    for (int64_t b = 0; b < of->B; b++) {
        int64_t row = b * of->T;

#pragma omp parallel for schedule(static)
        for (int64_t h = 0; h < of->H; h++) {
            run_states(of, &work, row, h, NULL, NULL);
            run_slopes(of, &work, row, h, dy);
        }
#pragma omp parallel for schedule(static)
        for (int64_t k = 0; k < work.chunks; k++)
            backward_chunk(to, of, &work, row, k, dy);
        add_sums(to, of, &work);
    }
    scratch->used_bytes = mark;
}
