/* Training takes the memory that was planned, on random shapes, meshes, schedules and batches: not
 * more (a plan of the arenas that is too small ends the program as well: bp_arena_take), and not
 * much less. */
#include "bp_test_memory.h"
#include "bp_test_mpi.h"

#include "base/rng.h"
#include "math/math.h"
#include "models/list.h"
#include "train/engine/engine.h"

#include <math.h>

#define WORLD MPI_COMM_WORLD

enum { CASES = 26, MIXTURES = 6, CONTEXT_MAX = 64, STEPS = 2, EVALUATIONS = 6 };

static uint64_t drawn; /* how often */

/* A number from least to most, the same on all ranks. */
static int64_t draw(int64_t least, int64_t most)
{
    bp_rng_key key = bp_rng_key_of(20261124, BP_RNG_TEST, 0, 0, 0);

    return least + bp_rng_below(&key, drawn++, most - least + 1);
}

typedef struct training {
    bp_mesh_shape on;
    bp_model_shape shape;
    bp_engine_spec spec;
} training;

static int random_divisor(int n)
{
    int divisor;

    do
        divisor = (int)draw(1, n);
    while (n % divisor != 0);
    return divisor;
}

/* Enough layers for all chunks, and micro-batches for all stages. */
static training random_training(int size, bp_precision precision)
{
    static const int64_t vocabularies[] = {23, 257, 100000, 100000};
    int stages = random_divisor(size), tensors = random_divisor(size / stages);
    int data_ranks = size / stages / tensors, chunks = (int)draw(2, 3);
    int64_t heads = tensors * draw(1, 2), micro_batch = draw(1, 6);
    training t = {.on = {1, stages, data_ranks, tensors, BP_COORDINATOR_SHARED}};

    t.shape = (bp_model_shape){.family = &bp_gpt_family,
                               .layers = chunks * stages + draw(0, 2),
                               .width = heads * 8,
                               .heads = heads,
                               .context = draw(0, 1) ? draw(40, CONTEXT_MAX) : draw(2, 40),
                               .vocab_size = vocabularies[draw(0, 3)] + draw(0, 9)};
    t.spec = (bp_engine_spec){.seed = 7,
                              .dropout = draw(0, 1) ? 0.1F : 0,
                              .micro_batch = micro_batch,
                              .batch = micro_batch * data_ranks * stages * draw(1, 3),
                              .schedule = (bp_schedule)draw(BP_GPIPE, BP_INTERLEAVED),
                              .chunks = chunks,
                              .tree = draw(0, 1),
                              .recompute = draw(0, 1),
                              .overlap = draw(0, 1),
                              .optimizer = {.kind = (bp_optimizer_kind)draw(0, BP_OPTIMIZERS - 1),
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .epsilon = 1e-8,
                                            .clip = 1,
                                            .momentum = draw(0, 1) ? 0.9 : 0,
                                            .rho = 0.9,
                                            .alpha = 0.99,
                                            .temperature = 1,
                                            .data = 1000},
                              .rate = {.peak = 1e-3, .steps = STEPS},
                              .precision = precision,
                              .digest_every = draw(0, 1)};
    if (t.spec.optimizer.kind == BP_VOGN) { /* a tied embedding's squares are of one stage */
        t.spec.optimizer.kind = stages > 1 ? BP_ADAMW : BP_VOGN;
        t.spec.optimizer.weight_decay = 0.01;
        t.spec.tree = true;
    }
    t.spec.sequence_parallel = draw(0, 1) ? BP_SEQUENCE_PARALLEL_AUTO : BP_SEQUENCE_PARALLEL_NO;
    return t;
}

/* The same of a mixture, with experts on as many data ranks as there are. */
static void mix(training *t)
{
    t->shape.family = &bp_mixtral_family;
    t->shape.vocab_size = 257;
    t->shape.stack.inner = 2 * t->shape.width;
    t->shape.stack.experts = t->on.data * draw(1, 3);
    t->shape.stack.chosen = draw(1, t->shape.stack.experts < 3 ? t->shape.stack.experts : 3);
    t->shape.stack.balance = 0.1 * (double)draw(0, 1);
    t->shape.family->fill_defaults(&t->shape);
    t->on.expert = t->on.data;
    t->spec.optimizer.kind = BP_ADAMW;
}

