/* GPT-2 as Hugging Face folders hold it: q, k and v are side by side in `c_attn`, and every Conv1D
 * weight is [in, out]. */
#include "models/gpt/gpt.h"

static const bp_hf_size SIZES[] = {
    {"layers", "n_layer", NULL, .older = "num_hidden_layers", .absent = "12"},
    {"width", "n_embd", NULL, .older = "hidden_size", .absent = "768"},
    {"heads", "n_head", NULL, .older = "num_attention_heads", .absent = "12"},
    {"context", "n_positions", "n_ctx", .older = "max_position_embeddings", .absent = "1024"},
    {"vocab_size", "vocab_size", NULL, .absent = "50257"},
    {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true},
    {"inner", "n_inner", NULL, BP_HF_COUNT, "4*width", .quiet = true, .null_is = "4*width"},
    {"norm_epsilon", "layer_norm_epsilon", NULL, BP_HF_REAL, "1e-5", .quiet = true},
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {
    {"activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\""},
    {"scale_attn_weights", "true"},
    {"scale_attn_by_inverse_layer_idx", "false"},
    {"add_cross_attention", "false"},
    {"is_encoder_decoder", "false"},
    {"reorder_and_upcast_attn", "false"},
    {0}};

static const bp_hf_row ROWS[] = {
    {"wte.weight", "vocab_size", "width", false, 1, {"wte"}},
    {"wpe.weight", "context", "width", false, 1, {"wpe"}},
    {"h.*.ln_1.weight", "width", NULL, false, 1, {"h.*.ln1.gain"}},
    {"h.*.ln_1.bias", "width", NULL, false, 1, {"h.*.ln1.bias"}},
    {"h.*.attn.c_attn.weight",
     "width",
     "3*width",
     true,
     3,
     {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"}},
    {"h.*.attn.c_attn.bias",
     "3*width",
     NULL,
     false,
     3,
     {"h.*.attn.q.bias", "h.*.attn.k.bias", "h.*.attn.v.bias"}},
    {"h.*.attn.c_proj.weight", "width", "width", true, 1, {"h.*.attn.out.weight"}},
    {"h.*.attn.c_proj.bias", "width", NULL, false, 1, {"h.*.attn.out.bias"}},
    {"h.*.ln_2.weight", "width", NULL, false, 1, {"h.*.ln2.gain"}},
    {"h.*.ln_2.bias", "width", NULL, false, 1, {"h.*.ln2.bias"}},
    {"h.*.mlp.c_fc.weight", "width", "inner", true, 1, {"h.*.mlp.up.weight"}},
    {"h.*.mlp.c_fc.bias", "inner", NULL, false, 1, {"h.*.mlp.up.bias"}},
    {"h.*.mlp.c_proj.weight", "inner", "width", true, 1, {"h.*.mlp.down.weight"}},
    {"h.*.mlp.c_proj.bias", "width", NULL, false, 1, {"h.*.mlp.down.bias"}},
    {"ln_f.weight", "width", NULL, false, 1, {"ln_f.gain"}},
    {"ln_f.bias", "width", NULL, false, 1, {"ln_f.bias"}},
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const char *const BUFFERS[] = {"attn.bias", "attn.masked_bias", NULL}, /* masks */
    *const HEAD[] = {"lm_head.", NULL};

static const char *const HARMLESS[] = {"attn_pdrop",
                                       "n_special",
                                       "predict_special_tokens",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       NULL};

static const bp_hf_table GPT2 = {
    .kind = "gpt",
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .first = "wte.weight",
    .head = "lm_head.weight",
    .tied = "wte.weight",
    .stem = "GPT2",
    .scores = true,
    .tags = "classifier",
    .sizes = SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0,"
            " \"torch_dtype\": \"float32\", \"use_cache\": true}",
    .check = bp_hf_check_heads,
    .bare = HEAD};

const bp_hf_table *const bp_gpt_huggingface[] = {&GPT2, NULL};
