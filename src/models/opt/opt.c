/* The family of OPT. */
#include "models/opt/opt.h"

#include "models/stack/stack.h"
#include "models/stack/variants.h"

static const bp_stack STACK = {.position_std = BP_TRANSFORMER_STD,
                               .first_position = 2,
                               .activation = BP_RELU,
                               .tied = true,
                               .keeps_words = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_TIED,
                                      BP_STACK_QUIET("embedding", embedding),
                                      {.name = "norms_first",
                                       .at = BP_SIZE_AT(stack.norms_after),
                                       .type = BP_SIZE_FLAG,
                                       .optional = true,
                                       .quiet = true,
                                       .inverse = true},
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {{.key = "model.tied",
                                  .type = BP_OPTION_BOOL,
                                  .help = "the head is the token embedding; yes if not given"},
                                 {.key = "model.norms_first",
                                  .type = BP_OPTION_BOOL,
                                  .help =
                                      "norms precede attention and MLP, with one more before "
                                      "the head, else they follow (OPT-350M); yes if not given"},
                                 {.key = "model.embedding",
                                  .type = BP_OPTION_INT,
                                  .min = 1,
                                  .max = 1 << 20,
                                  .help = "width of token embeddings, which a projection makes as "
                                          "wide as the model, and another one so wide again before "
                                          "the head; model.width if not given"},
                                 {0}};

static void fill_defaults(bp_model_shape *shape)
{
    bp_stack_fill_defaults(shape);
    shape->stack.embedding = bp_stack_embedding_width(shape);
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_stack_check(shape, tensor_ranks, config);
    bp_stack_check_embedding(shape, config);
}

const bp_model_family bp_opt_family = {.name = "opt",
                                       .stack = &STACK,
                                       .sizes = SIZES,
                                       .keys = KEYS,
                                       .objective = &bp_objective_causal,
                                       .huggingface = bp_opt_huggingface,
                                       .state_width = bp_stack_state_width,
                                       BP_STACK_ENCODER(fill_defaults, check)};
