/* What checks of bits cost in a step: seconds of processor time of a step with and without them, in
 * turns, of an update's guard and of one comparison, on random tokens. Ranks hold copies (data
 * ranks). Arguments: layers width heads context vocabulary sequences threads rounds. */
#include "base/log.h"
#include "base/mem.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/list.h"
#include "train/adamw.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { EVERY = 100, STEPS = 2 };

static void check(bp_err err)
{
    if (err == BP_OK)
        return;
    bp_err_set_program("bench_digest");
    bp_err_print(err);
    MPI_Abort(MPI_COMM_WORLD, err);
}

/* Of all threads: other programs on the machine count little. */
static double cpu_now(void)
{
    struct timespec cpu;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return (double)cpu.tv_sec + 1e-9 * (double)cpu.tv_nsec;
}

static bp_engine *engine_of(const bp_mesh *mesh, const bp_model_shape *shape, int64_t sequences,
                            int64_t digest_every)
{
    bp_engine_spec spec = {.seed = 1,
                           .batch = sequences * mesh->data_ranks,
                           .micro_batch = 1,
                           .schedule = BP_1F1B,
                           .digest_every = digest_every};
    bp_engine *engine;

    bp_test_adamw(&spec, 1e-4, 1000);
    spec.precision = bp_math_has_bf16() ? BP_BF16 : BP_F32;
    check(bp_engine_new(&engine, mesh, &spec, shape));
    bp_engine_initialise(engine);
    return engine;
}

/* Least time of a step; steps are numbered so that none is one of a comparison. */
static void take(double *least, bp_engine *engine, const bp_batch *batch, int64_t *step)
{
    bp_step_result result;

    for (int k = 0; k < STEPS; k++) {
        *step += 1 + (*step % EVERY == EVERY - 1);
        double begin = cpu_now();
        bp_engine_step(engine, *step, *step, batch, &result);
        double took = cpu_now() - begin;
        *least = took < *least ? took : *least;
    }
}

int main(int argc, char **argv)
{
    int64_t n[8] = {4, 512, 8, 512, 8192, 8, 1, 5};
    bp_mesh_shape alike = {.members = 1, .pipeline = 1, .tensor = 1};
    double without = 1e30, with = 1e30, compared = 1e30;
    int64_t steps[2] = {0, 0};
    bp_mesh *mesh;

    check(bp_mpi_start(&argc, &argv));
    for (int k = 1; k < argc && k <= 8; k++)
        n[k - 1] = strtoll(argv[k], NULL, 10);
    bp_math_set_threads((int)n[6]);
    check(bp_mesh_shape_fit(&alike, bp_comm_size(MPI_COMM_WORLD)));
    check(bp_mesh_new(&mesh, MPI_COMM_WORLD, &alike));
    bp_model_shape shape = {.family = &bp_gpt_family,
                            .layers = n[0],
                            .width = n[1],
                            .heads = n[2],
                            .context = n[3],
                            .vocab_size = n[4]};
    bp_engine *engines[2] = {engine_of(mesh, &shape, n[5], 0),
                             engine_of(mesh, &shape, n[5], EVERY)};
    int64_t positions = n[5] * n[3];
    int32_t *tokens = bp_alloc("bench", positions + 1, sizeof *tokens);
    bp_batch batch = bp_batch_of_positions(n[5], n[3], tokens, tokens + 1);
    for (int64_t k = 0; k <= positions; k++)
        tokens[k] = (int32_t)(k * 7919 % n[4]);
    for (int64_t round = 0; round < n[7]; round++) {
        take(&without, engines[0], &batch, &steps[0]);
        take(&with, engines[1], &batch, &steps[1]);
        double begin = cpu_now();
        bp_engine_check(engines[1], steps[1]); /* the guard's check besides */
        double took = cpu_now() - begin;
        compared = took < compared ? took : compared;
    }
    if (bp_comm_is_root(MPI_COMM_WORLD))
        printf("%lld parameters: a step %.4f s without checks, %.4f with (%+.2f %%); a comparison "
               "%.4f, every %d steps %.3f %% of a step\n",
               (long long)bp_model_parameters(&shape), without, with, 100 * (with / without - 1),
               compared, EVERY, 100 * compared / EVERY / without);
    bp_free(tokens);
    bp_engine_free(&engines[0]);
    bp_engine_free(&engines[1]);
    bp_mesh_free(&mesh);
    bp_mpi_finish();
    return 0;
}
