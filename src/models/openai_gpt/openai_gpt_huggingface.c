/* The first GPT as Hugging Face folders hold it: q, k and v are side by side in `c_attn`, and every
 * Conv1D weight is [in, out]. Its "gelu" is the tanh approximation. */
#include "models/openai_gpt/openai_gpt.h"

#define SIZE(ours, theirs, is)                                                                     \
    {                                                                                              \
        ours, theirs, NULL, .absent = is                                                           \
    }
#define MATRIX(theirs, rows, columns, ours)                                                        \
    {                                                                                              \
        theirs, rows, columns, false, 1,                                                           \
        {                                                                                          \
            ours                                                                                   \
        }                                                                                          \
    }
#define VECTOR(theirs, rows, ours) MATRIX(theirs, rows, NULL, ours)
#define CONV(theirs, rows, columns, ours)                                                          \
    {"h.*." theirs ".weight", rows, columns, true, 1, {"h.*." ours ".weight"}},                    \
        VECTOR("h.*." theirs ".bias", columns, "h.*." ours ".bias")
#define NORM(theirs, ours)                                                                         \
    VECTOR("h.*." theirs ".weight", "width", "h.*." ours ".gain"),                                 \
        VECTOR("h.*." theirs ".bias", "width", "h.*." ours ".bias")

static const bp_hf_size SIZES[] = {
    {"layers", "n_layer", NULL, .older = "num_hidden_layers", .absent = "12"},
    {"width", "n_embd", NULL, .older = "hidden_size", .absent = "768"},
    {"heads", "n_head", NULL, .older = "num_attention_heads", .absent = "12"},
    {"context", "n_positions", "n_ctx", .older = "max_position_embeddings", .absent = "512"},
    SIZE("vocab_size", "vocab_size", "40478"),
    {"norm_epsilon", "layer_norm_epsilon", NULL, BP_HF_REAL, "1e-5"},
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {{"afn", "\"gelu\"|\"gelu_new\""}, {0}};

static const bp_hf_row ROWS[] = {
    MATRIX("tokens_embed.weight", "vocab_size", "width", "wte"),
    MATRIX("positions_embed.weight", "context", "width", "wpe"),
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
    CONV("attn.c_proj", "width", "width", "attn.out"),
    NORM("ln_1", "ln1"),
    CONV("mlp.c_fc", "width", "4*width", "mlp.up"),
    CONV("mlp.c_proj", "4*width", "width", "mlp.down"),
    NORM("ln_2", "ln2"),
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const char *const BUFFERS[] = {"attn.bias", "position_ids",
                                      NULL}, /* masks, and 0, 1, 2... */
    *const HEAD[] = {"lm_head.", NULL};

static const char *const HARMLESS[] = {"attn_pdrop",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "n_special",
                                       "predict_special_tokens",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       NULL};

static const bp_hf_table OPENAI_GPT = {
    .kind = "openai_gpt",
    .model_type = "openai-gpt",
    .architecture = "OpenAIGPTLMHeadModel",
    .prefix = "transformer.",
    .first = "tokens_embed.weight",
    .head = "lm_head.weight",
    .tied = "tokens_embed.weight",
    .stem = "OpenAIGPT",
    .scores = true,
    .sizes = SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"attn_pdrop\": 0.0, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0,"
            " \"torch_dtype\": \"float32\"}",
    .check = bp_hf_check_heads,
    .bare = HEAD};

const bp_hf_table *const bp_openai_gpt_huggingface[] = {&OPENAI_GPT, NULL};
