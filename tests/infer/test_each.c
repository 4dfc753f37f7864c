/* Batches of a sample of scored tokens: the same ones, unit for unit, on any mesh. */
#include "bp_test_mpi.h"

#include "infer/score/each.h"
#include "infer/score/unit.h"
#include "scoring_world.h"

#define WORLD     MPI_COMM_WORLD
#define UNITS_MAX 64

enum { DOCUMENTS = 700 };
static int64_t lengths[DOCUMENTS];
static const toy_corpus toy = {
    .documents = DOCUMENTS, .lengths = lengths, .vocab_size = 500, .eod_id = 499};
static int64_t all_tokens; /* of text */

static void corpus_is_made(void **state)
{
    (void)state;
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        lengths[d] = d == 100 ? 40000 : d * d * 31 % 240;
        all_tokens += lengths[d];
    }
    if (bp_comm_is_root(WORLD))
        (void)toy_write(&toy, "toy.h5");
    BP_MPI(MPI_Barrier(WORLD));
}

/* What came, unit by unit: a hash of all inputs, targets and slots in their order, and counts. */
typedef struct collector {
    const bp_mesh *mesh;
    int64_t units, tokens[UNITS_MAX], hash[UNITS_MAX], last;
    int64_t fail_at; /* batches until a failure; 0: never */
    int64_t batches;
    bool alike, ordered;
} collector;

static bp_err begin(void *context, int64_t units)
{
    collector *self = context;

    assert_in_range(units, 0, UNITS_MAX);
    self->units = units;
    return BP_OK;
}

static bp_err collect(void *context, int64_t unit, const bp_model_batch *batch)
{
    collector *self = context;
    uint64_t hash = (uint64_t)batch->first_slot * 31 + (uint64_t)batch->length;

    for (int64_t i = 0; i < batch->windows * batch->length; i++) {
        hash = hash_step(hash_step(hash, batch->inputs[i]), batch->targets[i]);
        self->tokens[unit] += batch->targets[i] >= 0;
    }
    self->hash[unit] = (int64_t)((uint64_t)self->hash[unit] * 31 + (hash >> 1));
    self->alike = self->alike &&
                  bp_all_max_int((int64_t)(hash >> 2), self->mesh->replica) == (int64_t)(hash >> 2);
    self->ordered = self->ordered && unit >= self->last &&
                    unit % self->mesh->data_ranks == self->mesh->data_rank;
    self->last = unit;
    self->batches++;
    if (self->fail_at > 0 && self->batches >= self->fail_at)
        return BP_FAIL(BP_ERR_SOFTWARE, "test.enough", "the callback has had enough");
    return BP_OK;
}

/* Collective over `comm`; on a rank that computes. */
static bp_err sample(collector *out, MPI_Comm comm, bp_mesh_shape shape, int64_t tokens,
                     const bp_config *config, int64_t *scored)
{
    bp_mesh *mesh;

    bp_test_expect(bp_mesh_shape_fit(&shape, bp_comm_size(comm)), BP_OK);
    bp_test_expect(bp_mesh_new(&mesh, comm, &shape), BP_OK);
    int64_t fail_at = out->fail_at;
    *out = (collector){.mesh = mesh, .alike = true, .ordered = true, .fail_at = fail_at};
    bp_score_each each = {.mesh = mesh,
                          .model = &world_model,
                          .corpus = bp_test_path("toy.h5"),
                          .config = config,
                          .tokens = tokens,
                          .begin = begin,
                          .batch = collect,
                          .context = out};
    bp_err err = bp_score_each_batch(&each, scored);

    /* a unit's figures are with one data rank: the ranks of that one have the same */
    for (int64_t u = 0; err == BP_OK && u < out->units; u++) {
        out->tokens[u] = bp_all_sum_int(out->tokens[u], mesh->data);
        out->hash[u] = bp_all_sum_int(out->hash[u], mesh->data);
    }
    bp_mesh_free(&mesh);
    return err;
}

static const int64_t wanted[] = {0, 1, 700, 16384, 30000, 70000, 1000000};

