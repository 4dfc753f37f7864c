/* The architecture of BLOOM: GPT-2 with a norm after the embedding, and ALiBi in place of learned
 * positions. Le Scao et al. 2022.
 *
 * In Hugging Face's folders every weight is [out, in], as ours; the rows of `query_key_value` are
 * q, k and v of one head after the other. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {
    .embedding_norm = true, .alibi = true, .tied = true, .keeps_words = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_TIED_KEY, {0}};

#define LAYER "h.*."

/* Positions have no parameters: files have the length of training texts, if anything. */
static const bp_hf_size HF_SIZES[] = {
    {"layers", "n_layer", NULL, .older = "num_hidden_layers", .absent = "2"},
    {"width", "hidden_size", NULL, .older = "n_embed", .absent = "64"},
    {"heads", "n_head", NULL, .older = "num_attention_heads", .absent = "8"},
    BP_HF_SIZE("context", "seq_length", "2048"),
    BP_HF_SIZE("vocab_size", "vocab_size", "250880"),
    BP_HF_NUMBER("norm_epsilon", "layer_norm_epsilon", "1e-5"),
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {{"apply_residual_connection_post_layernorm", "false"},
                                         {0}};

static const bp_hf_row ROWS[] = {
    BP_HF_MATRIX("word_embeddings.weight", "vocab_size", "width", "wte"),
    BP_HF_LAYER_NORM("word_embeddings_layernorm", "embedding.ln"),
    BP_HF_LAYER_NORM(LAYER "input_layernorm", "h.*.ln1"),
    BP_HF_HEADS_JOINED(LAYER "self_attention.query_key_value", "3*width"),
    BP_HF_LINEAR(LAYER "self_attention.dense", "width", "width", "h.*.attn.out"),
    BP_HF_LAYER_NORM(LAYER "post_attention_layernorm", "h.*.ln2"),
    BP_HF_LINEAR(LAYER "mlp.dense_h_to_4h", "4*width", "width", "h.*.mlp.up"),
    BP_HF_LINEAR(LAYER "mlp.dense_4h_to_h", "width", "4*width", "h.*.mlp.down"),
    BP_HF_LAYER_NORM("ln_f", "ln_f"),
    BP_HF_UNTIED("lm_head.weight"),
    {0}};

static const char *const BUFFERS[] = {"", NULL};

/* How training partitioned and rounded its matrix products. */
static const char *const HARMLESS[] = {
    "hidden_dropout", "attention_dropout",     "pretraining_tp",
    "slow_but_exact", "masked_softmax_fusion", "bias_dropout_fusion",
    "skip_bias_add",  "skip_bias_add_qkv",     "attention_softmax_in_fp32",
    "unk_token_id",   "offset_alibi",          NULL};

static const bp_hf_table BLOOM = {
    BP_STACK_HF_NAMES("bloom", "bloom", "BloomForCausalLM", "transformer.",
                      "word_embeddings.weight"),
    .stem = "Bloom",
    .scores = true,
    .tags = "classifier",
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"hidden_dropout\": 0.0, \"attention_dropout\": 0.0, \"torch_dtype\": \"float32\","
            " \"use_cache\": true}",
    .check = bp_hf_check_heads};

const bp_model_family bp_bloom_family = {BP_STACK_DECODER("bloom", STACK, SIZES, KEYS, &BLOOM)};
