/* A GPT in plain loops and float64: the oracle of the layers. Slow, short, and written from the
 * papers, not from src/nn. */
#pragma once

#include "models/family.h"

#define PLAIN_TENSORS_MAX 256

typedef struct plain_tensor {
    char name[BP_PARAM_NAME];
    int64_t rows, columns; /* a vector has one row */
    double *value;
} plain_tensor;

typedef struct plain_gpt {
    bp_model_shape shape;
    plain_tensor tensors[PLAIN_TENSORS_MAX];
    int count;
} plain_gpt;

/** All tensors by the names of logical tensors, filled with numbers that make every path matter. */
void plain_gpt_init(plain_gpt *gpt, const bp_model_shape *shape);
void plain_gpt_clear(plain_gpt *gpt);
plain_tensor *plain_gpt_tensor(const plain_gpt *gpt, const char *name);

/** Sum of -log p(target) over inputs[B][T] and targets[B][T] (-1: not scored). logprob[B][T] if not
 * NULL. */
double plain_gpt_loss(const plain_gpt *gpt, const int32_t *inputs, const int32_t *targets,
                      int64_t B, int64_t T, double *logprob);
