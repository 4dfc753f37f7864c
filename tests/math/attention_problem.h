/* An attention and its plain loops in float64, for the tests of attention. */
#pragma once

#include "base/err.h"
#include "math/attention/attention.h"
#include "math/attention/relative.h"
#include "math/gemm/linear_parts.h"
#include "math/loops/loops.h"
#include "math/math.h"
#include "math_test.h"

/* The ways in which products are computed. */
enum { F32, BF16 };

/* How many of them this CPU has. */
int ways(void);

typedef struct problem {
    int way;
    bp_attention_shape shape;
    bool cross;
    float *qkv, *out, *lse, *dout, *dqkv; /* cross: q, and after it [B][K][2][G][D]; else
                                             [B][T]: H heads of q, G of k and of v */
    float *dbias;                         /* [B][H] rows of bp_bias_floats; of a bias */
    void *scratch;
    bool rounded; /* out, before the backward pass */
} problem;

int64_t out_floats(const bp_attention_shape *s);
int64_t in_floats(const bp_attention_shape *s);

/* Where the key and the value vector of position u lie, as head h reads them. */
int64_t key_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t u);
int64_t value_at(const bp_attention_shape *s, int64_t b, int64_t h, int64_t u);

/* Random inputs and gradients; problem_free(). */
problem problem_of(int way, bp_attention_shape shape);
void problem_free(problem *p);

/* Plain loops: out [B][T][H][D] and lse [B][H][T]. */
void twin_forward(double *out, double *lse, const double *qkv, const bp_attention_shape *s);

/* Numbers that bf16 has: then only weights and scaled queries are rounded inside. */
void round_all(float *x, int64_t n);

/* Forward and backward. */
void run(problem *p);

/* Output, log-sum-exp, gradients and weights equal those of plain loops, in each way. */
void check(bp_attention_shape shape);

bp_attention_shape shape_of(int64_t B, int64_t T, int64_t H, int64_t D, bool causal);
