/* The models that a bench trains and scores, and the cost of their work. Pure functions. */
#pragma once

#include "models/family.h"
#include <stdbool.h>

#define BP_BENCH_MODELS 4
#define BP_BENCH_FORMS  3 /* of a product: forward, gradient of the input, of the weight */

typedef struct bp_bench_model {
    const char *name;
    bp_model_shape shape;
} bp_bench_model;

/** From the smallest to the largest: tiny (a smoke test), small (the size of ensemble members),
 * medium, gpt2 (124M). */
const bp_bench_model *bp_bench_model_at(int number);
#define BP_BENCH_SMALL 1 /* its products are measured if no model is named */

/** The models that a list "small, gpt2" names; "none" is an empty list. Returns false for an
 * unknown word, which *wrong points to (borrowed from the list, up to the next comma). */
bool bp_bench_models_named(const char *list, bool named[BP_BENCH_MODELS], const char **wrong);

/** FLOPs of scoring a token: only forward, a third of bp_model_train_flops. */
double bp_bench_score_flops(const bp_model_shape *shape);

/** The token for a uniform draw u from [0, 1): Zipf's law, P(k) about 1 / (k + 1), so that
 * synthetic tokens compress about like real ones. */
int32_t bp_bench_token(double u, int64_t vocab_size);

/** A matrix [outs][ins] of a model, and the number of such matrices in a step. */
typedef struct bp_bench_matrix {
    int64_t outs, ins, count;
} bp_bench_matrix;

#define BP_BENCH_MATRICES 5
/** Attention's q, k and v together, and its output; the two of the MLP; the head. */
void bp_bench_matrices(const bp_model_shape *shape, bp_bench_matrix matrices[BP_BENCH_MATRICES]);

/** FLOPs of one form of all those products on `rows` rows. */
double bp_bench_form_flops(const bp_model_shape *shape, int64_t rows);
