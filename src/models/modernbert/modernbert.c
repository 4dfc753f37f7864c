/* The architecture of ModernBERT: an encoder with norms before its branches, rotary positions, a
 * GEGLU, no biases, and two-sided windows in most layers. Warner et al. 2024, "Smarter, Better,
 * Faster, Longer". */
#include "models/bert/bert.h"
#include "models/stack/stack_huggingface.h"

static const bp_stack STACK = {.no_norm_bias = true,
                               .no_first_norm = true,
                               .embedding_norm = true,
                               .rotary = true,
                               .sees_all = true,
                               .window_period = 3,
                               .window_leads = true,
                               .no_bias = true,
                               .activation = BP_GEGLU_EXACT,
                               .inner_thirds = 8,
                               .inner_multiple = 64,
                               .tied = true,
                               .head_bias = true,
                               .transform = true,
                               .heads_transform = true};

static const bp_model_size SIZES[] = {BP_STACK_SIZES,
                                      BP_STACK_COUNT("inner", inner),
                                      BP_STACK_CONTEXT,
                                      BP_STACK_REAL("norm_epsilon", epsilon),
                                      BP_STACK_REAL("rope_theta", rope_theta),
                                      BP_STACK_REAL("rope_local_theta", rope_local_theta),
                                      BP_STACK_TIED,
                                      BP_STACK_COUNT("window", window),
                                      BP_STACK_COUNT("window_period", window_period),
                                      BP_STACK_QUIET("head_width", head_width),
                                      BP_VARIANT_ATTENTION_SIZE,
                                      BP_VARIANT_HEAD_SIZES,
                                      {0}};

static const bp_option KEYS[] = {
    BP_STACK_GATED_INNER_KEY,
    BP_STACK_TIED_KEY,
    {BP_INT_KEY("model.window", NULL, 0, 1 << 24),
     .help =
         "layers with a window see the tokens up to half of this away; 0: all, as if not given"},
    {BP_INT_KEY("model.window_period", NULL, 1, 10000),
     .help = "in each group of this many layers the first one sees all tokens, the others see "
             "model.window; 3 if not given"},
    {BP_REAL_KEY("model.rope_local_theta", NULL, 1, 1e12),
     .help = "base of the rotary positions of layers with a window; model.rope_theta if not given"},
    {0}};

#define ENCODER_SIZES                                                                                \
    BP_HF_SIZES_OF("22", "768", "12", "1152", "8192", "50368"),                                      \
        {"head_width", NULL, NULL, BP_HF_COUNT, "width/heads", .quiet = true},                       \
        BP_HF_NUMBER("norm_epsilon", "norm_eps", "1e-5"),                                            \
        {"rope_theta", "global_rope_theta",                                                          \
         NULL,         BP_HF_REAL,                                                                   \
         "160000",     "rope_parameters.full_attention.rope_theta"},                                 \
        {"rope_local_theta", "local_rope_theta",     NULL,                                           \
         BP_HF_REAL,         "rope_theta",           "rope_parameters.sliding_attention.rope_theta", \
         .absent = "10000",  .null_is = "rope_theta"},                                               \
        {"tied", "tie_word_embeddings", NULL, BP_HF_FLAG, "1", .quiet = true},                       \
        {"window",    "local_attention", NULL,           BP_HF_COUNT,                                \
         "2*context", .quiet = true,     .absent = "128"},                                           \
    {                                                                                                \
        "window_period", "layer_types", "global_attn_every_n_layers", BP_HF_PERIOD, "3",             \
            "global_attn_every_n_layers", .words = "\"sliding_attention\"|\"full_attention\"",       \
                                          .null_is = "3", .leads = true                              \
    }
#define TASK(kind)                                                                                 \
    {                                                                                              \
        "task", NULL, NULL, BP_HF_CHOICE, kind, .words = "none|classes|regression|tags|spans"      \
    }
#define POOLED                                                                                     \
    {                                                                                              \
        "pool", "classifier_pooling", NULL, BP_HF_CHOICE, "1", .words = "none|first|mean|last",    \
                                                               .written = "none|cls|mean|last"     \
    }

static const bp_hf_size HF_SIZES[] = {ENCODER_SIZES, {0}},
                        VALUE_SIZES[] = {ENCODER_SIZES, TASK("2"), POOLED, BP_BERT_LABELS, {0}},
                        CLASS_SIZES[] = {ENCODER_SIZES, TASK("1"), POOLED, BP_BERT_LABELS, {0}},
                        TAG_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}},
                        SPAN_SIZES[] = {ENCODER_SIZES, BP_BERT_TASK("4", "0"), BP_BERT_ENDS, {0}};

static const bp_hf_setting SETTINGS[] = {
    {"hidden_activation", "\"gelu\""},
    {"norm_bias", "false"},
    {"attention_bias", "false"},
    {"mlp_bias", "false"},
    {"decoder_bias", "true"},
    {"classifier_bias", "false"},
    {"classifier_activation", "\"gelu\""},
    {"rope_parameters.full_attention.rope_type", "\"default\""},
    {"rope_parameters.sliding_attention.rope_type", "\"default\""},
    {0}};

