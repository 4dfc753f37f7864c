/* Through ScaLAPACK. A row-major matrix [rows][columns] is the column-major matrix of `columns`
 * times `rows` elements that ScaLAPACK sees: m is our columns here, n our rows. */
#include "math/scalapack/distributed.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "math/scalapack/scalapack_priv.h"
#include "mesh/collective.h"
#include "mesh/long_call.h"
#include "mesh/mesh.h"

#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#define GOOD_BLOCK 64
#define ROOT       0 /* rank in the grid's communicator that gets the rows read */

static const int ONE = 1, ZERO = 0;

struct bp_grid {
    MPI_Comm comm;    /* borrowed */
    int system;       /* BLACS's handle of it */
    int context;      /* the grid of all ranks */
    int root_context; /* only on the root; BLACS_NO_CONTEXT elsewhere */
    int rows, columns, row, column;
    bool abandoned; /* an abandoned call still uses it, and its matrices */
};

struct bp_distributed {
    bp_grid *grid;
    int64_t rows, columns;
    int own_m, own_n; /* this rank's numbers of columns and rows */
    int desc[DESC_COUNT];
    double *values; /* [own_n][own_m] */
};

struct bp_placement {
    bp_grid *grid;
    int context;
    int row_parts, column_parts, column_part;
};

const char *bp_distributed_library(void)
{
    return "scalapack";
}

/* ---- grids ---- */

static int largest_divisor_below_root(int size)
{
    int divisor = 1;

    for (int k = 1; k <= size / k; k++)
        divisor = size % k == 0 ? k : divisor;
    return divisor;
}

/* A grid of the ranks places[columns][rows]. Collective over the system handle's communicator. */
static int map_grid(int system, int *places, int rows, int columns)
{
    int context = system;

    Cblacs_gridmap(&context, places, rows, rows, columns);
    return context;
}

bp_err bp_grid_new(bp_grid **out, MPI_Comm comm)
{
    int size = bp_comm_size(comm), root = ROOT;
    bp_grid *grid = bp_alloc("math.distributed", 1, sizeof *grid);
    int *places = bp_alloc("math.distributed", size, sizeof *places);

    grid->comm = comm;
    grid->rows = largest_divisor_below_root(size);
    grid->columns = size / grid->rows;
    for (int rank = 0; rank < size; rank++)
        places[rank] = rank;
    grid->system = Csys2blacs_handle(comm);
    grid->context = map_grid(grid->system, places, grid->rows, grid->columns);
    grid->root_context = map_grid(grid->system, &root, 1, 1);
    Cblacs_gridinfo(grid->context, &grid->rows, &grid->columns, &grid->row, &grid->column);
    BP_ASSERT(grid->row >= 0 && grid->rows * grid->columns == size);
    bp_free(places);
    *out = grid;
    return BP_OK;
}

void bp_grid_free(bp_grid **grid)
{
    if (!*grid)
        return;
    if ((*grid)->abandoned) {
        *grid = NULL;
        return;
    }
    if (bp_comm_rank((*grid)->comm) == ROOT)
        Cblacs_gridexit((*grid)->root_context);
    Cblacs_gridexit((*grid)->context);
    Cfree_blacs_system_handle((*grid)->system);
    bp_free(*grid);
    *grid = NULL;
}

int bp_grid_rows(const bp_grid *grid)
{
    return grid->rows;
}

int bp_grid_columns(const bp_grid *grid)
{
    return grid->columns;
}

/* ---- matrices ---- */

static int checked_int(int64_t n)
{
    BP_ASSERT(n >= 0 && n <= INT_MAX);
    return (int)n;
}

static void describe(int desc[DESC_COUNT], int context, int m, int n, int block_m, int block_n,
                     int own_m)
{
    desc[DESC_TYPE] = DESC_DENSE;
    desc[DESC_CONTEXT] = context;
    desc[DESC_M] = m;
    desc[DESC_N] = n;
    desc[DESC_MB] = block_m;
    desc[DESC_NB] = block_n;
    desc[DESC_RSRC] = desc[DESC_CSRC] = 0;
    desc[DESC_LLD] = own_m > 1 ? own_m : 1;
}

