/* The family of Mamba-2: a stack whose layers are state-space layers. */
#include "models/mamba2/mamba2.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.rms = true, .mixer = BP_STACK_STATES};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_COUNT("head_width", state_head_width),
                                      BP_STACK_STATE_SIZES,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_FLAG("tied", other_tie),
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    {.key = "model.head_width",
     .type = BP_OPTION_INT,
     .min = 1,
     .max = 1 << 20,
     .help = "width of a head; twice model.width over model.heads if not given"},
    BP_STACK_STATE_KEYS,
    {0}};

/* Older checkpoints have epsilon as a float. */
static void fill_defaults(bp_model_shape *shape)
{
    if (shape->stack.epsilon <= 0)
        shape->stack.epsilon = (double)bp_stack_epsilon(shape);
    bp_stack_fill_defaults(shape);
}

static const bp_block_list BLOCK_LIST = {.count = bp_transformer_blocks,
                                         .are = "embedding, layers, head",
                                         .cost = bp_stack_cost,
                                         .backbone = bp_stack_backbone,
                                         .output = bp_transformer_block_output,
                                         .add_shared = bp_stack_add_shared,
                                         .add = bp_stack_add_block};

const bp_model_family bp_mamba2_family = {.name = "mamba2",
                                          .stack = &STACK,
                                          .sizes = SIZES,
                                          .keys = KEYS,
                                          .any_context = true,
                                          .unlimited = true,
                                          .objective = &bp_objective_causal,
                                          .huggingface = bp_mamba2_huggingface,
                                          .fill_defaults = fill_defaults,
                                          .check = bp_stack_check,
                                          .check_read = bp_stack_check_read,
                                          .facts = bp_stack_facts,
                                          .blocks = &BLOCK_LIST};
