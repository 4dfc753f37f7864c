/* The architecture of Phi-3: LLaMA's, with rotary positions on all or part of each head. Abdin et
 * al. 2024, "Phi-3 Technical Report". */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {BP_STACK_LLAMA, .rope_fraction = 1};

static const bp_model_size SIZES[] = {
    BP_STACK_LLAMA_SIZES, BP_STACK_REAL("rope_fraction", rope_fraction),
    BP_STACK_UNTIED,      BP_STACK_COUNT("window", window),
    BP_STACK_LAST_SIZES,  {0}};

static const bp_option KEYS[] = {BP_STACK_GATED_INNER_KEY,
                                 {BP_REAL_KEY("model.rope_fraction", NULL, 1e-6, 1),
                                  .help = "share of a head that positions turn; 1 if not given"},
                                 {0}};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZES_OF("32", "3072", "32", "8192", "4096", "32064"),
    BP_HF_KV_HEADS("heads"),
    BP_HF_HEAD_WIDTH("width/heads"),
    BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-5"),
    BP_HF_THETA("10000"),
    BP_HF_NUMBER("rope_fraction", "partial_rotary_factor", "1"),
    BP_HF_ROPE_TYPE("type",
                    "rope_scaling.rope_type|rope_parameters.rope_type|rope_parameters.type"),
    BP_HF_ROPE_NUMBERS("rope_parameters."),
    {"rope_original_context", "original_max_position_embeddings", NULL, BP_HF_COUNT, "0",
     "rope_scaling.original_max_position_embeddings|"
     "rope_parameters.original_max_position_embeddings",
     .quiet = true, .absent = "4096", .null_is = "0"},
    BP_HF_TIED("0"),
    {"window", "sliding_window", NULL, BP_HF_COUNT, "0", .null_is = "0"},
    {0}};

/* Versions of transformers differ in which of the two factors they use. */
static const bp_hf_setting SETTINGS[] = {{"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         {"rope_parameters.partial_rotary_factor", "rope_fraction"},
                                         {0}};

static const char *const HARMLESS[] = {"attention_dropout", "embd_pdrop", "resid_pdrop", NULL};

static const bp_hf_row ROWS[] = {
    BP_HF_EMBEDDING,
    {"layers.*.self_attn.qkv_proj.weight",
     "heads*head_width+2*kv_heads*head_width",
     "width",
     false,
     3,
     {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"},
     .blocks = "1",
     .part_rows = {"heads*head_width", "kv_heads*head_width", "kv_heads*head_width"}},
    BP_HF_ATTENTION_OUT,
    {"layers.*.mlp.gate_up_proj.weight",
     "2*inner",
     "width",
     false,
     2,
     {"h.*.mlp.gate.weight", "h.*.mlp.up.weight"},
     .blocks = "1"},
    BP_HF_MLP_DOWN,
    BP_HF_NORMS_BEFORE,
    BP_HF_ENDS,
    {0}};

/* The rope_scaling of transformers 4 has just three members: it computes the factor. */
static void derive(bp_hf_shape *shape, bool written)
{
    double original = bp_hf_value_of(shape, "rope_original_context"),
           factor = bp_hf_value_of(shape, "rope_factor");

    bp_rope_hf_derive(shape, written);
    if (written && original > 0 && factor == bp_hf_value_of(shape, "context") / original)
        bp_hf_set_size(shape, "rope_factor", 0);
}

static const bp_hf_table PHI3 = {
    BP_STACK_HF_TABLE_DERIVED("phi3", "phi3", "Phi3ForCausalLM", derive),
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .harmless = HARMLESS,
    .stem = "Phi3",
    .scores = true,
    .pad = "32000",
    .tags = "score"};

const bp_model_family bp_phi3_family = {BP_STACK_DECODER("phi3", STACK, SIZES, KEYS, &PHI3)};