bp_err bp_distributed_new(bp_distributed **out, bp_grid *grid, int64_t rows, int64_t columns,
                          int64_t block)
{
    bp_distributed *matrix = bp_alloc("math.distributed", 1, sizeof *matrix);
    int m = checked_int(columns), n = checked_int(rows), b = checked_int(block);
    bp_err err = BP_OK;

    BP_ASSERT(rows > 0 && columns > 0);
    b = b > 0 ? b : GOOD_BLOCK;
    matrix->grid = grid;
    matrix->rows = rows;
    matrix->columns = columns;
    matrix->own_m = numroc_(&m, &b, &grid->row, &ZERO, &grid->rows);
    matrix->own_n = numroc_(&n, &b, &grid->column, &ZERO, &grid->columns);
    describe(matrix->desc, grid->context, m, n, b, b, matrix->own_m);
    int64_t own = (int64_t)matrix->own_m * matrix->own_n;
    if (own <= INT_MAX) /* ScaLAPACK's indices are 32 bits */
        matrix->values = bp_try_alloc("math.distributed", own > 0 ? own : 1, sizeof(double));
    if (!matrix->values)
        err =
            BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                    "memory is short: at a rank's part of %lld x %lld of a matrix of %lld x %lld; "
                    "use more ranks",
                    (long long)matrix->own_n, (long long)matrix->own_m, (long long)rows,
                    (long long)columns);
    err = bp_agree(grid->comm, err);
    if (err != BP_OK)
        bp_distributed_free(&matrix);
    *out = matrix;
    return err;
}

void bp_distributed_free(bp_distributed **matrix)
{
    if (*matrix && !(*matrix)->grid->abandoned) {
        bp_free((*matrix)->values);
        bp_free(*matrix);
    }
    *matrix = NULL;
}

/* For place i on rank `at` of `parts`, counted over all. */
static int64_t global_of(int64_t i, int64_t block, int at, int parts)
{
    return (i / block * parts + at) * block + i % block;
}

void bp_distributed_visit(bp_distributed *matrix, void *context,
                          void (*visit)(void *context, int64_t row, int64_t first, int64_t count,
                                        double *values))
{
    const bp_grid *grid = matrix->grid;
    int64_t m = matrix->own_m, n = matrix->own_n, block = matrix->desc[DESC_MB];

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < n; j++) {
        int64_t row = global_of(j, block, grid->column, grid->columns);

        for (int64_t i = 0; i < m; i += block)
            visit(context, row, global_of(i, block, grid->row, grid->rows),
                  m - i < block ? m - i : block, matrix->values + j * m + i);
    }
}

/* ---- data of ranks goes in and out ---- */

bp_err bp_placement_new(bp_placement **out, bp_grid *grid, int row_part, int column_part)
{
    int size = bp_comm_size(grid->comm), own[2] = {row_part, column_part}, taken = 0;
    bp_placement *placement = bp_alloc("math.distributed", 1, sizeof *placement);
    int(*parts)[2] = bp_alloc("math.distributed", size, sizeof *parts);
    int *places = bp_alloc("math.distributed", size, sizeof *places);

    BP_MPI_WAIT("all_gather", MPI_Allgather(own, 2, MPI_INT, parts, 2, MPI_INT, grid->comm));
    for (int rank = 0; rank < size; rank++) {
        if (parts[rank][0] >= placement->row_parts)
            placement->row_parts = parts[rank][0] + 1;
        if (parts[rank][1] >= placement->column_parts)
            placement->column_parts = parts[rank][1] + 1;
    }
    for (int rank = 0; rank < size; rank++)
        if (parts[rank][0] >= 0) {
            places[parts[rank][0] * placement->column_parts + parts[rank][1]] = rank;
            taken++;
        }
    BP_ASSERT(taken > 0 && taken == placement->row_parts * placement->column_parts);
    placement->grid = grid;
    placement->column_part = column_part;
    placement->context =
        map_grid(grid->system, places, placement->column_parts, placement->row_parts);
    bp_free(places);
    bp_free(parts);
    *out = placement;
    return BP_OK;
}

