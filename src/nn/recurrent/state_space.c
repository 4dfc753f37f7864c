/* A state-space layer: x + out(norm(scan(convolved x, B, C) silu(z))), where x, z, B and C inside
 * the norm are products of one norm of the input. state_space_rows.c has the passes between the
 * products, math/kernels/scan.c the scan, state_space_params.c the parameters.
 *
 * Each tensor rank has some heads: rows of z, x and dt, columns of `out`. All ranks have B and C,
 * whose gradients are summed over ranks' heads. Outside training a sequence in pieces starts with
 * the previous piece's state and convolution inputs; in decoding each sequence has its own.
 *
 * Called by models/stack/stack_states.c. */
#include "nn/recurrent/state_space_priv.h"

#include "base/err.h"
#include "math/kernels/kernels.h"

#include <math.h>
#include <string.h>

/* Kept by forward for backward, N = B T rows. */
typedef struct kept_rows {
    float *before, *rstd; /* [N][C] what the norm reads; [N] */
    float *wide, *bc;     /* [N][W] z, x and dt; [N][BC], before the convolution */
    float *y;             /* [N][Ml] of the scan */
    float *gate_rstd;     /* [N] */
} kept_rows;

static kept_rows alloc_kept(const state_space *self, bp_arena *arena, int64_t N)
{
    return (kept_rows){.before = bp_arena_floats(arena, N * self->shape.C),
                       .rstd = bp_arena_floats(arena, N),
                       .wide = bp_arena_floats(arena, N * self->W),
                       .bc = bp_arena_floats(arena, N * self->BC),
                       .y = bp_arena_floats(arena, N * self->Ml),
                       .gate_rstd = bp_arena_floats(arena, N)};
}

/* What both ways make of that. */
typedef struct inner_rows {
    float *x, *bc, *dt; /* [N][Ml], [N][BC], [N][Hl] inputs of the scan */
    float *v;           /* [N][Ml] after the gate */
    double *sums;       /* [N] */
    float *taps;        /* of the convolution */
} inner_rows;

static inner_rows alloc_inner(const state_space *self, bp_arena *arena, int64_t N)
{
    int64_t x = mix_scratch(&self->x, self->shape.K), bc = mix_scratch(&self->both, self->shape.K);

    return (inner_rows){.x = bp_arena_floats(arena, N * self->Ml),
                        .bc = bp_arena_floats(arena, N * self->BC),
                        .dt = bp_arena_floats(arena, N * self->Hl),
                        .v = bp_arena_floats(arena, N * self->Ml),
                        .sums = (double *)(void *)bp_arena_floats(arena, 2 * N),
                        .taps = bp_arena_floats(arena, x > bc ? x : bc)};
}

typedef struct forward_rows {
    bp_operand normed, gated; /* [N][C], [N][Ml] */
    float *branch;            /* [N][C] */
    float *rate;              /* [Hl] */
    inner_rows inner;
} forward_rows;

static forward_rows alloc_forward(const state_space *self, bp_arena *arena, int64_t N)
{
    const bp_gemm *gemm = self->block.nn->gemm;

    return (forward_rows){.normed = bp_operand_alloc(arena, gemm, N, self->shape.C),
                          .gated = bp_operand_alloc(arena, gemm, N, self->Ml),
                          .branch = bp_arena_floats(arena, N * self->shape.C),
                          .rate = bp_arena_floats(arena, self->Hl),
                          .inner = alloc_inner(self, arena, N)};
}

typedef struct backward_rows {
    bp_operand normed, gated, dbranch, dwide_operand, dbc_operand;
    float *dwide, *dbc;       /* [N][W], [N][BC] before the convolution */
    float *dn, *dx, *db_rows; /* [N][Ml], [N][Ml], [N][BC] after it */
    float *ddt, *drate;       /* [N][Hl], [2 Hl] */
    float *dnormed, *more;    /* [N][C] */
    float *rate;              /* [Hl] */
    float *norm_sums;
    inner_rows inner;
} backward_rows;

