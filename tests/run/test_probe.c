/* What doctor makes of hosts and folders: fabricated ranks, real files. */
#include "bp_test_mpi.h"

#include "base/config/json.h"
#include "run/probe/probe.h"

#include <string.h>
#include <sys/stat.h>

#define COMM  MPI_COMM_WORLD
#define RANKS 8

/* Four hosts of two ranks, each rank bound to two cores of its own, all alike. */
static void fill(bp_probe_host ranks[RANKS])
{
    memset(ranks, 0, RANKS * sizeof *ranks);
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (bp_probe_host){.cpu_count = 2,
                                   .host_cpus = 4,
                                   .job_cores = 4,
                                   .threads = 2,
                                   .memory_bytes = (int64_t)8 << 30,
                                   .group_bytes = -1,
                                   .files = 20000,
                                   .file_bytes = -1,
                                   .address_bytes = -1,
                                   .flops = 1e9,
                                   .copy_bytes = 1e9};
        (void)snprintf(ranks[r].host, sizeof ranks[r].host, "n%d", r / 2);
        (void)snprintf(ranks[r].cpu, sizeof ranks[r].cpu, "Fast 9000");
        ranks[r].cpus[0] = UINT64_C(3) << (r % 2 * 2);
    }
}

/* The row of one check. */
static void expect(const bp_probe_host ranks[RANKS], const char *check, const char *level,
                   const char *words)
{
    json_t *rows = json_array(), *row;
    bool found = false;
    size_t k;

    bp_probe_check_hosts(rows, ranks, RANKS);
    json_array_foreach(rows, k, row)
    {
        const char *text = json_string_value(json_object_get(row, "text"));

        if (strcmp(json_string_value(json_object_get(row, "check")), check) != 0)
            continue;
        found = true;
        assert_string_equal(json_string_value(json_object_get(row, "level")), level);
        if (strstr(text, words) == NULL)
            fail_msg("no '%s' in '%s'", words, text);
        assert_true(strcmp(level, "warn") != 0 || json_object_get(row, "remedy") != NULL);
    }
    assert_true(found);
    json_decref(rows);
}

static void hosts_that_are_alike_are_fine(void **state)
{
    static const char *const checks[] = {"ranks",  "binding",    "cpu",         "memory",
                                         "limits", "gemm speed", "memory speed"};
    bp_probe_host ranks[RANKS];

    (void)state;
    fill(ranks);
    for (size_t k = 0; k < sizeof checks / sizeof checks[0]; k++)
        expect(ranks, checks[k], "ok", "");
    expect(ranks, "ranks", "ok", "8 on 4 hosts, 2 each");
    expect(ranks, "memory", "ok", "4.0 GiB a rank");
}

static void slow_host_is_named(void **state)
{
    bp_probe_host ranks[RANKS];

    (void)state;
    fill(ranks);
    ranks[4].flops = ranks[5].flops = 0.6e9;
    ranks[6].copy_bytes = 0.1e9; /* one rank alone: the host is at 0.55 */
    expect(ranks, "gemm speed", "warn", "slow host: n2 (0.6)");
    expect(ranks, "memory speed", "warn", "slow host: n3 (0.55)");
    ranks[4].flops = ranks[5].flops = 0.71e9;
    expect(ranks, "gemm speed", "ok", "");
}

static void binding_that_costs_speed_is_warned_of(void **state)
{
    bp_probe_host ranks[RANKS];

    (void)state;
    fill(ranks);
    ranks[3].threads = 4;
    expect(ranks, "binding", "warn", "rank 3 on n1 may use 2 cores, and has 4 threads");
    fill(ranks);
    ranks[5].cpus[0] = 6; /* one core is rank 4's too */
    expect(ranks, "binding", "warn", "1 cores of n2 are given to more than one rank");
    fill(ranks);
    for (int r = 0; r < RANKS; r++) { /* not bound: four cores for both */
        ranks[r].cpus[0] = 15;
        ranks[r].cpu_count = 4;
    }
    expect(ranks, "binding", "ok", "4 of 4 cores");
    ranks[0].threads = 3;
    expect(ranks, "binding", "warn", "2 ranks with 5 threads together share 4 cores of n0");
}

static void idle_cores_are_warned_of(void **state)
{
    bp_probe_host ranks[RANKS];

    (void)state;
    fill(ranks);
    for (int r = 0; r < RANKS; r++) { /* bound to a core each, of four of two hosts */
        ranks[r].cpus[0] = UINT64_C(1) << (r % 2);
        ranks[r].cpu_count = ranks[r].threads = 1;
    }
    expect(ranks, "binding", "warn", "2 of 4 cores of n0 are idle: 2 ranks with 2 threads");
    fill(ranks);
    ranks[7].threads = 1; /* no core for each of two ranks is left */
    expect(ranks, "binding", "ok", "");
    ranks[6].threads = 1;
    expect(ranks, "binding", "warn", "2 of 4 cores of n3 are idle");
    fill(ranks);
    for (int r = 0; r < RANKS; r++)
        ranks[r].job_cores = 0; /* not known */
    expect(ranks, "binding", "ok", "");
}

