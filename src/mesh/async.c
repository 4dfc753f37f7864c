/* Asynchronous collectives: a progress thread works through a queue of reductions and gathers. The
 * engine fills it during backward. */
#include "mesh/async.h"
#include "base/mem.h"
#include "base/process/thread.h"
#include "base/trace.h"
#include "mesh/collective_priv.h"
#include "mesh/mesh.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* A poll steals 5 to 30 microseconds from a compute core. The rounds of a sum follow one another,
 * so the first pause after a message is short. Then pauses grow slowly, to limit oversleeping.
 * After a long sleep the thread also waits for the end of the compute thread's time slice, some
 * milliseconds (docs/measurements/communication.md). */
#define PAUSE_LEAST_NS  20000
#define PAUSE_MOST_NS   1000000
#define PAUSE_GROWS(ns) ((ns) + (ns) / 4)

typedef struct job {
    bool gathers, of_part;
    float *x, *scratch;
    int64_t units, unit;
} job;

struct bp_async {
    MPI_Comm comm, part;   /* part: may be MPI_COMM_NULL */
    bool has_thread, bf16; /* bf16: sums are sent in two bytes a value */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given_more, done_more;
    job *jobs; /* [capacity] a ring */
    int64_t capacity, given, done;
    bool ends;
    long pause_ns;       /* the last one */
    atomic_bool hurried; /* the main thread waits for a job: its core is free */
};

static void pause_polling(void *context, bool again)
{
    bp_async *self = context;

    if (atomic_load_explicit(&self->hurried, memory_order_relaxed)) {
        (void)sched_yield();
        return;
    }
    self->pause_ns = again ? PAUSE_GROWS(self->pause_ns) : PAUSE_LEAST_NS;
    if (self->pause_ns > PAUSE_MOST_NS)
        self->pause_ns = PAUSE_MOST_NS;
    (void)nanosleep(&(struct timespec){.tv_nsec = self->pause_ns}, NULL);
}

static void carry_out(const bp_async *self, const job *at, const bp_waiting *waiting)
{
    MPI_Comm comm = at->of_part ? self->part : self->comm;

    if (at->gathers)
        bp_all_gather_units(at->x, at->units * at->unit * (int64_t)sizeof(float),
                            at->unit * (int64_t)sizeof(float), comm, waiting);
    else
        bp_reduce_scatter_units(at->x, at->units * at->unit, at->unit, self->bf16, at->scratch,
                                comm, waiting);
}

