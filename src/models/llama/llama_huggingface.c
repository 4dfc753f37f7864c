/* LLaMA, Mistral and Qwen2 as Hugging Face folders hold them: every weight [out, in], as ours. */
#include "models/llama/llama.h"

#include "models/stack/stack_huggingface.h"

#define SIZE(ours, theirs, is)                                                                     \
    {                                                                                              \
        ours, theirs, NULL, .absent = is                                                           \
    }
/* Those of config.json, with the defaults of transformers' class. */
#define COMMON_SIZES(kv, mlp, positions)                                                           \
    SIZE("layers", "num_hidden_layers", "32"), SIZE("width", "hidden_size", "4096"),               \
        SIZE("heads", "num_attention_heads", "32"),                                                \
        {"kv_heads",   "num_key_value_heads", NULL, BP_HF_COUNT, "heads",                          \
         .absent = kv, .null_is = "heads"},                                                        \
        {"head_width",                                                                             \
         "head_dim",                                                                               \
         NULL,                                                                                     \
         BP_HF_COUNT,                                                                              \
         "width/heads",                                                                            \
         .quiet = true,                                                                            \
         .null_is = "width/heads"},                                                                \
        SIZE("inner", "intermediate_size", mlp),                                                   \
        SIZE("context", "max_position_embeddings", positions),                                     \
        {"norm_epsilon", "rms_norm_eps", NULL, BP_HF_REAL, "1e-6"},                                \
        {"rope_theta", "rope_theta", NULL, BP_HF_REAL, "10000", "rope_parameters.rope_theta"},     \
        BP_HF_ROPE_SCALING,                                                                        \
    {                                                                                              \
        "tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "0"                                       \
    }

#define NO_PERIOD                                                                                  \
    {                                                                                              \
        "window_period", NULL, NULL, BP_HF_COUNT, "0", .quiet = true                               \
    }
static const bp_hf_size LLAMA_SIZES[] = {
    COMMON_SIZES("heads", "11008", "2048"),    {"attention_bias", NULL, NULL, BP_HF_FLAG, "0"},
    {"window", NULL, NULL, BP_HF_COUNT, "0"},  NO_PERIOD,
    SIZE("vocab_size", "vocab_size", "32000"), {0}};
static const bp_hf_size MISTRAL_SIZES[] = {
    COMMON_SIZES("8", "14336", "131072"),
    {"attention_bias", NULL, NULL, BP_HF_FLAG, "0"},
    {"window", "sliding_window", NULL, BP_HF_COUNT, "0", .absent = "4096", .null_is = "0"},
    {"window_period", "layer_types", NULL, BP_HF_PERIOD, "0", .quiet = true, .null_is = "0",
     .words = "\"sliding_attention\"|\"full_attention\""},
    SIZE("vocab_size", "vocab_size", "32000"),
    {0}};
static const bp_hf_size QWEN2_SIZES[] = {
    COMMON_SIZES("32", "22016", "32768"),       {"attention_bias", NULL, NULL, BP_HF_FLAG, "1"},
    {"window", NULL, NULL, BP_HF_COUNT, "0"},   NO_PERIOD,
    SIZE("vocab_size", "vocab_size", "151936"), {0}};

/* With attention_bias LLaMA's output projection has a bias, too. */
static const bp_hf_setting LLAMA_SETTINGS[] = {{"hidden_act", "\"silu\""},
                                               {"attention_bias", "false"},
                                               {"mlp_bias", "false"},
                                               {"partial_rotary_factor", "null|1"},
                                               {"layer_types", "*\"full_attention\""},
                                               {"pretraining_tp", "1"},
                                               {"rope_interleaved", "false"},
                                               {"use_sliding_window", "false"},
                                               {0}};
static const bp_hf_setting MISTRAL_SETTINGS[] = {{"hidden_act", "\"silu\""},
                                                 {"attention_bias", "false"},
                                                 {"mlp_bias", "false"},
                                                 {"partial_rotary_factor", "null|1"},
                                                 {"layer_types", "*\"full_attention\"", "!window"},
                                                 {0}};
static const bp_hf_setting QWEN2_SETTINGS[] = {{"hidden_act", "\"silu\""},
                                               {"use_sliding_window", "false"},
                                               {"use_mrope", "false"},
                                               {"mlp_bias", "false"},
                                               {"partial_rotary_factor", "null|1"},
                                               {"layer_types", "*\"full_attention\""},
                                               {0}};

static const char *const HARMLESS[] = {"attention_dropout", "max_sequence_length", NULL},
                         *const QWEN2_HARMLESS[] = {"attention_dropout", "sliding_window",
                                                    "max_window_layers", "max_sequence_length",
                                                    "is_llama_config",   NULL};

#define BIAS(theirs, rows, ours)                                                                   \
    {                                                                                              \
        "layers.*.self_attn." theirs ".bias", rows, NULL, false, 1, {ours},                        \
            .only_if = "attention_bias"                                                            \
    }
static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_NORM("input_layernorm", "h.*.ln1.gain"),
                                 BP_HF_QUERIES,
                                 BIAS("q_proj", "heads*head_width", "h.*.attn.q.bias"),
                                 BIAS("k_proj", "kv_heads*head_width", "h.*.attn.k.bias"),
                                 BIAS("v_proj", "kv_heads*head_width", "h.*.attn.v.bias"),
                                 BP_HF_ATTENTION_OUT,
                                 BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
                                 BP_HF_MLP,
                                 BP_HF_ENDS,
                                 {0}};

/* In the first conversions. */
static const char *const OLDER[] = {"LLaMAForCausalLM", NULL};

/* Without a window all layers are alike. */
static void derive_mistral(bp_hf_shape *shape, bool written)
{
    bp_rope_hf_derive(shape, written);
    if (bp_hf_size_of(shape, "window") == 0)
        bp_hf_set_size(shape, "window_period", 0);
}

#define TABLE(type, name, sizes_of, settings_of, harmless_of, derives)                             \
    {                                                                                              \
        .kind = "llama", .model_type = type, .architecture = name "ForCausalLM", .stem = name,     \
        .scores = true, .tags = "score", .classes = OLDER, .prefix = "model.",                     \
        .first = "embed_tokens.weight", .head = "lm_head.weight", .tied = "embed_tokens.weight",   \
        .sizes = sizes_of, .settings = settings_of, .rows = ROWS, .buffers = bp_stack_hf_buffers,  \
        .harmless = harmless_of, .more = BP_HF_MORE, .check = bp_stack_hf_check,                   \
        .derive = derives, .bare = bp_stack_hf_head                                                \
    }

static const bp_hf_table LLAMA = TABLE("llama", "Llama", LLAMA_SIZES, LLAMA_SETTINGS,
                                       QWEN2_HARMLESS, bp_rope_hf_derive),
                         MISTRAL = TABLE("mistral", "Mistral", MISTRAL_SIZES, MISTRAL_SETTINGS,
                                         HARMLESS, derive_mistral),
                         QWEN2 = TABLE("qwen2", "Qwen2", QWEN2_SIZES, QWEN2_SETTINGS,
                                       QWEN2_HARMLESS, bp_rope_hf_derive);

/* A model is exported as the first of these that it is. */
const bp_hf_table *const bp_llama_huggingface[] = {&LLAMA, &MISTRAL, &QWEN2, NULL};
