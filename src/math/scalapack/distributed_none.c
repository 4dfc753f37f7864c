/* A build without ScaLAPACK: there is no grid, so functions that take one are never called. */
#include "math/scalapack/distributed.h"

const char *bp_distributed_library(void)
{
    return NULL;
}

bp_err bp_grid_new(bp_grid **out, MPI_Comm comm)
{
    (void)comm;
    *out = NULL;
    return BP_FAIL(BP_ERR_CONFIG, "build.no_scalapack",
                   "this build has no ScaLAPACK, which decompositions over ranks need: install it "
                   "(Debian: libscalapack-openmpi-dev), and build anew");
}

void bp_grid_free(bp_grid **grid)
{
    *grid = NULL;
}

int bp_grid_rows(const bp_grid *grid)
{
    BP_ASSERT(grid && "no ScaLAPACK");
    return 0;
}

int bp_grid_columns(const bp_grid *grid)
{
    BP_ASSERT(grid && "no ScaLAPACK");
    return 0;
}

bp_err bp_distributed_new(bp_distributed **out, bp_grid *grid, int64_t rows, int64_t columns,
                          int64_t block)
{
    (void)rows, (void)columns, (void)block;
    BP_ASSERT(grid && "no ScaLAPACK");
    *out = NULL;
    return BP_ERR_CONFIG;
}

void bp_distributed_free(bp_distributed **matrix)
{
    *matrix = NULL;
}

int64_t bp_distributed_bytes(int64_t rows, int64_t columns, int ranks)
{
    (void)rows, (void)columns, (void)ranks;
    return 0;
}

int64_t bp_distributed_eigen_bytes(int64_t n, int ranks)
{
    (void)n, (void)ranks;
    return 0;
}

void bp_distributed_visit(bp_distributed *matrix, void *context,
                          void (*visit)(void *context, int64_t row, int64_t first, int64_t count,
                                        double *values))
{
    (void)context, (void)visit;
    BP_ASSERT(matrix && "no ScaLAPACK");
}

bp_err bp_placement_new(bp_placement **out, bp_grid *grid, int row_part, int column_part)
{
    (void)row_part, (void)column_part;
    BP_ASSERT(grid && "no ScaLAPACK");
    *out = NULL;
    return BP_ERR_CONFIG;
}

void bp_placement_free(bp_placement **placement)
{
    *placement = NULL;
}

int bp_placement_row_parts(const bp_placement *placement)
{
    BP_ASSERT(placement && "no ScaLAPACK");
    return 0;
}

void bp_distributed_take(bp_distributed *matrix, const bp_placement *placement, const double *own)
{
    (void)placement, (void)own;
    BP_ASSERT(matrix && "no ScaLAPACK");
}

void bp_distributed_read(const bp_distributed *matrix, int64_t first, int64_t count, double *rows)
{
    (void)first, (void)count, (void)rows;
    BP_ASSERT(matrix && "no ScaLAPACK");
}

void bp_distributed_add_gram(bp_distributed *c, double alpha, const bp_distributed *x)
{
    (void)alpha, (void)x;
    BP_ASSERT(c && "no ScaLAPACK");
}

void bp_distributed_add_diagonal(bp_distributed *a, const double *values)
{
    (void)values;
    BP_ASSERT(a && "no ScaLAPACK");
}

void bp_distributed_multiply(bp_distributed *c, const bp_distributed_product *product)
{
    (void)product;
    BP_ASSERT(c && "no ScaLAPACK");
}

bp_err bp_distributed_invert(bp_distributed *a)
{
    (void)a;
    BP_ASSERT(a && "no ScaLAPACK");
    return BP_ERR_CONFIG;
}

bp_err bp_distributed_eigen(bp_distributed *a, double *values, bp_distributed *vectors,
                            bool (*stop)(void *context), void *context)
{
    (void)values, (void)vectors, (void)stop, (void)context;
    BP_ASSERT(a && "no ScaLAPACK");
    return BP_ERR_CONFIG;
}
