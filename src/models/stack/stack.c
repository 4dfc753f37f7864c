/* Derived from a stack: sizes without a key, checks, counts, and the blocks of a network. */
#include "models/stack/stack_priv.h"

#include "models/stack/variants.h"

#include <math.h>

#define DISTANCES 1 /* the set of copies of the table of distances */

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

int64_t bp_stack_state_width(const bp_model_shape *shape)
{
    return bp_task_has_head(&shape->task) ? shape->width : bp_stack_embedding_width(shape);
}

/* Is there something between the layers and the vocabulary? */
static bool has_transform(const bp_model_shape *shape)
{
    return stack_of(shape)->transform || is_projected(shape);
}

static bool is_tied(const bp_model_shape *shape)
{
    return stack_of(shape)->tied != (shape->stack.other_tie != 0);
}

float bp_stack_epsilon(const bp_model_shape *shape)
{
    return (float)stack_epsilon(shape);
}

static float score_cap(const bp_model_shape *shape)
{
    return (float)real_or(shape->stack.score_cap, stack_of(shape)->score_cap);
}

static float logit_cap(const bp_model_shape *shape)
{
    return (float)real_or(shape->stack.logit_cap, stack_of(shape)->logit_cap);
}

/* 0: the head's width. */
static float score_scale(const bp_model_shape *shape)
{
    int64_t width = shape->stack.score_width;

    if (shape->stack.score_scale > 0)
        return (float)shape->stack.score_scale;
    return width > 0 ? 1 / sqrtf((float)width) : 0;
}

static bool has_rotary(const bp_model_shape *shape)
{
    return stack_of(shape)->rotary && shape->stack.unturned == 0;
}

static bool is_last(int64_t number, int64_t period)
{
    return period > 0 && number % period == period - 1;
}

/* 0: attends to all earlier positions. */
static int64_t window_of(const bp_model_shape *shape, int64_t number)
{
    int64_t period = bp_given_or(shape->stack.window_period, stack_of(shape)->window_period);

    bool sees_all = stack_of(shape)->window_leads ? period > 0 && number % period == 0
                                                  : is_last(number, period);

    return sees_all ? 0 : shape->stack.window;
}

/* ---- experts ---- */

int64_t bp_model_experts(const bp_model_shape *shape)
{
    return shape->stack.experts;
}

/* Does layer `number` have experts? */
static bool is_sparse(const bp_model_shape *shape, int64_t number)
{
    int64_t step = bp_given_or(shape->stack.sparse_step, 1);
    bool sparse = bp_model_experts(shape) > 0 && is_last(number, step);

    for (int k = 0; k < BP_MODEL_REALS && shape->stack.dense[k] > 0; k++)
        sparse = sparse && (int64_t)shape->stack.dense[k] != number + 1;
    return sparse;
}

static int64_t sparse_count(const bp_model_shape *shape)
{
    int64_t count = 0;

    for (int64_t number = 0; number < shape->layers; number++)
        count += is_sparse(shape, number);
    return count;
}

double bp_model_balance(const bp_model_shape *shape)
{
    bool has = !bp_task_has_head(&shape->task) && sparse_count(shape) > 0;

    return has ? shape->stack.balance : 0;
}

static int64_t expert_inner(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.expert_inner, inner_width(shape));
}

int64_t bp_model_active_parameters(const bp_model_shape *shape)
{
    int64_t idle = bp_model_experts(shape) - shape->stack.chosen;

    return bp_model_parameters(shape) -
           (bp_model_experts(shape) == 0
                ? 0
                : sparse_count(shape) * idle * 3 * shape->width * expert_inner(shape));
}

double bp_model_expert_cost(const bp_model_shape *shape, int block)
{
    bool has = block > 0 && block <= shape->layers && is_sparse(shape, block - 1);

    return has ? 6.0 * (double)(shape->stack.chosen * shape->width * expert_inner(shape)) : 0;
}

