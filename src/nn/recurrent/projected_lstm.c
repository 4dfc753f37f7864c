/* An LSTM layer whose state is projected to fewer columns, for recurrence and output (Sak et al.
 * 2014), as in ELMo's language models: cells and projections are clipped, the input may be added
 * to the output, and rows may be read from the last place to the first. Rows are kept by position
 * first, as in recurrent_layer.c; a layer that reads from the end has its last place first. Called
 * by models/elmo/elmo.c. */
#include "base/err.h"
#include "math/gemm/step.h"
#include "math/kernels/kernels.h"
#include "nn/core/layers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GATES  4
#define FORGET 1
/* Added to the forget gate's at run time, as TensorFlow's cell does. */
#define FORGET_BIAS 1.0F

typedef struct projected_lstm {
    bp_block block;
    bp_projected_lstm_shape shape;
    bp_param *input, *hidden, *bias, *projection; /* projection NULL: the state is as wide as the
                                                     cells */
    bp_weight *input_map;
    bp_step_weight *hidden_map, *projection_map;
    float *gate_bias; /* [4 H] with the forget gate's addition */
} projected_lstm;

static projected_lstm *layer_of(const bp_block *block)
{
    return (projected_lstm *)block;
}

/* Computed by forward and read by backward, N = T B rows. */
typedef struct states {
    float *x;     /* [N][P] its input, after dropout */
    float *gates; /* [N][4 H] after their activation */
    float *cells; /* [B + N][H]: the first B rows are the window's initial state */
    float *outs;  /* [N][H] of the cells, before the projection */
    float *state; /* [B + N][P] after projection and clip */
} states;

static states alloc_states(const projected_lstm *self, bp_arena *arena, int64_t B, int64_t T)
{
    int64_t N = T * B, P = self->shape.P, H = self->shape.H;

    return (states){.x = bp_arena_floats(arena, N * P),
                    .gates = bp_arena_floats(arena, N * GATES * H),
                    .cells = bp_arena_floats(arena, (B + N) * H),
                    .outs = bp_arena_floats(arena, N * H),
                    .state = bp_arena_floats(arena, (B + N) * P)};
}

/* What backward works in. */
typedef struct gradients {
    float *out;     /* [N][P] of the layer's output */
    float *state;   /* [N][P] of the projection, before its clip */
    float *gates;   /* [N][4 H] of the gates' sums */
    float *dx;      /* [N][P] */
    float *past;    /* [B][P] of the state before */
    float *dh, *dc; /* [B][H] */
} gradients;

static gradients alloc_gradients(const projected_lstm *self, bp_arena *arena, int64_t B, int64_t T)
{
    int64_t N = T * B, P = self->shape.P, H = self->shape.H;

    return (gradients){.out = bp_arena_floats(arena, N * P),
                       .state = bp_arena_floats(arena, N * P),
                       .gates = bp_arena_floats(arena, N * GATES * H),
                       .dx = bp_arena_floats(arena, N * P),
                       .past = bp_arena_floats(arena, B * P),
                       .dh = bp_arena_floats(arena, B * H),
                       .dc = bp_arena_floats(arena, B * H)};
}

/* The state's part of a position's gates. */
static float *alloc_step(const projected_lstm *self, bp_arena *arena, int64_t B)
{
    return bp_arena_floats(arena, B * GATES * self->shape.H);
}

static size_t layer_saved(const bp_block *block, const bp_extent *most)
{
    bp_arena count = {0};

    alloc_states(layer_of(block), &count, most->B, most->T[block->stream]);
    return count.used_bytes;
}

static size_t layer_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const projected_lstm *self = layer_of(block);
    int64_t B = most->B, T = most->T[block->stream];
    bp_arena forward = {0}, backward = {0};

    alloc_step(self, &forward, B);
    if (!training)
        alloc_states(self, &forward, B, T);
    bp_arena_floats(&forward, B * T * self->shape.P); /* of the skip */
    alloc_gradients(self, &backward, B, T);
    return training && backward.used_bytes > forward.used_bytes ? backward.used_bytes
                                                                : forward.used_bytes;
}

