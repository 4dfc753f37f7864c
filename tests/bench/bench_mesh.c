/* Tokens a second of a mesh: the engine alone, on random tokens, so that two ranks of one thread
 * can be held against one rank of two. Median and fastest step; the wait in collectives besides.
 * Arguments: NAME=NUMBER, of those in `names` below; enumerations by their numbers. */
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/list.h"
#include "train/adamw.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LAYERS,
    WIDTH,
    HEADS,
    CONTEXT,
    VOCABULARY,
    BATCH,
    MICRO,
    PIPELINE,
    TENSOR,
    SCHEDULE,
    CHUNKS,
    TREE,
    OVERLAP,
    SHARING,
    THREADS,
    STEPS,
    NAMES
};

static const char *const names[NAMES] = {
    "layers", "width",    "heads",  "context", "vocabulary", "batch",   "micro",   "pipeline",
    "tensor", "schedule", "chunks", "tree",    "overlap",    "sharing", "threads", "steps"};

static void check(bp_err err)
{
    if (err == BP_OK)
        return;
    bp_err_set_program("bench_mesh");
    bp_err_print(err);
    MPI_Abort(MPI_COMM_WORLD, err);
}

static void read_arguments(int64_t *n, int argc, char **argv)
{
    for (int k = 1; k < argc; k++) {
        int name = 0;
        const char *equals = strchr(argv[k], '=');

        while (name < NAMES &&
               (!equals || strncmp(argv[k], names[name], (size_t)(equals - argv[k])) != 0 ||
                names[name][equals - argv[k]] != '\0'))
            name++;
        if (name == NAMES) {
            fprintf(stderr, "bench_mesh: '%s' is not NAME=NUMBER\n", argv[k]);
            MPI_Abort(MPI_COMM_WORLD, BP_ERR_USAGE);
            return;
        }
        n[name] = strtoll(equals + 1, NULL, 10);
    }
}

/* Under chrt -r 1, which keeps others off these cores, the async has to get in between as it does
 * among ordinary threads. */
static void raise_async(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;

    if (!tasks || sched_getscheduler(0) != SCHED_RR)
        return;
    while ((task = readdir(tasks)) != NULL) {
        char path[64], name[16] = "";
        FILE *file;

        snprintf(path, sizeof path, "/proc/self/task/%.16s/comm", task->d_name);
        if ((file = fopen(path, "r")) == NULL)
            continue;
        if (fgets(name, sizeof name, file) && strcmp(name, "courier\n") == 0 &&
            sched_setscheduler(atoi(task->d_name), SCHED_RR, &(struct sched_param){2}) != 0)
            perror("sched_setscheduler");
        fclose(file);
    }
    closedir(tasks);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void run(bp_engine *engine, const bp_mesh *mesh, const int64_t *n)
{
    int64_t slots = n[BATCH] / mesh->data_ranks, positions = slots * n[CONTEXT];
    int32_t *tokens = bp_alloc("bench", positions + 1, sizeof *tokens);
    bp_batch batch = bp_batch_of_positions(slots, n[CONTEXT], tokens, tokens + 1);
    double *seconds = bp_alloc("bench", n[STEPS], sizeof *seconds);
    bp_heartbeat before, after;
    bp_step_result result;

    for (int64_t k = 0; k <= positions; k++)
        tokens[k] = (int32_t)((k + 17 * mesh->data_rank) * 7919 % n[VOCABULARY]);
    bp_engine_step(engine, 1, 1, &batch, &result);
    bp_heartbeat_read(&before);
    for (int64_t k = 0; k < n[STEPS]; k++) {
        double begin = bp_clock_now();
        bp_engine_step(engine, k + 2, k + 2, &batch, &result);
        seconds[k] = bp_clock_now() - begin;
    }
    bp_heartbeat_read(&after);
    qsort(seconds, (size_t)n[STEPS], sizeof *seconds, by_size);
    double median = seconds[n[STEPS] / 2], all = (double)(n[BATCH] * n[CONTEXT]);
    for (int rank = 0; rank < mesh->size; rank++) {
        if (rank == mesh->rank)
            printf("rank %d: %.1f tokens/s (median), %.1f (best), loss %.9f, waits %.1f %% of a "
                   "step\n",
                   rank, all / median, all / seconds[0], result.loss,
                   1e-7 * (double)(after.waited_ns - before.waited_ns) / (double)n[STEPS] / median);
        fflush(stdout);
        BP_MPI(MPI_Barrier(mesh->world));
    }
    bp_free(tokens);
    bp_free(seconds);
}

int main(int argc, char **argv)
{
    int64_t n[NAMES] = {
        6, 512, 8, 512, 8192, 8, 1, 1, 1, BP_1F1B, 2, 1, 1, BP_SEQUENCE_PARALLEL_AUTO, 1, 5};
    bp_mesh_shape mesh_shape = {.members = 1};
    bp_engine *engine;
    bp_mesh *mesh;

    check(bp_mpi_start(&argc, &argv));
    read_arguments(n, argc, argv);
    bp_math_set_threads((int)n[THREADS]);
    mesh_shape.pipeline = (int)n[PIPELINE];
    mesh_shape.tensor = (int)n[TENSOR];
    check(bp_mesh_shape_fit(&mesh_shape, bp_comm_size(MPI_COMM_WORLD)));
    check(bp_mesh_new(&mesh, MPI_COMM_WORLD, &mesh_shape));
    bp_model_shape shape = {.family = &bp_gpt_family,
                            .layers = n[LAYERS],
                            .width = n[WIDTH],
                            .heads = n[HEADS],
                            .context = n[CONTEXT],
                            .vocab_size = n[VOCABULARY]};
    bp_engine_spec spec = {.seed = 1,
                           .batch = n[BATCH],
                           .micro_batch = n[MICRO],
                           .schedule = (bp_schedule)n[SCHEDULE],
                           .chunks = (int)n[CHUNKS],
                           .tree = n[TREE] != 0,
                           .overlap = n[OVERLAP] != 0,
                           .sequence_parallel = (bp_sequence_parallel)n[SHARING],
                           .precision = bp_math_has_bf16() ? BP_BF16 : BP_F32};

    bp_test_adamw(&spec, 1e-4, 1000);
    check(bp_engine_new(&engine, mesh, &spec, &shape));
    bp_engine_initialise(engine);
    raise_async();
    run(engine, mesh, n);
    bp_engine_free(&engine);
    bp_mesh_free(&mesh);
    bp_mpi_finish();
    return 0;
}
