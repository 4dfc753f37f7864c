/* The Laplace approximation on a model small enough for its whole Hessian: factors by plain loops,
 * samples against numpy and against the dense covariance, the same on all meshes. */
#include "bp_test_mpi.h"

#include "linear_world.h"
#include "mesh/collective.h"
#include "uncertainty/methods/laplace/laplace_priv.h"

#include <unistd.h>

#define PYTHON "/usr/bin/python3"

enum { P = V * C };

static const bp_mesh_shape one_rank = {1, 1, 1, 1, BP_COORDINATOR_SHARED};

static void corpus_is_made(void **state)
{
    (void)state;
    make_corpus();
}

/* All shapes of a mesh with so many ranks; members, pipeline and tensor in turn. */
static int mesh_shapes(bp_mesh_shape shapes[16], int size)
{
    int count = 0;

    for (int members = 1; members <= size; members++)
        for (int pipeline = 1; members * pipeline <= size; pipeline++)
            for (int tensor = 1; members * pipeline * tensor <= size; tensor++)
                if (size % (members * pipeline * tensor) == 0)
                    shapes[count++] =
                        (bp_mesh_shape){members, pipeline, 0, tensor, BP_COORDINATOR_SHARED};
    return count;
}

/* ---- factors ---- */

/* Every token of the corpus is a target: text, and the end of each document; the first of a
 * document is predicted from an end before it. Returns how many; with NULL alone that. */
static int64_t list_targets(int32_t *before, int32_t *target)
{
    int64_t tokens = 0;

    for (int64_t d = 0; d < DOCUMENTS; d++)
        for (int64_t k = 0; k <= lengths[d]; k++, tokens++)
            if (before) {
                before[tokens] = k == 0 ? EOD : toy_token(&toy, d, k - 1);
                target[tokens] = k == lengths[d] ? EOD : toy_token(&toy, d, k);
            }
    return tokens;
}

static int64_t plain_factors(double *output, double *input)
{
    int64_t tokens = list_targets(NULL, NULL);
    int32_t *before = bp_alloc("test", 2 * tokens, sizeof *before);

    (void)list_targets(before, before + tokens);
    memset(output, 0, V * V * sizeof *output);
    memset(input, 0, C * C * sizeof *input);
    for (int64_t t = 0; t < tokens; t++) {
        double h[C], p[V], sum = 0;

        for (int64_t c = 0; c < C; c++)
            h[c] = (double)state_of(before[t], c);
        for (int64_t v = 0; v < V; v++) {
            p[v] = 0;
            for (int64_t c = 0; c < C; c++)
                p[v] += h[c] * (double)weight_of(v, c);
            p[v] = exp(p[v]);
            sum += p[v];
        }
        for (int64_t a = 0; a < V; a++)
            for (int64_t b = 0; b < V; b++)
                output[a * V + b] += (a == b ? p[a] / sum : 0) - p[a] * p[b] / (sum * sum);
        for (int64_t a = 0; a < C; a++)
            for (int64_t b = 0; b < C; b++)
                input[a * C + b] += h[a] * h[b];
    }
    for (int64_t i = 0; i < V * V; i++)
        output[i] /= (double)tokens;
    for (int64_t i = 0; i < C * C; i++)
        input[i] /= (double)tokens;
    bp_free(before);
    return tokens;
}

/* On and above the diagonal; the other half is filled with its mirror. On rank 0. */
static void read_factor(double *whole, const bp_distributed *factor, int64_t n)
{
    bp_distributed_read(factor, 0, n, whole);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            whole[i * n + j] = whole[j * n + i];
}

static double largest_difference(const double *a, const double *b, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(a[i] - b[i]));
    return most;
}

/* The factors of `wanted` tokens on a mesh, on all ranks of `comm`. */
static int64_t fitted_factors(MPI_Comm comm, bp_mesh_shape shape, int64_t wanted, double *output,
                              double *input)
{
    laplace_text text = {.corpus = bp_test_path("toy.h5"), .tokens = wanted, .ends = true};
    laplace_course course = {.tokens = wanted, .V = V, .C = C};
    laplace_factors factors;
    int64_t tokens;
    world self;

    world_open(&self, comm, shape);
    bp_test_check_err(
        comm, laplace_factors_init(&factors, self.mesh, &self.model->model, &text, &course), BP_OK);
    read_factor(output, factors.output, V);
    read_factor(input, factors.input, C);
    bp_bcast_bytes(output, V * V * sizeof *output, 0, self.mesh->compute);
    bp_bcast_bytes(input, C * C * sizeof *input, 0, self.mesh->compute);
    tokens = factors.tokens;
    laplace_factors_clear(&factors);
    world_close(&self);
    return tokens;
}

