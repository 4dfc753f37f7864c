/* All that an ensemble tells, against numpy and scipy on the members' whole distributions: they are
 * written to files, and check_statistics.py makes every number of them again. */
#include "bp_test_mpi.h"

#define WORLD_VOCABULARY 1201 /* of more than two blocks of the mixture's sums, and odd */
#define WORLD_SCALE      36
#include "ensemble_world.h"
#include "statistics/temperature.h"

#include <stdlib.h>

#define WORLD  MPI_COMM_WORLD
#define PYTHON "/usr/bin/python3"

enum {
    TEMPERED = BP_MODEL_TEMPERED_END - BP_MODEL_TEMPERED_LOGPROB,
    CHANNELS = BP_MODEL_MEMBER + TEMPERED + MEMBERS
};

static void dump(const char *name, int mesh, const void *data, size_t bytes)
{
    char file[64];

    snprintf(file, sizeof file, "%s%d", name, mesh);
    bp_test_expect(bp_file_write(bp_test_path(file), data, bytes), BP_OK);
}

/* Targets drawn from the mixture itself, so that some are its top token, and the best temperature
 * is one inside the range. */
static void draw_targets(float (*logits)[TOKENS * V])
{
    static double lp[V], p[V];
    bp_rng_key key = bp_rng_key_of(11, BP_RNG_TEST, 0, 0, 0);

    for (int i = 0; i < TOKENS; i++) {
        double left = bp_rng_uniform(&key, (uint64_t)i);
        int v = 0;

        memset(p, 0, sizeof p);
        for (int m = 0; m < MEMBERS; m++) {
            plain_logprob(lp, logits[m] + i * V);
            for (int k = 0; k < V; k++)
                p[k] += exp(lp[k]) / MEMBERS;
        }
        while (v < V - 1 && left >= p[v])
            left -= p[v++];
        if (world_targets[i] >= 0)
            world_targets[i] = v;
    }
}

/* Of the temperature: that of least NLL, the NLL there, whether at an edge; that at 1.3. */
static void dump_temperature(int mesh, const bp_scaled_sums *sums)
{
    double beta[BP_TEMPERATURE_POINTS], fit[4];
    bp_temperature_sums fitted = {.points = BP_TEMPERATURE_POINTS,
                                  .tokens = sums->tokens,
                                  .beta = beta,
                                  .value = sums->value,
                                  .first = sums->first,
                                  .second = sums->second};

    for (int k = 0; k < BP_TEMPERATURE_POINTS; k++)
        beta[k] = bp_scaled_beta(k);
    bp_temperature best = bp_temperature_fit(&fitted);
    fit[0] = best.temperature;
    fit[1] = best.nll;
    fit[2] = best.at_edge;
    fit[3] = bp_temperature_nll(&fitted, 1.3);
    dump("beta", mesh, beta, sizeof beta);
    dump("value", mesh, sums->value, sizeof sums->value);
    dump("first", mesh, sums->first, sizeof sums->first);
    dump("second", mesh, sums->second, sizeof sums->second);
    dump("fit", mesh, fit, sizeof fit);
}

/* On every mesh of so many ranks: members side by side, a vocabulary cut over ranks, and more. */
static void every_number_is_numpy_s_on_every_mesh(void **state)
{
    static float logits[MEMBERS][TOKENS * V], values[CHANNELS * TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = {
        .path = bp_test_path("three"), .memory_bytes = 1 << 18, .temperature = 1.3};
    int count, status = 0;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bool root = bp_comm_is_root(WORLD);

    (void)state;
    make_world();
    for (int m = 0; m < MEMBERS; m++)
        whole_logits(logits[m], world_models[m].name, &batch, BP_MODEL_NO_DROPOUT, 0, 0);
    draw_targets(logits);
    for (int k = 0; k < count; k++) {
        world_ensemble e;
        bp_scaled_sums sums = {.tokens = 0};

        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check_err(WORLD, bp_model_score(e.model, &batch, values), BP_OK);
        bp_test_check_err(WORLD, bp_ensemble_add_scaled(e.model, &batch, &sums), BP_OK);
        close_ensemble(&e);
        if (root) {
            dump("values", k, values, sizeof values);
            dump_temperature(k, &sums);
        }
    }
    if (root) {
        char *command = bp_sprintf(PYTHON " %s/check_channels.py %s %d %d %d %d", BP_TEST_SCRIPTS,
                                   bp_test_folder(), MEMBERS, TOKENS, V, count);

        dump("logits", 0, logits, sizeof logits);
        dump("targets", 0, world_targets, sizeof world_targets);
        status = system(command);
        bp_free(command);
    }
    bp_test_check(WORLD, status == 0);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_is_numpy_s_on_every_mesh),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
