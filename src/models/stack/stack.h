/* A Transformer of one stack, decoder or encoder, is data: a bp_stack describes a family's layers,
 * positions and head. bp_model_shape.stack has the values of keys for one model. The rest is
 * computed here from both. */
#pragma once

#include "models/family.h"
#include "models/stack/rotary.h"
#include "models/stack/transformer.h"
#include "models/stack/variants.h"
#include "nn/core/layers.h"

/** What mixes the rows of a text in its layers: attention; a state-space layer, which has no MLP;
 * or either of them by the layer's number, with an MLP after it. */
typedef enum bp_stack_mixer { BP_STACK_ATTENTION, BP_STACK_STATES, BP_STACK_HYBRID } bp_stack_mixer;

/** What a family's models have in common, and the defaults of their keys. */
typedef struct bp_stack {
    /* Norms. */
    bool rms;              /* RMS norms, without a bias */
    bool no_norm_bias;     /* bp_layer_shape.no_norm_bias, and other norms have none either */
    double epsilon;        /* 0: 1e-5 */
    bool post_norm;        /* bp_layer_shape.post_norm; no norm before the head */
    bool gains_from_one;   /* gains are 1 + the stored value */
    bool closing_norms;    /* bp_layer_shape.closing_norms */
    bool closing_only;     /* bp_layer_shape.closing_only */
    bool no_first_norm;    /* bp_layer_shape.no_first_norm, for the first layer */
    bool embedding_norm;   /* a separate block after the embedding, whose dropout moves there */
    bool scales_embedding; /* by the square root of the width */
    /* Positions: learned, rotary, or none. */
    float position_std;     /* initial standard deviation of the table "wpe"; 0: no table */
    int64_t first_position; /* the table's row for a text's first token; padding has the row before
                               it */
    bool no_pooler;   /* the head of a task reads a text's last state, in spite of transform */
    bool relu_pooler; /* bp_backbone.relu */
    bool gelu_pooler; /* bp_backbone.gelu in bp_stack_backbone */
    int64_t segments; /* number of segment embeddings; 0: none */
    bool rotary;
    double rope_fraction; /* share of a head that is rotated; 0: all, without a key */
    /* Layers. */
    bp_stack_mixer mixer;
    bool sees_all;            /* an encoder */
    bp_query_norm query_norm; /* bp_layer_shape.query_norm */
    bool one_norm;            /* bp_layer_shape.one_norm */
    bool parallel;            /* attention and MLP have the same input, and are added together */
    int64_t rope_period; /* in each group of this many layers the last one has no rotary positions;
                            0: all have them */
    int64_t window_period;  /* in each group of this many layers the last one has no window; 0: all
                               have it */
    bool window_leads;      /* the first one of each group has no window, instead */
    double score_cap;       /* bp_layer_shape.score_cap; 0: none */
    bool alibi;             /* bp_layer_shape.alibi */
    bool distances;         /* bp_layer_shape.relative: one table for all layers, "relative" */
    bool unscaled;          /* bp_layer_shape.unscaled */
    bool no_attention_bias; /* bp_layer_shape.no_attention_bias */
    bool no_bias;           /* no biases on linear maps; queries, keys and values may have them
                               (attention_bias) */
    bp_activation activation;       /* of the MLP, and of experts (BP_SWIGLU, BP_GEGLU) */
    bp_activation other_activation; /* of the MLP, if bp_stack_sizes.other_activation is set */
    bool renormalised;              /* bp_expert_shape.renormalised, without a key */
    int64_t inner_thirds;           /* its inner width is this many thirds of the width; 0: 12, */
    int64_t inner_multiple;         /* rounded up to a multiple of this; 0: 1 */
    /* The head. */
    double logit_cap; /* bp_head_shape.cap; 0: none */
    bool tied;        /* to the embedding */
    bool head_bias;   /* "head.bias", of the logits */
    bool transform;   /* before it, after the last norm, "transform": norm(gelu(W h + b)), before a
                         task's head too if heads_transform; the head predicts masked words */
    bool heads_transform;
    bool keeps_words; /* bp_backbone.tied, if the head is tied */
} bp_stack;

