/* The memory that a node lets a job have, read from a made-up /proc and /sys. */
#include "base/process/memory_limit.h"
#include "bp_test.h"

#define GIB ((int64_t)1 << 30)

static void put(const char *root, const char *name, const char *text)
{
    char *path = bp_sprintf("%s/%s", root, name), *slash;
    char *folder = bp_strdup(path);

    slash = strrchr(folder, '/');
    *slash = '\0';
    bp_test_expect(bp_dir_make(folder), BP_OK);
    bp_test_expect(bp_file_write(path, text, strlen(text)), BP_OK);
    bp_free(folder);
    bp_free(path);
}

/* A root with 8 GiB available. */
static const char *new_root(const char *name)
{
    const char *root = bp_test_path(name);

    put(root, "proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_MEM_PER_NODE");
    unsetenv("SLURM_MEM_PER_CPU");
    unsetenv("SLURM_CPUS_ON_NODE");
    return root;
}

static void what_is_held_already_counts_as_there(void **state)
{
    const char *root = new_root("plain");
    bp_memory_limit limit = bp_memory_limit_read(root, 3 * GIB);

    assert_int_equal(limit.bytes, 11 * GIB);
    assert_non_null(strstr(limit.from, "MemAvailable"));
    assert_true(limit.changes);
    assert_int_equal(bp_memory_group_bytes(root), -1);
}

static void nothing_known_is_no_limit(void **state)
{
    const char *root = new_root("none");

    put(root, "proc/meminfo", "");
    assert_int_equal(bp_memory_limit_read(root, GIB).bytes, -1);
    assert_int_equal(bp_memory_limit_read("/nowhere", GIB).bytes, -1);
}

static void the_tightest_group_above_counts(void **state)
{
    const char *root = new_root("two");

    put(root, "proc/self/cgroup", "1:name=systemd:/x\n0::/slurm/job_7/step_0\n");
    put(root, "sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
    put(root, "sys/fs/cgroup/slurm/job_7/memory.max", "4294967296\n");
    put(root, "sys/fs/cgroup/slurm/job_7/memory.current", "3221225472\n");
    put(root, "sys/fs/cgroup/slurm/job_7/memory.stat",
        "anon 1\nfile 9\ninactive_file 536870912\nactive_file 536870912\nworkingset 4\n");
    put(root, "sys/fs/cgroup/slurm/memory.max", "6442450944\n");
    bp_memory_limit limit = bp_memory_limit_read(root, GIB);
    assert_int_equal(limit.bytes, 3 * GIB); /* 3 GiB are used: 1 is ours, 1 page cache */
    assert_non_null(strstr(limit.from, "control group"));
    assert_int_equal(bp_memory_limit_read(root, 2 * GIB).bytes, 4 * GIB);
    assert_int_equal(bp_memory_limit_read(root, 3 * GIB).bytes, 4 * GIB); /* not more than it has */
    assert_int_equal(bp_memory_group_bytes(root), 4 * GIB);
}

static void groups_of_version_1_count(void **state)
{
    const char *root = new_root("one");

    put(root, "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/b/c\n0::/\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(root, "sys/fs/cgroup/memory/b/memory.limit_in_bytes", "2147483648\n");
    put(root, "sys/fs/cgroup/memory/b/memory.usage_in_bytes", "1610612736\n");
    put(root, "sys/fs/cgroup/memory/b/memory.stat",
        "inactive_file 7\ntotal_inactive_file 1073741824\ntotal_active_file 0\n");
    assert_int_equal(bp_memory_limit_read(root, 0).bytes, 2 * GIB - GIB / 2);
    assert_int_equal(bp_memory_group_bytes(root), 2 * GIB);
}

static void a_container_has_its_own_root(void **state)
{
    const char *root = new_root("container");

    put(root, "proc/self/cgroup", "4:memory:/docker/not/here\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
    assert_int_equal(bp_memory_limit_read(root, 0).bytes, GIB);
}

static void slurm_s_memory_counts(void **state)
{
    const char *root = new_root("slurm");

    setenv("SLURM_MEM_PER_NODE", "1024", 1);
    assert_int_equal(bp_memory_limit_read(root, 0).bytes, 8 * GIB); /* there is no job */
    setenv("SLURM_JOB_ID", "7", 1);
    bp_memory_limit limit = bp_memory_limit_read(root, 5 * GIB);
    assert_int_equal(limit.bytes, GIB); /* with what is held */
    assert_non_null(strstr(limit.from, "SLURM_MEM_PER_NODE"));
    assert_false(limit.changes);
    setenv("SLURM_MEM_PER_NODE", "0", 1); /* all of the node's */
    assert_int_equal(bp_memory_limit_read(root, 0).bytes, 8 * GIB);
    unsetenv("SLURM_MEM_PER_NODE");
    setenv("SLURM_MEM_PER_CPU", "512", 1);
    assert_int_equal(bp_memory_limit_read(root, 0).bytes, 8 * GIB); /* of how many? */
    setenv("SLURM_CPUS_ON_NODE", "4", 1);
    limit = bp_memory_limit_read(root, 0);
    assert_int_equal(limit.bytes, 2 * GIB);
    assert_non_null(strstr(limit.from, "SLURM_MEM_PER_CPU"));
}

static void this_machine_says_something(void **state)
{
    bp_memory_limit limit = bp_memory_limit_read("", 0);

    assert_true(limit.bytes > 0 || limit.bytes == -1);
    assert_true(limit.bytes == -1 || limit.from[0] != '\0');
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_already_counts_as_there),
        cmocka_unit_test(nothing_known_is_no_limit),
        cmocka_unit_test(the_tightest_group_above_counts),
        cmocka_unit_test(groups_of_version_1_count),
        cmocka_unit_test(a_container_has_its_own_root),
        cmocka_unit_test(slurm_s_memory_counts),
        cmocka_unit_test(this_machine_says_something),
    };

    return BP_TEST_RUN(tests);
}
