/* The first block of a model that spells its words: characters, convolutions, highway layers, a
 * projection. A micro-batch's distinct words are gathered first, as a word's vector does not depend
 * on its place. Called by models/elmo/elmo.c. */
#include "nn/words/word_priv.h"

#include "base/err.h"
#include "math/kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CARRY_BIAS (-2.0F) /* gates begin mostly closed (Srivastava et al. 2015) */

static words *words_of(const bp_block *block)
{
    return (words *)block;
}

/* ---- memory ---- */

/* What is made of `capacity` words. */
typedef struct stack {
    float *x;     /* [highways + 1][capacity][F]: features, and the output of each highway layer */
    float *carry; /* [highways][capacity][F] gates */
    float *transform; /* [highways][capacity][F] */
    uint8_t *where;   /* [capacity][F] */
} stack;

/* The words of a micro-batch. */
typedef struct lexicon {
    int64_t capacity;
    int32_t *count; /* [1] distinct words */
    int32_t *ids;   /* [capacity] in order of first occurrence */
    int32_t *index; /* [rows of both streams] each row's number among them */
} lexicon;

static int64_t filled(int64_t rows)
{
    return (rows + BP_HEAD_ROW_CLASS - 1) / BP_HEAD_ROW_CLASS * BP_HEAD_ROW_CLASS;
}

static int32_t *alloc_integers(bp_arena *arena, int64_t count)
{
    return (int32_t *)(void *)bp_arena_floats(arena, count);
}

static stack alloc_stack(const words *self, bp_arena *arena, int64_t capacity, bool keeps)
{
    int64_t floats = capacity * self->F, h = self->shape.highways;
    stack out = {.x = bp_arena_floats(arena, (keeps ? h + 1 : 1) * floats),
                 .carry = bp_arena_floats(arena, (keeps ? h : 1) * floats),
                 .transform = bp_arena_floats(arena, (keeps ? h : 1) * floats)};

    if (keeps)
        out.where = (uint8_t *)(void *)bp_arena_floats(arena, (floats + 3) / 4);
    return out;
}

static int64_t rows_of(const words *self, const bp_extent *extent)
{
    return extent->B * (extent->T[0] + (self->shape.twice ? extent->T[1] : 0));
}

static lexicon alloc_lexicon(const words *self, bp_arena *arena, const bp_extent *extent)
{
    int64_t rows = rows_of(self, extent);
    lexicon out = {.capacity = filled(rows < self->rows ? rows : self->rows)};

    out.count = alloc_integers(arena, 1);
    out.ids = alloc_integers(arena, out.capacity);
    out.index = alloc_integers(arena, rows);
    return out;
}

static int32_t *alloc_numbers(const words *self, bp_arena *arena)
{
    return alloc_integers(arena, self->rows);
}

static bool keeps_vectors(const words *self)
{
    return bp_gemm_is_forward_only(self->block.nn->gemm);
}

/* Words computed at once outside training: from a run of the vocabulary, or from the
 * micro-batch. */
static int64_t run_words(const words *self, const lexicon *met)
{
    return keeps_vectors(self) ? BP_HEAD_ROW_CLASS : met->capacity;
}

static size_t words_saved(const bp_block *block, const bp_extent *most)
{
    const words *self = words_of(block);
    bp_arena count = {0};
    lexicon met = alloc_lexicon(self, &count, most);

    alloc_stack(self, &count, met.capacity, true);
    return count.used_bytes;
}

/* What backward works in. */
typedef struct gradients {
    float *vectors;           /* [capacity][P] */
    float *x, *next;          /* [capacity][F] after a highway layer, and before it */
    float *carry, *transform; /* [capacity][F] of the sums before gate and ReLU */
} gradients;

static gradients alloc_gradients(const words *self, bp_arena *arena, int64_t capacity)
{
    int64_t floats = capacity * self->F;

    return (gradients){.vectors = bp_arena_floats(arena, capacity * self->shape.P),
                       .x = bp_arena_floats(arena, floats),
                       .next = bp_arena_floats(arena, floats),
                       .carry = bp_arena_floats(arena, floats),
                       .transform = bp_arena_floats(arena, floats)};
}

