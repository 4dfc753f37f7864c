/* What follows from a stack: sizes that no key gives, checks, counts, and the blocks of a
 * network. */
#include "models/stack_priv.h"

#include "models/variants.h"

#include <math.h>

#define EPSILON 1e-5

static const bp_stack *stack_of(const bp_model_shape *shape)
{
    return shape->family->stack;
}

static int64_t head_width(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.head_width, shape->width / shape->heads);
}

static int64_t kv_heads(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.kv_heads, shape->heads);
}

static int64_t inner_width(const bp_model_shape *shape)
{
    int64_t multiple = bp_given_or(stack_of(shape)->inner_multiple, 1),
            width = shape->width * bp_given_or(stack_of(shape)->inner_thirds, 12) / 3;

    return bp_given_or(shape->stack.inner, (width + multiple - 1) / multiple * multiple);
}

int64_t bp_stack_segments(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.segments, stack_of(shape)->segments);
}

int64_t bp_stack_first_position(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.first_position, stack_of(shape)->first_position);
}

bool bp_stack_is_tied(const bp_model_shape *shape)
{
    return stack_of(shape)->tied != (shape->stack.other_tie != 0);
}

static double epsilon_of(const bp_model_shape *shape)
{
    return real_or(shape->stack.epsilon, real_or(stack_of(shape)->epsilon, EPSILON));
}

float bp_stack_epsilon(const bp_model_shape *shape)
{
    return (float)epsilon_of(shape);
}

static float score_cap(const bp_model_shape *shape)
{
    return (float)real_or(shape->stack.score_cap, stack_of(shape)->score_cap);
}

static float logit_cap(const bp_model_shape *shape)
{
    return (float)real_or(shape->stack.logit_cap, stack_of(shape)->logit_cap);
}

/* 0: that of a head's width. */
static float score_scale(const bp_model_shape *shape)
{
    int64_t width = shape->stack.score_width;

    if (shape->stack.score_scale > 0)
        return (float)shape->stack.score_scale;
    return width > 0 ? 1 / sqrtf((float)width) : 0;
}

static bool is_last(int64_t number, int64_t period)
{
    return period > 0 && number % period == period - 1;
}

/* 0: all before it are seen. */
static int64_t window_of(const bp_model_shape *shape, int64_t number)
{
    int64_t period = bp_given_or(shape->stack.window_period, stack_of(shape)->window_period);

    bool sees_all = stack_of(shape)->window_leads ? period > 0 && number % period == 0
                                                  : is_last(number, period);

    return sees_all ? 0 : shape->stack.window;
}

static bool turns(const bp_model_shape *shape, int64_t number)
{
    return !is_last(number, bp_given_or(shape->stack.rope_period, stack_of(shape)->rope_period));
}

/* 0: 1 */
static float embedding_scale(const bp_model_shape *shape)
{
    return shape->stack.embedding_scale > 0    ? (float)shape->stack.embedding_scale
           : stack_of(shape)->scales_embedding ? sqrtf((float)shape->width)
                                               : 0;
}

static float logit_scale(const bp_model_shape *shape)
{
    return shape->stack.logit_divisor > 0 ? (float)(1 / shape->stack.logit_divisor) : 0;
}

/* ---- sizes, and which go together ---- */

void bp_stack_settle(bp_model_shape *shape)
{
    bp_stack_sizes *own = &shape->stack;

    if (shape->width % shape->heads == 0)
        own->head_width = head_width(shape);
    own->kv_heads = kv_heads(shape);
    own->inner = inner_width(shape);
    own->segments = bp_stack_segments(shape);
    own->first_position = bp_stack_first_position(shape);
    own->epsilon = epsilon_of(shape);
    own->score_cap = real_or(own->score_cap, stack_of(shape)->score_cap);
    own->logit_cap = real_or(own->logit_cap, stack_of(shape)->logit_cap);
    own->window_period = bp_given_or(own->window_period, stack_of(shape)->window_period);
    own->rope_period = bp_given_or(own->rope_period, stack_of(shape)->rope_period);
    if (stack_of(shape)->rotary)
        stack_settle_rope(shape);
}

