/* Ranks against the memory of their node, and the search for a mesh that fits. */
#include "bp_test_mpi.h"
#include "mesh/mesh_search.h"
#include "mesh/node_memory.h"

#define COMM MPI_COMM_WORLD
#define MIB  ((int64_t)1 << 20)

static bp_config *new_config(const char *memory)
{
    static const bp_option *const tables[] = {bp_memory_options, bp_mesh_options, NULL};
    bp_config *config = NULL;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    if (memory)
        bp_test_expect(bp_config_set(config, "run.memory", memory), BP_OK);
    return config;
}

/* Rank r takes r + 1 MiB, and one of them 10 MiB for all. */
static bp_rank_memory *list(int size)
{
    bp_rank_memory *all = bp_alloc("test", size, sizeof *all);

    for (int r = 0; r < size; r++)
        all[r] = (bp_rank_memory){(r + 1) * MIB, r == size - 1 ? 10 * MIB : MIB};
    return all;
}

static void ranks_of_a_node_are_summed(void **state)
{
    int size = bp_comm_size(COMM);
    int64_t needs = (size * (size + 1) / 2 + 10) * MIB;
    bp_rank_memory *all = bp_comm_is_root(COMM) ? list(size) : NULL;
    bp_config *enough = new_config("1GiB"), *little = new_config("10MiB");
    bp_node_memory node;

    bp_node_memory_find(&node, COMM, enough, all);
    bp_test_check(COMM, node.needs_bytes == needs && node.has_bytes == 1024 * MIB);
    bp_test_check(COMM, node.ranks == size && node.nodes == 1);
    bp_test_check(COMM, strcmp(node.from, "run.memory") == 0 && !bp_node_memory_lacks(&node));
    bp_test_check_err(COMM, bp_node_memory_check(&node, "none"), BP_OK);
    bp_test_check(COMM, bp_node_memory_has(COMM, enough) == 1024 * MIB);
    bp_node_memory_find(&node, COMM, little, all);
    bp_test_check(COMM, bp_node_memory_lacks(&node));
    bp_test_check_err(COMM, bp_node_memory_check(&node, "use this ... [memory.over_limit]"),
                      BP_ERR_SYSTEM);
    bp_test_check_said(COMM, "use this ... [memory.over_limit]");
    bp_config_free(&enough);
    bp_config_free(&little);
    bp_free(all);
}

static void the_system_is_asked_where_no_key_says(void **state)
{
    static const bp_option *const none[] = {NULL};
    bp_config *unset = new_config(NULL), *without = NULL;

    bp_test_expect(bp_config_new(&without, none, none), BP_OK); /* a job that has no such key */
    int64_t has = bp_node_memory_has(COMM, unset), also = bp_node_memory_has(COMM, without);
    bp_test_check(COMM, has > 0 || has == -1);
    bp_test_check(COMM, (has > 0) == (also > 0));
    bp_config_free(&unset);
    bp_config_free(&without);
}

static void what_is_not_known_is_not_refused(void **state)
{
    bp_node_memory node = {.needs_bytes = 1000 * MIB, .has_bytes = -1, .ranks = 1, .nodes = 1};

    assert_false(bp_node_memory_lacks(&node));
    bp_test_expect(bp_node_memory_check(&node, ""), BP_OK);
}

static void ranks_fill_nodes_one_after_another(void **state)
{
    bp_rank_memory *all = list(5);

    assert_int_equal(bp_node_memory_fullest(all, 5, 1), 25 * MIB);
    assert_int_equal(bp_node_memory_fullest(all, 5, 2), 19 * MIB); /* 3 and 2: ranks 3 and 4 */
    assert_int_equal(bp_node_memory_fullest(all, 5, 5), 15 * MIB);
    bp_free(all);
}

/* ---- the search ---- */

/* A model of `whole` MiB, which parts divide, and 1 MiB more on each rank; heads 4, 6 stages. */
typedef struct fake {
    double whole, has;
} fake;

static bool fits(void *context, const bp_mesh_shape *mesh, int nodes)
{
    const fake *self = context;
    int ranks = bp_mesh_shape_ranks(mesh), each = (ranks + nodes - 1) / nodes;

    return 4 % mesh->tensor == 0 && mesh->pipeline <= 6 &&
           each * (1 + self->whole / (mesh->pipeline * mesh->tensor)) <= self->has;
}

static void expect_near(const char *expected, bp_mesh_shape mesh, double whole, double has)
{
    bp_config *config = new_config(NULL);
    fake model = {whole, has};
    bp_mesh_search search = {.mesh = mesh,
                             .nodes = 1,
                             .node_ranks = bp_mesh_shape_ranks(&mesh),
                             .config = config,
                             .fits = fits,
                             .context = &model};
    bp_buffer text = {0};
    bool found = bp_mesh_search_near(&text, &search) || bp_mesh_search_nodes(&text, &search);

    assert_true(found == (expected != NULL));
    if (expected)
        assert_string_equal(text.data, expected);
    bp_buffer_clear(&text);
    bp_config_free(&config);
}

static void the_least_change_is_found(void **state)
{
    const bp_mesh_shape two = {.members = 1, .pipeline = 1, .data = 2, .tensor = 1};
    const bp_mesh_shape four = {.members = 1, .pipeline = 1, .data = 4, .tensor = 1};
    const bp_mesh_shape three = {.members = 1, .pipeline = 1, .data = 3, .tensor = 1};

    expect_near("use mesh.pipeline=2", two, 100, 110);
    expect_near("use mesh.pipeline=2", four, 100, 210);
    expect_near("use mesh.pipeline=4", four, 100, 110);
    expect_near("start 1 rank", two, 100, 101.5);
    expect_near("start 2 ranks on 2 nodes with mesh.pipeline=2",
                (bp_mesh_shape){.members = 1, .pipeline = 1, .data = 1, .tensor = 1}, 100, 60);
    expect_near("use mesh.pipeline=3", three, 100, 110); /* two do not divide three */
    expect_near("spread these ranks over 2 nodes",
                (bp_mesh_shape){.members = 1, .pipeline = 2, .data = 1, .tensor = 1}, 100, 60);
    expect_near(NULL, two, 100, 2); /* 24 parts are most */
}

static void members_may_be_fewer(void **state)
{
    const bp_mesh_shape three = {.members = 3, .pipeline = 1, .data = 1, .tensor = 1};

    expect_near("start 2 ranks with mesh.members=2", three, 100, 210);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_node_are_summed),
        cmocka_unit_test(the_system_is_asked_where_no_key_says),
        cmocka_unit_test(what_is_not_known_is_not_refused),
        cmocka_unit_test(ranks_fill_nodes_one_after_another),
        cmocka_unit_test(the_least_change_is_found),
        cmocka_unit_test(members_may_be_fewer),
    };

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
