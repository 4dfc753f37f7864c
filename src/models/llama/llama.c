/* The family of LLaMA: its sizes, and its blocks: embedding, layers, head. */
#include "models/llama/llama.h"

#include "base/mem.h"
#include "math/kernels/kernels.h"
#include "nn/layers.h"

#include <math.h>

#define INIT_STD 0.02F

static const bp_model_size SIZES[] = {
    {.name = "layers", .at = BP_SIZE_AT(layers)},
    {.name = "width", .at = BP_SIZE_AT(width)},
    {.name = "heads", .at = BP_SIZE_AT(heads)},
    {.name = "kv_heads", .at = BP_SIZE_AT(own[BP_LLAMA_KV_HEADS]), .optional = true},
    {.name = "inner", .at = BP_SIZE_AT(own[BP_LLAMA_INNER]), .optional = true},
    {.name = "context", .at = BP_SIZE_AT(context)},
    {.name = "norm_epsilon",
     .at = BP_SIZE_AT(real[BP_LLAMA_EPSILON]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "rope_theta",
     .at = BP_SIZE_AT(real[BP_LLAMA_THETA]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "tied", .at = BP_SIZE_AT(own[BP_LLAMA_TIED]), .type = BP_SIZE_FLAG, .optional = true},
    {.name = "attention_bias",
     .at = BP_SIZE_AT(own[BP_LLAMA_BIAS]),
     .type = BP_SIZE_FLAG,
     .optional = true},
    {.name = "window", .at = BP_SIZE_AT(own[BP_LLAMA_WINDOW]), .optional = true},
    {0}};

static void settle(bp_model_shape *shape)
{
    int64_t *kv_heads = &shape->own[BP_LLAMA_KV_HEADS], *inner = &shape->own[BP_LLAMA_INNER];
    double *epsilon = &shape->real[BP_LLAMA_EPSILON], *theta = &shape->real[BP_LLAMA_THETA];

    *kv_heads = *kv_heads > 0 ? *kv_heads : shape->heads;
    *inner = *inner > 0 ? *inner : (shape->width * 8 / 3 + 63) / 64 * 64;
    *epsilon = *epsilon > 0 ? *epsilon : 1e-5;
    *theta = *theta > 0 ? *theta : 10000;
}

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    int64_t kv_heads = shape->own[BP_LLAMA_KV_HEADS], inner = shape->own[BP_LLAMA_INNER];

    bp_transformer_check(shape, tensors, config);
    if (shape->heads % kv_heads != 0)
        bp_config_fault(config,
                        "model.kv_heads = %lld does not divide model.heads = %lld: at "
                        "model.kv_heads; use one that does",
                        (long long)kv_heads, (long long)shape->heads);
    if (shape->width % shape->heads == 0 && shape->width / shape->heads % 2 != 0)
        bp_config_fault(
            config,
            "heads of width %lld have no pairs to turn: at model.heads; use heads of an "
            "even width",
            (long long)(shape->width / shape->heads));
    if (kv_heads % tensors != 0)
        bp_config_fault(config,
                        "mesh.tensor = %d does not divide model.kv_heads = %lld: at mesh.tensor; "
                        "use pipeline or data ranks instead",
                        tensors, (long long)kv_heads);
    if (inner % tensors != 0)
        bp_config_fault(config,
                        "mesh.tensor = %d does not divide model.inner = %lld: at mesh.tensor; use "
                        "another number of tensor ranks",
                        tensors, (long long)inner);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    bp_err err = bp_transformer_check_read(shape, where);

    if (err == BP_OK && shape->heads % shape->own[BP_LLAMA_KV_HEADS] != 0)
        err = BP_FAIL(BP_ERR_FORMAT,
                      "the model's %lld key heads do not divide its %lld heads: at %s; the "
                      "checkpoint is wrong",
                      (long long)shape->own[BP_LLAMA_KV_HEADS], (long long)shape->heads, where);
    return err;
}

/* Multiplications of one token in the matrices of a layer. */
static double layer_matrices(const bp_model_shape *shape)
{
    double C = (double)shape->width,
           keys = C / (double)shape->heads * (double)shape->own[BP_LLAMA_KV_HEADS];

    return C * (2 * C + 2 * keys) + 3 * C * (double)shape->own[BP_LLAMA_INNER];
}

/* Keys that a query sees, most. */
static double seen(const bp_model_shape *shape)
{
    int64_t window = shape->own[BP_LLAMA_WINDOW];

    return (double)(window > 0 && window < shape->context ? window : shape->context);
}

/* FLOPs: 6 a matrix's entry, and 12 LTC of attention. Source: as GPT's. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    double C = (double)shape->width, L = (double)shape->layers, V = (double)shape->vocab_size,
           matrices = L * layer_matrices(shape) + V * C;
    int64_t keys = shape->width / shape->heads * shape->own[BP_LLAMA_KV_HEADS],
            biases = shape->own[BP_LLAMA_BIAS] ? shape->width + 2 * keys : 0,
            tables = shape->own[BP_LLAMA_TIED] ? 1 : 2;

    return (bp_model_facts){.parameters = (int64_t)(L * layer_matrices(shape)) +
                                          shape->layers * (2 * shape->width + biases) +
                                          (tables * shape->vocab_size + 1) * shape->width,
                            .train_flops = 6 * matrices + 12 * L * seen(shape) * C};
}

static int blocks_of(const bp_model_shape *shape)
{
    return (int)shape->layers + 2;
}

static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width;

    if (block == 0)
        return 50 * C;
    if (block == blocks_of(shape) - 1)
        return 2 * (double)shape->vocab_size * C;
    return 2 * layer_matrices(shape) + 4 * seen(shape) * C;
}

static bp_activations behind(const bp_model_shape *shape, int block)
{
    (void)block;
    return (bp_activations){
        .count = 1, .item = {{.name = "hidden", .columns = shape->width, .has_gradient = true}}};
}

/* The angle of pair i of a head at position t is t theta^(-2i / D), made in float64. */
static void begin(bp_network *network, const bp_model_shape *shape)
{
    int64_t D = shape->width / shape->heads, half = D / 2, n = shape->context * half;
    char *memory =
        bp_alloc("rotary", (int64_t)sizeof(bp_rotary) + 2 * n * (int64_t)sizeof(float), 1);
    bp_rotary *rotary = (bp_rotary *)(void *)memory;
    float *cosine = (float *)(void *)(memory + sizeof *rotary), *sine = cosine + n;

    for (int64_t i = 0; i < half; i++) {
        double frequency = pow(shape->real[BP_LLAMA_THETA], -2.0 * (double)i / (double)D);

        for (int64_t t = 0; t < shape->context; t++) {
            cosine[t * half + i] = (float)cos((double)t * frequency);
            sine[t * half + i] = (float)sin((double)t * frequency);
        }
    }
    *rotary = (bp_rotary){shape->context, half, cosine, sine};
    network->tables = memory;
}

/* The token embedding; where the head has one of its own, the first stage alone has it. */
static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int blocks)
{
    bp_tied_table table = {"wte", shape->vocab_size, shape->width, INIT_STD};

    return shape->own[BP_LLAMA_TIED] ? bp_network_add_tied(network, &table, stage, stages, blocks)
                                     : NULL;
}

