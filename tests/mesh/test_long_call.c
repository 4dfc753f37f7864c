/* Work on a thread beside the caller, until it is done on all ranks. What is abandoned ends the
 * process: tests/jobs sees to that. */
#include "bp_test_mpi.h"

#include "base/process/clock.h"
#include "mesh/collective.h"
#include "mesh/long_call.h"

#include <pthread.h>

#define WORLD MPI_COMM_WORLD

typedef struct job {
    MPI_Comm comm; /* the work's own */
    pthread_t thread;
    double seconds;
    int64_t sum;
    int asked;
} job;

static void work(void *context)
{
    job *self = context;

    self->thread = pthread_self();
    bp_clock_sleep(self->seconds);
    self->sum = bp_all_sum_int(bp_comm_rank(self->comm) + 1, self->comm);
}

static bool ask(void *context)
{
    ((job *)context)->asked++;
    return false;
}

static bool run(job *self, bool asks)
{
    bp_long_call call = {
        .work = work, .context = self, .stop = asks ? ask : NULL, .stop_context = self};
    bool done;

    BP_MPI(MPI_Comm_dup(WORLD, &self->comm));
    done = bp_long_call_run(WORLD, &call);
    BP_MPI(MPI_Comm_free(&self->comm));
    return done;
}

static int64_t sum_of_ranks(void)
{
    int64_t size = bp_comm_size(WORLD);

    return size * (size + 1) / 2;
}

static void work_is_done_beside_the_caller_who_is_asked_meanwhile(void **state)
{
    job self = {.seconds = bp_comm_is_root(WORLD) ? 1.2 : 0.1}; /* all wait for the slowest */
    int threads;

    BP_MPI(MPI_Query_thread(&threads));
    if (threads < MPI_THREAD_MULTIPLE)
        bp_test_skip("this MPI allows no two threads at a time");
    bp_test_check(WORLD, run(&self, true));
    bp_test_check(WORLD, self.sum == sum_of_ranks());
    bp_test_check(WORLD, !pthread_equal(self.thread, pthread_self()));
    bp_test_check(WORLD, self.asked >= 2);
}

static void work_that_nobody_asks_about_is_the_callers(void **state)
{
    job self = {.seconds = 0};

    bp_test_check(WORLD, run(&self, false));
    bp_test_check(WORLD, self.sum == sum_of_ranks() && self.asked == 0);
    bp_test_check(WORLD, pthread_equal(self.thread, pthread_self()));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_done_beside_the_caller_who_is_asked_meanwhile),
        cmocka_unit_test(work_that_nobody_asks_about_is_the_callers),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