static void check_caps(const bp_model_shape *shape, bp_config *config)
{
    if ((logit_cap(shape) > 0 || logit_scale(shape) > 0) &&
        (shape->head_entmax == 1 || shape->softmaxes > 1))
        bp_config_fault(
            config, "model.capped_logits",
            "logits that are capped or scaled go with one softmax: at head.activation and "
            "head.softmaxes; leave the keys out");
    if (score_cap(shape) > 0 && shape->attention_entmax == 1)
        bp_config_fault(config, "model.capped_scores",
                        "scores that are capped go with softmax: at model.attention_activation; "
                        "leave the key out");
}

void bp_stack_check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    int64_t inner = inner_width(shape);
    bool as_wide = shape->heads * head_width(shape) == shape->width;

    if (shape->stack.head_width == 0)
        bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensors, config);
    if (!as_wide || inner != 4 * shape->width) /* else heads say it */
        bp_transformer_check_inner(shape, inner, tensors, config);
    if (shape->heads % kv_heads(shape) != 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.kv_heads = %lld does not divide model.heads = %lld: at "
                        "model.kv_heads; use one that does",
                        (long long)kv_heads(shape), (long long)shape->heads);
    check_caps(shape, config);
    if (stack_of(shape)->rotary)
        stack_check_rope(shape, config);
}

bp_err bp_stack_check_read(const bp_model_shape *shape, const char *where)
{
    if (shape->stack.head_width == 0)
        return bp_transformer_check_read(shape, where);
    if (shape->heads % kv_heads(shape) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's %lld key heads do not divide its %lld heads: at %s; the "
                       "checkpoint is wrong",
                       (long long)kv_heads(shape), (long long)shape->heads, where);
    return stack_of(shape)->rotary ? stack_check_read_rope(shape, where) : BP_OK;
}

/* ---- blocks ---- */

bp_layer_shape bp_stack_layer(const bp_model_shape *shape, int64_t number)
{
    const bp_stack *stack = stack_of(shape);

    return (bp_layer_shape){.C = shape->width,
                            .entmax = shape->attention_entmax == 1,
                            .H = shape->heads,
                            .D = head_width(shape),
                            .F = inner_width(shape),
                            .G = kv_heads(shape),
                            .rms = stack->rms,
                            .no_norm_bias = stack->no_norm_bias,
                            .epsilon = bp_stack_epsilon(shape),
                            .no_bias = stack->no_bias,
                            .qkv_bias = shape->stack.qkv_bias != 0,
                            .activation = stack->activation,
                            .no_attention_bias = stack->no_attention_bias,
                            .alibi = stack->alibi,
                            .one_norm = stack->one_norm,
                            .parallel = stack->parallel && shape->stack.in_turn == 0,
                            .post_norm = stack->post_norm,
                            .closing_norms = stack->closing_norms,
                            .closing_only = stack->closing_only,
                            .no_first_norm = stack->no_first_norm && number == 0,
                            .query_norm = stack->query_norm,
                            .sees_all = stack->sees_all,
                            .window = window_of(shape, number),
                            .scale = score_scale(shape),
                            .score_cap = score_cap(shape),
                            .branch_scale = (float)shape->stack.branch_scale,
                            .layers = shape->layers,
                            .number = number,
                            .stack = "h",
                            .first_mask = 4 * number + 1}; /* 0 is the embedding's */
}

bp_block *bp_stack_new_layer(bp_network *network, const bp_model_shape *shape, int64_t number)
{
    bp_layer_shape layer = bp_stack_layer(shape, number);

    if (stack_of(shape)->rotary && turns(shape, number))
        layer.rotary = bp_network_rotary(network, stack_rope_of(shape, layer.window));
    return bp_transformer_new_layer(network, &layer);
}

