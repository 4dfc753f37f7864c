/* The hooks of a training's parts: their order, what they are handed, what a failure ends, and
 * their keys. */
#include "bp_test_mpi.h"

#include "data/toy_corpus.h"
#include "io/checkpoint/checkpoint.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/family.h"
#include "models/task/task.h"
#include "train/loop/parts.h"
#include "train/loop/pretrain.h"

#include <stdlib.h>
#include <string.h>

#define WORLD MPI_COMM_WORLD

enum { V = 13, CONTEXT = 4, STEPS = 3 };

static const bp_option RUN[] = {{.key = "run.dir", .type = BP_OPTION_STRING, .required = true},
                                {.key = "run.seed", .type = BP_OPTION_INT, .value = "1"},
                                {.key = "tokenizer.path", .type = BP_OPTION_STRING},
                                {.key = NULL}};

/* A part that writes down a letter a hook. Its keys: */
typedef struct toy_keys {
    int64_t digest, size;
} toy_keys;

static const bp_option toy_options[] = {
    {"toy.digest", BP_OPTION_INT, "7", 0, 100, .at = BP_AT(toy_keys, digest)}, /* may change */
    {"toy.size", BP_OPTION_INT, "1", 0, 100, .at = BP_AT(toy_keys, size)},
    {.key = NULL}};

typedef struct toy {
    int steps, commits;
} toy;

static char heard[256];                       /* letters of this rank */
static int64_t received;                      /* sum of the steps that were reported */
static int closed, fails;                     /* fails: the time whose hook does; -1: none */
static const char *digest = "7", *size = "1"; /* toy.digest and toy.size */
static int warnings;
static const bp_training_part toy_part;

static void hear(char letter)
{
    size_t used = strlen(heard);

    BP_CHECK(used + 1 < sizeof heard);
    heard[used] = letter;
}

static const toy_keys *toy_keys_of(const bp_config *config)
{
    return bp_config_bound(config, toy_options);
}

static void ask(const bp_config *config, bp_engine_spec *spec)
{
    spec->digest_every = toy_keys_of(config)->digest;
}

static void warn(const bp_config *config)
{
    warnings += (int)toy_keys_of(config)->size;
}

static bp_err open_toy(trainer *self, void **own)
{
    (void)self;
    *own = bp_alloc("test", 1, sizeof(toy));
    hear('o');
    return BP_OK;
}

static bp_err fail_at(part_time when)
{
    return (int)when == fails ? BP_FAIL(BP_ERR_CONFIG, "fault.injected", "a part fails") : BP_OK;
}

static bp_err ready(trainer *self, void *own)
{
    (void)own;
    BP_CHECK(self->spec.digest_every == strtoll(digest, NULL, 10));
    hear('r');
    return fail_at(PART_READY);
}

static bp_err begin(trainer *self, void *own)
{
    (void)self;
    (void)own;
    hear('b');
    return fail_at(PART_BEGIN);
}

static bp_err before_step(trainer *self, void *own, const bp_batch *batch)
{
    (void)self;
    (void)own;
    BP_CHECK(batch->B > 0);
    hear('s');
    return BP_OK;
}

static bp_err stepped(trainer *self, void *own)
{
    toy *part = own;

    part->steps++;
    BP_CHECK(part->steps == self->progress.step);
    bp_part_report(self, &toy_part, json_pack("{s:i}", "step", part->steps));
    return BP_OK;
}

static bp_err receive(trainer *self, void *own, const json_t *value)
{
    (void)own;
    BP_CHECK(self->mesh->coordinates);
    received += json_integer_value(json_object_get(value, "step"));
    return BP_OK;
}

static bp_err before_commit(trainer *self, void *own, bool best)
{
    (void)self;
    (void)best;
    ((toy *)own)->commits++;
    hear('c');
    return BP_OK;
}

static void put_state(const trainer *self, const void *own, bool best, json_t *state)
{
    (void)own;
    (void)best;
    (void)json_object_set_new(state, "toy", json_integer((json_int_t)self->progress.step));
}

static bp_err stop(trainer *self, void *own)
{
    (void)self;
    (void)own;
    hear('e');
    return BP_OK;
}

static bp_err finished(trainer *self, void *own)
{
    (void)self;
    (void)own;
    hear('f');
    return BP_OK;
}

static bp_err bytes_of(const trainer *self, const void *own, const bp_mesh_shape *mesh, int stage,
                       size_t *bytes)
{
    (void)self;
    (void)stage;
    BP_CHECK(own && mesh->tensor == 1);
    *bytes = 12345;
    return BP_OK;
}

static void close_toy(void *own)
{
    closed++;
    bp_free(own);
}

static const char *const MAY_CHANGE[] = {"toy.digest", NULL};

static const bp_training_part toy_part = {
    .name = "toy",
    .memory = "of a test",
    .open = open_toy,
    .may_change = MAY_CHANGE,
    .ask = ask,
    .warn = warn,
    .bytes = bytes_of,
    .at = {[PART_READY] = ready,
           [PART_BEGIN] = begin,
           [PART_STEPPED] = stepped,
           [PART_STOP] = stop,
           [PART_FINISHED] = finished},
    .before_step = before_step,
    .before_commit = before_commit,
    .put_state = put_state,
    .receive = receive,
    .close = close_toy,
};

