/* The models that a bench trains and scores, the products of their steps, synthetic tokens. */
#include "bench/models.h"

#include <math.h>
#include <string.h>

static bp_bench_model models[BP_BENCH_MODELS] = {
    {"tiny", {.layers = 2, .width = 64, .heads = 2, .context = 64, .vocab_size = 1000}},
    {"small", {.layers = 4, .width = 256, .heads = 4, .context = 256, .vocab_size = 8000}},
    {"medium", {.layers = 6, .width = 512, .heads = 8, .context = 512, .vocab_size = 20000}},
    {"gpt2", {.layers = 12, .width = 768, .heads = 12, .context = 1024, .vocab_size = 50257}},
};

const bp_bench_model *bp_bench_model_at(int number)
{
    models[number].shape.family = bp_model_family_benched(false);
    return &models[number];
}

static bool is_word(const char *at, size_t bytes, const char *word)
{
    return strlen(word) == bytes && strncmp(at, word, bytes) == 0;
}

bool bp_bench_models_named(const char *list, bool named[BP_BENCH_MODELS], const char **wrong)
{
    memset(named, 0, BP_BENCH_MODELS * sizeof *named);
    for (const char *at = list; *at != '\0';) {
        size_t bytes;
        bool known;

        at += strspn(at, " ,");
        bytes = strcspn(at, " ,");
        known = bytes == 0 || is_word(at, bytes, "none");
        for (int k = 0; k < BP_BENCH_MODELS; k++)
            if (is_word(at, bytes, models[k].name))
                known = named[k] = true;
        if (!known) {
            *wrong = at;
            return false;
        }
        at += bytes;
    }
    return true;
}

double bp_bench_score_flops(const bp_model_shape *shape)
{
    return bp_model_train_flops(shape) / 3;
}

int32_t bp_bench_token(double u, int64_t vocab_size)
{
    int64_t token = (int64_t)exp(u * log((double)(vocab_size + 1))) - 1;

    return (int32_t)(token < vocab_size ? token : vocab_size - 1);
}

void bp_bench_matrices(const bp_model_shape *shape, bp_bench_matrix matrices[BP_BENCH_MATRICES])
{
    int64_t C = shape->width, L = shape->layers;
    const bp_bench_matrix all[BP_BENCH_MATRICES] = {
        {3 * C, C, L}, {C, C, L}, {4 * C, C, L}, {C, 4 * C, L}, {shape->vocab_size, C, 1}};

    memcpy(matrices, all, sizeof all);
}

double bp_bench_form_flops(const bp_model_shape *shape, int64_t rows)
{
    bp_bench_matrix matrices[BP_BENCH_MATRICES];
    double sum = 0;

    bp_bench_matrices(shape, matrices);
    for (int k = 0; k < BP_BENCH_MATRICES; k++)
        sum += 2.0 * (double)rows * (double)matrices[k].outs * (double)matrices[k].ins *
               (double)matrices[k].count;
    return sum;
}
