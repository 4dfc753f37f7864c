/* Scoring by a method: passes with dropout, a checkpoint as an ensemble of one; in one go or
 * several, and never mixed with another. */
#include "bp_test_mpi.h"

#include "base/fault.h"
#include "infer/ensemble_world.h"
#include "io/h5/h5.h"
#include "scoring_world.h"
#include "uncertainty/methods/passes.h"

#define WORLD MPI_COMM_WORLD

enum { DOCUMENTS = 300 };
static const toy_corpus toy = {
    .documents = DOCUMENTS, .length = 130, .vocab_size = V, .eod_id = V - 1, .hash = HASH_A};

static void world_is_made(void **state)
{
    (void)state;
    make_world();
    if (bp_comm_is_root(WORLD))
        (void)toy_write(&toy, "toy.h5");
    BP_MPI(MPI_Barrier(WORLD));
}

/* Collective over `comm`. */
static bp_err score(MPI_Comm comm, const char *run, const char *model, const char *pairs,
                    const bp_ensemble_spec *method)
{
    bp_config *config = make_config(bp_test_path(run), bp_test_path("toy.h5"), pairs);

    bp_test_expect(bp_config_set(config, "score.model", bp_test_path(model)), BP_OK);
    bp_err err = bp_score_as(comm, config, method);
    if (err == BP_OK && method)
        assert_string_equal(bp_config_string(config, "score.model"), method->path);
    bp_config_free(&config);
    return err;
}

static const char *score_file(const char *run, const char *name)
{
    char inside[256];

    snprintf(inside, sizeof(inside), "%s/score/%s", run, name);
    return bp_test_path(inside);
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char *x = NULL, *y = NULL;
    size_t nx = 0, ny = 0;
    bool same = bp_file_read(score_file(a, name), 1 << 28, &x, &nx) == BP_OK &&
                bp_file_read(score_file(b, name), 1 << 28, &y, &ny) == BP_OK && nx == ny &&
                memcmp(x, y, nx) == 0;

    bp_free(x);
    bp_free(y);
    return same;
}

static bool same_scores(const char *a, const char *b)
{
    return same_file(a, b, "summary.json") && same_file(a, b, "documents.h5") &&
           same_file(a, b, "tokens.h5");
}

/* One statistic of all tokens; free with bp_free(). On one rank. */
static float *read_tokens(const char *run, const char *statistic, int64_t *count)
{
    bp_h5 *file;
    bp_h5_shape shape;

    bp_test_expect(bp_h5_open(&file, score_file(run, "tokens.h5")), BP_OK);
    bp_test_expect(bp_h5_shape_of(file, statistic, &shape), BP_OK);
    float *out = bp_alloc("test", shape.count, sizeof(*out));
    bp_test_expect(bp_h5_read(file, statistic, BP_H5_F32, 0, out, shape.count), BP_OK);
    bp_h5_drop(&file);
    *count = shape.count;
    return out;
}

static void checkpoint_as_an_ensemble_of_one_tells_all_statistics(void **state)
{
    (void)state;
    bp_ensemble_spec one = {.path = bp_test_path("a")};
    int64_t n, m, k;

    bp_test_check_err(WORLD, score(WORLD, "plain", "a", "score.tokens=yes", NULL), BP_OK);
    bp_test_check_err(WORLD, score(WORLD, "one", "b", "score.tokens=yes", &one), BP_OK);
    if (bp_comm_is_root(WORLD)) {
        float *plain = read_tokens("plain", "logprob", &n),
              *got = read_tokens("one", "logprob", &m);
        float *information = read_tokens("one", "mutual_information", &k);

        assert_true(n == m && n == k);
        assert_memory_equal(plain, got, (size_t)n * sizeof(*plain));
        for (int64_t i = 0; i < n; i++)
            assert_true(isnan(got[i]) ? isnan(information[i]) : information[i] == 0);
        bp_free(information);
        bp_free(got);
        bp_free(plain);
    }
    BP_MPI(MPI_Barrier(WORLD));
    /* the same weights, but other values a token: no run of that folder */
    bp_test_check_err(WORLD, score(WORLD, "one", "a", "score.tokens=yes", NULL), BP_ERR_CONFIG);
    bp_test_message_has("score.model");
}

static bp_ensemble_spec passes_of(int64_t passes, uint64_t seed)
{
    static bp_passes kept[8];
    static int next;
    bp_passes *one = &kept[next++ % 8];

    *one = (bp_passes){{&bp_dropout_sampler, passes}, 0.2F, seed};
    return (bp_ensemble_spec){.path = bp_test_path("a"), .sampler = &one->sampler};
}