static void add_step_bytes(bp_product_bytes *bytes, const bp_gemm *gemm, int64_t rows, int64_t outs,
                           int64_t ins)
{
    size_t scratch = bp_step_scratch_bytes(gemm, rows, outs, ins);

    bytes->copies += bp_step_copy_bytes(gemm, outs, ins);
    bytes->scratch = scratch > bytes->scratch ? scratch : bytes->scratch;
}

static bp_product_bytes layer_products(const bp_block *block, const bp_extent *most)
{
    const projected_lstm *self = layer_of(block);
    int64_t P = self->shape.P, H = self->shape.H;
    bp_product_bytes bytes = {0};

    bp_product_bytes_add(&bytes, block->nn, most->B * most->T[block->stream], GATES * H, P);
    add_step_bytes(&bytes, block->nn->gemm, most->B, GATES * H, P);
    if (self->projection)
        add_step_bytes(&bytes, block->nn->gemm, most->B, P, H);
    return bytes;
}

static bp_err layer_bind(bp_block *block)
{
    projected_lstm *self = layer_of(block);
    bp_gemm *gemm = block->nn->gemm;
    int64_t outs = GATES * self->shape.H, P = self->shape.P;
    bp_err err = bp_weight_new(&self->input_map, gemm, self->input->value, outs, P);

    if (err == BP_OK)
        err = bp_step_weight_new(&self->hidden_map, gemm, self->hidden->value, outs, P);
    if (err == BP_OK && self->projection)
        err = bp_step_weight_new(&self->projection_map, gemm, self->projection->value, P,
                                 self->shape.H);
    return err;
}

static void layer_refresh(bp_block *block)
{
    projected_lstm *self = layer_of(block);
    int64_t H = self->shape.H;

    bp_weight_refresh(self->input_map);
    bp_step_weight_refresh(self->hidden_map);
    if (self->projection)
        bp_step_weight_refresh(self->projection_map);
    for (int64_t k = 0; k < GATES * H; k++)
        self->gate_bias[k] = self->bias->value[k] + (k / H == FORGET ? FORGET_BIAS : 0);
}

/* The place of t in the order in which the layer reads an example. */
static int64_t turn_of(const projected_lstm *self, int64_t t, int64_t T)
{
    return self->shape.from_end ? T - 1 - t : t;
}

/* rows[b T + t] and rows[turn B + b]. */
static void by_position(const projected_lstm *self, float *to, const float *from, int64_t B,
                        int64_t T)
{
    int64_t P = self->shape.P;

    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            memcpy(to + (turn_of(self, t, T) * B + b) * P, from + (b * T + t) * P,
                   (size_t)P * sizeof *to);
}

static void by_example(const projected_lstm *self, float *to, const float *from, int64_t B,
                       int64_t T)
{
    int64_t P = self->shape.P;

    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            memcpy(to + (b * T + t) * P, from + (turn_of(self, t, T) * B + b) * P,
                   (size_t)P * sizeof *to);
}

static void begin_with(float *rows, const bp_carry *carry, const bp_pass *pass, int64_t columns)
{
    const float *before = carry ? bp_carry_before(carry, pass) : NULL;

    if (before)
        memcpy(rows, before, (size_t)(pass->B * columns) * sizeof *rows);
    else
        bp_zero(rows, pass->B * columns);
}

static void carry_on(const bp_carry *carry, const bp_pass *pass, const float *rows, int64_t columns)
{
    float *after = carry ? bp_carry_after(carry, pass) : NULL;

    if (after)
        memcpy(after, rows, (size_t)(pass->B * columns) * sizeof *rows);
}

static bp_cell_units units_of(const projected_lstm *self, const states *of, const float *u,
                              int64_t t, int64_t B)
{
    int64_t H = self->shape.H, place = t * B * H;

    return (bp_cell_units){.H = H,
                           .gates = of->gates + GATES * place,
                           .u = u,
                           .c = of->cells + place,
                           .new_h = of->outs + place,
                           .new_c = of->cells + place + B * H,
                           .clip = self->shape.cell_clip};
}

