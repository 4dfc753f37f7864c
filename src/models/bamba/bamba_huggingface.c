/* Bamba as Hugging Face folders hold it. */
#include "models/bamba/bamba.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZES_OF("32", "4096", "32", "14336", "262144", "128000"),
                                   BP_HF_KV_HEADS("8"),
                                   BP_HF_HEAD_WIDTH("width/heads"),
                                   {"attention_layers", "attn_layer_indices", NULL, BP_HF_LAYERS,
                                    "0", .null_is = "0", .quiet = true},
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

static const bp_hf_table BAMBA = {.kind = "bamba",
                                  .model_type = "bamba",
                                  .architecture = "BambaForCausalLM",
                                  .prefix = "model.",
                                  .first = "embed_tokens.weight",
                                  .head = "lm_head.weight",
                                  .tied = "embed_tokens.weight",
                                  .sizes = SIZES,
                                  .settings = SETTINGS,
                                  .rows = ROWS,
                                  .buffers = bp_stack_hf_buffers,
                                  .harmless = HARMLESS,
                                  .more = BP_HF_MORE,
                                  .check = bp_stack_hf_check_states,
                                  .derive = bp_rope_hf_derive,
                                  .bare = bp_stack_hf_head};

const bp_hf_table *const bp_bamba_huggingface[] = {&BAMBA, NULL};
