/* The architecture of Gemma 3's text model: Gemma 2's without caps, with norms of each head's
 * queries and keys, and rotary positions of another base in layers with a window. Gemma Team 2025,
 * "Gemma 3 Technical Report". In Hugging Face's files with a vision model it is the part under
 * text_config, whose tensors are named language_model. */
#include "models/gemma2/gemma.h"

static const bp_stack STACK = {BP_STACK_GEMMA, .window_period = 6,
                               .query_norm = BP_QUERY_NORM_HEADS};

static const bp_model_size SIZES[] = {BP_STACK_GEMMA_SIZES,
                                      BP_STACK_REAL("rope_local_theta", rope_local_theta),
                                      BP_STACK_LAST_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_SMALL_EPSILON_KEY,
                                 BP_STACK_TIED_KEY,
                                 BP_STACK_PERIOD_KEYS,
                                 {BP_REAL_KEY("model.rope_local_theta", NULL, 1, 1e12),
                                  .help = "base of the rotary positions of layers with a window, "
                                          "which are not scaled; model.rope_theta if not given"},
                                 {0}};

static const bp_hf_size HF_SIZES[] = {BP_HF_SIZES_OF("26", "2304", "8", "9216", "131072", "262208"),
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

static const bp_hf_table GEMMA3 = {
    BP_STACK_HF_TABLE_DERIVED("gemma3", "gemma3_text", "Gemma3ForCausalLM", bp_gemma_hf_derive),
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .harmless = HARMLESS,
    .stem = "Gemma3Text",
    .scores = true,
    .pad = "0"};

const bp_model_family bp_gemma3_family = {BP_STACK_DECODER("gemma3", STACK, SIZES, KEYS, &GEMMA3)};