static void factors_are_those_of_loops_on_all_meshes(void **state)
{
    double expected_output[V * V], expected_input[C * C], output[V * V], input[C * C];
    int64_t tokens = plain_factors(expected_output, expected_input);
    bp_mesh_shape shapes[16];
    int count = mesh_shapes(shapes, bp_comm_size(WORLD));

    (void)state;
    for (int k = 0; k < count; k++) {
        int64_t got = fitted_factors(WORLD, shapes[k], 1000000, output, input);

        bp_test_check(WORLD, got == tokens);
        /* logits are float32 here: probabilities to 1e-6 */
        bp_test_check(WORLD, largest_difference(output, expected_output, V * V) < 1e-7);
        bp_test_check(WORLD, largest_difference(input, expected_input, C * C) < 1e-12);
    }
}

static void some_tokens_are_the_same_on_all_meshes(void **state)
{
    double expected_output[V * V], expected_input[C * C], output[V * V], input[C * C];
    bp_mesh_shape shapes[16];
    int count = mesh_shapes(shapes, bp_comm_size(WORLD));
    int64_t tokens = fitted_factors(MPI_COMM_SELF, one_rank, 123, expected_output, expected_input);

    (void)state;
    bp_test_check(WORLD, tokens == 123);
    for (int k = 0; k < count; k++) {
        bp_test_check(WORLD, fitted_factors(WORLD, shapes[k], 123, output, input) == 123);
        bp_test_check(WORLD, largest_difference(output, expected_output, V * V) < 1e-12);
        bp_test_check(WORLD, largest_difference(input, expected_input, C * C) < 1e-12);
    }
}

/* Without an end-of-document token the first token of a document has nothing before it. */
static void corpus_without_ends_has_fewer_targets(void **state)
{
    static const toy_corpus endless = {
        .documents = DOCUMENTS, .lengths = lengths, .vocab_size = V, .eod_id = -1};
    bp_laplace_spec spec = {.tokens = 1000000, .samples = 1, .seed = 1};
    bp_laplace_report report;
    int64_t tokens = 0, nonempty = 0, begun = 0;
    world self;

    (void)state;
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        tokens += lengths[d];
        nonempty += lengths[d] > 0;
        begun += lengths[d] > 0 && toy_token(&endless, d, 0) == EOD;
    }
    if (bp_comm_is_root(WORLD))
        (void)toy_write(&endless, "endless.h5");
    BP_MPI(MPI_Barrier(WORLD));
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    self.model->model.info.eod_id = -1;
    bp_test_check_err(WORLD,
                      bp_laplace_fit_model(self.mesh, self.config, &self.model->model,
                                           bp_test_path("endless.h5"), &spec,
                                           bp_test_path("endless-fit.h5"), NULL, &report),
                      BP_OK);
    bp_test_check(WORLD, report.data_tokens == tokens && report.tokens == tokens - nonempty);
    self.model->model.info.eod_id =
        EOD; /* known to the model alone: it comes first, once, and never last */
    bp_test_check_err(WORLD,
                      bp_laplace_fit_model(self.mesh, self.config, &self.model->model,
                                           bp_test_path("endless.h5"), &spec,
                                           bp_test_path("endless-fit2.h5"), NULL, &report),
                      BP_OK);
    bp_test_check(WORLD, report.data_tokens == tokens && report.tokens == tokens - begun);
    world_close(&self);
}

/* ---- samples ---- */

static bp_err fit(world *self, const bp_laplace_spec *spec, const char *name,
                  bp_laplace_report *report)
{
    return bp_laplace_fit_model(self->mesh, self->config, &self->model->model,
                                bp_test_path("toy.h5"), spec, bp_test_path(name), NULL, report);
}

/* All samples of a file. */
static float *read_samples(const char *path, int64_t samples)
{
    bp_head_samples *file;
    float *values = bp_alloc("test", samples * P, sizeof *values);

    bp_test_expect(bp_head_samples_open(&file, MPI_COMM_SELF, path), BP_OK);
    assert_int_equal(bp_head_samples_info_of(file)->samples, samples);
    assert_int_equal(bp_head_samples_info_of(file)->vocab_size, V);
    assert_int_equal(bp_head_samples_info_of(file)->width, C);
    assert_string_equal(bp_head_samples_info_of(file)->model_digest, "linear");
    for (int64_t s = 0; s < samples; s++)
        bp_test_expect(bp_head_samples_read(file, s, 0, V, values + s * P), BP_OK);
    bp_head_samples_close(&file);
    return values;
}

