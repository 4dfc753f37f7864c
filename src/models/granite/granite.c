/* The architecture of Granite: LLaMA's, with multipliers on the embedding, scores, branches and
 * logits. Granite Team 2024, "Granite 3.0 Language Models", after Yang et al. 2022, "Tensor
 * Programs V". */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .epsilon = 1e-6};

static const bp_model_size SIZES[] = {
    BP_STACK_LLAMA_SIZES, BP_STACK_UNTIED, BP_STACK_MULTIPLIERS, BP_STACK_LAST_SIZES, {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY, BP_STACK_SMALL_EPSILON_KEY, BP_STACK_MULTIPLIER_KEYS, {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("32", "4096", "32", "11008", "2048", "32000"),
    BP_HF_LLAMA_SIZES("heads", "width/heads", "1e-6", "10000", "0"),
    BP_HF_MULTIPLIERS,
    {0}};

static const bp_hf_setting SETTINGS[] = {
    BP_HF_LLAMA_SETTINGS, {"mlp_bias", "false"}, BP_HF_NO_WINDOW, {0}};

static const char *const HARMLESS[] = {"attention_dropout", NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,    BP_HF_ATTENTION, BP_HF_MLP,
                                 BP_HF_NORMS_BEFORE, BP_HF_ENDS,      {0}};

static const bp_hf_table GRANITE = {
    BP_STACK_HF_TABLE_DERIVED("granite", "granite", "GraniteForCausalLM",
                              bp_stack_hf_derive_scores),
    .sizes = HF_SIZES, .settings = SETTINGS, .rows = ROWS, .harmless = HARMLESS};

const bp_model_family bp_granite_family = {
    BP_STACK_DECODER("granite", STACK, SIZES, KEYS, &GRANITE)};
