/* The network's losses and gradients, on every split of 1, 2, 3 or 4 ranks, against a GPT in plain
 * loops and float64 and its finite differences: embedding, attention, MLP, norms, head, tied
 * embedding, pipeline, sequence parallelism, recompute, both sums. */
#include "bp_test_mpi.h"

#include "base/files/hash.h"
#include "math/kernels/kernels.h"
#include "math/math.h"
#include "models/list.h"
#include "nn/plain_gpt.h"
#include "train/engine/gradient.h"
#include "train/engine/stage.h"

#include <math.h>

#define SEQUENCES     2
#define LENGTH        6 /* 12 rows of a micro-batch: tensor ranks can share them out */
#define MICRO_BATCHES 3

static const bp_model_shape SHAPE = {.family = &bp_gpt_family,
                                     .layers = 2,
                                     .width = 24,
                                     .heads = 12,
                                     .context = 7,
                                     .vocab_size = 23};

typedef struct fixture {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    bp_async *async;
    bp_reduction reduction;
    float *values, *scratch;
    plain_gpt plain;
    int32_t inputs[MICRO_BATCHES * SEQUENCES * LENGTH], targets[MICRO_BATCHES * SEQUENCES * LENGTH];
} fixture;

static void copy_values(fixture *f)
{
    for (int g = 0; g < f->network->group_count; g++)
        for (int k = 0; k < f->network->groups[g].count; k++) {
            bp_param *p = &f->network->groups[g].params[k];
            const plain_tensor *t = plain_gpt_tensor(&f->plain, p->name);
            int64_t columns = p->dims == 2 ? p->extent[1] : p->extent[0],
                    rows = p->dims == 2 ? p->extent[0] : 1;
            int64_t row = p->dims == 2 ? p->offset[0] : 0,
                    column = p->dims == 2 ? p->offset[1] : p->offset[0];
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < columns; c++)
                    p->value[r * columns + c] =
                        (float)t->value[(row + r) * t->columns + column + c];
        }
    bp_network_refresh(f->network);
}

typedef struct variant {
    int pipelines, tensors, chunks;
    int64_t micro_batches;
    bp_schedule schedule;
    bool tree, recompute, sequence_parallel;
    float dropout;
    int64_t sequences; /* of a micro-batch; 0: SEQUENCES */
    bp_precision precision;
} variant;

static void open_fixture(fixture *f, const variant *v)
{
    bp_mesh_shape shape = {1, v->pipelines, 1, v->tensors, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {.most = {v->sequences > 0 ? v->sequences : SEQUENCES, {LENGTH}},
                          .micro_batches = v->micro_batches,
                          .schedule = v->schedule,
                          .recompute = v->recompute,
                          .tree = v->tree};
    bp_nn nn = {0};

    memset(f, 0, sizeof *f);
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &shape), BP_OK);
    nn = (bp_nn){.tensor = f->mesh->tensor,
                 .tensor_rank = f->mesh->tensor_rank,
                 .tensor_ranks = v->tensors,
                 .sequence_parallel = v->sequence_parallel,
                 .dropout = v->dropout};
    bp_test_expect(bp_gemm_new(&f->gemm, v->precision), BP_OK);
    nn.gemm = f->gemm;
    bp_test_expect(bp_model_network_new_chunks(&f->network, &nn, &SHAPE, f->mesh->pipeline_rank,
                                               v->pipelines, v->chunks),
                   BP_OK);
    bp_network_lay_out(f->network, BP_NORM_BLOCK);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    f->scratch = bp_alloc("test", bp_gradient_scratch(f->mesh, f->network), sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    spec.stage = f->mesh->pipeline_rank;
    spec.stages = v->pipelines;
    bp_test_expect(bp_stage_new(&f->stage, f->mesh, f->network, &spec), BP_OK);
    bp_test_expect(bp_async_new(&f->async, f->mesh->data, f->network->group_count, true), BP_OK);
    f->reduction = (bp_reduction){.mesh = f->mesh,
                                  .network = f->network,
                                  .async = f->async,
                                  .gradients = f->stage->gradient,
                                  .scratch = f->scratch};
    plain_gpt_init(&f->plain, &SHAPE);
    copy_values(f);
    for (int i = 0; i < MICRO_BATCHES * SEQUENCES * LENGTH; i++) {
        f->inputs[i] = (i * 7 + 3) % 23;
        f->targets[i] = i % 9 == 4 ? -1 : (i * 5 + 11) % 23;
    }
}

