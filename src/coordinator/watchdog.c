#include "coordinator/watchdog.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "coordinator/stacks.h"
#include "coordinator/watchdog_priv.h"

#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BEATS_PER_LIMIT 10
#define BEAT_SECONDS    1.0

const bp_option bp_watchdog_options[] = {
    {"watchdog.seconds", BP_OPTION_REAL, "60", 0, 86400, NULL, "seconds",
     "a rank that is silent for so long is named, and the job ends with status 75; so is one that "
     "makes no progress: in a step, or a batch of validation or scores, for so long and 10 median "
     "ones; at a start, in a first step, loading, merging, ending: 10 times as long; in a "
     "checkpoint: 10 times, then 4 of the longest and twice this; in a fit of uncertainty: 240 "
     "times; 0: never",
     false},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};

/* A process is watched once, however many jobs run within its job. */
static watchdog *current;
static int depth;

static void free_all(watchdog **out)
{
    watchdog *self = *out;

    if (self == NULL)
        return;
    if (self->fd >= 0)
        (void)close(self->fd);
    if (self->wake >= 0)
        (void)close(self->wake);
    (void)pthread_mutex_destroy(&self->owner);
    bp_watch_free(&self->watch);
    bp_free(self->collectives);
    bp_free(self->sequences);
    bp_free(self->confirmed);
    bp_free(self->places);
    bp_free(self->run_dir);
    bp_free(self);
    *out = NULL;
}

static int peers_of(const bp_mesh *mesh)
{
    return mesh->computes ? mesh->pipeline_at : -1;
}

/* This rank's part: what needs no other. */
static bp_err prepare(watchdog **out, const bp_mesh *mesh, const bp_watchdog_spec *spec)
{
    watchdog *self = bp_alloc("watchdog", 1, sizeof *self);
    double beat = spec->seconds / BEATS_PER_LIMIT;
    bp_watch_spec watch = {.size = mesh->size, .seconds = spec->seconds, .deputy = mesh->rank == 1};

    *out = self;
    if (self == NULL)
        return bp_fail_memory("the watchdog", 1, sizeof *self);
    BP_ASSERT(pthread_mutex_init(&self->owner, NULL) == 0);
    self->fd = self->wake = -1;
    self->rank = mesh->rank;
    self->size = mesh->size;
    self->seconds = spec->seconds;
    self->beat_seconds = watch.beat_seconds = beat < BEAT_SECONDS ? beat : BEAT_SECONDS;
    self->ear.leap = 2 * self->beat_seconds;
    self->still_owner = mesh->rank == 0 ? spec->still_owner : NULL;
    self->context = spec->context;
    self->began = bp_clock_now();
    atomic_store(&self->peers, peers_of(mesh));
    watchdog_launcher_find(&self->launcher);
    self->run_dir = bp_strdup(spec->run_dir);
    self->places = bp_alloc("watchdog", mesh->size, sizeof *self->places);
    self->confirmed = bp_alloc("watchdog", mesh->size, sizeof *self->confirmed);
    self->sequences = bp_alloc("watchdog", mesh->size, sizeof *self->sequences);
    self->collectives = bp_alloc("watchdog", mesh->size, sizeof *self->collectives);
    if (self->run_dir == NULL || self->places == NULL || self->confirmed == NULL ||
        self->sequences == NULL || self->collectives == NULL)
        return bp_fail_memory("the watchdog", mesh->size, sizeof *self->places);
    self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->wake < 0)
        return bp_fail_errno(BP_ERR_SYSTEM, "no eventfd can be made", spec->run_dir);
    return mesh->rank < OBSERVERS ? bp_watch_new(&self->watch, &watch) : BP_OK;
}

