/* LLaMA, Mistral and Qwen2 as Hugging Face folders hold them: every weight [out, in], as ours. */
#include "models/llama/llama.h"

#include "models/rotary_huggingface.h"

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

static const bp_hf_size LLAMA_SIZES[] = {COMMON_SIZES("heads", "11008", "2048"),
                                         {"attention_bias", NULL, NULL, BP_HF_FLAG, "0"},
                                         {"window", NULL, NULL, BP_HF_COUNT, "0"},
                                         SIZE("vocab_size", "vocab_size", "32000"),
                                         {0}};
static const bp_hf_size MISTRAL_SIZES[] = {
    COMMON_SIZES("8", "14336", "131072"),
    {"attention_bias", NULL, NULL, BP_HF_FLAG, "0"},
    {"window", "sliding_window", NULL, BP_HF_COUNT, "0", .absent = "4096", .null_is = "0"},
    SIZE("vocab_size", "vocab_size", "32000"),
    {0}};
static const bp_hf_size QWEN2_SIZES[] = {COMMON_SIZES("32", "22016", "32768"),
                                         {"attention_bias", NULL, NULL, BP_HF_FLAG, "1"},
                                         {"window", NULL, NULL, BP_HF_COUNT, "0"},
                                         SIZE("vocab_size", "vocab_size", "151936"),
                                         {0}};

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
static const bp_hf_setting MISTRAL_SETTINGS[] = {
    {"hidden_act", "\"silu\""},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"partial_rotary_factor", "null|1"},
    {"layer_types", "*\"sliding_attention\"", "window"},
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

static const bp_hf_row ROWS[] = {
    {"embed_tokens.weight", "vocab_size", "width", false, 1, {"wte"}},
    {"layers.*.input_layernorm.weight", "width", NULL, false, 1, {"h.*.ln1.gain"}},
    {"layers.*.self_attn.q_proj.weight",
     "heads*head_width",
     "width",
     false,
     1,
     {"h.*.attn.q.weight"}},
    {"layers.*.self_attn.k_proj.weight",
     "kv_heads*head_width",
     "width",
     false,
     1,
     {"h.*.attn.k.weight"}},
    {"layers.*.self_attn.v_proj.weight",
     "kv_heads*head_width",
     "width",
     false,
     1,
     {"h.*.attn.v.weight"}},
    {"layers.*.self_attn.q_proj.bias",
     "heads*head_width",
     NULL,
     false,
     1,
     {"h.*.attn.q.bias"},
     .only_if = "attention_bias"},
    {"layers.*.self_attn.k_proj.bias",
     "kv_heads*head_width",
     NULL,
     false,
     1,
     {"h.*.attn.k.bias"},
     .only_if = "attention_bias"},
    {"layers.*.self_attn.v_proj.bias",
     "kv_heads*head_width",
     NULL,
     false,
     1,
     {"h.*.attn.v.bias"},
     .only_if = "attention_bias"},
    {"layers.*.self_attn.o_proj.weight",
     "width",
     "heads*head_width",
     false,
     1,
     {"h.*.attn.out.weight"}},
    {"layers.*.post_attention_layernorm.weight", "width", NULL, false, 1, {"h.*.ln2.gain"}},
    {"layers.*.mlp.gate_proj.weight", "inner", "width", false, 1, {"h.*.mlp.gate.weight"}},
    {"layers.*.mlp.up_proj.weight", "inner", "width", false, 1, {"h.*.mlp.up.weight"}},
    {"layers.*.mlp.down_proj.weight", "width", "inner", false, 1, {"h.*.mlp.down.weight"}},
    {"norm.weight", "width", NULL, false, 1, {"ln_f.gain"}},
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const char *const BUFFERS[] = {"self_attn.rotary_emb.inv_freq", NULL}, *const HEAD[] = {
                                                                                  "lm_head.", NULL};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    int64_t heads = bp_hf_size_of(shape, "heads"), width = bp_hf_size_of(shape, "width"),
            D = bp_hf_size_of(shape, "head_width");

    if (D == width / heads && bp_hf_check_heads(shape, path) != BP_OK)
        return BP_ERR_FORMAT;
    if (bp_hf_check_divides(shape, "kv_heads", "heads", path) != BP_OK)
        return BP_ERR_FORMAT;
    if (D % 2 != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "huggingface.odd_heads",
            "heads of width %lld have no pairs to turn: at %s; give a model with an even "
            "\"head_dim\"",
            (long long)D, path);
    return bp_rope_hf_check(shape, D, path);
}

#define MORE "{\"attention_dropout\": 0.0, \"torch_dtype\": \"float32\", \"use_cache\": true}"

#define TABLE(type, class, sizes_of, settings_of, harmless_of)                                     \
    {                                                                                              \
        .kind = "llama", .model_type = type, .architecture = class, .prefix = "model.",            \
        .first = "embed_tokens.weight", .head = "lm_head.weight", .tied = "embed_tokens.weight",   \
        .sizes = sizes_of, .settings = settings_of, .rows = ROWS, .buffers = BUFFERS,              \
        .harmless = harmless_of, .more = MORE, .check = check, .settle = bp_rope_hf_settle,        \
        .bare = HEAD                                                                               \
    }

static const bp_hf_table LLAMA = TABLE("llama", "LlamaForCausalLM", LLAMA_SIZES, LLAMA_SETTINGS,
                                       QWEN2_HARMLESS),
                         MISTRAL = TABLE("mistral", "MistralForCausalLM", MISTRAL_SIZES,
                                         MISTRAL_SETTINGS, HARMLESS),
                         QWEN2 = TABLE("qwen2", "Qwen2ForCausalLM", QWEN2_SIZES, QWEN2_SETTINGS,
                                       QWEN2_HARMLESS);

/* A model goes out as the first of these that it is. */
const bp_hf_table *const bp_llama_huggingface[] = {&LLAMA, &MISTRAL, &QWEN2, NULL};
