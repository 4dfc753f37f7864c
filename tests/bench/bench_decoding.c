/* Not a test: how fast sequences grow, beside what memory and cores of this process allow.
 *
 *     [mpirun -n N] build/release/bin/bench_decoding [SECONDS [THREADS [cpu]]]
 *
 * GPT-2's 124M parameters and a LLaMA with grouped heads of about as many, initial weights, on
 * tensor ranks; after a prompt one more token a step for 1, 8 and 64 sequences. One sequence is
 * bound by reading the weights, 64 by multiplying. A row gives the median and the best step. `cpu`:
 * by the process's CPU time, for a machine that others use too. */
#include "base/clock.h"
#include "base/log.h"
#include "math/kernels/kernels.h"
#include "math/math.h"
#include "math/threads.h"
#include "models/gpt/gpt.h"
#include "models/llama/llama.h"
#include "models/open.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROMPT = 32,
    CAPACITY = 512,
    STEPS_MOST = CAPACITY - PROMPT,
    FLOATS = 16 << 20,
    DOUBLES = 16 << 20,
    WIDTH = 768
};

static bool by_cpu;

static double now(void)
{
    return by_cpu ? bp_clock_process() / bp_math_threads() : bp_clock_now();
}

/* STREAM's triad, a = b + 3 c in doubles, with bytes counted as there (24 an element; McCalpin
 * 1995), by this clock. */
static double bandwidth(double seconds)
{
    double *a = bp_alloc("bench", DOUBLES, sizeof *a), *b = bp_alloc("bench", DOUBLES, sizeof *b),
           *c = bp_alloc("bench", DOUBLES, sizeof *c), best = 0;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < DOUBLES; i++)
        a[i] = b[i] = c[i] = 1;
    for (double end = now() + seconds; now() < end;) {
        double begin = now();

#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < DOUBLES; i++)
            a[i] = b[i] + 3 * c[i];
        best = fmax(best, 24.0 * DOUBLES / (now() - begin));
    }
    best = a[DOUBLES / 2] == 4 ? best : 0;
    bp_free(a);
    bp_free(b);
    bp_free(c);
    return best;
}

/* Eight rows at a time, as the products of one sequence read their weights. */
static uint32_t read_rows(const uint32_t *x, int64_t first, int64_t last)
{
    uint32_t sums[16] = {0}, all = 0;

    for (int64_t block = first; block < last; block++)
        for (int64_t k = 0; k < WIDTH; k += 16)
            for (int64_t j = 0; j < 8; j++)
                for (int64_t i = 0; i < 16; i++)
                    sums[i] += x[(block * 8 + j) * WIDTH + k + i];
    for (int i = 0; i < 16; i++)
        all += sums[i];
    return all;
}

/* Bytes a second that threads read. */
static double reading(double seconds)
{
    int64_t blocks = 2 * FLOATS / (8 * WIDTH);
    uint32_t *x = bp_alloc("bench", 2 * FLOATS, sizeof *x), all = 0;
    double best = 0;

    bp_zero((float *)x, 2 * FLOATS);
    for (double end = now() + seconds; now() < end;) {
        double begin = now();

#pragma omp parallel for schedule(static) reduction(+ : all)
        for (int64_t t = 0; t < bp_math_threads(); t++)
            all +=
                read_rows(x, blocks * t / bp_math_threads(), blocks * (t + 1) / bp_math_threads());
        best = fmax(best, 4.0 * (double)(blocks * 8 * WIDTH) / (now() - begin));
    }
    bp_free(x);
    return all == 0 ? best : 0;
}