static size_t words_scratch(const bp_block *block, const bp_extent *most, bool training)
{
    const words *self = words_of(block);
    bp_arena forward = {0}, backward = {0}, apart = {0};
    lexicon met = alloc_lexicon(self, training ? &apart : &forward, most);
    size_t of_words;

    alloc_numbers(self, &forward);
    bp_arena_floats(&forward, met.capacity * self->shape.P);
    if (!training)
        alloc_stack(self, &forward, run_words(self, &met), false);
    forward.used_bytes += words_convolution_bytes(self);
    alloc_gradients(self, &backward, met.capacity);
    of_words = words_convolution_backward_bytes(self, met.capacity);
    backward.used_bytes += of_words;
    return training && backward.used_bytes > forward.used_bytes ? backward.used_bytes
                                                                : forward.used_bytes;
}

static bp_product_bytes words_products(const bp_block *block, const bp_extent *most)
{
    const words *self = words_of(block);
    const bp_word_shape *s = &self->shape;
    bp_product_bytes bytes = words_convolution_products(self);
    bp_arena apart = {0};
    int64_t capacity = alloc_lexicon(self, &apart, most).capacity;

    for (int64_t k = 0; k < 2 * s->highways; k++)
        bp_product_bytes_add(&bytes, block->nn, capacity, self->F, self->F);
    if (s->projects)
        bp_product_bytes_add(&bytes, block->nn, capacity, s->P, self->F);
    if (keeps_vectors(self))
        bytes.copies += bp_arena_bytes(self->rows * s->P, sizeof(float));
    return bytes;
}

/* ---- values ---- */

static bp_err bind_map(const words *self, word_map *of)
{
    return bp_weight_new(&of->map, self->block.nn->gemm, of->weight->value, of->weight->shape[0],
                         of->weight->shape[1]);
}

static bp_err bind_vectors(words *self)
{
    if (!keeps_vectors(self))
        return BP_OK;
    self->vectors = bp_try_alloc("nn.words", self->rows * self->shape.P, sizeof *self->vectors);
    self->made =
        bp_try_alloc("nn.words", filled(self->rows) / BP_HEAD_ROW_CLASS, sizeof *self->made);
    if (!self->vectors || !self->made)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at the vectors of %lld words; use fewer ranks a node",
                       (long long)self->shape.V);
    return BP_OK;
}

static bp_err words_bind(bp_block *block)
{
    words *self = words_of(block);
    const bp_word_shape *s = &self->shape;
    bp_err err = bind_vectors(self);

    for (int k = 0; k < s->filter_counts && err == BP_OK; k++)
        err = bp_weight_new(&self->cnn[k].map, block->nn->gemm, self->cnn[k].weight->value,
                            s->filters[k].count, s->filters[k].width * s->D);
    for (int64_t k = 0; k < s->highways && err == BP_OK; k++) {
        err = bind_map(self, &self->carry[k]);
        if (err == BP_OK)
            err = bind_map(self, &self->transform[k]);
    }
    return err == BP_OK && s->projects ? bind_map(self, &self->projection) : err;
}

static bool is_end(const float *characters)
{
    return characters[0] == BP_WORD_BEGIN && characters[1] == BP_TEXT_END &&
           characters[2] == BP_WORD_END;
}

static void words_refresh(bp_block *block)
{
    words *self = words_of(block);
    const bp_word_shape *s = &self->shape;

    for (int k = 0; k < s->filter_counts; k++)
        bp_weight_refresh(self->cnn[k].map);
    for (int64_t k = 0; k < s->highways; k++) {
        bp_weight_refresh(self->carry[k].map);
        bp_weight_refresh(self->transform[k].map);
    }
    if (s->projects)
        bp_weight_refresh(self->projection.map);
    self->end = -1;
    for (int64_t w = 0; w < s->V && self->end < 0; w++)
        if (is_end(self->characters->value + w * BP_WORD_CHARACTERS))
            self->end = w;
    if (self->made)
        memset(self->made, 0,
               (size_t)(filled(self->rows) / BP_HEAD_ROW_CLASS) * sizeof *self->made);
}

/* ---- forward ---- */

/* One highway layer: gates = logistic(carry x), y = gate * relu(transform x) + (1 - gate) * x; y
 * may be x. */
static void highway_forward(const words *self, int64_t k, float *y, const float *x, float *gates,
                            float *transformed, int64_t rows)
{
    bp_gemm *gemm = self->block.nn->gemm;
    int64_t n = rows * self->F;

    bp_linear_forward(gemm, gates, x, self->carry[k].map, self->carry[k].bias->value, rows);
    bp_linear_forward(gemm, transformed, x, self->transform[k].map, self->transform[k].bias->value,
                      rows);
#pragma omp parallel for schedule(static) if (n > 8192)
    for (int64_t i = 0; i < n; i++) {
        float gate = 1 / (1 + expf(-gates[i])), value = transformed[i] < 0 ? 0 : transformed[i];

        gates[i] = gate;
        transformed[i] = value;
        y[i] = gate * value + (1 - gate) * x[i];
    }
}

