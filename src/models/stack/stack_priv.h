/* What the files of stacks share: widths, blocks around the layers, and rotary positions. */
#pragma once

#include "models/stack/stack.h"

static inline const bp_stack *stack_of(const bp_model_shape *shape)
{
    return shape->family->stack;
}

static inline double real_or(double given, double otherwise)
{
    return given > 0 ? given : otherwise;
}

/* For its norms. */
static inline double stack_epsilon(const bp_model_shape *shape)
{
    return real_or(shape->stack.epsilon, real_or(shape->family->stack->epsilon, 1e-5));
}

static inline bool is_projected(const bp_model_shape *shape)
{
    return bp_stack_embedding_width(shape) != shape->width;
}

/* The shape for token tables: with the embedding's width. */
static inline bp_model_shape of_tables(const bp_model_shape *shape)
{
    bp_model_shape out = *shape;

    out.width = bp_stack_embedding_width(shape);
    return out;
}

static inline bool has_norms_after(const bp_model_shape *shape)
{
    return stack_of(shape)->post_norm || shape->stack.norms_after != 0;
}

/* ---- stack_embedding.c: around the layers ---- */

/** The name of the norm after the last layer; NULL if there is none. */
const char *stack_last_norm(const bp_model_shape *shape);
/** The first block of a family of BP_STACK_FAMILY: with the norm after an embedding, and its
 * projection. */
bp_block *stack_new_first(bp_network *network, const bp_model_shape *shape, bp_param *shared);
/** The transform before the head, after the last norm, if there is one. */
bp_block *stack_new_transform(bp_network *network, const bp_model_shape *shape);

/* ---- stack_states.c: of stacks with state-space layers ---- */

/** Does layer `number`, from 0, have attention? */
bool stack_attends(const bp_model_shape *shape, int64_t number);
/** Their part of bp_stack_fill_defaults, bp_stack_check and bp_stack_check_read. */
void stack_fill_states(bp_model_shape *shape);
void stack_check_states(const bp_model_shape *shape, int tensor_ranks, bp_config *config);
bp_err stack_check_read_states(const bp_model_shape *shape, const char *where);
/** A state-space layer of a network; and its FLOPs, as bp_stack_layer_cost. */
bp_block *stack_new_states(bp_network *network, const bp_model_shape *shape, int64_t number);
double stack_states_cost(const bp_model_shape *shape);

/* ---- stack_rope.c: of stacks with rotary positions ---- */

/** Their part of bp_stack_fill_defaults, bp_stack_check and bp_stack_check_read. */
void stack_fill_rope(bp_model_shape *shape);
void stack_check_rope(const bp_model_shape *shape, bp_config *config);
bp_err stack_check_read_rope(const bp_model_shape *shape, const char *where);
/** The ropes of its layers, and their number; and the one used by a layer with this window (0: no
 * window). The lists are borrowed from the shape. */
int stack_ropes(bp_rope ropes[BP_ROPES], const bp_model_shape *shape);
int stack_rope_of(const bp_model_shape *shape, int64_t window);
