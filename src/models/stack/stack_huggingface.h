/* Parts of the tables of stacks in Hugging Face's folders (io/huggingface/hf_table.h), where layers
 * and keys have LLaMA's names. Families differ only in their parts, and in the defaults of their
 * class. */
#pragma once

#include "models/stack/rotary_huggingface.h"
#include "models/stack/stack.h"

/* ---- tensors ---- */

/** Tensors of each layer, in the order of files. */
#define BP_HF_ATTENTION_OUT                                                                        \
    BP_HF_MATRIX("layers.*.self_attn.o_proj.weight", "width", "heads*head_width",                  \
                 "h.*.attn.out.weight")
#define BP_HF_QUERIES                                                                              \
    BP_HF_MATRIX("layers.*.self_attn.q_proj.weight", "heads*head_width", "width",                  \
                 "h.*.attn.q.weight"),                                                             \
        BP_HF_MATRIX("layers.*.self_attn.k_proj.weight", "kv_heads*head_width", "width",           \
                     "h.*.attn.k.weight"),                                                         \
        BP_HF_MATRIX("layers.*.self_attn.v_proj.weight", "kv_heads*head_width", "width",           \
                     "h.*.attn.v.weight")
#define BP_HF_ATTENTION BP_HF_QUERIES, BP_HF_ATTENTION_OUT
#define BP_HF_QUERY_NORMS(q, k)                                                                    \
    BP_HF_VECTOR("layers.*.self_attn.q_norm.weight", q, "h.*.attn.q.ln.gain"),                     \
        BP_HF_VECTOR("layers.*.self_attn.k_norm.weight", k, "h.*.attn.k.ln.gain")
#define BP_HF_MLP_DOWN                                                                             \
    BP_HF_MATRIX("layers.*.mlp.down_proj.weight", "width", "inner", "h.*.mlp.down.weight")
#define BP_HF_MLP                                                                                  \
    BP_HF_MATRIX("layers.*.mlp.gate_proj.weight", "inner", "width", "h.*.mlp.gate.weight"),        \
        BP_HF_MATRIX("layers.*.mlp.up_proj.weight", "inner", "width", "h.*.mlp.up.weight"),        \
        BP_HF_MLP_DOWN
/** Tensors of layers with experts, and of layers without. */
#define BP_HF_ROUTER(theirs)                                                                       \
    {                                                                                              \
        theirs, "experts", "width", false, 1, {"h.*.mlp.router.weight"}, .in = BP_HF_SPARSE        \
    }
#define BP_HF_EXPERT_ROW(theirs, rows, columns, ours)                                              \
    {                                                                                              \
        theirs, rows, columns, false, 1, {"h.*.mlp.experts.#." ours ".weight"},                    \
            .experts = "experts", .in = BP_HF_SPARSE                                               \
    }
#define BP_HF_EXPERT_ROWS(before, gate, up, down, inner)                                           \
    BP_HF_EXPERT_ROW(before gate ".weight", inner, "width", "gate"),                               \
        BP_HF_EXPERT_ROW(before up ".weight", inner, "width", "up"),                               \
        BP_HF_EXPERT_ROW(before down ".weight", "width", inner, "down")
#define BP_HF_DENSE_MATRIX(theirs, rows, columns, ours)                                            \
    {                                                                                              \
        theirs, rows, columns, false, 1, {ours}, .in = BP_HF_DENSE                                 \
    }
#define BP_HF_NORM(theirs, ours) BP_HF_VECTOR("layers.*." theirs ".weight", "width", ours)
#define BP_HF_EMBEDDING          BP_HF_MATRIX("embed_tokens.weight", "vocab_size", "width", "wte")
/** Norms before attention and before the MLP. */
#define BP_HF_NORMS_BEFORE                                                                         \
    BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),                                                 \
        BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain")
/** The last norm, and the head where it is not the embedding. */
#define BP_HF_ENDS BP_HF_VECTOR("norm.weight", "width", "ln_f.gain"), BP_HF_UNTIED("lm_head.weight")

/* ---- keys of config.json: `is` is the default of transformers' class ---- */