/* All ranks learn where all are, and a token that no other run has. */
static void share_places(watchdog *self, const bp_mesh *mesh, const char *host)
{
    struct {
        char token[BP_TOKEN_BYTES];
        int64_t lock_number;
    } run = {.lock_number = 0};
    wire_place mine;

    if (self->rank == 0 && bp_token_new(run.token) != BP_OK)
        run.token[0] = '0'; /* ranks and ports still part two runs */
    if (self->rank == 0)
        run.lock_number = watchdog_lock_number(self->run_dir);
    self->fd = wire_open(&mine, host);
    if (self->size == 1 && self->fd >= 0) {
        (void)close(self->fd);
        self->fd = -1;
    }
    BP_MPI_WAIT("bcast", MPI_Bcast(&run, (int)sizeof run, MPI_BYTE, 0, mesh->world));
    memcpy(self->token, run.token, WIRE_TOKEN_BYTES);
    self->lock_number = run.lock_number;
    BP_MPI_WAIT("all_gather", MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, self->places,
                                            (int)sizeof mine, MPI_BYTE, mesh->world));
    self->first_of_host = true;
    for (int rank = 0; rank < self->rank; rank++)
        if (wire_is_beside(&self->places[rank], &mine))
            self->first_of_host = false;
}

static bp_err start_thread(watchdog *self)
{
    sigset_t all, before;
    int status;

    (void)sigfillset(&all); /* signals are the main thread's */
    BP_ASSERT(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    status = pthread_create(&self->thread, NULL, watchdog_run, self);
    BP_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    if (status == 0)
        (void)pthread_setname_np(self->thread, "watchdog"); /* for top and debuggers */
    return status == 0 ? BP_OK
                       : BP_FAIL(BP_ERR_SYSTEM, "no thread can be started: %s", strerror(status));
}

/* False: an errand hangs, and what it holds must stay. */
static bool stop_thread(watchdog *self)
{
    const uint64_t one = 1;
    void *held = NULL;

    atomic_store(&self->ends, true);
    (void)!write(self->wake, &one, sizeof one); /* else it looks within a beat */
    BP_ASSERT(pthread_join(self->thread, &held) == 0);
    return held == NULL;
}

static bp_err begin(const bp_mesh *mesh, const bp_watchdog_spec *spec, const char *host)
{
    watchdog *self = NULL;
    bool runs = false;
    bp_err err = bp_agree(mesh->world, prepare(&self, mesh, spec));

    if (err == BP_OK) {
        share_places(self, mesh, host);
        watchdog_beat(self); /* all have beaten, and are missed, when the first goes on */
        err = start_thread(self);
        runs = err == BP_OK;
        err = bp_agree(mesh->world, err);
    }
    if (err != BP_OK) {
        if (!runs || stop_thread(self))
            free_all(&self);
        self = NULL;
    }
    current = self;
    return err;
}

/* After MPI has ended, or before another run is watched. */
static void stop(void)
{
    if (current == NULL || stop_thread(current))
        free_all(&current);
    current = NULL;
    bp_stacks_end();
}

bp_err bp_watchdog_start(const bp_mesh *mesh, const bp_watchdog_spec *spec)
{
    char host[WIRE_HOST_BYTES];
    bp_err err = BP_OK;

    if (depth > 0) {
        if (current != NULL)
            atomic_store(&current->peers, peers_of(mesh));
        depth++;
        return BP_OK;
    }
    stop(); /* what goes on behind another run */
    bp_mpi_at_end(stop);
    bp_host_name(host, sizeof host);
    watchdog_suspects_begin(spec->run_dir, mesh->coordinates);
    bp_stacks_start(spec->run_dir, host, mesh->rank);
    if (spec->seconds > 0)
        err = begin(mesh, spec, host);
    if (err == BP_OK)
        depth = 1;
    else
        bp_stacks_end();
    if (err == BP_OK && mesh->coordinates)
        watchdog_suspects_say(); /* whoever reads it may ask for stacks: all ranks listen by now */
    return err;
}

void bp_watchdog_disown(void)
{
    if (depth != 1 || current == NULL)
        return;
    BP_ASSERT(pthread_mutex_lock(&current->owner) == 0);
    current->disowned = true;
    BP_ASSERT(pthread_mutex_unlock(&current->owner) == 0);
}

void bp_watchdog_end(void)
{
    if (depth == 0)
        return;
    bp_watchdog_disown();
    depth--;
}
