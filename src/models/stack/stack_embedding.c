/* Around the layers of a stack: the embedding with its norm and projection, and the transform
 * before the vocabulary. */
#include "models/stack/stack_priv.h"

#include <math.h>

int64_t bp_stack_segments(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.segments, stack_of(shape)->segments);
}

int64_t bp_stack_first_position(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.first_position, stack_of(shape)->first_position);
}

int64_t bp_stack_embedding_width(const bp_model_shape *shape)
{
    return bp_given_or(shape->stack.embedding, shape->width);
}

const char *stack_last_norm(const bp_model_shape *shape)
{
    return has_norms_after(shape) ? NULL : "ln_f";
}

/* 0: 1 */
static float embedding_scale(const bp_model_shape *shape)
{
    return shape->stack.embedding_scale > 0    ? (float)shape->stack.embedding_scale
           : stack_of(shape)->scales_embedding ? sqrtf((float)shape->width)
                                               : 0;
}

/* If no norm follows, positions have the model's width, and are added after the projection. */
static bool positions_follow(const bp_model_shape *shape)
{
    return is_projected(shape) && !stack_of(shape)->embedding_norm;
}

static bp_block *new_positions(bp_network *network, const bp_model_shape *shape)
{
    int64_t first = bp_stack_first_position(shape);
    bp_embedding_part part = {.first_position = first, .positions_padding = first > 0};
    bp_block *block;

    part.wpe = bp_group_add_matrix(bp_network_add_group(network, true), "wpe",
                                   first + bp_model_positions(shape), shape->width,
                                   stack_of(shape)->position_std);
    bp_embedding_new(&block, &network->nn, &part, 1);
    return block;
}

bp_block *bp_stack_new_embedding(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    const bp_stack *stack = stack_of(shape);
    bp_model_shape tables = of_tables(shape);
    bool later = positions_follow(shape);
    int64_t C = tables.width, first = bp_stack_first_position(shape),
            segments = bp_stack_segments(shape);
    bp_embedding_part part = {.wte = shared ? shared
                                            : bp_transformer_add_table(network, &tables, "wte"),
                              .first_position = first,
                              .positions_padding = first > 0,
                              .keeps_all = stack->embedding_norm,
                              .scale = embedding_scale(shape)};
    bp_block *block;

    part.keeps_all = part.keeps_all || later;
    if (stack->position_std > 0 && shape->stack.no_positions == 0 && !later) {
        bp_group *whole = bp_network_add_group(network, true);

        part.wpe = bp_group_add_matrix(whole, "wpe", first + bp_model_positions(shape), C,
                                       stack->position_std);
        if (segments > 0)
            part.segments = bp_group_add_matrix(whole, "segments", segments, C, BP_TRANSFORMER_STD);
    }
    bp_embedding_new(&block, &network->nn, &part, 1);
    return block;
}

bp_block *stack_new_first(bp_network *network, const bp_model_shape *shape, bp_param *shared)
{
    bp_row_shape row = {.name = "embedding",
                        .I = bp_stack_embedding_width(shape),
                        .O = shape->width,
                        .has_product = is_projected(shape),
                        .linear = true,
                        .no_bias = true,
                        .epsilon = (float)stack_epsilon(shape),
                        .dropout_stream = 0,
                        .rms = stack_of(shape)->rms,
                        .no_norm_bias = stack_of(shape)->no_norm_bias};
    bp_block *parts[3], *block;
    int count = 2;

    parts[0] = bp_stack_new_embedding(network, shape, shared);
    if (!stack_of(shape)->embedding_norm && !is_projected(shape))
        return parts[0];
    if (positions_follow(shape)) {
        row.no_norm = true;
        row.dropout_stream = BP_NO_DROPOUT;
    }
    bp_row_layer_new(&parts[1], &network->nn, &row, bp_network_add_group(network, true));
    if (positions_follow(shape))
        parts[count++] = new_positions(network, shape);
    bp_series_new(&block, &network->nn, parts, count);
    return block;
}

bp_block *bp_stack_new_transform(bp_network *network, const bp_model_shape *shape, int64_t mask)
{
    const bp_stack *stack = stack_of(shape);
    bp_row_shape row = {.name = "transform",
                        .I = shape->width,
                        .O = bp_stack_embedding_width(shape),
                        .has_product = true,
                        .linear = !stack->transform,
                        .no_norm = !stack->transform,
                        .no_bias = stack->no_bias || !stack->transform,
                        .activation = BP_GELU_EXACT,
                        .epsilon = (float)stack_epsilon(shape),
                        .rms = stack->rms,
                        .no_norm_bias = stack->no_norm_bias,
                        .dropout_stream = mask};
    bp_block *block;

    bp_row_layer_new(&block, &network->nn, &row, bp_network_add_group(network, true));
    return block;
}

bp_block *stack_new_transform(bp_network *network, const bp_model_shape *shape)
{
    const bp_stack *stack = stack_of(shape);
    const char *norm = stack_last_norm(shape);
    bp_block *parts[2], *block;

    if (!norm)
        return bp_stack_new_transform(network, shape, BP_NO_DROPOUT);
    parts[0] =
        bp_transformer_new_norm(network, &(bp_row_shape){.name = norm,
                                                         .I = shape->width,
                                                         .O = shape->width,
                                                         .rms = stack->rms,
                                                         .no_norm_bias = stack->no_norm_bias,
                                                         .epsilon = (float)stack_epsilon(shape),
                                                         .dropout_stream = BP_NO_DROPOUT});
    parts[1] = bp_stack_new_transform(network, shape, BP_NO_DROPOUT);
    bp_series_new(&block, &network->nn, parts, 2);
    return block;
}