/** Layers, width, heads, inner width, context and vocabulary. */
#define BP_HF_SIZES_OF(layers, width, heads, inner, context, words)                                \
    BP_HF_SIZE("layers", "num_hidden_layers", layers), BP_HF_SIZE("width", "hidden_size", width),  \
        BP_HF_SIZE("heads", "num_attention_heads", heads),                                         \
        BP_HF_SIZE("inner", "intermediate_size", inner),                                           \
        BP_HF_SIZE("context", "max_position_embeddings", context),                                 \
        BP_HF_SIZE("vocab_size", "vocab_size", words)
/** Sizes that come after heads. */
#define BP_HF_KV_HEADS(is)                                                                         \
    {                                                                                              \
        "kv_heads", "num_key_value_heads", NULL, BP_HF_COUNT, "heads", .absent = is,               \
                                                                       .null_is = "heads"          \
    }
/** Sizes that come after width and heads. */
#define BP_HF_HEAD_WIDTH(is)                                                                       \
    {                                                                                              \
        "head_width", "head_dim", NULL, BP_HF_COUNT, "width/heads",                                \
            .absent = is, .null_is = "width/heads", .quiet = true                                  \
    }
#define BP_HF_THETA(is)                                                                            \
    {                                                                                              \
        "rope_theta", "rope_theta", NULL, BP_HF_REAL, is, "rope_parameters.rope_theta"             \
    }
#define BP_HF_TIED(is)                                                                             \
    {                                                                                              \
        "tied", "tie_word_embeddings", NULL, BP_HF_FLAG, is                                        \
    }
/** After BP_HF_SIZES_OF: most of LLaMA's relatives have these. */
#define BP_HF_LLAMA_SIZES(kv, head_width, epsilon, theta, tied)                                    \
    BP_HF_KV_HEADS(kv), BP_HF_HEAD_WIDTH(head_width),                                              \
        BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", epsilon), BP_HF_THETA(theta),                 \
        BP_HF_ROPE_SCALING, BP_HF_TIED(tied)
/** Sizes of mixtures of experts. */
#define BP_HF_EXPERTS(theirs, other, experts, chosen, balance)                                     \
    {"experts", theirs, NULL, .absent = experts, .older = other},                                  \
        BP_HF_SIZE("experts_chosen", "num_experts_per_tok", chosen),                               \
    {                                                                                              \
        "experts_balance", "router_aux_loss_coef", NULL, BP_HF_REAL, "0", .absent = balance,       \
                                                                          .zero = true             \
    }
#define BP_HF_RENORMALISED                                                                         \
    {                                                                                              \
        "experts_renormalised", "norm_topk_prob", NULL, BP_HF_FLAG, "0"                            \
    }
/** Multipliers of the embedding, scores, branches and logits; with bp_stack_hf_derive_scores. */
#define BP_HF_MULTIPLIERS                                                                          \
    BP_HF_NUMBER("embedding_multiplier", "embedding_multiplier", "1"),                             \
        {"attention_multiplier", "attention_multiplier", NULL, BP_HF_REAL, "0", .absent = "1"},    \
        BP_HF_NUMBER("residual_multiplier", "residual_multiplier", "1"),                           \
        BP_HF_NUMBER("logits_scaling", "logits_scaling", "1")
/** Positions turn whole heads. The first is written: transformers multiplies by it and fails at
 * null. */
#define BP_HF_WHOLE_HEADS                                                                          \
    {                                                                                              \
        "partial_rotary_factor", "1.0|null"                                                        \
    }

/** Hybrid stacks, whose list "attention_layers" names the layers with attention: sizes of the
 * others, after the width; required settings; and tensors of both kinds of layers. */
#define BP_HF_STATES                                                                               \
    BP_HF_SIZE("state_heads", "mamba_n_heads", "128"),                                             \
        {"state_head_width", "mamba_d_head", NULL, .absent = "2*width/state_heads",                \
         .automatic = true},                                                                       \
        BP_HF_SIZE("state", "mamba_d_state", "256"), BP_HF_SIZE("groups", "mamba_n_groups", "1"),  \
        BP_HF_SIZE("taps", "mamba_d_conv", "4")
#define BP_HF_STATES_ONLY                                                                          \
    {"mamba_conv_bias", "true"}, {"mamba_proj_bias", "false"},                                     \
        {"mamba_expand", "state_heads*state_head_width/width", .absent = "2"},                     \
    {                                                                                              \
        "time_step_limit",                                                                         \
            "[0.0, \"Infinity\"]|[0, \"Infinity\"]|[0.0, {\"__float__\": \"Infinity\"}]"           \
    }
