/* The architecture of Granite 4.0's hybrids: Granite's; in most layers a state-space layer replaces
 * attention. Dao and Gu 2024, section 7, "Hybrid models". */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .epsilon = 1e-6, .mixer = BP_STACK_HYBRID};

static const bp_model_size SIZES[] = {BP_STACK_GROUPED,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_HYBRID_SIZES,
                                      BP_STACK_QUIET_INVERSE("rotary", unturned),
                                      BP_STACK_ROTARY,
                                      BP_STACK_UNTIED,
                                      BP_STACK_MULTIPLIERS,
                                      BP_STACK_LAST_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY,
    BP_STACK_SMALL_EPSILON_KEY,
    BP_STACK_HYBRID_KEYS,
    BP_STACK_MULTIPLIER_KEYS,
    {BP_BOOL_KEY("model.rotary", NULL),
     .help = "attention has rotary positions, else none; yes if not given"},
    {0}};

static const bp_hf_size HF_SIZES[] = {BP_HF_SIZE("layers", "num_hidden_layers", "32"),
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

static const bp_hf_table HYBRID = {
    BP_STACK_HF_TABLE_OF("granite_hybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM",
                         bp_stack_hf_check_states, bp_stack_hf_derive_scores),
    .sizes = HF_SIZES, .settings = SETTINGS, .rows = ROWS, .harmless = HARMLESS};

const bp_model_family bp_granite_hybrid_family = {
    BP_STACK_DECODER("granite_hybrid", STACK, SIZES, KEYS, &HYBRID), .in_order = true};
