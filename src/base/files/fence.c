/* Called by fs.c and by all other code that renames a result into its place. */
#include "base/files/fence.h"

#include "base/fault.h"

#include <pthread.h>

#define MOST 8 /* a run inside a run inside a run is the deepest nesting */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bp_err (*check)(void *context);
    void *context;
} fences[MOST];
static int count;

void bp_fence_add(bp_err (*check)(void *context), void *context)
{
    (void)pthread_mutex_lock(&mutex);
    BP_ASSERT(count < MOST);
    fences[count].check = check;
    fences[count++].context = context;
    (void)pthread_mutex_unlock(&mutex);
}

void bp_fence_remove(const void *context)
{
    (void)pthread_mutex_lock(&mutex);
    for (int k = 0; k < count; k++)
        if (fences[k].context == context)
            fences[k--] = fences[--count];
    (void)pthread_mutex_unlock(&mutex);
}

bp_err bp_fence_check(void)
{
    bp_err err = BP_OK;

    if (bp_fault("base.commit"))
        return BP_FAIL(BP_ERR_IO, "fault.injected", "can't look at the lock (fault injected)");
    (void)pthread_mutex_lock(&mutex);
    for (int k = 0; k < count && err == BP_OK; k++)
        err = fences[k].check(fences[k].context);
    (void)pthread_mutex_unlock(&mutex);
    return err;
}