static void samples_are_those_of_one_rank_on_any_mesh(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        collector alone = {0};
        int64_t scored = -1,
                here = wanted[i] == 0 || wanted[i] > all_tokens ? all_tokens : wanted[i];

        bp_test_expect(sample(&alone, MPI_COMM_SELF, one_rank, wanted[i], NULL, &scored), BP_OK);
        bp_test_check(WORLD, scored == here);
        for (int kind = 0; kind < 3; kind++) {
            bp_mesh_shape shape = {1 + (kind == 1), 1, 0, 1 + (kind == 2), BP_COORDINATOR_SHARED};
            collector got = {0};

            if (bp_comm_size(WORLD) % (shape.members * shape.tensor) != 0)
                continue;
            bp_test_check_err(WORLD, sample(&got, WORLD, shape, wanted[i], NULL, &scored), BP_OK);
            bp_test_check(WORLD, scored == here && got.alike && got.ordered);
            bp_test_check(WORLD, got.units == alone.units);
            bp_test_check(WORLD, memcmp(got.tokens, alone.tokens, sizeof(got.tokens)) == 0);
            bp_test_check(WORLD, memcmp(got.hash, alone.hash, sizeof(got.hash)) == 0);
        }
    }
}

/* All tokens wanted: the batches are the scoring job's. */
static void all_tokens_are_the_units_of_the_plan(void **state)
{
    (void)state;
    bp_score_rule rule = {BP_SCORE_ROLLING, 64, 64, true, false, 499, .lead = 499};
    collector plain = {.mesh = NULL}, got = {0};
    bp_corpus *corpus;
    bp_score_plan plan;
    bp_score_unit *unit;

    bp_test_expect(sample(&got, MPI_COMM_SELF, one_rank, 0, NULL, NULL), BP_OK);
    bp_test_expect(bp_corpus_open(&corpus, bp_test_path("toy.h5")), BP_OK);
    bp_test_expect(bp_score_plan_init(&plan, corpus, &rule, NULL, BP_SCORE_UNIT_INPUTS), BP_OK);
    assert_int_equal(bp_score_unit_new(&unit, &plan, 1), BP_OK);
    assert_int_equal(got.units, plan.units);
    for (int64_t u = 0; u < plan.units; u++) {
        bp_mesh *mesh;
        int64_t slots = u * BP_SCORE_UNIT_INPUTS;

        bp_test_expect(bp_mesh_new(&mesh, MPI_COMM_SELF, &one_rank), BP_OK);
        plain.mesh = mesh;
        bp_test_expect(bp_score_unit_load(unit, u), BP_OK);
        for (int64_t b = 0; b < bp_score_unit_batches(unit); b++) {
            bp_model_batch batch;

            bp_test_expect(bp_score_unit_batch(unit, b, &batch), BP_OK);
            assert_int_equal(batch.first_slot, slots); /* no two windows share a slot */
            slots += batch.windows;
            bp_test_expect(collect(&plain, u, &batch), BP_OK);
        }
        bp_mesh_free(&mesh);
        assert_int_equal(plain.hash[u], got.hash[u]);
        assert_int_equal(plain.tokens[u], bp_score_unit_scored(unit));
    }
    bp_score_unit_free(&unit);
    bp_score_plan_clear(&plan);
    bp_corpus_close(&corpus);
}

/* So that many ranks share a small work; of one that is large units stay large. */
static void small_work_has_small_units(void **state)
{
    bp_score_rule rule = {BP_SCORE_ROLLING, 64, 64, true, false, 499, .lead = 499};
    bp_score_plan small, fixed;
    bp_corpus *corpus = NULL;

    (void)state;
    bp_test_expect(bp_corpus_open(&corpus, bp_test_path("toy.h5")), BP_OK);
    bp_test_expect(bp_score_plan_init(&small, corpus, &rule, NULL, 0), BP_OK);
    bp_test_expect(bp_score_plan_init(&fixed, corpus, &rule, NULL, 2 * BP_SCORE_UNIT_LEAST), BP_OK);
    assert_int_equal(small.unit_inputs, BP_SCORE_UNIT_LEAST);
    assert_int_equal(small.inputs, fixed.inputs);
    assert_int_equal(small.windows, fixed.windows);
    assert_int_equal(small.scored, fixed.scored);
    assert_true(small.units >= small.inputs / (BP_SCORE_UNIT_LEAST + rule.context));
    assert_true(small.units > fixed.units);
    bp_score_plan_clear(&fixed);
    bp_score_plan_clear(&small);
    bp_corpus_close(&corpus);
}