/* Vectors of `count` words, in memory for filled(count) words. */
static void spell(const words *self, bp_arena *scratch, const int32_t *ids, int64_t count,
                  int64_t capacity, const stack *to, bool keeps, float *vectors)
{
    const bp_word_shape *s = &self->shape;
    int64_t rows = bp_head_filled_rows(count, capacity), floats = capacity * self->F;
    float *x = to->x;

    words_convolve(self, scratch, ids, count, x, to->where);
    bp_zero(x + count * self->F, (rows - count) * self->F);
    for (int64_t k = 0; k < s->highways; k++) {
        int64_t at = keeps ? k * floats : 0;
        float *y = keeps ? x + floats : x;

        highway_forward(self, k, y, x, to->carry + at, to->transform + at, rows);
        x = y;
    }
    if (s->projects)
        bp_linear_forward(self->block.nn->gemm, vectors, x, self->projection.map,
                          self->projection.bias->value, rows);
    else
        memcpy(vectors, x, (size_t)(rows * s->P) * sizeof *vectors);
}

/* Words of a run of the vocabulary, which is the same for every request, so bits do not depend on
 * the request. */
static void spell_run(words *self, bp_pass *pass, int64_t run)
{
    int64_t first = run * BP_HEAD_ROW_CLASS, rows = self->rows, P = self->shape.P,
            count = first + BP_HEAD_ROW_CLASS < rows ? BP_HEAD_ROW_CLASS : rows - first;
    size_t mark = pass->scratch->used_bytes;
    int32_t ids[BP_HEAD_ROW_CLASS];
    stack to = alloc_stack(self, pass->scratch, BP_HEAD_ROW_CLASS, false);
    float *vectors = bp_arena_floats(pass->scratch, BP_HEAD_ROW_CLASS * P);

    for (int64_t k = 0; k < count; k++)
        ids[k] = (int32_t)(first + k);
    spell(self, pass->scratch, ids, count, BP_HEAD_ROW_CLASS, &to, false, vectors);
    memcpy(self->vectors + first * P, vectors, (size_t)(count * P) * sizeof *vectors);
    self->made[run] = true;
    pass->scratch->used_bytes = mark;
}

/* Is the second stream needed: in training, for a probe, or because its term is scored? */
static bool reads_second(const words *self, const bp_pass *pass)
{
    return self->shape.twice &&
           (pass->training || pass->probe || pass->batch.term[self->shape.second_term].count > 0);
}

static void add_stream(const words *self, lexicon *to, int32_t *numbers, const bp_pass *pass,
                       int stream, int64_t *row)
{
    int64_t rows = pass->B * pass->extent.T[stream];

    bp_ids_within("token", pass->batch.stream[stream].inputs, rows, 0, self->shape.V);
    for (int64_t r = 0; r < rows; r++) {
        int32_t id = pass->batch.stream[stream].inputs[r];

        if (stream == 0 && id == self->end)
            id = (int32_t)self->shape.V;
        if (numbers[id] < 0) {
            numbers[id] = *to->count;
            to->ids[(*to->count)++] = id;
        }
        to->index[(*row)++] = numbers[id];
    }
}

static void gather_words(const words *self, lexicon *to, bp_pass *pass)
{
    size_t mark = pass->scratch->used_bytes;
    int32_t *numbers = alloc_numbers(self, pass->scratch);
    int64_t row = 0;

    *to->count = 0;
    memset(numbers, 0xFF, (size_t)self->rows * sizeof *numbers);
    add_stream(self, to, numbers, pass, 0, &row);
    if (reads_second(self, pass))
        add_stream(self, to, numbers, pass, 1, &row);
    pass->scratch->used_bytes = mark;
}

/* Each row's vector: vectors[index], or the kept ones. */
static void put_rows(const words *self, const lexicon *from, const float *vectors,
                     const int32_t *index, float *rows, int64_t count)
{
    int64_t P = self->shape.P;

    for (int64_t r = 0; r < count; r++) {
        int64_t word = vectors == self->vectors ? from->ids[index[r]] : index[r];

        memcpy(rows + r * P, vectors + word * P, (size_t)P * sizeof *rows);
    }
}

