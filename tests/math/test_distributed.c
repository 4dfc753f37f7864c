/* Matrices over ranks against plain loops, LAPACK and numpy: any number of ranks, blocks that do
 * not divide, matrices smaller than a block. */
#include "base/rng.h"
#include "bp_test_mpi.h"
#include "math/scalapack/distributed.h"

#include <math.h>

#define WORLD  MPI_COMM_WORLD
#define PYTHON "/usr/bin/python3"

void dsyevd_(const char *job, const char *triangle, const int *n, double *a, const int *lda,
             double *values, double *work, const int *work_count, int *iwork,
             const int *iwork_count, int *info, size_t job_bytes, size_t triangle_bytes);

static int64_t at_least_1(int64_t n)
{
    return n > 0 ? n : 1;
}

static double *new_reals(int64_t n)
{
    double *values = bp_alloc("test", at_least_1(n), sizeof *values);

    assert_non_null(values);
    return values;
}

/* An element of the matrix `number`, the same on all ranks. */
static double element(int64_t number, int64_t row, int64_t column)
{
    bp_rng_key key = bp_rng_key_of(7, BP_RNG_TEST, number, 0, 0);

    return bp_rng_normal(&key, (uint64_t)(row * 100000 + column));
}

static double *whole_matrix(int64_t number, int64_t rows, int64_t columns)
{
    double *a = new_reals(rows * columns);

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            a[i * columns + j] = element(number, i, j);
    return a;
}

typedef struct source {
    const double *values;
    int64_t columns;
} source;

static void copy_in(void *context, int64_t row, int64_t first, int64_t count, double *values)
{
    const source *from = context;

    memcpy(values, from->values + row * from->columns + first, (size_t)count * sizeof *values);
}

/* The matrix that all ranks have, dealt out. */
static bp_distributed *dealt(bp_grid *grid, const double *values, int64_t rows, int64_t columns,
                             int64_t block)
{
    bp_distributed *matrix;
    source from = {values, columns};

    bp_test_expect(bp_distributed_new(&matrix, grid, rows, columns, block), BP_OK);
    bp_distributed_visit(matrix, &from, copy_in);
    return matrix;
}

/* The whole of it, on all ranks. */
static double *gathered(const bp_distributed *matrix, int64_t rows, int64_t columns)
{
    double *values = new_reals(rows * columns);

    bp_distributed_read(matrix, 0, rows, bp_comm_is_root(WORLD) ? values : NULL);
    BP_MPI(MPI_Bcast(values, (int)(rows * columns), MPI_DOUBLE, 0, WORLD));
    return values;
}

static double largest_difference(const double *a, const double *b, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

/* ---- what goes in comes out ---- */

typedef struct visits {
    int64_t rows, columns, count;
    int *seen;
    bool outside;
} visits;

static void count_visit(void *context, int64_t row, int64_t first, int64_t count, double *values)
{
    visits *all = context;

    (void)values;
    for (int64_t j = first; j < first + count; j++) {
        if (row < 0 || row >= all->rows || j < 0 || j >= all->columns)
            all->outside = true;
        else
            all->seen[row * all->columns + j]++; /* a place of its own: no two threads */
    }
}

static void each_element_is_visited_once(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 64}, {5, 3, 2}, {40, 70, 64}, {64, 129, 7}};
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    bp_test_check(WORLD, bp_grid_rows(grid) * bp_grid_columns(grid) == bp_comm_size(WORLD));
    bp_test_check(WORLD, bp_grid_rows(grid) <= bp_grid_columns(grid));
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        visits all = {.rows = shapes[k][0], .columns = shapes[k][1]};
        bp_distributed *matrix;
        bool once = true;

        all.seen = bp_alloc("test", all.rows * all.columns, sizeof *all.seen);
        bp_test_expect(bp_distributed_new(&matrix, grid, all.rows, all.columns, shapes[k][2]),
                       BP_OK);
        bp_distributed_visit(matrix, &all, count_visit);
        BP_MPI(MPI_Allreduce(MPI_IN_PLACE, all.seen, (int)(all.rows * all.columns), MPI_INT,
                             MPI_SUM, WORLD));
        for (int64_t i = 0; i < all.rows * all.columns; i++)
            once = once && all.seen[i] == 1;
        bp_test_check(WORLD, once && !all.outside);
        bp_distributed_free(&matrix);
        bp_free(all.seen);
    }
    bp_grid_free(&grid);
}

