/* Start and end of the watchdog on each rank: its thread, its socket, the meeting of all ranks. */
#include "run/watchdog/watchdog.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/thread.h"
#include "mesh/collective.h"
#include "run/watchdog/backtraces.h"
#include "run/watchdog/watchdog_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define HEARTBEATS_PER_LIMIT 10
#define HEARTBEAT_SECONDS    1.0
#define TAG                  0x6d65
#define LATER                1.5 /* ranks without answers wait longer than rank 0 by this factor */

const bp_option bp_watchdog_options[] = {
    {BP_REAL_KEY("watchdog.seconds", "60", 0, 86400), .unit = "seconds",
     .help = "a rank that is silent for so long is named, and the job ends with status 75; so is "
             "one that makes no progress: in a step, or a batch of validation or scores, for so "
             "long and 10 median ones; at a start (within MPI's too), in a first step, loading, "
             "merging, ending: 10 times as long; in a checkpoint: 10 times, then 4 of the longest "
             "and twice this; in a fit of uncertainty: 240 times; 0: never",
     .at = BP_AT(bp_watchdog_keys, seconds)},
    {0}};

/* A process is watched once, however many jobs run within its job. */
static watchdog *current;
static int depth;          /* of runs that are open */
static bool waits_for_run; /* it has begun, for the next one */

static void free_all(watchdog **out)
{
    watchdog *self = *out;

    if (!self)
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
    bp_free(self);
    *out = NULL;
}

static watchdog *watchdog_new(MPI_Comm world, double seconds)
{
    watchdog *self = bp_alloc("watchdog", 1, sizeof *self);
    char host[WIRE_HOST_BYTES],
        token[BP_TOKEN_BYTES] = "0"; /* ranks and ports still part two runs */

    BP_CHECK(pthread_mutex_init(&self->owner, NULL) == 0);
    self->rank = bp_comm_rank(world);
    self->size = bp_comm_size(world);
    self->seconds = seconds;
    atomic_store(&self->peers, -1);
    watchdog_launcher_find(&self->launcher);
    self->places = bp_alloc("watchdog", self->size, sizeof *self->places);
    self->confirmed = bp_alloc("watchdog", self->size, sizeof *self->confirmed);
    self->sequences = bp_alloc("watchdog", self->size, sizeof *self->sequences);
    self->collectives = bp_alloc("watchdog", self->size, sizeof *self->collectives);
    if (self->rank == 0) {
        bp_token_new(token);
        memcpy(self->token, token, WIRE_TOKEN_BYTES);
    }
    bp_host_name(host, sizeof host);
    self->fd = wire_open(&self->places[self->rank], host);
    if (self->size == 1 && self->fd >= 0) {
        (void)close(self->fd);
        self->fd = -1;
    }
    self->wake =
        eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); /* without it a heartbeat passes at the end */
    return self;
}

static void begin(watchdog *self)
{
    const wire_place *mine = &self->places[self->rank];
    double heartbeat = self->seconds / HEARTBEATS_PER_LIMIT;
    bp_watch_spec watch = {.size = self->size, .seconds = self->seconds};

    if (self->seconds <= 0)
        return;
    self->began = bp_clock_now();
    self->heartbeat_seconds = watch.heartbeat_seconds =
        heartbeat < HEARTBEAT_SECONDS ? heartbeat : HEARTBEAT_SECONDS;
    self->ear.leap = 2 * self->heartbeat_seconds;
    if (self->rank > 0) { /* it receives only from rank 0 */
        watch.size = 1;
        watch.only_silence = true;
        watch.seconds += self->rank > 1 ? LATER_HEARTBEATS * self->heartbeat_seconds : 0;
    }
    self->watch = bp_watch_new(&watch);
    self->first_of_host = true;
    for (int rank = 0; rank < self->rank; rank++)
        if (wire_is_beside(&self->places[rank], mine))
            self->first_of_host = false;
    watchdog_heartbeat(self);
    if (bp_thread_start(&self->thread, "watchdog", watchdog_run, self) != BP_OK)
        bp_memory_ended("the watchdog's thread", 1, 1);
}

/* ---- all ranks send rank 0 where they are, and it sends to all ----
 * Nobody watches yet, so nothing here waits without an end. */

typedef struct meeting {
    bp_watch_clock clock; /* a job that the batch system suspends is not late */
    double end;           /* of the wait */
    MPI_Request *request; /* that is waited for */
    int done;
} meeting;

static meeting meeting_of(const watchdog *self, double factor)
{
    double end = self->seconds > 0 ? factor * WATCHDOG_LONG * self->seconds : INFINITY;

    return (meeting){.clock.leap = 1, .end = end};
}

static bool is_over(void *context)
{
    meeting *at = context;

    BP_MPI(MPI_Test(at->request, &at->done, MPI_STATUS_IGNORE));
    return at->done || bp_watch_clock_poll(&at->clock, bp_clock_now()) > at->end;
}

/* Returns false if it is too late. */
static bool await(meeting *at, MPI_Request *request)
{
    at->request = request;
    bp_poll("meet", is_over, at);
    return at->done;
}

static void leave(watchdog *self, watchdog_cause cause, int rank, double seconds)
{
    (void)snprintf(self->places[rank].host, WIRE_HOST_BYTES, "unknown");
    self->diagnosis.cause = cause;
    self->diagnosis.is =
        (bp_watch_diagnosis){.rank = rank, .reason = BP_WATCH_SILENT, .seconds = seconds};
    watchdog_leave_now(self);
}

