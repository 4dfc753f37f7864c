/* Conformal sets of an ensemble's mixture against those of sorted float64 probabilities, on meshes
 * of 1, 2 and 4 ranks. */
#include "bp_test_mpi.h"

#define WORLD_VOCABULARY 331
#define WORLD_SCALE      6
#include "ensemble_world.h"

#include <stdlib.h>

#define WORLD MPI_COMM_WORLD

enum { FIRST_MEMBER = BP_MODEL_SET_END, FLOATS = (BP_MODEL_SET_END + MEMBERS) * TOKENS };

static const bp_conformal_rule rules[] = {
    {{0.93, 0.9, 0.95}, 0.01, 3},
    {{0.995, 0.5, 0.4}, 0.003, 0},
    {{0.98, 0.001, 0.002}, 0, 1},         /* sets of 0 or 1 */
    {{INFINITY, 0.9999, INFINITY}, 0, 5}, /* of nearly all, and of all */
};

static void the_world_is_made(void **state)
{
    (void)state;
    make_world();
}

static int falls(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x < y) - (x > y);
}

/* The mixture's probabilities of token i. */
static void mix(double p[V], float (*logits)[TOKENS * V], int i)
{
    memset(p, 0, V * sizeof *p);
    for (int m = 0; m < MEMBERS; m++) {
        double lp[V];

        plain_logprob(lp, logits[m] + i * V);
        for (int v = 0; v < V; v++)
            p[v] += exp(lp[v]) / MEMBERS;
    }
}

/* Mean size over u in [0, 1), which is continuous in the threshold: the length of {u: score <=
 * threshold} of each rank, added up. */
static double mean_size(const double sorted[V], const bp_conformal_rule *rule, int kind)
{
    double above = 0, size = 0;

    for (int k = 0; k < V; k++) {
        double penalty = kind == BP_CONFORMAL_RAPS && k + 1 > rule->free
                             ? rule->penalty * (double)(k + 1 - rule->free)
                             : 0;

        size += fmin(1, fmax(0, (rule->threshold[kind] - above - penalty) / sorted[k]));
        above += sorted[k];
    }
    return size;
}

static double got_size(const float *values, int whole, int i)
{
    return (double)values[whole * TOKENS + i] + fmax(0, (double)values[(whole + 1) * TOKENS + i]);
}

/* float32 log-probabilities, and sizes that grow by 1 / p for a mass more: 1e-5 / p. */
static bool row_is(const float *values, int i, const double p[V], const bp_conformal_rule *rule)
{
    double sorted[V], target = p[world_targets[i]];
    int before = 0, least = 0, most = 0;
    bool same = true;

    memcpy(sorted, p, sizeof sorted);
    qsort(sorted, V, sizeof *sorted, falls);
    for (int v = 0; v < V; v++) {
        before += p[v] > target;
        least += 1 - p[v] < rule->threshold[BP_CONFORMAL_LAC] - 1e-6;
        most += 1 - p[v] < rule->threshold[BP_CONFORMAL_LAC] + 1e-6;
    }
    for (int kind = BP_CONFORMAL_APS; kind < BP_CONFORMAL_KINDS; kind++) {
        double want = mean_size(sorted, rule, kind),
               got = got_size(values,
                              kind == BP_CONFORMAL_APS ? BP_MODEL_SET_APS : BP_MODEL_SET_RAPS, i),
               edge = sorted[(int)fmin(want, V - 1)];

        if (!(fabs(got - want) < 1e-4 + 1e-5 / edge))
            print_error("kind %d token %d: %.9g is not %.9g (edge %g)\n", kind, i, got, want, edge);
        same = same && fabs(got - want) < 1e-4 + 1e-5 / edge;
    }
    return same && (int)values[BP_MODEL_SET_RANK * TOKENS + i] == before + 1 &&
           (int)values[BP_MODEL_SET_LAC * TOKENS + i] >= least &&
           (int)values[BP_MODEL_SET_LAC * TOKENS + i] <= most;
}

