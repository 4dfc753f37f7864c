/* Names of the loops of one instruction set: LOOP(add) is bp_add_avx512 where BP_LOOPS_ISA is
 * avx512. */
#pragma once

#include "math/loops/loops.h"

#define LOOP_JOIN(name, isa)   bp_loop_##name##_##isa
#define LOOP_EXPAND(name, isa) LOOP_JOIN(name, isa)
#define LOOP(name)             LOOP_EXPAND(name, BP_LOOPS_ISA)

#define LOOP_QUOTE(text)       #text
#define LOOP_TEXT(text)        LOOP_QUOTE(text)

#define LANES                  32

/* Add up accumulators pairwise: one order for every instruction set. */
static inline float lane_sum(float lanes[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

static inline double wide_sum(double lanes[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

void LOOP(q8_row)(bp_q8_row *to, const float *x, int64_t n);
void LOOP(q8_weights)(bp_q8_weights *to, const float *w, int64_t row, int64_t count, int64_t n);
void LOOP(q8_multiply)(const bp_q8_product *product);
void LOOP(gelu_forward)(float *y, const float *x, int64_t n);
void LOOP(gelu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
void LOOP(gelu_exact_forward)(float *y, const float *x, int64_t n);
void LOOP(gelu_exact_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
void LOOP(relu_forward)(float *y, const float *x, int64_t n);
void LOOP(relu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
void LOOP(silu_forward)(float *y, const float *x, int64_t n);
void LOOP(silu_backward)(float *y, float *dx, const float *dy, const float *x, int64_t n);
void LOOP(swiglu_forward)(float *y, const float *gate, const float *up, int64_t n);
void LOOP(swiglu_backward)(float *y, float *dgate, float *dup, const float *dy, const float *gate,
                           const float *up, int64_t n);
void LOOP(geglu_forward)(float *y, const float *gate, const float *up, int64_t n);
void LOOP(geglu_backward)(float *y, float *dgate, float *dup, const float *dy, const float *gate,
                          const float *up, int64_t n);
void LOOP(geglu_exact_forward)(float *y, const float *gate, const float *up, int64_t n);
void LOOP(geglu_exact_backward)(float *y, float *dgate, float *dup, const float *dy,
                                const float *gate, const float *up, int64_t n);
void LOOP(rotate)(float *x, const float *cosine, const float *sine, int64_t half, float sign);
void LOOP(add)(float *y, const float *x, int64_t n);
void LOOP(sum)(float *y, const float *a, const float *x, int64_t n);
void LOOP(scale)(float *y, float factor, int64_t n);
void LOOP(dropout)(float *y, const float *a, const float *x, int64_t n, const bp_mask *mask,
                   int64_t first);
void LOOP(to_bf16)(uint16_t *y, const float *x, int64_t n);
void LOOP(round_bf16)(float *y, const float *x, int64_t n);
void LOOP(from_bf16)(float *y, const uint16_t *x, int64_t n);
void LOOP(column_sums)(float *sums, const float *x, int64_t rows, int64_t columns,
                       int64_t row_stride);
void LOOP(norm_statistics)(float *mean, float *rstd, const float *x, int64_t C, float epsilon);
void LOOP(norm_apply)(float *y, const float *x, const float *gain, const float *bias, float mean,
                      float rstd, int64_t n);
void LOOP(norm_means)(float *mean_d, float *mean_dot, const float *dy, const float *x,
                      const float *gain, float mean, float rstd, int64_t C);
void LOOP(norm_gradient)(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                         const float *gain, const bp_norm_row *row, int64_t n);
float LOOP(row_max)(const float *x, int64_t n);
void LOOP(softmax_statistics)(float *max, double *sum, const float *x, int64_t n);
void LOOP(softmax_entropy)(float *max, double *sum, double *entropy, const float *x, int64_t n);
void LOOP(exp_scale)(float *y, const float *x, int64_t n, float max, float factor);
void LOOP(threshold_sums)(double sums[3], const float *x, int64_t n, double tau);
void LOOP(threshold_square)(float *y, const float *x, int64_t n, double tau, float factor);
double LOOP(square_sum)(const float *x, int64_t n);
uint32_t LOOP(bit_sum)(const float *x, int64_t n);
void LOOP(mixture)(float *logprob, float *p, double ends[2], const bp_mixture_block *block);
int64_t LOOP(first_top)(const float *x, int64_t n, float max, float log_sum);
void LOOP(temperature)(double sums[3], const float *logprob, int64_t n, float shift, float b);
bp_update_sums LOOP(adamw)(float *w, float *m, float *v, const float *g, int64_t n,
                           const bp_update_constants *constants);
bp_update_sums LOOP(sgd)(float *w, float *m, float *v, const float *g, int64_t n,
                         const bp_update_constants *constants);
bp_update_sums LOOP(adagrad)(float *w, float *m, float *v, const float *g, int64_t n,
                             const bp_update_constants *constants);
bp_update_sums LOOP(adadelta)(float *w, float *m, float *v, const float *g, int64_t n,
                              const bp_update_constants *constants);
bp_update_sums LOOP(rmsprop)(float *w, float *m, float *v, const float *g, int64_t n,
                             const bp_update_constants *constants);
bp_update_sums LOOP(rmsprop_momentum)(float *w, float *m, float *v, const float *g, int64_t n,
                                      const bp_update_constants *constants);
void LOOP(lamb_moments)(float *m, float *v, const float *g, int64_t n,
                        const bp_update_constants *constants);
void LOOP(lamb_squares)(double sums[2], const float *w, const float *m, const float *v, int64_t n,
                        const bp_update_constants *constants);
void LOOP(lamb_apply)(float *w, const float *m, const float *v, int64_t n,
                      const bp_update_constants *constants);
double LOOP(factor_sum)(double *columns, const float *g, int64_t n, float scale, float floor);
void LOOP(factor_columns)(double *columns, const float *g, int64_t n, float scale, float floor);
double LOOP(factor_squares)(const float *g, const float *column, int64_t n, float row);
void LOOP(factor_apply)(float *w, const float *g, const float *column, int64_t n, float row,
                        float keep);
bp_multiply_adds LOOP(multiply_adds);
void LOOP(tile_product)(const bp_tile *tile);
void LOOP(tanh)(float *y, const float *x, int64_t n);
void LOOP(rnn_forward)(const bp_cell_units *units);
void LOOP(lstm_forward)(const bp_cell_units *units);
void LOOP(gru_forward)(const bp_cell_units *units);
void LOOP(rnn_backward)(const bp_cell_units *units, const bp_cell_gradients *to);
void LOOP(lstm_backward)(const bp_cell_units *units, const bp_cell_gradients *to);
void LOOP(gru_backward)(const bp_cell_units *units, const bp_cell_gradients *to);
void LOOP(dots)(const bp_dots *dots);
void LOOP(weighted_rows)(float *y, const float *weights, const float *rows, int64_t count,
                         int64_t row, int64_t columns);
void LOOP(tile_softmax)(float *scores, float *max, float *sum, float *factor, int64_t keys,
                        int64_t visible);
void LOOP(tile_weights)(float *scores, const float *lse, int64_t keys, int64_t visible);
void LOOP(tile_score_gradient)(float *ds, const float *weights, const float *delta, int64_t keys);
void LOOP(tile_mask)(float *factors, const bp_mask *mask, int64_t keys, int64_t first,
                     int64_t stride);
void LOOP(multiply)(float *y, const float *a, const float *x, int64_t n);
void LOOP(scale_columns)(float *y, const float *factors, int64_t rows);
void LOOP(transpose_in)(float *y, const float *x, int64_t rows, int64_t columns, int64_t x_row,
                        float factor);
void LOOP(transpose_out)(float *y, const float *x, int64_t rows, int64_t columns, int64_t y_row);
void LOOP(row_dots)(float *y, const float *x, const bp_row_list *rows);
void LOOP(rows_add_to)(float *y, const float *weights, const bp_row_list *rows);
void LOOP(add_to_rows)(const bp_row_list *rows, const float *weights, const float *x);
