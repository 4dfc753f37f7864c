/* The watchdog's beginning and end on each rank: its thread, its socket, the meeting of all
 * ranks. */
#include "run/watchdog/watchdog.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "run/watchdog/backtraces.h"
#include "run/watchdog/watchdog_priv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define BEATS_PER_LIMIT   10
#define HEARTBEAT_SECONDS 1.0

const bp_option bp_watchdog_options[] = {
    {"watchdog.seconds", BP_OPTION_REAL, "60", 0, 86400, NULL, "seconds",
     "a rank that is silent for so long is named, and the job ends with status 75; so is one that "
     "makes no progress: in a step, or a batch of validation or scores, for so long and 10 median "
     "ones; at a start, in a first step, loading, merging, ending: 10 times as long; in a "
     "checkpoint: 10 times, then 4 of the longest and twice this; in a fit of uncertainty: 240 "
     "times; 0: never",
     false, .at = BP_AT(bp_watchdog_keys, seconds)},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};

/* A process is watched once, however many jobs run within its job. */
static watchdog *current;
static int depth;          /* of runs that are open */
static bool waits_for_run; /* it has begun, for the next one */

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

static void start_thread(watchdog *self)
{
    if (bp_thread_start(&self->thread, "watchdog", watchdog_run, self) != BP_OK)
        bp_memory_ended("the watchdog's thread", 1, 1);
}

void watchdog_begin(watchdog *self)
{
    const wire_place *mine = &self->places[self->rank];
    double heartbeat = self->seconds / BEATS_PER_LIMIT;
    bp_watch_spec watch = {.size = self->size, .seconds = self->seconds};

    if (self->seconds <= 0)
        return;
    self->began = bp_clock_now();
    self->heartbeat_seconds = watch.heartbeat_seconds =
        heartbeat < HEARTBEAT_SECONDS ? heartbeat : HEARTBEAT_SECONDS;
    self->ear.leap = 2 * self->heartbeat_seconds;
    if (self->rank > 0) { /* it hears rank 0 alone */
        watch.size = 1;
        watch.silence_alone = true;
        watch.seconds += self->rank > 1 ? LATER_BEATS * self->heartbeat_seconds : 0;
    }
    BP_CHECK(bp_watch_new(&self->watch, &watch) == BP_OK);
    self->first_of_host = true;
    for (int rank = 0; rank < self->rank; rank++)
        if (wire_is_beside(&self->places[rank], mine))
            self->first_of_host = false;
    watchdog_heartbeat(self);
    start_thread(self);
}

static void stop_thread(watchdog *self)
{
    const uint64_t one = 1;

    atomic_store(&self->ends, true);
    (void)!write(self->wake, &one, sizeof one); /* else it looks within a heartbeat */
    BP_CHECK(pthread_join(self->thread, NULL) == 0);
}

/* After MPI has ended, or before another run is watched. */
static void stop(void)
{
    if (current != NULL)
        stop_thread(current);
    free_all(&current);
    waits_for_run = false;
    bp_backtraces_end();
}

/* A job without the key is not watched. */
static void find_seconds(void *seconds, const bp_option *option, const char *value)
{
    if (strcmp(option->key, "watchdog.seconds") == 0 && value != NULL)
        *(double *)seconds = strtod(value, NULL);
}

double bp_watchdog_seconds(const bp_config *config)
{
    double seconds = config == NULL ? strtod(bp_watchdog_options[0].value, NULL) : 0;

    if (config != NULL)
        bp_config_each(config, find_seconds, &seconds);
    return seconds;
}

void bp_watchdog_start(MPI_Comm world, double seconds)
{
    if (depth > 0 || waits_for_run)
        return;
    stop(); /* what goes on behind another run */
    bp_mpi_at_end(stop);
    current = watchdog_new(world, seconds);
    watchdog_meet(current, world);
    if (current->seconds <= 0)
        free_all(&current);
    waits_for_run = true;
}

void bp_watchdog_own(const bp_mesh *mesh, const bp_watchdog_spec *spec)
{
    char host[WIRE_HOST_BYTES];

    if (current != NULL)
        atomic_store(&current->peers, mesh->computes ? mesh->pipeline_at : -1);
    if (depth++ > 0)
        return;
    bp_host_name(host, sizeof host);
    bp_backtraces_start(spec->run_dir, host, mesh->rank);
    if (current == NULL || strlen(spec->run_dir) >= sizeof current->run_dir)
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
    if (depth != 1 || current == NULL)
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
