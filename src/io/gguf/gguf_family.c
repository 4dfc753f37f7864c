/* The supported architectures of GGUF files. */
#include "io/gguf/gguf_family.h"

#include <stddef.h>

#define COUNT(theirs, member)                                                                      \
    {                                                                                              \
        .gguf = theirs, .huggingface = member                                                      \
    }
#define REAL(theirs, member)                                                                       \
    {                                                                                              \
        .gguf = theirs, .huggingface = member, .is_real = true                                     \
    }
#define MAY_REAL(theirs, member)                                                                   \
    {                                                                                              \
        .gguf = theirs, .huggingface = member, .is_real = true, .may_lack = true                   \
    }
#define MAY(theirs, member)                                                                        \
    {                                                                                              \
        .gguf = theirs, .huggingface = member, .may_lack = true                                    \
    }

/* Decoders with rotary positions. */
#define ROTARY_SIZES                                                                               \
    COUNT("context_length", "max_position_embeddings"), COUNT("embedding_length", "hidden_size"),  \
        COUNT("block_count", "num_hidden_layers"),                                                 \
        COUNT("feed_forward_length", "intermediate_size"),                                         \
        COUNT("attention.head_count", "num_attention_heads"),                                      \
        MAY("attention.head_count_kv", "num_key_value_heads"),                                     \
        {.gguf = "attention.key_length",                                                           \
         .huggingface = "head_dim",                                                                \
         .also = "attention.value_length",                                                         \
         .may_lack = true},                                                                        \
        REAL("attention.layer_norm_rms_epsilon", "rms_norm_eps"),                                  \
        MAY_REAL("rope.freq_base", "rope_theta")

#define LAYER   "blk.*."
#define DECODER "model.layers.*."
#define HEAD                                                                                       \
    {                                                                                              \
        "output", "lm_head"                                                                        \
    }
#define QUERY_NORMS(change)                                                                        \
    {LAYER "attn_q_norm", DECODER "self_attn.q_norm", change},                                     \
    {                                                                                              \
        LAYER "attn_k_norm", DECODER "self_attn.k_norm", change                                    \
    }
/* Everything except norms of layers and the head. */
#define PRODUCTS(queries, keys, norms)                                                             \
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm", norms},                    \
        {LAYER "attn_q", DECODER "self_attn.q_proj", queries},                                     \
        {LAYER "attn_k", DECODER "self_attn.k_proj", keys},                                        \
        {LAYER "attn_v", DECODER "self_attn.v_proj"},                                              \
        {LAYER "attn_output", DECODER "self_attn.o_proj"},                                         \
        {LAYER "ffn_gate", DECODER "mlp.gate_proj"}, {LAYER "ffn_up", DECODER "mlp.up_proj"},      \
    {                                                                                              \
        LAYER "ffn_down", DECODER "mlp.down_proj"                                                  \
    }
#define ROTARY_ROWS(queries, keys)                                                                 \
    PRODUCTS(queries, keys, BP_GGUF_SAME), HEAD, {LAYER "attn_norm", DECODER "input_layernorm"},   \
    {                                                                                              \
        LAYER "ffn_norm", DECODER "post_attention_layernorm"                                       \
    }
/* Norms after the branches. */
#define NORMS_AFTER(change)                                                                        \
    {LAYER "post_attention_norm", DECODER "post_attention_layernorm", change},                     \
    {                                                                                              \
        LAYER "post_ffw_norm", DECODER "post_feedforward_layernorm", change                        \
    }
/* Norms are stored as 1 + weight. */
#define GEMMA_ROWS                                                                                 \
    PRODUCTS(BP_GGUF_SAME, BP_GGUF_SAME, BP_GGUF_ONE_MORE), NORMS_AFTER(BP_GGUF_ONE_MORE),         \
        {LAYER "attn_norm", DECODER "input_layernorm", BP_GGUF_ONE_MORE},                          \
    {                                                                                              \
        LAYER "ffn_norm", DECODER "pre_feedforward_layernorm", BP_GGUF_ONE_MORE                    \
    }

/* Keys without effect on results, and keys with a required value. */
static const char *const ROTARY_ONLY[] = {"expert_count=0",
                                          "expert_used_count=0",
                                          "rope.scaling.finetuned",
                                          "tensor_data_layout",
                                          "use_parallel_residual=true",
                                          NULL},
                         *const NOTHING[] = {"attention.causal=true", NULL},
                         *const ENCODER_ONLY[] = {"attention.causal=false", "pooling_type", NULL};

#define GEMMA_SIZES ROTARY_SIZES, COUNT("attention.sliding_window", "sliding_window")