void bp_placement_free(bp_placement **placement)
{
    if (*placement && !(*placement)->grid->abandoned) {
        if ((*placement)->column_part >= 0)
            Cblacs_gridexit((*placement)->context);
        bp_free(*placement);
    }
    *placement = NULL;
}

int bp_placement_row_parts(const bp_placement *placement)
{
    return placement->row_parts;
}

void bp_distributed_take(bp_distributed *matrix, const bp_placement *placement, const double *own)
{
    int m = checked_int(matrix->columns), n = checked_int(matrix->rows);
    int width = (m + placement->column_parts - 1) / placement->column_parts;
    int height = (n + placement->row_parts - 1) / placement->row_parts;
    bool has = placement->column_part >= 0;
    int own_m =
        has ? numroc_(&m, &width, &placement->column_part, &ZERO, &placement->column_parts) : 0;
    int desc[DESC_COUNT];

    describe(desc, has ? placement->context : BLACS_NO_CONTEXT, m, n, width, height, own_m);
    pdgemr2d_(&m, &n, own, &ONE, &ONE, desc, matrix->values, &ONE, &ONE, matrix->desc,
              &matrix->grid->context);
}

void bp_distributed_read(const bp_distributed *matrix, int64_t first, int64_t count, double *rows)
{
    const bp_grid *grid = matrix->grid;
    bool has = bp_comm_rank(grid->comm) == ROOT;
    int m = checked_int(matrix->columns), n = checked_int(count), from = checked_int(first + 1);
    int desc[DESC_COUNT];

    BP_ASSERT(first >= 0 && count >= 0 && first + count <= matrix->rows);
    if (count == 0)
        return;
    describe(desc, has ? grid->root_context : BLACS_NO_CONTEXT, m, n, m, n, m);
    pdgemr2d_(&m, &n, matrix->values, &ONE, &from, matrix->desc, rows, &ONE, &ONE, desc,
              &grid->context);
}

/* ---- products ---- */

void bp_distributed_add_gram(bp_distributed *c, double alpha, const bp_distributed *x)
{
    int n = checked_int(x->columns), k = checked_int(x->rows);
    double keep = 1;

    BP_ASSERT(c->rows == x->columns && c->columns == x->columns);
    bp_heartbeat_enter("pdsyrk");
    pdsyrk_("L", "N", &n, &k, &alpha, x->values, &ONE, &ONE, x->desc, &keep, c->values, &ONE, &ONE,
            c->desc);
    bp_heartbeat_leave();
}

static void add_to_diagonal(void *context, int64_t row, int64_t first, int64_t count,
                            double *values)
{
    if (row >= first && row < first + count)
        values[row - first] += ((const double *)context)[row];
}

void bp_distributed_add_diagonal(bp_distributed *a, const double *values)
{
    BP_ASSERT(a->rows == a->columns);
    bp_distributed_visit(a, (void *)(uintptr_t)values, add_to_diagonal);
}

/* (op(a) op(b))^T = op(b)^T op(a)^T: ScaLAPACK sees transposed matrices, so the operands swap
 * places and keep their op. */
void bp_distributed_multiply(bp_distributed *c, const bp_distributed_product *product)
{
    const bp_distributed *a = product->a, *b = product->b;
    int m = checked_int(c->columns), n = checked_int(c->rows);
    int k = checked_int(product->transpose_a ? a->rows : a->columns);

    BP_ASSERT(k == (product->transpose_b ? b->columns : b->rows));
    BP_ASSERT(n == (product->transpose_a ? a->columns : a->rows));
    BP_ASSERT(m == (product->transpose_b ? b->rows : b->columns));
    bp_heartbeat_enter("pdgemm");
    pdgemm_(product->transpose_b ? "T" : "N", product->transpose_a ? "T" : "N", &m, &n, &k,
            &product->alpha, b->values, &ONE, &ONE, b->desc, a->values, &ONE, &ONE, a->desc,
            &product->beta, c->values, &ONE, &ONE, c->desc);
    bp_heartbeat_leave();
}

