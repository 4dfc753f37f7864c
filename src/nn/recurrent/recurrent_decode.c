/* A recurrent layer continues sequences: each has one state, for any length. Called by
 * recurrent_layer.c. */
#include "nn/recurrent/recurrent_priv.h"

#include "math/kernels/kernels.h"

#include <string.h>

/* Sequences of a pass: the i-th has rows [first[i], first[i] + count[i]). Working memory is
 * contiguous, for active sequences in order. */
typedef struct work {
    float *h, *c;         /* [slots][H] states of the pass's sequences; c: LSTM */
    float *side;          /* [slots][H] the states of active ones */
    float *u;             /* [slots][G H] their gates' sums by the state */
    float *kept;          /* [H] values that forward keeps only for backward */
    float *gates, *after; /* of a graph: [slots][2 H] by the input, [slots][H] new states */
    graph_states graph;   /* of one position */
    int32_t *slot, *first, *count; /* [slots] */
    int32_t *going;                /* [slots] the active sequences */
    int64_t sequences;
} work;

/* Products have at most this many rows; prepared ones are padded to powers of two. */
static int64_t filled(const recurrent_layer *self, int64_t rows)
{
    int64_t most = 1;

    if (!bp_gemm_prepares(self->block.nn->gemm))
        return rows;
    while (most < rows)
        most *= 2;
    return most;
}

static int32_t *alloc_integers(bp_arena *arena, int64_t count)
{
    return (int32_t *)(void *)bp_arena_floats(arena, count);
}

static work lay_out(const recurrent_layer *self, bp_arena *arena, int64_t slots)
{
    int64_t H = self->shape.H, side = filled(self, slots);
    work out = {.h = bp_arena_floats(arena, slots * H),
                .c = bp_arena_floats(arena, slots * H),
                .side = bp_arena_floats(arena, side * H),
                .u = bp_arena_floats(arena, side * self->G * H),
                .kept = bp_arena_floats(arena, H)};

    out.slot = alloc_integers(arena, slots);
    out.first = alloc_integers(arena, slots);
    out.count = alloc_integers(arena, slots);
    out.going = alloc_integers(arena, slots);
    if (recurrent_is_graph(self)) {
        out.gates = bp_arena_floats(arena, side * self->G * H);
        out.after = bp_arena_floats(arena, side * H);
        out.graph = graph_alloc(self, arena, side, 1);
    }
    return out;
}

/* Floats of a sequence's state. */
static int64_t state_floats(const recurrent_layer *self)
{
    return (self->shape.cell == BP_CELL_LSTM ? 2 : 1) * self->shape.H;
}

bool recurrent_cache(const bp_block *block, int64_t slots, int64_t capacity, bp_cache_need *need)
{
    const recurrent_layer *self = recurrent_layer_of(block);
    bp_arena count = {0};

    (void)capacity;
    if (self->shape.graph.mixed) /* it normalises over sequences */
        return false;
    lay_out(self, &count, slots);
    *need = (bp_cache_need){.kept_bytes = (size_t)(slots * state_floats(self)) * sizeof(float),
                            .scratch_bytes = count.used_bytes};
    return true;
}

/* Rows of a sequence are consecutive. */
static void find_sequences(work *w, const bp_cached_rows *rows)
{
    for (int64_t r = 0; r < rows->count; r++) {
        if (r == 0 || rows->slots[r] != rows->slots[r - 1]) {
            w->slot[w->sequences] = rows->slots[r];
            w->first[w->sequences] = (int32_t)r;
            w->count[w->sequences++] = 0;
        }
        w->count[w->sequences - 1]++;
    }
}

static void read_states(const recurrent_layer *self, work *w, const bp_continuation *of)
{
    int64_t H = self->shape.H, floats = state_floats(self);

    for (int64_t i = 0; i < w->sequences; i++) {
        int32_t from = of->states_from[w->slot[i]];

        if (from < 0) {
            bp_zero(w->h + i * H, H);
            bp_zero(w->c + i * H, H);
            continue;
        }
        memcpy(w->h + i * H, of->cache + from * floats, (size_t)H * sizeof *w->h);
        if (floats > H)
            memcpy(w->c + i * H, of->cache + from * floats + H, (size_t)H * sizeof *w->c);
    }
}

