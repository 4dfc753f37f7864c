#include "bp_test.h"
#include "mesh/mesh.h"
#include <limits.h>

static bp_mesh_shape shape_of(int members, int pipeline, int data, int tensor, int coordinator)
{
    bp_mesh_shape shape = {
        .members = members, .pipeline = pipeline, .data = data, .tensor = tensor};

    shape.coordinator = (unsigned int)coordinator;
    return shape;
}

static void assert_fits(bp_mesh_shape shape, int size, int data, int coordinator)
{
    bp_test_expect(bp_mesh_shape_fit(&shape, size), BP_OK);
    assert_int_equal(shape.data, data);
    assert_int_equal(shape.coordinator, coordinator);
}

static void data_axis_takes_what_is_left(void **state)
{
    assert_fits(shape_of(1, 1, 0, 1, BP_COORDINATOR_AUTO), 1, 1, BP_COORDINATOR_SHARED);
    assert_fits(shape_of(1, 1, 0, 1, BP_COORDINATOR_AUTO), 7, 7, BP_COORDINATOR_SHARED);
    assert_fits(shape_of(1, 2, 0, 2, BP_COORDINATOR_AUTO), 12, 3, BP_COORDINATOR_SHARED);
    assert_fits(shape_of(3, 2, 0, 2, BP_COORDINATOR_SHARED), 12, 1, BP_COORDINATOR_SHARED);
    assert_fits(shape_of(1, 2, 0, 2, BP_COORDINATOR_DEDICATED), 9, 2, BP_COORDINATOR_DEDICATED);
}

/* Auto is shared, unless mesh.data is set and the world is one rank larger. */
static void coordinator_is_dedicated_only_where_one_rank_is_over(void **state)
{
    assert_fits(shape_of(1, 2, 2, 2, BP_COORDINATOR_AUTO), 8, 2, BP_COORDINATOR_SHARED);
    assert_fits(shape_of(1, 2, 2, 2, BP_COORDINATOR_AUTO), 9, 2, BP_COORDINATOR_DEDICATED);
    assert_fits(shape_of(1, 1, 1, 1, BP_COORDINATOR_AUTO), 2, 1, BP_COORDINATOR_DEDICATED);
    assert_fits(shape_of(1, 1, 0, 1, BP_COORDINATOR_AUTO), 2, 2, BP_COORDINATOR_SHARED);
    bp_mesh_shape shape = shape_of(1, 2, 2, 2, BP_COORDINATOR_SHARED);
    bp_test_expect(bp_mesh_shape_fit(&shape, 9), BP_ERR_CONFIG);
    shape = shape_of(1, 2, 2, 2, BP_COORDINATOR_DEDICATED);
    bp_test_expect(bp_mesh_shape_fit(&shape, 8), BP_ERR_CONFIG);
}

static void misfit_names_sizes_that_fit(void **state)
{
    bp_mesh_shape shape = shape_of(1, 2, 0, 2, BP_COORDINATOR_AUTO);
    bp_test_expect(bp_mesh_shape_fit(&shape, 6), BP_ERR_CONFIG);
    assert_string_equal(
        bp_err_message(),
        "mesh.pipeline = 2 x mesh.tensor = 2 needs a multiple of 4 ranks, but there are 6: at "
        "mesh.*; start 4, 8, 12 ... ranks, or 5, 9, 13 ... with mesh.coordinator=dedicated; or let "
        "members x pipeline x tensor be 1, 2, 3 or 6 [mesh.wrong_ranks]");
    shape = shape_of(1, 1, 4, 2, BP_COORDINATOR_AUTO);
    bp_test_expect(bp_mesh_shape_fit(&shape, 6), BP_ERR_CONFIG);
    bp_test_message_has("[mesh.wrong_ranks]");
    bp_test_message_has("8 ranks ... [mesh.wrong_ranks]");
    bp_test_message_has("8 ranks ... 9 ... mesh.data=3 ... [mesh.wrong_ranks]");
    shape = shape_of(1, 1, 0, 2, BP_COORDINATOR_DEDICATED);
    bp_test_expect(bp_mesh_shape_fit(&shape, 6), BP_ERR_CONFIG);
    bp_test_message_has("3, 5, 7 ... [mesh.wrong_ranks]");
    bp_test_message_has("mesh.tensor = 2 ... 2 ranks ... [mesh.wrong_ranks]");
    bp_test_message_has("be 1 or 5 ... [mesh.wrong_ranks]");
    shape = shape_of(1, 1, 0, 1, BP_COORDINATOR_DEDICATED);
    bp_test_expect(bp_mesh_shape_fit(&shape, 1), BP_ERR_CONFIG);
    bp_test_message_has("mesh.coordinator = dedicated ... 2 ranks ... 1 ... [mesh.wrong_ranks]");
    bp_test_message_has("2, 3, 4 ... [mesh.wrong_ranks]");
}

