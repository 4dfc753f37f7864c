/* Decoding with an ensemble against scoring with it: the mixture's log-probabilities, total entropy
 * and mutual information of each next token. */
#include "bp_test_mpi.h"

#include "ensemble_world.h"

#include "base/fault.h"
#include "mesh/collective.h"
#include "uncertainty/methods/passes.h"
#include "uncertainty/methods/samples.h"

#define WORLD MPI_COMM_WORLD

static void the_world_is_made(void **state)
{
    (void)state;
    make_world();
}

static bp_ensemble_spec spec_of(const char *name)
{
    return (bp_ensemble_spec){.path = bp_test_path(name), .memory_bytes = 1 << 20};
}

/* What decoding says of every place of the batch's windows, in statistics as scoring has them:
 * log-probability of the target, total entropy, mutual information; on all ranks. */
static void decode_batch(float (*out)[TOKENS], const world_ensemble *e, const bp_model_batch *batch)
{
    const bp_model_info *info = &e->model->info;
    float *logits = bp_alloc("test", WINDOWS * info->vocab_count + 1, sizeof *logits);
    float statistics[WINDOWS][BP_DECODE_STATISTICS];
    bool last = e->mesh->pipeline_rank == e->mesh->pipeline_ranks - 1;
    bp_decoding *decoding;

    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, e->model, 1, WINDOWS, LENGTH), BP_OK);
    memset(out, 0, 3 * sizeof *out);
    for (int t = 0; t < LENGTH; t++) {
        int32_t tokens[WINDOWS], counts[WINDOWS];

        for (int w = 0; w < WINDOWS; w++) {
            counts[w] = 1;
            tokens[w] = batch->inputs[w * LENGTH + t];
        }
        bp_model_decode(decoding, 0, &(bp_decode_step){WINDOWS, counts, tokens, NULL}, logits,
                        statistics[0]);
        for (int w = 0; last && w < WINDOWS; w++) {
            int64_t v = batch->targets[w * LENGTH + t] - info->vocab_first;

            if (v >= 0 && v < info->vocab_count)
                out[0][w * LENGTH + t] = logits[w * info->vocab_count + v];
            out[1][w * LENGTH + t] = statistics[w][BP_DECODE_ENTROPY];
            out[2][w * LENGTH + t] = statistics[w][BP_DECODE_MUTUAL_INFORMATION];
        }
    }
    float *scratch = bp_alloc("test", TOKENS, sizeof *scratch);
    bp_all_sum(out[0], TOKENS, scratch, e->mesh->tensor); /* one of them has the target */
    bp_free(scratch);
    bp_bcast_bytes(out, 3 * (int64_t)sizeof *out, e->mesh->pipeline_ranks - 1, e->mesh->pipeline);
    bp_model_decode_free(&decoding);
    bp_free(logits);
}

/* The same formulas on logits whose sums have another order: 1e-5, as scoring against its twin. */
static bool is_as_scored(float (*out)[TOKENS], const float *values)
{
    static const int statistics[3] = {BP_MODEL_LOGPROB, BP_MODEL_TOTAL_ENTROPY,
                                      BP_MODEL_MUTUAL_INFORMATION};
    double worst = 0;

    for (int k = 0; k < 3; k++)
        for (int i = 0; i < TOKENS; i++) {
            double off = fabs((double)out[k][i] - (double)values[statistics[k] * TOKENS + i]);

            if (world_targets[i] >= 0 && !(off <= worst))
                worst = off;
        }
    if (!(worst < 1e-5))
        print_error("off by %g\n", worst);
    return worst < 1e-5;
}

static void mixtures_are_those_of_scoring(void **state)
{
    static float values[(BP_MODEL_MEMBER + 5) * TOKENS], out[3][TOKENS];
    static const char *const names[] = {"three", "one", "copies"};
    bp_model_batch batch = world_batch();
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int k = 0; k < 3 * count; k++) {
        bp_ensemble_spec spec = spec_of(names[k % 3]);
        world_ensemble e;
        bool none = true;

        if (k % 2 == 1) /* chunks of few rows */
            spec.memory_bytes = 3 * 5 * (V + 2) * sizeof(float);
        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k / 3], &spec), BP_OK);
        bp_test_check_err(WORLD, bp_model_score(e.model, &batch, values), BP_OK);
        decode_batch(out, &e, &batch);
        bp_test_check(WORLD, is_as_scored(out, values));
        for (int i = 0; i < TOKENS; i++)
            none = none && out[2][i] == 0;
        bp_test_check(WORLD, none == (k % 3 > 0)); /* equal members agree on everything */
        close_ensemble(&e);
    }
}

static void samples_share_the_sequences_of_one_backbone(void **state)
{
    static float values[(BP_MODEL_MEMBER + SAMPLES) * TOKENS], out[3][TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("a");
    world_ensemble e;
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bp_model *model;

    (void)state;
    assert_int_equal(open_ensemble(&e, MPI_COMM_SELF, &alone, &spec), BP_OK);
    bp_test_expect(bp_model_open(&model, e.mesh, e.config, spec.path), BP_OK);
    if (bp_comm_is_root(WORLD))
        save_samples("samples", model->info.digest, WIDTH);
    bp_model_free(&model);
    close_ensemble(&e);
    BP_MPI(MPI_Barrier(WORLD));
    bp_sampled_heads heads = {{&bp_sampled_heads_sampler, 0}, bp_test_path("samples"), NULL, NULL};
    spec.sampler = &heads.sampler;
    for (int k = 0; k < count; k++) {
        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check_err(WORLD, bp_model_score(e.model, &batch, values), BP_OK);
        decode_batch(out, &e, &batch);
        bp_test_check(WORLD, is_as_scored(out, values));
        close_ensemble(&e);
    }
}

static void what_can_not_be_done_is_refused_on_all_ranks(void **state)
{
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bp_ensemble_spec passes = spec_of("a"), three = spec_of("three");
    bp_decoding *decoding;
    world_ensemble e;

    (void)state;
    bp_passes with = {{&bp_dropout_sampler, 3}, 0.1F, 0};
    passes.sampler = &with.sampler;
    bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[count - 1], &passes), BP_OK);
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, e.model, 1, 2, LENGTH), BP_ERR_CONFIG);
    bp_test_check(WORLD, decoding == NULL);
    close_ensemble(&e);
    bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[0], &three), BP_OK);
    for (int call = 1; call <= 2; call++) {
        char fault[64];

        snprintf(fault, sizeof fault, "base.alloc:%d@%d", call, bp_comm_size(WORLD) > 1);
        bp_fault_arm(fault);
        bp_test_check_err(WORLD, bp_model_decode_new(&decoding, e.model, 1, 2, LENGTH),
                          BP_ERR_SYSTEM);
        bp_fault_arm(NULL);
        bp_test_check(WORLD, decoding == NULL);
    }
    close_ensemble(&e);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_made),
        cmocka_unit_test(mixtures_are_those_of_scoring),
        cmocka_unit_test(samples_share_the_sequences_of_one_backbone),
        cmocka_unit_test(what_can_not_be_done_is_refused_on_all_ranks),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
