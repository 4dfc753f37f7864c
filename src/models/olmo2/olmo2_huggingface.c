/* OLMo 2 as Hugging Face folders hold it. */
#include "models/olmo2/olmo2.h"

#include "models/stack/stack_huggingface.h"

static const bp_hf_size SIZES[] = {BP_HF_SIZES_OF("32", "4096", "32", "11008", "2048", "50304"),
                                   BP_HF_KV_HEADS("heads"),
                                   BP_HF_HEAD_WIDTH("width/heads"),
                                   BP_HF_NUMBER("norm_epsilon", "rms_norm_eps", "1e-5"),
                                   BP_HF_THETA("10000"),
                                   BP_HF_ROPE_SCALING,
                                   BP_HF_TIED("0"),
                                   {0}};

/* With attention_bias the output projection has a bias, too. */
static const bp_hf_setting SETTINGS[] = {BP_HF_WHOLE_HEADS,
                                         {"hidden_act", "\"silu\""},
                                         {"attention_bias", "false"},
                                         {"layer_types", "*\"full_attention\""},
                                         {0}};

static const char *const HARMLESS[] = {"attention_dropout", NULL};

static const bp_hf_row ROWS[] = {BP_HF_EMBEDDING,
                                 BP_HF_ATTENTION,
                                 BP_HF_QUERY_NORMS("heads*head_width", "kv_heads*head_width"),
                                 BP_HF_MLP,
                                 BP_HF_NORM("post_attention_layernorm", "h.*.attn.ln.gain"),
                                 BP_HF_NORM("post_feedforward_layernorm", "h.*.mlp.ln.gain"),
                                 BP_HF_ENDS,
                                 {0}};

static const bp_hf_table OLMO2 = {BP_STACK_HF_TABLE("olmo2", "olmo2", "Olmo2ForCausalLM"),
                                  .sizes = SIZES,
                                  .settings = SETTINGS,
                                  .rows = ROWS,
                                  .harmless = HARMLESS,
                                  .stem = "Olmo2",
                                  .scores = true,
                                  .pad = "1"};

const bp_hf_table *const bp_olmo2_huggingface[] = {&OLMO2, NULL};