static void words_forward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    words *self = words_of(block);
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    lexicon met = alloc_lexicon(self, saved ? &kept : pass->scratch, &pass->extent);
    int64_t first = pass->B * pass->extent.T[0], second = pass->B * pass->extent.T[1];
    float *vectors = self->vectors;

    gather_words(self, &met, pass);
    for (int32_t k = 0; vectors && k < *met.count; k++)
        if (!self->made[met.ids[k] / BP_HEAD_ROW_CLASS])
            spell_run(self, pass, met.ids[k] / BP_HEAD_ROW_CLASS);
    if (!vectors) {
        vectors = bp_arena_floats(pass->scratch, met.capacity * self->shape.P);
        stack to = alloc_stack(self, saved ? &kept : pass->scratch, met.capacity, saved != NULL);

        spell(self, pass->scratch, met.ids, *met.count, met.capacity, &to, saved != NULL, vectors);
    }
    put_rows(self, &met, vectors, met.index, activations->item[0].data, first);
    if (reads_second(self, pass))
        put_rows(self, &met, vectors, met.index + first, activations->item[1].data, second);
    else if (self->shape.twice)
        bp_zero(activations->item[1].data, second * self->shape.P);
    pass->scratch->used_bytes = mark;
}

/* ---- backward ---- */

/* dx of a highway layer, from dy; its maps' gradients. */
static void highway_backward(const words *self, int64_t k, const gradients *g, const float *x,
                             const float *gates, const float *transformed, int64_t rows)
{
    bp_gemm *gemm = self->block.nn->gemm;
    int64_t F = self->F, n = rows * F;

#pragma omp parallel for schedule(static) if (n > 8192)
    for (int64_t i = 0; i < n; i++) {
        float d = g->x[i];

        g->carry[i] = d * (transformed[i] - x[i]) * gates[i] * (1 - gates[i]);
        g->transform[i] = transformed[i] > 0 ? d * gates[i] : 0;
        g->x[i] = d * (1 - gates[i]);
    }
    bp_linear_backward_weight(gemm, self->carry[k].weight->gradient, self->carry[k].bias->gradient,
                              g->carry, x, rows, F, F);
    bp_linear_backward_weight(gemm, self->transform[k].weight->gradient,
                              self->transform[k].bias->gradient, g->transform, x, rows, F, F);
    bp_linear_backward_input(gemm, g->next, g->carry, self->carry[k].map, rows);
    bp_add(g->x, g->next, n);
    bp_linear_backward_input(gemm, g->next, g->transform, self->transform[k].map, rows);
    bp_add(g->x, g->next, n);
}

/* Adds up for each vector the gradients of the rows that had it, in their order. */
static void add_rows(const words *self, float *vectors, const lexicon *of, bp_pass *pass,
                     const bp_activations *from)
{
    int64_t P = self->shape.P, row = 0;

    for (int stream = 0; stream < (self->shape.twice ? 2 : 1); stream++) {
        int64_t rows = pass->B * pass->extent.T[stream];

        for (int64_t r = 0; r < rows; r++, row++)
            bp_add(vectors + of->index[row] * P, from->item[stream].data + r * P, P);
    }
}

static void words_backward(bp_block *block, bp_pass *pass, bp_activations *activations, void *saved)
{
    const words *self = words_of(block);
    const bp_word_shape *s = &self->shape;
    bp_gemm *gemm = block->nn->gemm;
    size_t mark = pass->scratch->used_bytes;
    bp_arena kept = {.base = saved, .size_bytes = SIZE_MAX};
    lexicon met = alloc_lexicon(self, &kept, &pass->extent);
    stack of = alloc_stack(self, &kept, met.capacity, true);
    gradients g = alloc_gradients(self, pass->scratch, met.capacity);
    int64_t rows = bp_head_filled_rows(*met.count, met.capacity), floats = met.capacity * self->F;
    const float *x = of.x + s->highways * floats;

    bp_zero(g.vectors, rows * s->P);
    add_rows(self, g.vectors, &met, pass, activations);
    if (s->projects) {
        bp_linear_backward_weight(gemm, self->projection.weight->gradient,
                                  self->projection.bias->gradient, g.vectors, x, rows, s->P,
                                  self->F);
        bp_linear_backward_input(gemm, g.x, g.vectors, self->projection.map, rows);
    } else {
        memcpy(g.x, g.vectors, (size_t)(rows * s->P) * sizeof *g.x);
    }
    for (int64_t k = s->highways - 1; k >= 0; k--) {
        x -= floats;
        highway_backward(self, k, &g, x, of.carry + k * floats, of.transform + k * floats, rows);
    }
    words_convolve_backward(self, pass->scratch, met.ids, *met.count, of.x, of.where, g.x);
    pass->scratch->used_bytes = mark;
}

