/* Ensembles: every number against float64 loops over all logits, on meshes of 1, 2 and 4 ranks; the
 * identities; passes with dropout; chunks; temperatures. */
#include "bp_test_mpi.h"

#include "ensemble_world.h"
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

/* The largest |values - twin| over scored tokens; infinite where one is scored and the other not.
 */
static double distance_from_twin(const float *values, const double *twin, int statistics)
{
    double worst = 0;

    for (int c = 0; c < statistics; c++)
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

/* Every statistic of these members' logits. */
static void make_twin(double *twin, float (*logits)[TOKENS * V], int M)
{
    for (int i = 0; i < TOKENS; i++) {
        double lp[8][V], out[BP_MODEL_MEMBER + 8];

        if (world_targets[i] < 0)
            continue;
        for (int m = 0; m < M; m++)
            plain_logprob(lp[m], logits[m] + i * V);
        plain_values(out, (const double(*)[V])lp, M, world_targets[i]);
        for (int c = 0; c < BP_MODEL_MEMBER + M; c++)
            twin[c * TOKENS + i] = out[c];
    }
}

/* float32 logits of 16 products, sums over 23 entries: 1e-5 is a hundred times their rounding. */
static void every_channel_is_the_plain_twin_s_on_every_mesh(void **state)
{
    static float logits[MEMBERS][TOKENS * V], values[(BP_MODEL_MEMBER + MEMBERS) * TOKENS];
    static double twin[(BP_MODEL_MEMBER + MEMBERS) * TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("three");
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int m = 0; m < MEMBERS; m++)
        whole_logits(logits[m], world_models[m].name, &batch, BP_MODEL_NO_DROPOUT, 0, 0);
    make_twin(twin, logits, MEMBERS);
    for (int k = 0; k < count; k++) {
        world_ensemble e;

        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check(WORLD, e.model->info.members == MEMBERS && e.model->info.step == 30 &&
                                 e.model->info.statistics == BP_MODEL_MEMBER + MEMBERS &&
                                 strcmp(e.model->info.tokenizer_hash, HASH_A) == 0);
        bp_test_check_err(WORLD, bp_model_score(e.model, &batch, values), BP_OK);
        bp_test_check(WORLD, distance_from_twin(values, twin, BP_MODEL_MEMBER + MEMBERS) < 1e-5);
        close_ensemble(&e);
    }
}

/* Values of an ensemble on a mesh over `comm`. */
static void score_on(float *values, MPI_Comm comm, const bp_mesh_shape *shape,
                     const bp_ensemble_spec *spec, const bp_model_batch *batch)
{
    world_ensemble e;

    bp_test_check_err(comm, open_ensemble(&e, comm, shape, spec), BP_OK);
    bp_test_check_err(comm, bp_model_score(e.model, batch, values), BP_OK);
    close_ensemble(&e);
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

static void the_identities_hold_on_every_token(void **state)
{
    static float values[(BP_MODEL_MEMBER + MEMBERS) * TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("three");
    int count, disagreements = 0;
    const bp_mesh_shape *meshes = world_meshes(&count);
    double largest = 0;
    bool hold = true;

    (void)state;
    for (int k = 0; k < count; k++) {
        score_on(values, WORLD, &meshes[k], &spec, &batch);
        for (int i = 0; i < TOKENS; i++) {
            double mean = 0, information = (double)values[BP_MODEL_MUTUAL_INFORMATION * TOKENS + i];

            if (world_targets[i] < 0)
                continue;
            for (int m = 0; m < MEMBERS; m++)
                mean += (double)values[(BP_MODEL_MEMBER + m) * TOKENS + i] / MEMBERS;
            hold = hold &&
                   near((double)values[BP_MODEL_TOTAL_ENTROPY * TOKENS + i],
                        (double)values[BP_MODEL_EXPECTED_ENTROPY * TOKENS + i] + information, 1e-6);
            hold = hold && information >= 0 && (double)values[i] >= mean * (1 + 1e-6);
            largest = fmax(largest, information);
            disagreements += values[BP_MODEL_AGREEMENT * TOKENS + i] < 1;
        }
    }
    bp_test_check(WORLD, hold);
    bp_test_check(WORLD, largest > 0.1 && disagreements > 0); /* else nothing was tried */
}

static void copies_of_one_member_agree_exactly(void **state)
{
    enum { COPIES = 5 };
    static float values[(BP_MODEL_MEMBER + COPIES) * TOKENS], one[(BP_MODEL_MEMBER + 1) * TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("copies"), single = spec_of("b");
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bool hold = true;

    (void)state;
    for (int k = 0; k < count; k++) {
        score_on(values, WORLD, &meshes[k], &spec, &batch);
        score_on(one, WORLD, &meshes[k], &single, &batch);
        for (int i = 0; i < TOKENS; i++) {
            if (world_targets[i] < 0)
                continue;
            for (int m = 0; m < COPIES; m++)
                hold = hold && values[(BP_MODEL_MEMBER + m) * TOKENS + i] == one[i];
            hold = hold && values[i] == one[i];
            hold = hold && values[BP_MODEL_MUTUAL_INFORMATION * TOKENS + i] == 0;
            hold = hold && values[BP_MODEL_LOGPROB_VARIANCE * TOKENS + i] == 0;
            hold = hold && values[BP_MODEL_AGREEMENT * TOKENS + i] == 1;
            hold =
                hold && values[BP_MODEL_CORRECT * TOKENS + i] == one[BP_MODEL_CORRECT * TOKENS + i];
            hold = hold && near((double)values[BP_MODEL_TOTAL_ENTROPY * TOKENS + i],
                                (double)one[BP_MODEL_TOTAL_ENTROPY * TOKENS + i], 1e-6);
        }
    }
    bp_test_check(WORLD, hold);
}

/* The same bits as bp_model_score of the model itself; a list of one has them too. */
static void one_member_is_plain_scoring_to_the_bit(void **state)
{
    static float plain[TOKENS], values[(BP_MODEL_MEMBER + 1) * TOKENS];
    bp_model_batch batch = world_batch();
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int k = 0; k < count; k++)
        for (int listed = 0; listed < 2; listed++) {
            bp_ensemble_spec spec = spec_of(listed ? "one" : "a");
            world_ensemble e;
            bp_model *model;

            bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
            bp_test_check_err(WORLD, bp_model_open(&model, e.mesh, e.config, bp_test_path("a")),
                              BP_OK);
            bp_test_check_err(WORLD, bp_model_score(model, &batch, plain), BP_OK);
            bp_test_check_err(WORLD, bp_model_score(e.model, &batch, values), BP_OK);
            bp_test_check(WORLD, memcmp(plain, values, sizeof plain) == 0);
            bp_test_check(WORLD,
                          memcmp(plain, values + BP_MODEL_MEMBER * TOKENS, sizeof plain) == 0);
            bp_test_check(WORLD,
                          (strcmp(model->info.digest, e.model->info.digest) == 0) == (listed == 0));
            bp_test_check(
                WORLD, strcmp(bp_ensemble_member_name(e.model, 0), listed ? "m00" : "model") == 0);
            bp_model_free(&model);
            close_ensemble(&e);
        }
}

/* A row at a time, a few, or all: and so the windows, a few at a time. */
static void chunks_of_any_size_have_the_same_bits(void **state)
{
    enum { FLOATS = (BP_MODEL_MEMBER + MEMBERS) * TOKENS };
    static const size_t sizes[] = {900, 3000, 20000};
    static float all[FLOATS], some[FLOATS];
    bp_model_batch batch = world_batch();
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int k = 0; k < count; k++) {
        bp_ensemble_spec spec = spec_of("three");

        score_on(all, WORLD, &meshes[k], &spec, &batch);
        for (int j = 0; j < 3; j++) {
            spec.memory_bytes = sizes[j];
            score_on(some, WORLD, &meshes[k], &spec, &batch);
            bp_test_check(WORLD, memcmp(all, some, sizeof all) == 0);
        }
    }
}

static void a_batch_without_targets_has_no_values(void **state)
{
    static float values[(BP_MODEL_MEMBER + MEMBERS) * TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("three");
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bool none = true;

    (void)state;
    for (int i = 0; i < TOKENS; i++)
        world_targets[i] = -1;
    score_on(values, WORLD, &meshes[0], &spec, &batch);
    for (int i = 0; i < (BP_MODEL_MEMBER + MEMBERS) * TOKENS; i++)
        none = none && isnan(values[i]);
    batch.windows = 0;
    score_on(values, WORLD, &meshes[0], &spec, &batch);
    bp_test_check(WORLD, none);
}

/* ---- passes with dropout ---- */

enum { PASSES = 3, PASS_FLOATS = (BP_MODEL_MEMBER + PASSES) * TOKENS };

static bp_ensemble_spec passes_of(float rate, uint64_t seed)
{
    static bp_passes kept[8];
    static int next;
    bp_passes *passes = &kept[next++ % 8];

    *passes = (bp_passes){{&bp_dropout_sampler, PASSES}, rate, seed};
    return (bp_ensemble_spec){
        .path = bp_test_path("a"), .sampler = &passes->sampler, .memory_bytes = 1 << 20};
}

static void passes_are_a_function_of_seed_and_place_on_every_mesh(void **state)
{
    static float logits[PASSES][TOKENS * V], values[PASS_FLOATS];
    static double twin[PASS_FLOATS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = passes_of(0.2F, 9);
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    for (int m = 0; m < PASSES; m++)
        whole_logits(logits[m], "a", &batch, m, 0.2F, 9);
    make_twin(twin, logits, PASSES);
    for (int m = 1; m < PASSES; m++)
        bp_test_check(WORLD, fabs(twin[(BP_MODEL_MEMBER + m) * TOKENS] -
                                  twin[(BP_MODEL_MEMBER + m - 1) * TOKENS]) > 1e-3);
    for (int k = 0; k < count; k++) {
        score_on(values, WORLD, &meshes[k], &spec, &batch);
        bp_test_check(WORLD, distance_from_twin(values, twin, BP_MODEL_MEMBER + PASSES) < 1e-5);
    }
}

static void passes_differ_by_seed_and_slot_alone(void **state)
{
    static float all[PASS_FLOATS], again[PASS_FLOATS], plain[TOKENS];
    bp_model_batch batch = world_batch(), one = batch;
    bp_ensemble_spec spec = passes_of(0.2F, 9), other = passes_of(0.2F, 10), none = passes_of(0, 9),
                     alone_spec = spec_of("a");
    bool same = true;

    (void)state;
    score_on(all, MPI_COMM_SELF, &alone, &spec, &batch);
    score_on(again, MPI_COMM_SELF, &alone, &spec, &batch);
    assert_memory_equal(all, again, sizeof all);
    score_on(again, MPI_COMM_SELF, &alone, &other, &batch);
    assert_true(fabsf(all[0] - again[0]) > 1e-4F);
    score_on(again, MPI_COMM_SELF, &alone, &none, &batch);
    memcpy(plain, again, sizeof plain);
    score_on(again, MPI_COMM_SELF, &alone, &alone_spec, &batch);
    assert_memory_equal(plain, again, sizeof plain);
    /* Window 2 alone, and then in another slot. */
    one.windows = 1;
    one.inputs += 2 * LENGTH;
    one.targets += 2 * LENGTH;
    one.first_slot += 2;
    score_on(again, MPI_COMM_SELF, &alone, &spec, &one);
    assert_memory_equal(again, all + 2 * LENGTH, LENGTH * sizeof *all);
    one.first_slot++;
    score_on(again, MPI_COMM_SELF, &alone, &spec, &one);
    for (int i = 0; i < LENGTH; i++)
        same = same && (again[i] == all[2 * LENGTH + i] || isnan(again[i]));
    assert_false(same);
}

/* ---- samples of the last layer ---- */

/* logits[TOKENS][V] of the samples: hidden states of the model, and plain products. */
static void sample_logits(float (*logits)[TOKENS * V], bp_model *model, const bp_model_batch *batch)
{
    static float hidden[TOKENS * WIDTH];

    bp_test_expect(model->ops->backbone(model, batch, BP_MODEL_NO_DROPOUT, hidden), BP_OK);
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < TOKENS; i++)
            for (int v = 0; v < V; v++) {
                double sum = 0;

                for (int c = 0; c < WIDTH; c++)
                    sum += (double)hidden[i * WIDTH + c] *
                           (double)sample_entry(s, (int64_t)v * WIDTH + c);
                logits[s][i * V + v] = (float)sum;
            }
}

static void samples_are_heads_on_one_backbone(void **state)
{
    static float logits[SAMPLES][TOKENS * V], values[(BP_MODEL_MEMBER + SAMPLES) * TOKENS];
    static double twin[(BP_MODEL_MEMBER + SAMPLES) * TOKENS];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("a");
    world_ensemble e;
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bp_model *model;

    (void)state;
    assert_int_equal(open_ensemble(&e, MPI_COMM_SELF, &alone, &spec), BP_OK);
    bp_test_expect(bp_model_open(&model, e.mesh, e.config, spec.path), BP_OK);
    sample_logits(logits, model, &batch);
    make_twin(twin, logits, SAMPLES);
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
        bp_test_check(WORLD, distance_from_twin(values, twin, BP_MODEL_MEMBER + SAMPLES) < 1e-5);
        bp_test_check(WORLD, strcmp(bp_ensemble_member_name(e.model, 2), "sample-002") == 0);
        close_ensemble(&e);
    }
}

/* ---- changed logits ---- */

static float noise_of(int64_t member, int64_t slot, int64_t position, int64_t column)
{
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, member, slot, position);

    return (float)bp_rng_normal(&key, (uint64_t)column);
}

static void add_noise(const bp_member_sampler *sampler, const bp_member_rows *rows, float *logits)
{
    (void)sampler;
    for (int64_t r = 0; r < rows->rows; r++)
        for (int64_t v = 0; v < rows->columns; v++) {
            float *logit = &logits[r * rows->columns + v];

            *logit = *logit / 2 + noise_of(rows->member, bp_member_slot(rows, r),
                                           bp_member_position(rows, r), rows->first_column + v);
        }
}

static void identify_noise(const bp_member_sampler *sampler, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", sampler->ops->word);
}

static void changed_logits_are_a_function_of_member_and_row_on_every_mesh(void **state)
{
    static const bp_member_sampler_ops ops = {.word = "noise",
                                              .member = "draw",
                                              .kind = BP_MEMBER_HEADS,
                                              .identify = identify_noise,
                                              .logits = add_noise};
    static float logits[PASSES][TOKENS * V], values[PASS_FLOATS];
    static double twin[PASS_FLOATS];
    bp_model_batch batch = world_batch();
    bp_member_sampler sampler = {&ops, PASSES};
    bp_ensemble_spec spec = {
        .path = bp_test_path("a"), .sampler = &sampler, .memory_bytes = 3000}; /* several chunks */
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bp_decoding *decoding;
    world_ensemble e;

    (void)state;
    for (int m = 0; m < PASSES; m++) {
        whole_logits(logits[m], "a", &batch, BP_MODEL_NO_DROPOUT, 0, 0);
        for (int64_t i = 0; i < (int64_t)TOKENS * V; i++)
            logits[m][i] = logits[m][i] / 2 +
                           noise_of(m, batch.first_slot + i / V / LENGTH, i / V % LENGTH, i % V);
    }
    make_twin(twin, logits, PASSES);
    for (int k = 0; k < count; k++) {
        score_on(values, WORLD, &meshes[k], &spec, &batch);
        bp_test_check(WORLD, distance_from_twin(values, twin, BP_MODEL_MEMBER + PASSES) < 1e-5);
    }
    bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[0], &spec), BP_OK);
    bp_test_check(WORLD, strcmp(bp_ensemble_member_name(e.model, 1), "draw-001") == 0);
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, e.model, 1, 2, LENGTH), BP_ERR_CONFIG);
    bp_test_message_has("[model.dropout_decoding]");
    close_ensemble(&e);
}