static void hosts_that_differ_are_warned_of(void **state)
{
    bp_probe_host ranks[RANKS];

    (void)state;
    fill(ranks);
    (void)snprintf(ranks[6].features, sizeof ranks[6].features, "amx_bf16");
    expect(ranks, "cpu", "warn", "others are of another kind: n3");
    ranks[2].file_bytes = 1 << 20;
    expect(ranks, "limits", "warn", "on n1 no file may be larger");
    ranks[2].file_bytes = -1;
    ranks[2].address_bytes = (int64_t)3 << 30;
    expect(ranks, "limits", "warn", "on n1 a process may have only 3.0 GiB of addresses");
    ranks[7].group_bytes = (int64_t)2 << 30;
    expect(ranks, "memory", "ok", "n3 has 8.0 GiB; the control group allows 2.0: 1.0 GiB");
    for (int r = 1; r < RANKS; r++)
        (void)snprintf(ranks[r].host, sizeof ranks[r].host, "n1");
    expect(ranks, "ranks", "warn", "up to 7 each");
}

/* ---- folders ---- */

static void folder_that_is_not_there_yet_is_tried_above(void **state)
{
    static const char *const cases[][2] = {
        {"/tmp/none/of/these", "/tmp"}, {"/no/such", "/"}, {"nothing", "."}, {"/tmp", "/tmp"}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char *found = bp_probe_existing(cases[k][0]);

        assert_string_equal(found, cases[k][1]);
        bp_free(found);
    }
}

static void files_are_tried_on_ground_that_goes_away(void **state)
{
    const char *folder = bp_test_path("folder");
    char *ground = NULL, **names;
    json_t *rows = json_array();
    int64_t count;

    (void)state;
    if (bp_comm_is_root(COMM)) {
        bp_test_expect(bp_dir_make(folder), BP_OK);
        bp_test_expect(bp_probe_ground(&ground, folder), BP_OK);
        bp_test_expect(bp_probe_files(rows, ground), BP_OK);
        assert_int_equal(json_array_size(rows), 2); /* write, rename */
        bp_test_expect(bp_dir_remove(ground), BP_OK);
        bp_test_expect(bp_dir_list(folder, &names, &count), BP_OK);
        assert_int_equal(count, 0);
        bp_names_free(&names, count);
        bp_free(ground);
        bp_test_expect(bp_probe_ground(&ground, "/dev/null"), BP_ERR_CREATE);
        bp_test_expect(bp_probe_files(rows, "/no/such/ground"), BP_ERR_CREATE);
        bp_test_expect(bp_probe_disk(rows, folder, (int64_t)1 << 60, 3), BP_ERR_IO);
        bp_test_message_has("[run.no_space]");
    }
    json_decref(rows);
}

static void file_is_seen_by_all(void **state)
{
    const char *ground = bp_test_path("ground");

    (void)state;
    bp_test_check_err(COMM, bp_comm_is_root(COMM) ? bp_dir_make(ground) : BP_OK, BP_OK);
    bp_test_check_err(COMM, bp_probe_shared(COMM, ground), BP_OK);
}

/* The last rank looks at another folder, as if its host did not share the first one's. */
static void file_that_is_not_seen_fails_on_all_ranks(void **state)
{
    const char *ground = bp_test_path("ground2"), *other = bp_test_path("other");
    int size = bp_comm_size(COMM), rank = bp_comm_rank(COMM);
    bool last = rank == size - 1;

    (void)state;
    if (size == 1)
        return;
    bp_test_check_err(COMM, rank == 0 ? bp_dir_make(ground) : BP_OK, BP_OK);
    bp_test_check_err(COMM, last ? bp_dir_make(other) : BP_OK, BP_OK);
    bp_test_check_err(COMM, bp_probe_shared(COMM, last ? other : ground), BP_ERR_IO);
    bp_test_message_has("[run.not_shared]");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_that_are_alike_are_fine),
        cmocka_unit_test(slow_host_is_named),
        cmocka_unit_test(binding_that_costs_speed_is_warned_of),
        cmocka_unit_test(idle_cores_are_warned_of),
        cmocka_unit_test(hosts_that_differ_are_warned_of),
        cmocka_unit_test(folder_that_is_not_there_yet_is_tried_above),
        cmocka_unit_test(files_are_tried_on_ground_that_goes_away),
        cmocka_unit_test(file_is_seen_by_all),
        cmocka_unit_test(file_that_is_not_seen_fails_on_all_ranks),
    };

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
