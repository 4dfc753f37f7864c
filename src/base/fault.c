#include "base/fault.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FAULTS 16

typedef struct fault {
    const char *name;
    size_t name_bytes;
    long nth;     /* fails at this call, counted from 1 */
    bool onwards; /* and at all after it */
    long rank;    /* -1: on every rank */
    atomic_long calls;
} fault;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static fault faults[MAX_FAULTS];
static atomic_int fault_count;
static atomic_int own_rank;

/* "name", "name:3", "name:3+", "name@1", "name:3@1" */
static void parse_one(fault *out, const char *text, size_t bytes)
{
    const char *end = text + bytes;

    *out = (fault){.name = text, .nth = 1, .rank = -1};
    out->name_bytes = strcspn(text, ":@,");
    const char *p = text + out->name_bytes;
    if (p < end && *p == ':') {
        char *after;
        out->nth = strtol(p + 1, &after, 10);
        p = after;
    }
    if (p < end && *p == '+') {
        out->onwards = true;
        p++;
    }
    if (p < end && *p == '@')
        out->rank = strtol(p + 1, NULL, 10);
}

void bp_fault_arm(const char *specification)
{
    int count = 0;

    atomic_store(&fault_count, 0);
    while (specification != NULL && *specification != 0 && count < MAX_FAULTS) {
        size_t bytes = strcspn(specification, ",");
        if (bytes > 0)
            parse_one(&faults[count++], specification, bytes);
        specification += bytes;
        specification += *specification == ',';
    }
    atomic_store(&fault_count, count);
}

static void arm_from_environment(void)
{
    const char *specification = getenv("BP_FAULT");

    if (specification != NULL)
        bp_fault_arm(specification);
}

void bp_fault_set_rank(int rank)
{
    atomic_store(&own_rank, rank);
}

bool bp_fault(const char *name)
{
    (void)pthread_once(&once, arm_from_environment); /* can't fail on a valid control */
    int count = atomic_load(&fault_count);
    size_t bytes = count > 0 ? strlen(name) : 0;
    bool fails = false;

    for (int i = 0; i < count; i++) {
        fault *at = &faults[i];
        if (at->name_bytes != bytes || memcmp(at->name, name, bytes) != 0)
            continue;
        if (at->rank >= 0 && at->rank != atomic_load(&own_rank))
            continue;
        long call = atomic_fetch_add(&at->calls, 1) + 1;
        fails = fails || call == at->nth || (at->onwards && call > at->nth);
    }
    return fails;
}
