/* A recurrent layer: Elman's, LSTM, GRU or a graph. The input's part of all gates of a window is
 * one matrix product; then it computes position by position. Rows are kept by position first (row
 * t B + b), so that those of a position are contiguous. The final state of an example's window is
 * carried to its next one; gradients stop at the start of a window (truncated back-propagation
 * through time). Called by models/recurrent/recurrent.c. */
#include "nn/recurrent/recurrent_priv.h"

#include "base/err.h"
#include "math/kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Computed by forward and read by backward, N = T B rows. */
typedef struct states {
    float *x;     /* [N][I] */
    float *gates; /* [N][G H] after their activation */
    float *h, *c; /* [B + N][H]: the first B rows are the window's initial state; c: LSTM */
    float *n;     /* [N][H] GRU: the new gate's part of the state, before the reset */
    graph_states graph;
} states;

static states alloc_states(const recurrent_layer *self, bp_arena *arena, int64_t B, int64_t T)
{
    const bp_recurrent_shape *s = &self->shape;
    int64_t N = T * B;
    states out = {.x = bp_arena_floats(arena, N * s->I),
                  .gates = bp_arena_floats(arena, N * self->G * s->H),
                  .h = bp_arena_floats(arena, (B + N) * s->H)};

    if (s->cell == BP_CELL_LSTM)
        out.c = bp_arena_floats(arena, (B + N) * s->H);
    if (s->cell == BP_CELL_GRU)
        out.n = bp_arena_floats(arena, N * s->H);
    if (recurrent_is_graph(self))
        out.graph = graph_alloc(self, arena, B, T);
    return out;
}

/* What backward works in. */
typedef struct gradients {
    float *out;           /* [N][H] */
    float *input, *state; /* [N][G H] of the gates by their input's part and by their state's: the
                             same except in a GRU */
    float *dx;            /* [N][I] */
    float *dh, *dc;       /* [B][H] */
    graph_gradients graph;
} gradients;

static gradients alloc_gradients(const recurrent_layer *self, bp_arena *arena, int64_t B, int64_t T)
{
    const bp_recurrent_shape *s = &self->shape;
    int64_t N = T * B;
    gradients g = {.out = bp_arena_floats(arena, N * s->H),
                   .input = bp_arena_floats(arena, N * self->G * s->H)};

    g.state = s->cell == BP_CELL_GRU ? bp_arena_floats(arena, N * self->G * s->H) : g.input;
    g.dx = bp_arena_floats(arena, N * s->I);
    g.dh = bp_arena_floats(arena, B * s->H);
    g.dc = bp_arena_floats(arena, B * s->H);
    if (recurrent_is_graph(self))
        g.graph = graph_alloc_gradients(self, arena, B, T);
    return g;
}

/* Of one position. */
typedef struct position {
    float *u;     /* [B][G H] the state's part of the gates; NULL in backward */
    float *h, *c; /* [B][H] the state before, where some documents begin */
} position;

static position alloc_position(const recurrent_layer *self, bp_arena *arena, int64_t B,
                               bool forward)
{
    int64_t H = self->shape.H;

    return (position){.u = forward ? bp_arena_floats(arena, B * self->G * H) : NULL,
                      .h = bp_arena_floats(arena, B * H),
                      .c = bp_arena_floats(arena, B * H)};
}

static size_t layer_saved(const bp_block *block, const bp_extent *most)
{
    bp_arena count = {0};

    alloc_states(recurrent_layer_of(block), &count, most->B, most->T[block->stream]);
    return count.used_bytes;
}

static size_t layer_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const recurrent_layer *self = recurrent_layer_of(block);
    int64_t B = most->B, T = most->T[block->stream];
    bp_arena forward = {0}, backward = {0};

    alloc_position(self, &forward, B, true);
    if (!training)
        alloc_states(self, &forward, B, T);
    alloc_gradients(self, &backward, B, T);
    alloc_position(self, &backward, B, false);
    return training && backward.used_bytes > forward.used_bytes ? backward.used_bytes
                                                                : forward.used_bytes;
}

static bp_product_bytes layer_products(const bp_block *block, const bp_extent *most)
{
    const recurrent_layer *self = recurrent_layer_of(block);
    int64_t rows = most->B * most->T[block->stream], H = self->shape.H;
    bp_product_bytes bytes = {0};
    size_t step;

    bp_product_bytes_add(&bytes, block->nn, rows, self->G * H, self->shape.I);
    bytes.copies += bp_step_copy_bytes(block->nn->gemm, self->G * H, H);
    step = bp_step_scratch_bytes(block->nn->gemm, most->B, self->G * H, H);
    bytes.scratch = step > bytes.scratch ? step : bytes.scratch;
    if (recurrent_is_graph(self))
        graph_products(self, most, &bytes);
    return bytes;
}

