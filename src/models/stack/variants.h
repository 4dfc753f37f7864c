/* Variants of parts that several families share: of the vocabulary's head, and of attention's
 * weights. */
#pragma once

#include "models/family.h"
#include "nn/core/layers.h"

#define BP_VARIANT_ACTIVATIONS "softmax|entmax15"

/** A row of a family's sizes, for its layers' attention. */
#define BP_VARIANT_ATTENTION_SIZE                                                                  \
    {                                                                                              \
        .name = "attention_activation", .at = BP_SIZE_AT(attention_entmax),                        \
        .type = BP_SIZE_CHOICE, .words = BP_VARIANT_ACTIVATIONS, .optional = true, .quiet = true   \
    }

/** Rows of a family's sizes, for the head that bp_variants_set_head fills in. */
#define BP_VARIANT_HEAD_SIZES                                                                      \
    {.name = "activation",                                                                         \
     .stored = "head_activation",                                                                  \
     .section = "head",                                                                            \
     .at = BP_SIZE_AT(head_entmax),                                                                \
     .type = BP_SIZE_CHOICE,                                                                       \
     .words = BP_VARIANT_ACTIVATIONS,                                                              \
     .optional = true,                                                                             \
     .quiet = true},                                                                               \
    {                                                                                              \
        .name = "softmaxes", .section = "head", .at = BP_SIZE_AT(softmaxes), .optional = true,     \
        .quiet = true                                                                              \
    }

/** The head's variants, with groups for their parameters. Local. */
void bp_variants_set_head(bp_head_shape *head, bp_network *network, const bp_model_shape *shape);

/** Are the model's `logits` logs of probabilities (bp_model_info)? */
bool bp_variants_give_logs(const bp_model_shape *shape);

/** Added by the head's variants: FLOPs of one token forward in the last block. */
double bp_variants_flops(const bp_model_shape *shape);