/* For layer `number`. */
static bp_expert_shape experts_of(const bp_model_shape *shape, int64_t number)
{
    bool sparse = is_sparse(shape, number), balanced = bp_model_balance(shape) > 0;

    return (bp_expert_shape){.count = sparse ? bp_model_experts(shape) : 0,
                             .chosen = shape->stack.chosen,
                             .renormalised =
                                 stack_of(shape)->renormalised || shape->stack.renormalised != 0,
                             .balance = balanced,
                             .begins = number == 0,
                             .ends = number == shape->layers - 1,
                             .sparse_count = balanced ? sparse_count(shape) : 0,
                             .most = bp_model_experts(shape)};
}

bp_activations bp_stack_block_output(const bp_model_shape *shape, int block)
{
    bp_activations output = bp_transformer_block_output(shape, block);
    int64_t E = bp_stack_embedding_width(shape);

    if (block > shape->layers) /* a transform's */
        output.item[0].columns = E;
    if (block == 0) /* its projection's input replaces it */
        output.item[0].inside = E;
    if (block == 0 || bp_model_balance(shape) == 0)
        return output;
    output.count = 2;
    output.item[1].name = "choices";
    output.item[1].columns = bp_model_experts(shape);
    output.item[1].has_gradient = true;
    return output;
}

/* ---- positions and scales ---- */

static bool turns(const bp_model_shape *shape, int64_t number)
{
    return has_rotary(shape) &&
           !is_last(number, bp_given_or(shape->stack.rope_period, stack_of(shape)->rope_period));
}

static float logit_scale(const bp_model_shape *shape)
{
    return shape->stack.logit_divisor > 0 ? (float)(1 / shape->stack.logit_divisor) : 0;
}

/* ---- sizes, and valid combinations ---- */

void bp_stack_fill_defaults(bp_model_shape *shape)
{
    bp_stack_sizes *own = &shape->stack;

    if (shape->width % shape->heads == 0)
        own->head_width = head_width(shape);
    own->kv_heads = kv_heads(shape);
    own->inner = inner_width(shape);
    own->segments = bp_stack_segments(shape);
    own->first_position = bp_stack_first_position(shape);
    own->epsilon = stack_epsilon(shape);
    own->score_cap = real_or(own->score_cap, stack_of(shape)->score_cap);
    own->logit_cap = real_or(own->logit_cap, stack_of(shape)->logit_cap);
    own->sparse_step = own->experts > 0 ? bp_given_or(own->sparse_step, 1) : 0;
    own->expert_inner = own->experts > 0 ? expert_inner(shape) : 0;
    own->window_period = bp_given_or(own->window_period, stack_of(shape)->window_period);
    own->rope_period = bp_given_or(own->rope_period, stack_of(shape)->rope_period);
    if (stack_of(shape)->rotary)
        stack_fill_rope(shape);
    if (stack_of(shape)->distances)
        bp_distance_fill_defaults(shape);
    if (stack_of(shape)->mixer != BP_STACK_ATTENTION)
        stack_fill_states(shape);
}

/* Numbers up to `count` that divide it: "1, 2, 4, 8". */
static void list_shares(char *out, size_t bytes, int64_t count)
{
    size_t used = 0;

    out[0] = '\0';
    for (int64_t d = 1; d <= count && used < bytes; d++)
        if (count % d == 0)
            used += (size_t)snprintf(out + used, bytes - used, "%s%lld", used > 0 ? ", " : "",
                                     (long long)d);
}

void bp_model_check_experts(const bp_model_shape *shape, int ranks, bp_config *config)
{
    int64_t experts = bp_model_experts(shape);
    char fits[128];

    if (ranks == 1)
        return;
    list_shares(fits, sizeof fits, experts);
    if (experts == 0)
        bp_config_fault(config, "mesh.no_experts",
                        "mesh.expert = %d, but the model has no experts: at mesh.expert; leave it "
                        "at 1, or use model.kind=mixtral, olmoe or qwen3_moe",
                        ranks);
    else if (experts % ranks != 0)
        bp_config_fault(config, "mesh.uneven_experts",
                        "mesh.expert = %d does not divide model.experts = %lld: at mesh.expert; "
                        "numbers that fit: %s",
                        ranks, (long long)experts, fits);
}