/* Part `at` of n in so many parts. */
static int64_t part_of(int64_t n, int parts, int at, int64_t *first)
{
    int64_t width = (n + parts - 1) / parts;

    *first = at < 0 ? n : at * width < n ? at * width : n;
    return *first + width < n ? width : n - *first;
}

/* Ranks compute rows of a matrix in row_parts x column_parts; ranks beyond them nothing. */
static void check_placement(bp_grid *grid, int row_parts, int column_parts, int64_t rows, int64_t n)
{
    int rank = bp_comm_rank(WORLD), working = row_parts * column_parts;
    int part = working - 1 - rank; /* not the order of ranks */
    int row_part = rank < working ? part / column_parts : -1;
    int column_part = rank < working ? part % column_parts : -1;
    int64_t row, first, count = part_of(rows, row_parts, row_part, &row);
    int64_t own = part_of(n, column_parts, column_part, &first);
    double *mine = new_reals(count * own), *expected = whole_matrix(3, rows, n), *got;
    bp_placement *placement;
    bp_distributed *matrix;

    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < own; j++)
            mine[i * own + j] = element(3, row + i, first + j);
    bp_test_expect(bp_placement_new(&placement, grid, row_part, column_part), BP_OK);
    bp_test_check(WORLD, bp_placement_row_parts(placement) == row_parts);
    bp_test_expect(bp_distributed_new(&matrix, grid, rows, n, 3), BP_OK);
    bp_distributed_take(matrix, placement, mine);
    got = gathered(matrix, rows, n);
    bp_test_check(WORLD, memcmp(got, expected, (size_t)(rows * n) * sizeof *got) == 0);
    for (int64_t from = 0; from <= rows; from += 2) { /* a part */
        int64_t some = rows - from < 3 ? rows - from : 3;
        bp_distributed_read(matrix, from, some, got);
        bp_test_check(WORLD,
                      !bp_comm_is_root(WORLD) ||
                          memcmp(got, expected + from * n, (size_t)(some * n) * sizeof *got) == 0);
    }
    bp_free(got);
    bp_distributed_free(&matrix);
    bp_placement_free(&placement);
    bp_free(expected);
    bp_free(mine);
}

static void rows_that_ranks_have_come_together(void **state)
{
    int size = bp_comm_size(WORLD);
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    for (int column_parts = 1; column_parts <= size; column_parts++)
        for (int row_parts = 1; row_parts * column_parts <= size; row_parts++) {
            check_placement(grid, row_parts, column_parts, 14, 11);
            check_placement(grid, row_parts, column_parts, 1, 1);
            check_placement(grid, row_parts, column_parts, 6, 5);
        }
    bp_grid_free(&grid);
}

/* ---- products ---- */

static void product_is_that_of_loops(void **state)
{
    enum { I = 37, J = 18, K = 70 };
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    for (int form = 0; form < 4; form++) {
        bool ta = form & 1, tb = form & 2;
        double *a = whole_matrix(1, ta ? K : I, ta ? I : K);
        double *b = whole_matrix(2, tb ? J : K, tb ? K : J), *c = whole_matrix(3, I, J), *got;
        bp_distributed *da = dealt(grid, a, ta ? K : I, ta ? I : K, 5);
        bp_distributed *db = dealt(grid, b, tb ? J : K, tb ? K : J, 5);
        bp_distributed *dc = dealt(grid, c, I, J, 5);

        bp_distributed_multiply(
            dc,
            &(bp_distributed_product){
                .a = da, .b = db, .transpose_a = ta, .transpose_b = tb, .alpha = 0.5, .beta = -2});
        for (int64_t i = 0; i < I; i++)
            for (int64_t j = 0; j < J; j++) {
                double sum = 0;
                for (int64_t k = 0; k < K; k++)
                    sum += (ta ? a[k * I + i] : a[i * K + k]) * (tb ? b[j * K + k] : b[k * J + j]);
                c[i * J + j] = 0.5 * sum - 2 * c[i * J + j];
            }
        got = gathered(dc, I, J);
        /* 70 products of normal numbers: their rounding is below 1e-13 */
        bp_test_check(WORLD, largest_difference(got, c, I * J) < 1e-12);
        bp_free(got);
        bp_distributed_free(&dc);
        bp_distributed_free(&db);
        bp_distributed_free(&da);
        bp_free(c);
        bp_free(b);
        bp_free(a);
    }
    bp_grid_free(&grid);
}

