/* The family of LLaMA: its sizes, and its blocks: embedding, layers, head. */
#include "models/llama/llama.h"

#include "models/transformer.h"
#include "models/variants.h"
#include "nn/layers.h"

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
    {.name = "head_width",
     .at = BP_SIZE_AT(own[BP_LLAMA_HEAD_WIDTH]),
     .optional = true,
     .quiet = true},
    {.name = "rope_scaling",
     .at = BP_SIZE_AT(own[BP_LLAMA_SCALING]),
     .type = BP_SIZE_CHOICE,
     .optional = true,
     .quiet = true,
     .words = BP_ROPE_SCALINGS},
    {.name = "rope_factor",
     .at = BP_SIZE_AT(real[BP_LLAMA_FACTOR]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "rope_low_freq_factor",
     .at = BP_SIZE_AT(real[BP_LLAMA_LOW]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "rope_high_freq_factor",
     .at = BP_SIZE_AT(real[BP_LLAMA_HIGH]),
     .type = BP_SIZE_REAL,
     .optional = true},
    {.name = "rope_original_context", .at = BP_SIZE_AT(own[BP_LLAMA_ORIGINAL]), .optional = true},
    {.name = "window", .at = BP_SIZE_AT(own[BP_LLAMA_WINDOW]), .optional = true},
    BP_VARIANT_ATTENTION_SIZE,
    BP_VARIANT_HEAD_SIZES,
    {0}};

static void settle(bp_model_shape *shape)
{
    int64_t *own = shape->own;
    double *real = shape->real;

    own[BP_LLAMA_KV_HEADS] = own[BP_LLAMA_KV_HEADS] > 0 ? own[BP_LLAMA_KV_HEADS] : shape->heads;
    own[BP_LLAMA_INNER] =
        own[BP_LLAMA_INNER] > 0 ? own[BP_LLAMA_INNER] : (shape->width * 8 / 3 + 63) / 64 * 64;
    if (own[BP_LLAMA_HEAD_WIDTH] == 0 && shape->width % shape->heads == 0)
        own[BP_LLAMA_HEAD_WIDTH] = shape->width / shape->heads;
    real[BP_LLAMA_EPSILON] = real[BP_LLAMA_EPSILON] > 0 ? real[BP_LLAMA_EPSILON] : 1e-5;
    real[BP_LLAMA_THETA] = real[BP_LLAMA_THETA] > 0 ? real[BP_LLAMA_THETA] : 10000;
    if (own[BP_LLAMA_SCALING] == BP_ROPE_LLAMA3) { /* LLaMA 3.1's */
        real[BP_LLAMA_LOW] = real[BP_LLAMA_LOW] > 0 ? real[BP_LLAMA_LOW] : 1;
        real[BP_LLAMA_HIGH] = real[BP_LLAMA_HIGH] > 0 ? real[BP_LLAMA_HIGH] : 4;
    }
}

static bp_rope rope_of(const bp_model_shape *shape)
{
    return (bp_rope){.theta = shape->real[BP_LLAMA_THETA],
                     .rotated = shape->own[BP_LLAMA_HEAD_WIDTH],
                     .scaling = (bp_rope_scaling)shape->own[BP_LLAMA_SCALING],
                     .factor = shape->real[BP_LLAMA_FACTOR],
                     .low_freq_factor = shape->real[BP_LLAMA_LOW],
                     .high_freq_factor = shape->real[BP_LLAMA_HIGH],
                     .original_context = shape->own[BP_LLAMA_ORIGINAL]};
}

/* What a scaling needs, and what is none of its: in places of the sizes below. */
static void check_scaling(const bp_model_shape *shape, bp_config *config)
{
    static const struct {
        const char *key;
        bp_rope_scaling least;
        bool needed;
    } PARAMETERS[] = {{"model.rope_factor", BP_ROPE_LINEAR, true},
                      {"model.rope_original_context", BP_ROPE_LLAMA3, true},
                      {"model.rope_low_freq_factor", BP_ROPE_LLAMA3, false},
                      {"model.rope_high_freq_factor", BP_ROPE_LLAMA3, false}};
    bp_rope rope = rope_of(shape);
    double values[] = {rope.factor, (double)rope.original_context, rope.low_freq_factor,
                       rope.high_freq_factor};
    const char *name = bp_model_keys_of(config)->rope_scaling;

    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        if (PARAMETERS[k].needed && rope.scaling >= PARAMETERS[k].least && values[k] == 0)
            bp_config_fault(config, "model.missing_key",
                            "%s is missing: at the configuration; model.rope_scaling = %s needs it",
                            PARAMETERS[k].key, name ? name : "of the checkpoint");
        if (rope.scaling < PARAMETERS[k].least && values[k] != 0)
            bp_config_fault(config, "model.unused_key",
                            "model.rope_scaling = %s has no %s: at %s; leave the key out",
                            name ? name : "none", PARAMETERS[k].key, PARAMETERS[k].key);
    }
    if (rope.scaling == BP_ROPE_LLAMA3 && rope.high_freq_factor <= rope.low_freq_factor)
        bp_config_fault(config, "model.bad_rope",
                        "model.rope_high_freq_factor = %g is not above model.rope_low_freq_factor "
                        "= %g: at model.rope_high_freq_factor; LLaMA 3.1's are 4 and 1",
                        rope.high_freq_factor, rope.low_freq_factor);
}