static backward_rows alloc_backward(const state_space *self, bp_arena *arena, int64_t N)
{
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t C = self->shape.C;
    backward_rows out = {.normed = bp_operand_alloc(arena, gemm, N, C),
                         .gated = bp_operand_alloc(arena, gemm, N, self->Ml),
                         .dbranch = bp_operand_alloc(arena, gemm, N, C),
                         .dwide_operand = bp_operand_alloc(arena, gemm, N, self->W),
                         .dbc_operand = bp_operand_alloc(arena, gemm, N, self->BC),
                         .dwide = bp_arena_floats(arena, N * self->W),
                         .dbc = bp_arena_floats(arena, N * self->BC),
                         .dn = bp_arena_floats(arena, N * self->Ml),
                         .dx = bp_arena_floats(arena, N * self->Ml),
                         .db_rows = bp_arena_floats(arena, N * self->BC),
                         .ddt = bp_arena_floats(arena, N * self->Hl),
                         .drate = bp_arena_floats(arena, 2 * self->Hl)};

    out.dnormed = bp_arena_floats(arena, N * C);
    out.more = bp_arena_floats(arena, N * C);
    out.rate = bp_arena_floats(arena, self->Hl);
    out.norm_sums = bp_arena_floats(arena, bp_layer_norm_scratch(N, C));
    out.inner = alloc_inner(self, arena, N);
    return out;
}

/* Carried rows: of x, followed by B and C. */
static int64_t carried_columns(const state_space *self)
{
    return self->Ml + self->BC;
}

static int64_t carried_floats(const state_space *self)
{
    return (self->shape.K - 1) * carried_columns(self);
}

static int64_t state_floats(const state_space *self)
{
    return self->Ml * self->shape.N;
}

int64_t bp_state_space_taps(const bp_state_space_shape *shape, int tensor_ranks)
{
    return (shape->K - 1) * (shape->H / tensor_ranks * shape->P + 2 * shape->G * shape->N);
}

int64_t bp_state_space_states(const bp_state_space_shape *shape, int tensor_ranks)
{
    return shape->H / tensor_ranks * shape->P * shape->N;
}

/* ---- memory ---- */

static size_t layer_saved(const bp_block *block, const bp_extent *most)
{
    bp_arena count = {0};

    alloc_kept(state_space_of(block), &count, most->B * most->T[block->stream]);
    return count.used_bytes;
}

static size_t scan_bytes(const state_space *self, int64_t T, bool backward)
{
    return bp_scan_scratch_bytes(T, self->Hl, self->shape.P, self->shape.N, backward);
}

static size_t layer_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const state_space *self = state_space_of(block);
    int64_t T = most->T[block->stream], N = most->B * T;
    bp_pass pass = bp_pass_planned(block, most, training);
    bp_arena forward = {0}, backward = {0};
    size_t sum = bp_arena_bytes(bp_nn_sum_floats(block->nn, &pass, self->shape.C), sizeof(float));

    alloc_forward(self, &forward, N);
    if (!training)
        alloc_kept(self, &forward, N);
    forward.used_bytes += scan_bytes(self, T, false);
    if (training) {
        alloc_backward(self, &backward, N);
        backward.used_bytes += scan_bytes(self, T, true);
    }
    return sum +
           (backward.used_bytes > forward.used_bytes ? backward.used_bytes : forward.used_bytes);
}

static bp_product_bytes layer_products(const bp_block *block, const bp_extent *most)
{
    const state_space *self = state_space_of(block);
    int64_t rows = most->B * most->T[block->stream], C = self->shape.C;
    bp_product_bytes bytes = {0};

    bp_product_bytes_add_operands(&bytes, block->nn, rows, self->W, C);
    bp_product_bytes_add_operands(&bytes, block->nn, rows, self->BC, C);
    bp_product_bytes_add_operands(&bytes, block->nn, rows, C, self->Ml);
    return bytes;
}

static bp_err layer_bind(bp_block *block)
{
    state_space *self = state_space_of(block);
    bp_gemm *gemm = block->nn->gemm;
    int64_t C = self->shape.C;
    bp_err err = bp_weight_new(&self->wide_map, gemm, self->z->value, self->W, C);

    if (err == BP_OK)
        err = bp_weight_new(&self->bc_map, gemm, self->bc->value, self->BC, C);
    if (err == BP_OK)
        err = bp_weight_new(&self->out_map, gemm, self->out->value, C, self->Ml);
    return err;
}

static void layer_refresh(bp_block *block)
{
    const state_space *self = state_space_of(block);

    bp_weight_refresh(self->wide_map);
    bp_weight_refresh(self->bc_map);
    bp_weight_refresh(self->out_map);
}

/* ---- forward ---- */

static void set_rates(float *rate, const state_space *self)
{
    for (int64_t h = 0; h < self->Hl; h++)
        rate[h] = expf(self->decay->value[h]);
}

static bp_norm norm_of(const state_space *self, const kept_rows *kept)
{
    return (bp_norm){self->gain->value, NULL, self->shape.epsilon, NULL, kept->rstd};
}

