/* Parts of a scan that its forward and its backward pass share (scan_chunk.c). */
#pragma once

#include "math/kernels/scan.h"

#define SCAN_CHUNK 64

/* For one sequence; P and N are those of the scan, rounded up. */
typedef struct scan_work {
    int64_t chunks, P, N;
    float *decays;  /* [H][T] sums of rate dt from a chunk's first place on */
    float *states;  /* [H][chunks + 1][N][P] that enter a chunk, and the last one */
    float *slopes;  /* the same for gradients; NULL: forward */
    float *workers; /* one for each head or chunk */
    int64_t worker_floats;
    double *sums; /* [chunks][H][2] of rates and skips */
} scan_work;

/* Workspace of one chunk of a head. */
typedef struct scan_worker {
    float *x, *dy;           /* [SCAN_CHUNK][P] */
    float *b, *c;            /* [SCAN_CHUNK][N] of a group */
    float *scaled;           /* [SCAN_CHUNK][N] b or c times a factor of each place */
    float *cb, *decay, *mix; /* [SCAN_CHUNK][SCAN_CHUNK] */
    float *entering;         /* [SCAN_CHUNK] factors of the state that enters */
    float *taking;           /* [SCAN_CHUNK] and of what comes */
    float *y;                /* [SCAN_CHUNK][P] */
    float *db, *dc, *read;   /* [SCAN_CHUNK][N] */
    float *dmix;             /* [SCAN_CHUNK][SCAN_CHUNK] */
} scan_worker;

/* Chunk k of head h of a sequence that begins in row `row`. */
typedef struct scan_place {
    const bp_scan *of;
    const scan_work *work;
    int64_t row, h, k, first, rows; /* positions [first, first + rows) of the sequence */
} scan_place;

static inline float *scan_state_of(float *states, const scan_place *at)
{
    return states + (at->h * (at->work->chunks + 1) + at->k) * at->of->N * at->work->P;
}

static inline const float *scan_decays_of(const scan_place *at)
{
    return at->work->decays + at->h * at->of->T + at->first;
}

static inline float scan_step_of(const scan_place *at, int64_t t)
{
    return at->of->dt[(at->row + at->first + t) * at->of->H + at->h];
}

static inline int64_t scan_group_of(const bp_scan *of, int64_t h)
{
    return (of->first_head + h) / of->share - of->first_head / of->share;
}

static inline bool scan_is_first_of_group(const bp_scan *of, int64_t h)
{
    return h == 0 || scan_group_of(of, h) != scan_group_of(of, h - 1);
}

/** Memory of a call; an arena without a base only counts its size. */
scan_work scan_lay_out(bp_arena *arena, int64_t T, int64_t H, int64_t P, int64_t N, bool backward);
/** Chunk k of head h of the sequence that begins in row `row`. */
scan_place scan_place_of(const bp_scan *of, const scan_work *work, int64_t row, int64_t h,
                         int64_t k);
/** The memory of worker `index`, a head or a chunk. */
scan_worker scan_worker_of(const scan_work *work, int64_t index);
/** to[rows][width] = columns [first, first + columns) of rows of x, then zeros. */
void scan_take(float *to, int64_t width, const float *x, int64_t row, const scan_place *at,
               int64_t first, int64_t columns);
/** The rows of a head into w->x; those of its group into w->b and w->c. */
void scan_take_x(const scan_worker *w, const scan_place *at);
void scan_take_bc(const scan_worker *w, const scan_place *at);
/** entering[t] = exp(-decay t): the share of the entering state that remains; taking[t] =
 * exp(decay t - the last decay) dt: the share of the input that remains at the end of the chunk. */
void scan_set_factors(const scan_worker *w, const scan_place *at);
/** to[rows][n] = x[rows][n], each row times its factor. */
void scan_scale_rows(float *to, const float *x, const float *factors, int64_t rows, int64_t n);
/** state[N][P] = factor from + sum over positions of scaled[t][N] rows[t][P]. */
void scan_move_state(float *state, const float *from, float factor, const float *scaled,
                     const float *rows, const scan_place *at);
/** The states that enter the chunks of head h, from `before` (NULL: zeros), and the last one
 * (`after` NULL: not wanted). */
void scan_run_states(const bp_scan *of, const scan_work *work, int64_t row, int64_t h,
                     const float *before, float *after);
/** cb[t][j] = c_t b_j of a group, which its heads share. */
void scan_set_cb(const scan_worker *w, const scan_place *at);
/** decay[t][j] = exp(decay j - decay t); mix = cb decay dt_j, the weight of place j <= t in t's
 * output. */
void scan_set_mix(const scan_worker *w, const scan_place *at);
/** y[t] = scaled[t] state. */
void scan_read_state(float *y, const float *scaled, const float *state, const scan_place *at);