static bp_err layer_bind(bp_block *block)
{
    recurrent_layer *self = recurrent_layer_of(block);
    int64_t outs = self->G * self->shape.H;
    bp_err err =
        bp_weight_new(&self->input_map, block->nn->gemm, self->input->value, outs, self->shape.I);

    if (err == BP_OK)
        err = bp_step_weight_new(&self->hidden_map, block->nn->gemm, self->hidden->value, outs,
                                 self->shape.H);
    if (err == BP_OK && recurrent_is_graph(self))
        err = graph_bind(self);
    return err;
}

static void layer_refresh(bp_block *block)
{
    recurrent_layer *self = recurrent_layer_of(block);

    bp_weight_refresh(self->input_map);
    bp_step_weight_refresh(self->hidden_map);
    if (recurrent_is_graph(self))
        graph_refresh(self);
}

static const float *bias_of(const bp_param *bias)
{
    return bias ? bias->value : NULL;
}

static float *bias_gradient(const bp_param *bias)
{
    return bias ? bias->gradient : NULL;
}

/* The state before position t: `rows`, with zeros where a document begins, then at `to`. */
static const float *state_before(const bp_pass *pass, float *to, const float *rows, int64_t t,
                                 int64_t H)
{
    bool some = false;

    for (int64_t b = 0; b < pass->B && !some; b++)
        some = bp_pass_restarts(pass, b, t);
    if (!rows || !some)
        return rows;
    for (int64_t b = 0; b < pass->B; b++)
        if (bp_pass_restarts(pass, b, t))
            bp_zero(to + b * H, H);
        else
            memcpy(to + b * H, rows + b * H, (size_t)H * sizeof *to);
    return to;
}

/* Nothing goes from a document to the one before: zeros in rows [B][H] of position t. */
static void forget(const bp_pass *pass, float *rows, int64_t t, int64_t H)
{
    for (int64_t b = 0; b < pass->B; b++)
        if (bp_pass_restarts(pass, b, t))
            bp_zero(rows + b * H, H);
}

/* The cells of position t, for all examples. */
static bp_cell_units units_of(const recurrent_layer *self, const bp_pass *pass, const states *of,
                              const position *at, int64_t t)
{
    int64_t B = pass->B, H = self->shape.H, place = t * B * H;

    return (bp_cell_units){.H = H,
                           .gates = of->gates + place * self->G,
                           .u = at->u,
                           .h = state_before(pass, at->h, of->h + place, t, H),
                           .c = state_before(pass, at->c, of->c ? of->c + place : NULL, t, H),
                           .new_h = of->h + place + B * H,
                           .new_c = of->c ? of->c + place + B * H : NULL,
                           .kept = of->n ? of->n + place : NULL};
}

/* Position t, all examples. */
static void forward_step(const recurrent_layer *self, const bp_pass *pass, const states *to,
                         const position *at, int64_t t)
{
    int64_t B = pass->B;
    bp_cell_units units = units_of(self, pass, to, at, t);

    bp_step_forward(at->u, units.h, self->hidden_map, bias_of(self->hidden_bias), B);
    if (recurrent_is_graph(self))
        graph_forward(self, &to->graph, &units, t);
    else
        bp_cell_forward(self->shape.cell, &units, B);
}

/* rows[b T + t] and rows[t B + b]. */
static void by_position(float *to, const float *from, int64_t B, int64_t T, int64_t C)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            memcpy(to + (t * B + b) * C, from + (b * T + t) * C, (size_t)C * sizeof *to);
}

static void by_example(float *to, const float *from, int64_t B, int64_t T, int64_t C)
{
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            memcpy(to + (b * T + t) * C, from + (t * B + b) * C, (size_t)C * sizeof *to);
}

static void begin_with(float *rows, const bp_carry *carry, const bp_pass *pass, int64_t H)
{
    const float *before = carry ? bp_carry_before(carry, pass) : NULL;

    if (before)
        memcpy(rows, before, (size_t)(pass->B * H) * sizeof *rows);
    else
        bp_zero(rows, pass->B * H);
}

static const bp_carry *carry_of(const recurrent_layer *self, const bp_pass *pass)
{
    return pass->second_text ? self->shape.second : self->shape.h;
}

static void carry_on(const bp_carry *carry, const bp_pass *pass, const float *rows, int64_t H)
{
    float *after = carry ? bp_carry_after(carry, pass) : NULL;

    if (after)
        memcpy(after, rows, (size_t)(pass->B * H) * sizeof *rows);
}