/* Steps, and evaluations of fewer and shorter windows. */
static void train(bp_engine *engine, const training *t)
{
    int64_t T = t->shape.context, first, slots, count[BP_TERMS];
    double sum[BP_TERMS];

    bp_engine_slots(engine, &first, &slots);
    int64_t tokens = slots * T;
    int32_t *inputs = bp_alloc("test", 2 * tokens, sizeof *inputs), *targets = inputs + tokens;
    bp_batch batch = bp_batch_of_positions(slots, T, inputs, targets);
    for (int64_t i = 0; i < 2 * tokens; i++)
        inputs[i] = (int32_t)((first * T + i) * 7919 % t->shape.vocab_size);
    for (int64_t step = 1; step <= STEPS; step++) {
        bp_step_result result;

        bp_engine_step(engine, step, step, &batch, &result);
        bp_test_check(WORLD, isfinite(result.loss) && !result.skipped);
        for (int k = 0; k < EVALUATIONS; k++) {
            int64_t length = draw(1, T), some = draw(1, t->spec.micro_batch);

            bp_batch part = bp_batch_of_positions(some, length, inputs, targets);

            bp_engine_evaluate(engine, &(bp_evaluation){.batch = &part}, sum, count);
            bp_test_check(WORLD, isfinite(sum[0]));
        }
    }
    bp_free(inputs);
}

/* What the program itself and writing take is not of bp_alloc, or not of the engine. */
static size_t planned_bytes(const training *t, int stage)
{
    bp_plan plan;

    bp_test_expect(bp_engine_plan(&plan, &t->on, &t->spec, &t->shape, stage), BP_OK);
    plan.program = plan.snapshot = 0;
    return bp_plan_total(&plan);
}

static void say(const training *t, size_t planned, size_t needed)
{
    const bp_engine_spec *spec = &t->spec;

    print_error("%zu bytes are planned, %zu taken: stages %d, data %d, tensor %d, layers %lld, "
                "width %lld, heads %lld, context %lld, vocabulary %lld, batch %lld, micro-batch "
                "%lld, schedule %d, chunks %d, tree %d, recompute %d, sharing %d, precision %d, "
                "optimizer %d, experts %lld over %d\n",
                planned, needed, t->on.pipeline, t->on.data, t->on.tensor,
                (long long)t->shape.layers, (long long)t->shape.width, (long long)t->shape.heads,
                (long long)t->shape.context, (long long)t->shape.vocab_size, (long long)spec->batch,
                (long long)spec->micro_batch, (int)spec->schedule, spec->chunks, spec->tree,
                spec->recompute, (int)spec->sequence_parallel, (int)spec->precision,
                (int)spec->optimizer.kind, (long long)t->shape.stack.experts, t->on.expert);
}

/* Tables of blocks, parameters and messages, which the plan counts with the program's libraries. */
static size_t tables_bytes(const training *t)
{
    return ((size_t)64 << 10) +
           ((size_t)120 << 10) * (size_t)bp_model_blocks(&t->shape) / (size_t)t->on.pipeline;
}

static void training_takes_what_is_planned(void **state)
{
    int size = bp_comm_size(WORLD);

    (void)state;
    for (int k = 0; k < CASES; k++) {
        training t = random_training(size, k % 2 && bp_math_has_bf16() ? BP_BF16 : BP_F32);
        bp_engine *engine;
        bp_mesh *mesh;

        if (k >= CASES - MIXTURES)
            mix(&t);

        bp_test_expect(bp_mesh_new(&mesh, WORLD, &t.on), BP_OK);
        size_t planned = planned_bytes(&t, mesh->pipeline_rank);
        bp_test_peak peak = bp_test_peak_begin();
        bp_test_check_err(WORLD, bp_engine_new(&engine, mesh, &t.spec, &t.shape), BP_OK);
        bp_engine_initialise(engine);
        train(engine, &t);
        bp_engine_free(&engine);
        size_t needed = bp_test_peak_end(&peak);
        /* AMX pads narrow operands to whole tiles: twice as much may be planned as is taken */
        bool holds = needed <= planned + tables_bytes(&t) && planned <= 2 * needed;

        if (!holds)
            say(&t, planned, needed);
        bp_test_check(WORLD, holds);
        bp_mesh_free(&mesh);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(training_takes_what_is_planned)};
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