static void check_experts(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    const bp_stack_sizes *own = &shape->stack;

    if (own->chosen > own->experts)
        bp_config_fault(config, "model.few_experts",
                        "model.experts_chosen = %lld is more than model.experts = %lld: at "
                        "model.experts_chosen; use %lld or less",
                        (long long)own->chosen, (long long)own->experts, (long long)own->experts);
    if (own->experts > 0 && sparse_count(shape) == 0)
        bp_config_fault(config, "model.no_experts",
                        "model.experts = %lld, and no layer has any: at model.experts_step, "
                        "model.experts_dense; leave them out, or name fewer layers",
                        (long long)own->experts);
    for (int k = 0; k < BP_MODEL_REALS && own->dense[k] != 0; k++)
        if (own->dense[k] != floor(own->dense[k]) || own->dense[k] > (double)shape->layers)
            bp_config_fault(config, "model.bad_layers",
                            "model.experts_dense names %g, which is not a layer from 1 to %lld: at "
                            "model.experts_dense; use a list such as 1,2",
                            own->dense[k], (long long)shape->layers);
    if (expert_inner(shape) != inner_width(shape))
        bp_transformer_check_inner(shape, expert_inner(shape), tensor_ranks, config);
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

void bp_stack_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    int64_t inner = inner_width(shape);
    bool as_wide = shape->heads * head_width(shape) == shape->width;

    if (stack_of(shape)->mixer != BP_STACK_ATTENTION)
        stack_check_states(shape, tensor_ranks, config);
    if (stack_of(shape)->mixer == BP_STACK_STATES)
        return;
    if (shape->stack.head_width == 0)
        bp_transformer_check_width(shape, config);
    bp_transformer_check_heads(shape, tensor_ranks, config);
    if (!as_wide || inner != 4 * shape->width) /* else reported by heads */
        bp_transformer_check_inner(shape, inner, tensor_ranks, config);
    if (shape->heads % kv_heads(shape) != 0)
        bp_config_fault(config, "model.not_dividing",
                        "model.kv_heads = %lld does not divide model.heads = %lld: at "
                        "model.kv_heads; use one that does",
                        (long long)kv_heads(shape), (long long)shape->heads);
    check_caps(shape, config);
    if (stack_of(shape)->distances)
        bp_distance_check(shape, config);
    check_experts(shape, tensor_ranks, config);
    if (has_rotary(shape))
        stack_check_rope(shape, config);
}

void bp_stack_check_embedding(const bp_model_shape *shape, bp_config *config)
{
    if (is_projected(shape) && (shape->softmaxes > 1 || shape->head_entmax == 1))
        bp_config_fault(config, "model.projected_embedding",
                        "model.embedding = %lld goes with one softmax: at head.softmaxes and "
                        "head.activation; leave the keys out",
                        (long long)bp_stack_embedding_width(shape));
}

bp_err bp_stack_check_read(const bp_model_shape *shape, const char *where)
{
    bp_stack_mixer mixer = stack_of(shape)->mixer;
    bp_err err = mixer != BP_STACK_ATTENTION  ? stack_check_read_states(shape, where)
                 : stack_of(shape)->distances ? bp_distance_check_read(shape, where)
                                              : BP_OK;

    if (err != BP_OK || mixer == BP_STACK_STATES)
        return err;
    if (shape->stack.head_width == 0)
        return bp_transformer_check_read(shape, where);
    if (shape->stack.chosen > shape->stack.experts)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model chooses %lld of %lld experts: at %s; the checkpoint is wrong",
                       (long long)shape->stack.chosen, (long long)shape->stack.experts, where);
    if (shape->heads % kv_heads(shape) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "model.bad_size",
                       "the model's %lld key heads do not divide its %lld heads: at %s; the "
                       "checkpoint is wrong",
                       (long long)kv_heads(shape), (long long)shape->heads, where);
    return has_rotary(shape) ? stack_check_read_rope(shape, where) : BP_OK;
}

/* ---- blocks ---- */