/** Rows of a family's sizes: optional ones, in bp_model_shape.stack. */
#define BP_STACK_SIZES                                                                             \
    {.name = "layers", .at = BP_SIZE_AT(layers)}, {.name = "width", .at = BP_SIZE_AT(width)},      \
    {                                                                                              \
        .name = "heads", .at = BP_SIZE_AT(heads)                                                   \
    }
#define BP_STACK_CONTEXT                                                                           \
    {                                                                                              \
        .name = "context", .at = BP_SIZE_AT(context)                                               \
    }
#define BP_STACK_COUNT(key, field)                                                                 \
    {                                                                                              \
        .name = key, .at = BP_SIZE_AT(stack.field), .optional = true                               \
    }
#define BP_STACK_REAL(key, field)                                                                  \
    {                                                                                              \
        .name = key, .at = BP_SIZE_AT(stack.field), .type = BP_SIZE_REAL, .optional = true         \
    }
#define BP_STACK_FLAG(key, field)                                                                  \
    {                                                                                              \
        .name = key, .at = BP_SIZE_AT(stack.field), .type = BP_SIZE_FLAG, .optional = true         \
    }
/** Not written where they equal the family's defaults. */
#define BP_STACK_QUIET(key, field)                                                                 \
    {                                                                                              \
        .name = key, .at = BP_SIZE_AT(stack.field), .optional = true, .quiet = true                \
    }
#define BP_STACK_QUIET_REAL(key, field)                                                            \
    {                                                                                              \
        .name = key, .at = BP_SIZE_AT(stack.field), .type = BP_SIZE_REAL, .optional = true,        \
        .quiet = true                                                                              \
    }
/** For families with experts, in every layer unless the family's list has more sizes. */
#define BP_STACK_EXPERTS                                                                           \
    {.name = "experts", .at = BP_SIZE_AT(stack.experts)},                                          \
        {.name = "experts_chosen", .at = BP_SIZE_AT(stack.chosen)},                                \
    {                                                                                              \
        .name = "experts_balance", .at = BP_SIZE_AT(stack.balance), .type = BP_SIZE_REAL,          \
        .optional = true, .of_training = true                                                      \
    }
#define BP_STACK_EXPERT_LAYERS                                                                     \
    BP_STACK_QUIET("experts_inner", expert_inner), BP_STACK_QUIET("experts_step", sparse_step),    \
    {                                                                                              \
        .name = "experts_dense", .at = BP_SIZE_AT(stack.dense), .type = BP_SIZE_REALS,             \
        .optional = true                                                                           \
    }
#define BP_STACK_EXPERT_KEYS                                                                       \
    {BP_INT_KEY("model.experts", NULL, 1, BP_STACK_EXPERTS_MOST),                                  \
     .help = "experts of a layer, in the place of its MLP"},                                       \
        {BP_INT_KEY("model.experts_chosen", NULL, 1, BP_STACK_EXPERTS_MOST),                       \
         .help = "experts that a token goes through in a layer"},                                  \
    {                                                                                              \
        BP_REAL_KEY("model.experts_balance", NULL, 0, 1e3),                                        \
            .help = "weight of the balance loss in training (docs/training_reference.md); 0, as "  \
                    "if not given: there is none"                                                  \
    }
#define BP_STACK_EXPERTS_MOST 1024
#define BP_STACK_RENORMALISED BP_STACK_FLAG("experts_renormalised", renormalised)
#define BP_STACK_RENORMALISED_KEY                                                                  \
    {                                                                                              \
        BP_BOOL_KEY("model.experts_renormalised", NULL),                                           \
            .help = "shares of the experts that a token goes through are divided by their sum; "   \
                    "no if not given"                                                              \
    }
/** An inverted flag, set by default, written where it is not set; and model.tied for a family whose
 * head is tied by default. */
#define BP_STACK_QUIET_INVERSE(key, field)                                                         \
    {                                                                                              \
        .name = key, .at = BP_SIZE_AT(stack.field), .type = BP_SIZE_FLAG, .optional = true,        \
        .quiet = true, .inverse = true                                                             \
    }
#define BP_STACK_TIED BP_STACK_QUIET_INVERSE("tied", other_tie)
/** Rows of a family's own keys: the inner width of a gated MLP, and another epsilon of norms. */
#define BP_STACK_GATED_INNER_KEY                                                                   \
    {                                                                                              \
        BP_INT_KEY("model.inner", NULL, 1, 1 << 22),                                               \
            .help =                                                                                \
                "inner width of the MLP; 8/3 of the width if not given, up to a multiple of 64"    \
    }
