/* Injected faults: what each action does, and what is refused. */
#include "bp_test.h"

#include "base/fault.h"
#include "base/process/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What becomes of a process that comes by a point that is armed; it ends with 3 when it goes on. */
static pid_t come_by(const char *specification)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        bp_fault_arm(specification);
        bp_fault_point("step.end");
        bp_fault_point("step.end");
        _exit(3);
    }
    return child;
}

static int status_of(pid_t child, int options)
{
    int status;

    assert_int_equal(waitpid(child, &status, options), child);
    return status;
}

static void kill_is_sigkill_at_its_call(void **state)
{
    int status = status_of(come_by("step.end:2=kill"), 0);

    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = status_of(come_by("step.end:3=kill"), 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

static void stop_stands_until_it_is_continued(void **state)
{
    pid_t child = come_by("step.end=stop");
    int status = status_of(child, WUNTRACED);

    assert_true(WIFSTOPPED(status));
    assert_int_equal(kill(child, SIGCONT), 0);
    status = status_of(child, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
}

static void spin_never_comes_back(void **state)
{
    pid_t child = come_by("step.end=spin");
    int status;

    bp_clock_sleep(0.2);
    assert_int_equal(waitpid(child, &status, WNOHANG), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    status = status_of(child, 0);
    assert_true(WIFSIGNALED(status));
}

static void delay_takes_its_time_and_goes_on(void **state)
{
    double begin = bp_clock_now();

    bp_fault_arm("step.end=delay0.05");
    bp_fault_point("step.end");
    assert_true(bp_clock_now() - begin >= 0.05);
    bp_fault_arm(NULL);
}

static void failures_have_their_errno(void **state)
{
    bp_fault_arm("ckpt.rename=enospc,ckpt.verify=eio,ckpt.snapshot");
    assert_true(bp_fault_is_armed());
    errno = 0;
    assert_true(bp_fault("ckpt.rename"));
    assert_int_equal(errno, ENOSPC);
    assert_true(bp_fault("ckpt.verify"));
    assert_int_equal(errno, EIO);
    assert_true(bp_fault("ckpt.snapshot"));
    assert_int_equal(errno, EIO);
    assert_false(bp_fault("ckpt.snapshot")); /* the first call alone */
    bp_fault_arm(NULL);
    assert_false(bp_fault_is_armed());
}

static void point_that_cannot_fail_is_no_place_for_a_failure(void **state)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(4);
        bp_fault_arm("step.end=eio");
        bp_fault_point("step.end");
        _exit(3);
    }
    status = status_of(child, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static bp_err check(const char *specification)
{
    bp_err err;

    assert_int_equal(setenv("BP_FAULT", specification, 1), 0);
    err = bp_fault_check();
    assert_int_equal(unsetenv("BP_FAULT"), 0);
    return err;
}

static void what_makes_no_sense_is_refused(void **state)
{
    static const char *const senseless[] = {
        "ckpt.nowhere", "step.end:0=kill", "step.end=die",   "step.end@-1",
        "step.end:x",   "step.end=delay",  "step.end=kill5", "=kill"};

    for (size_t k = 0; k < sizeof senseless / sizeof senseless[0]; k++) {
        bp_test_expect(check(senseless[k]), BP_ERR_USAGE);
        bp_test_message_has(senseless[k]);
        bp_test_message_has("[fault.unknown]");
    }
    bp_test_expect(check("step.end:3+@1=delay0.5,ckpt.rename=enospc,lock.acquired"), BP_OK);
    bp_test_expect(check(""), BP_OK);
}

static void slurm_job_takes_none_unless_asked(void **state)
{
    assert_int_equal(setenv("SLURM_JOB_ID", "7", 1), 0);
    bp_test_expect(check("step.end=kill"), BP_ERR_USAGE);
    bp_test_message_has("BP_FAULT_IN_JOB=yes ... [fault.not_allowed]");
    assert_int_equal(setenv("BP_FAULT_IN_JOB", "yes", 1), 0);
    bp_test_expect(check("step.end=kill"), BP_OK);
    assert_int_equal(unsetenv("BP_FAULT_IN_JOB"), 0);
    assert_int_equal(unsetenv("SLURM_JOB_ID"), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill_is_sigkill_at_its_call),
        cmocka_unit_test(stop_stands_until_it_is_continued),
        cmocka_unit_test(spin_never_comes_back),
        cmocka_unit_test(delay_takes_its_time_and_goes_on),
        cmocka_unit_test(failures_have_their_errno),
        cmocka_unit_test(point_that_cannot_fail_is_no_place_for_a_failure),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(slurm_job_takes_none_unless_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
