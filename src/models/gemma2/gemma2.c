/* The architecture of Gemma 2: norms before and after branches, whose gains are 1 + the stored
 * value, GEGLU, windows in every other layer, caps of scores and logits, a scaled embedding. Gemma
 * Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size". */
#include "models/gemma2/gemma.h"

static const bp_stack STACK = {BP_STACK_GEMMA, .window_period = 2};

static const bp_model_size SIZES[] = {BP_STACK_GEMMA_SIZES, BP_STACK_LAST_SIZES, {0}};

static const bp_option KEYS[] = {
    BP_STACK_SMALL_EPSILON_KEY, BP_STACK_TIED_KEY, BP_STACK_PERIOD_KEYS, {0}};

static const bp_hf_size HF_SIZES[] = {BP_HF_SIZES_OF("26", "2304", "8", "9216", "8192", "256000"),
                                      BP_HF_LLAMA_SIZES("4", "256", "1e-6", "10000", "1"),
                                      BP_HF_GEMMA_SIZES("2", "50", "30"),
                                      {0}};

void bp_gemma_hf_derive(bp_hf_shape *shape, bool written)
{
    bp_rope_hf_derive(shape, written);
    if (!written || bp_hf_size_of(shape, "window") > 0)
        return;
    bp_hf_set_size(shape, "window", bp_hf_value_of(shape, "context"));
    bp_hf_set_size(shape, "window_period", 1);
}

static const bp_hf_setting SETTINGS[] = {BP_HF_WHOLE_HEADS, BP_HF_GEMMA_SETTINGS, {0}};

static const char *const HARMLESS[] = {BP_HF_GEMMA_HARMLESS, NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,   BP_HF_ATTENTION, BP_HF_MLP,
                                 BP_HF_GEMMA_NORMS, BP_HF_ENDS,      {0}};

static const bp_hf_table GEMMA2 = {
    BP_STACK_HF_TABLE_DERIVED("gemma2", "gemma2", "Gemma2ForCausalLM", bp_gemma_hf_derive),
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .harmless = HARMLESS,
    .stem = "Gemma2",
    .scores = true,
    .pad = "0",
    .tags = "score"};

const bp_model_family bp_gemma2_family = {BP_STACK_DECODER("gemma2", STACK, SIZES, KEYS, &GEMMA2)};
