/* Principal components: eigenvectors of the covariances, by ScaLAPACK. Called by projection.c. */
#include "explain/maps/maps.h"

#include "base/mem.h"
#include "math/scalapack/distributed.h"

#include <math.h>
#include <string.h>

#define ROWS 1024 /* points added up together */

/* Rows of points less the mean, zeros after the last one. */
typedef struct centred {
    const bp_map_points *points;
    const double *mean;
    int64_t first;
} centred;

static void fill_rows(void *context, int64_t row, int64_t first, int64_t count, double *values)
{
    const centred *self = context;
    int64_t at = self->first + row;

    for (int64_t c = 0; c < count; c++)
        values[c] = at < self->points->n
                        ? self->points->x[at * self->points->C + first + c] - self->mean[first + c]
                        : 0;
}

static void find_mean(double *mean, const bp_map_points *points)
{
    for (int64_t i = 0; i < points->n; i++)
        for (int64_t c = 0; c < points->C; c++)
            mean[c] += points->x[i * points->C + c];
    for (int64_t c = 0; c < points->C; c++)
        mean[c] /= (double)points->n;
}

/* The covariances, on and above the diagonal. */
static bp_err add_up(bp_distributed *covariance, bp_grid *grid, const bp_map_points *points,
                     const double *mean)
{
    centred rows = {points, mean, 0};
    bp_distributed *part = NULL;
    bp_err err = bp_distributed_new(&part, grid, ROWS, points->C, 0);

    for (; rows.first < points->n && err == BP_OK; rows.first += ROWS) {
        err = points->watch.look(points->watch.context);
        bp_distributed_visit(part, &rows, fill_rows);
        bp_distributed_add_gram(covariance, 1 / (double)(points->n - 1), part);
    }
    bp_distributed_free(&part);
    return err;
}

/* Directions of the largest variances, with a fixed sign. */
static void take(bp_principal *out, const bp_distributed *vectors, const double *ascending,
                 int64_t C)
{
    for (int64_t k = 0; k < C; k++)
        out->variance[k] = fmax(0, ascending[C - 1 - k]);
    for (int64_t k = 0; k < out->keep; k++) {
        double *row = out->direction + k * C, most = 0;

        bp_distributed_read(vectors, C - 1 - k, 1, row);
        for (int64_t c = 0; c < C; c++)
            most = fabs(row[c]) > fabs(most) ? row[c] : most;
        for (int64_t c = 0; c < C && most < 0; c++)
            row[c] = -row[c];
    }
}

static void project(bp_principal *out, const bp_map_points *points)
{
    int64_t C = points->C;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < points->n; i++)
        for (int64_t k = 0; k < out->keep; k++) {
            double sum = 0;

            for (int64_t c = 0; c < C; c++)
                sum += (points->x[i * C + c] - out->mean[c]) * out->direction[k * C + c];
            out->score[i * out->keep + k] = sum;
        }
}

bp_err bp_principal_of(bp_principal *out, const bp_map_points *points, int64_t keep)
{
    int64_t C = points->C;
    double *values = bp_alloc("explain.principal", C, sizeof *values);
    bp_grid *grid = NULL;
    bp_distributed *covariance = NULL, *vectors = NULL;
    bp_err err = bp_grid_new(&grid, MPI_COMM_SELF);

    *out = (bp_principal){.keep = keep,
                          .mean = bp_alloc("explain.principal", C, sizeof(double)),
                          .variance = bp_alloc("explain.principal", C, sizeof(double)),
                          .direction = bp_alloc("explain.principal", keep * C, sizeof(double)),
                          .score = bp_alloc("explain.principal", points->n * keep, sizeof(double))};
    if (err == BP_OK)
        err = bp_distributed_new(&covariance, grid, C, C, 0);
    if (err == BP_OK)
        err = bp_distributed_new(&vectors, grid, C, C, 0);
    if (err == BP_OK) {
        find_mean(out->mean, points);
        err = add_up(covariance, grid, points, out->mean);
    }
    if (err == BP_OK)
        err = bp_distributed_eigen(covariance, values, vectors, NULL, NULL);
    if (err == BP_OK) {
        take(out, vectors, values, C);
        project(out, points);
    }
    bp_distributed_free(&vectors);
    bp_distributed_free(&covariance);
    bp_grid_free(&grid);
    bp_free(values);
    return err;
}

void bp_principal_clear(bp_principal *principal)
{
    bp_free(principal->mean);
    bp_free(principal->variance);
    bp_free(principal->direction);
    bp_free(principal->score);
    *principal = (bp_principal){0};
}
