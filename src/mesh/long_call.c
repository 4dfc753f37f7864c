/* A local call that may take minutes (ScaLAPACK, a large file), while the main thread keeps
 * answering the watchdog. */
#include "mesh/long_call.h"

#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/thread.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define ASK_SECONDS 0.25

typedef enum call_state { CALL_WAITS, CALL_RUNS, CALL_CANCELLED, CALL_DONE } call_state;

/* On the heap: an abandoned thread still uses it. */
typedef struct helper {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    call_state state;
    void (*work)(void *context);
    void *context;
} helper;

static void *run(void *argument)
{
    helper *self = argument;
    bool runs;

    bp_heartbeat_beside();
    (void)pthread_mutex_lock(&self->lock);
    while (self->state == CALL_WAITS)
        (void)pthread_cond_wait(&self->changed, &self->lock);
    runs = self->state == CALL_RUNS;
    (void)pthread_mutex_unlock(&self->lock);
    if (runs)
        self->work(self->context);
    (void)pthread_mutex_lock(&self->lock);
    self->state = CALL_DONE;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

static void set_state(helper *self, call_state state)
{
    (void)pthread_mutex_lock(&self->lock);
    self->state = state;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

/* Is it done within a quarter of a second? */
static bool wait_a_while(helper *self)
{
    double end = bp_clock_now() + ASK_SECONDS;
    bool done;

    (void)pthread_mutex_lock(&self->lock);
    while (self->state != CALL_DONE && bp_cond_wait_until(&self->changed, &self->lock, end))
        ;
    done = self->state == CALL_DONE;
    (void)pthread_mutex_unlock(&self->lock);
    return done;
}

/* Element-wise maximum over ranks; the wait sleeps, so that the work has the core. */
static void all_most(int values[2], MPI_Comm comm)
{
    MPI_Request request;
    int mine[2] = {values[0], values[1]};

    BP_MPI(MPI_Iallreduce(mine, values, 2, MPI_INT, MPI_MAX, comm, &request));
    bp_wait_asleep("agree", &request);
}

static helper *helper_new(const bp_long_call *call)
{
    helper *self = bp_alloc("long_call", 1, sizeof *self);

    self->work = call->work;
    self->context = call->context;
    bp_cond_init(&self->changed);
    BP_CHECK(pthread_mutex_init(&self->lock, NULL) == 0);
    if (bp_thread_start(&self->thread, "long call", run, self) == BP_OK)
        return self;
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    bp_free(self);
    return NULL;
}

static void helper_end(helper *self)
{
    BP_CHECK(pthread_join(self->thread, NULL) == 0);
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    bp_free(self);
}

/* On all ranks, or on none: NULL. */
static helper *start(MPI_Comm comm, const bp_long_call *call)
{
    helper *self = NULL;
    int threads, fails[2] = {0, 0};

    BP_MPI(MPI_Query_thread(&threads));
    if (!call->stop)
        return NULL;
    if (threads == MPI_THREAD_MULTIPLE)
        self = helper_new(call);
    fails[0] = !self;
    all_most(fails, comm);
    if (fails[0] && self) {
        set_state(self, CALL_CANCELLED);
        helper_end(self);
        self = NULL;
    }
    return self;
}

bool bp_long_call_run(MPI_Comm comm, const bp_long_call *call)
{
    helper *self = start(comm, call);
    int round[2] = {0, 1}; /* some rank must stop; some rank is not done */

    if (!self) {
        call->work(call->context);
        return true;
    }
    set_state(self, CALL_RUNS);
    while (round[0] == 0 && round[1] != 0) {
        round[1] = !wait_a_while(self);
        round[0] = call->stop(call->stop_context);
        all_most(round, comm);
    }
    if (round[1] != 0) {
        bp_mpi_abandon(BP_ERR_STOPPED);
        return false;
    }
    helper_end(self);
    return true;
}
