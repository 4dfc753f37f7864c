/* The architecture of OPT: GPT-2 with ReLU, and positions that begin at row 2 of their table. Zhang
 * et al. 2022.
 *
 * In Hugging Face's folders every weight is [out, in], as ours; the table of positions has two
 * extra rows. */
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {.position_std = BP_TRANSFORMER_STD,
                               .first_position = 2,
                               .activation = BP_RELU,
                               .tied = true,
                               .keeps_words = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_CONTEXT,
                                      BP_POSITIONS_SIZE,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_TIED,
                                      BP_STACK_QUIET("embedding", embedding),
                                      BP_STACK_QUIET_INVERSE("norms_first", norms_after),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_TIED_KEY,
    {BP_BOOL_KEY("model.norms_first", NULL),
     .help = "norms precede attention and MLP, with one more before the head, else they follow "
             "(OPT-350M); yes if not given"},
    {BP_INT_KEY("model.embedding", NULL, 1, 1 << 20),
     .help = "width of token embeddings, which a projection makes as wide as the model, and "
             "another one so wide again before the head; model.width if not given"},
    {0}};

static void fill_defaults(bp_model_shape *shape)
{
    bp_stack_fill_defaults(shape);
    shape->stack.embedding = bp_stack_embedding_width(shape);
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    bp_stack_check(shape, tensor_ranks, config);
    bp_stack_check_embedding(shape, config);
}

#define LAYER "decoder.layers.*."

static const bp_hf_size HF_SIZES[] = {
    BP_HF_SIZE("layers", "num_hidden_layers", "12"),
    BP_HF_SIZE("width", "hidden_size", "768"),
    BP_HF_SIZE("heads", "num_attention_heads", "12"),
    BP_HF_SIZE("inner", "ffn_dim", "3072"),
    BP_HF_SIZE("context", "max_position_embeddings", "2048"),
    BP_HF_SIZE("vocab_size", "vocab_size", "50272"),
    {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},
    {"embedding", "word_embed_proj_dim", NULL, BP_HF_COUNT, "width", .null_is = "width",
     .quiet = true},
    {"projected", NULL, NULL, BP_HF_FLAG, "embedding+-1*width", .quiet = true},
    {"norms_first", "do_layer_norm_before", NULL, BP_HF_FLAG, "1", .quiet = true},
    {0}};

static const bp_hf_setting SETTINGS[] = {{"activation_function", "\"relu\""},
                                         {"enable_bias", "true"},
                                         {"layer_norm_elementwise_affine", "true"},
                                         {"_remove_final_layer_norm", "false"},
                                         {0}};

static const bp_hf_row ROWS[] = {
    BP_HF_MATRIX("decoder.embed_tokens.weight", "vocab_size", "embedding", "wte"),
    BP_HF_MATRIX("decoder.embed_positions.weight", "context+2", "width", "wpe"),
    BP_HF_IF("projected", "decoder.project_out.weight", "embedding", "width", "transform.weight"),
    BP_HF_IF("projected", "decoder.project_in.weight", "width", "embedding", "embedding.weight"),
    BP_HF_IF("norms_first", "decoder.final_layer_norm.weight", "width", NULL, "ln_f.gain"),
    BP_HF_IF("norms_first", "decoder.final_layer_norm.bias", "width", NULL, "ln_f.bias"),
    BP_HF_LINEAR(LAYER "self_attn.k_proj", "width", "width", "h.*.attn.k"),
    BP_HF_LINEAR(LAYER "self_attn.v_proj", "width", "width", "h.*.attn.v"),
    BP_HF_LINEAR(LAYER "self_attn.q_proj", "width", "width", "h.*.attn.q"),
    BP_HF_LINEAR(LAYER "self_attn.out_proj", "width", "width", "h.*.attn.out"),
    BP_HF_LAYER_NORM(LAYER "self_attn_layer_norm", "h.*.ln1"),
    BP_HF_LINEAR(LAYER "fc1", "inner", "width", "h.*.mlp.up"),
    BP_HF_LINEAR(LAYER "fc2", "width", "inner", "h.*.mlp.down"),
    BP_HF_LAYER_NORM(LAYER "final_layer_norm", "h.*.ln2"),
    {"lm_head.weight", "vocab_size", "embedding", false, 1, {"head"}, .only_if = "!tied"},
    {0}};

static const char *const BUFFERS[] = {"", NULL};

static const char *const HARMLESS[] = {"dropout",   "attention_dropout", "activation_dropout",
                                       "layerdrop", "init_std",          NULL};

static const bp_hf_table OPT = {
    BP_STACK_HF_NAMES("opt", "opt", "OPTForCausalLM", "model.", "decoder.embed_tokens.weight"),
    .stem = "OPT",
    .scores = true,
    .pad = "1",
    .sizes = HF_SIZES,
    .settings = SETTINGS,
    .rows = ROWS,
    .buffers = BUFFERS,
    .harmless = HARMLESS,
    .more = "{\"dropout\": 0.0, \"attention_dropout\": 0.0, \"layerdrop\": 0.0,"
            " \"torch_dtype\": \"float32\", \"use_cache\": true}",
    .check = bp_hf_check_heads};

const bp_model_family bp_opt_family = {.name = "opt",
                                       .stack = &STACK,
                                       .sizes = SIZES,
                                       .keys = KEYS,
                                       .objective = &bp_objective_causal,
                                       .huggingface = (const bp_hf_table *const[]){&OPT, NULL},
                                       .state_width = bp_stack_state_width,
                                       BP_STACK_ENCODER(fill_defaults, check)};