static const bp_gguf_size ROTARY[] = {ROTARY_SIZES, {0}},
                          GEMMA2_SIZES[] = {GEMMA_SIZES,
                                            REAL("attn_logit_softcapping",
                                                 "attn_logit_softcapping"),
                                            REAL("final_logit_softcapping",
                                                 "final_logit_softcapping"),
                                            {0}},
                          GEMMA3_SIZES[] = {GEMMA_SIZES,
                                            MAY_REAL("final_logit_softcapping",
                                                     "final_logit_softcapping"),
                                            MAY_REAL("rope.freq_base_swa", "rope_local_base_freq"),
                                            {0}},
                          GRANITE_SIZES[] = {ROTARY_SIZES,
                                             REAL("attention.scale", "attention_multiplier"),
                                             REAL("embedding_scale", "embedding_multiplier"),
                                             REAL("residual_scale", "residual_multiplier"),
                                             REAL("logit_scale", "logits_scaling"),
                                             {0}};

static const bp_gguf_row LLAMA_ROWS[] = {ROTARY_ROWS(BP_GGUF_PERMUTE_QUERIES, BP_GGUF_PERMUTE_KEYS),
                                         {0}},
                         QWEN3_ROWS[] = {ROTARY_ROWS(BP_GGUF_SAME, BP_GGUF_SAME),
                                         QUERY_NORMS(BP_GGUF_SAME),
                                         {0}},
                         OLMO2_ROWS[] = {PRODUCTS(BP_GGUF_SAME, BP_GGUF_SAME, BP_GGUF_SAME),
                                         HEAD,
                                         QUERY_NORMS(BP_GGUF_SAME),
                                         NORMS_AFTER(BP_GGUF_SAME),
                                         {0}},
                         GEMMA2_ROWS[] = {GEMMA_ROWS, {0}},
                         GEMMA3_ROWS[] = {GEMMA_ROWS, QUERY_NORMS(BP_GGUF_ONE_MORE), HEAD, {0}},
                         QWEN2_ROWS[] = {ROTARY_ROWS(BP_GGUF_SAME, BP_GGUF_SAME), {0}};

static const bp_gguf_size PHI3_SIZES[] = {ROTARY_SIZES,
                                          {.gguf = "attention.sliding_window",
                                           .huggingface = "sliding_window",
                                           .may_lack = true,
                                           .zero_lacks = true},
                                          {0}};
/* Queries, keys and values are one tensor, and so are gate and up. */
static const bp_gguf_row PHI3_ROWS[] = {{"token_embd", "model.embed_tokens"},
                                        {"output_norm", "model.norm"},
                                        HEAD,
                                        {LAYER "attn_norm", DECODER "input_layernorm"},
                                        {LAYER "attn_qkv", DECODER "self_attn.qkv_proj"},
                                        {LAYER "attn_output", DECODER "self_attn.o_proj"},
                                        {LAYER "ffn_norm", DECODER "post_attention_layernorm"},
                                        {LAYER "ffn_up", DECODER "mlp.gate_up_proj"},
                                        {LAYER "ffn_down", DECODER "mlp.down_proj"},
                                        {0}};

static const bp_gguf_size GPT2_SIZES[] = {COUNT("context_length", "n_positions"),
                                          COUNT("embedding_length", "n_embd"),
                                          COUNT("block_count", "n_layer"),
                                          COUNT("attention.head_count", "n_head"),
                                          MAY("feed_forward_length", "n_inner"),
                                          REAL("attention.layer_norm_epsilon",
                                               "layer_norm_epsilon"),
                                          {0}},
                          BERT_SIZES[] = {COUNT("context_length", "max_position_embeddings"),
                                          COUNT("embedding_length", "hidden_size"),
                                          COUNT("block_count", "num_hidden_layers"),
                                          COUNT("feed_forward_length", "intermediate_size"),
                                          COUNT("attention.head_count", "num_attention_heads"),
                                          REAL("attention.layer_norm_epsilon", "layer_norm_eps"),
                                          {0}};

#define H "transformer.h.*."
static const bp_gguf_row GPT2_ROWS[] = {{"token_embd", "transformer.wte"},
                                        {"position_embd", "transformer.wpe", .plain = true},
                                        {LAYER "attn_norm", H "ln_1"},
                                        {LAYER "attn_qkv", H "attn.c_attn", BP_GGUF_TRANSPOSED},
                                        {LAYER "attn_output", H "attn.c_proj", BP_GGUF_TRANSPOSED},
                                        {LAYER "ffn_norm", H "ln_2"},
                                        {LAYER "ffn_up", H "mlp.c_fc", BP_GGUF_TRANSPOSED},
                                        {LAYER "ffn_down", H "mlp.c_proj", BP_GGUF_TRANSPOSED},
                                        {"output_norm", "transformer.ln_f"},
                                        {"output", "lm_head"},
                                        {0}};

