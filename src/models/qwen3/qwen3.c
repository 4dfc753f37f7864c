/* The architecture of Qwen3: LLaMA's, with norms of each head's queries and keys, and a separate
 * size for the head width. Yang et al. 2025, "Qwen3 Technical Report". */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .epsilon = 1e-6, .query_norm = BP_QUERY_NORM_HEADS};

static const bp_model_size SIZES[] = {
    BP_STACK_LLAMA_SIZES, BP_STACK_UNTIED, BP_STACK_LAST_SIZES, {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY, BP_STACK_SMALL_EPSILON_KEY, {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("32", "4096", "32", "22016", "32768", "151936"),
    BP_HF_LLAMA_SIZES("32", "128", "1e-6", "10000", "0"),
    {0}};

static const bp_hf_setting SETTINGS[] = {
    BP_HF_LLAMA_SETTINGS, {"use_sliding_window", "false"}, BP_HF_NO_WINDOW, {0}};

static const char *const HARMLESS[] = {"attention_dropout", "sliding_window", "max_window_layers",
                                       NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_ATTENTION,
                                 BP_HF_QUERY_NORMS("head_width", "head_width"),
                                 BP_HF_MLP,
                                 BP_HF_NORMS_BEFORE,
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table QWEN3 = {BP_STACK_HF_TABLE("qwen3", "qwen3", "Qwen3ForCausalLM"),
                                  .sizes = HF_SIZES,
                                  .settings = SETTINGS,
                                  .rows = ROWS,
                                  .harmless = HARMLESS,
                                  .stem = "Qwen3",
                                  .scores = true,
                                  .tags = "score"};

const bp_model_family bp_qwen3_family = {BP_STACK_DECODER("qwen3", STACK, SIZES, KEYS, &QWEN3)};