/* ---- inverses ---- */

/* Column-major it is the lower triangle: a = L L^T, and the inverse of L is our a's transpose. */
bp_err bp_distributed_invert(bp_distributed *a)
{
    int n = checked_int(a->rows), info = 0;
    bp_err err = BP_OK;

    BP_ASSERT(a->rows == a->columns);
    bp_heartbeat_enter("pdpotrf");
    pdpotrf_("L", &n, a->values, &ONE, &ONE, a->desc, &info, 1);
    if (info == 0)
        pdtrtri_("L", "N", &n, a->values, &ONE, &ONE, a->desc, &info, 1, 1);
    bp_heartbeat_leave();
    if (info != 0)
        err = BP_FAIL(BP_ERR_SOFTWARE, "math.not_definite",
                      "a matrix of %d x %d is not positive definite: at its row %d", n, n, info);
    return bp_agree(a->grid->comm, err);
}

/* ---- eigenvectors ---- */

typedef struct eigen_work {
    int64_t reals, integers;
} eigen_work;

/* More than pdsyevd asks for: it checks only for the needs of its first steps, and two routines
 * that it calls need more if blocks are large relative to the matrix: pdlasrt (ScaLAPACK's issue
 * 74) and pdormtr. */
static eigen_work eigen_work_of(int64_t n, int64_t block, int64_t own_m, int64_t own_n,
                                int64_t grid_columns)
{
    int64_t first = 3 * n + (own_m + 3) * block + 3 * block;
    int64_t divide = 1 + 6 * n + 2 * own_m * own_n;
    int64_t sort = n + own_m * (block + own_n);
    int64_t back = block * block + (own_m + own_n + block) * block;
    int64_t most = first > divide ? first : divide;

    most = most > sort ? most : sort;
    most = most > back ? most : back;
    return (eigen_work){.reals = most + 4 * n + block,
                        .integers = 8 * n + 8 * grid_columns + 2 * block + 16};
}

int64_t bp_distributed_bytes(int64_t rows, int64_t columns, int ranks)
{
    int grid_rows = largest_divisor_below_root(ranks), grid_columns = ranks / grid_rows;
    int m = checked_int(rows), n = checked_int(columns), block = GOOD_BLOCK;
    int64_t own_rows = numroc_(&m, &block, &ZERO, &ZERO, &grid_rows);
    int64_t own_columns = numroc_(&n, &block, &ZERO, &ZERO, &grid_columns);

    return own_rows * own_columns * (int64_t)sizeof(double);
}

int64_t bp_distributed_eigen_bytes(int64_t n, int ranks)
{
    int rows = largest_divisor_below_root(ranks), columns = ranks / rows;
    int own_n = checked_int(n), block = GOOD_BLOCK;
    int64_t own_rows = numroc_(&own_n, &block, &ZERO, &ZERO, &rows);
    int64_t own_columns = numroc_(&own_n, &block, &ZERO, &ZERO, &columns);
    eigen_work work = eigen_work_of(n, block, own_rows, own_columns, columns);

    return (2 * own_rows * own_columns + work.reals) * (int64_t)sizeof(double) +
           work.integers * (int64_t)sizeof(int);
}

