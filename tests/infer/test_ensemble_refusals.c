/* Ensembles that are refused, and what lists of members say. */
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

static void check_refused(const bp_ensemble_spec *spec, bp_err code, const char *const *texts)
{
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    for (int k = 0; k < count; k++) {
        world_ensemble e;
        bp_err err = open_ensemble(&e, WORLD, &meshes[k], spec);

        bp_test_check_err(WORLD, err, code);
        bp_test_check(WORLD, e.model == NULL);
        for (int t = 0; texts[t]; t++)
            bp_test_check_said(WORLD, texts[t]);
        close_ensemble(&e);
    }
}

static void members_that_do_not_fit_are_named(void **state)
{
    static const small_model models[] = {{"vocabulary", 1, 1, V + 1, 22, 1, HASH_A},
                                         {"tokenizer", 1, 1, V, 22, 1, HASH_B},
                                         {"eod", 1, 1, V, 21, 1, HASH_A}};
    static const char *const lists[][3] = {
        {"a", "b", "vocabulary"}, {"a", "b", "tokenizer"}, {"a", "b", "eod"}, {"a", "b", "none"}};
    static const char *const folders[] = {"list0", "list1", "list2", "list3"};
    static const char *const texts[][4] = {
        {"m00", "m02", "vocab_size ... 23 and 24 ... [ensemble.unlike_members]", NULL},
        {"m02", HASH_A, HASH_B " ... [ensemble.unlike_members]", NULL},
        {"m02", "22 and 21 ... [ensemble.unlike_members]", NULL},
        {"m02", "[ensemble.member_missing]", "none", NULL}};

    (void)state;
    if (bp_comm_is_root(WORLD)) {
        for (int k = 0; k < 3; k++)
            save_small_model(&models[k]);
        for (int k = 0; k < 4; k++)
            save_list(folders[k], lists[k], 3);
    }
    BP_MPI(MPI_Barrier(WORLD));
    for (int k = 0; k < 4; k++) {
        bp_ensemble_spec spec = spec_of(folders[k]);

        check_refused(&spec, k < 3 ? BP_ERR_FORMAT : BP_ERR_INPUT, texts[k]);
    }
}

/* A member without an end-of-document token or a tokenizer is compared with none in these,
 * wherever in the list it is. */
static void missing_facts_of_a_member_hide_no_difference_of_others(void **state)
{
    static const small_model untold = {"untold", 1, 1, V, -1, 1, ""};
    static const char *const refused[][3] = {{"untold", "a", "tokenizer"},
                                             {"tokenizer", "a", "untold"},
                                             {"untold", "a", "eod"},
                                             {"eod", "a", "untold"}};
    static const char *const texts[][5] = {
        {"'m01' ... 'm02' ... [ensemble.unlike_members]", HASH_A, HASH_B, NULL},
        {"'m00' ... 'm01' ... [ensemble.unlike_members]", HASH_A, HASH_B, NULL},
        {"'m01' ... 'm02' ... [ensemble.unlike_members]", "22 and 21 ... [ensemble.unlike_members]",
         NULL},
        {"'m00' ... 'm01' ... [ensemble.unlike_members]", "21 and 22 ... [ensemble.unlike_members]",
         NULL}};
    static const char *const fit[][3] = {{"untold", "b", "a"}, {"a", "b", "untold"}};
    static const char *const folders[] = {"told0", "told1", "told2", "told3", "fit0", "fit1"};
    int count;
    const bp_mesh_shape *meshes = world_meshes(&count);

    (void)state;
    if (bp_comm_is_root(WORLD)) {
        save_small_model(&untold);
        for (int k = 0; k < 6; k++)
            save_list(folders[k], k < 4 ? refused[k] : fit[k - 4], 3);
    }
    BP_MPI(MPI_Barrier(WORLD));
    for (int k = 0; k < 4; k++) {
        bp_ensemble_spec spec = spec_of(folders[k]);

        check_refused(&spec, BP_ERR_FORMAT, texts[k]);
    }
    for (int k = 4; k < 6; k++) {
        bp_ensemble_spec spec = spec_of(folders[k]);
        world_ensemble e;

        bp_test_check_err(WORLD, open_ensemble(&e, WORLD, &meshes[0], &spec), BP_OK);
        bp_test_check(WORLD, e.model->info.eod_id == 22);
        bp_test_check(WORLD, strcmp(e.model->info.tokenizer_hash, HASH_A) == 0);
        close_ensemble(&e);
    }
}