static void words_free(bp_block *block)
{
    words *self = words_of(block);

    for (int k = 0; k < self->shape.filter_counts; k++)
        bp_weight_free(&self->cnn[k].map);
    for (int64_t k = 0; k < self->shape.highways; k++) {
        bp_weight_free(&self->carry[k].map);
        bp_weight_free(&self->transform[k].map);
    }
    bp_weight_free(&self->projection.map);
    bp_free(self->vectors);
    bp_free(self->made);
    bp_free(self);
}

static const bp_block_ops OPS = {
    .kind = "word_characters",
    .saved_bytes = words_saved,
    .scratch_bytes = words_scratch,
    .product_bytes = words_products,
    .bind = words_bind,
    .refresh = words_refresh,
    .forward = words_forward,
    .backward = words_backward,
    .free = words_free,
};

/* ---- parameters ---- */

static bp_param *add_matrix(bp_group *group, const char *name, int64_t rows, int64_t columns,
                            bp_init init, float size)
{
    bp_param *param = bp_group_add_matrix(group, name, rows, columns, size);

    param->init = init;
    return param;
}

static void add_convolutions(words *self, bp_group *group)
{
    const bp_word_shape *s = &self->shape;
    char name[BP_PARAM_NAME];

    for (int k = 0; k < s->filter_counts; k++) {
        int64_t count = s->filters[k].count, ins = s->filters[k].width * s->D;

        (void)snprintf(name, sizeof name, "cnn.%d.weight", k);
        self->cnn[k].weight =
            add_matrix(group, name, count, ins, s->tanh ? BP_INIT_NORMAL : BP_INIT_UNIFORM,
                       s->tanh ? 1 / sqrtf((float)ins) : 0.05F);
        self->cnn[k].weight->values_read = true;
        (void)snprintf(name, sizeof name, "cnn.%d.bias", k);
        self->cnn[k].bias = bp_group_add_vector(group, name, count, BP_INIT_ZERO);
        self->F += count;
    }
}

static word_map add_map(bp_group *group, const char *stem, int64_t outs, int64_t ins, float bias)
{
    char name[BP_PARAM_NAME];
    word_map map = {0};

    (void)snprintf(name, sizeof name, "%s.weight", stem);
    map.weight = add_matrix(group, name, outs, ins, BP_INIT_NORMAL, 1 / sqrtf((float)ins));
    (void)snprintf(name, sizeof name, "%s.bias", stem);
    map.bias = bp_group_add_vector(group, name, outs, BP_INIT_CONSTANT);
    map.bias->init_std = bias;
    return map;
}

void bp_word_characters_new(bp_block **out, const bp_nn *nn, const bp_word_shape *shape,
                            bp_group *frozen, bp_group *whole)
{
    words *self = bp_alloc("nn.words", 1, sizeof *self);
    char stem[BP_PARAM_NAME / 2];

    BP_ASSERT(shape->highways <= WORD_HIGHWAYS && shape->filter_counts <= BP_WORD_FILTERS);
    self->block.ops = &OPS;
    self->block.nn = nn;
    self->shape = *shape;
    self->rows = shape->V + 1;
    self->characters =
        add_matrix(frozen, "characters", self->rows, BP_WORD_CHARACTERS, BP_INIT_GIVEN, 0);
    self->characters->given = shape->characters;
    self->characters->values_read = true;
    self->char_embed = add_matrix(whole, "char_embed", BP_CHARACTERS, shape->D, BP_INIT_UNIFORM, 1);
    self->char_embed->values_read = true;
    add_convolutions(self, whole);
    for (int64_t k = 0; k < shape->highways; k++) {
        (void)snprintf(stem, sizeof stem, "highway.%lld.carry", (long long)k);
        self->carry[k] = add_map(whole, stem, self->F, self->F, CARRY_BIAS);
        (void)snprintf(stem, sizeof stem, "highway.%lld.transform", (long long)k);
        self->transform[k] = add_map(whole, stem, self->F, self->F, 0);
    }
    if (shape->projects)
        self->projection = add_map(whole, "projection", shape->P, self->F, 0);
    *out = &self->block;
}