#define ENCODER "bert.encoder.layer.*."
static const bp_gguf_row BERT_ROWS[] = {
    {"token_embd", "bert.embeddings.word_embeddings"},
    {"position_embd", "bert.embeddings.position_embeddings", .plain = true},
    {"token_types", "bert.embeddings.token_type_embeddings", .plain = true},
    {"token_embd_norm", "bert.embeddings.LayerNorm"},
    {LAYER "attn_q", ENCODER "attention.self.query"},
    {LAYER "attn_k", ENCODER "attention.self.key"},
    {LAYER "attn_v", ENCODER "attention.self.value"},
    {LAYER "attn_output", ENCODER "attention.output.dense"},
    {LAYER "attn_output_norm", ENCODER "attention.output.LayerNorm"},
    {LAYER "ffn_up", ENCODER "intermediate.dense"},
    {LAYER "ffn_down", ENCODER "output.dense"},
    {LAYER "layer_output_norm", ENCODER "output.LayerNorm"},
    {0}};

#define VOCABULARY                                                                                 \
    {                                                                                              \
        "vocab_size", "token_embd.weight"                                                          \
    }

static const char *const NO_SCORE_CAP[] = {"attn_logit_softcapping", NULL};

/* For decoders with rotary positions. */
#define ROTARY_FAMILY(name, type, sizes_of, names)                                                 \
    .architecture = name, .model_type = type, .sizes = sizes_of, .rows = names,                    \
    .only = ROTARY_ONLY, .rows_of = {VOCABULARY}, .ties = true, .rotary = true
/* With windows in most layers. */
#define GEMMA_FAMILY(name, type, sizes_of, names, every, largest)                                  \
    ROTARY_FAMILY(name, type, sizes_of, names),                                                    \
        .by_layer = "layer_types", .rest = "\"sliding_attention\"", .period = every,               \
        .has_period_key = true, .layers_of_largest = largest

static const bp_gguf_family
    LLAMA = {ROTARY_FAMILY("llama", "llama", ROTARY, LLAMA_ROWS), .llama3 = true, .longrope = true},
    QWEN2 = {ROTARY_FAMILY("qwen2", "qwen2", ROTARY, QWEN2_ROWS)},
    QWEN3 = {ROTARY_FAMILY("qwen3", "qwen3", ROTARY, QWEN3_ROWS)},
    OLMO2 = {ROTARY_FAMILY("olmo2", "olmo2", ROTARY, OLMO2_ROWS)},
    GRANITE = {ROTARY_FAMILY("granite", "granite", GRANITE_SIZES, LLAMA_ROWS), .llama3 = true,
               .longrope = true},
    SMOLLM3 = {ROTARY_FAMILY("smollm3", "smollm3", ROTARY, LLAMA_ROWS),
               .by_layer = "no_rope_layers", .rest = "1", .period = 4},
    GEMMA2 = {GEMMA_FAMILY("gemma2", "gemma2", GEMMA2_SIZES, GEMMA2_ROWS, 2, 46)},
    GEMMA3 = {GEMMA_FAMILY("gemma3", "gemma3_text", GEMMA3_SIZES, GEMMA3_ROWS, 6, 62),
              .absent = NO_SCORE_CAP},
    PHI3 = {ROTARY_FAMILY("phi3", "phi3", PHI3_SIZES, PHI3_ROWS), .longrope = true, .partial = true,
            .original_beside = true},
    GPT2 = {.architecture = "gpt2",
            .model_type = "gpt2",
            .sizes = GPT2_SIZES,
            .rows = GPT2_ROWS,
            .only = NOTHING,
            .rows_of = {VOCABULARY},
            .ties = true,
            .repeats = true},
    BERT = {.architecture = "bert",
            .model_type = "bert",
            .sizes = BERT_SIZES,
            .rows = BERT_ROWS,
            .only = ENCODER_ONLY,
            .base = "bert.",
            .rows_of = {VOCABULARY, {"type_vocab_size", "token_types.weight"}}};

const bp_gguf_family *const bp_gguf_families[] = {&LLAMA,   &QWEN2,   &QWEN3,  &OLMO2,
                                                  &GRANITE, &SMOLLM3, &GEMMA2, &GEMMA3,
                                                  &PHI3,    &GPT2,    &BERT,   NULL};