static bool drops(const recurrent_layer *self, const bp_pass *pass)
{
    return pass->dropout && self->block.nn->dropout > 0;
}

static void layer_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const recurrent_layer *self = recurrent_layer_of(block);
    const bp_nn *nn = block->nn;
    const bp_recurrent_shape *s = &self->shape;

    if (pass->continuation) {
        recurrent_continue(self, pass, activations->item[0].data);
        return;
    }
    int64_t B = pass->B, T = pass->T, N = B * T, H = s->H;
    float *rows = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    position at = alloc_position(self, pass->scratch, B, true);
    states to = alloc_states(self, saved ? &kept : pass->scratch, B, T);

    by_position(to.x, rows, B, T, s->I);
    bp_linear_forward(nn->gemm, to.gates, to.x, self->input_map, bias_of(self->input_bias), N);
    begin_with(to.h, carry_of(self, pass), pass, H);
    if (to.c)
        begin_with(to.c, s->c, pass, H);
    for (int64_t t = 0; t < T; t++)
        forward_step(self, pass, &to, &at, t);
    carry_on(carry_of(self, pass), pass, to.h + N * H, H);
    if (to.c)
        carry_on(s->c, pass, to.c + N * H, H);
    by_example(rows, to.h + B * H, B, T, H);
    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(nn, pass, s->dropout_stream);
        bp_add_dropout(rows, NULL, rows, N * H, nn->dropout, &key, bp_nn_first_row(nn, pass) * H);
    }
    pass->scratch->used_bytes = mark;
}

static void backward_step(const recurrent_layer *self, const bp_pass *pass, const states *of,
                          gradients *g, const position *at, int64_t t)
{
    int64_t B = pass->B, H = self->shape.H, GH = self->G * H;
    bool goes_past = self->shape.cell == BP_CELL_GRU || recurrent_is_graph(self);
    float *past = g->out + t * B * H; /* added to dh first, then free for the product's result */
    bp_cell_units units = units_of(self, pass, of, at, t);

    bp_cell_gradients out = {
        .da = g->input + t * B * GH, .du = g->state + t * B * GH, .dh = g->dh, .dc = g->dc};

    bp_add(g->dh, past, B * H);
    if (recurrent_is_graph(self))
        graph_backward(self, &of->graph, &g->graph, &units, &out, t);
    else
        bp_cell_backward(self->shape.cell, &units, &out, B);
    bp_step_backward(past, g->state + t * B * GH, self->hidden_map, B);
    if (goes_past)
        bp_add(g->dh, past, B * H);
    else
        memcpy(g->dh, past, (size_t)(B * H) * sizeof *past);
    forget(pass, g->dh, t, H);
    forget(pass, g->dc, t, H);
}

static void layer_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    recurrent_layer *self = recurrent_layer_of(block);
    bp_gemm *gemm = block->nn->gemm;
    int64_t B = pass->B, T = pass->T, N = B * T, H = self->shape.H, GH = self->G * H,
            I = self->shape.I;
    float *rows = activations->item[0].data;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    states of = alloc_states(self, &kept, B, T);
    gradients g = alloc_gradients(self, pass->scratch, B, T);
    position at = alloc_position(self, pass->scratch, B, false);

    if (drops(self, pass)) {
        bp_rng_key key = bp_dropout_key(block->nn, pass, self->shape.dropout_stream);
        bp_dropout_backward(rows, rows, N * H, block->nn->dropout, &key,
                            bp_nn_first_row(block->nn, pass) * H);
    }
    by_position(g.out, rows, B, T, H);
    bp_zero(g.dh, B * H);
    bp_zero(g.dc, B * H);
    for (int64_t t = T - 1; t >= 0; t--)
        backward_step(self, pass, &of, &g, &at, t);
    for (int64_t t = 0; t < T; t++) /* what the state's products read */
        forget(pass, of.h + t * B * H, t, H);
    bp_linear_backward_weight(gemm, self->hidden->gradient, bias_gradient(self->hidden_bias),
                              g.state, of.h, N, GH, H);
    bp_linear_backward_weight(gemm, self->input->gradient, bias_gradient(self->input_bias), g.input,
                              of.x, N, GH, I);
    if (recurrent_is_graph(self))
        graph_backward_weights(self, &of.graph, &g.graph);
    bp_linear_backward_input(gemm, g.dx, g.input, self->input_map, N);
    by_example(rows, g.dx, B, T, I);
    pass->scratch->used_bytes = mark;
}

