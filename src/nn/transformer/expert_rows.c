/* The rows of one expert, and its products forward and backward. Called by experts.c and
 * expert_exchange.c. */
#include "nn/transformer/experts_priv.h"

#include <string.h>

choices choices_of(const routing *routes, int64_t e, int64_t count)
{
    return (choices){routes->order + routes->first[e], routes->first[e],
                     routes->first[e + count] - routes->first[e]};
}

bp_operand experts_take_rows(const layer *self, const bp_operand *to, const bp_operand *from,
                             const choices *of)
{
    bp_operand rows = bp_operand_part(to, 0, of->count);
    size_t each = from->form == BP_OPERAND_BF16 ? sizeof(uint16_t) : sizeof(float);
    int64_t k = self->shape.experts.chosen;

#pragma omp parallel for schedule(static) if (of->count >= PARALLEL_ROWS)
    for (int64_t i = 0; i < of->count; i++) {
        memcpy((char *)rows.data + (size_t)(i * rows.stride) * each,
               (const char *)from->data + (size_t)(of->order[i] / k * from->stride) * each,
               (size_t)rows.columns * each);
        bp_operand_end_row(&rows, i);
    }
    return rows;
}

void experts_add_rows(const layer *self, float *to, const float *y, const choices *of,
                      const float *shares)
{
    int64_t C = self->shape.C, k = self->shape.experts.chosen;

#pragma omp parallel for schedule(static) if (of->count >= PARALLEL_ROWS)
    for (int64_t i = 0; i < of->count; i++) {
        float *row = to + of->order[i] / k * C, share = shares ? shares[of->order[i]] : 1;

#pragma omp simd
        for (int64_t c = 0; c < C; c++)
            row[c] += share * y[i * C + c];
    }
}

/* The shares of choices `order`; NULL: of rows. */
static int64_t place_of(const int32_t *order, int64_t i)
{
    return order ? order[i] : i;
}

/* Rows of x times their shares, in place. */
static void scale_rows(const bp_operand *x, const int32_t *order, const float *shares)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (x->rows >= PARALLEL_ROWS)
    for (int64_t i = 0; i < x->rows; i++)
        for (int64_t c = 0; c < x->columns; c += BP_PASS_COLUMNS) {
            int64_t n = bp_min(BP_PASS_COLUMNS, x->columns - c);
            float buffer[BP_PASS_COLUMNS], *to = bp_operand_workspace(x, i, c, buffer);
            const float *from = bp_operand_load(loops, x, i, c, buffer, n);

            for (int64_t j = 0; j < n; j++)
                to[j] = from[j] * shares[place_of(order, i)];
            bp_operand_store(loops, x, i, c, to, n);
        }
}

/* dshares = the products of rows a and b. */
static void share_gradients(float *dshares, const int32_t *order, const bp_operand *a,
                            const bp_operand *b)
{
    const bp_loops *loops = bp_loops_best();

#pragma omp parallel for schedule(static) if (a->rows >= PARALLEL_ROWS)
    for (int64_t i = 0; i < a->rows; i++) {
        float one[BP_PASS_COLUMNS], two[BP_PASS_COLUMNS], sum = 0;

        for (int64_t c = 0; c < a->columns; c += BP_PASS_COLUMNS) {
            int64_t n = bp_min(BP_PASS_COLUMNS, a->columns - c);
            const float *x = bp_operand_load(loops, a, i, c, one, n),
                        *y = bp_operand_load(loops, b, i, c, two, n);

#pragma omp simd reduction(+ : sum)
            for (int64_t j = 0; j < n; j++)
                sum += x[j] * y[j];
        }
        dshares[place_of(order, i)] = sum;
    }
}

void expert_forward_up(layer *self, int64_t e, const expert_rows *rows)
{
    bp_operand sums = bp_operand_unrounded(&rows->up);

    bp_linear_forward_into(self->block.nn->gemm, &sums, &rows->x, self->experts[e].up, NULL);
    bp_gated_forward(self->shape.activation, &rows->active, &rows->up);
}

void expert_forward(layer *self, int64_t e, const expert_rows *rows, float *y)
{
    expert_forward_up(self, e, rows);
    bp_linear_forward_operand(self->block.nn->gemm, y, &rows->active, self->experts[e].down, NULL);
}

void expert_clear_fresh(bp_param *weights, int count)
{
    if (weights->gradient && weights->fresh)
        for (int k = 0; k < count; k++)
            bp_zero(weights[k].gradient, bp_param_floats(&weights[k]));
    if (weights->gradient)
        (void)bp_params_take_fresh(weights, count);
}

void expert_backward(layer *self, int64_t e, const expert_rows *rows, const bp_operand *dy,
                     const expert_shares *shares, float *dx)
{
    bp_gemm *gemm = self->block.nn->gemm;
    bp_operand sums = bp_operand_unrounded(&rows->dactive);

    bp_linear_backward_input_into(gemm, &sums, dy, self->experts[e].down);
    bp_gated_backward(self->shape.activation, &rows->dup, &rows->active, &rows->dactive, &rows->up);
    share_gradients(shares->gradients, shares->order, &rows->dactive, &rows->active);
    scale_rows(&rows->active, shares->order, shares->values);
    scale_rows(&rows->dup, shares->order, shares->values);
    bp_nn_backward_weight(self->block.nn, self->experts[e].down_weight, 1, dy, &rows->active);
    bp_linear_backward_input_operand(gemm, dx, &rows->dup, self->experts[e].up);
}
