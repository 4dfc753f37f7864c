/* The learning rate of each step: warmup, then a decay of the list. */
#pragma once

#include <stdint.h>

/** All decays: a line each, with the name of its number and its name in optimizer.decay. rate.c
 * defines them. */
#define BP_DECAY_LIST(DECAY)                                                                       \
    DECAY(COSINE, cosine)                                                                          \
    DECAY(LINEAR, linear)                                                                          \
    DECAY(CONSTANT, constant)                                                                      \
    DECAY(INVERSE_SQRT, inverse_sqrt)

#define BP_DECAY_NUMBER(NUMBER, name) BP_DECAY_##NUMBER,
typedef enum bp_rate_decay { BP_DECAY_LIST(BP_DECAY_NUMBER) BP_DECAYS } bp_rate_decay;

/** "cosine|linear|...": the choices of optimizer.decay. */
#define BP_DECAY_WORD(NUMBER, name) "|" #name
#define BP_DECAY_CHOICES            (&BP_DECAY_LIST(BP_DECAY_WORD)[1])

typedef struct bp_rate {
    double peak;
    double least; /* share of peak that decay ends at */
    int64_t warmup, steps;
    bp_rate_decay decay;
} bp_rate;

/** The decay of that name, which is one of the choices. */
bp_rate_decay bp_rate_decay_of(const char *name);

/** Learning rate of step s (from 1), w = warmup: peak s/w up to w; then with u = (s-1-w)/(steps-w):
 * peak (m + (1-m) f), m = least, f = (1 + cos pi u)/2 (cosine), 1-u (linear), sqrt(max(w, 1)/s)
 * (inverse_sqrt; Vaswani et al. 2017, section 5.3); constant: peak. */
double bp_rate_at(const bp_rate *rate, int64_t step);
