/* Memory is planned for the largest piece of work, so less work must need no more: of every
 * network, and of batches of all sizes that one model scores in turn, on random shapes,
 * vocabularies and meshes. A plan that is too small ends the program (bp_arena_take). */
#include "bp_test_mpi.h"

#include "capped_family.h"

#include "base/rng.h"
#include "math/gemm/linear_parts.h"
#include "math/math.h"
#include "models/bert/bert.h"
#include "models/deberta/deberta.h"
#include "models/list.h"
#include "models/mpnet/mpnet.h"
#include "models/open.h"
#include "models/seq2seq/seq2seq.h"
#include "models/stack/stack.h"

#include <math.h>

#define WORLD MPI_COMM_WORLD

enum { CONTEXT = 48, SHAPES = 12, PLANS = 400, BATCHES = 6, WINDOWS_MAX = 64 };

static uint64_t drawn; /* how often */

/* A number from least to most, the same on all ranks. */
static int64_t draw(int64_t least, int64_t most)
{
    bp_rng_key key = bp_rng_key_of(20261123, BP_RNG_TEST, 0, 0, 0);

    return least + bp_rng_below(&key, drawn++, most - least + 1);
}

static bp_model_shape random_shape(int tensor_ranks, int stages)
{
    static const int64_t vocabularies[] = {23, 257, 8192, 20000, 50257};
    static const bp_model_family *const families[] = {
        &bp_gpt_family,       &bp_llama_family,
        &bp_gpt_neox_family,  &bp_bert_family,
        &bp_roberta_family,   &CAPPED_FAMILY,
        &bp_qwen3_family,     &bp_olmo2_family,
        &bp_gemma2_family,    &bp_distilbert_family,
        &bp_smollm3_family,   &bp_granite_family,
        &bp_mamba2_family,    &bp_bloom_family,
        &bp_gptj_family,      &bp_openai_gpt_family,
        &bp_gemma3_family,    &bp_phi3_family,
        &bp_mixtral_family,   &bp_olmoe_family,
        &bp_qwen3_moe_family, &bp_granite_hybrid_family,
        &bp_bamba_family,     &bp_modernbert_family,
        &bp_deberta_family,   &bp_mpnet_family,
        &bp_t5_encoder_family};
    int64_t heads = tensor_ranks * draw(1, 2);
    bp_model_shape shape = {
        .family = families[draw(0, (int64_t)(sizeof families / sizeof *families) - 1)],
        .layers = stages * draw(1, 2),
        .width = heads * 8,
        .heads = heads,
        .context = CONTEXT,
        .vocab_size = vocabularies[draw(0, 4)] + draw(0, 9)};

    if (shape.family->stack && shape.family->stack->rms) {
        shape.stack.kv_heads = draw(0, 1); /* one: ranks share it */
        shape.stack.inner = 2 * shape.width;
    }
    if (shape.family == &bp_modernbert_family) {
        shape.stack.inner = 2 * shape.width;
        shape.stack.window = draw(1, CONTEXT);
    }
    if (shape.family == &bp_mixtral_family || shape.family == &bp_olmoe_family ||
        shape.family == &bp_qwen3_moe_family) {
        shape.stack.experts = draw(2, 5);
        shape.stack.chosen = draw(1, 2);
        shape.stack.balance = 0.1 * (double)draw(0, 1);
    }
    if (shape.family == &bp_deberta_family) {
        bp_deberta_sizes_in(&shape)->other_projections = draw(0, 1);
        bp_deberta_sizes_in(&shape)->convolution = draw(0, 1) ? 3 : 0;
        bp_deberta_sizes_in(&shape)->groups =
            bp_deberta_sizes_of(&shape)->convolution > 0 ? draw(1, 2) : 0;
        shape.stack.embedding = shape.width + 8 * draw(-1, 1);
        shape.stack.embedding += shape.stack.embedding == 0 ? 8 : 0;
    }
    if (shape.family == &bp_t5_encoder_family)
        shape.stack.relative_layers = draw(0, 1);
    if (shape.family == &bp_bert_family || shape.family == &bp_roberta_family)
        bp_bert_sizes_in(&shape)->boundary = draw(0, 1);
    if (bp_stack_is_hybrid(shape.family->stack))
        shape.stack.attention_layers[0] = (double)draw(0, shape.layers);
    shape.family->fill_defaults(&shape);
    return shape;
}

