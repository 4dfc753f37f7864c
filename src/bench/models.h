/* The models that a bench trains and scores, and what their work costs. Pure functions. */
#ifndef BP_BENCH_MODELS_H
#define BP_BENCH_MODELS_H

#include "models/family.h"
#include <stdbool.h>

#define BP_BENCH_MODELS 4
#define BP_BENCH_FORMS  3 /* of a product: forward, gradient of the input, of the weight */

typedef struct bp_bench_model {
    const char *name;
    bp_model_shape shape;
} bp_bench_model;

/** From the smallest to the largest: tiny (does a bench work at all?), small (as ensembles are made
 * of), medium, gpt2 (124M). */
const bp_bench_model *bp_bench_model_at(int number);
#define BP_BENCH_SMALL 1 /* whose products are measured where no model is named */

/** Which of them a list "small, gpt2" names; "none" is a list of nothing. false: a word that is no
 * model, given back in *wrong (borrowed from the list, to the next comma). */
bool bp_bench_models_named(const char *list, bool named[BP_BENCH_MODELS], const char **wrong);

/** FLOPs of scoring a token: only forward, a third of bp_model_train_flops. */
double bp_bench_score_flops(const bp_model_shape *shape);

/** The token for a uniform draw u from [0, 1): Zipf's law, P(k) about 1 / (k + 1), so that made-up
 * tokens compress about as real ones do. */
int32_t bp_bench_token(double u, int64_t vocab_size);

/** A matrix [outs][ins] of a model, and how many of its kind a step multiplies by. */
typedef struct bp_bench_matrix {
    int64_t outs, ins, count;
} bp_bench_matrix;

#define BP_BENCH_MATRICES 5
/** Attention's q, k and v together, its output; the MLP's two; the head. */
void bp_bench_matrices(const bp_model_shape *shape, bp_bench_matrix matrices[BP_BENCH_MATRICES]);

/** FLOPs of one form of all those products on `rows` rows. */
double bp_bench_form_flops(const bp_model_shape *shape, int64_t rows);

#endif
