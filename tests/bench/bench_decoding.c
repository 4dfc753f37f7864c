/* Not a test: how fast sequences grow, beside what memory and cores of this process allow.
 *
 *     [mpirun -n N] build/release/bin/bench_decoding [SECONDS [THREADS [WORD...]]]
 *
 * GPT-2's 124M parameters and a LLaMA with grouped heads of about as many, initial weights, on
 * tensor ranks; after a prompt one more token a step for 1, 8 and 64 sequences. One sequence is
 * bound by reading the weights, 64 by multiplying. A row gives the median and the best step. Words:
 * `cpu`: by the process's CPU time, for a machine that others use too; `f32` (else) or `bf16`:
 * the precision; `q8`: weights of 8 bits; `gpt`, `llama`, `1b` (a LLaMA of 1.1 billion) or
 * `4layers` (of it): this model alone; `one`: one sequence alone. */
#include "base/log.h"
#include "base/process/clock.h"
#include "math/kernels/kernels.h"
#include "math/math.h"
#include "math/threads.h"
#include "models/list.h"
#include "models/network/weights.h"
#include "models/open.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROMPT = 32,
    CAPACITY = 512,
    STEPS_MOST = CAPACITY - PROMPT,
    FLOATS = 64 << 20,
    DOUBLES = 16 << 20,
    BLOCK = 1024 /* words */
};

static bool by_cpu;

static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 3; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

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

/* Blocks of 64 lines, as they lie, each asked for while the one before is read. */
static uint32_t read_blocks(const uint32_t *x, int64_t first, int64_t last)
{
    uint32_t sums[64] = {0}, all = 0;

    for (int64_t at = first * BLOCK; at < last * BLOCK; at += 64) {
        for (int64_t i = 0; i < 64; i += 16)
            __builtin_prefetch(x + at + BLOCK + i);
        for (int64_t i = 0; i < 64; i++)
            sums[i] += x[at + i];
    }
    for (int i = 0; i < 64; i++)
        all += sums[i];
    return all;
}

/* Bytes a second that threads read. */
static double reading(double seconds)
{
    int64_t blocks = 2 * FLOATS / BLOCK;
    uint32_t *x = bp_alloc("bench", 2 * FLOATS, sizeof *x), all = 0;
    double best = 0;

    bp_zero((float *)x, 2 * FLOATS);
    for (double end = now() + seconds; now() < end;) {
        double begin = now();

#pragma omp parallel for schedule(static) reduction(+ : all)
        for (int64_t t = 0; t < bp_math_threads(); t++)
            all += read_blocks(x, blocks * t / bp_math_threads(),
                               blocks * (t + 1) / bp_math_threads());
        best = fmax(best, 4.0 * (double)(blocks * BLOCK) / (now() - begin));
    }
    bp_free(x);
    return all == 0 ? best : 0;
}

typedef struct case_of {
    const char *word;
    bp_model_shape shape;
} case_of;

static const case_of CASES[] = {{"gpt",
                                 {.family = &bp_gpt_family,
                                  .layers = 12,
                                  .width = 768,
                                  .heads = 12,
                                  .context = 1024,
                                  .vocab_size = 50257}},
                                {"llama",
                                 {.family = &bp_llama_family,
                                  .layers = 12,
                                  .width = 768,
                                  .heads = 12,
                                  .context = 1024,
                                  .vocab_size = 32000,
                                  .stack = {.kv_heads = 4, .inner = 2048}}},
                                {"1b",
                                 {.family = &bp_llama_family,
                                  .layers = 22,
                                  .width = 2048,
                                  .heads = 32,
                                  .context = 2048,
                                  .vocab_size = 32000,
                                  .stack = {.kv_heads = 4, .inner = 5632}}},
                                {"4layers",
                                 {.family = &bp_llama_family,
                                  .layers = 4,
                                  .width = 2048,
                                  .heads = 32,
                                  .context = 2048,
                                  .vocab_size = 32000,
                                  .stack = {.kv_heads = 4, .inner = 5632}}}};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Weights that a token reads: all matrices, but of the embeddings the rows of one token. */
static double weights_of(const bp_model_shape *shape)
{
    double C = (double)shape->width, L = (double)shape->layers, V = (double)shape->vocab_size;
    double G = C / (double)shape->heads * (double)shape->stack.kv_heads;

    if (shape->family == &bp_gpt_family)
        return L * 12 * C * C + V * C;
    return L * (2 * C * C + 2 * C * G + 3 * C * (double)shape->stack.inner) + V * C;
}

typedef struct machine {
    double bandwidth, reading, peak; /* of this process */
    double weight_bytes;             /* of one */
    int ranks;
} machine;

