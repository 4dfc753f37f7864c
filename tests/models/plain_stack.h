/* Small networks of many stacks, and their loss by plain loops in float64, for the tests of stacks.
 */
#pragma once

#include "bp_test_batch.h"
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"
#include "capped_family.h"
#include "math/math.h"
#include "models/task/list.h"
#include "nn/core/adapter.h"
#include "train/engine/engine.h"
#include "train/engine/stage.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    T = 14,
    B = 2,
    V = 40,
    C = 16,
    H = 4,
    G = 2,
    D = 6,
    F = 20,
    L = 3,
    WINDOW = 5,
    SCORE_WIDTH = 9,
    E = 5, /* experts, of which each row goes through K, of inner width FE */
    K = 2,
    FE = 12,
    DENSE = 1 /* the layer that has none */
};
#define BALANCE 0.4

typedef struct fixture {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values;
    int32_t windows[B * (T + 1)];
    bp_batch batch;
    void *bytes;
    double balance; /* weight of that loss of experts */
} fixture;

/* By the layer, with biases and closing norms; with parallel branches; and of older decoders: one
 * norm for both branches, no biases of attention, ALiBi, a norm after the embedding, a bias of the
 * logits. */
extern const bp_model_family BIASED_FAMILY, PARALLEL_FAMILY, OLDER_FAMILY;
/* Norms of queries and keys, of each head, and of all of them; gains from one; only norms after
 * branches; state-space layers, except the second, which has attention. */
extern const bp_stack HEADS_STACK, WHOLE_STACK, FROM_ONE_STACK, CLOSING_STACK, HYBRID_STACK;

/* Of this stack, else as the capped one. */
bp_model_family family_of(const bp_stack *stack);

bp_model_shape shape_of(const bp_model_family *family);

/* With experts in all layers but one. */
bp_model_shape mixed(bp_model_shape shape);

/* A network with random values, and a batch. */
void open_fixture(fixture *f, const bp_model_shape *shape, bp_precision precision, float dropout);

void close_fixture(fixture *f);

/* Of a step, whose gradient is left in the stage. */
double loss_of(fixture *f);

const bp_param *find_param(const bp_network *network, const char *name);

/* The same loss by plain loops. */
double plain_loss(const fixture *f, const bp_model_shape *shape);
