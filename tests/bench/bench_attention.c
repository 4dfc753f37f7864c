/* Attention's share of the bf16 peak: forward and backward at some shapes, beside the peak that is
 * measured between them. Arguments: threads (0: all), seconds a line, and "bits" to print digests
 * of the results. FLOPs are those of the pairs that are seen.
 */
#include "base/process/clock.h"
#include "bench_arrays.h"
#include "math/attention/attention.h"
#include "math/math.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double peak, seconds_a_line = 0.2;
static bool bits;

typedef struct bench_case {
    int64_t B, H, key_heads, T, D;
    bool causal;
    float dropout;
} bench_case;

static const bench_case cases[] = {
    {1, 12, 12, 1024, 64, true, 0.0f},  {4, 12, 12, 1024, 64, true, 0.0f},
    {1, 12, 12, 1024, 64, true, 0.1f},  {8, 12, 12, 128, 64, true, 0.0f},
    {1, 16, 16, 2048, 128, true, 0.0f}, {1, 32, 4, 2048, 64, true, 0.0f},
    {8, 12, 12, 128, 64, false, 0.0f},  {2, 12, 12, 512, 64, false, 0.0f},
};

/* The fastest and the middle of the runs. */
typedef struct bench_times {
    double best, middle;
} bench_times;

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

#define MOST 4096
#define TIME(times, STATEMENT)                                                                     \
    do {                                                                                           \
        static double took_[MOST];                                                                 \
        int n_ = 0;                                                                                \
        double end_ = bp_clock_now() + seconds_a_line;                                             \
        STATEMENT;                                                                                 \
        do {                                                                                       \
            double start_ = bp_clock_now();                                                        \
            STATEMENT;                                                                             \
            took_[n_++] = bp_clock_now() - start_;                                                 \
        } while (n_ < MOST && bp_clock_now() < end_);                                              \
        qsort(took_, (size_t)n_, sizeof *took_, compare);                                          \
        (times) = (bench_times){took_[0], took_[n_ / 2]};                                          \
    } while (0)

static uint64_t digest(const float *x, int64_t n)
{
    uint64_t hash = 14695981039346656037u;

    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

static void measure_peak(void)
{
    double now = bp_math_peak(BP_BF16, 0.05);

    peak = now > peak ? now : peak;
}

static void bench(const bench_case *it)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_DROPOUT, 0, 0, 0);
    bp_attention_shape shape = {.B = it->B,
                                .T = it->T,
                                .H = it->H,
                                .D = it->D,
                                .key_heads = it->key_heads,
                                .causal = it->causal,
                                .dropout = it->dropout,
                                .key = &key,
                                .all_heads = it->H};
    int64_t row = (it->H + 2 * it->key_heads) * it->D, n = it->B * it->T * it->H * it->D,
            rows = it->B * it->T;
    float *qkv = floats(rows * row), *out = floats(n), *dout = floats(n),
          *dqkv = floats(rows * row), *lse = floats(it->B * it->H * it->T);
    void *scratch = bp_alloc("bench", (int64_t)bp_attention_scratch_bytes(BP_BF16, &shape), 1);
    double pairs = (double)it->T * (double)it->T, flops;
    bench_times forward, backward;
    bp_gemm *gemm;

    if (it->causal)
        pairs = (pairs + (double)it->T) / 2;
    flops = 4.0 * (double)(it->B * it->H * it->D) * pairs;
    if (!scratch || bp_gemm_new(&gemm, BP_BF16) != BP_OK)
        exit(71);
    bp_attention_input in = {
        qkv, qkv + it->H * it->D, qkv + (it->H + it->key_heads) * it->D, row, row, false};
    bp_attention_gradients to = {
        .dq = dqkv, .dk = dqkv + it->H * it->D, .dv = dqkv + (it->H + it->key_heads) * it->D};
    measure_peak();
    bp_operand outs = bp_operand_floats(out, it->B * it->T, it->H * it->D),
               douts = bp_operand_floats(dout, outs.rows, outs.columns);
    TIME(forward, bp_attention_forward(gemm, &outs, lse, &in, &shape, scratch));
    TIME(backward, bp_attention_backward(gemm, &to, &douts, &outs, lse, &in, &shape, scratch));
    measure_peak();
    printf("B %lld heads %2lld/%-2lld T %-5lld D %-4lld %s dropout %.1f  forward %7.3f ms (median "
           "%7.3f) %.3f   backward %7.3f ms (median %7.3f) %.3f",
           (long long)it->B, (long long)it->H, (long long)it->key_heads, (long long)it->T,
           (long long)it->D, it->causal ? "causal" : "all   ", (double)it->dropout,
           forward.best * 1e3, forward.middle * 1e3, flops / forward.best / peak,
           backward.best * 1e3, backward.middle * 1e3, 2.5 * flops / backward.best / peak);
    if (bits)
        printf("  %016llx %016llx %016llx", (unsigned long long)digest(out, n),
               (unsigned long long)digest(lse, it->B * it->H * it->T),
               (unsigned long long)digest(dqkv, rows * row));
    printf("\n");
    bp_gemm_free(&gemm);
    void *all[] = {qkv, out, dout, dqkv, lse, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bp_free(all[i]);
}

int main(int argc, char **argv)
{
    bp_math_set_threads(argc > 1 ? atoi(argv[1]) : 0);
    seconds_a_line = argc > 2 ? atof(argv[2]) : seconds_a_line;
    bits = argc > 3 && strcmp(argv[3], "bits") == 0;
    for (int i = 0; i < 8; i++)
        measure_peak();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        bench(&cases[i]);
    printf("peak %.1f GFLOP/s\n", peak / 1e9);
    return 0;
}
