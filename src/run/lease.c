#include "run/lease_priv.h"

#include "base/err.h"
#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 100

/* ---- taking it ---- */

void lease_begin(lease *self, double watch_seconds)
{
    *self = (lease){.step = LEASE_LIST, .watch_seconds = watch_seconds};
}

bool lease_is_over(const lease *self)
{
    return self->step >= LEASE_WON;
}

static void start_over(lease *self)
{
    self->step = ++self->attempts < ATTEMPTS ? LEASE_LIST : LEASE_CROWDED;
}

static void go_for(lease *self, int64_t number)
{
    self->number = number;
    self->step = LEASE_LINK;
}

void lease_listed(lease *self, int64_t highest)
{
    if (self->step == LEASE_CONFIRM) {
        self->step = highest == self->number ? LEASE_WON : LEASE_YIELD;
        return;
    }
    BP_ASSERT(self->step == LEASE_LIST);
    self->holder = highest;
    if (highest == 0)
        go_for(self, 1);
    else
        self->step = LEASE_ASK;
}

void lease_judged(lease *self, lease_answer answer)
{
    BP_ASSERT(self->step == LEASE_ASK);
    self->watching = false;
    switch (answer) {
    case LEASE_ALIVE:
        self->step = LEASE_HELD;
        break;
    case LEASE_DEAD:
        go_for(self, self->holder + 1);
        break;
    case LEASE_UNKNOWN:
        self->step = LEASE_WATCH;
        break;
    case LEASE_GONE:
        start_over(self);
        break;
    }
}

void lease_watched(lease *self, double now, const char *beat, int64_t highest)
{
    BP_ASSERT(self->step == LEASE_WATCH);
    if (!self->watching) {
        self->watching = true;
        self->watch_end = now + self->watch_seconds;
        (void)snprintf(self->beat, sizeof self->beat, "%s", beat);
    } else if (strcmp(self->beat, beat) != 0) {
        self->step = LEASE_HELD;
    } else if (highest != 0 && highest != self->holder) {
        start_over(self); /* another took it meanwhile */
    } else if (now >= self->watch_end) {
        go_for(self, self->holder + 1);
    }
}

void lease_linked(lease *self, bool made)
{
    BP_ASSERT(self->step == LEASE_LINK);
    if (made)
        self->step = LEASE_CONFIRM;
    else
        start_over(self);
}

void lease_yielded(lease *self)
{
    BP_ASSERT(self->step == LEASE_YIELD);
    start_over(self);
}

/* ---- having it ---- */

lease_claim lease_still_ours(int64_t number, lease_sight listing, int64_t highest, lease_sight file)
{
    if (listing == LEASE_MISSING)
        return LEASE_LOST;
    if (listing != LEASE_SEEN)
        return LEASE_UNSURE;
    if (highest != number || file == LEASE_ANOTHERS || file == LEASE_MISSING)
        return LEASE_LOST;
    return file == LEASE_SEEN ? LEASE_OURS : LEASE_UNSURE;
}

/* The number in KIND-NNNNNN, whatever follows; 0: there is none. */
static int64_t number_after(const char *name, const char *kind)
{
    size_t bytes = strlen(kind);

    if (strncmp(name, kind, bytes) != 0 || strspn(name + bytes, "0123456789") < 6)
        return 0;
    return strtoll(name + bytes, NULL, 10);
}

int64_t lease_number_of(const char *name)
{
    int64_t number = number_after(name, "owner-");

    return number > 0 && name[6 + strspn(name + 6, "0123456789")] == '\0' ? number : 0;
}

bool lease_is_litter(const char *name, int64_t number)
{
    int64_t owner = number_after(name, "owner-"), beat = number_after(name, "beat-");

    if (strncmp(name, "claim-", 6) == 0)
        return number_after(name, "claim-") <= number;
    if (bp_is_temporary_name(name))
        return true;
    return (owner > 0 && owner < number - 1) || (beat > 0 && beat < number - 1);
}