/* ---- temperatures ---- */

/* f(b) over the batch, from all logits. */
static double plain_scaled(float (*logits)[TOKENS * V], double b)
{
    double sum = 0;

    for (int i = 0; i < TOKENS; i++) {
        double lp[MEMBERS][V], p[V] = {0}, powers = 0;

        if (world_targets[i] < 0)
            continue;
        for (int m = 0; m < MEMBERS; m++) {
            plain_logprob(lp[m], logits[m] + i * V);
            for (int v = 0; v < V; v++)
                p[v] += exp(lp[m][v]) / MEMBERS;
        }
        for (int v = 0; v < V; v++)
            powers += pow(p[v], b);
        sum += log(powers) - b * log(p[world_targets[i]]);
    }
    return sum;
}

/* Central differences with a step of 1e-3 are within 1e-5 of the derivatives here. */
static void sums_of_scaled_logits_are_the_plain_ones_and_their_differences(void **state)
{
    static float logits[MEMBERS][TOKENS * V];
    bp_model_batch batch = world_batch();
    bp_ensemble_spec spec = spec_of("three");
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);
    bool near_all = true;

    (void)state;
    for (int m = 0; m < MEMBERS; m++)
        whole_logits(logits[m], world_models[m].name, &batch, BP_MODEL_NO_DROPOUT, 0, 0);
    assert_true(bp_scaled_beta(12) == 1 && bp_scaled_beta(20) == 2);
    for (int k = 0; k < count; k++) {
        world_ensemble e;
        bp_scaled_sums sums = {.tokens = 7};

        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[k], &spec), BP_OK);
        bp_test_check_err(WORLD, bp_ensemble_add_scaled(e.model, &batch, &sums), BP_OK);
        close_ensemble(&e);
        for (int j = 0; j < BP_TEMPERATURE_POINTS; j++) {
            double b = bp_scaled_beta(j), h = 1e-3, at = plain_scaled(logits, b),
                   up = plain_scaled(logits, b + h), down = plain_scaled(logits, b - h);

            near_all = near_all && near(sums.value[j], at, 1e-5);
            near_all = near_all && fabs(sums.first[j] - (up - down) / (2 * h)) < 1e-3;
            near_all = near_all && fabs(sums.second[j] - (up - 2 * at + down) / (h * h)) < 1e-2;
        }
        bp_test_check(WORLD, near_all);
        int64_t scored = 7;
        for (int i = 0; i < TOKENS; i++)
            scored += world_targets[i] >= 0;
        bp_test_check(WORLD, sums.tokens == scored);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_made),
        cmocka_unit_test(every_channel_is_the_plain_twin_s_on_every_mesh),
        cmocka_unit_test(the_identities_hold_on_every_token),
        cmocka_unit_test(copies_of_one_member_agree_exactly),
        cmocka_unit_test(one_member_is_plain_scoring_to_the_bit),
        cmocka_unit_test(chunks_of_any_size_have_the_same_bits),
        cmocka_unit_test(a_batch_without_targets_has_no_values),
        cmocka_unit_test(passes_are_a_function_of_seed_and_place_on_every_mesh),
        cmocka_unit_test(passes_differ_by_seed_and_slot_alone),
        cmocka_unit_test(samples_are_heads_on_one_backbone),
        cmocka_unit_test(changed_logits_are_a_function_of_member_and_row_on_every_mesh),
        cmocka_unit_test(sums_of_scaled_logits_are_the_plain_ones_and_their_differences),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