#define BP_HF_OF_LAYERS(theirs, rows, columns, ours, list)                                         \
    {                                                                                              \
        "layers.*." theirs, rows, columns, false, 1, {"h.*." ours}, .of_layers = list              \
    }
#define BP_HF_ATTENDING(theirs, rows, columns, ours)                                               \
    BP_HF_OF_LAYERS(theirs, rows, columns, ours, "attention_layers")
#define BP_HF_STATE(theirs, rows, columns, ours)                                                   \
    BP_HF_OF_LAYERS(theirs, rows, columns, ours, "!attention_layers")
#define BP_HF_STATE_WIDTH "state_heads*state_head_width"
#define BP_HF_CONVOLVED(theirs, columns, between, x, bc)                                           \
    {                                                                                              \
        "layers.*.mamba.conv1d." theirs, BP_HF_STATE_WIDTH "+2*groups*state", columns, false, 2,   \
            {"h.*." x, "h.*." bc},                                                                 \
            .blocks = "1", .part_rows = {BP_HF_STATE_WIDTH, "2*groups*state"}, .middle = between,  \
            .of_layers = "!attention_layers"                                                       \
    }
#define BP_HF_MIXERS                                                                               \
    BP_HF_ATTENDING("input_layernorm.weight", "width", NULL, "ln1.gain"),                          \
        BP_HF_ATTENDING("self_attn.q_proj.weight", "heads*head_width", "width", "attn.q.weight"),  \
        BP_HF_ATTENDING("self_attn.k_proj.weight", "kv_heads*head_width", "width",                 \
                        "attn.k.weight"),                                                          \
        BP_HF_ATTENDING("self_attn.v_proj.weight", "kv_heads*head_width", "width",                 \
                        "attn.v.weight"),                                                          \
        BP_HF_ATTENDING("self_attn.o_proj.weight", "width", "heads*head_width",                    \
                        "attn.out.weight"),                                                        \
        BP_HF_STATE("input_layernorm.weight", "width", NULL, "ln.gain"),                           \
        BP_HF_STATE("mamba.dt_bias", "state_heads", NULL, "dt.bias"),                              \
        BP_HF_STATE("mamba.A_log", "state_heads", NULL, "decay"),                                  \
        BP_HF_STATE("mamba.D", "state_heads", NULL, "skip"),                                       \
        BP_HF_CONVOLVED("weight", "taps", "1", "x.taps", "bc.taps"),                               \
        BP_HF_CONVOLVED("bias", NULL, NULL, "x.bias", "bc.bias"),                                  \
        {"layers.*.mamba.in_proj.weight",                                                          \
         "2*" BP_HF_STATE_WIDTH "+2*groups*state+state_heads",                                     \
         "width",                                                                                  \
         false,                                                                                    \
         4,                                                                                        \
         {"h.*.z.weight", "h.*.x.weight", "h.*.bc.weight", "h.*.dt.weight"},                       \
         .blocks = "1",                                                                            \
         .part_rows = {BP_HF_STATE_WIDTH, BP_HF_STATE_WIDTH, "2*groups*state", "state_heads"},     \
         .of_layers = "!attention_layers"},                                                        \
        BP_HF_STATE("mamba.norm.weight", BP_HF_STATE_WIDTH, NULL, "gate.gain"),                    \
        BP_HF_STATE("mamba.out_proj.weight", "width", BP_HF_STATE_WIDTH, "out.weight")

/** GPT-2, and those named like it: sizes, keys without effect, a Conv1D, whose weight is [in, out],
 * and the one of queries, keys and values. */
#define BP_HF_GPT_SIZES(layers, width, heads, context, words)                                      \
    {"layers", "n_layer", NULL, .older = "num_hidden_layers", .absent = layers},                   \
        {"width", "n_embd", NULL, .older = "hidden_size", .absent = width},                        \
        {"heads", "n_head", NULL, .older = "num_attention_heads", .absent = heads},                \
        {"context", "n_positions", "n_ctx", .older = "max_position_embeddings",                    \
         .absent = context},                                                                       \
        BP_HF_SIZE("vocab_size", "vocab_size", words)
#define BP_HF_GPT_HARMLESS                                                                         \
    "attn_pdrop", "embd_pdrop", "resid_pdrop", "summary_activation", "summary_first_dropout",      \
        "summary_proj_to_labels", "summary_type", "summary_use_proj"
