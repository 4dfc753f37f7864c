/* The speed of the math layer at the shapes of a GPT-2 124M step (1024 rows): matrix products in
 * FLOP/s, attention in FLOP/s of its causal half, fused passes in bytes/s of memory they must move.
 * Arguments: threads (0: all), seconds a line. */
#include "base/process/clock.h"
#include "bench_arrays.h"
#include "math/attention/attention.h"
#include "math/gemm/linear.h"
#include "math/kernels/kernels.h"
#include "math/math.h"
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 1024, WIDTH = 768, HEADS = 12, VOCABULARY = 50257 };

static double seconds_a_line = 0.2;

/* Runs STATEMENT for a while; the fastest run in `best` seconds. */
#define TIME(best, STATEMENT)                                                                      \
    do {                                                                                           \
        double end_ = bp_clock_now() + seconds_a_line;                                             \
        STATEMENT;                                                                                 \
        (best) = 1e30;                                                                             \
        do {                                                                                       \
            double start_ = bp_clock_now();                                                        \
            STATEMENT;                                                                             \
            double took_ = bp_clock_now() - start_;                                                \
            (best) = took_ < (best) ? took_ : (best);                                              \
        } while (bp_clock_now() < end_);                                                           \
    } while (0)

static void bench_linear(bp_precision precision, int64_t outs, int64_t ins)
{
    float *x = floats(ROWS * ins), *w = floats(outs * ins), *bias = floats(outs),
          *y = floats(ROWS * outs);
    double forward, input, weight, refresh, flops = 2.0 * ROWS * (double)outs * (double)ins;
    bp_gemm *gemm;
    bp_weight *weights;

    if (bp_gemm_new(&gemm, precision) != BP_OK ||
        bp_weight_new(&weights, gemm, w, outs, ins) != BP_OK)
        exit(71);
    TIME(forward, bp_linear_forward(gemm, y, x, weights, bias, ROWS));
    TIME(input, bp_linear_backward_input(gemm, x, y, weights, ROWS));
    TIME(refresh, (bp_weight_refresh(weights), bp_linear_forward(gemm, y, x, weights, bias, 1)));
    TIME(weight, bp_linear_backward_weight(gemm, w, bias, y, x, ROWS, outs, ins));
    printf("%-4s %6lld x %-5lld %9.1f %9.1f %9.1f   %8.2f\n", precision == BP_BF16 ? "bf16" : "f32",
           (long long)outs, (long long)ins, flops / forward / 1e9, flops / input / 1e9,
           flops / weight / 1e9, refresh * 1e3);
    bp_weight_free(&weights);
    bp_gemm_free(&gemm);
    bp_free(x);
    bp_free(w);
    bp_free(bias);
    bp_free(y);
}