static bp_activation activation_of(const bp_model_shape *shape)
{
    return shape->stack.other_activation != 0 ? stack_of(shape)->other_activation
                                              : stack_of(shape)->activation;
}

bp_layer_shape bp_stack_layer(const bp_model_shape *shape, int64_t number)
{
    const bp_stack *stack = stack_of(shape);
    bool attends = stack_attends(shape, number);

    return (bp_layer_shape){.C = shape->width,
                            .entmax = shape->attention_entmax == 1,
                            .H = attends ? shape->heads : 0,
                            .D = head_width(shape),
                            .F =
                                is_sparse(shape, number) ? expert_inner(shape) : inner_width(shape),
                            .experts = experts_of(shape, number),
                            .clip = (float)shape->stack.clip,
                            .G = kv_heads(shape),
                            .rms = stack->rms,
                            .no_norm_bias = stack->no_norm_bias,
                            .epsilon = bp_stack_epsilon(shape),
                            .no_bias = stack->no_bias,
                            .qkv_bias = shape->stack.qkv_bias != 0,
                            .activation = activation_of(shape),
                            .unscaled = stack->unscaled,
                            .no_attention_bias = stack->no_attention_bias,
                            .alibi = stack->alibi,
                            .one_norm = stack->one_norm,
                            .parallel = stack->parallel && shape->stack.in_turn == 0,
                            .post_norm = has_norms_after(shape),
                            .closing_norms = stack->closing_norms,
                            .closing_only = stack->closing_only,
                            .no_first_norm = stack->no_first_norm && number == 0,
                            .query_norm = attends ? stack->query_norm : BP_QUERY_NORM_NONE,
                            .sees_all = stack->sees_all,
                            .window = window_of(shape, number),
                            .scale = score_scale(shape),
                            .score_cap = score_cap(shape),
                            .branch_scale = (float)shape->stack.branch_scale,
                            .layers = shape->layers,
                            .number = number,
                            .stack = "h",
                            .first_dropout_stream = 4 * number + 1}; /* 0 is the embedding's */
}

/* A state-space layer; with its MLP in a hybrid stack. */
static bp_block *new_states(bp_network *network, const bp_model_shape *shape, int64_t number)
{
    bp_layer_shape layer = bp_stack_layer(shape, number);
    bp_block *parts[2] = {stack_new_states(network, shape, number)}, *block;

    if (stack_of(shape)->mixer == BP_STACK_STATES)
        return parts[0];
    parts[1] = bp_transformer_new_layer(network, &layer);
    bp_series_new(&block, &network->nn, parts, 2);
    return block;
}

bp_block *bp_stack_new_layer(bp_network *network, const bp_model_shape *shape, int64_t number)
{
    bp_layer_shape layer = bp_stack_layer(shape, number);

    if (!stack_attends(shape, number))
        return new_states(network, shape, number);
    if (stack_of(shape)->distances)
        bp_distance_set(&layer, network, shape, DISTANCES, BP_TRANSFORMER_STD);
    if (turns(shape, number))
        layer.rotary = bp_network_rotary(network, stack_rope_of(shape, layer.window));
    return bp_transformer_new_layer(network, &layer);
}

/* In the group of the head's table, if the head has its own. */
static bp_param *add_head_bias(bp_network *network, const bp_model_shape *shape, bool tied)
{
    bp_group *group =
        tied ? bp_network_add_group(network, false) : &network->groups[network->group_count - 1];

    return bp_network_add_word_biases(network, group, "head.bias", shape->vocab_size);
}

static bp_block *new_head(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_head_shape head = {.norm = has_transform(shape) ? NULL : stack_last_norm(shape),
                          .sparse = stack_of(shape)->transform,
                          .rms = stack_of(shape)->rms,
                          .epsilon = bp_stack_epsilon(shape),
                          .cap = logit_cap(shape),
                          .scale = logit_scale(shape)};
    bp_model_shape tables = of_tables(shape);
    bp_param *table = shared ? shared : bp_transformer_add_table(network, &tables, "head");
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
    return bp_transformer_blocks(shape) + has_transform(shape);
}