static void sets_are_those_of_sorted_probabilities_on_every_mesh(void **state)
{
    static float logits[MEMBERS][TOKENS * V], values[FLOATS];
    bp_model_batch batch = world_batch();
    int count, wrong = 0, scored = 0;
    const bp_mesh_shape *meshes = world_meshes(&count);
    double least = V, most = 0;

    (void)state;
    for (int m = 0; m < MEMBERS; m++)
        whole_logits(logits[m], world_models[m].name, &batch, BP_MODEL_NO_DROPOUT, 0, 0);
    for (int k = 0; k < count; k++)
        for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
            bp_ensemble_spec spec = {
                .path = bp_test_path("three"), .memory_bytes = 1 << 20, .sets = &rules[r]};
            world_ensemble e;

            bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
            bp_test_check(WORLD, e.model->info.statistics == FIRST_MEMBER + MEMBERS);
            bp_test_check_err(WORLD, bp_model_score(e.model, &batch, values), BP_OK);
            close_ensemble(&e);
            for (int i = 0; i < TOKENS; i++) {
                double p[V];

                if (world_targets[i] < 0)
                    continue;
                mix(p, logits, i);
                wrong += !row_is(values, i, p, &rules[r]);
                scored++;
                least = fmin(least, got_size(values, BP_MODEL_SET_APS, i));
                most = fmax(most, got_size(values, BP_MODEL_SET_APS, i));
            }
        }
    bp_test_check(WORLD, wrong == 0 && scored > 100);
    bp_test_check(WORLD, least < 1 && most > 20);
}

static void other_statistics_stay_as_they_are(void **state)
{
    static float with[FLOATS], without[(BP_MODEL_MEMBER + MEMBERS) * TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = {.path = bp_test_path("three"), .memory_bytes = 1 << 20};
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int k = 0; k < count; k++) {
        world_ensemble e;

        spec.sets = NULL;
        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check_err(WORLD, bp_model_score(e.model, &batch, without), BP_OK);
        close_ensemble(&e);
        spec.sets = &rules[0];
        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check_err(WORLD, bp_model_score(e.model, &batch, with), BP_OK);
        close_ensemble(&e);
        bp_test_check(WORLD, memcmp(with, without, BP_MODEL_MEMBER * TOKENS * sizeof *with) == 0);
        bp_test_check(WORLD,
                      memcmp(with + FIRST_MEMBER * TOKENS, without + BP_MODEL_MEMBER * TOKENS,
                             MEMBERS * TOKENS * sizeof *with) == 0);
    }
}

static void targets_are_the_mixture_s(void **state)
{
    static float logits[MEMBERS][TOKENS * V];
    static const bp_conformal_rule all = {.threshold = {INFINITY, INFINITY, INFINITY}};
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = {.path = bp_test_path("three"), .memory_bytes = 1 << 20, .sets = &all};
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int m = 0; m < MEMBERS; m++)
        whole_logits(logits[m], world_models[m].name, &batch, BP_MODEL_NO_DROPOUT, 0, 0);
    for (int k = 0; k < count; k++) {
        bp_conformal_target targets[TOKENS];
        world_ensemble e;
        int row = 0, wrong = 0;

        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check_err(WORLD, bp_ensemble_targets(e.model, &batch, targets), BP_OK);
        close_ensemble(&e);
        for (int i = 0; i < TOKENS; i++) {
            double p[V], above = 0, target;
            int before = 0;

            if (world_targets[i] < 0)
                continue;
            mix(p, logits, i);
            target = p[world_targets[i]];
            for (int v = 0; v < V; v++)
                if (p[v] > target) {
                    before++;
                    above += p[v];
                }
            wrong += !(targets[row].before == before && fabs(targets[row].above - above) < 1e-5 &&
                       fabs(targets[row].p - target) < 1e-5 * fmax(target, 1e-3));
            row++;
        }
        bp_test_check(WORLD, wrong == 0 && row == bp_model_batch_rows(&batch));
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_made),
        cmocka_unit_test(sets_are_those_of_sorted_probabilities_on_every_mesh),
        cmocka_unit_test(other_statistics_stay_as_they_are),
        cmocka_unit_test(targets_are_the_mixture_s),
    };

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