static void check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    int64_t kv_heads = shape->own[BP_LLAMA_KV_HEADS], D = shape->own[BP_LLAMA_HEAD_WIDTH];

    if (D == 0)
        bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensors, config);
    bp_transformer_check_inner(shape, shape->own[BP_LLAMA_INNER], tensors, config);
    check_scaling(shape, config);
    if (shape->heads % kv_heads != 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.kv_heads = %lld does not divide model.heads = %lld: at "
                        "model.kv_heads; use one that does",
                        (long long)kv_heads, (long long)shape->heads);
    if (D % 2 != 0)
        bp_config_fault(
            config, "model.odd_heads",
            "heads of width %lld have no pairs to turn: at model.heads; use heads of an "
            "even width",
            (long long)D);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    bp_rope rope = rope_of(shape);

    if (shape->own[BP_LLAMA_HEAD_WIDTH] == 0)
        return bp_transformer_check_read(shape, where);
    if (shape->heads % shape->own[BP_LLAMA_KV_HEADS] != 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's %lld key heads do not divide its %lld heads: at %s; the "
                       "checkpoint is wrong",
                       (long long)shape->own[BP_LLAMA_KV_HEADS], (long long)shape->heads, where);
    if (rope.rotated % 2 != 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's heads of width %lld have no pairs to turn: at %s; the "
                       "checkpoint is wrong",
                       (long long)rope.rotated, where);
    if ((rope.scaling != BP_ROPE_PLAIN && rope.factor <= 0) ||
        (rope.scaling == BP_ROPE_LLAMA3 &&
         (rope.original_context == 0 || rope.high_freq_factor <= rope.low_freq_factor)))
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's rope_scaling lacks a parameter, or has one that can't be: at "
                       "%s; the checkpoint is wrong",
                       where);
    return BP_OK;
}

static double heads_width(const bp_model_shape *shape, int64_t heads)
{
    return (double)(heads * shape->own[BP_LLAMA_HEAD_WIDTH]);
}

/* Multiplications of one token in the matrices of a layer. */
static double layer_matrices(const bp_model_shape *shape)
{
    double C = (double)shape->width, keys = heads_width(shape, shape->own[BP_LLAMA_KV_HEADS]);

    return C * (2 * heads_width(shape, shape->heads) + 2 * keys) +
           3 * C * (double)shape->own[BP_LLAMA_INNER];
}

/* Keys that a query sees, most. */
static double seen(const bp_model_shape *shape)
{
    int64_t window = shape->own[BP_LLAMA_WINDOW];

    return (double)(window > 0 && window < shape->context ? window : shape->context);
}

