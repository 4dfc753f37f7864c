/* Cholesky's factors, without unknowns that the data do not determine. Called by surrogate.c and
 * shapley.c. */
#include "explain/perturbation/regression.h"

#include "base/mem.h"

#include <math.h>

/* Smallest remaining share of a diagonal element; below it, the unknown is a combination of others.
 */
#define LEAST 1e-12

void explain_system_init(explain_system *out, int64_t n)
{
    *out = (explain_system){.n = n,
                            .matrix = bp_alloc("explain.regression", n * n, sizeof(double)),
                            .free = bp_alloc("explain.regression", n, sizeof(bool))};
}

void explain_system_clear(explain_system *system)
{
    bp_free(system->matrix);
    bp_free(system->free);
}

void explain_system_add(explain_system *system, const double *x, double weight)
{
    for (int64_t i = 0; i < system->n; i++)
        for (int64_t j = 0; j <= i && x[i] != 0; j++)
            system->matrix[i * system->n + j] += weight * x[i] * x[j];
}

void explain_system_factor(explain_system *system)
{
    int64_t n = system->n;

    for (int64_t j = 0; j < n; j++) {
        double *row = system->matrix + j * n, whole = row[j], left = whole;

        for (int64_t k = 0; k < j; k++)
            left -= row[k] * row[k];
        system->free[j] = !(left > LEAST * whole);
        system->loose += system->free[j];
        row[j] = system->free[j] ? 0 : sqrt(left);
        for (int64_t i = j + 1; i < n; i++) {
            double *below = system->matrix + i * n, sum = below[j];

            for (int64_t k = 0; k < j; k++)
                sum -= below[k] * row[k];
            below[j] = system->free[j] ? 0 : sum / row[j];
        }
    }
}

void explain_system_solve(const explain_system *system, double *b)
{
    int64_t n = system->n;

    for (int64_t i = 0; i < n; i++) {
        const double *row = system->matrix + i * n;

        for (int64_t k = 0; k < i; k++)
            b[i] -= row[k] * b[k];
        b[i] = system->free[i] ? 0 : b[i] / row[i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t k = i + 1; k < n; k++)
            b[i] -= system->matrix[k * n + i] * b[k];
        b[i] = system->free[i] ? 0 : b[i] / system->matrix[i * n + i];
    }
}