static void close_fixture(fixture *f)
{
    bp_async_free(&f->async);
    bp_stage_free(&f->stage);
    bp_network_free(&f->network);
    bp_gemm_free(&f->gemm);
    bp_mesh_free(&f->mesh);
    bp_free(f->values);
    bp_free(f->scratch);
    plain_gpt_clear(&f->plain);
}

/* What the gradients' memory holds before a step must not show. */
static void fill_gradients(const fixture *f, float value)
{
    for (int k = 0; k < f->stage->depth; k++)
        for (int64_t i = 0; i < f->network->floats; i++)
            f->stage->stack[k][i] = value;
}

static void start_sum(void *context, int g)
{
    bp_gradient_start(context, g);
}

/* All micro-batches; the params point to their sums. */
static void run_step(fixture *f, double *sums)
{
    bp_batch batch = bp_batch_of_positions(SEQUENCES, LENGTH, f->inputs, f->targets);
    bp_stage_step step = {.batch = &batch,
                          .step = 1,
                          .loss_weight = {1},
                          .is_whole = start_sum,
                          .context = &f->reduction};

    bp_stage_accumulate(f->stage, &step, sums, 0);
    bp_gradient_finish(&f->reduction);
    bp_network_bind_gradients(f->network, f->stage->gradient);
}

static double plain_loss(const fixture *f)
{
    return plain_gpt_loss(&f->plain, f->inputs, f->targets, MICRO_BATCHES * SEQUENCES, LENGTH,
                          NULL);
}

/* d loss / d entry of the plain twin, by a central difference. */
static double finite_difference(const fixture *f, double *entry)
{
    double before = *entry, up, down, step = 1e-5;

    *entry = before + step;
    up = plain_loss(f);
    *entry = before - step;
    down = plain_loss(f);
    *entry = before;
    return (up - down) / (2 * step);
}

/* Some entries of one param, those on this rank's slab's edges among them. Tolerance: float32 sums
 * of about 1e3 terms. */
static bool param_agrees(const fixture *f, const bp_param *p)
{
    const plain_tensor *t = plain_gpt_tensor(&f->plain, p->name);
    int64_t n = bp_param_floats(p), columns = p->dims == 2 ? p->extent[1] : p->extent[0];
    int64_t row = p->dims == 2 ? p->offset[0] : 0,
            column = p->dims == 2 ? p->offset[1] : p->offset[0];
    double largest = 1e-2; /* a key bias has no gradient but rounding */

    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)p->gradient[i]));
    for (int64_t k = 0; k < 6 && n > 0; k++) {
        int64_t i = k == 0 ? 0 : k == 1 ? n - 1 : (k * 7919) % n;
        double expected = finite_difference(
            f, &t->value[(row + i / columns) * t->columns + column + i % columns]);
        if (!(fabs((double)p->gradient[i] - expected) <= 1e-4 * largest)) {
            print_error("%s[%lld]: %g, not %g (largest %g)\n", p->name, (long long)i,
                        (double)p->gradient[i], expected, largest);
            return false;
        }
    }
    return true;
}

static void check_split(const variant *v)
{
    fixture f;
    double sums[MICRO_BATCHES] = {0}, loss = 0;
    bool agrees = true;

    open_fixture(&f, v);
    fill_gradients(&f, NAN);
    run_step(&f, sums);
    for (int k = 0; k < MICRO_BATCHES; k++)
        loss += sums[k];
    if (f.mesh->pipeline_rank == v->pipelines - 1)
        agrees = fabs(loss - plain_loss(&f)) < 1e-5 * fabs(loss);
    for (int g = 0; g < f.network->group_count; g++)
        for (int k = 0; k < f.network->groups[g].count; k++)
            agrees = param_agrees(&f, &f.network->groups[g].params[k]) && agrees;
    bp_test_check(MPI_COMM_WORLD, agrees);
    close_fixture(&f);
}

static void check_all(bool recompute, bool tree, bp_schedule schedule)
{
    int size = bp_comm_size(MPI_COMM_WORLD);

    for (int pipelines = 1; pipelines <= size; pipelines++)
        for (int shared = 0; shared <= (size > pipelines) && size % pipelines == 0; shared++)
            check_split(&(variant){.pipelines = pipelines,
                                   .tensors = size / pipelines,
                                   .chunks = 1,
                                   .micro_batches = MICRO_BATCHES,
                                   .schedule = schedule,
                                   .tree = tree,
                                   .recompute = recompute,
                                   .sequence_parallel = shared == 1});
}

