/* The architectures of GGUF files that are read and written. */
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
    {                                                                                              \
        .gguf = "rope.freq_base", .huggingface = "rope_theta", .is_real = true, .may_lack = true   \
    }

#define LAYER   "blk.*."
#define DECODER "model.layers.*."
#define ROTARY_ROWS(queries, keys)                                                                 \
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"},    \
        {LAYER "attn_norm", DECODER "input_layernorm"},                                            \
        {LAYER "attn_q", DECODER "self_attn.q_proj", queries},                                     \
        {LAYER "attn_k", DECODER "self_attn.k_proj", keys},                                        \
        {LAYER "attn_v", DECODER "self_attn.v_proj"},                                              \
        {LAYER "attn_output", DECODER "self_attn.o_proj"},                                         \
        {LAYER "ffn_norm", DECODER "post_attention_layernorm"},                                    \
        {LAYER "ffn_gate", DECODER "mlp.gate_proj"}, {LAYER "ffn_up", DECODER "mlp.up_proj"},      \
    {                                                                                              \
        LAYER "ffn_down", DECODER "mlp.down_proj"                                                  \
    }

/* Keys that change no number, and those that have to say one thing. */
static const char *const ROTARY_ONLY[] = {"expert_count=0",
                                          "expert_used_count=0",
                                          "rope.scaling.finetuned",
                                          "tensor_data_layout",
                                          "use_parallel_residual=true",
                                          NULL},
                         *const NOTHING[] = {"attention.causal=true", NULL},
                         *const ENCODER_ONLY[] = {"attention.causal=false", "pooling_type", NULL};

static const bp_gguf_size ROTARY[] = {ROTARY_SIZES, {0}};

static const bp_gguf_row LLAMA_ROWS[] = {ROTARY_ROWS(BP_GGUF_TURN_QUERIES, BP_GGUF_TURN_KEYS), {0}},
                         QWEN3_ROWS[] = {ROTARY_ROWS(BP_GGUF_SAME, BP_GGUF_SAME),
                                         {LAYER "attn_q_norm", DECODER "self_attn.q_norm"},
                                         {LAYER "attn_k_norm", DECODER "self_attn.k_norm"},
                                         {0}},
                         QWEN2_ROWS[] = {ROTARY_ROWS(BP_GGUF_SAME, BP_GGUF_SAME), {0}};

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

static const bp_gguf_family LLAMA = {.architecture = "llama",
                                     .model_type = "llama",
                                     .sizes = ROTARY,
                                     .rows = LLAMA_ROWS,
                                     .only = ROTARY_ONLY,
                                     .rows_of = {VOCABULARY},
                                     .ties = true,
                                     .rotary = true},
                            QWEN2 = {.architecture = "qwen2",
                                     .model_type = "qwen2",
                                     .sizes = ROTARY,
                                     .rows = QWEN2_ROWS,
                                     .only = ROTARY_ONLY,
                                     .rows_of = {VOCABULARY},
                                     .ties = true,
                                     .rotary = true},
                            QWEN3 = {.architecture = "qwen3",
                                     .model_type = "qwen3",
                                     .sizes = ROTARY,
                                     .rows = QWEN3_ROWS,
                                     .only = ROTARY_ONLY,
                                     .rows_of = {VOCABULARY},
                                     .ties = true,
                                     .rotary = true},
                            GPT2 = {.architecture = "gpt2",
                                    .model_type = "gpt2",
                                    .sizes = GPT2_SIZES,
                                    .rows = GPT2_ROWS,
                                    .only = NOTHING,
                                    .rows_of = {VOCABULARY}},
                            BERT = {
                                .architecture = "bert",
                                .model_type = "bert",
                                .sizes = BERT_SIZES,
                                .rows = BERT_ROWS,
                                .only = ENCODER_ONLY,
                                .rows_of = {VOCABULARY, {"type_vocab_size", "token_types.weight"}}};

const bp_gguf_family *const bp_gguf_families[] = {&LLAMA, &QWEN2, &QWEN3, &GPT2, &BERT, NULL};