/* Broadcasts rank 0's data and all addresses; returns false if it is too late. */
static bool share(watchdog *self, meeting *at, MPI_Comm world)
{
    struct {
        double seconds;
        uint8_t token[WIRE_TOKEN_BYTES];
    } word = {.seconds = self->seconds};
    MPI_Request request;
    int64_t bytes = self->size * (int64_t)sizeof *self->places;

    memcpy(word.token, self->token, WIRE_TOKEN_BYTES);
    BP_MPI(MPI_Ibcast(&word, (int)sizeof word, MPI_BYTE, 0, world, &request));
    if (!await(at, &request))
        return false;
    BP_MPI(MPI_Ibcast(self->places, bp_mpi_count(bytes), MPI_BYTE, 0, world, &request));
    if (!await(at, &request))
        return false;
    if (self->rank == 0) /* it knew; its thread reads them already */
        return true;
    self->seconds = word.seconds;
    memcpy(self->token, word.token, WIRE_TOKEN_BYTES);
    return true;
}

/* Rank 0 receives from all; the others send it where they are, and receive the state of all. */
static void gather_places(watchdog *self, MPI_Comm world)
{
    meeting at = meeting_of(self, self->rank == 0 ? 1 : LATER);
    wire_place mine = self->places[self->rank];
    int bytes = (int)sizeof mine;
    MPI_Request request, *requests;

    if (self->rank != 0) {
        BP_MPI(MPI_Isend(&mine, bytes, MPI_BYTE, 0, TAG, world, &request));
        if (!share(self, &at, world) || !await(&at, &request))
            leave(self, NO_WORD, 0, at.clock.now);
        return;
    }
    requests = bp_alloc("watchdog", self->size, sizeof(MPI_Request));
    for (int rank = 1; rank < self->size; rank++)
        BP_MPI(MPI_Irecv(&self->places[rank], bytes, MPI_BYTE, rank, TAG, world, &requests[rank]));
    for (int rank = 1; rank < self->size; rank++)
        if (!await(&at, &requests[rank]))
            leave(self, NO_PROGRESS, rank, at.clock.now);
    bp_free(requests);
}

static void meet(watchdog *self, MPI_Comm world)
{
    meeting watched = {.clock.leap = 1, .end = INFINITY};

    bp_heartbeat_enter("meet");
    gather_places(self, world);
    begin(self); /* rank 0 watches before it goes on */
    if (self->rank == 0)
        (void)share(self, &watched, world);
    bp_heartbeat_leave();
    /* all have beaten, and are missed, when the first goes on */
    BP_MPI_WAIT("meet", MPI_Barrier(world));
}

/* ---- of a job ---- */

/* After MPI has ended, or before another run is watched. */
static void stop(void)
{
    const uint64_t one = 1;

    if (current) {
        atomic_store(&current->ends, true);
        (void)!write(current->wake, &one, sizeof one); /* else it looks within a heartbeat */
        BP_CHECK(pthread_join(current->thread, NULL) == 0);
    }
    free_all(&current);
    waits_for_run = false;
    bp_backtraces_end();
}

double bp_watchdog_seconds(const bp_config *config)
{
    return !config ? strtod(bp_watchdog_options[0].value, NULL)
                   : bp_watchdog_keys_of(config)->seconds;
}

void bp_watchdog_start(MPI_Comm world, double seconds)
{
    if (depth > 0 || waits_for_run)
        return;
    stop(); /* what another run left going on */
    bp_mpi_at_end(stop);
    current = watchdog_new(world, seconds);
    meet(current, world);
    if (current->seconds <= 0)
        free_all(&current);
    waits_for_run = true;
}

void bp_watchdog_reorder(MPI_Comm world, double seconds)
{
    BP_ASSERT(depth == 0);
    stop();
    bp_watchdog_start(world, seconds);
}

void bp_watchdog_own(const bp_mesh *mesh, const bp_watchdog_spec *spec)
{
    char host[WIRE_HOST_BYTES];

    if (current)
        atomic_store(&current->peers, mesh->computes ? mesh->pipeline_rank : -1);
    if (depth++ > 0)
        return;
    bp_host_name(host, sizeof host);
    bp_backtraces_start(spec->run_dir, host, mesh->rank);
    if (!current || strlen(spec->run_dir) >= sizeof current->run_dir)
        return;
    BP_CHECK(pthread_mutex_lock(&current->owner) == 0);
    (void)snprintf(current->run_dir, sizeof current->run_dir, "%s", spec->run_dir);
    current->still_owner = mesh->rank == 0 ? spec->still_owner : NULL;
    current->context = spec->context;
    current->lock_number = spec->lock_number;
    BP_CHECK(pthread_mutex_unlock(&current->owner) == 0);
    atomic_store(&current->has_run, true);
}

void bp_watchdog_disown(void)
{
    if (depth != 1 || !current)
        return;
    BP_CHECK(pthread_mutex_lock(&current->owner) == 0);
    current->disowned = true;
    BP_CHECK(pthread_mutex_unlock(&current->owner) == 0);
}

void bp_watchdog_end(bool owned)
{
    if (owned) {
        bp_watchdog_disown();
        depth--;
    }
    if (depth == 0)
        waits_for_run = false; /* on all ranks, or they would not meet for the next one */
}