#define BP_STACK_EXPERT_INNER_KEY                                                                  \
    {                                                                                              \
        BP_INT_KEY("model.inner", NULL, 1, 1 << 22),                                               \
            .help =                                                                                \
                "inner width of an expert; 8/3 of the width if not given, up to a multiple of 64"  \
    }
#define BP_STACK_SMALL_EPSILON_KEY                                                                 \
    {                                                                                              \
        BP_REAL_KEY("model.norm_epsilon", NULL, 1e-12, 1),                                         \
            .help = "what norms add to the mean square; 1e-6 if not given"                         \
    }
#define BP_STACK_TIED_KEY                                                                          \
    {                                                                                              \
        BP_BOOL_KEY("model.tied", NULL),                                                           \
            .help = "the head is the token embedding; yes if not given"                            \
    }
/** Windows by layer; the scale of scores, and caps. */
#define BP_STACK_WINDOW_PERIOD_KEY                                                                 \
    {                                                                                              \
        BP_INT_KEY("model.window_period", NULL, 1, 10000),                                         \
            .help = "in each group of this many layers the last one sees all tokens, the others "  \
                    "see model.window"                                                             \
    }
#define BP_STACK_PERIOD_KEYS                                                                       \
    BP_STACK_WINDOW_PERIOD_KEY,                                                                    \
        {BP_INT_KEY("model.score_width", NULL, 1, 1 << 20),                                        \
         .help = "scores are divided by its root; the width of a head if not given"},              \
        {BP_REAL_KEY("model.score_cap", NULL, 1e-3, 1e6),                                          \
         .help = "scores become cap tanh(score / cap); they stay as they are if not given"},       \
    {                                                                                              \
        BP_REAL_KEY("model.logit_cap", NULL, 1e-3, 1e6),                                           \
            .help = "logits become cap tanh(logit / cap); they stay as they are if not given"      \
    }
/** Multipliers of the embedding, scores, branches and logits. */
#define BP_STACK_MULTIPLIERS                                                                       \
    BP_STACK_REAL("embedding_multiplier", embedding_scale),                                        \
        BP_STACK_REAL("attention_multiplier", score_scale),                                        \
        BP_STACK_REAL("residual_multiplier", branch_scale),                                        \
        BP_STACK_REAL("logits_scaling", logit_divisor)
#define BP_STACK_MULTIPLIER_KEYS                                                                   \
    {BP_REAL_KEY("model.embedding_multiplier", NULL, 1e-6, 1e6),                                   \
     .help = "of the vectors of tokens; 1 if not given"},                                          \
        {BP_REAL_KEY("model.attention_multiplier", NULL, 1e-6, 1e6),                               \
         .help = "of scores, which are products of queries and keys; 1 over the root of the "      \
                 "width of a head if not given"},                                                  \
        {BP_REAL_KEY("model.residual_multiplier", NULL, 1e-6, 1e6),                                \
         .help = "of what attention and MLP add; 1 if not given"},                                 \
    {                                                                                              \
        BP_REAL_KEY("model.logits_scaling", NULL, 1e-6, 1e6),                                      \
            .help = "by what logits are divided; 1 if not given"                                   \
    }
/** State-space layers: state size, groups, taps of the convolution. */
#define BP_STACK_STATE_SIZES                                                                       \
    BP_STACK_COUNT("state", state), BP_STACK_COUNT("groups", groups), BP_STACK_COUNT("taps", taps)
#define BP_STACK_STATE_KEYS                                                                        \
    {BP_INT_KEY("model.state", NULL, 1, 1 << 16),                                                  \
     .help = "numbers of the state for each number of a head; 128 if not given"},                  \
        {BP_INT_KEY("model.groups", NULL, 1, 1 << 16),                                             \
         .help = "groups of heads, which write and read their states alike; 1 if not given"},      \
    {                                                                                              \
        BP_INT_KEY("model.taps", NULL, 1, 64),                                                     \
            .help =                                                                                \
                "positions that the convolution reads, the present one included; 4 if not given"   \
    }
/** Hybrid stacks: which layers have attention, the same sizes, and the heads of the other layers.
 */
