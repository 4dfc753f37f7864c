/* What a checkpoint written asynchronously costs: seconds of the clock in which the ranks that
 * train stand still, and processor seconds of the threads that write, by phase. Random values, a
 * matrix of WIDTH columns for each million of them. Arguments: FOLDER millions rounds. */
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/snapshot.h"
#include "mesh/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { WIDTH = 1000 };

static void check(bp_err err)
{
    if (err == BP_OK)
        return;
    bp_err_set_program("bench_checkpoint");
    bp_err_print(err);
    MPI_Abort(MPI_COMM_WORLD, err);
}

/* By the clock, and of all threads of this process together. */
typedef struct moment {
    double wall, user, kernel;
} moment;

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + 1e-6 * (double)time->tv_usec;
}

static moment now(void)
{
    struct rusage usage = {0};

    (void)getrusage(RUSAGE_SELF, &usage); /* it can't fail */
    return (moment){bp_clock_now(), seconds_of(&usage.ru_utime), seconds_of(&usage.ru_stime)};
}

static moment say(const char *what, moment from)
{
    moment to = now();

    if (bp_comm_is_root(MPI_COMM_WORLD))
        printf("  %-10s %8.3f s, processors %7.3f user %7.3f kernel\n", what, to.wall - from.wall,
               to.user - from.user, to.kernel - from.kernel);
    return now();
}

static void make_slices(bp_slice *slices, int64_t millions)
{
    for (int64_t k = 0; k < millions; k++) {
        bp_slice *slice = &slices[k];

        *slice =
            (bp_slice){.dims = 2, .shape = {WIDTH, WIDTH}, .extent = {WIDTH, WIDTH}, .data = NULL};
        (void)snprintf(slice->name, sizeof slice->name, "r%d.m%d", bp_comm_rank(MPI_COMM_WORLD),
                       (int)k);
        slice->data = bp_alloc("bench", (int64_t)WIDTH * WIDTH, sizeof *slice->data);
        if (!slice->data)
            check(BP_FAIL(BP_ERR_SYSTEM, "memory.short", "memory is short"));
        for (int64_t i = 0; i < (int64_t)WIDTH * WIDTH; i++)
            slice->data[i] = (float)((i * 2654435761 + k) % 1000003) * 1e-6f;
    }
}

static void save(bp_snapshot *snapshot, const char *folder, const bp_slice *slices, int64_t count)
{
    bp_slice *copies = bp_alloc("bench", count, sizeof *copies);
    bp_digest *digests = bp_alloc("bench", count, sizeof *digests);
    bp_checkpoint_commit commit = {
        .parent = folder, .name = "bench", .snapshot = snapshot, .digests = digests};
    char *final = bp_path_join(folder, "bench");
    json_t *state = json_object();
    bp_async_checkpoint *saving = NULL;
    moment at = now();

    if (!copies || !digests || !final)
        check(BP_FAIL(BP_ERR_SYSTEM, "memory.short", "memory is short"));
    memcpy(copies, slices, (size_t)count * sizeof *copies);
    (void)bp_snapshot_take(snapshot, copies, count, digests);
    at = say("copy", at);
    check(bp_checkpoint_begin(&saving, MPI_COMM_WORLD, &commit, copies, count, state));
    at = say("begin", at);
    check(bp_checkpoint_finish(&saving)); /* helpers keep no pace: they are waited for */
    at = say("write", at);
    if (bp_comm_is_root(MPI_COMM_WORLD))
        check(bp_dir_remove(final));
    (void)say("remove", at);
    BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
    json_decref(state);
    bp_free(final);
    bp_free(digests);
    bp_free(copies);
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    int64_t millions = argc > 2 ? atoll(argv[2]) : 100;
    int rounds = argc > 3 ? atoi(argv[3]) : 3;
    bp_snapshot *snapshot;

    BP_MPI(MPI_Init(&argc, &argv));
    bp_slice *slices = bp_alloc("bench", millions, sizeof *slices);
    if (!slices)
        check(BP_FAIL(BP_ERR_SYSTEM, "memory.short", "memory is short"));
    make_slices(slices, millions);
    moment at = now();
    check(bp_snapshot_new(&snapshot, MPI_COMM_WORLD, bp_slices_floats(slices, millions)));
    (void)say("space", at);
    for (int round = 0; round < rounds; round++) {
        if (bp_comm_is_root(MPI_COMM_WORLD))
            printf("checkpoint %d: %.3f GB a rank\n", round + 1, 4e-3 * (double)millions);
        save(snapshot, folder, slices, millions);
    }
    bp_snapshot_free(&snapshot);
    for (int64_t k = 0; k < millions; k++)
        bp_free(slices[k].data);
    bp_free(slices);
    BP_MPI(MPI_Finalize());
    return EXIT_SUCCESS;
}