/* Position t, all examples. */
static void forward_step(const projected_lstm *self, const states *to, float *u, int64_t t,
                         int64_t B)
{
    int64_t P = self->shape.P;
    float *now = to->state + (t + 1) * B * P, clip = self->shape.projection_clip;
    bp_cell_units units = units_of(self, to, u, t, B);

    bp_step_forward(u, to->state + t * B * P, self->hidden_map, NULL, B);
    bp_cell_forward(BP_CELL_LSTM, &units, B);
    if (!self->projection) {
        memcpy(now, units.new_h, (size_t)(B * P) * sizeof *now);
        return;
    }
    bp_step_forward(now, units.new_h, self->projection_map, NULL, B);
    for (int64_t k = 0; k < B * P; k++)
        now[k] = now[k] > clip ? clip : now[k] < -clip ? -clip : now[k];
}

/* For the input, or for the output. */
enum { INPUT_MASK, OUTPUT_MASK };

static bool drops(const projected_lstm *self, const bp_pass *pass, int mask)
{
    return pass->dropout && self->block.nn->dropout > 0 &&
           (mask == INPUT_MASK || self->shape.drops_output);
}

static void drop(const projected_lstm *self, const bp_pass *pass, int mask, float *rows,
                 bool backward)
{
    const bp_nn *nn = self->block.nn;
    int64_t P = self->shape.P, n = pass->B * pass->T * P;
    bp_rng_key key;

    if (!drops(self, pass, mask))
        return;
    key = bp_dropout_key(nn, pass, self->shape.dropout_stream + mask);
    if (backward)
        bp_dropout_backward(rows, rows, n, nn->dropout, &key, bp_nn_first_row(nn, pass) * P);
    else
        bp_add_dropout(rows, NULL, rows, n, nn->dropout, &key, bp_nn_first_row(nn, pass) * P);
}

/* This direction is not needed: it is neither scored nor probed. */
static bool is_idle(const projected_lstm *self, const bp_pass *pass)
{
    return self->shape.from_end && !pass->training && !pass->probe &&
           pass->batch.term[self->shape.term].count == 0;
}

static void layer_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const projected_lstm *self = layer_of(block);
    const bp_projected_lstm_shape *s = &self->shape;
    int64_t B = pass->B, T = pass->T, N = B * T, P = s->P, H = s->H;
    float *rows = activations->item[s->item].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};

    if (is_idle(self, pass))
        return;
    float *u = alloc_step(self, pass->scratch, B);
    states to = alloc_states(self, saved ? &kept : pass->scratch, B, T);
    drop(self, pass, INPUT_MASK, rows, false);
    by_position(self, to.x, rows, B, T);
    bp_linear_forward(block->nn->gemm, to.gates, to.x, self->input_map, self->gate_bias, N);
    begin_with(to.state, s->state, pass, P);
    begin_with(to.cells, s->cells, pass, H);
    for (int64_t t = 0; t < T; t++)
        forward_step(self, &to, u, t, B);
    carry_on(s->state, pass, to.state + N * P, P);
    carry_on(s->cells, pass, to.cells + N * H, H);
    by_example(self, rows, to.state + B * P, B, T);
    if (s->skips) {
        float *input = bp_arena_floats(pass->scratch, N * P);

        by_example(self, input, to.x, B, T);
        bp_add(rows, input, N * P);
    }
    drop(self, pass, OUTPUT_MASK, rows, false);
    pass->scratch->used_bytes = mark;
}

static void backward_step(const projected_lstm *self, const states *of, const gradients *g,
                          int64_t t, int64_t B)
{
    int64_t P = self->shape.P, H = self->shape.H;
    const float *now = of->state + (t + 1) * B * P;
    float *state = g->state + t * B * P, *gates = g->gates + t * B * GATES * H,
          clip = self->shape.projection_clip;
    bp_cell_units units = units_of(self, of, NULL, t, B);

    memcpy(state, g->out + t * B * P, (size_t)(B * P) * sizeof *state);
    bp_add(state, g->past, B * P);
    if (self->projection) {
        for (int64_t k = 0; k < B * P; k++)
            state[k] = now[k] >= clip || now[k] <= -clip ? 0 : state[k];
        bp_step_backward(g->dh, state, self->projection_map, B);
    } else {
        memcpy(g->dh, state, (size_t)(B * P) * sizeof *state);
    }
    bp_cell_backward(BP_CELL_LSTM, &units,
                     &(bp_cell_gradients){.da = gates, .du = gates, .dh = g->dh, .dc = g->dc}, B);
    bp_step_backward(g->past, gates, self->hidden_map, B);
}

