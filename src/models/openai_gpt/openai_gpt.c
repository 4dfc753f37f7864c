/* The architecture of the first GPT: norms after branches, none before the head. Radford et al.
 * 2018.
 *
 * In Hugging Face's folders q, k and v are side by side in `c_attn`, and every Conv1D weight is
 * [in, out]; its "gelu" is the tanh approximation. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {
    .position_std = BP_TRANSFORMER_STD, .post_norm = true, .tied = true, .keeps_words = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,        BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,     BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_TIED,         BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES, {0}};

static const bp_option KEYS[] = {BP_STACK_TIED_KEY, {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_GPT_SIZES("12", "768", "12", "512", "40478"),
    BP_HF_NUMBER("norm_epsilon", "layer_norm_epsilon", "1e-5"),
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {{"afn", "\"gelu\"|\"gelu_new\""}, {0}};

static const bp_hf_row ROWS[] = {
    BP_HF_MATRIX("tokens_embed.weight", "vocab_size", "width", "wte"),
    BP_HF_MATRIX("positions_embed.weight", "context", "width", "wpe"),
    BP_HF_GPT_QUERIES,
    BP_HF_GPT_CONV("h.*.attn.c_proj", "width", "width", "h.*.attn.out"),
    BP_HF_LAYER_NORM("h.*.ln_1", "h.*.ln1"),
    BP_HF_GPT_CONV("h.*.mlp.c_fc", "width", "4*width", "h.*.mlp.up"),
    BP_HF_GPT_CONV("h.*.mlp.c_proj", "4*width", "width", "h.*.mlp.down"),
    BP_HF_LAYER_NORM("h.*.ln_2", "h.*.ln2"),
    BP_HF_UNTIED("lm_head.weight"),
    {0}};

static const char *const BUFFERS[] = {"attn.bias", "position_ids",
                                      NULL}; /* masks, and 0, 1, 2... */

static const char *const HARMLESS[] = {"n_special", "predict_special_tokens", BP_HF_GPT_HARMLESS,
                                       NULL};

static const bp_hf_table OPENAI_GPT = {
    BP_STACK_HF_NAMES("openai_gpt", "openai-gpt", "OpenAIGPTLMHeadModel", "transformer.",
                      "tokens_embed.weight"),
    .stem = "OpenAIGPT",
    .scores = true,
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0,"
            " \"torch_dtype\": \"float32\"}",
    .check = bp_hf_check_heads};

const bp_model_family bp_openai_gpt_family = {.name = "openai_gpt",
                                              .stack = &STACK,
                                              .sizes = SIZES,
                                              .keys = KEYS,
                                              .objective = &bp_objective_causal,
                                              .huggingface =
                                                  (const bp_hf_table *const[]){&OPENAI_GPT, NULL},
                                              BP_STACK_FAMILY};