static bool all_finite(const double *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* Everything that pdsyevd uses except the matrices: on the heap, since the call may be
 * abandoned. */
typedef struct eigen_call {
    bp_distributed *a, *vectors;
    int n, reals, integers, info;
    double *values, *work;
    int *iwork;
    int threads; /* the caller's: another thread has its own OpenMP settings */
} eigen_call;

static void eigen_call_free(eigen_call *call)
{
    if (!call)
        return;
    bp_free(call->iwork);
    bp_free(call->work);
    bp_free(call->values);
    bp_free(call);
}

static bp_err eigen_call_new(eigen_call **out, bp_distributed *a, bp_distributed *vectors)
{
    eigen_work size =
        eigen_work_of(a->rows, a->desc[DESC_NB], a->own_m, a->own_n, a->grid->columns);
    eigen_call *call = bp_alloc("math.distributed", 1, sizeof *call);

    *out = call;
    call->a = a;
    call->vectors = vectors;
    call->n = checked_int(a->rows);
    call->threads = omp_get_max_threads();
    call->reals = size.reals <= INT_MAX ? (int)size.reals : 0;
    call->integers = checked_int(size.integers);
    call->values = bp_alloc("math.distributed", call->n, sizeof(double));
    call->iwork = bp_alloc("math.distributed", call->integers, sizeof(int));
    if (call->reals > 0)
        call->work = bp_try_alloc("math.distributed", call->reals, sizeof(double));
    if (call->work)
        return BP_OK;
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                   "memory is short: at the workspace for the eigenvectors of %lld x %lld, %.1f "
                   "MiB on a rank; use more ranks",
                   (long long)a->rows, (long long)a->rows,
                   (double)size.reals * sizeof(double) / 1048576);
}

static void call_pdsyevd(void *context)
{
    eigen_call *call = context;

    omp_set_num_threads(call->threads);
    pdsyevd_("V", "L", &call->n, call->a->values, &ONE, &ONE, call->a->desc, call->values,
             call->vectors->values, &ONE, &ONE, call->vectors->desc, call->work, &call->reals,
             call->iwork, &call->integers, &call->info, 1, 1);
}

/* Collective. Copies the values to all ranks. */
static bp_err finish_eigen(const eigen_call *call, double *values, MPI_Comm comm)
{
    bp_err err = BP_OK;

    memcpy(values, call->values, (size_t)call->n * sizeof *values);
    /* The process that has it solves a matrix of one block, and keeps the values. */
    bp_bcast_bytes(values, (int64_t)call->n * (int64_t)sizeof *values, ROOT, comm);
    if (call->info != 0 || !all_finite(values, call->n))
        err = BP_FAIL(BP_ERR_SOFTWARE, "math.no_eigenvectors",
                      "no eigenvectors of %d x %d were found: pdsyevd says %d", call->n, call->n,
                      call->info);
    return bp_agree(comm, err);
}

static bp_err run_eigen(bp_distributed *a, double *values, bp_distributed *vectors,
                        const bp_long_call *asked)
{
    bp_grid *grid = a->grid;
    eigen_call *call = NULL;
    bp_err err = bp_agree(grid->comm, eigen_call_new(&call, a, vectors));

    if (err == BP_OK) {
        bp_heartbeat_enter("pdsyevd");
        grid->abandoned =
            !bp_long_call_run(grid->comm, &(bp_long_call){.work = call_pdsyevd,
                                                          .context = call,
                                                          .stop = asked->stop,
                                                          .stop_context = asked->stop_context});
        bp_heartbeat_leave();
        if (grid->abandoned)
            return bp_fail_stopped("at the eigenvectors of %lld x %lld", (long long)a->rows,
                                   (long long)a->rows);
        err = finish_eigen(call, values, grid->comm);
    }
    eigen_call_free(call);
    return err;
}

bp_err bp_distributed_eigen(bp_distributed *a, double *values, bp_distributed *vectors,
                            bool (*stop)(void *context), void *context)
{
    const bp_long_call asked = {.stop = stop, .stop_context = context};
    bp_err err = BP_OK;

    BP_ASSERT(a->rows == a->columns && vectors->rows == a->rows && vectors->columns == a->rows);
    BP_ASSERT(vectors->desc[DESC_NB] == a->desc[DESC_NB]);
    if (!all_finite(a->values, (int64_t)a->own_m * a->own_n)) /* pdsyevd may go on forever then */
        err = BP_FAIL(BP_ERR_SOFTWARE, "math.not_finite",
                      "a matrix of %lld x %lld holds values that are not finite",
                      (long long)a->rows, (long long)a->columns);
    err = bp_agree(a->grid->comm, err);
    return err == BP_OK ? run_eigen(a, values, vectors, &asked) : err;
}
