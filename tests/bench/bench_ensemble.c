/* Scoring with an ensemble against scoring its members one by one, with random weights: seconds a
 * batch of 4096 tokens, and their ratio. On one rank, or with the members side by side on all ranks
 * (each rank then scores every second batch, and so on, when members are scored one by one).
 * Arguments: layers width heads context vocabulary members threads rounds. */
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "infer/ensemble/ensemble.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/list.h"
#include "models/open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 4096, MOST = 64 };

static void check(bp_err err)
{
    if (err == BP_OK)
        return;
    bp_err_set_program("bench_ensemble");
    bp_err_print(err);
    MPI_Abort(MPI_COMM_WORLD, err);
}

static void *zeroed(int64_t n, size_t size)
{
    void *p = bp_alloc("bench", n, size);

    if (!p)
        check(BP_FAIL(BP_ERR_SYSTEM, "memory.short", "memory is short"));
    return p;
}

/* folder/model and folder/ensemble.json, which lists it M times. */
static void save(const char *folder, const bp_model_shape *shape, int64_t M)
{
    bp_checkpoint_commit commit = {.parent = folder, .name = "model", .writers = 1};
    bp_nn nn = {.tensor = MPI_COMM_SELF, .tensor_ranks = 1};
    bp_ensemble_member members[MOST];
    char names[MOST][32], path[] = "model";
    bp_network *network;
    int64_t used = 0;

    check(bp_gemm_new(&nn.gemm, BP_F32));
    check(bp_model_network_new(&network, &nn, shape, 0, 1));
    bp_network_lay_out(network, 1);
    float *values = zeroed(network->floats, sizeof *values);
    check(bp_network_bind_values(network, values));
    bp_network_initialise(network, 1);
    int64_t capacity = bp_network_slice_capacity(network);
    bp_slice *slices = zeroed(capacity, sizeof *slices);
    for (int g = 0; g < network->group_count; g++)
        bp_network_slices(network, g, "", values + network->groups[g].place, 0,
                          network->groups[g].floats, slices, &used, capacity);
    json_t *state = json_pack("{s:o, s:i, s:i, s:s}", "model", bp_model_shape_json(shape), "step",
                              1, "eod_id", -1, "tokenizer_hash", "");
    check(bp_checkpoint_save(MPI_COMM_SELF, &commit, slices, used, state));
    json_decref(state);
    for (int64_t m = 0; m < M; m++) {
        snprintf(names[m], sizeof names[m], "m%02d", (int)m);
        members[m] = (bp_ensemble_member){names[m], path, 1};
    }
    check(bp_ensemble_list_save(&(bp_ensemble_list){members, M}, folder));
    bp_free(slices);
    bp_free(values);
    bp_network_free(&network);
    bp_gemm_free(&nn.gemm);
}

/* Seconds by the clock, and those that this process has computed: on a busy machine they tell more.
 */
typedef struct moment {
    double wall, cpu;
} moment;

static moment now(void)
{
    struct timespec cpu;

    BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) != 0)
        check(bp_fail_errno(BP_ERR_SYSTEM, "the clock", "bench"));
    return (moment){bp_clock_now(), (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec};
}

/* The least of what was seen. */
static void take(moment *least, moment from, moment to)
{
    least->wall = to.wall - from.wall < least->wall ? to.wall - from.wall : least->wall;
    least->cpu = to.cpu - from.cpu < least->cpu ? to.cpu - from.cpu : least->cpu;
}

int main(int count, char **arguments)
{
    char folder[] = "/tmp/bench_ensemble_XXXXXX", model[64];
    static const bp_option *const tables[] = {bp_math_options, NULL};
    int64_t n[8] = {4, 256, 4, 256, 8192, 8, 0, 5};
    int32_t inputs[TOKENS], targets[TOKENS];
    bp_mesh *whole, *self;
    bp_model *plain[MOST], *ensemble;
    bp_config *config;

    check(bp_mpi_start(&count, &arguments));
    for (int k = 1; k < count && k <= 8; k++)
        n[k - 1] = atoll(arguments[k]);
    int ranks = bp_comm_size(MPI_COMM_WORLD), M = (int)n[5];
    bp_model_shape shape = {n[0], n[1], n[2], n[3], n[4], .family = &bp_gpt_family};
    if (bp_comm_is_root(MPI_COMM_WORLD)) {
        if (!mkdtemp(folder))
            check(BP_FAIL(BP_ERR_CREATE, "file.no_folder", "no folder: at %s", folder));
        save(folder, &shape, M);
    }
    bp_bcast_bytes(folder, sizeof folder, 0, MPI_COMM_WORLD);
    snprintf(model, sizeof model, "%s/model", folder);
    bp_math_set_threads(bp_math_threads_for(MPI_COMM_WORLD, (int)n[6]));
    check(bp_config_new(&config, tables, tables));
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED},
                  side = {ranks, 1, 1, 1, BP_COORDINATOR_SHARED};
    check(bp_mesh_new(&whole, MPI_COMM_WORLD, &side));
    check(bp_mesh_new(&self, MPI_COMM_SELF, &alone));
    for (int m = 0; m < M; m++)
        check(bp_model_open(&plain[m], self, config, model));
    bp_ensemble_spec spec = {.path = folder, .memory_bytes = (size_t)1 << 30};
    check(bp_ensemble_open(&ensemble, whole, config, &spec));
    float *values = zeroed(ensemble->info.statistics * TOKENS, sizeof *values);
    for (int i = 0; i < TOKENS; i++) {
        inputs[i] = (int32_t)(i * 977LL % n[4]);
        targets[i] = (int32_t)((i * 977LL + 977) % n[4]);
    }
    bp_model_batch batch = {TOKENS / n[3], n[3], inputs, targets, 0};
    moment apart = {1e30, 1e30}, together = {1e30, 1e30};
    for (int64_t round = 0; round <= n[7]; round++) { /* the first one warms up */
        moment start = now();
        for (int m = 0; m < M; m++)
            check(bp_model_score(plain[m], &batch, values));
        moment middle = now();
        check(bp_model_score(ensemble, &batch, values));
        moment end = now();
        if (round > 0) {
            take(&apart, start, middle);
            take(&together, middle, end);
        }
    }
    if (bp_comm_is_root(MPI_COMM_WORLD)) {
        printf("%s, %s, %d ranks, %d threads\n", bp_math_cpu(), bp_math_library(), ranks,
               bp_math_threads());
        printf("%d members of %.1fM parameters, V %lld: one by one %.3f s, together %.3f s, ratio "
               "%.3f; of computing %.3f s, %.3f s, ratio %.3f\n",
               M, (double)bp_model_parameters(&shape) * 1e-6, (long long)n[4], apart.wall / ranks,
               together.wall, together.wall * ranks / apart.wall, apart.cpu / ranks, together.cpu,
               together.cpu * ranks / apart.cpu);
        check(bp_dir_remove(folder));
    }
    for (int m = 0; m < M; m++)
        bp_model_free(&plain[m]);
    bp_model_free(&ensemble);
    bp_mesh_free(&self);
    bp_mesh_free(&whole);
    bp_config_free(&config);
    bp_free(values);
    bp_mpi_finish();
    return 0;
}