static bp_config *config_of(const char *precision)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    bp_config *config;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(config, "math.precision", precision), BP_OK);
    return config;
}

/* One rank's network of a random mesh, of any of its stages; memory of less work and of more. */
static void less_work_needs_no_more_memory(void **state)
{
    bp_precision precisions[] = {BP_F32, BP_F32};
    bp_config *config = config_of("auto"); /* bf16, where the CPU has it */

    (void)state;
    bp_test_expect(bp_math_precision(config, &precisions[1]), BP_OK);
    bp_config_free(&config);
    for (int k = 0; k < PLANS; k++) {
        int tensors = (int)draw(1, 4), stages = (int)draw(1, 3);
        bp_model_shape shape = random_shape(tensors, stages);
        bp_nn nn = {.tensor = MPI_COMM_NULL,
                    .tensor_rank = (int)draw(0, tensors - 1),
                    .tensor_ranks = tensors};
        bp_network *network;

        bp_test_expect(bp_gemm_new(&nn.gemm, precisions[k % 2]), BP_OK);
        bp_test_expect(
            bp_model_network_new(&network, &nn, &shape, (int)draw(0, stages - 1), stages), BP_OK);
        bp_network_lay_out(network, 1);
        for (int training = 0; training < 2; training++) {
            int64_t B = draw(1, WINDOWS_MAX), T = tensors * draw(1, CONTEXT / tensors);
            int64_t b = draw(1, B), t = draw(0, 1) ? T : tensors * draw(1, T / tensors);
            size_t lent = draw(0, 1) ? (size_t)draw(1, 1 << 22) : 0;
            bp_extent large = {.B = B, .T = {T}, .lent_bytes = lent},
                      small = {.B = b, .T = {t}, .lent_bytes = lent};
            size_t more = bp_network_scratch_bytes(network, &large, training);
            size_t less = bp_network_scratch_bytes(network, &small, training);
            size_t more_kept = bp_network_saved_bytes(network, &(bp_extent){.B = B, .T = {T}}),
                   less_kept = bp_network_saved_bytes(network, &(bp_extent){.B = b, .T = {t}});

            if (less > more || less_kept > more_kept)
                print_error("%lld x %lld takes %zu, %lld x %lld %zu bytes: vocabulary %lld, tensor "
                            "%d of %d\n",
                            (long long)B, (long long)T, more, (long long)b, (long long)t, less,
                            (long long)shape.vocab_size, nn.tensor_rank, tensors);
            bp_test_check(WORLD, less <= more && less_kept <= more_kept);
        }
        bp_network_free(&network);
        bp_gemm_free(&nn.gemm);
    }
}

static void score_random_batch(bp_model *model, int64_t vocab_size)
{
    static int32_t inputs[WINDOWS_MAX * CONTEXT], targets[WINDOWS_MAX * CONTEXT];
    static float values[WINDOWS_MAX * CONTEXT];
    bp_model_batch batch = {.windows = draw(1, WINDOWS_MAX),
                            .length = draw(1, CONTEXT),
                            .inputs = inputs,
                            .targets = targets};
    int64_t unscored = draw(0, 3);
    bool right = true;

    for (int64_t i = 0; i < batch.windows * batch.length; i++) {
        inputs[i] = (int32_t)draw(0, vocab_size - 1);
        targets[i] =
            unscored > 0 && i % (unscored + 1) == 0 ? -1 : (int32_t)draw(0, vocab_size - 1);
    }
    bp_test_check_err(WORLD, bp_model_score(model, &batch, values), BP_OK);
    for (int64_t i = 0; i < batch.windows * batch.length; i++)
        right = right && (targets[i] < 0 ? isnan(values[i]) : isfinite(values[i]));
    bp_test_check(WORLD, right);
}