static void gradients_are_finite_differences(void **state)
{
    (void)state;
    check_all(false, true, BP_1F1B);
}

static void recompute_and_running_sum_change_nothing(void **state)
{
    (void)state;
    check_all(true, false, BP_1F1B);
}

static void gpipe_gives_the_same(void **state)
{
    (void)state;
    check_all(false, true, BP_GPIPE);
}

/* The norm from shards is the norm of the whole gradient. */
static void norm_counts_every_parameter_once(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD);
    double expected = 0, norm = 0;

    (void)state;
    for (int tensors = 1; tensors <= size; tensors++) {
        fixture f;
        double sums[MICRO_BATCHES] = {0}, total = 0;

        if (size % tensors != 0)
            continue;
        open_fixture(&f, &(variant){.pipelines = size / tensors,
                                    .tensors = tensors,
                                    .chunks = 1,
                                    .micro_batches = MICRO_BATCHES,
                                    .schedule = BP_1F1B,
                                    .tree = true,
                                    .sequence_parallel = true});
        run_step(&f, sums);
        norm = bp_gradient_norm(f.mesh, f.network, f.stage->gradient, f.scratch);
        for (int g = 0; g < f.network->group_count; g++)
            for (int64_t i = 0; f.network->groups[g].published && i < f.network->groups[g].floats;
                 i++)
                total += pow((double)f.stage->gradient[f.network->groups[g].place + i], 2);
        BP_MPI(MPI_Allreduce(&total, &expected, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
        close_fixture(&f);
        bp_test_check(MPI_COMM_WORLD, fabs(norm - sqrt(expected)) < 1e-6 * norm);
    }
}

static bool value_agrees(double got, double expected)
{
    return fabs(got - expected) < 1e-5 * fmax(1, fabs(expected));
}

static void check_evaluation(const variant *v)
{
    fixture f;

    open_fixture(&f, v);
    for (int64_t length = 1; length <= LENGTH; length += 2) {
        double sum[BP_TERMS],
            expected = plain_gpt_loss(&f.plain, f.inputs, f.targets, SEQUENCES, length, NULL);
        int64_t count[BP_TERMS];
        bp_batch batch = bp_batch_of_positions(SEQUENCES, length, f.inputs, f.targets);

        bp_stage_evaluate(f.stage, &(bp_evaluation){.batch = &batch}, sum, count);
        bool last = f.mesh->pipeline_rank == v->pipelines - 1;
        bp_test_check(MPI_COMM_WORLD, !last || value_agrees(sum[0], expected));
    }
    close_fixture(&f);
}

static void evaluation_is_the_plain_loss_of_shorter_windows_too(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD);

    (void)state;
    check_evaluation(&(variant){.pipelines = size, .tensors = 1, .chunks = 1, .micro_batches = 1});
    check_evaluation(&(variant){.pipelines = 1,
                                .tensors = size,
                                .chunks = 1,
                                .micro_batches = 1,
                                .sequence_parallel = true});
    if (size % 2 == 0)
        check_evaluation(&(variant){.pipelines = 2,
                                    .tensors = size / 2,
                                    .chunks = 2,
                                    .micro_batches = 2,
                                    .schedule = BP_INTERLEAVED,
                                    .sequence_parallel = true});
}

/* Names and bits of all gradients, or of those that are split over tensor ranks, over all ranks. */
static int64_t digest_of(const variant *v, float held_before, bool split_only)
{
    fixture f;
    double sums[MICRO_BATCHES] = {0};
    uint64_t digest = 0;

    open_fixture(&f, v);
    fill_gradients(&f, held_before);
    run_step(&f, sums);
    if (f.mesh->pipeline_rank == v->pipelines - 1 && f.mesh->tensor_rank == 0)
        digest += bp_xxh3(sums, sizeof sums);
    for (int g = 0; g < f.network->group_count; g++)
        for (int k = 0; k < f.network->groups[g].count && f.network->groups[g].published; k++) {
            const bp_param *p = &f.network->groups[g].params[k];

            if (split_only && f.network->groups[g].replicated)
                continue;
            uint64_t both[2] = {bp_xxh3(p->name, strlen(p->name)),
                                bp_xxh3(p->gradient, (size_t)bp_param_floats(p) * sizeof(float))};
            digest += bp_xxh3(both, sizeof both);
        }
    close_fixture(&f);
    return bp_all_sum_int((int64_t)digest, MPI_COMM_WORLD);
}