static const char *const HARMLESS[] = {"attention_dropout",
                                       "embedding_dropout",
                                       "mlp_dropout",
                                       "classifier_dropout",
                                       "classifier_pooling",
                                       "sparse_prediction",
                                       "sparse_pred_ignore_index",
                                       "deterministic_flash_attn",
                                       "reference_compile",
                                       "repad_logits_with_grad",
                                       "position_embedding_type",
                                       "initializer_cutoff_factor",
                                       NULL},
                         *const BUFFERS[] = {"attn.rotary_emb.inv_freq", NULL},
                         *const HEADS[] = {"head.", "decoder.", "classifier.", NULL};

#define LAYER "layers.*."
#define ENCODER                                                                                    \
    BP_HF_MATRIX("embeddings.tok_embeddings.weight", "vocab_size", "width", "wte"),                \
        BP_HF_VECTOR("embeddings.norm.weight", "width", "embedding.ln.gain"),                      \
        {LAYER "attn_norm.weight", "width", NULL, false, 1, {"h.*.ln1.gain"}, .not_first = true},  \
        {LAYER "attn.Wqkv.weight",                                                                 \
         "3*width",                                                                                \
         "width",                                                                                  \
         false,                                                                                    \
         3,                                                                                        \
         {"h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"},                          \
         .blocks = "1"},                                                                           \
        BP_HF_MATRIX(LAYER "attn.Wo.weight", "width", "width", "h.*.attn.out.weight"),             \
        BP_HF_VECTOR(LAYER "mlp_norm.weight", "width", "h.*.ln2.gain"),                            \
        {LAYER "mlp.Wi.weight",                                                                    \
         "2*inner",                                                                                \
         "width",                                                                                  \
         false,                                                                                    \
         2,                                                                                        \
         {"h.*.mlp.gate.weight", "h.*.mlp.up.weight"},                                             \
         .blocks = "1"},                                                                           \
        BP_HF_MATRIX(LAYER "mlp.Wo.weight", "width", "inner", "h.*.mlp.down.weight"),              \
        BP_HF_VECTOR("final_norm.weight", "width", "ln_f.gain"),                                   \
        BP_HF_MATRIX("head.dense.weight", "width", "width", "transform.weight"),                   \
        BP_HF_VECTOR("head.norm.weight", "width", "transform.ln.gain")
#define OUTCOMES(rows)                                                                             \
    BP_HF_MATRIX("classifier.weight", rows, "width", "task.weight"),                               \
        BP_HF_VECTOR("classifier.bias", rows, "task.bias")

static const bp_hf_row ROWS[] =
    {ENCODER,
     {"decoder.weight", "vocab_size", "width", false, 1, {"head"}, .only_if = "!tied"},
     BP_HF_VECTOR("decoder.bias", "vocab_size", "head.bias"),
     {0}},
                       TASK_ROWS[] = {ENCODER, OUTCOMES("outcomes"), {0}},
                       SPAN_ROWS[] = {ENCODER, OUTCOMES("2"), {0}};

#define MORE                                                                                       \
    "{\"attention_dropout\": 0.0, \"embedding_dropout\": 0.0, \"mlp_dropout\": 0.0,"               \
    " \"classifier_dropout\": 0.0, \"torch_dtype\": \"float32\"}"

/* Rotary positions need an even head width. */
static bp_err check_folder(const bp_hf_shape *shape, const char *path)
{
    int64_t D = bp_hf_size_of(shape, "head_width");
    bp_err err = bp_hf_check_heads(shape, path);

    if (err == BP_OK && D % 2 != 0)
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.odd_heads",
                      "heads have %lld numbers to turn, which is not a whole number of pairs: at "
                      "%s; give a model "
                      "with an even \"hidden_size\" of a head",
                      (long long)D, path);
    return err;
}

#define TABLE(class, head_of, sizes_of, rows_of)                                                   \
    {                                                                                              \
        .kind = "modernbert", .model_type = "modernbert", .architecture = "ModernBertFor" class,   \
        .prefix = "model.", .first = "embeddings.tok_embeddings.weight", .head = head_of,          \
        .tied = "embeddings.tok_embeddings.weight", .sizes = sizes_of, .settings = SETTINGS,       \
        .rows = rows_of, .buffers = BUFFERS, .harmless = HARMLESS, .more = MORE,                   \
        .check = check_folder, .bare = HEADS                                                       \
    }
static const bp_hf_table MASKED = TABLE("MaskedLM", "decoder.weight", HF_SIZES, ROWS),
                         VALUE = TABLE("SequenceClassification", NULL, VALUE_SIZES, TASK_ROWS),
                         CLASS = TABLE("SequenceClassification", NULL, CLASS_SIZES, TASK_ROWS),
                         TAG = TABLE("TokenClassification", NULL, TAG_SIZES, TASK_ROWS),
                         SPAN_ENDS = TABLE("QuestionAnswering", NULL, SPAN_SIZES, SPAN_ROWS);

const bp_model_family bp_modernbert_family = {
    .name = "modernbert",
    .stack = &STACK,
    .sizes = SIZES,
    .keys = KEYS,
    .any_context = true,
    .objective = &bp_objective_masked,
    .huggingface = (const bp_hf_table *const[]){&MASKED, &VALUE, &CLASS, &TAG, &SPAN_ENDS, NULL},
    BP_STACK_ENCODER(bp_masked_fill_defaults, bp_masked_check)};