/* Whatever the message says would fit does fit: try every size against brute force. */
static void fitting_agrees_with_counting(void **state)
{
    for (int code = 0; code < 3 * 3 * 4 * 3 * 3; code++)
        for (int size = 1; size <= 30; size++) {
            bp_mesh_shape shape = shape_of(code % 3 + 1, code / 3 % 3 + 1, code / 9 % 4,
                                           code / 36 % 3 + 1, code / 108);
            int copy = shape.members * shape.pipeline * shape.tensor, data = 0, dedicated = -1;
            for (int d = 1; d <= 30; d++)
                for (int more = 0; more <= 1; more++) {
                    bool allowed =
                        shape.coordinator ==
                            (more ? BP_COORDINATOR_DEDICATED : BP_COORDINATOR_SHARED) ||
                        (shape.coordinator == BP_COORDINATOR_AUTO && (more == 0 || shape.data > 0));
                    if (allowed && (shape.data == 0 || shape.data == d) &&
                        copy * d + more == size) {
                        data = d;
                        dedicated = more;
                    }
                }
            bp_err err = bp_mesh_shape_fit(&shape, size);
            assert_int_equal(err, dedicated < 0 ? BP_ERR_CONFIG : BP_OK);
            if (err == BP_OK) {
                assert_int_equal(shape.data, data);
                assert_int_equal(shape.coordinator,
                                 dedicated ? BP_COORDINATOR_DEDICATED : BP_COORDINATOR_SHARED);
            }
        }
}

static void products_beyond_an_int_are_refused(void **state)
{
    static const int extents[][4] = {{65536, 65536, 1, 1},     {65536, 1, 65536, 1},
                                     {INT_MAX, 1, 0, 1},       {INT_MAX, INT_MAX, INT_MAX, INT_MAX},
                                     {1, 1, INT_MAX, INT_MAX}, {65536, 32768, 0, 1},
                                     {1, 1, INT_MAX, 1}};

    for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++) {
        bp_mesh_shape shape = shape_of(extents[i][0], extents[i][1], extents[i][2], extents[i][3],
                                       BP_COORDINATOR_AUTO);
        bp_test_expect(bp_mesh_shape_fit(&shape, 1), BP_ERR_CONFIG);
        bp_test_message_has("[mesh.too_many_ranks]");
    }
}

static void shape_is_read_from_the_configuration(void **state)
{
    const bp_option *const tables[] = {bp_mesh_options, NULL};
    char members[] = "mesh.members=2", pipeline[] = "mesh.pipeline=3", data[] = "mesh.data=4",
         tensor[] = "mesh.tensor=5", coordinator[] = "mesh.coordinator=dedicated";
    char *arguments[] = {members, pipeline, data, tensor, coordinator};
    bp_config *config;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_mesh_shape shape = bp_mesh_shape_of(config);
    assert_int_equal(shape.members * shape.pipeline * shape.tensor, 1);
    assert_int_equal(shape.data, 0);
    assert_int_equal(shape.coordinator, BP_COORDINATOR_AUTO);
    assert_int_equal(bp_config_int(config, "mesh.micro_batch"), 1);
    assert_string_equal(bp_config_string(config, "mesh.schedule"), "1f1b");
    bp_test_expect(bp_config_read(config, NULL, 5, arguments), BP_OK);
    shape = bp_mesh_shape_of(config);
    assert_int_equal(shape.members, 2);
    assert_int_equal(shape.pipeline, 3);
    assert_int_equal(shape.data, 4);
    assert_int_equal(shape.tensor, 5);
    assert_int_equal(shape.coordinator, BP_COORDINATOR_DEDICATED);
    char none[] = "mesh.tensor=0", *none_argument[] = {none};
    bp_test_expect(bp_config_read(config, NULL, 1, none_argument), BP_ERR_CONFIG);
    bp_config_free(&config);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_axis_takes_what_is_left),
        cmocka_unit_test(coordinator_is_dedicated_only_where_one_rank_is_over),
        cmocka_unit_test(misfit_names_sizes_that_fit),
        cmocka_unit_test(fitting_agrees_with_counting),
        cmocka_unit_test(products_beyond_an_int_are_refused),
        cmocka_unit_test(shape_is_read_from_the_configuration),
    };
    return BP_TEST_RUN(tests);
}
