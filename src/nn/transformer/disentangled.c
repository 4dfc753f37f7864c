/* Disentangled scores of a Transformer layer: a table of distances, after its norm, projected to
 * keys and to queries. Backward recomputes the projections. */
#include "nn/transformer/transformer_priv.h"

#include <string.h>

enum { AS_KEYS, AS_QUERIES, KINDS };

static const bp_layer_distances *of(const layer *self)
{
    return &self->shape.apart;
}

void apart_add_params(layer *self, bp_group *split)
{
    static const char *const NAMES[KINDS][2] = {{"attn.position.k.weight", "attn.position.k.bias"},
                                                {"attn.position.q.weight", "attn.position.q.bias"}};
    int64_t C = self->shape.C, all = self->shape.H * self->D, first = self->first_head * self->D;
    char name[BP_PARAM_NAME];

    self->distances.rows = of(self)->rows;
    if (!of(self)->table)
        return;
    self->apart_weight[AS_KEYS] = self->key_weight[0];
    self->apart_weight[AS_QUERIES] = self->q_weight;
    self->apart_bias[AS_KEYS] = self->key_bias[0];
    self->apart_bias[AS_QUERIES] = self->q_bias;
    for (int k = 0; k < KINDS && of(self)->own; k++)
        self->apart_weight[k] = bp_group_add_matrix_part(
            split, layer_param_name(name, self, NAMES[k][0]), all, C, INIT_STD, 0, first, self->Cl);
    for (int k = 0; k < KINDS && of(self)->own; k++)
        self->apart_bias[k] = bp_group_add_vector_part(
            split, layer_param_name(name, self, NAMES[k][1]), all, first, self->Cl);
}

bp_err apart_bind(layer *self)
{
    bp_err err = BP_OK;

    for (int k = 0; k < KINDS && of(self)->table && err == BP_OK; k++)
        err = bp_weight_new(&self->apart[k], self->block.nn->gemm, self->apart_weight[k]->value,
                            self->Cl, self->shape.C);
    return err;
}

void apart_refresh(layer *self)
{
    for (int k = 0; k < KINDS && of(self)->table; k++)
        bp_weight_refresh(self->apart[k]);
}

void apart_free(layer *self)
{
    for (int k = 0; k < KINDS; k++)
        bp_weight_free(&self->apart[k]);
}

apart_work apart_alloc(const layer *self, bp_arena *arena, const bp_pass *pass, bool backward)
{
    bp_attention_shape shape = layer_attention_shape(self, pass, false, NULL);
    const bp_gemm *gemm = self->block.nn->gemm;
    int64_t R = of(self)->rows, C = self->shape.C, bias = bp_bias_scratch(R, self->Cl),
            norm = bp_layer_norm_scratch(R, C);
    apart_work work = {.scores.rows = R};

    if (!of(self)->table)
        return work;
    work.row = (int32_t *)(void *)bp_arena_floats(arena, bp_bias_floats(&shape));
    work.normed = bp_arena_floats(arena, R * C);
    work.mean = bp_arena_floats(arena, R);
    work.rstd = bp_arena_floats(arena, R);
    for (int k = 0; k < KINDS; k++)
        work.projected[k] = bp_arena_floats(arena, R * self->Cl);
    if (!backward)
        return work;
    for (int k = 0; k < KINDS; k++)
        work.dprojected[k] = bp_arena_floats(arena, pass->B * R * self->Cl);
    work.dnormed = bp_arena_floats(arena, R * C);
    work.more = bp_arena_floats(arena, R * C);
    work.sums = bp_arena_floats(arena, bias > norm ? bias : norm);
    work.x = bp_operand_alloc(arena, gemm, R, C);
    work.dy = bp_operand_alloc(arena, gemm, R, self->Cl);
    return work;
}

static bp_norm norm_of(const layer *self, const apart_work *work)
{
    return (bp_norm){.gain = of(self)->gain->value,
                     .bias = of(self)->bias->value,
                     .epsilon = self->shape.epsilon,
                     .mean = work->mean,
                     .rstd = work->rstd};
}

void apart_forward(const layer *self, bp_attention_shape *shape, apart_work *work)
{
    int64_t R = of(self)->rows, C = self->shape.C;
    const float *table = of(self)->table ? of(self)->table->value : NULL;
    bp_distances by = {of(self)->buckets, of(self)->distance};

    if (!table)
        return;
    if (of(self)->gain) {
        bp_norm norm = norm_of(self, work);
        bp_operand to = bp_operand_floats(work->normed, R, C);

        bp_layer_norm_forward(&to, NULL, &norm, &(bp_residual){.base = table});
    } else {
        memcpy(work->normed, table, (size_t)(R * C) * sizeof *table);
    }
    for (int k = 0; k < KINDS; k++)
        bp_linear_forward(self->block.nn->gemm, work->projected[k], work->normed, self->apart[k],
                          self->apart_bias[k]->value, R);
    bp_distance_rows(work->row, &by, shape);
    work->scores.row = work->row;
    work->scores.keys = work->projected[AS_KEYS];
    work->scores.queries = work->projected[AS_QUERIES];
    shape->apart = &work->scores;
}

void apart_give(const layer *self, bp_attention_gradients *to, const apart_work *work)
{
    if (!of(self)->table)
        return;
    to->dposition_keys = work->dprojected[AS_KEYS];
    to->dposition_queries = work->dprojected[AS_QUERIES];
}

/* The sum over the sequences of a batch, in their order, goes into the first one's place. */
static void add_sequences(const layer *self, const bp_pass *pass, float *dprojected)
{
    int64_t n = of(self)->rows * self->Cl;

    for (int64_t b = 1; b < pass->B; b++)
        bp_add(dprojected, dprojected + b * n, n);
}

static void backward_table(layer *self, const apart_work *work)
{
    int64_t R = of(self)->rows, C = self->shape.C;
    bp_param *table = of(self)->table;

    if (!of(self)->gain) {
        bp_add(table->gradient, work->dnormed, R * C);
        return;
    }
    bp_norm norm = norm_of(self, work);
    bp_norm_gradients to = {table->gradient, of(self)->gain->gradient, of(self)->bias->gradient,
                            false};

    bp_layer_norm_backward(&to, NULL, work->dnormed, table->value, &norm, R, C, work->sums);
}

void apart_backward(layer *self, const bp_pass *pass, apart_work *work)
{
    bp_gemm *gemm = self->block.nn->gemm;
    int64_t R = of(self)->rows, C = self->shape.C;

    if (!of(self)->table)
        return;
    bp_operand_fill(&work->x, work->normed);
    for (int k = 0; k < KINDS; k++) {
        float *dprojected = work->dprojected[k];
        bp_bias_gradient bias = {layer_gradient_of(self->apart_bias[k]), work->sums};

        add_sequences(self, pass, dprojected);
        bp_operand_fill_sums(&work->dy, layer_wanted(&bias), dprojected);
        bp_nn_backward_weight(self->block.nn, self->apart_weight[k], 1, &work->dy, &work->x);
        bp_linear_backward_input_operand(gemm, k == 0 ? work->dnormed : work->more, &work->dy,
                                         self->apart[k]);
    }
    bp_add(work->dnormed, work->more, R * C);
    if (of(self)->table->gradient)
        backward_table(self, work);
}