/* A vocabulary's table of one block alone. */
static bp_param *add_table(bp_network *network, const bp_model_shape *shape, const char *name)
{
    bp_group *group = bp_network_add_group(network, false);
    int64_t first, count;

    bp_vocab_share(&network->nn, shape->vocab_size, &first, &count);
    return bp_group_add_matrix_part(group, name, shape->vocab_size, shape->width, INIT_STD, 0,
                                    first, count);
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    float epsilon = (float)shape->real[BP_LLAMA_EPSILON];
    bp_block *block = NULL;

    if (number == 0) {
        bp_embedding_part part = {.wte = shared ? shared : add_table(network, shape, "wte")};
        bp_embedding_new(&block, &network->nn, &part, 1);
    } else if (number == blocks_of(shape) - 1) {
        bp_head_shape head = {.norm = "ln_f", .rms = true, .epsilon = epsilon};
        bp_param *table = shared ? shared : add_table(network, shape, "head");
        bp_lm_head_new(&block, &network->nn, &head, table, bp_network_add_group(network, true));
    } else {
        bp_layer_shape layer = {.C = shape->width,
                                .H = shape->heads,
                                .F = shape->own[BP_LLAMA_INNER],
                                .G = shape->own[BP_LLAMA_KV_HEADS],
                                .rms = true,
                                .epsilon = epsilon,
                                .no_bias = true,
                                .qkv_bias = shape->own[BP_LLAMA_BIAS] != 0,
                                .activation = BP_SWIGLU,
                                .window = shape->own[BP_LLAMA_WINDOW],
                                .rotary = network->tables,
                                .layers = shape->layers,
                                .number = number - 1,
                                .stack = "h",
                                .first_mask = 4 * (number - 1) + 1};
        bp_group *split = bp_network_add_group(network, false);
        bp_transformer_layer_new(&block, &network->nn, &layer, split,
                                 bp_network_add_group(network, true));
    }
    bp_network_add_block(network, block);
}

const bp_model_family bp_llama_family = {.name = "llama",
                                         .sizes = SIZES,
                                         .settle = settle,
                                         .check = check,
                                         .check_read = check_read,
                                         .facts = facts,
                                         .objective = &bp_objective_causal,
                                         .huggingface = bp_llama_huggingface,
                                         .blocks = blocks_of,
                                         .blocks_are = "embedding, layers, head",
                                         .cost = cost,
                                         .behind = behind,
                                         .begin = begin,
                                         .add_shared = add_shared,
                                         .add_block = add_block};