static void write_states(const recurrent_layer *self, const work *w, const bp_continuation *of)
{
    int64_t H = self->shape.H, floats = state_floats(self);

    for (int64_t i = 0; i < w->sequences; i++) {
        float *to = of->cache + of->states_to[w->slot[i]] * floats;

        memcpy(to, w->h + i * H, (size_t)H * sizeof *to);
        if (floats > H)
            memcpy(to + H, w->c + i * H, (size_t)H * sizeof *to);
    }
}

/* The same, once the active states, and their sums by the state, are contiguous. */
static void step_graph(const recurrent_layer *self, work *w, const float *gates, float *rows,
                       int64_t k, int64_t going)
{
    int64_t H = self->shape.H, GH = self->G * H;

    w->graph.B = filled(self, going);
    bp_zero(w->gates + going * GH, (w->graph.B - going) * GH);
    for (int64_t j = 0; j < going; j++)
        memcpy(w->gates + j * GH, gates + (w->first[w->going[j]] + k) * GH,
               (size_t)GH * sizeof *gates);
    graph_forward(
        self, &w->graph,
        &(bp_cell_units){.H = H, .gates = w->gates, .u = w->u, .h = w->side, .new_h = w->after}, 0);
    for (int64_t j = 0; j < going; j++) {
        int64_t i = w->going[j];

        memcpy(w->h + i * H, w->after + j * H, (size_t)H * sizeof *w->h);
        memcpy(rows + (w->first[i] + k) * H, w->after + j * H, (size_t)H * sizeof *rows);
    }
}

/* Row number k of each sequence that has one; false if no sequence has it. */
static bool step(const recurrent_layer *self, work *w, float *gates, float *rows, int64_t k)
{
    int64_t H = self->shape.H, GH = self->G * H, going = 0;

    for (int64_t i = 0; i < w->sequences; i++)
        if (w->count[i] > k) {
            memcpy(w->side + going * H, w->h + i * H, (size_t)H * sizeof *w->side);
            w->going[going++] = (int32_t)i;
        }
    if (going == 0)
        return false;
    bp_zero(w->side + going * H, (filled(self, going) - going) * H);
    bp_step_forward(w->u, w->side, self->hidden_map,
                    self->hidden_bias ? self->hidden_bias->value : NULL, filled(self, going));
    if (recurrent_is_graph(self)) {
        step_graph(self, w, gates, rows, k, going);
        return true;
    }
    for (int64_t j = 0; j < going; j++) {
        int64_t i = w->going[j], row = w->first[i] + k;
        float *h = w->h + i * H, *c = w->c + i * H;

        bp_cell_forward(self->shape.cell,
                        &(bp_cell_units){.H = H,
                                         .gates = gates + row * GH,
                                         .u = w->u + j * GH,
                                         .h = h,
                                         .c = c,
                                         .new_h = h,
                                         .new_c = c,
                                         .kept = w->kept},
                        1);
        memcpy(rows + row * H, h, (size_t)H * sizeof *rows);
    }
    return true;
}

void recurrent_continue(const recurrent_layer *self, bp_pass *pass, float *rows)
{
    const bp_continuation *of = pass->continuation;
    size_t mark = pass->scratch->used_bytes;
    bp_arena arena = {.base = of->scratch, .size_bytes = SIZE_MAX};
    work w = lay_out(self, &arena, of->slots);
    float *gates = bp_arena_floats(pass->scratch, pass->T * self->G * self->shape.H);

    /* this reads all inputs: outputs may overlap them */
    bp_linear_forward(self->block.nn->gemm, gates, rows, self->input_map,
                      self->input_bias ? self->input_bias->value : NULL, pass->T);
    find_sequences(&w, &of->rows);
    read_states(self, &w, of);
    for (int64_t k = 0; step(self, &w, gates, rows, k); k++)
        ;
    write_states(self, &w, of);
    pass->scratch->used_bytes = mark;
}
