/* Frequencies of rotary positions, with every scaling, are those of transformers. */
#include "reference_fixture.h"

/* A number of a case's parameters; 0: it has none. */
static double parameter_of(const json_t *parameters, const char *name)
{
    return json_number_value(json_object_get(parameters, name));
}

static void read_factors(double factors[BP_MODEL_REALS], const json_t *list)
{
    for (size_t k = 0; k < json_array_size(list); k++)
        factors[k] = json_number_value(json_array_get(list, k));
}

/* A model of LLaMA's whose positions are those of a case. */
static bp_model_shape rope_shape(const json_t *config)
{
    const json_t *of = json_object_get(config, "rope_parameters");
    static const char *const TYPES[] = {"default", "linear",  "llama3",
                                        "yarn",    "dynamic", "longrope"};
    bp_model_shape shape = {.family = bp_model_family_find("llama"), .layers = 1, .heads = 1};
    bp_stack_sizes *own = &shape.stack;
    const char *type = json_string_value(json_object_get(of, "rope_type"));

    while (strcmp(TYPES[own->rope_scaling], type) != 0)
        own->rope_scaling++;
    shape.width = (int64_t)parameter_of(config, "head_dim");
    shape.context = (int64_t)parameter_of(config, "max_position_embeddings");
    own->rope_theta = parameter_of(of, "rope_theta");
    own->rope_fraction = parameter_of(of, "partial_rotary_factor");
    own->rope_factor = parameter_of(of, "factor");
    own->rope_low = parameter_of(of, "low_freq_factor");
    own->rope_high = parameter_of(of, "high_freq_factor");
    own->rope_original = (int64_t)parameter_of(of, "original_max_position_embeddings");
    own->rope_beta_fast = parameter_of(of, "beta_fast");
    own->rope_beta_slow = parameter_of(of, "beta_slow");
    own->rope_attention_factor = parameter_of(of, "attention_factor");
    own->rope_mscale = parameter_of(of, "mscale");
    own->rope_mscale_all = parameter_of(of, "mscale_all_dim");
    own->rope_untruncated = json_is_false(json_object_get(of, "truncate"));
    read_factors(own->rope_short, json_object_get(of, "short_factor"));
    read_factors(own->rope_long, json_object_get(of, "long_factor"));
    return shape;
}

static void frequencies_of_positions_are_the_references(void **state)
{
    json_t *root, *one;
    size_t k;

    (void)state;
    bp_test_expect(bp_json_load(&root, file_of("rope-tables", "tables.json"), 1 << 20), BP_OK);
    assert_int_equal(json_array_size(json_object_get(root, "cases")), 14);
    json_array_foreach(json_object_get(root, "cases"), k, one)
    {
        const json_t *expected = json_object_get(one, "inv_freq");
        bp_model_shape shape = rope_shape(json_object_get(one, "config"));
        double mine[BP_MODEL_REALS];
        bp_rope ropes[BP_ROPES];

        assert_int_equal(stack_ropes(ropes, &shape), 1);
        assert_int_equal(ropes[0].rotated, 2 * (int64_t)json_array_size(expected));
        bp_rope_frequencies(mine, &ropes[0], json_integer_value(json_object_get(one, "length")));
        for (size_t i = 0; i < json_array_size(expected); i++)
            assert_true(fabs(mine[i] / json_number_value(json_array_get(expected, i)) - 1) < 1e-12);
        assert_true(fabs(bp_rope_attention(&ropes[0]) -
                         json_number_value(json_object_get(one, "attention_factor"))) < 1e-12);
    }
    json_decref(root);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_of_positions_are_the_references)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