static void bench_attention(bp_precision precision, int64_t B, int64_t T, float dropout)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = {.B = B,
                                .T = T,
                                .H = HEADS,
                                .D = WIDTH / HEADS,
                                .causal = true,
                                .dropout = dropout,
                                .key = &key,
                                .all_heads = HEADS};
    int64_t n = B * T * WIDTH;
    float *qkv = floats(3 * n), *out = floats(n), *dout = floats(n), *dqkv = floats(3 * n),
          *lse = floats(B * HEADS * T);
    void *scratch = bp_alloc("bench", (int64_t)bp_attention_scratch_bytes(precision, &shape), 1);
    double forward, backward, flops = 2.0 * (double)(B * T * T) * WIDTH; /* half of two products */
    bp_gemm *gemm;

    if (!scratch || bp_gemm_new(&gemm, precision) != BP_OK)
        exit(71);
    bp_attention_input in = bp_attention_of_qkv(qkv, HEADS, WIDTH / HEADS);
    bp_attention_gradients to = {.dq = dqkv, .dk = dqkv + WIDTH, .dv = dqkv + 2 * WIDTH};
    bp_operand outs = bp_operand_floats(out, B * T, WIDTH),
               douts = bp_operand_floats(dout, B * T, WIDTH);
    TIME(forward, bp_attention_forward(gemm, &outs, lse, &in, &shape, scratch));
    TIME(backward, bp_attention_backward(gemm, &to, &douts, &outs, lse, &in, &shape, scratch));
    printf("%-4s attention B %lld T %-5lld dropout %.1f  forward %7.1f GFLOP/s %7.2f ms   backward "
           "%7.1f GFLOP/s %7.2f ms\n",
           precision == BP_BF16 ? "bf16" : "f32", (long long)B, (long long)T, (double)dropout,
           flops / forward / 1e9, forward * 1e3, 2.5 * flops / backward / 1e9, backward * 1e3);
    bp_gemm_free(&gemm);
    void *all[] = {qkv, out, dout, dqkv, lse, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static void line(const char *name, double bytes, double best)
{
    printf("%-22s %7.2f GB/s %9.3f ms\n", name, bytes / best / 1e9, best * 1e3);
}

static bp_operand operand(bp_arena *arena, const bp_gemm *gemm, int64_t columns)
{
    return bp_operand_alloc(arena, gemm, ROWS, columns);
}

/* Passes that make operands; bytes are those of float32 rows and of the operands. */
static void bench_operands(bp_precision precision, int64_t C)
{
    int64_t n = ROWS * C;
    float *x = floats(n), *y = floats(n), *z = floats(n), *gain = floats(C), *bias = floats(C),
          *mean = floats(ROWS), *rstd = floats(ROWS), *scratch = floats(ROWS / 32 * C);
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 0, 0);
    bp_norm norm = {gain, bias, 1e-5f, mean, rstd};
    bp_norm_gradients to = {z, gain, bias, false};
    bp_bias_gradient sums = {bias, scratch};
    double best, size = (double)n * sizeof(float), half = precision == BP_BF16 ? size / 2 : size;
    bp_arena arena = {bp_alloc("bench", 3 * n, sizeof(float)), (size_t)n * 3 * sizeof(float), 0};
    bp_gemm *gemm;

    if (!arena.base || bp_gemm_new(&gemm, precision) != BP_OK)
        exit(71);
    bp_operand a = operand(&arena, gemm, C), b = operand(&arena, gemm, C),
               kept = operand(&arena, gemm, C);
    bp_residual base = {.base = x}, branch = {.base = x, .branch = y, .dropout = 0.1f, .key = &key};
    printf("\noperands of %d x %d, %s\n", ROWS, (int)C, precision == BP_BF16 ? "bf16" : "f32");
    TIME(best, bp_layer_norm_forward(&a, NULL, &norm, &base));
    line("layer norm", size + half, best);
    TIME(best, bp_layer_norm_forward(&a, z, &norm, &branch));
    line("dropout, residual, norm", 3 * size + half, best);
    TIME(best, bp_layer_norm_backward(&to, &a, y, x, &norm, ROWS, C, scratch));
    line("layer norm backward", 4 * size + half, best);
    TIME(best, bp_activation_forward(BP_GELU_TANH, &a, &kept));
    line("gelu forward", 2 * half, best);
    TIME(best, bp_activation_backward(BP_GELU_TANH, &b, &a, &sums, &b, &kept));
    line("gelu backward", 4 * half, best);
    TIME(best, bp_operand_fill(&a, x));
    line("conversion", size + half, best);
    TIME(best, bp_operand_fill_sums(&a, &sums, x));
    line("conversion and sums", size + half, best);
    TIME(best, bp_dropout_backward_operand(&a, &sums, x, 0.1f, &key, 0));
    line("dropout backward, sums", size + half, best);
    bp_gemm_free(&gemm);
    void *all[] = {x, y, z, gain, bias, mean, rstd, scratch, arena.base};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static void bench_passes(void)
{
    const int64_t n = (int64_t)ROWS * 4 * WIDTH;
    float *x = floats(n), *y = floats(n), *z = floats(n), *w = floats(n);
    double best, *sums = bp_alloc("bench", n / BP_NORM_BLOCK + 1, sizeof *sums),
                 size = (double)n * sizeof(float);
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 0, 0);
    bp_adamw adamw = {1e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, 10};

    if (!sums)
        exit(71);
    printf("\npasses over %d x %d\n", ROWS, 4 * WIDTH);
    TIME(best, bp_add_dropout(z, x, y, n, 0.0f, &key, 0));
    line("add", 3 * size, best);
    TIME(best, bp_add_dropout(z, x, y, n, 0.1f, &key, 0));
    line("add dropout", 3 * size, best);
    TIME(best, bp_zero(z, n));
    line("zero", size, best);
    TIME(best, bp_square_sums(sums, x, n));
    line("square sums", size, best);
    for (int64_t i = 0; i < n; i++)
        w[i] = y[i] * y[i];
    TIME(best, bp_adamw_update(x, z, w, y, n, &adamw));
    line("adamw", 7 * size, best);
    void *all[] = {x, y, z, w, sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

static void bench_vocabulary(bp_precision precision)
{
    int64_t n = (int64_t)ROWS * VOCABULARY;
    float *logits = floats(n), *row_max = floats(ROWS), *weight = floats(ROWS),
          *table = floats((int64_t)VOCABULARY * WIDTH);
    float *x = floats(ROWS * WIDTH);
    double *sum = bp_alloc("bench", ROWS, sizeof *sum),
           *target = bp_alloc("bench", ROWS, sizeof *target), best;
    int32_t *ids = bp_alloc("bench", ROWS, sizeof *ids);
    double size = (double)n * sizeof(float);
    bp_gemm *gemm;

    if (!sum || !target || !ids || bp_gemm_new(&gemm, precision) != BP_OK)
        exit(71);
    for (int64_t r = 0; r < ROWS; r++)
        ids[r] = (int32_t)(r * 997 % VOCABULARY);
    bp_arena arena = {.base = (char *)floats(n), .size_bytes = (size_t)n * sizeof(float)};
    bp_operand gradient = bp_operand_over(&arena, gemm, logits, ROWS, VOCABULARY);
    printf("\nvocabulary of %d, %s\n", VOCABULARY, precision == BP_BF16 ? "bf16" : "f32");
    TIME(best,
         bp_softmax_statistics(row_max, sum, target,
                               &(bp_logit_rows){logits, ids, ROWS, VOCABULARY, 0, VOCABULARY}));
    line("softmax statistics", size, best);
    TIME(best, bp_softmax_gradient(&gradient,
                                   &(bp_logit_rows){logits, ids, gradient.rows, gradient.columns, 0,
                                                    gradient.columns},
                                   row_max, sum, weight, NULL));
    line("softmax gradient", precision == BP_BF16 ? 1.5 * size : 2 * size, best);
    TIME(best, bp_embedding_forward(x, table, ids, ROWS, WIDTH, 0, VOCABULARY));
    line("embedding forward", 2.0 * ROWS * WIDTH * sizeof(float), best);
    TIME(best, bp_embedding_backward(table, x, ids, ROWS, WIDTH, 0, VOCABULARY));
    line("embedding backward", 3.0 * ROWS * WIDTH * sizeof(float), best);
    bp_gemm_free(&gemm);
    void *all[] = {logits, row_max, weight, table, x, sum, target, ids, arena.base};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

int main(int count, char **arguments)
{
    static const int64_t shapes[][2] = {{3 * WIDTH, WIDTH},
                                        {WIDTH, WIDTH},
                                        {4 * WIDTH, WIDTH},
                                        {WIDTH, 4 * WIDTH},
                                        {VOCABULARY, WIDTH}};
    bp_precision last = bp_math_has_bf16() ? BP_BF16 : BP_F32;

    bp_math_set_threads(count > 1 ? atoi(arguments[1]) : 0);
    seconds_a_line = count > 2 ? atof(arguments[2]) : seconds_a_line;
    printf("%s, %s, %d threads\n", bp_math_cpu(), bp_math_library(), bp_math_threads());
    for (int precision = BP_F32; precision <= (int)last; precision++)
        printf("peak in registers, %s: %.1f GFLOP/s\n", precision == BP_BF16 ? "bf16" : "f32",
               bp_math_peak((bp_precision)precision, seconds_a_line) / 1e9);
    printf("\nGFLOP/s                forward     input    weight   refresh ms\n");
    for (int precision = BP_F32; precision <= (int)last; precision++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            bench_linear((bp_precision)precision, shapes[i][0], shapes[i][1]);
    printf("\n");
    for (int precision = BP_F32; precision <= (int)last; precision++) {
        bench_attention((bp_precision)precision, 1, 1024, 0.0f);
        bench_attention((bp_precision)precision, 1, 1024, 0.1f);
        bench_attention((bp_precision)precision, 8, 128, 0.0f);
    }
    bench_passes();
    for (int precision = BP_F32; precision <= (int)last; precision++) {
        bench_operands((bp_precision)precision, WIDTH);
        bench_operands((bp_precision)precision, 4 * WIDTH);
        bench_vocabulary((bp_precision)precision);
    }
    return 0;
}