static void layer_free(bp_block *block)
{
    recurrent_layer *self = recurrent_layer_of(block);

    bp_weight_free(&self->input_map);
    bp_step_weight_free(&self->hidden_map);
    graph_free(self);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "recurrent",
    .cache = recurrent_cache,
    .saved_bytes = layer_saved,
    .scratch_bytes = layer_scratch,
    .product_bytes = layer_products,
    .bind = layer_bind,
    .refresh = layer_refresh,
    .forward = layer_forward,
    .backward = layer_backward,
    .free = layer_free,
};

static const char *param_name(char *out, const recurrent_layer *self, const char *part)
{
    (void)snprintf(out, BP_PARAM_NAME, "h.%lld.%s", (long long)self->shape.number, part);
    return out;
}

/* Initial weights and biases are torch.nn's: uniform within 1 / sqrt(H). */
static bp_param *add_matrix(const recurrent_layer *self, bp_group *group, const char *part,
                            int64_t rows, int64_t columns)
{
    char name[BP_PARAM_NAME];
    float bound = 1 / sqrtf((float)self->shape.H);
    bp_param *param =
        bp_group_add_matrix(group, param_name(name, self, part), rows, columns, bound);

    param->init = BP_INIT_UNIFORM;
    return param;
}

static bp_param *add_bias(const recurrent_layer *self, bp_group *group, const char *part, int64_t n,
                          bp_init init)
{
    char name[BP_PARAM_NAME];
    bp_param *param = bp_group_add_vector(group, param_name(name, self, part), n, init);

    param->init_std = 1 / sqrtf((float)self->shape.H);
    return param;
}

/* An LSTM's biases are separate, since its forget gate's start at 1 (Jozefowicz et al. 2015). */
static void add_biases(recurrent_layer *self, bp_group *group)
{
    int64_t H = self->shape.H;

    if (self->shape.cell == BP_CELL_LSTM) {
        self->input_bias = add_bias(self, group, "input.bias.i", H, BP_INIT_ZERO);
        add_bias(self, group, "input.bias.f", H, BP_INIT_ONE);
        add_bias(self, group, "input.bias.g", H, BP_INIT_ZERO);
        add_bias(self, group, "input.bias.o", H, BP_INIT_ZERO);
        self->hidden_bias = add_bias(self, group, "hidden.bias", self->G * H, BP_INIT_ZERO);
    } else {
        self->input_bias = add_bias(self, group, "input.bias", self->G * H, BP_INIT_UNIFORM);
        self->hidden_bias = add_bias(self, group, "hidden.bias", self->G * H, BP_INIT_UNIFORM);
    }
}

/* A mixed cell's architecture starts without a preference, as in DARTS. */
static void add_nodes(recurrent_layer *self, bp_group *group)
{
    const bp_cell_graph *graph = &self->shape.graph;
    char name[BP_PARAM_NAME];

    self->nodes =
        add_matrix(self, group, "nodes.weight", 2 * self->shape.H * graph->nodes, self->shape.H);
    if (!graph->mixed)
        return;
    self->mix = bp_group_add_matrix(graph->mix, param_name(name, self, "mix"),
                                    bp_cell_graph_edges(graph), BP_NODE_OPERATIONS, 1e-3F);
    self->mix->decays = false;
    (void)bp_group_add_matrix(graph->mix, param_name(name, self, "mix.m"), self->mix->shape[0],
                              BP_NODE_OPERATIONS, 0);
    (void)bp_group_add_matrix(graph->mix, param_name(name, self, "mix.v"), self->mix->shape[0],
                              BP_NODE_OPERATIONS, 0);
    for (int k = 1; k < 3; k++) {
        graph->mix->params[k].init = BP_INIT_ZERO;
        graph->mix->params[k].decays = false;
    }
}

void bp_recurrent_layer_new(bp_block **out, const bp_nn *nn, const bp_recurrent_shape *shape,
                            bp_group *group)
{
    static const int64_t GATES[] = {
        [BP_CELL_RNN] = 1, [BP_CELL_LSTM] = 4, [BP_CELL_GRU] = 3, [BP_CELL_GRAPH] = 2};
    recurrent_layer *self = bp_alloc("nn.layer", 1, sizeof *self);

    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->G = GATES[shape->cell];
    self->input = add_matrix(self, group, "input.weight", self->G * shape->H, shape->I);
    self->hidden = add_matrix(self, group, "hidden.weight", self->G * shape->H, shape->H);
    if (recurrent_is_graph(self))
        add_nodes(self, group);
    else
        add_biases(self, group);
    *out = &self->block;
}
