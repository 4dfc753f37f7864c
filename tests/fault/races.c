/* races clean|loop|thread: with ThreadSanitizer, what is right must pass, and a race must be found
 * (.ci/long threads). Where libarcher is missing, `clean` fails; where options hide too much,
 * the others pass. */
#include "base/process/thread.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#define FLOATS 100000

static float x[FLOATS];
static int64_t sum, counted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *count(void *locks)
{
    if (locks)
        (void)pthread_mutex_lock(&lock);
    counted++;
    if (locks)
        (void)pthread_mutex_unlock(&lock);
    return NULL;
}

/* One loop reads what another thread of the one before has written; a sum of all threads. */
static void share_loops(bool races)
{
    int64_t total = 0;

#pragma omp parallel for schedule(static) num_threads(2)
    for (int k = 0; k < FLOATS; k++)
        x[k] = 1;
#pragma omp parallel for schedule(static) num_threads(2) reduction(+ : total)
    for (int k = 0; k < FLOATS; k++)
        total += (int64_t)x[FLOATS - 1 - k];
#pragma omp parallel num_threads(2) if (races)
    sum += omp_get_num_threads();
    (void)printf("%lld\n", (long long)total);
}

int main(int count_of, char **words)
{
    const char *kind = count_of == 2 ? words[1] : "";
    bool races = strcmp(kind, "thread") == 0;
    pthread_t helper;

    if (!races && strcmp(kind, "clean") != 0 && strcmp(kind, "loop") != 0)
        return (int)BP_ERR_USAGE;
    if (bp_thread_start(&helper, "helper", count, races ? NULL : &lock) != BP_OK)
        return (int)BP_ERR_SYSTEM;
    (void)count(races ? NULL : &lock);
    BP_CHECK(pthread_join(helper, NULL) == 0);
    share_loops(strcmp(kind, "loop") == 0);
    return 0;
}