#define BP_STACK_HYBRID_SIZES                                                                      \
    {.name = "attention_layers",                                                                   \
     .at = BP_SIZE_AT(stack.attention_layers),                                                     \
     .type = BP_SIZE_REALS,                                                                        \
     .optional = true},                                                                            \
        BP_STACK_COUNT("state_heads", state_heads),                                                \
        BP_STACK_COUNT("state_head_width", state_head_width), BP_STACK_STATE_SIZES
#define BP_STACK_HYBRID_KEYS                                                                       \
    BP_STACK_STATE_KEYS,                                                                           \
        {BP_STRING_KEY("model.attention_layers", NULL),                                            \
         .help = "a list 6,16 of the layers that have attention, from 1 on; the others are "       \
                 "state-space layers, all if not given"},                                          \
        {BP_INT_KEY("model.state_heads", NULL, 1, 1 << 16),                                        \
         .help =                                                                                   \
             "heads of state-space layers, a multiple of mesh.tensor; model.heads if not given"},  \
    {                                                                                              \
        BP_INT_KEY("model.state_head_width", NULL, 1, 1 << 20),                                    \
            .help = "their width; twice model.width over their number if not given"                \
    }
/** How frequencies of rotary positions are scaled (models/stack/rotary.h). */
#define BP_STACK_SCALING                                                                           \
    {.name = "rope_scaling",                                                                       \
     .at = BP_SIZE_AT(stack.rope_scaling),                                                         \
     .type = BP_SIZE_CHOICE,                                                                       \
     .optional = true,                                                                             \
     .quiet = true,                                                                                \
     .words = BP_ROPE_SCALINGS},                                                                   \
        BP_STACK_QUIET_REAL("rope_factor", rope_factor),                                           \
        BP_STACK_REAL("rope_low_freq_factor", rope_low),                                           \
        BP_STACK_REAL("rope_high_freq_factor", rope_high),                                         \
        BP_STACK_QUIET("rope_original_context", rope_original),                                    \
        BP_STACK_QUIET_REAL("rope_beta_fast", rope_beta_fast),                                     \
        BP_STACK_QUIET_REAL("rope_beta_slow", rope_beta_slow),                                     \
        BP_STACK_REAL("rope_attention_factor", rope_attention_factor),                             \
        BP_STACK_REAL("rope_mscale", rope_mscale),                                                 \
        BP_STACK_REAL("rope_mscale_all_dim", rope_mscale_all),                                     \
        BP_STACK_QUIET_INVERSE("rope_truncate", rope_untruncated),                                 \
        {.name = "rope_short_factors",                                                             \
         .at = BP_SIZE_AT(stack.rope_short),                                                       \
         .type = BP_SIZE_REALS,                                                                    \
         .optional = true},                                                                        \
    {                                                                                              \
        .name = "rope_long_factors", .at = BP_SIZE_AT(stack.rope_long), .type = BP_SIZE_REALS,     \
        .optional = true                                                                           \
    }

/** LLaMA and those after it differ in few members of a bp_stack, and in few sizes. Members: RMS
 * norms, rotary positions, SwiGLU, no biases; sizes: BP_STACK_LLAMA_SIZES, own ones, and
 * BP_STACK_LAST_SIZES. */
#define BP_STACK_LLAMA                                                                             \
    .rms = true, .rotary = true, .no_bias = true, .activation = BP_SWIGLU, .inner_thirds = 8,      \
    .inner_multiple = 64
#define BP_STACK_GROUPED                                                                           \
    BP_STACK_SIZES, BP_STACK_COUNT("kv_heads", kv_heads), BP_STACK_COUNT("inner", inner)
#define BP_STACK_ROTARY                                                                            \
    BP_STACK_REAL("norm_epsilon", epsilon), BP_STACK_REAL("rope_theta", rope_theta),               \
        BP_STACK_SCALING
#define BP_STACK_LLAMA_SIZES BP_STACK_GROUPED, BP_STACK_CONTEXT, BP_STACK_ROTARY
#define BP_STACK_UNTIED      BP_STACK_FLAG("tied", other_tie)
#define BP_STACK_LAST_SIZES                                                                        \
    BP_STACK_QUIET("head_width", head_width), BP_VARIANT_ATTENTION_SIZE, BP_VARIANT_HEAD_SIZES

static inline bool bp_stack_is_hybrid(const bp_stack *stack)
{
    return stack && stack->mixer == BP_STACK_HYBRID; /* a block has a group more */
}

