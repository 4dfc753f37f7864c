/* How a watchdog begins: all ranks tell rank 0 where they are, and it tells all. Nobody watches
 * yet, so nothing here waits without an end. */
#include "run/watchdog/watchdog_priv.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TAG          0x6d65
#define LOOK_SECONDS 0.001
#define LATER        1.5 /* a rank that rank 0 does not answer waits so much longer than rank 0 */

typedef struct meeting {
    bp_watch_clock clock; /* a job that the batch system suspends is not late */
    double end;           /* of the wait */
} meeting;

static meeting meeting_of(const watchdog *self, double factor)
{
    meeting at = {.clock.leap = 1, .end = factor * WATCHDOG_LONG * self->seconds};

    if (self->seconds <= 0)
        at.end = INFINITY;
    return at;
}

/* False: it is too late. */
static bool await(meeting *at, MPI_Request *request)
{
    int done;

    for (;;) {
        BP_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done)
            return true;
        if (bp_watch_clock_look(&at->clock, bp_clock_now()) > at->end)
            return false;
        bp_clock_sleep(LOOK_SECONDS);
    }
}

static void leave(watchdog *self, watchdog_cause cause, int rank, double seconds)
{
    (void)snprintf(self->places[rank].host, WIRE_HOST_BYTES, "unknown");
    self->diagnosis.cause = cause;
    self->diagnosis.is =
        (bp_watch_diagnosis){.rank = rank, .reason = BP_WATCH_SILENT, .seconds = seconds};
    watchdog_leave_now(self);
}

/* On rank 0. */
static void await_all(watchdog *self, MPI_Comm world)
{
    meeting at = meeting_of(self, 1);
    MPI_Request *requests = bp_alloc("watchdog", self->size, sizeof(MPI_Request));
    for (int rank = 1; rank < self->size; rank++)
        BP_MPI(MPI_Irecv(&self->places[rank], (int)sizeof *self->places, MPI_BYTE, rank, TAG, world,
                         &requests[rank]));
    for (int rank = 1; rank < self->size; rank++)
        if (!await(&at, &requests[rank]))
            leave(self, NO_PROGRESS, rank, at.clock.now);
    bp_free(requests);
}

/* What rank 0 alone knows, and where all are; false: it is too late. */
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
    self->seconds = word.seconds;
    memcpy(self->token, word.token, WIRE_TOKEN_BYTES);
    return true;
}

/* On the others. */
static void come(watchdog *self, MPI_Comm world)
{
    meeting at = meeting_of(self, LATER);
    wire_place mine = self->places[self->rank];
    MPI_Request request;

    BP_MPI(MPI_Isend(&mine, (int)sizeof mine, MPI_BYTE, 0, TAG, world, &request));
    if (!share(self, &at, world) || !await(&at, &request))
        leave(self, NO_WORD, 0, at.clock.now);
}

void watchdog_meet(watchdog *self, MPI_Comm world)
{
    meeting watched = {.clock.leap = 1, .end = INFINITY};

    bp_heartbeat_enter("meet");
    if (self->rank != 0)
        come(self, world);
    else
        await_all(self, world);
    watchdog_begin(self); /* rank 0 watches before it goes on */
    if (self->rank == 0)
        (void)share(self, &watched, world);
    bp_heartbeat_leave();
    /* all have beaten, and are missed, when the first goes on */
    BP_MPI_WAIT("meet", MPI_Barrier(world));
}