/* c += alpha x^T x and diagonal, on and above the diagonal; returned whole, symmetric. */
static double *plain_gram(const double *x, int64_t k, int64_t n, double alpha)
{
    double *c = new_reals(n * n);

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            for (int64_t r = 0; r < k; r++)
                c[i * n + j] += alpha * x[r * n + i] * x[r * n + j];
            c[i * n + j] += i == j ? (double)i : 0;
        }
    return c;
}

static bp_distributed *dealt_gram(bp_grid *grid, const double *x, int64_t k, int64_t n,
                                  double alpha, int64_t block)
{
    bp_distributed *c, *dx = dealt(grid, x, k, n, block);
    double *diagonal = new_reals(n);

    bp_test_expect(bp_distributed_new(&c, grid, n, n, block), BP_OK);
    for (int64_t i = 0; i < n; i++)
        diagonal[i] = (double)i;
    bp_distributed_add_gram(c, alpha / 2, dx);
    bp_distributed_add_diagonal(c, diagonal);
    bp_distributed_add_gram(c, alpha / 2, dx);
    bp_distributed_free(&dx);
    bp_free(diagonal);
    return c;
}

static void gram_is_that_of_loops(void **state)
{
    static const int64_t shapes[][3] = {{1, 1, 64}, {50, 33, 5}, {3, 70, 64}, {90, 8, 16}};
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t k = shapes[s][0], n = shapes[s][1];
        double *x = whole_matrix(4, k, n), *expected = plain_gram(x, k, n, -0.25);
        bp_distributed *c = dealt_gram(grid, x, k, n, -0.25, shapes[s][2]);
        double *got = gathered(c, n, n), most = 0;

        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i; j < n; j++)
                most = fmax(most, fabs(got[i * n + j] - expected[i * n + j]));
        bp_test_check(WORLD, most < 1e-12);
        bp_free(got);
        bp_distributed_free(&c);
        bp_free(expected);
        bp_free(x);
    }
    bp_grid_free(&grid);
}

/* ---- eigenvectors ---- */

/* LAPACK's eigenvalues of a whole matrix, which it destroys. */
static void lapack_values(double *a, int64_t n, double *values)
{
    int order = (int)n, info = -1, reals = (int)(1 + 6 * n + 2 * n * n),
        integers = (int)(3 + 5 * n);
    double *work = new_reals(reals);
    int *iwork = bp_alloc("test", integers, sizeof *iwork);

    dsyevd_("V", "L", &order, a, &order, values, work, &reals, iwork, &integers, &info, 1, 1);
    assert_int_equal(info, 0);
    bp_free(iwork);
    bp_free(work);
}

/* max |V a - diag(values) V| and max |V V^T - 1|, V's rows being the eigenvectors. */
static double residual(const double *a, const double *values, const double *vectors, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double product = -values[i] * vectors[i * n + j], dot = i == j ? -1 : 0;
            for (int64_t k = 0; k < n; k++) {
                product += vectors[i * n + k] * a[k * n + j];
                dot += vectors[i * n + k] * vectors[j * n + k];
            }
            most = fmax(most, fmax(fabs(product), fabs(dot)));
        }
    return most;
}

static bool go_on(void *context)
{
    (void)context;
    return false;
}

