/* Gemma 3's text model as Hugging Face folders hold it; in files with a vision model, the part
 * under text_config, whose tensors are named language_model. */
#include "models/gemma3/gemma3.h"

#include "models/gemma2/gemma2_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZES_OF("26", "2304", "8", "9216", "131072", "262208"),
                                   BP_HF_KV_HEADS("4"),
                                   BP_HF_HEAD_WIDTH("256"),
                                   BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"),
                                   {"rope_theta", "rope_theta", NULL, BP_HF_REAL, "1000000",
                                    "rope_parameters.full_attention.rope_theta"},
                                   {"rope_local_theta", "rope_local_base_freq", NULL, BP_HF_REAL,
                                    "10000", "rope_parameters.sliding_attention.rope_theta"},
                                   BP_HF_ROPE_SCALING_IN("rope_parameters.full_attention."),
                                   BP_HF_TIED("1"),
                                   BP_HF_GEMMA_SIZES("6", "0", "0"),
                                   {0}};

static const bp_hf_setting SETTINGS[] = {
    {"rope_parameters.sliding_attention.rope_type", "\"default\""}, BP_HF_GEMMA_SETTINGS, {0}};

static const char *const HARMLESS[] = {BP_HF_GEMMA_HARMLESS, NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_ATTENTION,
                                 BP_HF_QUERY_NORMS("head_width", "head_width"),
                                 BP_HF_MLP,
                                 BP_HF_GEMMA_NORMS,
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table GEMMA3 = {BP_STACK_HF_TABLE("gemma3", "gemma3_text", "Gemma3ForCausalLM"),
                                   .sizes = SIZES,
                                   .settings = SETTINGS,
                                   .rows = ROWS,
                                   .harmless = HARMLESS,
                                   .stem = "Gemma3Text",
                                   .scores = true,
                                   .pad = "0"};

const bp_hf_table *const bp_gemma3_huggingface[] = {&GEMMA3, NULL};