/** Values that are not given become the stack's: bp_model_family.fill_defaults. The other functions
 * do not need it. */
void bp_stack_fill_defaults(bp_model_shape *shape);
/** Heads divide the width unless their width is given, heads of keys divide heads, tensor ranks
 * heads and the inner width, and rotary dimensions are even: bp_model_family.check, check_read. */
void bp_stack_check(const bp_model_shape *shape, int tensor_ranks, bp_config *config);
bp_err bp_stack_check_read(const bp_model_shape *shape, const char *where);
/** Embeddings whose width differs from the model's require a single softmax. */
void bp_stack_check_embedding(const bp_model_shape *shape, bp_config *config);

int64_t bp_stack_segments(const bp_model_shape *shape);
int64_t bp_stack_first_position(const bp_model_shape *shape);
/** Width of the embedding's tables, and of the head's. */
int64_t bp_stack_embedding_width(const bp_model_shape *shape);
/** Width of the vocabulary's input: bp_model_family.state_width; task heads read the layers'
 * output. */
int64_t bp_stack_state_width(const bp_model_shape *shape);
float bp_stack_epsilon(const bp_model_shape *shape);
/** Layer `number`, from 0, without its network's part (rotary); for a layer without attention, only
 * its MLP. */
bp_layer_shape bp_stack_layer(const bp_model_shape *shape, int64_t number);

/** Blocks of a network: the embedding, and layer `number`. */
bp_block *bp_stack_new_embedding(bp_network *network, const bp_model_shape *shape,
                                 bp_param *shared);
bp_block *bp_stack_new_layer(bp_network *network, const bp_model_shape *shape, int64_t number);
/** "transform": norm(gelu(W h + b)), with this stream of dropout masks. */
bp_block *bp_stack_new_transform(bp_network *network, const bp_model_shape *shape, int64_t mask);
/** Approximate FLOPs of one token forward through the embedding: a few passes over the width; and
 * through layer `number`: 2 per entry of its matrices, and for attention 4 per key and column of a
 * head. Source: Kaplan et al. 2020, section 2.1. */
double bp_stack_embedding_cost(const bp_model_shape *shape);
double bp_stack_layer_cost(const bp_model_shape *shape, int64_t number);

/** For the lists of blocks of families, under their names there. */
bp_param *bp_stack_add_shared(bp_network *network, const bp_model_shape *shape, int stage,
                              int stages, int blocks);
int bp_stack_blocks(const bp_model_shape *shape);
double bp_stack_cost(const bp_model_shape *shape, int block);
void bp_stack_add_block(bp_network *network, const bp_model_shape *shape, int number,
                        bp_param *shared);
bp_backbone bp_stack_backbone(const bp_model_shape *shape);
bp_activations bp_stack_block_output(const bp_model_shape *shape, int block);
/** A full list: an embedding, layers, a head; and its members, except `cost` and `add`. */
#define BP_STACK_BLOCKS                                                                            \
    .count = bp_stack_blocks, .are = "embedding, layers, head", .backbone = bp_stack_backbone,     \
    .output = bp_stack_block_output, .add_shared = bp_stack_add_shared

extern const bp_block_list bp_stack_block_list;

bp_model_facts bp_stack_facts(const bp_model_shape *shape);

/** Members of bp_model_family for an embedding, layers and a head; for an encoder with its own
 * defaults and checks; and all members for a decoder without positions in its parameters, whose
 * last arguments are its tables for Hugging Face. */
#define BP_STACK_FAMILY BP_STACK_ENCODER(bp_stack_fill_defaults, bp_stack_check)
#define BP_STACK_ENCODER(fills, checks)                                                            \
    .fill_defaults = fills, .check = checks, .check_read = bp_stack_check_read,                    \
    .facts = bp_stack_facts, .key_block = bp_transformer_key_block, .blocks = &bp_stack_block_list
#define BP_STACK_DECODER(kind, of_stack, of_sizes, of_keys, ...)                                   \
    .name = kind, .stack = &of_stack, .sizes = of_sizes, .keys = of_keys, .any_context = true,     \
    .objective = &bp_objective_causal,                                                             \
    .huggingface = (const bp_hf_table *const[]){__VA_ARGS__, NULL}, BP_STACK_FAMILY
