/* Only the run lock's decisions: given the observed state of other owners, wait, take over or
 * yield. run_lock.c observes and acts; in tests a simulator does. Called by run_lock.c. */
#include "run/lock/run_lock_record_priv.h"

#include "base/err.h"
#include "base/files/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 100

/* ---- taking it ---- */

void lock_record_begin(lock_record *self, double watch_seconds)
{
    *self = (lock_record){.step = LOCK_RECORD_LIST, .watch_seconds = watch_seconds};
}

bool lock_record_is_over(const lock_record *self)
{
    return self->step >= LOCK_RECORD_WON;
}

static void start_over(lock_record *self)
{
    self->step = ++self->attempts < ATTEMPTS ? LOCK_RECORD_LIST : LOCK_RECORD_CROWDED;
}

static void go_for(lock_record *self, int64_t number)
{
    self->number = number;
    self->step = LOCK_RECORD_LINK;
}

void lock_record_listed(lock_record *self, int64_t highest)
{
    if (self->step == LOCK_RECORD_CONFIRM) {
        self->step = highest == self->number ? LOCK_RECORD_WON : LOCK_RECORD_YIELD;
        return;
    }
    BP_ASSERT(self->step == LOCK_RECORD_LIST);
    self->owner = highest;
    if (highest == 0)
        go_for(self, 1);
    else
        self->step = LOCK_RECORD_ASK;
}

void lock_record_answered(lock_record *self, lock_record_answer answer)
{
    BP_ASSERT(self->step == LOCK_RECORD_ASK);
    self->watching = false;
    switch (answer) {
    case LOCK_RECORD_ALIVE:
        self->step = LOCK_RECORD_HELD;
        break;
    case LOCK_RECORD_DEAD:
        go_for(self, self->owner + 1);
        break;
    case LOCK_RECORD_UNKNOWN:
        self->step = LOCK_RECORD_WATCH;
        break;
    case LOCK_RECORD_GONE:
        start_over(self);
        break;
    }
}

void lock_record_watched(lock_record *self, double now, const char *heartbeat, int64_t highest)
{
    BP_ASSERT(self->step == LOCK_RECORD_WATCH);
    if (!self->watching) {
        self->watching = true;
        self->watch_end = now + self->watch_seconds;
        (void)snprintf(self->heartbeat, sizeof self->heartbeat, "%s", heartbeat);
    } else if (strcmp(self->heartbeat, heartbeat) != 0) {
        self->step = LOCK_RECORD_HELD;
    } else if (highest != 0 && highest != self->owner) {
        start_over(self); /* another took it meanwhile */
    } else if (now >= self->watch_end) {
        go_for(self, self->owner + 1);
    }
}

void lock_record_linked(lock_record *self, bool made)
{
    BP_ASSERT(self->step == LOCK_RECORD_LINK);
    if (made)
        self->step = LOCK_RECORD_CONFIRM;
    else
        start_over(self);
}

void lock_record_yielded(lock_record *self)
{
    BP_ASSERT(self->step == LOCK_RECORD_YIELD);
    start_over(self);
}

/* ---- owning it ---- */

lock_record_claim lock_record_is_own(int64_t number, lock_record_sight listing, int64_t highest,
                                     lock_record_sight file)
{
    if (listing == LOCK_RECORD_MISSING)
        return LOCK_RECORD_LOST;
    if (listing != LOCK_RECORD_SEEN)
        return LOCK_RECORD_UNSURE;
    if (highest != number || file == LOCK_RECORD_ANOTHERS || file == LOCK_RECORD_MISSING)
        return LOCK_RECORD_LOST;
    return file == LOCK_RECORD_SEEN ? LOCK_RECORD_OURS : LOCK_RECORD_UNSURE;
}

/* The number in KIND-NNNNNN, whatever follows; 0 if there is none. */
static int64_t number_after(const char *name, const char *kind)
{
    size_t bytes = strlen(kind);

    if (strncmp(name, kind, bytes) != 0 || strspn(name + bytes, "0123456789") < 6)
        return 0;
    return strtoll(name + bytes, NULL, 10);
}

int64_t lock_record_number_of(const char *name)
{
    int64_t number = number_after(name, "owner-");

    return number > 0 && name[6 + strspn(name + 6, "0123456789")] == '\0' ? number : 0;
}

bool lock_record_is_litter(const char *name, int64_t number)
{
    int64_t owner = number_after(name, "owner-"), heartbeat = number_after(name, "beat-");

    if (strncmp(name, "claim-", 6) == 0)
        return number_after(name, "claim-") <= number;
    if (bp_is_temporary_name(name))
        return true;
    return (owner > 0 && owner < number - 1) || (heartbeat > 0 && heartbeat < number - 1);
}
