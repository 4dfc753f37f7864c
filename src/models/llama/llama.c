/* The architecture of LLaMA: pre-norm layers with RMS norms, rotary positions, grouped heads of
 * keys and values, SwiGLU, a tied head or one of its own. Touvron et al. 2023; also that of Mistral
 * and Qwen2. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA};

static const bp_model_size SIZES[] = {BP_STACK_GROUPED,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_UNTIED,
                                      BP_STACK_FLAG("attention_bias", qkv_bias),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_STACK_SCALING,
                                      BP_STACK_COUNT("window", window),
                                      BP_STACK_QUIET("window_period", window_period),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY, BP_STACK_WINDOW_PERIOD_KEY, {0}};

/* Those of config.json, with the defaults of transformers' class. */
#define COMMON_SIZES(kv, mlp, positions)                                                           \
    BP_HF_SIZE("layers", "num_hidden_layers", "32"), BP_HF_SIZE("width", "hidden_size", "4096"),   \
        BP_HF_SIZE("heads", "num_attention_heads", "32"), BP_HF_KV_HEADS(kv),                      \
        BP_HF_HEAD_WIDTH("width/heads"), BP_HF_SIZE("inner", "intermediate_size", mlp),            \
        BP_HF_SIZE("context", "max_position_embeddings", positions),                               \
        BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"), BP_HF_THETA("10000"),                \
        BP_HF_ROPE_SCALING, BP_HF_TIED("0")

#define NO_PERIOD                                                                                  \
    {                                                                                              \
        "window_period", NULL, NULL, BP_HF_COUNT, "0", .quiet = true                               \
    }
static const bp_hf_size LLAMA_SIZES[] = {COMMON_SIZES("heads", "11008", "2048"),
                                         {"attention_bias", NULL, NULL, BP_HF_FLAG, "0"},
                                         {"window", NULL, NULL, BP_HF_COUNT, "0"},
                                         NO_PERIOD,
                                         BP_HF_SIZE("vocab_size", "vocab_size", "32000"),
                                         {0}};
static const bp_hf_size MISTRAL_SIZES[] = {
    COMMON_SIZES("8", "14336", "131072"),
    {"attention_bias", NULL, NULL, BP_HF_FLAG, "0"},
    {"window", "sliding_window", NULL, BP_HF_COUNT, "0", .absent = "4096", .null_is = "0"},
    {"window_period", "layer_types", NULL, BP_HF_PERIOD, "0", .quiet = true, .null_is = "0",
     .words = "\"sliding_attention\"|\"full_attention\""},
    BP_HF_SIZE("vocab_size", "vocab_size", "32000"),
    {0}};
static const bp_hf_size QWEN2_SIZES[] = {COMMON_SIZES("32", "22016", "32768"),
                                         {"attention_bias", NULL, NULL, BP_HF_FLAG, "1"},
                                         {"window", NULL, NULL, BP_HF_COUNT, "0"},
                                         NO_PERIOD,
                                         BP_HF_SIZE("vocab_size", "vocab_size", "151936"),
                                         {0}};

/* With attention_bias LLaMA's output projection has a bias, too. */
static const bp_hf_setting LLAMA_SETTINGS[] = {{"hidden_act", "\"silu\""},
                                               {"attention_bias", "false"},
                                               {"mlp_bias", "false"},
                                               BP_HF_WHOLE_HEADS,
                                               BP_HF_NO_WINDOW,
                                               {"pretraining_tp", "1"},
                                               {"rope_interleaved", "false"},
                                               {"use_sliding_window", "false"},
                                               {0}};
static const bp_hf_setting MISTRAL_SETTINGS[] = {{"hidden_act", "\"silu\""},
                                                 {"attention_bias", "false"},
                                                 {"mlp_bias", "false"},
                                                 BP_HF_WHOLE_HEADS,
                                                 {"layer_types", "*\"full_attention\"", "!window"},
                                                 {0}};
static const bp_hf_setting QWEN2_SETTINGS[] = {{"hidden_act", "\"silu\""},
                                               {"use_sliding_window", "false"},
                                               {"use_mrope", "false"},
                                               {"mlp_bias", "false"},
                                               BP_HF_WHOLE_HEADS,
                                               BP_HF_NO_WINDOW,
                                               {0}};

static const char *const HARMLESS[] = {"attention_dropout", "max_sequence_length", NULL},
                         *const QWEN2_HARMLESS[] = {"attention_dropout", "sliding_window",
                                                    "max_window_layers", "max_sequence_length",
                                                    "is_llama_config",   NULL};

#define BIAS(theirs, rows, ours)                                                                   \
    BP_HF_IF("attention_bias", "layers.*.self_attn." theirs ".bias", rows, NULL, ours)
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
        BP_STACK_HF_TABLE_DERIVED("llama", type, name "ForCausalLM", derives),                     \
            .stem = name, .scores = true, .tags = "score", .classes = OLDER, .sizes = sizes_of,    \
            .settings = settings_of, .rows = ROWS, .harmless = harmless_of                         \
    }

static const bp_hf_table LLAMA = TABLE("llama", "Llama", LLAMA_SIZES, LLAMA_SETTINGS,
                                       QWEN2_HARMLESS, bp_rope_hf_derive),
                         MISTRAL = TABLE("mistral", "Mistral", MISTRAL_SIZES, MISTRAL_SETTINGS,
                                         HARMLESS, derive_mistral),
                         QWEN2 = TABLE("qwen2", "Qwen2", QWEN2_SIZES, QWEN2_SETTINGS,
                                       QWEN2_HARMLESS, bp_rope_hf_derive);

/* A model is exported as the first of these that it is. */
const bp_model_family bp_llama_family = {
    BP_STACK_DECODER("llama", STACK, SIZES, KEYS, &LLAMA, &MISTRAL, &QWEN2)};