/* A sample is spread: its units come from both halves of the corpus, in the corpus's order. */
static void units_of_a_sample_are_spread(void **state)
{
    (void)state;
    collector all = {0}, some = {0};
    int64_t at = 0, first = -1, last = -1;

    bp_test_expect(sample(&all, MPI_COMM_SELF, one_rank, 0, NULL, NULL), BP_OK);
    bp_test_expect(sample(&some, MPI_COMM_SELF, one_rank, 30000, NULL, NULL), BP_OK);
    assert_true(some.units < all.units);
    for (int64_t i = 0; i < some.units - 1; i++, at++) { /* the last one may be cut */
        while (at < all.units && all.hash[at] != some.hash[i])
            at++;
        assert_true(at < all.units);
        first = first < 0 ? at : first;
        last = at;
    }
    assert_true(first < all.units / 2);
    assert_true(some.units < 3 || last > all.units / 3);
}

static void keys_of_the_convention_count(void **state)
{
    (void)state;
    collector got = {0};
    int64_t scored, want = 0;
    bp_config *config = make_config("none", "none", "score.convention=half score.context=5");

    for (int64_t d = 0; d < DOCUMENTS; d++)
        want += lengths[d] / 5 * 2;
    bp_test_expect(sample(&got, MPI_COMM_SELF, one_rank, 0, config, &scored), BP_OK);
    assert_int_equal(scored, want);
    bp_config_free(&config);
    config = make_config("none", "none", "score.context=65");
    bp_test_expect(sample(&got, MPI_COMM_SELF, one_rank, 0, config, &scored), BP_ERR_CONFIG);
    bp_test_message_has("score.context = 65 ... [score.context_too_long]");
    bp_config_free(&config);
}

/* On one rank of several alone, for batches; all say so, and nobody hangs. */
static void failing_callback_ends_all_ranks(void **state)
{
    (void)state;
    bool last = bp_comm_rank(WORLD) == bp_comm_size(WORLD) - 1;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_SHARED};
    collector got = {.fail_at = last ? 2 : 0};

    bp_test_check_err(WORLD, sample(&got, WORLD, shape, 0, NULL, NULL), BP_ERR_SOFTWARE);
    bp_test_message_has("had enough");
}

static void missing_corpus_is_66_on_all_ranks(void **state)
{
    (void)state;
    bp_mesh *mesh;
    bp_mesh_shape shape = {1, 1, 0, 1, BP_COORDINATOR_SHARED};

    bp_test_expect(bp_mesh_shape_fit(&shape, bp_comm_size(WORLD)), BP_OK);
    bp_test_expect(bp_mesh_new(&mesh, WORLD, &shape), BP_OK);
    bp_score_each each = {.mesh = mesh,
                          .model = &world_model,
                          .corpus = bp_test_path("nowhere.h5"),
                          .batch = collect};
    bp_test_check_err(WORLD, bp_score_each_batch(&each, NULL), BP_ERR_INPUT);
    bp_mesh_free(&mesh);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_is_made),
        cmocka_unit_test(samples_are_those_of_one_rank_on_any_mesh),
        cmocka_unit_test(all_tokens_are_the_units_of_the_plan),
        cmocka_unit_test(small_work_has_small_units),
        cmocka_unit_test(units_of_a_sample_are_spread),
        cmocka_unit_test(keys_of_the_convention_count),
        cmocka_unit_test(failing_callback_ends_all_ranks),
        cmocka_unit_test(missing_corpus_is_66_on_all_ranks),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