void bp_stack_add_block(bp_network *network, const bp_model_shape *shape, int number,
                        bp_param *shared)
{
    bp_block *block = number == 0 ? stack_new_first(network, shape, shared)
                      : number == bp_stack_blocks(shape) - 1 ? new_head(network, shape, shared)
                      : number > shape->layers               ? stack_new_transform(network, shape)
                                               : bp_stack_new_layer(network, shape, number - 1);

    bp_network_add_block(network, block);
}

static void begin(bp_network *network, const bp_model_shape *shape)
{
    bp_rope ropes[BP_ROPES];

    if (has_rotary(shape))
        bp_network_add_rotary(network, ropes, stack_ropes(ropes, shape), shape->context);
}

bp_param *bp_stack_add_shared(bp_network *network, const bp_model_shape *shape, int stage,
                              int stages, int blocks)
{
    bp_model_shape tables = of_tables(shape);

    return is_tied(shape) ? bp_transformer_add_tied(network, &tables, stage, stages, blocks) : NULL;
}

static void add_common(bp_network *network, const bp_model_shape *shape, int stage)
{
    bp_tied_table table = {"relative", shape->stack.relative_buckets, shape->heads,
                           BP_TRANSFORMER_STD};

    if (stack_of(shape)->distances)
        bp_distance_add_common(network, shape, &table, DISTANCES, stage);
}

static double transform_cost(const bp_model_shape *shape)
{
    return has_transform(shape) ? 2 * (double)shape->width * (double)bp_stack_embedding_width(shape)
                                : 0;
}

/* In masked models, the vocabulary reads only the masked tokens. */
static double words_cost(const bp_model_shape *shape)
{
    return (stack_of(shape)->transform ? BP_MASK_RATE : 1) * 2 * (double)shape->vocab_size *
           (double)bp_stack_embedding_width(shape);
}

bp_backbone bp_stack_backbone(const bp_model_shape *shape)
{
    const bp_stack *stack = stack_of(shape);

    return (bp_backbone){.blocks = bp_transformer_blocks(shape) - 1,
                         .layers_from = 1,
                         .norm = stack_last_norm(shape),
                         .tied = stack->keeps_words && is_tied(shape) && !is_projected(shape),
                         .rms = stack->rms,
                         .no_norm_bias = stack->no_norm_bias,
                         .pooler = stack->transform && !stack->no_pooler,
                         .gelu = stack->gelu_pooler,
                         .segments = shape->stack.no_positions ? 0 : bp_stack_segments(shape),
                         .transform = stack->heads_transform ? bp_stack_new_transform : NULL,
                         .epsilon = bp_stack_epsilon(shape),
                         .cap = logit_cap(shape),
                         .scale = logit_scale(shape),
                         .head_flops = 3 * (transform_cost(shape) + words_cost(shape))};
}

/* ---- derived from sizes ---- */

double bp_stack_embedding_cost(const bp_model_shape *shape)
{
    int64_t E = bp_stack_embedding_width(shape);

    return 50 * (double)shape->width + (is_projected(shape) ? 2 * (double)(E * shape->width) : 0);
}

double bp_stack_layer_cost(const bp_model_shape *shape, int64_t number)
{
    bp_layer_shape layer = bp_stack_layer(shape, number);
    int64_t T = shape->context, seen = layer.window > 0 && layer.window < T ? layer.window : T;

    if (stack_of(shape)->mixer == BP_STACK_STATES)
        return stack_states_cost(shape);
    if (!stack_attends(shape, number))
        return stack_states_cost(shape) + 2 * (double)bp_transformer_layer_products(&layer);
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

/* Backward costs twice the forward pass; without the embedding. */
bp_model_facts bp_stack_facts(const bp_model_shape *shape)
{
    double forward = 0;

    for (int block = 1; block < bp_stack_blocks(shape); block++)
        forward += bp_stack_cost(shape, block);
    return (bp_model_facts){.train_flops = 3 * forward};
}

const bp_block_list bp_stack_block_list = {BP_STACK_BLOCKS, .cost = bp_stack_cost, .begin = begin,
                                           .add_common = add_common, .add = bp_stack_add_block};
