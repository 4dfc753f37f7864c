/* Validation, as a job around it sees it. */
#include "bp_test_mpi.h"
#include "math/math.h"

#include "base/process/signals.h"
#include "data/toy_corpus.h"
#include "mesh/collective.h"
#include "models/family.h"
#include "train/loop/pretrain.h"
#include "train/loop/trainer.h"
#include "train/parts/list.h"

#define WORLD MPI_COMM_WORLD

enum { V = 13, CONTEXT = 4 };

static const bp_option RUN[] = {{.key = "run.dir", .type = BP_OPTION_STRING, .required = true},
                                {.key = "run.seed", .type = BP_OPTION_INT, .value = "1"},
                                {.key = "tokenizer.path", .type = BP_OPTION_STRING},
                                {.key = NULL}};

static void count_look(void *context)
{
    ++*(int64_t *)context;
}

/* How often a training of one step looks up, on the lead, with so many windows to validate. */
static int64_t looks(const char *name, int64_t windows)
{
    static const bp_option *const tables[] = {RUN,
                                              bp_corpus_options,
                                              bp_model_options,
                                              bp_mask_options,
                                              bp_noise_options,
                                              bp_mesh_options,
                                              bp_train_options,
                                              bp_optimizer_options,
                                              bp_checkpoint_options,
                                              bp_math_options,
                                              NULL};
    toy_corpus train = {.documents = 3, .length = 20, .vocab_size = V, .eod_id = V - 1},
               valid = {
                   .documents = 1, .length = windows * CONTEXT, .vocab_size = V, .eod_id = V - 1};
    char *keys[] = {bp_sprintf("run.dir=%s", bp_test_path(name)),
                    bp_sprintf("corpus.train=%s", bp_test_path("train.h5")),
                    bp_sprintf("corpus.valid=%s.h5", bp_test_path(name)),
                    bp_strdup("model.layers=1"),
                    bp_strdup("model.width=8"),
                    bp_strdup("model.heads=2"),
                    bp_sprintf("model.context=%d", CONTEXT),
                    bp_strdup("train.steps=1"),
                    bp_strdup("train.batch=2"),
                    bp_strdup("math.precision=f32"),
                    bp_strdup("math.threads=1")};
    int count = (int)(sizeof keys / sizeof keys[0]);
    char *file = bp_sprintf("%s.h5", name);
    bp_config *config;
    int64_t seen = 0;

    if (bp_comm_is_root(WORLD)) {
        (void)toy_write(&train, "train.h5");
        (void)toy_write(&valid, file);
    }
    BP_MPI(MPI_Barrier(WORLD));
    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_read(config, NULL, count, keys), BP_OK);
    bp_signals_watch(count_look, &seen);
    bp_test_check_err(WORLD, bp_pretrain(WORLD, config, bp_training_parts, NULL), BP_OK);
    bp_signals_unwatch(count_look, &seen);
    bp_config_free(&config);
    bp_free(file);
    for (int k = 0; k < count; k++)
        bp_free(keys[k]);
    return seen;
}

/* Of 40 windows 30 more than of 10, one a piece (mesh.micro_batch = 1), shared by the data ranks.
 */
static void a_job_around_it_is_heard_once_a_piece(void **state)
{
    int64_t few = looks("few", 10), many = looks("many", 40);

    (void)state;
    bp_test_check(WORLD, many - few == 30 / bp_comm_size(WORLD));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_job_around_it_is_heard_once_a_piece),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