static void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    projected_lstm *self = layer_of(block);
    bp_gemm *gemm = block->nn->gemm;
    int64_t B = pass->B, T = pass->T, N = B * T, P = self->shape.P, H = self->shape.H;
    float *rows = activations->item[self->shape.item].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    states of = alloc_states(self, &kept, B, T);
    gradients g = alloc_gradients(self, pass->scratch, B, T);

    drop(self, pass, OUTPUT_MASK, rows, true);
    by_position(self, g.out, rows, B, T);
    bp_zero(g.past, B * P);
    bp_zero(g.dc, B * H);
    for (int64_t t = T - 1; t >= 0; t--)
        backward_step(self, &of, &g, t, B);
    bp_linear_backward_weight(gemm, self->hidden->gradient, self->bias->gradient, g.gates, of.state,
                              N, GATES * H, P);
    bp_linear_backward_weight(gemm, self->input->gradient, NULL, g.gates, of.x, N, GATES * H, P);
    if (self->projection)
        bp_linear_backward_weight(gemm, self->projection->gradient, NULL, g.state, of.outs, N, P,
                                  H);
    bp_linear_backward_input(gemm, g.dx, g.gates, self->input_map, N);
    if (self->shape.skips)
        bp_add(g.dx, g.out, N * P);
    by_example(self, rows, g.dx, B, T);
    drop(self, pass, INPUT_MASK, rows, true);
    pass->scratch->used_bytes = mark;
}

static void layer_free(bp_block *block)
{
    projected_lstm *self = layer_of(block);

    bp_weight_free(&self->input_map);
    bp_step_weight_free(&self->hidden_map);
    bp_step_weight_free(&self->projection_map);
    bp_free(self->gate_bias);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "projected_lstm",
    .saved_bytes = layer_saved,
    .scratch_bytes = layer_scratch,
    .product_bytes = layer_products,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .free = layer_free,
};

/* Initial matrices are TensorFlow's: uniform within sqrt(6 / (rows + columns)) of the whole kernel
 * (Glorot and Bengio 2010). */
static bp_param *add_matrix(const projected_lstm *self, bp_group *group, const char *part,
                            const int64_t size[2], int64_t sides)
{
    char name[BP_PARAM_NAME];
    bp_param *param;

    (void)snprintf(name, sizeof name, "%s.%s", self->shape.name, part);
    param = bp_group_add_matrix(group, name, size[0], size[1], sqrtf(6 / (float)sides));
    param->init = BP_INIT_UNIFORM;
    return param;
}

void bp_projected_lstm_new(bp_block **out, const bp_nn *nn, const bp_projected_lstm_shape *shape,
                           bp_group *group)
{
    projected_lstm *self = bp_alloc("nn.layer", 1, sizeof *self);
    int64_t P = shape->P, H = shape->H, kernel = 2 * P + GATES * H;
    char name[BP_PARAM_NAME];

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->block.stream = shape->stream;
    self->shape = *shape;
    self->gate_bias = bp_alloc("nn.layer", GATES * H, sizeof *self->gate_bias);
    self->input = add_matrix(self, group, "input.weight", (int64_t[2]){GATES * H, P}, kernel);
    self->hidden = add_matrix(self, group, "hidden.weight", (int64_t[2]){GATES * H, P}, kernel);
    (void)snprintf(name, sizeof name, "%s.bias", shape->name);
    self->bias = bp_group_add_vector(group, name, GATES * H, BP_INIT_ZERO);
    if (P != H)
        self->projection = add_matrix(self, group, "projection.weight", (int64_t[2]){P, H}, P + H);
    *out = &self->block;
}
