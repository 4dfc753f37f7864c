/* Gemma 2 as Hugging Face folders hold it. */
#include "models/gemma2/gemma2.h"

#include "models/gemma2/gemma2_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZES_OF("26", "2304", "8", "9216", "8192", "256000"),
                                   BP_HF_KV_HEADS("4"),
                                   BP_HF_HEAD_WIDTH("256"),
                                   BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"),
                                   BP_HF_THETA("10000"),
                                   BP_HF_ROPE_SCALING,
                                   BP_HF_TIED("1"),
                                   BP_HF_GEMMA_SIZES("2", "50", "30"),
                                   {0}};

static const bp_hf_setting SETTINGS[] = {BP_HF_WHOLE_HEADS, BP_HF_GEMMA_SETTINGS, {0}};

static const char *const HARMLESS[] = {BP_HF_GEMMA_HARMLESS, NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,   BP_HF_ATTENTION, BP_HF_MLP,
                                 BP_HF_GEMMA_NORMS, BP_HF_ENDS,      {0}};

static const bp_hf_table GEMMA2 = {BP_STACK_HF_TABLE("gemma2", "gemma2", "Gemma2ForCausalLM"),
                                   .sizes = SIZES,
                                   .settings = SETTINGS,
                                   .rows = ROWS,
                                   .harmless = HARMLESS,
                                   .stem = "Gemma2",
                                   .scores = true,
                                   .pad = "0",
                                   .tags = "score"};

const bp_hf_table *const bp_gemma2_huggingface[] = {&GEMMA2, NULL};