static void *work(void *context)
{
    bp_async *self = context;
    bp_waiting waiting = {pause_polling, self};

    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL,
                0UL); /* of this thread: wake up from pauses on time */
    (void)pthread_mutex_lock(&self->lock);
    while (!self->ends || self->done < self->given) {
        if (self->done == self->given) {
            (void)pthread_cond_wait(&self->given_more, &self->lock);
            continue;
        }
        job next = self->jobs[self->done % self->capacity];
        (void)pthread_mutex_unlock(&self->lock);
        if (bp_trace_is_on() && !bp_trace_here)
            bp_trace_thread(BP_TRACE_COMMUNICATION);
        carry_out(self, &next, &waiting);
        (void)pthread_mutex_lock(&self->lock);
        self->done++;
        (void)pthread_cond_signal(&self->done_more);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

bp_err bp_async_new(bp_async **out, MPI_Comm comm, int jobs, bool beside)
{
    bp_async *self = bp_alloc("mesh.async", 1, sizeof *self);
    int threads;
    bp_err err = BP_OK;

    *out = self;
    self->part = MPI_COMM_NULL;
    BP_MPI(MPI_Comm_dup(comm, &self->comm));
    BP_MPI(MPI_Query_thread(&threads));
    BP_CHECK(pthread_mutex_init(&self->lock, NULL) == 0 &&
             pthread_cond_init(&self->given_more, NULL) == 0 &&
             pthread_cond_init(&self->done_more, NULL) == 0);
    self->capacity = jobs;
    self->jobs = bp_alloc("mesh.async", jobs, sizeof *self->jobs);
    if (beside && threads == MPI_THREAD_MULTIPLE && bp_comm_size(comm) > 1) {
        err = bp_thread_start(&self->thread, "collectives", work, self);
        self->has_thread = err == BP_OK;
    }
    return err;
}

void bp_async_add_part(bp_async *async, MPI_Comm part)
{
    BP_ASSERT(async->part == MPI_COMM_NULL && async->given == 0);
    BP_MPI(MPI_Comm_dup(part, &async->part));
}

void bp_async_send_bf16(bp_async *async, bool bf16)
{
    BP_ASSERT(async->given == 0);
    async->bf16 = bf16;
}

void bp_async_free(bp_async **async)
{
    bp_async *self = *async;

    if (!self)
        return;
    if (self->has_thread) {
        (void)pthread_mutex_lock(&self->lock);
        self->ends = true;
        (void)pthread_cond_signal(&self->given_more);
        (void)pthread_mutex_unlock(&self->lock);
        BP_CHECK(pthread_join(self->thread, NULL) == 0);
    }
    (void)pthread_cond_destroy(&self->given_more);
    (void)pthread_cond_destroy(&self->done_more);
    (void)pthread_mutex_destroy(&self->lock);
    BP_MPI(MPI_Comm_free(&self->comm));
    if (self->part != MPI_COMM_NULL)
        BP_MPI(MPI_Comm_free(&self->part));
    bp_free(self->jobs);
    bp_free(self);
    *async = NULL;
}

static int64_t give(bp_async *self, const job *one)
{
    static const bp_waiting SPINNING = {NULL, NULL};

    if (!self->has_thread) {
        bp_heartbeat_enter(one->gathers ? "all_gather" : "reduce_scatter");
        carry_out(self, one, &SPINNING);
        bp_heartbeat_leave();
        return self->given++;
    }
    (void)pthread_mutex_lock(&self->lock);
    BP_ASSERT(self->given - self->done < self->capacity);
    self->jobs[self->given % self->capacity] = *one;
    self->given++;
    (void)pthread_cond_signal(&self->given_more);
    (void)pthread_mutex_unlock(&self->lock);
    return self->given - 1;
}

int64_t bp_async_reduce_scatter(bp_async *async, float *x, int64_t units, int64_t unit,
                                float *scratch, bool of_part)
{
    BP_ASSERT(!of_part || async->part != MPI_COMM_NULL);
    return give(
        async,
        &(job){.of_part = of_part, .x = x, .units = units, .unit = unit, .scratch = scratch});
}

int64_t bp_async_all_gather(bp_async *async, float *x, int64_t units, int64_t unit, bool of_part)
{
    BP_ASSERT(!of_part || async->part != MPI_COMM_NULL);
    return give(async,
                &(job){.gathers = true, .of_part = of_part, .x = x, .units = units, .unit = unit});
}

void bp_async_wait(bp_async *async, int64_t at)
{
    bool gathers;

    if (!async->has_thread)
        return;
    (void)pthread_mutex_lock(&async->lock);
    if (async->done <= at) {
        gathers = async->jobs[at % async->capacity].gathers;
        bp_heartbeat_enter(gathers ? "all_gather" : "reduce_scatter");
        atomic_store_explicit(&async->hurried, true, memory_order_relaxed);
        while (async->done <= at)
            (void)pthread_cond_wait(&async->done_more, &async->lock);
        atomic_store_explicit(&async->hurried, false, memory_order_relaxed);
        bp_heartbeat_leave();
    }
    (void)pthread_mutex_unlock(&async->lock);
}

bool bp_async_is_done(bp_async *async, int64_t at)
{
    bool done;

    if (!async->has_thread)
        return true;
    (void)pthread_mutex_lock(&async->lock);
    done = async->done > at;
    (void)pthread_mutex_unlock(&async->lock);
    return done;
}
