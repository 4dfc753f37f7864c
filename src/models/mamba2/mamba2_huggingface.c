/* Mamba-2 as Hugging Face folders hold it: z, x, B, C and dt are one matrix, and the taps of x, B
 * and C one convolution. */
#include "models/mamba2/mamba2.h"

#define SIZE(ours, theirs, is)                                                                     \
    {                                                                                              \
        ours, theirs, NULL, .absent = is                                                           \
    }
static const bp_hf_size SIZES[] = {
    SIZE("layers", "num_hidden_layers", "64"),
    SIZE("width", "hidden_size", "4096"),
    SIZE("heads", "num_heads", "128"),
    SIZE("head_width", "head_dim", "64"),
    SIZE("state", "state_size", "128"),
    SIZE("groups", "n_groups", "8"),
    SIZE("taps", "conv_kernel", "4"),
    {"context", "context", NULL, BP_HF_COUNT, "2048"}, /* only of training windows */
    {"norm_epsilon", "layer_norm_epsilon", NULL, BP_HF_REAL, "1e-5"},
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "0"},
    SIZE("vocab_size", "vocab_size", "32768"),
    {0}};

static const bp_hf_setting SETTINGS[] = {
    {"hidden_act", "\"silu\""},
    {"use_bias", "false"},
    {"use_conv_bias", "true"},
    {"rms_norm", "true"},
    {"expand", "heads*head_width/width"},
    {"time_step_limit",
     "[0.0, \"Infinity\"]|[0, \"Infinity\"]|[0.0, {\"__float__\": \"Infinity\"}]"},
    {0}};

static const char *const BUFFERS[] = {NULL};
static const char *const HARMLESS[] = {
    "chunk_size",
    "time_step_rank",
    "time_step_min",
    "time_step_max",
    "time_step_floor",
    "norm_before_gate", /* transformers gates first, whatever it says */
    "rescale_prenorm_residual",
    "residual_in_fp32",
    NULL};

static const bp_hf_row ROWS[] = {
    {"embeddings.weight", "vocab_size", "width", false, 1, {"wte"}},
    {"layers.*.norm.weight", "width", NULL, false, 1, {"h.*.ln.gain"}},
    {"layers.*.mixer.in_proj.weight",
     "2*heads*head_width+2*groups*state+heads",
     "width",
     false,
     4,
     {"h.*.z.weight", "h.*.x.weight", "h.*.bc.weight", "h.*.dt.weight"},
     .blocks = "1",
     .part_rows = {"heads*head_width", "heads*head_width", "2*groups*state", "heads"}},
    {"layers.*.mixer.conv1d.weight",
     "heads*head_width+2*groups*state",
     "taps",
     false,
     2,
     {"h.*.x.taps", "h.*.bc.taps"},
     .blocks = "1",
     .part_rows = {"heads*head_width", "2*groups*state"},
     .middle = "1"},
    {"layers.*.mixer.conv1d.bias",
     "heads*head_width+2*groups*state",
     NULL,
     false,
     2,
     {"h.*.x.bias", "h.*.bc.bias"},
     .blocks = "1",
     .part_rows = {"heads*head_width", "2*groups*state"}},
    {"layers.*.mixer.dt_bias", "heads", NULL, false, 1, {"h.*.dt.bias"}},
    {"layers.*.mixer.A_log", "heads", NULL, false, 1, {"h.*.decay"}},
    {"layers.*.mixer.D", "heads", NULL, false, 1, {"h.*.skip"}},
    {"layers.*.mixer.norm.weight", "heads*head_width", NULL, false, 1, {"h.*.gate.gain"}},
    {"layers.*.mixer.out_proj.weight", "width", "heads*head_width", false, 1, {"h.*.out.weight"}},
    {"norm_f.weight", "width", NULL, false, 1, {"ln_f.gain"}},
    {"lm_head.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const char *const HEAD[] = {"lm_head.", NULL};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    return bp_hf_check_divides(shape, "groups", "heads", path);
}

static const bp_hf_table MAMBA2 = {.kind = "mamba2",
                                   .model_type = "mamba2",
                                   .architecture = "Mamba2ForCausalLM",
                                   .prefix = "backbone.",
                                   .first = "embeddings.weight",
                                   .head = "lm_head.weight",
                                   .tied = "embeddings.weight",
                                   .sizes = SIZES,
                                   .settings = SETTINGS,
                                   .rows = ROWS,
                                   .buffers = BUFFERS,
                                   .harmless = HARMLESS,
                                   .more = "{\"torch_dtype\": \"float32\"}",
                                   .check = check,
                                   .bare = HEAD};

const bp_hf_table *const bp_mamba2_huggingface[] = {&MAMBA2, NULL};