static void measure(bp_model *model, const bp_model_shape *shape, int64_t slots, double seconds,
                    const machine *of)
{
    int32_t *counts = bp_alloc("bench", slots, sizeof *counts),
            *tokens = bp_alloc("bench", slots * PROMPT, sizeof *tokens);
    float *logits = bp_alloc("bench", slots * model->info.vocab_count + 1, sizeof *logits);
    double times[STEPS_MOST], begin;
    bp_decoding *decoding;
    int steps = 0;

    for (int64_t i = 0; i < slots * PROMPT; i++)
        tokens[i] = (int32_t)(i * 7919 % shape->vocab_size);
    for (int64_t s = 0; s < slots; s++)
        counts[s] = PROMPT;
    if (bp_model_decode_new(&decoding, model, 1, slots, CAPACITY) != BP_OK) {
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
    double median = times[steps / 2], weights = weights_of(shape) / of->ranks,
           bytes = of->weight_bytes * weights;
    if (bp_comm_is_root(MPI_COMM_WORLD))
        printf("%-6s %3lld sequences: prompts %6.0f tokens/s; %6.1f tokens/s, best %6.1f; best: "
               "weights %4.2f of triad, %4.2f of reading; products %4.2f of the peak\n",
               shape->family->name, (long long)slots, (double)(slots * PROMPT) / prompt,
               (double)slots / median, (double)slots / times[0], bytes / times[0] / of->bandwidth,
               bytes / times[0] / of->reading, 2 * weights * (double)slots / times[0] / of->peak);
    bp_model_decode_free(&decoding);
    bp_free(counts);
    bp_free(tokens);
    bp_free(logits);
}

static void measure_case(const case_of *one, const bp_mesh *mesh, const bp_config *config,
                         double seconds, const machine *of, bool alone)
{
    static const int64_t slots[] = {1, 8, 64};
    bp_model_shape shape = one->shape;
    bp_model *model;

    if (shape.family->fill_defaults)
        shape.family->fill_defaults(&shape);
    if (bp_model_new(&model, mesh, config, &shape, 1) != BP_OK) {
        fprintf(stderr, "%s\n", bp_err_message());
        exit(1);
    }
    for (size_t k = 0; k < (alone ? 1 : sizeof slots / sizeof *slots); k++)
        measure(model, &shape, slots[k], seconds, of);
    bp_model_free(&model);
}

int main(int argc, char **argv)
{
    static const bp_option *const tables[] = {bp_math_options, bp_weights_options, NULL};
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    bool bf16 = has_word(argc, argv, "bf16"), q8 = has_word(argc, argv, "q8"), some = false;
    bp_config *config = NULL;
    bp_mesh *mesh = NULL;
    machine of = {.weight_bytes = q8 ? 34.0 / 32 : bf16 ? 2 : 4};

    if (bp_mpi_start(&argc, &argv) != BP_OK || bp_config_new(&config, tables, tables) != BP_OK)
        return 1;
    bp_math_set_threads(argc > 2 ? atoi(argv[2]) : 2);
    by_cpu = has_word(argc, argv, "cpu");
    setvbuf(stdout, NULL, _IOLBF, 0);
    of.ranks = bp_comm_size(MPI_COMM_WORLD);
    bp_mesh_shape on = {1, 1, 1, of.ranks, BP_COORDINATOR_SHARED};
    if (bp_config_set(config, "math.precision", bf16 ? "bf16" : "f32") != BP_OK ||
        bp_config_set(config, "model.weights", q8 ? "q8" : "auto") != BP_OK ||
        bp_mesh_new(&mesh, MPI_COMM_WORLD, &on) != BP_OK)
        return 1;
    of.bandwidth = bandwidth(seconds);
    of.reading = reading(seconds);
    of.peak = bp_math_peak(bf16 ? BP_BF16 : BP_F32, seconds);
    if (mesh->coordinates)
        printf("a rank, %d threads: %.1f GB/s (triad), %.1f GB/s (reading), %.1f GFLOP/s\n",
               bp_math_threads(), of.bandwidth / 1e9, of.reading / 1e9, of.peak / 1e9);
    for (int k = 0; k < CASE_COUNT; k++)
        some = some || has_word(argc, argv, CASES[k].word);
    for (int k = 0; k < CASE_COUNT; k++)
        if (some ? has_word(argc, argv, CASES[k].word) : k < 2)
            measure_case(&CASES[k], mesh, config, seconds, &of, has_word(argc, argv, "one"));
    bp_mesh_free(&mesh);
    bp_config_free(&config);
    bp_mpi_finish();
    return 0;
}