static bp_scan scan_of(const state_space *self, const inner_rows *inner, const float *rate,
                       int64_t B, int64_t T)
{
    const bp_state_space_shape *s = &self->shape;

    return (bp_scan){.B = B,
                     .T = T,
                     .H = self->Hl,
                     .P = s->P,
                     .N = s->N,
                     .share = s->H / s->G,
                     .first_head = self->first_head,
                     .x = inner->x,
                     .b = inner->bc + self->first_head / (s->H / s->G) * s->N,
                     .c = inner->bc + (s->G + self->first_head / (s->H / s->G)) * s->N,
                     .x_row = self->Ml,
                     .bc_row = self->BC,
                     .dt = inner->dt,
                     .rate = rate,
                     .skip = self->skip->value};
}

/* Kept rows [first, first + B T), as the convolutions read them. */
static mixed_rows rows_of(const state_space *self, const kept_rows *kept, bool of_x, int64_t first,
                          int64_t B, int64_t T, const float *before)
{
    int64_t row = of_x ? self->W : self->BC;
    const float *rows = of_x ? kept->wide + self->Ml : kept->bc;

    return (mixed_rows){.B = B,
                        .T = T,
                        .row = row,
                        .rows = rows + first * row,
                        .before = before && !of_x ? before + self->Ml : before,
                        .before_row = carried_columns(self),
                        .before_sequence = carried_floats(self)};
}

static inner_rows inner_part(const state_space *self, const inner_rows *all, int64_t first)
{
    inner_rows part = *all;

    part.x += first * self->Ml;
    part.bc += first * self->BC;
    part.dt += first * self->Hl;
    return part;
}

/* The scan's input: B sequences of T rows from row `first` on. */
static void fill_inner(const state_space *self, const inner_rows *to, const kept_rows *kept,
                       int64_t first, int64_t B, int64_t T, const float *before)
{
    mixed_rows x = rows_of(self, kept, true, first, B, T, before),
               bc = rows_of(self, kept, false, first, B, T, before);
    inner_rows part = inner_part(self, to, first);

    mix_forward(part.x, &self->x, self->shape.K, &x, to->taps);
    mix_forward(part.bc, &self->both, self->shape.K, &bc, to->taps);
    steps_forward(part.dt, self, kept->wide + first * self->W + 2 * self->Ml, self->W, B * T);
}

/* The last K - 1 rows of a sequence whose rows before are `before` (NULL: zeros); after may be
 * before. */
static void leave_rows(const state_space *self, float *after, const kept_rows *kept, int64_t first,
                       int64_t T, const float *before)
{
    int64_t columns = carried_columns(self), K = self->shape.K;

    for (int64_t k = 0; k < K - 1; k++) {
        int64_t t = T - (K - 1) + k; /* from the first row of this piece on */
        float *to = after + k * columns;

        if (t >= 0) {
            memcpy(to, kept->wide + (first + t) * self->W + self->Ml,
                   (size_t)self->Ml * sizeof *to);
            memcpy(to + self->Ml, kept->bc + (first + t) * self->BC, (size_t)self->BC * sizeof *to);
        } else if (before) {
            memmove(to, before + (K - 1 + t) * columns, (size_t)columns * sizeof *to);
        } else {
            bp_zero(to, columns);
        }
    }
}

static void run_windows(const state_space *self, bp_pass *pass, const kept_rows *kept,
                        forward_rows *work)
{
    const bp_carry *taps = self->shape.taps, *states = self->shape.states;
    const float *rows = taps ? bp_carry_before(taps, pass) : NULL,
                *before = states ? bp_carry_before(states, pass) : NULL;
    float *rows_after = taps ? bp_carry_after(taps, pass) : NULL,
          *after = states ? bp_carry_after(states, pass) : NULL;
    bp_scan scan = scan_of(self, &work->inner, work->rate, pass->B, pass->T);

    fill_inner(self, &work->inner, kept, 0, pass->B, pass->T, rows);
    for (int64_t b = 0; rows_after && b < pass->B; b++)
        leave_rows(self, rows_after + b * carried_floats(self), kept, b * pass->T, pass->T,
                   rows ? rows + b * carried_floats(self) : NULL);
    bp_scan_forward(kept->y, &scan, before, after, pass->scratch);
}

/* ---- decoding ---- */

static int64_t cached_floats(const state_space *self)
{
    return carried_floats(self) + state_floats(self);
}

static bool layer_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need)
{
    const state_space *self = state_space_of(block);
    size_t bytes = (size_t)(slots * cached_floats(self)) * sizeof(float);

    (void)capacity;
    *need = (bp_cache_need){.kept_bytes = bytes, .scratch_bytes = bytes};
    return true;
}