static void batches_of_all_sizes_are_scored_in_turn(void **state)
{
    int size = bp_comm_size(WORLD);

    (void)state;
    for (int k = 0; k < SHAPES; k++) {
        int stages = k % 3 > 0 ? size : size > 2 ? size / 2 : 1;
        bp_mesh_shape on = {1, stages, 1, size / stages, BP_COORDINATOR_SHARED};
        bp_model_shape shape = random_shape(on.tensor, stages);
        bp_config *config = config_of(k % 2 > 0 ? "f32" : "auto");
        bp_mesh *mesh;
        bp_model *model;

        bp_test_expect(bp_mesh_new(&mesh, WORLD, &on), BP_OK);
        bp_test_check_err(WORLD, bp_model_new(&model, mesh, config, &shape, 1), BP_OK);
        for (int n = 0; n < BATCHES; n++)
            score_random_batch(model, shape.vocab_size);
        bp_model_free(&model);
        bp_mesh_free(&mesh);
        bp_config_free(&config);
    }
}

/* Wide, so that rows lie a page apart, and a vocabulary as large as the layers. */
static const bp_model_shape WIDE = {.family = &bp_gpt_family,
                                    .layers = 2,
                                    .width = 1024,
                                    .heads = 8,
                                    .context = CONTEXT,
                                    .vocab_size = 12000};

static bp_model_memory estimate_wide(const bp_mesh_shape *on, const bp_config *config)
{
    json_t *state =
        json_pack("{s:{s:s, s:i, s:i, s:i, s:i, s:i}}", "model", "kind", "gpt", "layers", 2,
                  "width", 1024, "heads", 8, "context", CONTEXT, "vocab_size", 12000);
    bp_model_task task = {.mesh = on, .windows = 8, .length = CONTEXT};
    bp_model_memory memory;

    bp_test_expect(bp_model_estimate(&memory, state, config, &task), BP_OK);
    json_decref(state);
    return memory;
}

/* What a model takes is what is planned, and that is its weights once: in float32 4 bytes each, in
 * bf16 2 bytes of what products read and 4 of the table that tokens are looked up in. */
static void weights_are_held_once(void **state)
{
    int size = bp_comm_size(WORLD);
    bp_mesh_shape on = {1, 1, 1, size, BP_COORDINATOR_SHARED};
    const int64_t slack = 1 << 20; /* what grows with layers and ranks alone: names, primitives */

    (void)state;
    for (int k = 0; k < 2; k++) {
        bp_config *config = config_of(k == 0 ? "f32" : "auto");
        int64_t before = (int64_t)bp_mem_now_bytes();
        int32_t inputs[8 * CONTEXT] = {0};
        float values[8 * CONTEXT];
        bp_model_batch batch = {8, CONTEXT, inputs, inputs, 0};
        bp_precision precision;
        bp_mesh *mesh;
        bp_model *model;

        bp_test_expect(bp_math_precision(config, &precision), BP_OK);
        bp_model_memory planned = estimate_wide(&on, config);
        int64_t parameters = bp_model_parameters(&WIDE), table = WIDE.vocab_size * WIDE.width;
        int64_t bytes =
            bp_gemm_bf16_form() == BP_BF16_ROUNDED ? 4 : 2; /* where float32 is faster */
        int64_t most = precision == BP_F32 ? 4 * parameters : bytes * parameters + 4 * table;
        bp_test_expect(bp_mesh_new(&mesh, WORLD, &on), BP_OK);
        bp_test_check_err(WORLD, bp_model_new(&model, mesh, config, &WIDE, 1), BP_OK);
        int64_t held = (int64_t)bp_mem_now_bytes() - before;
        bp_test_check_err(WORLD, bp_model_score(model, &batch, values), BP_OK);
        int64_t taken = (int64_t)bp_mem_now_bytes() - before,
                all = planned.weights_bytes + planned.work_bytes;
        bp_test_check(WORLD, held <= planned.weights_bytes + slack);
        bp_test_check(WORLD, planned.weights_bytes <= most / size + slack);
        /* in bf16 the table passes through float32 as it is read, before anything is scored */
        int64_t staged = precision == BP_F32 ? 0 : 4 * table / size;
        int64_t peak = held + staged > taken ? held + staged : taken;
        bp_test_check(WORLD, taken <= all + slack && peak >= all - all / 10 - slack);
        bp_model_free(&model);
        bp_mesh_free(&mesh);
        bp_config_free(&config);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(less_work_needs_no_more_memory),
        cmocka_unit_test(batches_of_all_sizes_are_scored_in_turn),
        cmocka_unit_test(weights_are_held_once),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
