/* Temperature scaling from sums at some inverse temperatures (the arrays of bp_scaled_sums in
 * infer/ensemble/ensemble.h). Local: no MPI. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** Sums over tokens, at ascending b, of f(b) = log sum_v p_v^b - b log p(target), which is convex
 * in b and the NLL of a token at temperature 1/b, and of its first two derivatives.
 *
 * Between two points f is approximated by the quintic with these six values (Hermite). */
typedef struct bp_temperature_sums {
    int points;
    int64_t tokens;
    const double *beta, *value, *first, *second; /* [points] */
} bp_temperature_sums;

typedef struct bp_temperature {
    double temperature; /* 1/b */
    double nll;         /* at that temperature, nats a token */
    bool at_edge;       /* the result is the first or last point, where the sums still fall */
} bp_temperature;

/** The minimiser. NaN and NaN without tokens.
 * Source: Guo et al. 2017 (arXiv:1706.04599), section 4.2: temperature scaling by NLL. */
bp_temperature bp_temperature_fit(const bp_temperature_sums *sums);

/** NLL a token at a temperature, of the tokens that it was fitted to or of others; NaN outside of
 * the points and without tokens. */
double bp_temperature_nll(const bp_temperature_sums *sums, double temperature);