/* Rows [first, first + T) continue one sequence, from `cached` (NULL: it begins) to `to`. */
static void continue_sequence(const state_space *self, bp_pass *pass, const kept_rows *kept,
                              forward_rows *work, const float *cached, float *to, int64_t first,
                              int64_t T)
{
    inner_rows part = inner_part(self, &work->inner, first);
    bp_scan scan = scan_of(self, &part, work->rate, 1, T);
    int64_t rows = carried_floats(self);

    fill_inner(self, &work->inner, kept, first, 1, T, cached);
    leave_rows(self, to, kept, first, T, cached);
    bp_scan_forward(kept->y + first * self->Ml, &scan, cached ? cached + rows : NULL, to + rows,
                    pass->scratch);
}

/* Rows of a sequence are consecutive. All states are read before any is written. */
static void continue_sequences(const state_space *self, bp_pass *pass, const kept_rows *kept,
                               forward_rows *work)
{
    const bp_continuation *of = pass->continuation;
    int64_t count = of->rows.count, floats = cached_floats(self), end;
    float *next = of->scratch;

    bp_zero(kept->y + count * self->Ml, (pass->T - count) * self->Ml);
    for (int64_t r = 0, n = 0; r < count; r = end, n++) {
        int32_t slot = of->rows.slots[r], from = of->states_from[slot];

        for (end = r + 1; end < count && of->rows.slots[end] == slot;)
            end++;
        continue_sequence(self, pass, kept, work, from < 0 ? NULL : of->cache + from * floats,
                          next + n * floats, r, end - r);
    }
    for (int64_t r = 0; r < count; r++)
        if (r == 0 || of->rows.slots[r] != of->rows.slots[r - 1]) {
            memcpy(of->cache + of->states_to[of->rows.slots[r]] * floats, next,
                   (size_t)floats * sizeof *next);
            next += floats;
        }
}

/* ---- both ways ---- */

static void layer_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const state_space *self = state_space_of(block);
    const bp_nn *nn = block->nn;
    int64_t N = pass->B * pass->T, C = self->shape.C;
    float *h = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena keep = {.base = saved, .size_bytes = SIZE_MAX};
    kept_rows kept = alloc_kept(self, saved ? &keep : pass->scratch, N);
    forward_rows work = alloc_forward(self, pass->scratch, N);
    bp_norm norm = norm_of(self, &kept);

    bp_layer_norm_forward(&work.normed, kept.before, &norm, &(bp_residual){.base = h});
    bp_linear_forward_operand(nn->gemm, kept.wide, &work.normed, self->wide_map, NULL);
    bp_linear_forward_operand(nn->gemm, kept.bc, &work.normed, self->bc_map, NULL);
    set_rates(work.rate, self);
    if (pass->continuation)
        continue_sequences(self, pass, &kept, &work);
    else
        run_windows(self, pass, &kept, &work);
    gate_forward(work.inner.v, self, kept.y, kept.wide, self->W, N);
    gate_statistics(kept.gate_rstd, work.inner.sums, self, work.inner.v, N);
    gate_norm(&work.gated, self, work.inner.v, kept.gate_rstd);
    bp_linear_forward_operand(nn->gemm, work.branch, &work.gated, self->out_map, NULL);
    bp_nn_sum(nn, pass, work.branch, C);
    branch_add(h, kept.before, work.branch, self, pass);
    pass->scratch->used_bytes = mark;
}

/* Recomputes the inputs of the scan and of the last product (the gated rows); then dy of the scan
 * from the gradient of the branch. */
static void open_gate(state_space *self, bp_pass *pass, const kept_rows *kept, backward_rows *work)
{
    const bp_nn *nn = self->block.nn;
    int64_t N = pass->B * pass->T;
    float *v = work->inner.v;

    fill_inner(self, &work->inner, kept, 0, pass->B, pass->T, NULL);
    gate_forward(v, self, kept->y, kept->wide, self->W, N);
    memcpy(work->dx, v, (size_t)(N * self->Ml) * sizeof *v);
    gate_norm(&work->gated, self, work->dx, kept->gate_rstd);
    bp_nn_backward_weight(nn, self->out, 1, &work->dbranch, &work->gated);
    bp_linear_backward_input_operand(nn->gemm, work->dn, &work->dbranch, self->out_map);
    gate_backward(work->dn, work->dwide, self, v, work->inner.sums, kept->gate_rstd, kept->y,
                  kept->wide, self->W, N);
}