/* One rank alone makes FOLDER/one.h5; the others wait. */
static void fit_on_one_rank(const bp_laplace_spec *spec, bp_laplace_report *report)
{
    world alone;

    world_open(&alone, MPI_COMM_SELF, one_rank);
    if (bp_comm_is_root(WORLD))
        bp_test_expect(fit(&alone, spec, "one.h5", report), BP_OK);
    world_close(&alone);
    bp_bcast_bytes(report, sizeof *report, 0, WORLD);
}

static void samples_agree_on_all_meshes(void **state)
{
    static const bp_laplace_spec spec = {.tokens = 200, .samples = 3, .seed = 9};
    bp_laplace_report expected, report;
    bp_mesh_shape shapes[16];
    int count = mesh_shapes(shapes, bp_comm_size(WORLD));
    float *one;

    (void)state;
    fit_on_one_rank(&spec, &expected);
    one = read_samples(bp_test_path("one.h5"), spec.samples);
    for (int k = 0; k < count; k++) {
        char name[32];
        double most = 0;
        world self;
        float *here;

        (void)snprintf(name, sizeof name, "mesh-%d.h5", k);
        world_open(&self, WORLD, shapes[k]);
        bp_test_check_err(WORLD, fit(&self, &spec, name, &report), BP_OK);
        world_close(&self);
        bp_test_check(WORLD, !report.reused && report.tokens == 200);
        bp_test_check(WORLD, fabs(report.tau / expected.tau - 1) < 1e-9);
        bp_test_check(WORLD, fabs(report.log_likelihood / expected.log_likelihood - 1) < 1e-9);
        bp_test_check(WORLD, fabs(report.log_evidence / expected.log_evidence - 1) < 1e-9);
        bp_test_check(WORLD, strcmp(report.digest, expected.digest) == 0);
        here = read_samples(bp_test_path(name), spec.samples);
        for (int64_t i = 0; i < spec.samples * P; i++)
            most = fmax(most, fabs((double)here[i] - (double)one[i]));
        bp_test_check(WORLD, most < 1e-5); /* two roundings to float32 of numbers about 1 */
        bp_free(here);
    }
    bp_free(one);
}

static void dump(const char *name, const void *values, int64_t bytes)
{
    (void)bp_test_write(name, values, (size_t)bytes);
}

/* The state and the target of every token. */
static void dump_tokens(void)
{
    int64_t tokens = list_targets(NULL, NULL);
    int32_t *before = bp_alloc("test", 2 * tokens, sizeof *before);
    double *states = bp_alloc("test", tokens * C, sizeof *states);

    (void)list_targets(before, before + tokens);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t c = 0; c < C; c++)
            states[t * C + c] = (double)state_of(before[t], c);
    dump("targets", before + tokens, tokens * (int64_t)sizeof *before);
    dump("states", states, tokens * C * (int64_t)sizeof *states);
    bp_free(states);
    bp_free(before);
}

/* Dumps what numpy needs: tokens, W and Z by our keys. */
static void dump_problem(const bp_laplace_spec *spec, const bp_laplace_report *report)
{
    double weights[P], facts[2] = {(double)report->data_tokens, report->tau}, *z;

    z = bp_alloc("test", spec->samples * P, sizeof *z);
    for (int64_t i = 0; i < P; i++)
        weights[i] = (double)weight_of(i / C, i % C);
    for (int64_t s = 0; s < spec->samples; s++) {
        bp_rng_key key = bp_rng_key_of(spec->seed, BP_RNG_POSTERIOR, 0, s, 0);

        for (int64_t i = 0; i < P; i++)
            z[s * P + i] = bp_rng_normal(&key, (uint64_t)i);
    }
    dump_tokens();
    dump("weights", weights, P * (int64_t)sizeof *weights);
    dump("noise", z, spec->samples * P * (int64_t)sizeof *z);
    dump("facts", facts, (int64_t)sizeof facts);
    bp_free(z);
}

