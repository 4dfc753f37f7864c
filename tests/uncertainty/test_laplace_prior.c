/* The evidence against the determinant of the whole precision matrix, of V C squared elements. */
#include "bp_test_mpi.h"

#include "base/fault.h"
#include "base/rng.h"
#include "uncertainty/methods/laplace/laplace_priv.h"

#include <math.h>

#define WORLD MPI_COMM_WORLD

enum { V = 7, C = 4, P = V * C };

void dpotrf_(const char *triangle, const int *n, double *a, const int *lda, int *info,
             size_t triangle_bytes);
void dsyev_(const char *job, const char *triangle, const int *n, double *a, const int *lda,
            double *values, double *work, const int *work_count, int *info, size_t job_bytes,
            size_t triangle_bytes);

/* x^T x of random rows: symmetric, not negative; of one rank less than n if `short_of_rank`. */
static void make_factor(double *factor, int n, int64_t number, bool short_of_rank)
{
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_TEST, number, 0, 0);
    int rows = short_of_rank ? n - 1 : n + 2;

    memset(factor, 0, (size_t)(n * n) * sizeof *factor);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++)
                factor[i * n + j] += bp_rng_normal(&key, (uint64_t)(r * 100 + i)) *
                                     bp_rng_normal(&key, (uint64_t)(r * 100 + j)) / rows;
}

static void eigenvalues(double *values, const double *factor, int n)
{
    double copy[V * V], work[64 * V];
    int count = 64 * V, info = -1;

    memcpy(copy, factor, (size_t)(n * n) * sizeof *copy);
    dsyev_("N", "L", &n, copy, &n, values, work, &count, &info, 1, 1);
    assert_int_equal(info, 0);
    for (int i = 0; i < n; i++)
        values[i] = fmax(values[i], 0);
}

/* log det(N G (x) A + tau I), element by element. */
static double dense_logdet(const double *output, const double *input, double data, double tau)
{
    static double precision[P * P];
    int n = P, info = -1;
    double sum = 0;

    for (int a = 0; a < P; a++)
        for (int b = 0; b < P; b++)
            precision[a * P + b] =
                data * output[a / C * V + b / C] * input[a % C * C + b % C] + (a == b ? tau : 0);
    dpotrf_("L", &n, precision, &n, &info, 1);
    assert_int_equal(info, 0);
    for (int a = 0; a < P; a++)
        sum += 2 * log(precision[a * P + a]);
    return sum;
}

typedef struct problem {
    double output[V * V], input[C * C], output_values[V], input_values[C];
    laplace_evidence evidence;
} problem;

static void make_problem(problem *self, double data, double square)
{
    make_factor(self->output, V, 1, true);
    make_factor(self->input, C, 2, false);
    eigenvalues(self->output_values, self->output, V);
    eigenvalues(self->input_values, self->input, C);
    self->evidence = (laplace_evidence){.output_values = self->output_values,
                                        .input_values = self->input_values,
                                        .V = V,
                                        .C = C,
                                        .data_tokens = data,
                                        .weights_square = square,
                                        .comm = WORLD};
    bp_test_check_err(WORLD, laplace_evidence_open(&self->evidence), BP_OK);
}

static void evidence_is_that_of_the_whole_matrix(void **state)
{
    static const double taus[] = {1e-4, 0.3, 1, 77, 1e6};
    problem self;

    (void)state;
    make_problem(&self, 1234, 9.5);
    for (size_t k = 0; k < sizeof taus / sizeof taus[0]; k++) {
        double logdet = dense_logdet(self.output, self.input, 1234, taus[k]);
        double expected = -taus[k] / 2 * 9.5 + P / 2.0 * log(taus[k]) - logdet / 2;
        double got = laplace_log_evidence(&self.evidence, taus[k]);
        double step = taus[k] * 1e-4, up, down;

        /* the dense determinant of a matrix of condition 1e8 */
        bp_test_check(WORLD, fabs(got - expected) < 1e-8 * (1 + fabs(expected)));
        /* d logdet / d tau = sum 1 / (x + tau) = (VC - effective) / tau */
        up = dense_logdet(self.output, self.input, 1234, taus[k] + step);
        down = dense_logdet(self.output, self.input, 1234, taus[k] - step);
        bp_test_check(WORLD,
                      fabs((up - down) / (2 * step) * taus[k] -
                           (P - laplace_effective_parameters(&self.evidence, taus[k]))) < 1e-5 * P);
    }
    laplace_evidence_close(&self.evidence);
}

static void best_tau_has_the_largest_evidence(void **state)
{
    static const double data[] = {1, 1e3, 1e9}, squares[] = {1e-6, 1, 1e4};
    problem self;

    (void)state;
    for (int d = 0; d < 3; d++)
        for (int s = 0; s < 3; s++) {
            double tau, best;

            make_problem(&self, data[d], squares[s]);
            bp_test_expect(laplace_best_tau(&tau, &self.evidence), BP_OK);
            best = laplace_log_evidence(&self.evidence, tau);
            bp_test_check(WORLD, isfinite(best));
            for (double factor = 1.01; factor < 1e12; factor *= factor) { /* near and far */
                bp_test_check(WORLD, laplace_log_evidence(&self.evidence, tau * factor) < best);
                bp_test_check(WORLD, laplace_log_evidence(&self.evidence, tau / factor) < best);
            }
            laplace_evidence_close(&self.evidence);
        }
}

static void without_a_best_tau_a_number_is_asked_for(void **state)
{
    problem self;
    double tau;

    (void)state;
    make_problem(&self, 100, 0);
    bp_test_expect(laplace_best_tau(&tau, &self.evidence), BP_ERR_CONFIG);
    bp_test_message_has("[laplace.zero_matrix]");
    laplace_evidence_close(&self.evidence);
    make_problem(&self, 100, 1);
    memset(self.output_values, 0, sizeof self.output_values);
    bp_test_expect(laplace_best_tau(&tau, &self.evidence), BP_ERR_CONFIG);
    bp_test_message_has("[laplace.no_curvature]");
    laplace_evidence_close(&self.evidence);
}

static void short_memory_on_one_rank_is_reported_to_all(void **state)
{
    problem self;
    bp_err err;

    (void)state;
    make_problem(&self, 100, 1);
    laplace_evidence_close(&self.evidence);
    bp_fault_arm(bp_comm_size(WORLD) > 1 ? "base.alloc:1@1" : "base.alloc:1");
    err = laplace_evidence_open(&self.evidence);
    bp_fault_arm(NULL);
    bp_test_check_err(WORLD, err, BP_ERR_SYSTEM);
    bp_test_message_has("[memory.short]");
    bp_test_check(WORLD, self.evidence.rows == NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(evidence_is_that_of_the_whole_matrix),
        cmocka_unit_test(best_tau_has_the_largest_evidence),
        cmocka_unit_test(without_a_best_tau_a_number_is_asked_for),
        cmocka_unit_test(short_memory_on_one_rank_is_reported_to_all),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
