/* The family of Mamba-2: a stack of state-space layers, whose state has one size for any length of
 * text. Dao and Gu 2024.
 *
 * In Hugging Face's folders z, x, B, C and dt are one matrix, and the taps of x, B and C one
 * convolution. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {.rms = true, .mixer = BP_STACK_STATES};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_STACK_COUNT("head_width", state_head_width),
                                      BP_STACK_STATE_SIZES,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_UNTIED,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    {BP_INT_KEY("model.head_width", NULL, 1, 1 << 20),
     .help = "width of a head; twice model.width over model.heads if not given"},
    BP_STACK_STATE_KEYS,
    {0}};

/* Older checkpoints have epsilon as a float. */
static void fill_defaults(bp_model_shape *shape)
{
    if (shape->stack.epsilon <= 0)
        shape->stack.epsilon = (double)bp_stack_epsilon(shape);
    bp_stack_fill_defaults(shape);
}

static const bp_block_list BLOCK_LIST = {.count = bp_transformer_blocks,
                                         .are = "embedding, layers, head",
                                         .cost = bp_stack_cost,
                                         .backbone = bp_stack_backbone,
                                         .output = bp_transformer_block_output,
                                         .add_shared = bp_stack_add_shared,
                                         .add = bp_stack_add_block};

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZE("layers", "num_hidden_layers", "64"),
    BP_HF_SIZE("width", "hidden_size", "4096"),
    BP_HF_SIZE("heads", "num_heads", "128"),
    BP_HF_SIZE("head_width", "head_dim", "64"),
    BP_HF_SIZE("state", "state_size", "128"),
    BP_HF_SIZE("groups", "n_groups", "8"),
    BP_HF_SIZE("taps", "conv_kernel", "4"),
    {"context", "context", NULL, BP_HF_COUNT, "2048"}, /* only of training windows */
    BP_HF_NUMBER("norm_epsilon", "layer_norm_epsilon", "1e-5"),
    BP_HF_TIED("0"),
    BP_HF_SIZE("vocab_size", "vocab_size", "32768"),
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
    BP_HF_MATRIX("embeddings.weight", "vocab_size", "width", "wte"),
    BP_HF_VECTOR("layers.*.norm.weight", "width", "h.*.ln.gain"),
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
    BP_HF_VECTOR("layers.*.mixer.dt_bias", "heads", "h.*.dt.bias"),
    BP_HF_VECTOR("layers.*.mixer.A_log", "heads", "h.*.decay"),
    BP_HF_VECTOR("layers.*.mixer.D", "heads", "h.*.skip"),
    BP_HF_VECTOR("layers.*.mixer.norm.weight", "heads*head_width", "h.*.gate.gain"),
    BP_HF_MATRIX("layers.*.mixer.out_proj.weight", "width", "heads*head_width", "h.*.out.weight"),
    BP_HF_VECTOR("norm_f.weight", "width", "ln_f.gain"),
    BP_HF_UNTIED("lm_head.weight"),
    {0}};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    return bp_hf_check_divides(shape, "groups", "heads", path);
}

static const bp_hf_table MAMBA2 = {
    BP_STACK_HF_NAMES("mamba2", "mamba2", "Mamba2ForCausalLM", "backbone.", "embeddings.weight"),
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"torch_dtype\": \"float32\"}",
    .check = check,
    .pad = "1"};

const bp_model_family bp_mamba2_family = {.name = "mamba2",
                                          .stack = &STACK,
                                          .sizes = SIZES,
                                          .keys = KEYS,
                                          .any_context = true,
                                          .unlimited = true,
                                          .objective = &bp_objective_causal,
                                          .huggingface =
                                              (const bp_hf_table *const[]){&MAMBA2, NULL},
                                          .fill_defaults = fill_defaults,
                                          .check = bp_stack_check,
                                          .check_read = bp_stack_check_read,
                                          .facts = bp_stack_facts,
                                          .blocks = &BLOCK_LIST};
