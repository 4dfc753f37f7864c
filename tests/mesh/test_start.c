/* How a program starts MPI, and how it dies: the program runs itself, without mpirun, as another
 * person would. */
#include "base/log.h"
#include "bp_test_mpi.h"
#include "mesh/collective.h"
#include <sys/wait.h>
#include <unistd.h>

/* Runs this program with an argument, ACT below, and gives its exit status and all that it said. */
static int run_self(const char *environment, const char *act, char *out, size_t out_bytes)
{
    char self[PATH_MAX], command[PATH_MAX + 256];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

    assert_true(length > 0);
    self[length] = 0;
    (void)snprintf(command, sizeof command, "env %s '%s' %s 2>&1", environment, self, act);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    out[fread(out, 1, out_bytes - 1, pipe)] = 0;
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void program_without_mpirun_is_a_world_of_one(void **state)
{
    char text[4096];

    assert_int_equal(run_self("", "size", text, sizeof text), 0);
    assert_string_equal(text, "1\n");
}

static void tasks_that_do_not_see_each_other_are_refused(void **state)
{
    char text[4096];

    assert_int_equal(run_self("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=2", "size", text, sizeof text),
                     BP_ERR_CONFIG);
    assert_non_null(strstr(text, "bagpipe: error[78]: srun started 4 tasks that do not see"));
    assert_int_equal(
        run_self("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 PMI_SIZE=4", "size", text, sizeof text),
        BP_ERR_CONFIG);
    assert_int_equal(
        run_self("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0 PMI_SIZE=1", "size", text, sizeof text), 0);
    assert_int_equal(run_self("SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", "size", text, sizeof text),
                     0);
    assert_int_equal(run_self("SLURM_JOB_NUM_NODES=4", "size", text, sizeof text), 0);
}

static void failed_mpi_call_ends_the_program_with_its_text(void **state)
{
    char text[4096];

    assert_int_equal(run_self("", "send", text, sizeof text), BP_ERR_SYSTEM);
    assert_non_null(strstr(text, "bagpipe: error[71]: MPI failed: MPI_ERR_RANK: invalid rank"));
    assert_non_null(strstr(text, "transfer.c:"));
    assert_non_null(strstr(text, "rank 0"));
}

static void broken_assertion_aborts_all(void **state)
{
    char text[4096];

    assert_int_equal(run_self("", "count", text, sizeof text), BP_ERR_SOFTWARE);
    assert_non_null(strstr(text, "bagpipe: error[70]: a bug: "));
    assert_non_null(strstr(text, "agree.c:"));
    assert_int_equal(run_self("", "short", text, sizeof text), BP_ERR_SOFTWARE);
    assert_non_null(strstr(text, "transfer.c:"));
}

/* A message that is shorter than the receiver expects. */
static void receive_too_little(void)
{
    char data[8] = "";
    bp_transfer sending, receiving;

    bp_send_start(&sending, data, 4, 0, 1, MPI_COMM_SELF);
    bp_recv_start(&receiving, data, 8, 0, 1, MPI_COMM_SELF);
    bp_wait(&receiving);
    bp_wait(&sending);
}

static int act(const char *what, int argc, char **argv)
{
    bp_err err = bp_mpi_start(&argc, &argv);

    if (err != BP_OK)
        bp_err_print(err);
    else if (strcmp(what, "size") == 0)
        printf("%d\n", bp_comm_size(MPI_COMM_WORLD));
    else if (strcmp(what, "send") == 0)
        bp_send(what, 1, 99, 0, MPI_COMM_WORLD);
    else if (strcmp(what, "count") == 0)
        (void)bp_mpi_count((int64_t)1 << 31);
    else if (strcmp(what, "short") == 0)
        receive_too_little();
    bp_mpi_finish();
    return (int)err;
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_without_mpirun_is_a_world_of_one),
        cmocka_unit_test(tasks_that_do_not_see_each_other_are_refused),
        cmocka_unit_test(failed_mpi_call_ends_the_program_with_its_text),
        cmocka_unit_test(broken_assertion_aborts_all),
    };
    if (argc > 1)
        return act(argv[1], argc, argv);
    return BP_TEST_RUN(tests);
}