bp_block *bp_stack_new_embedding(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    const bp_stack *stack = stack_of(shape);
    int64_t C = shape->width, first = bp_stack_first_position(shape),
            segments = bp_stack_segments(shape);
    bp_embedding_part part = {.wte =
                                  shared ? shared : bp_transformer_add_table(network, shape, "wte"),
                              .first_position = first,
                              .places_padding = first > 0,
                              .keeps_all = stack->embedding_norm,
                              .scale = embedding_scale(shape)};
    bp_block *block;

    if (stack->position_std > 0 && shape->stack.no_positions == 0) {
        bp_group *whole = bp_network_add_group(network, true);

        part.wpe = bp_group_add_matrix(whole, "wpe", first + bp_model_positions(shape), C,
                                       stack->position_std);
        if (segments > 0)
            part.segments = bp_group_add_matrix(whole, "segments", segments, C, BP_TRANSFORMER_STD);
    }
    bp_embedding_new(&block, &network->nn, &part, 1);
    return block;
}

/* The first block of a family of BP_STACK_FAMILY: with the norm after an embedding. */
static bp_block *new_first(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_row_shape row = {.name = "embedding",
                        .I = shape->width,
                        .O = shape->width,
                        .epsilon = bp_stack_epsilon(shape),
                        .mask = 0,
                        .rms = stack_of(shape)->rms,
                        .no_norm_bias = stack_of(shape)->no_norm_bias};
    bp_block *parts[2], *block;

    parts[0] = bp_stack_new_embedding(network, shape, shared);
    if (!stack_of(shape)->embedding_norm)
        return parts[0];
    bp_row_layer_new(&parts[1], &network->nn, &row, bp_network_add_group(network, true));
    bp_series_new(&block, &network->nn, parts, 2);
    return block;
}

/* In the group of the head's table, where it has one of its own. */
static bp_param *add_head_bias(bp_network *network, const bp_model_shape *shape, bool tied)
{
    bp_group *group =
        tied ? bp_network_add_group(network, false) : &network->groups[network->group_count - 1];
    int64_t first, count;

    bp_vocab_share(&network->nn, shape->vocab_size, &first, &count);
    return bp_group_add_vector_part(group, "head.bias", shape->vocab_size, first, count);
}

static const char *last_norm(const bp_model_shape *shape)
{
    return stack_of(shape)->post_norm ? NULL : "ln_f";
}

bp_block *bp_stack_new_transform(bp_network *network, const bp_model_shape *shape, int64_t mask)
{
    const bp_stack *stack = stack_of(shape);
    bp_row_shape row = {.name = "transform",
                        .I = shape->width,
                        .O = shape->width,
                        .has_product = true,
                        .no_bias = stack->no_bias,
                        .activation = BP_GELU_EXACT,
                        .epsilon = bp_stack_epsilon(shape),
                        .rms = stack->rms,
                        .no_norm_bias = stack->no_norm_bias,
                        .mask = mask};
    bp_block *block;

    bp_row_layer_new(&block, &network->nn, &row, bp_network_add_group(network, true));
    return block;
}

/* After the last norm, where there is one. */
static bp_block *new_transform(bp_network *network, const bp_model_shape *shape)
{
    const bp_stack *stack = stack_of(shape);
    const char *norm = last_norm(shape);
    bp_block *parts[2], *block;

    if (!norm)
        return bp_stack_new_transform(network, shape, BP_ROW_KEEPS_ALL);
    parts[0] = bp_transformer_new_norm(network, &(bp_row_shape){.name = norm,
                                                                .I = shape->width,
                                                                .O = shape->width,
                                                                .rms = stack->rms,
                                                                .no_norm_bias = stack->no_norm_bias,
                                                                .epsilon = bp_stack_epsilon(shape),
                                                                .mask = BP_ROW_KEEPS_ALL});
    parts[1] = bp_stack_new_transform(network, shape, BP_ROW_KEEPS_ALL);
    bp_series_new(&block, &network->nn, parts, 2);
    return block;
}

static bp_block *new_head(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_head_shape head = {.norm = stack_of(shape)->transform ? NULL : last_norm(shape),
                          .sparse = stack_of(shape)->transform,
                          .rms = stack_of(shape)->rms,
                          .epsilon = bp_stack_epsilon(shape),
                          .cap = logit_cap(shape),
                          .scale = logit_scale(shape)};
    bp_param *table = shared ? shared : bp_transformer_add_table(network, shape, "head");
    bp_group *whole = NULL;
    bp_block *block;

    if (stack_of(shape)->head_bias)
        head.bias = add_head_bias(network, shape, shared != NULL);
    bp_variants_set_head(&head, network, shape);
    if (head.norm)
        whole = bp_network_add_group(network, true);
    bp_lm_head_new(&block, &network->nn, &head, table, whole);
    return block;
}

