/* Objectives: what a training minimises, and how its examples are made of the corpus. */
#ifndef BP_MODELS_OBJECTIVE_H
#define BP_MODELS_OBJECTIVE_H

#include "tensor/batch.h"

typedef struct bp_objective {
    const char *name;
    /** The loss: the sum over terms of weight times the mean over a term's scored targets. */
    int terms;
    double weight[BP_TERMS];
    bool scores_all; /* no target of an example is ever -1: nothing needs to be counted */
    /** Of examples whose longest stream has T places. */
    bp_example_maker (*maker)(int64_t T, uint64_t seed);
} bp_objective;

/** Each token given those before it. */
extern const bp_objective bp_objective_causal;

#endif
