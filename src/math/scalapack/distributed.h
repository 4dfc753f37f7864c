/* Dense linear algebra over ranks (ScaLAPACK): double matrices dealt out in square blocks.
 *
 * Matrices are row-major to the caller, as everywhere in bagpipe. Inside they are their own
 * transposes, column-major, and a grid of processes holds them block-cyclically; any number of
 * ranks is allowed (a prime number makes a grid of one row). Without ScaLAPACK bp_grid_new returns
 * an error, and no other function is ever called.
 *
 * Results at different numbers of ranks are equal up to rounding, not bitwise.
 *
 * Collective: all over the grid's communicator, with equal arguments on all its ranks unless
 *             documented as a rank's own. Errors are the same on all ranks unless documented as
 *             BP_ASSERTed.
 */
#pragma once

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_grid bp_grid;
typedef struct bp_distributed bp_distributed;
typedef struct bp_placement bp_placement;

/** "scalapack", or NULL in a build without it. Local. */
const char *bp_distributed_library(void);

/** All ranks of `comm` as a grid, as square as their number allows.
 *
 * Owns:       *out is the caller's, bp_grid_free(); `comm` is borrowed until then.
 * Errors:     BP_ERR_CONFIG a build without ScaLAPACK; BP_ERR_SYSTEM no memory. *out NULL.
 */
bp_err bp_grid_new(bp_grid **out, MPI_Comm comm);
/** An abandoned grid (bp_distributed_eigen) is not freed, here and below. */
void bp_grid_free(bp_grid **grid);
int bp_grid_rows(const bp_grid *grid);
int bp_grid_columns(const bp_grid *grid);

/** A matrix of zeros in blocks of block x block; block 0: a good size.
 *
 * Owns:       *out is the caller's, bp_distributed_free(); the grid is borrowed until then.
 * Errors:     BP_ERR_SYSTEM no memory, or more than 2^31 elements on a rank. *out NULL.
 */
bp_err bp_distributed_new(bp_distributed **out, bp_grid *grid, int64_t rows, int64_t columns,
                          int64_t block);
void bp_distributed_free(bp_distributed **matrix); /* local; NULL is accepted */
/** Bytes of the fullest rank's part of a matrix over `ranks`, in blocks of a good size. Local. */
int64_t bp_distributed_bytes(int64_t rows, int64_t columns, int ranks);
/** Bytes that bp_distributed_eigen takes on the fullest of `ranks` ranks for matrix, vectors and
 * workspace. Local. */
int64_t bp_distributed_eigen_bytes(int64_t n, int ranks);

/** Call `visit` for each run of elements of one row that this rank holds: values[count] are
 * [row][first .. first + count), to read or to write. Runs come in any order and from several
 * threads at once. Local. */
void bp_distributed_visit(bp_distributed *matrix, void *context,
                          void (*visit)(void *context, int64_t row, int64_t first, int64_t count,
                                        double *values));

/** The division of rows computed by ranks: parts of rows times parts of columns, each place taken
 * by one rank.
 *
 * row_part, column_part: this rank's place, from 0; both -1 if it has no place.
 * Errors:     BP_ERR_SYSTEM no memory. Places that leave a hole are BP_ASSERTed.
 */
bp_err bp_placement_new(bp_placement **out, bp_grid *grid, int row_part, int column_part);
void bp_placement_free(bp_placement **placement);
int bp_placement_row_parts(const bp_placement *placement);

/** matrix = the ranks' parts. With n columns, part c has [c w, (c + 1) w), w = n / (column parts)
 * rounded up, less at the end; the same for rows.
 *
 * Shapes:     own[rows of this rank's part][columns of its part]; not read if it has no place.
 */
void bp_distributed_take(bp_distributed *matrix, const bp_placement *placement, const double *own);
/** rows[count][columns] = rows [first, first + count) of the matrix, only on rank 0; on the other
 * ranks `rows` may be NULL. */
void bp_distributed_read(const bp_distributed *matrix, int64_t first, int64_t count, double *rows);

/** c += alpha x^T x, for x [k][n]; only the part of c [n][n] on and above the diagonal (column >=
 * row) is computed, here and below. ScaLAPACK's pdsyrk. */
void bp_distributed_add_gram(bp_distributed *c, double alpha, const bp_distributed *x);
/** a[i][i] += values[i]. */
void bp_distributed_add_diagonal(bp_distributed *a, const double *values);

/** c = alpha op(a) op(b) + beta c, where op is the transpose if asked. ScaLAPACK's pdgemm. */
typedef struct bp_distributed_product {
    const bp_distributed *a, *b;
    bool transpose_a, transpose_b;
    double alpha, beta;
} bp_distributed_product;
void bp_distributed_multiply(bp_distributed *c, const bp_distributed_product *product);

/** The inverse of a symmetric positive definite matrix by Cholesky's factorisation: a [n][n], of
 * which only column >= row is read, becomes upper triangular with a a^T the inverse of the input;
 * elements below the diagonal are undefined. ScaLAPACK's pdpotrf and pdtrtri.
 *
 * Errors:     BP_ERR_SOFTWARE it is not positive definite.
 */
bp_err bp_distributed_invert(bp_distributed *a);

/** Eigenvalues of a symmetric matrix in ascending order, and its eigenvectors: row i of `vectors`
 * belongs to values[i], has unit length, and the library's sign. ScaLAPACK's pdsyevd.
 *
 * stop: called on every rank about four times a second while the library computes; may be NULL. If
 * it returns true on any rank, all ranks return BP_ERR_STOPPED within a second. The library can't
 * be interrupted and continues on its thread: the grid is abandoned, and the process can only end
 * (mesh/long_call.h). Not called without MPI_THREAD_MULTIPLE.
 *
 * Shapes:     a [n][n], of which only column >= row is read, is destroyed; values[n], on all
 *             ranks; vectors [n][n] in blocks as a's.
 * Errors:     BP_ERR_SYSTEM no memory for its workspace; BP_ERR_SOFTWARE no convergence (values
 *             that are not finite); BP_ERR_STOPPED.
 * Source:     Tisseur and Dongarra 1999, "A parallel divide and conquer algorithm for the
 *             symmetric eigenvalue problem on distributed memory architectures".
 */
bp_err bp_distributed_eigen(bp_distributed *a, double *values, bp_distributed *vectors,
                            bool (*stop)(void *context), void *context);