static void check_eigen(bp_grid *grid, const double *a, int64_t n, int64_t block)
{
    bp_distributed *da = dealt(grid, a, n, n, block), *vectors;
    double *values = new_reals(n), *expected = new_reals(n), *copy = new_reals(n * n), *whole;
    double scale = 1;

    bp_test_expect(bp_distributed_new(&vectors, grid, n, n, block), BP_OK);
    bp_test_check_err(WORLD, bp_distributed_eigen(da, values, vectors, go_on, NULL), BP_OK);
    whole = gathered(vectors, n, n);
    memcpy(copy, a, (size_t)(n * n) * sizeof *copy);
    lapack_values(copy, n, expected);
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(expected[i]));
    /* backward stable: n eps |a|, with workspace */
    bp_test_check(WORLD, largest_difference(values, expected, n) < 1e-13 * (double)n * scale);
    bp_test_check(WORLD, residual(a, values, whole, n) < 1e-13 * (double)n * scale);
    bp_free(whole);
    bp_free(copy);
    bp_free(expected);
    bp_free(values);
    bp_distributed_free(&vectors);
    bp_distributed_free(&da);
}

static void spectra_are_those_of_lapack(void **state)
{
    /* blocks that do not divide, are larger than the matrix, or nearly as large (ScaLAPACK's issue
     * 74) */
    static const int64_t shapes[][2] = {{1, 64},  {2, 64},  {3, 1},   {5, 2},    {20, 64},
                                        {65, 64}, {64, 16}, {100, 7}, {128, 70}, {150, 32}};
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t n = shapes[s][0];
        double *x = whole_matrix(5, n + 3, n), *a = plain_gram(x, n + 3, n, 0.1);

        check_eigen(grid, a, n, shapes[s][1]);
        bp_free(a);
        bp_free(x);
    }
    bp_grid_free(&grid);
}

static void equal_eigenvalues_have_orthogonal_vectors(void **state)
{
    enum { N = 90 };
    double *a = new_reals(N * N);
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    check_eigen(grid, a, N, 8); /* zero */
    for (int64_t i = 0; i < N; i++)
        a[i * N + i] = 3;
    check_eigen(grid, a, N, 8);
    for (int64_t i = 0; i < N * N; i++) /* rank 1: 89 zeros */
        a[i] = 1;
    check_eigen(grid, a, N, 8);
    bp_grid_free(&grid);
    bp_free(a);
}

/* ---- inverses ---- */

/* max |R R^T a - 1| of an upper triangular R, whose lower part means nothing. */
static double inverse_error(const double *r, const double *a, int64_t n)
{
    double *y = new_reals(n * n), most = 0; /* R^T a */

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t k = 0; k <= i; k++)
                y[i * n + j] += r[k * n + i] * a[k * n + j];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = -(double)(i == j);

            for (int64_t k = i; k < n; k++)
                sum += r[i * n + k] * y[k * n + j];
            most = fmax(most, fabs(sum));
        }
    bp_free(y);
    return most;
}

static void inverses_are_what_they_are_called(void **state)
{
    static const int64_t shapes[][2] = {{1, 4}, {7, 64}, {50, 8}};
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t n = shapes[s][0];
        double *x = whole_matrix(8, n, n), *a = new_reals(n * n), *inverse;

        for (int64_t i = 0; i < n * n; i++)
            for (int64_t k = 0; k < n; k++)
                a[i] += x[k * n + i / n] * x[k * n + i % n] / (double)n;
        for (int64_t i = 0; i < n; i++)
            a[i * n + i] += 0.5;
        bp_distributed *matrix = dealt(grid, a, n, n, shapes[s][1]);
        bp_test_check_err(WORLD, bp_distributed_invert(matrix), BP_OK);
        inverse = gathered(matrix, n, n);
        bp_test_check(WORLD, inverse_error(inverse, a, n) < 1e-12 * (double)n);
        bp_distributed_free(&matrix);
        a[n * n - 1] = -1;
        matrix = dealt(grid, a, n, n, shapes[s][1]);
        bp_test_check_err(WORLD, bp_distributed_invert(matrix), BP_ERR_SOFTWARE);
        bp_test_message_has("[math.not_definite]");
        bp_distributed_free(&matrix);
        bp_free(inverse);
        bp_free(a);
        bp_free(x);
    }
    bp_grid_free(&grid);
}

static void dump(const char *path, const double *values, int64_t n)
{
    bp_test_expect(bp_file_write(path, values, (size_t)n * sizeof *values), BP_OK);
}

