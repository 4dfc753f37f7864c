/* Ensembles: every number against float64 loops over all logits, on meshes of 1, 2 and 4 ranks; the
 * identities; passes with dropout; chunks; temperatures; what is refused. */
#include "bp_test_mpi.h"

#include "ensemble_world.h"

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

/* The largest |values - twin| over scored tokens; infinite where one is scored and the other not.
 */
static double distance_from_twin(const float *values, const double *twin, int channels)
{
    double worst = 0;

    for (int c = 0; c < channels; c++)
        for (int i = 0; i < TOKENS; i++) {
            float x = values[c * TOKENS + i];
            double d = fabs((double)x - twin[c * TOKENS + i]);

            if (isnan(x) != (world_targets[i] < 0))
                return INFINITY;
            if (world_targets[i] >= 0 && !(d <= worst)) {
                worst = d;
                if (d > 1e-5 || isnan(d))
                    print_error("channel %d token %d: %.9g is not %.9g\n", c, i, (double)x,
                                twin[c * TOKENS + i]);
            }
        }
    return worst;
}

/* Every channel of these members' logits. */
static void make_twin(double *twin, float (*logits)[TOKENS * V], int M)
{
    for (int i = 0; i < TOKENS; i++) {
        double lp[8][V], out[BP_LM_MEMBER + 8];

        if (world_targets[i] < 0)
            continue;
        for (int m = 0; m < M; m++)
            plain_logprob(lp[m], logits[m] + i * V);
        plain_values(out, (const double(*)[V])lp, M, world_targets[i]);
        for (int c = 0; c < BP_LM_MEMBER + M; c++)
            twin[c * TOKENS + i] = out[c];
    }
}

/* float32 logits of 16 products, sums over 23 entries: 1e-5 is a hundred times their rounding. */
static void every_channel_is_the_plain_twin_s_on_every_mesh(void **state)
{
    static float logits[MEMBERS][TOKENS * V], values[(BP_LM_MEMBER + MEMBERS) * TOKENS];
    static double twin[(BP_LM_MEMBER + MEMBERS) * TOKENS];
    bp_lm_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("three");
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int m = 0; m < MEMBERS; m++)
        whole_logits(logits[m], world_models[m].name, &batch, BP_LM_NO_DROPOUT, 0, 0);
    make_twin(twin, logits, MEMBERS);
    for (int k = 0; k < count; k++) {
        world_ensemble e;

        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check(WORLD, e.lm->info.members == MEMBERS && e.lm->info.step == 30 &&
                                 e.lm->info.channels == BP_LM_MEMBER + MEMBERS &&
                                 strcmp(e.lm->info.tokenizer_hash, HASH_A) == 0);
        bp_test_check_err(WORLD, bp_lm_score(e.lm, &batch, values), BP_OK);
        bp_test_check(WORLD, distance_from_twin(values, twin, BP_LM_MEMBER + MEMBERS) < 1e-5);
        close_ensemble(&e);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_made),
        cmocka_unit_test(every_channel_is_the_plain_twin_s_on_every_mesh),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