static void add_to(float *gradient, const float *x, const float *factors, int64_t n)
{
    for (int64_t i = 0; gradient && i < n; i++)
        gradient[i] += factors ? x[i] * factors[i] : x[i];
}

/* Backward through the scan, the steps and the convolutions. */
static void open_scan(state_space *self, bp_pass *pass, const kept_rows *kept, backward_rows *work)
{
    const bp_state_space_shape *s = &self->shape;
    int64_t group = self->first_head / (s->H / s->G), H = self->Hl, M = self->Ml, W = self->W,
            N = pass->B * pass->T;
    mixed_rows x = rows_of(self, kept, true, 0, pass->B, pass->T, NULL),
               bc = rows_of(self, kept, false, 0, pass->B, pass->T, NULL);
    bp_scan scan = scan_of(self, &work->inner, work->rate, pass->B, pass->T);
    bp_scan_gradients to = {.dx = work->dx,
                            .db = work->db_rows + group * s->N,
                            .dc = work->db_rows + (s->G + group) * s->N,
                            .ddt = work->ddt,
                            .drate = work->drate,
                            .dskip = work->drate + H};

    bp_zero(work->drate, 2 * H);
    bp_zero(work->db_rows, N * self->BC);
    bp_scan_backward(&to, &scan, work->dn, pass->scratch);
    add_to(self->decay->gradient, work->drate, work->rate, H);
    add_to(self->skip->gradient, work->drate + H, NULL, H);
    steps_backward(work->dwide + 2 * M, self, work->ddt, kept->wide + 2 * M, W, N);
    mix_backward(work->dwide + M, W, work->dx, &self->x, s->K, &x, work->inner.taps);
    mix_backward(work->dbc, self->BC, work->db_rows, &self->both, s->K, &bc, work->inner.taps);
}

static void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    state_space *self = state_space_of(block);
    const bp_nn *nn = block->nn;
    int64_t N = pass->B * pass->T, C = self->shape.C;
    float *dh = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena keep = {.base = saved, .size_bytes = SIZE_MAX};
    kept_rows kept = alloc_kept(self, &keep, N);
    backward_rows work = alloc_backward(self, pass->scratch, N);
    bp_norm norm = norm_of(self, &kept);
    bp_norm_gradients to = {dh, nn->tensor_rank == 0 ? self->gain->gradient : NULL, NULL, false};

    branch_open(&work.dbranch, dh, work.more, self, pass);
    set_rates(work.rate, self);
    open_gate(self, pass, &kept, &work);
    open_scan(self, pass, &kept, &work);
    bp_operand_fill(&work.dwide_operand, work.dwide);
    bp_operand_fill(&work.dbc_operand, work.dbc);
    bp_linear_backward_input_operand(nn->gemm, work.dnormed, &work.dwide_operand, self->wide_map);
    bp_linear_backward_input_operand(nn->gemm, work.more, &work.dbc_operand, self->bc_map);
    bp_add(work.dnormed, work.more, N * C);
    bp_nn_sum(nn, pass, work.dnormed, C);
    bp_layer_norm_backward(&to, &work.normed, work.dnormed, kept.before, &norm, N, C,
                           work.norm_sums);
    bp_nn_backward_weight(nn, self->z, 3, &work.dwide_operand, &work.normed);
    bp_nn_backward_weight(nn, self->bc, 1, &work.dbc_operand, &work.normed);
    pass->scratch->used_bytes = mark;
}

static void layer_free(bp_block *block)
{
    state_space *self = state_space_of(block);

    bp_weight_free(&self->wide_map);
    bp_weight_free(&self->bc_map);
    bp_weight_free(&self->out_map);
    bp_free(self->first_steps);
    bp_free(self->first_decays);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "state_space",
    .cache = layer_cache,
    .saved_bytes = layer_saved,
    .scratch_bytes = layer_scratch,
    .product_bytes = layer_products,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .free = layer_free,
};

void bp_state_space_new(bp_block **out, const bp_nn *nn, const bp_state_space_shape *shape,
                        bp_group *split, bp_group *whole)
{
    state_space *self = bp_alloc("nn.layer", 1, sizeof *self);

    BP_ASSERT(shape->H % shape->G == 0 && shape->H % nn->tensor_ranks == 0);
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->Hl = shape->H / nn->tensor_ranks;
    self->Ml = self->Hl * shape->P;
    self->first_head = self->Hl * nn->tensor_rank;
    self->W = 2 * self->Ml + self->Hl;
    self->BC = 2 * shape->G * shape->N;
    self->x.columns = self->Ml;
    self->both.columns = self->BC;
    state_space_add_params(self, split, whole);
    *out = &self->block;
}
