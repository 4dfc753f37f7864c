/* Weighted least squares of few unknowns, in double: fits local models to changed texts. Local: no
 * MPI. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** A symmetric positive semidefinite system, by Cholesky's factors. */
typedef struct explain_system {
    int64_t n;
    double *matrix; /* [n][n]: the lower half; then its factor */
    bool *free;     /* [n]: this unknown is undetermined, and set to 0 */
    int64_t loose;  /* number of undetermined unknowns */
} explain_system;
/** Makes a system with matrix 0. Owns: explain_system_clear(). */
void explain_system_init(explain_system *out, int64_t n);
void explain_system_clear(explain_system *system);
/** Adds weight x x'. */
void explain_system_add(explain_system *system, const double *x, double weight);
/** Replaces the matrix by its factor. */
void explain_system_factor(explain_system *system);
/** Replaces b[n] by the solution. After explain_system_factor. */
void explain_system_solve(const explain_system *system, double *b);
