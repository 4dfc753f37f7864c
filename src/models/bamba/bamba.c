/* The architecture of Bamba: LLaMA's layers with rotary positions on half of each head; in most
 * layers a state-space layer replaces attention. Dao and Gu 2024, section 7, "Hybrid models". */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .rope_fraction = 0.5, .mixer = BP_STACK_HYBRID};

static const bp_model_size SIZES[] = {BP_STACK_GROUPED,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_HYBRID_SIZES,
                                      BP_STACK_ROTARY,
                                      BP_STACK_UNTIED,
                                      BP_STACK_LAST_SIZES,
                                      {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY, BP_STACK_HYBRID_KEYS, {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("32", "4096", "32", "14336", "262144", "128000"),
    BP_HF_KV_HEADS("8"),
    BP_HF_HEAD_WIDTH("width/heads"),
    {"attention_layers", "attn_layer_indices", NULL, BP_HF_LAYERS, "0", .null_is = "0",
     .quiet = true},
    BP_HF_STATES,
    BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-5"),
    BP_HF_THETA("10000"),
    {"rope_fraction", NULL, NULL, BP_HF_REAL, "0.5", .quiet = true},
    BP_HF_ROPE_SCALING,
    BP_HF_TIED("0"),
    {0}};

/* Transformers' class rotates half of a head, whatever a folder says. */
static const bp_hf_setting SETTINGS[] = {{"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         {"mlp_bias", "false"},
                                         {"partial_rotary_factor", "0.5"},
                                         {"rope_parameters.partial_rotary_factor", "0.5"},
                                         {"attn_rotary_emb", "head_width/2"},
                                         BP_HF_STATES_ONLY,
                                         {0}};

static const char *const HARMLESS[] = {
    "attention_dropout",  "mamba_chunk_size",  "time_step_min",      "time_step_max",
    "num_logits_to_keep", "use_mamba_kernels", "z_loss_coefficient", NULL};

static const bp_hf_row ROWS[] = {
    BP_HF_EMBEDDING,
    BP_HF_MIXERS,
    BP_HF_NORM("pre_ff_layernorm", "h.*.ln2.gain"),
    BP_HF_MATRIX("layers.*.feed_forward.gate_proj.weight", "inner", "width", "h.*.mlp.gate.weight"),
    BP_HF_MATRIX("layers.*.feed_forward.up_proj.weight", "inner", "width", "h.*.mlp.up.weight"),
    BP_HF_MATRIX("layers.*.feed_forward.down_proj.weight", "width", "inner", "h.*.mlp.down.weight"),
    BP_HF_VECTOR("final_layernorm.weight", "width", "ln_f.gain"),
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const bp_hf_table BAMBA = {BP_STACK_HF_TABLE_OF("bamba", "bamba", "BambaForCausalLM",
                                                       bp_stack_hf_check_states, bp_rope_hf_derive),
                                  .sizes = HF_SIZES,
                                  .settings = SETTINGS,
                                  .rows = ROWS,
                                  .harmless = HARMLESS,
                                  .pad = "0"};

const bp_model_family bp_bamba_family = {BP_STACK_DECODER("bamba", STACK, SIZES, KEYS, &BAMBA),
                                         .in_order = true};