static void interleaved_has_the_bits_of_1f1b(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD);

    (void)state;
    for (int recompute = 0; recompute < 2 && size % 2 == 0; recompute++) {
        variant v = {.pipelines = 2,
                     .tensors = size / 2,
                     .chunks = 1,
                     .micro_batches = 2,
                     .schedule = BP_1F1B,
                     .tree = recompute == 0,
                     .recompute = recompute == 1,
                     .sequence_parallel = true};
        int64_t expected = digest_of(&v, NAN, false);

        v.schedule = BP_INTERLEAVED;
        v.chunks = 2;
        bp_test_check(MPI_COMM_WORLD, digest_of(&v, NAN, false) == expected);
    }
}

static void check_held_before(const variant *v)
{
    bp_test_check(MPI_COMM_WORLD, digest_of(v, NAN, false) == digest_of(v, 0, false));
    bp_test_check(MPI_COMM_WORLD, digest_of(v, 1, false) == digest_of(v, 0, false));
}

static void gradients_begin_anew_whatever_their_memory_holds(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD);
    bp_precision last = bp_math_has_bf16() ? BP_BF16 : BP_F32;

    (void)state;
    for (int precision = BP_F32; precision <= (int)last; precision++)
        for (int tree = 0; tree < 2; tree++)
            for (int pipelines = 1; pipelines <= size && size % pipelines == 0; pipelines *= 2)
                check_held_before(&(variant){.pipelines = pipelines,
                                             .tensors = size / pipelines,
                                             .chunks = pipelines == 2 ? 2 : 1,
                                             .micro_batches = 2,
                                             .schedule = pipelines == 2 ? BP_INTERLEAVED : BP_1F1B,
                                             .tree = tree == 1,
                                             .sequence_parallel = tree == 1,
                                             .recompute = tree == 0,
                                             .precision = (bp_precision)precision});
}

/* Sums are scattered and gathered instead of summed for all, in the same order: losses and the
 * gradients of what is split have the same bits. */
static void shared_rows_have_the_bits_of_all_rows(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD);

    (void)state;
    for (int pipelines = 1; pipelines <= size; pipelines++)
        for (int precision = BP_F32; precision <= (bp_math_has_bf16() ? BP_BF16 : BP_F32);
             precision++) {
            variant v = {.pipelines = pipelines,
                         .tensors = size / pipelines,
                         .chunks = 1,
                         .micro_batches = MICRO_BATCHES,
                         .schedule = BP_1F1B,
                         .dropout = 0.3F,
                         .precision = (bp_precision)precision};

            if (size % pipelines != 0)
                continue;
            int64_t expected = digest_of(&v, NAN, true);
            v.sequence_parallel = true;
            bp_test_check(MPI_COMM_WORLD, digest_of(&v, NAN, true) == expected);
        }
}

/* Sequences in a step are shortened, and their positions have the dropout masks that they had. */
static void shortened_sequences_keep_their_masks(void **state)
{
    enum { SHORT = LENGTH - 2 };
    static const int64_t fits[MICRO_BATCHES * BP_STREAMS] = {SHORT, 0, LENGTH, 0, SHORT, 0};
    const variant v = {.pipelines = 1,
                       .tensors = bp_comm_size(MPI_COMM_WORLD),
                       .chunks = 1,
                       .micro_batches = MICRO_BATCHES,
                       .schedule = BP_1F1B,
                       .dropout = 0.3F,
                       .sequences = 1};
    double whole[MICRO_BATCHES] = {0}, shorter[MICRO_BATCHES] = {0};
    bool agrees = true;
    fixture f;

    (void)state;
    open_fixture(&f, &v);
    for (int i = 0; i < MICRO_BATCHES * LENGTH; i++)
        f.targets[i] = i % LENGTH < SHORT ? f.targets[i] : -1;
    bp_batch batch = bp_batch_of_positions(MICRO_BATCHES, LENGTH, f.inputs, f.targets);
    bp_stage_step step = {.batch = &batch, .step = 1, .loss_weight = {1}};
    bp_stage_accumulate(f.stage, &step, whole, 0);
    batch.fit_rows = 1;
    batch.fits = fits;
    bp_stage_accumulate(f.stage, &step, shorter, 0);
    for (int k = 0; k < MICRO_BATCHES; k++)
        agrees = agrees && value_agrees(shorter[k], whole[k]);
    close_fixture(&f);
    bp_test_check(MPI_COMM_WORLD, agrees);
}

/* One entry of the token embedding, which the first of several chunks of logits has for its target,
 * by a central difference. */