/* A part without any hook, before the other one. */
static const bp_training_part empty_part = {.name = "empty"};
static const bp_training_part *const PARTS[] = {&empty_part, &toy_part, NULL};

static bp_err train(const char *name, bool dedicated)
{
    static const bp_option *const tables[] = {RUN,
                                              bp_corpus_options,
                                              bp_model_options,
                                              bp_mask_options,
                                              bp_noise_options,
                                              bp_mesh_options,
                                              bp_train_options,
                                              toy_options,
                                              bp_optimizer_options,
                                              bp_checkpoint_options,
                                              bp_math_options,
                                              NULL};
    toy_corpus corpus = {.documents = 3, .length = 20, .vocab_size = V, .eod_id = V - 1};
    char *keys[] = {bp_sprintf("run.dir=%s", bp_test_path(name)),
                    bp_sprintf("corpus.train=%s", bp_test_path("train.h5")),
                    bp_sprintf("mesh.coordinator=%s", dedicated ? "dedicated" : "shared"),
                    bp_sprintf("toy.digest=%s", digest),
                    bp_sprintf("toy.size=%s", size),
                    bp_strdup("model.layers=1"),
                    bp_strdup("model.width=8"),
                    bp_strdup("model.heads=2"),
                    bp_sprintf("model.context=%d", CONTEXT),
                    bp_sprintf("train.steps=%d", STEPS),
                    bp_strdup("train.batch=6"),
                    bp_strdup("checkpoint.every=2"),
                    bp_strdup("checkpoint.async=no"),
                    bp_strdup("math.precision=f32"),
                    bp_strdup("math.threads=1")};
    int count = (int)(sizeof keys / sizeof keys[0]);
    bp_config *config;
    bp_err err;

    if (bp_comm_is_root(WORLD))
        (void)toy_write(&corpus, "train.h5");
    BP_MPI(MPI_Barrier(WORLD));
    memset(heard, 0, sizeof heard);
    received = closed = 0;
    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_read(config, NULL, count, keys), BP_OK);
    bp_pretrain_warn(config, PARTS);
    err = bp_pretrain(WORLD, config, PARTS, NULL);
    bp_config_free(&config);
    for (int k = 0; k < count; k++)
        bp_free(keys[k]);
    return err;
}

/* What a part has put into the newest checkpoint. */
static int64_t saved(const char *name)
{
    json_t *manifest = NULL;
    char *folder = NULL;
    int64_t value;

    bp_test_expect(bp_checkpoint_read_metadata(bp_test_path(name), &folder, &manifest), BP_OK);
    value = json_integer_value(json_object_get(json_object_get(manifest, "state"), "toy"));
    json_decref(manifest);
    bp_free(folder);
    return value;
}

static void check_training(const char *name, bool dedicated)
{
    bool root = bp_comm_is_root(WORLD), computes = !dedicated || !root;

    fails = -1;
    bp_test_check_err(WORLD, train(name, dedicated), BP_OK);
    bp_test_check(WORLD, strcmp(heard, computes ? "orbsscsce" : "orbe") == 0);
    bp_test_check(WORLD, closed == 1);
    bp_test_check(WORLD, received == (root ? 1 + 2 + 3 : 0));
    bp_test_check(WORLD, !root || saved(name) == STEPS);
    /* once more: nothing is left to do */
    bp_test_check_err(WORLD, train(name, dedicated), BP_OK);
    bp_test_check(WORLD, strcmp(heard, "orf") == 0 && closed == 1);
}

static void hooks_are_called_in_their_order(void **state)
{
    (void)state;
    check_training("shared", false);
}

static void a_dedicated_coordinator_receives_reports(void **state)
{
    (void)state;
    if (bp_comm_size(WORLD) > 1)
        check_training("dedicated", true);
}

static void a_failure_ends_the_training_and_closes_the_part(void **state)
{
    (void)state;
    fails = PART_READY;
    bp_test_check_err(WORLD, train("refused", false), BP_ERR_CONFIG);
    bp_test_check(WORLD, strcmp(heard, "or") == 0 && closed == 1);
    fails = PART_BEGIN;
    bp_test_check_err(WORLD, train("broken", false), BP_ERR_CONFIG);
    bp_test_check(WORLD, strcmp(heard, "orb") == 0 && closed == 1);
}

static void keys_of_a_part_are_its_own(void **state)
{
    (void)state;
    fails = -1;
    warnings = 0;
    bp_test_check_err(WORLD, train("keys", false), BP_OK);
    digest = "8";
    bp_test_check_err(WORLD, train("keys", false), BP_OK);
    bp_test_check(WORLD, warnings == 2);
    size = "2";
    bp_test_check_err(WORLD, train("keys", false), BP_ERR_CONFIG);
    bp_test_check(WORLD, warnings == 4);
    digest = "7";
    size = "1";
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(hooks_are_called_in_their_order),
        cmocka_unit_test(a_dedicated_coordinator_receives_reports),
        cmocka_unit_test(a_failure_ends_the_training_and_closes_the_part),
        cmocka_unit_test(keys_of_a_part_are_its_own),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
