/* The architecture of GPT-J: parallel attention and MLP that share a norm, rotary positions on a
 * part of each head, biases only in the MLP and on the logits. Wang and Komatsuzaki 2021.
 *
 * In Hugging Face's folders every weight is [out, in], as ours; the two numbers of a rotated pair
 * are adjacent there. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {.rotary = true,
                               .parallel = true,
                               .one_norm = true,
                               .no_attention_bias = true,
                               .head_bias = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_COUNT("rope_width", rope_width),
                                      BP_STACK_UNTIED,
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    {BP_INT_KEY("model.rope_width", NULL, 2, 1 << 20),
     .help = "numbers of a head that positions turn; all if not given"},
    {0}};

#define TURNED(theirs, ours)                                                                       \
    {                                                                                              \
        "h.*.attn." theirs ".weight", "width", "width", false, 1, {"h.*.attn." ours ".weight"},    \
            .pairs = "rope_width", .head = "width/heads"                                           \
    }

static const bp_hf_size HF_SIZES[] = {
    BP_HF_GPT_SIZES("28", "4096", "16", "2048", "50400"),
    {"inner", "n_inner", NULL, BP_HF_COUNT, "4*width", .null_is = "4*width"},
    {"rope_width", "rotary_dim", NULL, BP_HF_COUNT, "width/heads", .absent = "64"},
    BP_HF_NUMBER("norm_epsilon", "layer_norm_epsilon", "1e-5"),
    BP_HF_TIED("0"),
    {0}};

static const bp_hf_setting SETTINGS[] = {
    {"activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\""},
    {"scale_attn_weights", "true"},
    {"rotary", "true"},
    {0}};

static const bp_hf_row ROWS[] = {
    BP_HF_MATRIX("wte.weight", "vocab_size", "width", "wte"),
    BP_HF_LAYER_NORM("h.*.ln_1", "h.*.ln1"),
    TURNED("k_proj", "k"),
    BP_HF_MATRIX("h.*.attn.v_proj.weight", "width", "width", "h.*.attn.v.weight"),
    TURNED("q_proj", "q"),
    BP_HF_MATRIX("h.*.attn.out_proj.weight", "width", "width", "h.*.attn.out.weight"),
    BP_HF_LINEAR("h.*.mlp.fc_in", "inner", "width", "h.*.mlp.up"),
    BP_HF_LINEAR("h.*.mlp.fc_out", "width", "inner", "h.*.mlp.down"),
    BP_HF_LAYER_NORM("ln_f", "ln_f"),
    BP_HF_UNTIED("lm_head.weight"),
    BP_HF_VECTOR("lm_head.bias", "vocab_size", "head.bias"),
    {0}};

/* Masks, and tables of positions. */
static const char *const BUFFERS[] = {"attn.bias", "attn.masked_bias", "attn.embed_positions",
                                      NULL};

static const char *const HARMLESS[] = {BP_HF_GPT_HARMLESS, NULL};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    int64_t heads = bp_hf_size_of(shape, "heads"), width = bp_hf_size_of(shape, "width"),
            turned = bp_hf_size_of(shape, "rope_width");

    if (bp_hf_check_heads(shape, path) != BP_OK)
        return BP_ERR_FORMAT;
    if (turned % 2 != 0 || turned > width / heads)
        return BP_FAIL(
            BP_ERR_FORMAT, "huggingface.bad_rope",
            "\"rotary_dim\" is %lld, and not an even number up to the %lld of a head: at %s",
            (long long)turned, (long long)(width / heads), path);
    return BP_OK;
}

static const bp_hf_table GPTJ = {
    BP_STACK_HF_NAMES("gptj", "gptj", "GPTJForCausalLM", "transformer.", "wte.weight"),
    .stem = "GPTJ",
    .scores = true,
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = BP_HF_GPT_MORE,
    .check = check};

const bp_model_family bp_gptj_family = {BP_STACK_DECODER("gptj", STACK, SIZES, KEYS, &GPTJ)};