static void samples_are_those_of_numpy(void **state)
{
    static const bp_laplace_spec spec = {.tokens = 1000000, .samples = 800, .seed = 4};
    bp_laplace_report report;
    int status = 0;
    world self;

    (void)state;
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    bp_test_check_err(WORLD, fit(&self, &spec, "numpy.h5", &report), BP_OK);
    world_close(&self);
    /* N counts what the factors are taken from, if all is taken */
    bp_test_check(WORLD, report.tokens == report.data_tokens);
    bp_test_check(WORLD, report.tokens == list_targets(NULL, NULL));
    if (bp_comm_is_root(WORLD)) {
        char *command = bp_sprintf(PYTHON " %s/check_laplace.py %s %d %d %.17g %.17g %.17g",
                                   BP_TEST_SCRIPTS, bp_test_folder(), V, C, report.log_likelihood,
                                   report.log_evidence, report.effective_parameters);

        dump_problem(&spec, &report);
        status = system(command);
        bp_free(command);
    }
    bp_test_check(WORLD, status == 0);
}

/* ---- files that are there ---- */

static void damage(const char *path)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, -7, SEEK_END), 0);
    assert_int_not_equal(fputc(0x33, file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void finished_file_is_kept(void **state)
{
    bp_laplace_spec spec = {.tokens = 100, .samples = 2, .tau = 2.5, .seed = 1};
    bp_laplace_report first, again;
    world self;

    (void)state;
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    bp_test_check_err(WORLD, fit(&self, &spec, "kept.h5", &first), BP_OK);
    bp_test_check(WORLD, !first.reused && first.tau == 2.5 && first.tokens == 100);
    int64_t batches = self.model->batches;
    bp_test_check_err(WORLD, fit(&self, &spec, "kept.h5", &again), BP_OK);
    bp_test_check(WORLD, again.reused && self.model->batches == batches);
    bp_test_check(WORLD, again.tau == first.tau && again.tokens == first.tokens &&
                             again.data_tokens == first.data_tokens &&
                             again.log_likelihood == first.log_likelihood &&
                             again.log_evidence == first.log_evidence &&
                             again.effective_parameters == first.effective_parameters &&
                             strcmp(again.digest, first.digest) == 0);
    BP_MPI(MPI_Barrier(WORLD));
    if (bp_comm_is_root(WORLD))
        damage(bp_test_path("kept.h5"));
    bp_test_check_err(WORLD, fit(&self, &spec, "kept.h5", &again), BP_OK);
    bp_test_check(WORLD, !again.reused);
    spec.seed = 2; /* other samples */
    bp_test_check_err(WORLD, fit(&self, &spec, "kept.h5", &again), BP_OK);
    bp_test_check(WORLD, !again.reused && strcmp(again.digest, first.digest) != 0);
    bp_test_check_err(WORLD, fit(&self, &spec, "kept.h5", &again), BP_OK);
    bp_test_check(WORLD, again.reused);
    world_close(&self);
}

/* ---- what can't be ---- */

/* What a file is written under before it is whole. */
static bool has_drafts(void)
{
    char **names;
    int64_t count;
    bool has = false;

    bp_test_expect(bp_dir_list(bp_test_folder(), &names, &count), BP_OK);
    for (int64_t k = 0; k < count; k++)
        has = has || bp_is_temporary_name(names[k]);
    bp_names_free(&names, count);
    return has;
}

static void what_can_not_be_fitted_is_refused(void **state)
{
    bp_laplace_spec spec = {.tokens = 100, .samples = 2, .seed = 1};
    bp_laplace_report report;
    bp_model_ops plain = {0};
    const bp_model_ops *whole;
    world self;

    (void)state;
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    whole = self.model->model.ops;
    self.model->model.ops = &plain;
    bp_test_check_err(WORLD, fit(&self, &spec, "none.h5", &report), BP_ERR_CONFIG);
    bp_test_message_has("[laplace.wrong_kind]");
    self.model->model.ops = whole;
    self.model->model.info.vocab_size = BP_LAPLACE_VOCAB_MAX + 1;
    bp_test_check_err(WORLD, fit(&self, &spec, "none.h5", &report), BP_ERR_CONFIG);
    bp_test_message_has("16384 ... [laplace.vocabulary_too_large]");
    self.model->model.info.vocab_size = V;
    bp_test_check_err(WORLD,
                      bp_laplace_fit_model(self.mesh, self.config, &self.model->model,
                                           bp_test_path("missing.h5"), &spec,
                                           bp_test_path("none.h5"), NULL, &report),
                      BP_ERR_INPUT);
    bp_test_check_err(WORLD, fit(&self, &spec, "no/folder.h5", &report), BP_ERR_CREATE);
    self.model->broken = true;
    bp_test_check_err(WORLD, fit(&self, &spec, "none.h5", &report), BP_ERR_SOFTWARE);
    bp_test_message_has("[math.not_finite]");
    self.model->broken = false;
    memset(self.model->weights, 0, sizeof self.model->weights);
    bp_test_check_err(WORLD, fit(&self, &spec, "none.h5", &report), BP_ERR_CONFIG);
    bp_test_message_has("[laplace.zero_matrix]");
    bp_test_check(WORLD, !bp_path_exists(bp_test_path("none.h5")) && !has_drafts());
    bp_test_check_err(WORLD,
                      bp_laplace_fit(self.mesh, self.config, bp_test_path("missing"),
                                     bp_test_path("toy.h5"), &spec, bp_test_path("none.h5"), NULL,
                                     &report),
                      BP_ERR_INPUT);
    world_close(&self);
}

static void corpus_without_a_token_is_refused(void **state)
{
    static const int64_t alone[3] = {1, 1, 1};
    static const toy_corpus empty = {
        .documents = 3, .lengths = alone, .vocab_size = V, .eod_id = -1};
    bp_laplace_spec spec = {.tokens = 100, .samples = 2, .seed = 1};
    bp_laplace_report report;
    world self;

    (void)state;
    if (bp_comm_is_root(WORLD))
        (void)toy_write(&empty, "empty.h5");
    BP_MPI(MPI_Barrier(WORLD));
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    self.model->model.info.eod_id = -1; /* nothing precedes them */
    bp_test_check_err(WORLD,
                      bp_laplace_fit_model(self.mesh, self.config, &self.model->model,
                                           bp_test_path("empty.h5"), &spec, bp_test_path("none.h5"),
                                           NULL, &report),
                      BP_ERR_FORMAT);
    bp_test_message_has("[laplace.no_tokens]");
    world_close(&self);
}

static void prior_is_a_number_or_marginal(void **state)
{
    static const char *const bad[] = {"0", "-1", "validation", "1x", "inf", "nan"};
    bp_config *config = make_config();

    (void)state;
    bp_laplace_check(config);
    bp_test_expect(bp_config_faults(config), BP_OK);
    assert_true(bp_laplace_spec_of(config).tau == 0);
    assert_int_equal(bp_laplace_spec_of(config).tokens, 100000);
    assert_int_equal(bp_laplace_spec_of(config).samples, 8);
    bp_test_expect(bp_config_set(config, "laplace.prior", "2.5e3"), BP_OK);
    bp_laplace_check(config);
    bp_test_expect(bp_config_faults(config), BP_OK);
    assert_true(bp_laplace_spec_of(config).tau == 2500);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        bp_test_expect(bp_config_set(config, "laplace.prior", bad[k]), BP_OK);
        bp_laplace_check(config);
        bp_test_expect(bp_config_faults(config), BP_ERR_CONFIG);
        bp_test_message_has(bad[k]);
    }
    bp_config_free(&config);
}

static void bytes_are_those_of_matrices(void **state)
{
    bp_laplace_spec spec = {.tokens = 100000, .samples = 8};
    bp_mesh_shape shape = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    int64_t square = INT64_C(8) * 4096 * 4096, one = bp_laplace_bytes(&spec, &shape, 4096, 256);

    (void)state; /* matrix, vectors, and a workspace of two */
    assert_true(one > 4 * square && one < 5 * square);
    shape.data = 4;
    assert_true(bp_laplace_bytes(&spec, &shape, 4096, 256) < one / 3);
    spec.tokens = 10000000; /* their states are what counts */
    assert_true(bp_laplace_bytes(&spec, &shape, 4096, 256) > INT64_C(4) * 256 * 10000000 / 4);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_is_made),
        cmocka_unit_test(factors_are_those_of_loops_on_all_meshes),
        cmocka_unit_test(some_tokens_are_the_same_on_all_meshes),
        cmocka_unit_test(corpus_without_ends_has_fewer_targets),
        cmocka_unit_test(samples_agree_on_all_meshes),
        cmocka_unit_test(samples_are_those_of_numpy),
        cmocka_unit_test(finished_file_is_kept),
        cmocka_unit_test(what_can_not_be_fitted_is_refused),
        cmocka_unit_test(corpus_without_a_token_is_refused),
        cmocka_unit_test(prior_is_a_number_or_marginal),
        cmocka_unit_test(bytes_are_those_of_matrices),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