int bp_stack_blocks(const bp_model_shape *shape)
{
    return bp_transformer_blocks(shape) + stack_of(shape)->transform;
}

void bp_stack_add_block(bp_network *network, const bp_model_shape *shape, int number,
                        bp_param *shared)
{
    bp_block *block = number == 0                            ? new_first(network, shape, shared)
                      : number == bp_stack_blocks(shape) - 1 ? new_head(network, shape, shared)
                      : number > shape->layers               ? new_transform(network, shape)
                                               : bp_stack_new_layer(network, shape, number - 1);

    bp_network_add_block(network, block);
}

void bp_stack_begin(bp_network *network, const bp_model_shape *shape)
{
    bp_rope ropes[BP_ROPES];

    if (stack_of(shape)->rotary)
        bp_network_add_rotary(network, ropes, stack_ropes(ropes, shape), shape->context);
}

bp_param *bp_stack_add_shared(bp_network *network, const bp_model_shape *shape, int stage,
                              int stages, int blocks)
{
    return bp_stack_is_tied(shape) ? bp_transformer_add_tied(network, shape, stage, stages, blocks)
                                   : NULL;
}

static double transform_cost(const bp_model_shape *shape)
{
    return stack_of(shape)->transform ? 2 * (double)shape->width * (double)shape->width : 0;
}

/* Of masked models the vocabulary sees only those tokens that are masked. */
static double words_cost(const bp_model_shape *shape)
{
    return (stack_of(shape)->transform ? BP_MASK_RATE : 1) * 2 * (double)shape->vocab_size *
           (double)shape->width;
}

bp_backbone bp_stack_backbone(const bp_model_shape *shape)
{
    const bp_stack *stack = stack_of(shape);

    return (bp_backbone){.blocks = bp_transformer_blocks(shape) - 1,
                         .layers_from = 1,
                         .norm = last_norm(shape),
                         .tied = stack->keeps_words && bp_stack_is_tied(shape) && last_norm(shape),
                         .rms = stack->rms,
                         .no_norm_bias = stack->no_norm_bias,
                         .pooler = stack->transform,
                         .gelu = stack->gelu_pooler,
                         .segments = shape->stack.no_positions ? 0 : bp_stack_segments(shape),
                         .transform = stack->heads_transform ? bp_stack_new_transform : NULL,
                         .epsilon = bp_stack_epsilon(shape),
                         .cap = logit_cap(shape),
                         .scale = logit_scale(shape),
                         .head_flops = 3 * (transform_cost(shape) + words_cost(shape))};
}

/* ---- what follows from sizes ---- */

double bp_stack_embedding_cost(const bp_model_shape *shape)
{
    return 50 * (double)shape->width;
}

double bp_stack_layer_cost(const bp_model_shape *shape, int64_t number)
{
    bp_layer_shape layer = bp_stack_layer(shape, number);
    int64_t T = shape->context, seen = layer.window > 0 && layer.window < T ? layer.window : T;

    return 2 * (double)bp_transformer_layer_products(&layer) +
           4 * (double)seen * (double)(layer.H * layer.D);
}

double bp_stack_cost(const bp_model_shape *shape, int block)
{
    if (block == 0)
        return bp_stack_embedding_cost(shape);
    if (block == bp_stack_blocks(shape) - 1)
        return words_cost(shape);
    if (block > shape->layers)
        return transform_cost(shape);
    return bp_stack_layer_cost(shape, block - 1);
}

/* Backward takes twice what forward does; the embedding is not counted. */
bp_model_facts bp_stack_facts(const bp_model_shape *shape)
{
    double forward = 0;

    for (int block = 1; block < bp_stack_blocks(shape); block++)
        forward += bp_stack_cost(shape, block);
    return (bp_model_facts){.train_flops = 3 * forward};
}
