/* Distillation: a head that learns from another model's outputs at the same positions, and layers
 * that learn from its layers' states. */
#pragma once

#include "nn/core/block.h"

/** A teacher of one or several members; the head learns their mean probabilities. */
typedef struct bp_teacher bp_teacher;
struct bp_teacher {
    int members;
    double temperature; /* t: of both models' logits */
    double weight;      /* w: weight of the soft targets' loss; the other one's is 1 - w */
    /** logits[rows][V here] of a member for positions [first, first + rows) of the examples from
     * batch slot `slot` on, each with T positions. No MPI. */
    void (*logits)(const bp_teacher *teacher, int member, int64_t slot, int64_t T, int64_t first,
                   int64_t rows, float *logits);
    double states_weight; /* of the loss of states beside both */
    bool cosine;          /* the loss is 1 - cosine instead of the mean squared error */
    /** [rows][columns] of match `match`: the states of the examples from batch slot `slot` on, each
     * of T positions, from row `row` on. No MPI. */
    const float *(*states)(const bp_teacher *teacher, int match, int64_t slot, int64_t T,
                           int64_t row);
};

/** Layers of a model that learn from a teacher's states. Plain data. */
#define BP_STATE_MATCHES 32
typedef struct bp_state_matches {
    int64_t count, columns;          /* of the teacher's states */
    int64_t layer[BP_STATE_MATCHES]; /* of the model, each once; 0: the input of the first one */
} bp_state_matches;

/** One of them, for the block that computes its states. */
typedef struct bp_state_match {
    int number;         /* bp_teacher.states' */
    int64_t layer;      /* for the projection's name */
    int64_t C, columns; /* the model's and the teacher's */
} bp_state_match;

/** Wraps `inner` (taken over), and compares its result, item 0, with the teacher's states in
 * training: with h a row of it, W the projection (the identity where C = columns) and s the
 * teacher's row, the row's loss is |h Wt - s|^2 / columns, or 1 - cos(h Wt, s). pass->states_loss
 * adds up those of the positions that are not padding; pass->states_weight is the weight of one in
 * the gradient. Adds "distill.LAYER.weight" [columns][C] to the replicated group, which is NULL
 * where C = columns.
 * Source: Jiao et al. 2020, TinyBERT, equation 8; Sanh et al. 2019, DistilBERT, section 2. */
void bp_state_match_new(bp_block **out, bp_block *inner, const bp_state_match *match,
                        bp_group *group);

/** Some rows of a head, of this rank's part of the vocabulary. */
typedef struct bp_distilled {
    float *logits;          /* [rows][V] the student's */
    const int32_t *targets; /* [rows] -1: not scored */
    int64_t first_place, rows, V, first;
    const int32_t *positions; /* [rows] positions of the gathered rows; NULL: rows are positions
                                 from first_place on */
} bp_distilled;

/** Scratch for this many rows, in an arena that may only count. */
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
