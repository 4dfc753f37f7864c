/* The architecture of SmolLM3: LLaMA's, with layers that have no positions. Bakouch et al. 2025,
 * "SmolLM3: smol, multilingual, long-context reasoner"; Yang et al. 2025, "Rope to Nope and Back
 * Again". */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .epsilon = 1e-6, .rope_period = 4, .tied = true};

static const bp_model_size SIZES[] = {BP_STACK_LLAMA_SIZES,
                                      BP_STACK_TIED,
                                      BP_STACK_COUNT("rope_period", rope_period),
                                      BP_STACK_LAST_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY,
    BP_STACK_SMALL_EPSILON_KEY,
    BP_STACK_TIED_KEY,
    {BP_INT_KEY("model.rope_period", NULL, 1, 10000),
     .help = "in each group of this many layers the last one has no positions; 4 if not given"},
    {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("36", "2048", "16", "11008", "32768", "128256"),
    BP_HF_LLAMA_SIZES("4", "width/heads", "1e-6", "2000000", "1"),
    {"rope_period", "no_rope_layers", NULL, BP_HF_PERIOD, "4", "no_rope_layer_interval",
     .words = "1|0", .null_is = "4"},
    {0}};

static const bp_hf_setting SETTINGS[] = {BP_HF_LLAMA_SETTINGS,
                                         {"mlp_bias", "false"},
                                         {"use_sliding_window", "false"},
                                         BP_HF_NO_WINDOW,
                                         {0}};

static const char *const HARMLESS[] = {"attention_dropout", "sliding_window", "max_window_layers",
                                       NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,    BP_HF_ATTENTION, BP_HF_MLP,
                                 BP_HF_NORMS_BEFORE, BP_HF_ENDS,      {0}};

static const bp_hf_table SMOLLM3 = {BP_STACK_HF_TABLE("smollm3", "smollm3", "SmolLM3ForCausalLM"),
                                    .sizes = HF_SIZES,
                                    .settings = SETTINGS,
                                    .rows = ROWS,
                                    .harmless = HARMLESS,
                                    .stem = "SmolLM3",
                                    .scores = true,
                                    .pad = "128004",
                                    .tags = "score"};

const bp_model_family bp_smollm3_family = {
    BP_STACK_DECODER("smollm3", STACK, SIZES, KEYS, &SMOLLM3)};
