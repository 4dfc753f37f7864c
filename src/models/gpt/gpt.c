/* GPT-2's architecture: pre-norm layers, learned positions, GELU with tanh, tied embeddings.
 * Radford et al. 2019.
 *
 * In Hugging Face's folders q, k and v are side by side in `c_attn`, and every Conv1D weight is
 * [in, out]. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {
    .position_std = BP_TRANSFORMER_STD / 2, .tied = true, .keeps_words = true};

/* Options that GPT-2 itself does not have are written only where they are chosen. */
static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_STACK_QUIET("inner", inner),
                                      BP_STACK_QUIET_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_TIED_KEY, {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_GPT_SIZES("12", "768", "12", "1024", "50257"),
    {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true},
    {"inner", "n_inner", NULL, BP_HF_COUNT, "4*width", .quiet = true, .null_is = "4*width"},
    {"norm_epsilon", "layer_norm_epsilon", NULL, BP_HF_REAL, "1e-5", .quiet = true},
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {
    {"activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\""},
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"reorder_and_upcast_attn", "false"},
    {0}};

static const bp_hf_row ROWS[] = {
    BP_HF_MATRIX("wte.weight", "vocab_size", "width", "wte"),
    BP_HF_MATRIX("wpe.weight", "context", "width", "wpe"),
    BP_HF_LAYER_NORM("h.*.ln_1", "h.*.ln1"),
    BP_HF_GPT_QUERIES,
    BP_HF_GPT_CONV("h.*.attn.c_proj", "width", "width", "h.*.attn.out"),
    BP_HF_LAYER_NORM("h.*.ln_2", "h.*.ln2"),
    BP_HF_GPT_CONV("h.*.mlp.c_fc", "width", "inner", "h.*.mlp.up"),
    BP_HF_GPT_CONV("h.*.mlp.c_proj", "inner", "width", "h.*.mlp.down"),
    BP_HF_LAYER_NORM("ln_f", "ln_f"),
    BP_HF_UNTIED("lm_head.weight"),
    {0}};

static const char *const BUFFERS[] = {"attn.bias", "attn.masked_bias", NULL}; /* masks */

static const char *const HARMLESS[] = {"n_special", "predict_special_tokens", BP_HF_GPT_HARMLESS,
                                       NULL};

static const bp_hf_table GPT2 = {
    BP_STACK_HF_NAMES("gpt", "gpt2", "GPT2LMHeadModel", "transformer.", "wte.weight"),
    .stem = "GPT2",
    .scores = true,
    .tags = "classifier",
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = BP_HF_GPT_MORE,
    .check = bp_hf_check_heads};

const bp_model_family bp_gpt_family = {.name = "gpt",
                                       .stack = &STACK,
                                       .sizes = SIZES,
                                       .keys = KEYS,
                                       .objective = &bp_objective_causal,
                                       .huggingface = (const bp_hf_table *const[]){&GPT2, NULL},
                                       .benched = true,
                                       BP_STACK_FAMILY};