static void factors_and_spectra_are_those_of_numpy(void **state)
{
    enum { K = 200, N = 75 };
    double *x = whole_matrix(6, K, N), *values = new_reals(N), *gram;
    bp_distributed *c, *vectors;
    bp_grid *grid;
    int status = 0;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    c = dealt_gram(grid, x, K, N, 1.0 / K, 16);
    gram = gathered(c, N, N);
    bp_test_expect(bp_distributed_new(&vectors, grid, N, N, 16), BP_OK);
    bp_test_check_err(WORLD, bp_distributed_eigen(c, values, vectors, NULL, NULL), BP_OK);
    if (bp_comm_is_root(WORLD)) {
        char *command = bp_sprintf(PYTHON " %s/check_spectra.py %s %d %d", BP_TEST_SCRIPTS,
                                   bp_test_folder(), K, N);
        dump(bp_test_path("x"), x, K * N);
        dump(bp_test_path("gram"), gram, N * N);
        dump(bp_test_path("values"), values, N);
        status = system(command);
        bp_free(command);
    }
    bp_test_check(WORLD, status == 0);
    bp_distributed_free(&vectors);
    bp_distributed_free(&c);
    bp_grid_free(&grid);
    bp_free(gram);
    bp_free(values);
    bp_free(x);
}

/* ---- what can't be ---- */

static void what_can_not_be_is_said_by_all_ranks(void **state)
{
    int last = bp_comm_size(WORLD) - 1;
    double values[9], *a = new_reals(81);
    bp_distributed *matrix, *vectors;
    bp_grid *grid;

    (void)state;
    bp_test_expect(bp_grid_new(&grid, WORLD), BP_OK);
    bp_test_check_err(WORLD, bp_distributed_new(&matrix, grid, 2000000, 2000000, 0), BP_ERR_SYSTEM);
    bp_test_message_has("[memory.short]");
    assert_null(matrix);
    if (bp_comm_rank(WORLD) == last) /* in what it holds, if it holds anything */
        a[80] = NAN;
    matrix = dealt(grid, a, 9, 9, 4);
    bp_test_expect(bp_distributed_new(&vectors, grid, 9, 9, 4), BP_OK);
    if (bp_comm_size(WORLD) == 1)
        bp_test_check_err(WORLD, bp_distributed_eigen(matrix, values, vectors, NULL, NULL),
                          BP_ERR_SOFTWARE);
    bp_distributed_free(&matrix);
    for (int64_t i = 0; i < 81; i++)
        a[i] = NAN;
    matrix = dealt(grid, a, 9, 9, 4);
    bp_test_check_err(WORLD, bp_distributed_eigen(matrix, values, vectors, NULL, NULL),
                      BP_ERR_SOFTWARE);
    bp_test_message_has("[math.not_finite]");
    bp_distributed_free(&vectors);
    bp_distributed_free(&matrix);
    bp_grid_free(&grid);
    bp_free(a);
}

static void eigen_bytes_cover_what_is_taken(void **state)
{
    int ranks = bp_comm_size(WORLD);
    /* at one rank: the matrix, the vectors, and twice that */
    (void)state;
    assert_true(bp_distributed_eigen_bytes(4096, 1) > INT64_C(4) * 4096 * 4096 * 8);
    assert_true(bp_distributed_eigen_bytes(4096, 1) < INT64_C(5) * 4096 * 4096 * 8);
    assert_true(bp_distributed_eigen_bytes(4096, ranks) <= bp_distributed_eigen_bytes(4096, 1));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_is_visited_once),
        cmocka_unit_test(rows_that_ranks_have_come_together),
        cmocka_unit_test(product_is_that_of_loops),
        cmocka_unit_test(gram_is_that_of_loops),
        cmocka_unit_test(spectra_are_those_of_lapack),
        cmocka_unit_test(equal_eigenvalues_have_orthogonal_vectors),
        cmocka_unit_test(factors_and_spectra_are_those_of_numpy),
        cmocka_unit_test(inverses_are_what_they_are_called),
        cmocka_unit_test(what_can_not_be_is_said_by_all_ranks),
        cmocka_unit_test(eigen_bytes_cover_what_is_taken),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