/* The masks are a function of the slot, which is the unit's, so neither the rank that takes a unit
 * nor a stop in between shows. */
static void passes_have_the_same_bytes_on_any_ranks_and_after_a_stop(void **state)
{
    (void)state;
    bp_ensemble_spec passes = passes_of(3, 5);
    const char *pairs = "score.tokens=yes";
    int64_t n;

    if (bp_comm_is_root(WORLD))
        bp_test_expect(score(MPI_COMM_SELF, "alone", "a", pairs, &passes), BP_OK);
    bp_test_check_err(WORLD, score(WORLD, "passes", "a", pairs, &passes), BP_OK);
    bp_test_check(WORLD, !bp_comm_is_root(WORLD) || same_scores("alone", "passes"));
    bp_fault_arm("work.part:2"); /* some rank comes to a second unit */
    bp_test_check_err(WORLD, score(WORLD, "stopped", "a", pairs, &passes), BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_check_err(WORLD, score(WORLD, "stopped", "a", pairs, &passes), BP_OK);
    bp_test_check(WORLD, !bp_comm_is_root(WORLD) || same_scores("alone", "stopped"));
    if (bp_comm_is_root(WORLD)) {
        float *information = read_tokens("alone", "mutual_information", &n);
        double sum = 0;

        for (int64_t i = 0; i < n; i++)
            sum += isnan(information[i]) ? 0 : (double)information[i];
        assert_true(sum > 0.001 * (double)n); /* the passes differ */
        bp_free(information);
    }
}

static void another_method_in_the_folder_is_78(void **state)
{
    (void)state;
    bp_ensemble_spec first = passes_of(2, 5), more = passes_of(3, 5), other = passes_of(2, 6);

    bp_test_check_err(WORLD, score(WORLD, "taken", "a", "", &first), BP_OK);
    bp_test_check_err(WORLD, score(WORLD, "taken", "a", "", &first), BP_OK); /* finished */
    bp_test_check_err(WORLD, score(WORLD, "taken", "a", "", &more), BP_ERR_CONFIG);
    bp_test_message_has("score.model");
    bp_test_check_err(WORLD, score(WORLD, "taken", "a", "", &other), BP_ERR_CONFIG);
}

/* More memory for distributions, given on the way, is no other run. */
static void score_memory_may_change(void **state)
{
    (void)state;
    bp_test_check_err(WORLD, score(WORLD, "memory", "three", "score.memory=16", NULL),
                      BP_ERR_CONFIG);
    bp_test_message_has("score.memory ... [score.memory_too_small]");
    bp_fault_arm("work.part:2");
    bp_test_check_err(WORLD, score(WORLD, "memory", "three", "score.memory=64KiB", NULL),
                      BP_ERR_IO);
    bp_fault_arm(NULL);
    bp_test_check_err(WORLD, score(WORLD, "memory", "three", "score.memory=1MiB", NULL), BP_OK);
}

static void more_mesh_members_than_members_is_78(void **state)
{
    (void)state;
    bp_ensemble_spec passes = passes_of(1, 5);

    bp_test_check_err(WORLD, score(WORLD, "mesh", "a", "mesh.members=2", NULL), BP_ERR_CONFIG);
    bp_test_message_has("[mesh.one_model]");
    bp_test_message_has("score.model");
    bp_test_check_err(WORLD, score(WORLD, "mesh", "three", "mesh.members=4", NULL), BP_ERR_CONFIG);
    bp_test_message_has("[mesh.too_many_members]");
    bp_test_message_has("3 in all ... [mesh.too_many_members]");
    bp_test_check_err(WORLD, score(WORLD, "mesh", "a", "mesh.members=2", &passes), BP_ERR_CONFIG);
    bp_test_message_has("[mesh.too_many_members]");
    bp_test_message_has("1 in all ... [mesh.too_many_members]");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(world_is_made),
        cmocka_unit_test(checkpoint_as_an_ensemble_of_one_tells_all_statistics),
        cmocka_unit_test(passes_have_the_same_bytes_on_any_ranks_and_after_a_stop),
        cmocka_unit_test(another_method_in_the_folder_is_78),
        cmocka_unit_test(score_memory_may_change),
        cmocka_unit_test(more_mesh_members_than_members_is_78),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