static bp_model_shape llama_shape(void)
{
    bp_model_shape shape = {.family = &bp_llama_family,
                            .layers = 12,
                            .width = 768,
                            .heads = 12,
                            .context = 1024,
                            .vocab_size = 32000};

    shape.own[BP_LLAMA_KV_HEADS] = 4;
    shape.own[BP_LLAMA_INNER] = 2048;
    shape.family->settle(&shape);
    return shape;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Weights that a token reads: all matrices, but of the embeddings the rows of one token. */
static double weights_of(const bp_model_shape *shape)
{
    double C = (double)shape->width, L = (double)shape->layers, V = (double)shape->vocab_size;
    double G = C / (double)shape->heads * (double)shape->own[BP_LLAMA_KV_HEADS];

    if (shape->family == &bp_gpt_family)
        return L * 12 * C * C + V * C;
    return L * (2 * C * C + 2 * C * G + 3 * C * (double)shape->own[BP_LLAMA_INNER]) + V * C;
}

typedef struct machine {
    double bandwidth, reading, peak; /* of this process */
    int ranks;
} machine;

static void measure(bp_model *lm, const bp_model_shape *shape, int64_t slots, double seconds,
                    const machine *of)
{
    int32_t *counts = bp_alloc("bench", slots, sizeof *counts),
            *tokens = bp_alloc("bench", slots * PROMPT, sizeof *tokens);
    float *logits = bp_alloc("bench", slots * lm->info.vocab_count + 1, sizeof *logits);
    double times[STEPS_MOST], begin;
    bp_decoding *decoding;
    int steps = 0;

    for (int64_t i = 0; i < slots * PROMPT; i++)
        tokens[i] = (int32_t)(i * 7919 % shape->vocab_size);
    for (int64_t s = 0; s < slots; s++)
        counts[s] = PROMPT;
    if (bp_model_decode_new(&decoding, lm, 1, slots, CAPACITY) != BP_OK) {
        fprintf(stderr, "%s\n", bp_err_message());
        exit(1);
    }
    /* Once before, so that the pages of the cache are there. */
    bp_model_decode(decoding, 0, &(bp_decode_step){slots, counts, tokens, NULL}, logits, NULL);
    bp_model_decode_reset(decoding, 0);
    begin = now();
    bp_model_decode(decoding, 0, &(bp_decode_step){slots, counts, tokens, NULL}, logits, NULL);
    double prompt = now() - begin;
    for (int64_t s = 0; s < slots; s++)
        counts[s] = 1;
    for (double end = begin + prompt + seconds; steps < STEPS_MOST && (steps < 3 || now() < end);) {
        begin = now();
        bp_model_decode(decoding, 0, &(bp_decode_step){slots, counts, tokens, NULL}, logits, NULL);
        times[steps++] = now() - begin;
    }
    qsort(times, (size_t)steps, sizeof *times, by_size);
    double median = times[steps / 2], weights = weights_of(shape) / of->ranks;
    if (bp_comm_is_root(MPI_COMM_WORLD))
        printf("%-6s %3lld sequences: prompts %6.0f tokens/s; %6.1f tokens/s, best %6.1f; best: "
               "weights %4.2f of triad, %4.2f of reading; products %4.2f of the peak\n",
               shape->family->name, (long long)slots, (double)(slots * PROMPT) / prompt,
               (double)slots / median, (double)slots / times[0],
               4 * weights / times[0] / of->bandwidth, 4 * weights / times[0] / of->reading,
               2 * weights * (double)slots / times[0] / of->peak);
    bp_model_decode_free(&decoding);
    bp_free(counts);
    bp_free(tokens);
    bp_free(logits);
}

int main(int argc, char **argv)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    static const int64_t slots[] = {1, 8, 64};
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    bp_config *config = NULL;
    bp_mesh *mesh = NULL;
    machine of;

    if (bp_mpi_start(&argc, &argv) != BP_OK || bp_config_new(&config, tables, tables) != BP_OK)
        return 1;
    bp_math_set_threads(argc > 2 ? atoi(argv[2]) : 2);
    by_cpu = argc > 3 && strcmp(argv[3], "cpu") == 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    of.ranks = bp_comm_size(MPI_COMM_WORLD);
    bp_mesh_shape on = {1, 1, 1, of.ranks, BP_COORDINATOR_SHARED};
    if (bp_config_set(config, "math.precision", "f32") != BP_OK ||
        bp_mesh_new(&mesh, MPI_COMM_WORLD, &on) != BP_OK)
        return 1;
    of.bandwidth = bandwidth(seconds);
    of.reading = reading(seconds);
    of.peak = bp_math_peak(BP_F32, seconds);
    if (mesh->coordinates)
        printf("a rank, %d threads: %.1f GB/s (triad), %.1f GB/s (reading), %.1f GFLOP/s\n",
               bp_math_threads(), of.bandwidth / 1e9, of.reading / 1e9, of.peak / 1e9);
    for (int family = 0; family < 2; family++) {
        bp_model_shape shape = family == 0 ? (bp_model_shape){.family = &bp_gpt_family,
                                                              .layers = 12,
                                                              .width = 768,
                                                              .heads = 12,
                                                              .context = 1024,
                                                              .vocab_size = 50257}
                                           : llama_shape();
        bp_model *lm;

        if (bp_model_new(&lm, mesh, config, &shape, 1) != BP_OK) {
            fprintf(stderr, "%s\n", bp_err_message());
            return 1;
        }
        for (size_t k = 0; k < sizeof slots / sizeof *slots; k++)
            measure(lm, &shape, slots[k], seconds, &of);
        bp_model_free(&lm);
    }
    bp_mesh_free(&mesh);
    bp_config_free(&config);
    bp_mpi_finish();
    return 0;
}