/* FLOPs: 6 a matrix's entry, and 12 LT of attention by the width of all heads. Source: as GPT's. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    double C = (double)shape->width, L = (double)shape->layers, V = (double)shape->vocab_size,
           matrices = L * layer_matrices(shape) + V * C;
    int64_t heads = shape->heads + 2 * shape->own[BP_LLAMA_KV_HEADS],
            biases = shape->own[BP_LLAMA_BIAS] ? (int64_t)heads_width(shape, heads) : 0,
            tables = shape->own[BP_LLAMA_TIED] ? 1 : 2;

    return (bp_model_facts){.parameters = (int64_t)(L * layer_matrices(shape)) +
                                          shape->layers * (2 * shape->width + biases) +
                                          (tables * shape->vocab_size + 1) * shape->width,
                            .train_flops = 6 * matrices +
                                           12 * L * seen(shape) * heads_width(shape, shape->heads)};
}

static double cost(const bp_model_shape *shape, int block)
{
    double C = (double)shape->width;

    if (block == 0)
        return 50 * C;
    if (block == bp_transformer_blocks(shape) - 1)
        return 2 * (double)shape->vocab_size * C;
    return 2 * layer_matrices(shape) + 4 * seen(shape) * heads_width(shape, shape->heads);
}

static void begin(bp_network *network, const bp_model_shape *shape)
{
    bp_rope rope = rope_of(shape);

    bp_network_add_rotary(network, &rope, shape->context);
}

/* The token embedding; where the head has one of its own, the first stage alone has it. */
static bp_param *add_shared(bp_network *network, const bp_model_shape *shape, int stage, int stages,
                            int blocks)
{
    return shape->own[BP_LLAMA_TIED]
               ? bp_transformer_add_tied(network, shape, stage, stages, blocks)
               : NULL;
}

static void add_block(bp_network *network, const bp_model_shape *shape, int number,
                      bp_param *shared)
{
    float epsilon = (float)shape->real[BP_LLAMA_EPSILON];
    bp_block *block = NULL;

    if (number == 0) {
        bp_embedding_part part = {.wte = shared ? shared
                                                : bp_transformer_add_table(network, shape, "wte")};
        bp_embedding_new(&block, &network->nn, &part, 1);
    } else if (number == bp_transformer_blocks(shape) - 1) {
        bp_head_shape head = {.norm = "ln_f", .rms = true, .epsilon = epsilon};
        bp_param *table = shared ? shared : bp_transformer_add_table(network, shape, "head");
        bp_variants_set_head(&head, network, shape);
        bp_lm_head_new(&block, &network->nn, &head, table, bp_network_add_group(network, true));
    } else {
        bp_layer_shape layer = {.C = shape->width,
                                .entmax = shape->attention_entmax == 1,
                                .H = shape->heads,
                                .D = shape->own[BP_LLAMA_HEAD_WIDTH],
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

/* A tied head has no parameters of its own. */
static bp_backbone backbone(const bp_model_shape *shape)
{
    int64_t table = shape->vocab_size * shape->width;

    return (bp_backbone){.blocks = bp_transformer_blocks(shape) - 1,
                         .layers_from = 1,
                         .norm = "ln_f",
                         .rms = true,
                         .epsilon = (float)shape->real[BP_LLAMA_EPSILON],
                         .head_parameters = !shape->own[BP_LLAMA_TIED] ? table : 0,
                         .head_flops = 6 * (double)table};
}

const bp_model_family bp_llama_family = {.name = "llama",
                                         .sizes = SIZES,
                                         .any_context = true,
                                         .settle = settle,
                                         .check = check,
                                         .check_read = check_read,
                                         .facts = facts,
                                         .objective = &bp_objective_causal,
                                         .huggingface = bp_llama_huggingface,
                                         .blocks = bp_transformer_blocks,
                                         .key_block = bp_transformer_key_block,
                                         .backbone = backbone,
                                         .blocks_are = "embedding, layers, head",
                                         .cost = cost,
                                         .behind = bp_transformer_behind,
                                         .begin = begin,
                                         .add_shared = add_shared,
                                         .add_block = add_block};
