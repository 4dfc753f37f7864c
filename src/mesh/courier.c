#include "mesh/courier.h"
#include "base/mem.h"
#include "mesh/collective_priv.h"
#include "mesh/mesh.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define NAP_NS   200000 /* a look costs some microseconds of a core that computes */
#define TAG_NONE 7002   /* nobody sends it */

typedef struct job {
    bool gathers;
    float *x, *scratch;
    int64_t n;
} job;

struct bp_courier {
    MPI_Comm comm;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given_more, done_more;
    job *jobs; /* [capacity] a ring */
    int64_t capacity, given, done;
    int attended;
    bool ends;
    atomic_bool hurried; /* the main thread waits for a job: its core is free */
};

static void nap(void *context)
{
    bp_courier *self = context;

    if (atomic_load_explicit(&self->hurried, memory_order_relaxed))
        (void)sched_yield();
    else
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static void carry_out(const bp_courier *self, const job *at, const bp_waiting *waiting)
{
    if (at->gathers)
        bp_all_gather_shards_so(at->x, at->n, self->comm, waiting);
    else
        bp_reduce_scatter_so(at->x, at->n, at->scratch, self->comm, waiting);
}

/* Any call moves all messages of this process. */
static void look_after_messages(bp_courier *self)
{
    int there;

    BP_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_NONE, self->comm, &there, MPI_STATUS_IGNORE));
    (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static void *work(void *context)
{
    bp_courier *self = context;
    bp_waiting waiting = {nap, self};

    (void)pthread_mutex_lock(&self->lock);
    while (!self->ends || self->done < self->given) {
        bool has_job = self->done < self->given;
        job next;

        if (!has_job && self->attended == 0) {
            (void)pthread_cond_wait(&self->given_more, &self->lock);
            continue;
        }
        if (has_job)
            next = self->jobs[self->done % self->capacity];
        (void)pthread_mutex_unlock(&self->lock);
        if (has_job)
            carry_out(self, &next, &waiting);
        else
            look_after_messages(self);
        (void)pthread_mutex_lock(&self->lock);
        if (has_job) {
            self->done++;
            (void)pthread_cond_signal(&self->done_more);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    return NULL;
}

static bp_err start_thread(bp_courier *self)
{
    sigset_t all, before;
    int status;

    (void)sigfillset(&all); /* signals are the main thread's */
    BP_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    status = pthread_create(&self->thread, NULL, work, self);
    BP_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (status != 0)
        return BP_FAIL(BP_ERR_SYSTEM, "no thread can be started: %s: at messages beside compute",
                       strerror(status));
    (void)pthread_setname_np(self->thread, "courier"); /* for top and debuggers */
    self->has_thread = true;
    return BP_OK;
}

bp_err bp_courier_new(bp_courier **out, MPI_Comm comm, int jobs, bool beside)
{
    bp_courier *self = bp_alloc("courier", 1, sizeof *self);
    int threads;

    BP_NEED_MEMORY(self != NULL); /* a rank cannot leave alone before the duplication */
    *out = self;
    BP_MPI(MPI_Comm_dup(comm, &self->comm));
    BP_MPI(MPI_Query_thread(&threads));
    BP_ASSERT(pthread_mutex_init(&self->lock, NULL) == 0 &&
              pthread_cond_init(&self->given_more, NULL) == 0 &&
              pthread_cond_init(&self->done_more, NULL) == 0);
    self->capacity = jobs;
    self->jobs = bp_alloc("courier", jobs, sizeof *self->jobs);
    if (self->jobs == NULL)
        return bp_fail_memory("the courier's jobs", jobs, sizeof *self->jobs);
    return beside && threads == MPI_THREAD_MULTIPLE ? start_thread(self) : BP_OK;
}

void bp_courier_free(bp_courier **courier)
{
    bp_courier *self = *courier;

    if (self == NULL)
        return;
    if (self->has_thread) {
        (void)pthread_mutex_lock(&self->lock);
        self->ends = true;
        (void)pthread_cond_signal(&self->given_more);
        (void)pthread_mutex_unlock(&self->lock);
        BP_ASSERT(pthread_join(self->thread, NULL) == 0);
    }
    (void)pthread_cond_destroy(&self->given_more);
    (void)pthread_cond_destroy(&self->done_more);
    (void)pthread_mutex_destroy(&self->lock);
    BP_MPI(MPI_Comm_free(&self->comm));
    bp_free(self->jobs);
    bp_free(self);
    *courier = NULL;
}

static int64_t give(bp_courier *self, const job *one)
{
    static const bp_waiting SPINNING = {NULL, NULL};

    if (!self->has_thread) {
        bp_beat_enter(one->gathers ? "all_gather" : "reduce_scatter");
        carry_out(self, one, &SPINNING);
        bp_beat_leave();
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

int64_t bp_courier_reduce_scatter(bp_courier *courier, float *x, int64_t n, float *scratch)
{
    return give(courier, &(job){.x = x, .n = n, .scratch = scratch});
}

int64_t bp_courier_all_gather(bp_courier *courier, float *x, int64_t n)
{
    return give(courier, &(job){.gathers = true, .x = x, .n = n});
}

void bp_courier_wait(bp_courier *courier, int64_t at)
{
    bool gathers;

    if (!courier->has_thread)
        return;
    (void)pthread_mutex_lock(&courier->lock);
    if (courier->done <= at) {
        gathers = courier->jobs[at % courier->capacity].gathers;
        bp_beat_enter(gathers ? "all_gather" : "reduce_scatter");
        atomic_store_explicit(&courier->hurried, true, memory_order_relaxed);
        while (courier->done <= at)
            (void)pthread_cond_wait(&courier->done_more, &courier->lock);
        atomic_store_explicit(&courier->hurried, false, memory_order_relaxed);
        bp_beat_leave();
    }
    (void)pthread_mutex_unlock(&courier->lock);
}

void bp_courier_attend(bp_courier *courier, bool attend)
{
    if (!courier->has_thread)
        return;
    (void)pthread_mutex_lock(&courier->lock);
    courier->attended += attend ? 1 : -1;
    if (courier->attended == 1)
        (void)pthread_cond_signal(&courier->given_more);
    (void)pthread_mutex_unlock(&courier->lock);
}
