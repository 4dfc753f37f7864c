/* Granite 4.0's hybrids without experts, as Hugging Face folders hold them. */
#include "models/granite_hybrid/granite_hybrid.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZE("layers", "num_hidden_layers", "32"),
                                   BP_HF_SIZE("width", "hidden_size", "4096"),
                                   BP_HF_SIZE("heads", "num_attention_heads", "32"),
                                   BP_HF_SIZE("inner", "shared_intermediate_size", "1024"),
                                   BP_HF_SIZE("context", "max_position_embeddings", "2048"),
                                   BP_HF_SIZE("vocab_size", "vocab_size", "32000"),
                                   BP_HF_KV_HEADS("heads"),
                                   BP_HF_HEAD_WIDTH("width/heads"),
                                   {"attention_layers", "layer_types", NULL, BP_HF_LAYERS, "0",
                                    .words = "\"mamba\"|\"attention\"", .null_is = "0",
                                    .quiet = true},
                                   BP_HF_STATES,
                                   {"rotary", "position_embedding_type", NULL, BP_HF_FLAG, "1",
                                    .absent = "0", .words = "nope|rope", .null_is = "0"},
                                   BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-6"),
                                   BP_HF_THETA("10000"),
                                   BP_HF_ROPE_SCALING,
                                   BP_HF_TIED("0"),
                                   BP_HF_MULTIPLIERS,
                                   {0}};

static const bp_hf_setting SETTINGS[] = {{"num_local_experts", "0", .absent = "8"},
                                         BP_HF_WHOLE_HEADS,
                                         {"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         BP_HF_STATES_ONLY,
                                         {"normalization_function", "\"rmsnorm\""},
                                         {0}};

/* Keys of experts, which these models do not have, and of how the scan is computed and begins. */
static const char *const HARMLESS[] = {"attention_dropout",    "intermediate_size",
                                       "num_experts_per_tok",  "output_router_logits",
                                       "router_aux_loss_coef", "mamba_chunk_size",
                                       "time_step_min",        "time_step_max",
                                       "init_method",          NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_MIXERS,
                                 BP_HF_NORM("post_attention_layernorm", "h.*.ln2.gain"),
                                 {"layers.*.shared_mlp.input_linear.weight",
                                  "2*inner",
                                  "width",
                                  false,
                                  2,
                                  {"h.*.mlp.gate.weight", "h.*.mlp.up.weight"},
                                  .blocks = "1"},
                                 BP_HF_MATRIX("layers.*.shared_mlp.output_linear.weight", "width",
                                              "inner", "h.*.mlp.down.weight"),
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table HYBRID = {.kind = "granite_hybrid",
                                   .model_type = "granitemoehybrid",
                                   .architecture = "GraniteMoeHybridForCausalLM",
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
                                   .derive = bp_stack_hf_derive_scores,
                                   .bare = bp_stack_hf_head};

const bp_hf_table *const bp_granite_hybrid_huggingface[] = {&HYBRID, NULL};
