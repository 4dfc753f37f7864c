/* Distillation: a head that learns from what another model says of the same places. */
#ifndef BP_NN_DISTILL_H
#define BP_NN_DISTILL_H

#include "nn/block.h"

/** A teacher of one or several members, whose mean of probabilities is learned. */
typedef struct bp_teacher bp_teacher;
struct bp_teacher {
    int members;
    double temperature; /* t: of both models' logits */
    double weight;      /* w: of the soft targets' loss, 1 - w of the other one's */
    /** logits[rows][V here] of a member for places [first, first + rows) of the examples from batch
     * slot `slot` on, each of T. No MPI. */
    void (*logits)(const bp_teacher *teacher, int member, int64_t slot, int64_t T, int64_t first,
                   int64_t rows, float *logits);
};

/** Some rows of a head, of this rank's part of the vocabulary. */
typedef struct bp_distilled {
    float *logits;          /* [rows][V] the student's */
    const int32_t *targets; /* [rows] -1: not scored */
    int64_t first_place, rows, V, first;
    const int32_t *places; /* [rows] of rows that were put together: of scored ones; NULL: rows are
                              places from first_place on */
} bp_distilled;

/** Scratch of so many rows, in an arena that may be counted alone. */
typedef struct bp_distill_work {
    float *q, *work; /* [rows][V] the teacher's probabilities; logits at t, then gradients */
    float *max;      /* [2][rows] */
    double *sums;    /* [2][rows] */
    float *one;      /* [rows] weights */
    int32_t *none;   /* [rows] no targets */
} bp_distill_work;
bp_distill_work bp_distill_alloc(bp_arena *arena, int64_t rows, int64_t V);

/** The loss of soft targets: w t^2 H(q, p), q being the mean over members of softmax(their logits /
 * t) and p = softmax(logits / t), summed over the scored rows in their order; work.work becomes its
 * gradient by the logits, w t (p - q). Collective over `tensor`; equal results on all its ranks.
 * Source: Hinton et al. 2015, section 2. */
double bp_distill(const bp_teacher *teacher, const bp_pass *pass, const bp_distill_work *work,
                  const bp_distilled *rows, MPI_Comm tensor);

#endif