static bool target_agrees(const fixture *f, const int32_t *tokens, int64_t T)
{
    const bp_param *wte = &f->network->groups[0].params[0];
    int64_t row = tokens[1] - wte->offset[0];
    double *entry = &plain_gpt_tensor(&f->plain, "wte")->value[tokens[1] * wte->shape[1]];
    double before = *entry, step = 1e-4, change = 0;

    if (row < 0 || row >= wte->extent[0])
        return true;
    for (int sign = -1; sign <= 1; sign += 2) {
        *entry = before + sign * step;
        change += sign * plain_gpt_loss(&f->plain, tokens, tokens + 1, 1, T, NULL);
    }
    *entry = before;
    return fabs((double)f->stage->gradient[wte->place + row * wte->extent[1]] -
                change / (2 * step)) < 1e-3;
}

/* Tensor ranks with unequal shares of a vocabulary that is larger than a chunk of logits take the
 * same chunks. */
static void large_vocabulary_of_unequal_shares_has_the_plain_loss(void **state)
{
    const bp_model_shape shape = {.family = &bp_gpt_family,
                                  .layers = 1,
                                  .width = 12,
                                  .heads = 12,
                                  .context = 1024,
                                  .vocab_size = 52429};
    int tensors = bp_comm_size(MPI_COMM_WORLD);
    bp_mesh_shape mesh_shape = {1, 1, 1, tensors, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {
        .most = {1, {1024}}, .micro_batches = 1, .stages = 1, .schedule = BP_1F1B, .tree = true};
    int32_t *tokens = bp_alloc("test", 1025, sizeof *tokens);
    double sum[BP_TERMS], trained = 0, expected;
    bool finite = true;
    int64_t count[BP_TERMS];
    fixture f = {0};

    (void)state;
    bp_test_expect(bp_mesh_new(&f.mesh, MPI_COMM_WORLD, &mesh_shape), BP_OK);
    bp_test_expect(bp_gemm_new(&f.gemm, BP_F32), BP_OK);
    bp_nn nn = {.gemm = f.gemm,
                .tensor = f.mesh->tensor,
                .tensor_rank = f.mesh->tensor_rank,
                .tensor_ranks = tensors,
                .sequence_parallel = bp_rows_divide(1024, tensors)};
    bp_test_expect(bp_model_network_new(&f.network, &nn, &shape, 0, 1), BP_OK);
    bp_network_lay_out(f.network, BP_NORM_BLOCK);
    f.values = bp_alloc("test", f.network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f.network, f.values), BP_OK);
    bp_test_expect(bp_stage_new(&f.stage, f.mesh, f.network, &spec), BP_OK);
    plain_gpt_init(&f.plain, &shape);
    copy_values(&f);
    for (int t = 0; t <= 1024; t++)
        tokens[t] = (int32_t)((t * 7919LL) % shape.vocab_size);
    bp_batch batch = bp_batch_of_positions(1, 1024, tokens, tokens + 1);
    bp_stage_evaluate(f.stage, &(bp_evaluation){.batch = &batch}, sum, count);
    bp_stage_step step = {.batch = &batch, .step = 1, .loss_weight = {1}};
    fill_gradients(&f, NAN);
    bp_stage_accumulate(f.stage, &step, &trained, 0);
    for (int64_t i = 0; i < f.network->floats; i++) /* of all chunks, the padding's too */
        finite = finite && isfinite(f.stage->gradient[i]);
    expected = plain_gpt_loss(&f.plain, tokens, tokens + 1, 1, 1024, NULL);
    bool agrees = target_agrees(&f, tokens, 1024);
    bp_free(tokens);
    close_fixture(&f);
    bp_test_check(MPI_COMM_WORLD, finite && agrees && value_agrees(sum[0], expected) &&
                                      value_agrees(trained, expected));
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_finite_differences),
        cmocka_unit_test(recompute_and_running_sum_change_nothing),
        cmocka_unit_test(gpipe_gives_the_same),
        cmocka_unit_test(interleaved_has_the_bits_of_1f1b),
        cmocka_unit_test(gradients_begin_anew_whatever_their_memory_holds),
        cmocka_unit_test(shared_rows_have_the_bits_of_all_rows),
        cmocka_unit_test(shortened_sequences_keep_their_masks),
        cmocka_unit_test(norm_counts_every_parameter_once),
        cmocka_unit_test(evaluation_is_the_plain_loss_of_shorter_windows_too),
        cmocka_unit_test(large_vocabulary_of_unequal_shares_has_the_plain_loss),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