#define BP_HF_GPT_CONV(theirs, rows, columns, ours)                                                \
    {theirs ".weight", rows, columns, true, 1, {ours ".weight"}},                                  \
        BP_HF_VECTOR(theirs ".bias", columns, ours ".bias")
#define BP_HF_GPT_QUERIES                                                                          \
    {"h.*.attn.c_attn.weight",                                                                     \
     "width",                                                                                      \
     "3*width",                                                                                    \
     true,                                                                                         \
     3,                                                                                            \
     {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"}},                             \
    {                                                                                              \
        "h.*.attn.c_attn.bias", "3*width", NULL, false, 3,                                         \
        {                                                                                          \
            "h.*.attn.q.bias", "h.*.attn.k.bias", "h.*.attn.v.bias"                                \
        }                                                                                          \
    }
/** In GPT-NeoX and BLOOM: rows are q, k and v of one head after the other. */
#define BP_HF_HEADS_JOINED(theirs, rows)                                                           \
    {theirs ".weight",                                                                             \
     rows,                                                                                         \
     "width",                                                                                      \
     false,                                                                                        \
     3,                                                                                            \
     {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"},                              \
     .blocks = "heads"},                                                                           \
    {                                                                                              \
        theirs ".bias", rows, NULL, false, 3,                                                      \
            {"h.*.attn.q.bias", "h.*.attn.k.bias", "h.*.attn.v.bias"}, .blocks = "heads"           \
    }
#define BP_HF_GPT_MORE                                                                             \
    "{\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, \"torch_dtype\": "           \
    "\"float32\", \"use_cache\": true}"

/** Additional members to write: bp_hf_table.more. */
#define BP_HF_MORE "{\"attention_dropout\": 0.0, \"torch_dtype\": \"float32\", \"use_cache\": true}"

/** bp_hf_table.buffers, and .bare. */
extern const char *const bp_stack_hf_buffers[], *const bp_stack_hf_head[];
/** bp_hf_table.check: heads of keys divide heads, rotary heads have an even width, and a scaling of
 * positions has its parameters. */
bp_err bp_stack_hf_check(const bp_hf_shape *shape, const char *path);
/** The same for a stack with state-space layers, whose groups must divide their heads. */
bp_err bp_stack_hf_check_states(const bp_hf_shape *shape, const char *path);

/** bp_hf_table.derive: for positions; and a model without "attention_multiplier" divides scores by
 * the root of the head width, which is written. */
void bp_stack_hf_derive_scores(bp_hf_shape *shape, bool written);

/** Settings: no window in any layer; and what most of LLaMA's relatives have. With attention_bias
 * the output projection would have a bias, too. */
#define BP_HF_NO_WINDOW                                                                            \
    {                                                                                              \
        "layer_types", "*\"full_attention\""                                                       \
    }
#define BP_HF_LLAMA_SETTINGS                                                                       \
    BP_HF_WHOLE_HEADS, {"hidden_act", "\"silu\""},                                                 \
    {                                                                                              \
        "attention_bias", "false"                                                                  \
    }

/** The members of a table, except sizes, settings, rows and harmless keys; with another `derive`,
 * and with another `check` too; and of a table of other names, those of classes and of the table of
 * tokens. */
#define BP_STACK_HF_TABLE(of_kind, type, class)                                                    \
    BP_STACK_HF_TABLE_DERIVED(of_kind, type, class, bp_rope_hf_derive)
#define BP_STACK_HF_TABLE_DERIVED(of_kind, type, class, derives)                                   \
    BP_STACK_HF_TABLE_OF(of_kind, type, class, bp_stack_hf_check, derives)
#define BP_STACK_HF_TABLE_OF(of_kind, type, class, checks, derives)                                \
    BP_STACK_HF_NAMES(of_kind, type, class, "model.", "embed_tokens.weight"),                      \
        .buffers = bp_stack_hf_buffers, .more = BP_HF_MORE, .check = checks, .derive = derives
#define BP_STACK_HF_NAMES(of_kind, type, class, begins, words)                                     \
    .kind = of_kind, .model_type = type, .architecture = class, .prefix = begins, .first = words,  \
    .head = "lm_head.weight", .tied = words, .bare = bp_stack_hf_head