/* Samples of the last layer of "a", of another model, and of a narrower one. */
static void save_all_samples(void)
{
    bp_ensemble_spec spec = spec_of("a");
    world_ensemble e;
    bp_model *model;

    assert_int_equal(open_ensemble(&e, MPI_COMM_SELF, &alone, &spec), BP_OK);
    bp_test_expect(bp_model_open(&model, e.mesh, e.config, spec.path), BP_OK);
    if (bp_comm_is_root(WORLD)) {
        save_samples("samples", model->info.digest, WIDTH);
        save_samples("of_another", "0123", WIDTH);
        save_samples("narrow", model->info.digest, WIDTH - 1);
    }
    bp_model_free(&model);
    close_ensemble(&e);
    BP_MPI(MPI_Barrier(WORLD));
}

static void samplers_that_do_not_fit_are_refused(void **state)
{
    static const char *const memory[] = {"score.memory", "60 bytes ... [score.memory_too_small]",
                                         "KiB", NULL},
                             *const passes[] = {"[model.is_ensemble]", NULL},
                             *const samples[] = {"[model.is_ensemble]", NULL},
                             *const another[] = {"0123 ... [samples.other_model]", NULL},
                             *const narrow[] = {"23 x 15 ... [samples.wrong_shape]", NULL};
    bp_ensemble_spec spec = spec_of("three");

    (void)state;
    save_all_samples();
    spec.memory_bytes = 60;
    check_refused(&spec, BP_ERR_CONFIG, memory);
    bp_passes dropout = {{&bp_dropout_sampler, 3}, 0.1F, 1};
    spec = spec_of("three");
    spec.sampler = &dropout.sampler;
    check_refused(&spec, BP_ERR_CONFIG, passes);
    spec = spec_of("three");
    bp_sampled_heads heads = {{&bp_sampled_heads_sampler, 0}, bp_test_path("samples"), NULL, NULL};
    spec.sampler = &heads.sampler;
    check_refused(&spec, BP_ERR_CONFIG, samples);
    spec = spec_of("a");
    heads.path = bp_test_path("of_another");
    spec.sampler = &heads.sampler;
    check_refused(&spec, BP_ERR_FORMAT, another);
    heads.path = bp_test_path("narrow");
    check_refused(&spec, BP_ERR_FORMAT, narrow);
}

static void a_list_has_names_and_out_of_bag_perplexities(void **state)
{
    bp_ensemble_spec spec = spec_of("three");
    world_ensemble e;

    (void)state;
    assert_int_equal(open_ensemble(&e, MPI_COMM_SELF, &alone, &spec), BP_OK);
    assert_string_equal(bp_ensemble_member_name(e.model, 2), "m02");
    assert_true(bp_ensemble_member_oob(e.model, 1) == 12.5 &&
                isnan(bp_ensemble_member_oob(e.model, 0)));
    assert_string_equal(bp_model_statistic_name(BP_MODEL_BRIER), "brier");
    close_ensemble(&e);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_world_is_made),
        cmocka_unit_test(members_that_do_not_fit_are_named),
        cmocka_unit_test(missing_facts_of_a_member_hide_no_difference_of_others),
        cmocka_unit_test(samplers_that_do_not_fit_are_refused),
        cmocka_unit_test(a_list_has_names_and_out_of_bag_perplexities),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
