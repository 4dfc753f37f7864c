/* config.json of LLaMA, Mistral, Qwen2, GPT-NeoX and GPT-2: what is read from it, in all its
 * spellings, what is written back, and what is refused by name. */
#include "bp_test.h"

#include "io/huggingface/hf_config_priv.h"
#include "models/family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char LLAMA[] =
    "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 32, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"intermediate_size\": 44, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-6, "
    "\"rope_theta\": 500000.0, \"vocab_size\": 97}";
static const char NEOX[] =
    "{\"model_type\": \"gpt_neox\", \"num_hidden_layers\": 2, \"hidden_size\": 24, "
    "\"num_attention_heads\": 3, \"intermediate_size\": 40, \"hidden_act\": \"gelu\", "
    "\"max_position_embeddings\": 64, \"rotary_pct\": 0.5, \"rotary_emb_base\": 20000, "
    "\"vocab_size\": 97}";
static const char GPT2[] = "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": "
                           "64, \"vocab_size\": 300, "
                           "\"n_positions\": 64}";
static const char T5[] = "{\"model_type\": \"t5\"}", MT5[] = "{\"model_type\": \"mt5\"}";

/* The configuration with members of `changes`, an object, in the place of its own. */
static json_t *changed(const char *config, const char *changes)
{
    json_t *out = json_loads(config, 0, NULL), *more = json_loads(changes, 0, NULL);

    assert_non_null(out);
    assert_non_null(more);
    (void)json_object_update(out, more);
    json_decref(more);
    return out;
}

static bp_err read_changed(bp_hf_shape *shape, const char *config, const char *changes)
{
    json_t *json = changed(config, changes);
    bp_err err = hf_config_read(shape, json, bp_model_huggingface_tables(), "config.json");

    json_decref(json);
    return err;
}

/* ---- what is read, and written back ---- */

#define SU                                                                                         \
    "{\"type\": \"su\", \"short_factor\": [1, 1.25], \"long_factor\": [1.5, 3], \"factor\": 4}"
#define YARN                                                                                       \
    "{\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 16, "               \
    "\"beta_fast\": 20, \"beta_slow\": 2, \"truncate\": false, \"attention_factor\": 1.25, "       \
    "\"mscale\": 1, \"mscale_all_dim\": 0.5}"

#define SLIDE     "\"sliding_attention\""
#define FULL      "\"full_attention\""
#define NO_WINDOW "{\"model_type\": \"mistral\", \"sliding_window\": null, "

/* A member of the shape as it is read from a configuration with changes. */
typedef struct size_case {
    const char *config, *changes, *name;
    double value;
} size_case;

/* Rotary positions and their scaling. */
static const size_case POSITION_SIZES[] = {
    {LLAMA, "{}", "rope_theta", 500000},
    {LLAMA, "{}", "rope_scaling", 0},
    {LLAMA, "{\"rope_scaling\": null}", "rope_scaling", 0},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"default\"}}", "rope_scaling", 0},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}", "rope_scaling", 1},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}", "rope_factor", 2.5},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"linear\", \"factor\": 2}}",
     "rope_scaling", 1},
    {LLAMA,
     "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}}",
     "rope_original_context", 8192},
    {LLAMA, "{\"rope_theta\": null, \"rope_parameters\": {\"rope_theta\": 7000}}", "rope_theta",
     7000},
    {LLAMA,
     "{\"model_type\": \"smollm3\", \"num_hidden_layers\": 4, \"no_rope_layers\": [1, 0, 1, "
     "0]}",
     "rope_period", 2},
    {LLAMA, "{\"model_type\": \"smollm3\", \"no_rope_layers\": [1, 1]}", "rope_period", 4},
    {LLAMA, "{\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 3}", "rope_period", 3},
    {NEOX, "{}", "rope_theta", 20000},
    {NEOX, "{}", "rope_fraction", 0.5},
    {NEOX, "{\"rotary_emb_base\": null, \"rope_theta\": 300}", "rope_theta", 300},
    {NEOX, "{\"rotary_pct\": null, \"rope_parameters\": {\"partial_rotary_factor\": 1}}",
     "rope_fraction", 1},
    {NEOX, "{\"rope_parameters\": {\"rope_type\": \"default\"}}", "rope_fraction", 0.5},
    {NEOX, "{\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 3}}", "rope_scaling", 4},
    {LLAMA, "{\"original_max_position_embeddings\": 16}", "rope_original_context", 0},
    {LLAMA, "{\"original_max_position_embeddings\": 16, \"rope_scaling\": " SU ", \"head_dim\": 4}",
     "rope_original_context", 16},
    {LLAMA, "{\"rope_scaling\": " SU ", \"head_dim\": 4}", "rope_scaling", 5},
    {LLAMA, "{\"rope_scaling\": " SU ", \"head_dim\": 4}", "rope_long_factors", 2},
    {LLAMA, "{\"rope_scaling\": " YARN "}", "rope_truncate", 0},
    {LLAMA, "{\"rope_scaling\": " YARN "}", "rope_mscale_all_dim", 0.5},
    {LLAMA,
     "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2, "
     "\"original_max_position_embeddings\": 9}}",
     "rope_original_context", 0}};

/* Windows and their layers. */
static const size_case WINDOW_SIZES[] = {
    {LLAMA, "{}", "window", 0},
    {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": 5}", "window", 5},
    {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": null}", "window", 0},
    {LLAMA, "{\"model_type\": \"mistral\"}", "window", 4096},
    {LLAMA, "{\"model_type\": \"mistral\", \"layer_types\": [" SLIDE ", " SLIDE "]}", "window",
     4096},
    {LLAMA, "{\"model_type\": \"mistral\", \"layer_types\": [" SLIDE ", " SLIDE "]}",
     "window_period", 0},
    {LLAMA, "{\"model_type\": \"mistral\", \"layer_types\": [" SLIDE ", " FULL "]}",
     "window_period", 2},
    {LLAMA, "{\"model_type\": \"mistral\", \"layer_types\": [" FULL ", " FULL "]}", "window_period",
     1},
    {LLAMA, NO_WINDOW "\"layer_types\": [" FULL ", " FULL "]}", "window", 0},
    {LLAMA, NO_WINDOW "\"layer_types\": [" FULL ", " FULL "]}", "window_period", 0},
    {LLAMA, "{\"model_type\": \"qwen2\", \"sliding_window\": 5, \"max_window_layers\": 1}",
     "attention_bias", 1},
    {LLAMA, "{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\"]}", "window", 0},
    {LLAMA,
     "{\"model_type\": \"gemma2\", \"layer_types\": [\"full_attention\", "
     "\"full_attention\"]}",
     "window_period", 1},
    {LLAMA,
     "{\"model_type\": \"gemma2\", \"layer_types\": [\"sliding_attention\", "
     "\"sliding_attention\"]}",
     "window_period", 3},
    {LLAMA, "{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 5}", "window_period",
     5}};

static const size_case OTHER_SIZES[] = {
    {LLAMA, "{}", "head_width", 8},
    {LLAMA, "{\"head_dim\": 10}", "head_width", 10},
    {LLAMA, "{\"head_dim\": null}", "head_width", 8},
    {LLAMA, "{\"num_key_value_heads\": null}", "kv_heads", 4},
    {LLAMA, "{\"pad_token_id\": null, \"attention_bias\": null}", "kv_heads", 2},
    {LLAMA, "{\"model_type\": \"mixtral\", \"num_experts\": 3}", "experts", 3},
    {LLAMA, "{\"model_type\": \"mixtral\", \"router_aux_loss_coef\": 0}", "experts_balance", 0},
    {LLAMA, "{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [1]}", "experts_dense", 1},
    {"{\"model_type\": \"gemma3\", \"vision_config\": {}, \"text_config\": {\"model_type\": "
     "\"gemma3_text\", \"hidden_size\": 640}}",
     "{}", "width", 640},
    {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\"}, "
     "\"tie_word_embeddings\": false}",
     "{}", "tied", 0},
    {LLAMA, "{\"model_type\": \"granite\"}", "attention_multiplier", 1},
    {NEOX, "{}", "parallel_residual", 1},
    {NEOX, "{\"use_parallel_residual\": false}", "parallel_residual", 0},
    {NEOX, "{\"tie_word_embeddings\": true}", "tied", 1},
    {GPT2, "{\"tie_word_embeddings\": false}", "tied", 0},
    {GPT2, "{\"tie_word_embeddings\": null}", "tied", 0},
    {GPT2, "{\"n_inner\": null}", "inner", 256},
    {GPT2, "{\"hidden_size\": 64}", "width", 64},
    {T5, "{\"tie_word_embeddings\": true}", "tied", 1},
    {T5, "{\"tie_word_embeddings\": false}", "tied", 0},
    {T5, "{\"tie_word_embeddings\": true, \"scale_decoder_outputs\": false}", "tied", 0},
    {MT5, "{\"tie_word_embeddings\": true}", "tied", 0},
    {GPT2, "{\"quantization_config\": null, \"pruned_heads\": {}}", "layers", 2}};

static void check_sizes(const size_case *cases, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        bp_hf_shape shape;
        const char *changes = cases[k].changes;

        bp_test_expect(read_changed(&shape, cases[k].config, changes), BP_OK);
        if (fabs(bp_hf_value_of(&shape, cases[k].name) - cases[k].value) > 1e-12)
            fail_msg("%s of %s is %g", cases[k].name, changes,
                     bp_hf_value_of(&shape, cases[k].name));
    }
}

static void sizes_are_read_in_all_spellings(void **state)
{
    (void)state;
    check_sizes(POSITION_SIZES, sizeof POSITION_SIZES / sizeof *POSITION_SIZES);
    check_sizes(WINDOW_SIZES, sizeof WINDOW_SIZES / sizeof *WINDOW_SIZES);
    check_sizes(OTHER_SIZES, sizeof OTHER_SIZES / sizeof *OTHER_SIZES);
}

static void what_is_written_is_read_as_it_was(void **state)
{
    static const char *const CASES[][2] = {
        {LLAMA, "{}"},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}"},
        {LLAMA, "{\"head_dim\": 12, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
                "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                "\"original_max_position_embeddings\": 8192}}"},
        {LLAMA, "{\"head_dim\": 4, \"rope_scaling\": " SU "}"},
        {LLAMA, "{\"model_type\": \"phi3\", \"head_dim\": 4, \"rope_scaling\": " SU "}"},
        {LLAMA, "{\"rope_scaling\": " YARN "}"},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}"},
        {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": 5}"},
        {LLAMA, "{\"model_type\": \"mistral\", \"layer_types\": [" SLIDE ", " FULL "]}"},
        {LLAMA, "{\"model_type\": \"qwen2\"}"},
        {NEOX, "{\"use_parallel_residual\": false, \"tie_word_embeddings\": true}"},
        {GPT2, "{}"},
        {GPT2, "{\"tie_word_embeddings\": false}"}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        bp_hf_shape shape, again;

        bp_test_expect(read_changed(&shape, CASES[k][0], CASES[k][1]), BP_OK);
        json_t *written = hf_config_json(&shape);
        bp_test_expect(
            hf_config_read(&again, written, bp_model_huggingface_tables(), "config.json"), BP_OK);
        assert_ptr_equal(shape.table, again.table);
        assert_memory_equal(shape.sizes, again.sizes, sizeof shape.sizes);
        assert_memory_equal(shape.lists, again.lists, sizeof shape.lists);
        json_decref(written);
    }
}

static void no_scaling_is_null_and_one_is_an_object(void **state)
{
    bp_hf_shape shape;

    (void)state;
    bp_test_expect(read_changed(&shape, LLAMA, "{}"), BP_OK);
    json_t *none = hf_config_json(&shape);
    assert_true(json_is_null(json_object_get(none, "rope_scaling")));
    bp_test_expect(
        read_changed(&shape, LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}"),
        BP_OK);
    json_t *linear = hf_config_json(&shape),
           *expected = json_pack("{s:s, s:f}", "rope_type", "linear", "factor", 2.5);
    assert_true(json_equal(json_object_get(linear, "rope_scaling"), expected));
    json_decref(none);
    json_decref(linear);
    json_decref(expected);
}

/* ---- what is refused ---- */

/* A configuration that is refused, with the words of the message. */
typedef struct refusal {
    const char *config, *changes, *words;
} refusal;

static const refusal POSITION_REFUSALS[] = {
    {LLAMA, "{\"partial_rotary_factor\": 0.5}",
     "\"partial_rotary_factor\" ... 0.5 ... [huggingface.unsupported]"},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"mrope\", \"factor\": 2}}",
     "\"rope_scaling.rope_type\" ... \"mrope\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"dynamic\"}}", "\"factor\" ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, \"low_freq_factor\": 1}}",
     "\"low_freq_factor\" ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2, \"truncate\": false}}",
     "\"truncate\" ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1, 1, 1]}}",
     "\"long_factor\" ... [huggingface.bad_rope]"},
    {LLAMA,
     "{\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 1], \"long_factor\": [1, "
     "2]}}",
     "\"short_factor\" ... 2 and 2 ... 4 ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"su\", \"short_factor\": 1, \"long_factor\": [1, 2]}}",
     "\"short_factor\" ... [huggingface.bad_size]"},
    {LLAMA,
     "{\"rope_scaling\": {\"type\": \"su\", \"short_factor\": [1, 0], \"long_factor\": [1, "
     "2]}}",
     "\"short_factor\" ... [huggingface.bad_size]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"llama3\"}}",
     "[huggingface.contradiction]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\"}}", "\"factor\" ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}",
     "\"factor\" ... 0 ... [huggingface.bad_size]"},
    {LLAMA, "{\"rope_scaling\": {\"factor\": 2}}", "\"factor\" ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}}",
     "\"low_freq_factor\" ... [huggingface.bad_rope]"},
    {LLAMA,
     "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}}",
     "\"high_freq_factor\" ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"low_freq_factor\": 1}}",
     "\"low_freq_factor\" ... [huggingface.bad_rope]"},
    {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"mystery\": 1}}",
     "\"rope_scaling\" ... \"mystery\" ... [huggingface.unknown_key]"},
    {LLAMA, "{\"rope_scaling\": \"linear\"}", "\"rope_scaling\" ... [json.wrong_type]"},
    {LLAMA, "{\"rope_parameters\": {\"rope_theta\": 7000}}", "[huggingface.contradiction]"},
    {LLAMA, "{\"mystery\": 3, \"nothing\": null, \"rope\": {\"x\": 1}}",
     "\"mystery\", \"rope\" ... [huggingface.unknown_key]"},
    {NEOX, "{\"rotary_pct\": null}", "\"rotary_pct\" ... [huggingface.null]"},
    {NEOX, "{\"rotary_pct\": 0.1}", "0 ... 8 ... [huggingface.bad_rope]"},
    {NEOX, "{\"rotary_pct\": 0.4}", "3 ... 8 ... [huggingface.bad_rope]"},
    {NEOX, "{\"rotary_pct\": 1.5}", "12 ... 8 ... [huggingface.bad_rope]"},
    {NEOX, "{\"partial_rotary_factor\": 0.25}", "[huggingface.contradiction]"},
    {NEOX, "{\"rope_parameters\": {\"rope_type\": \"linear\"}}",
     "\"factor\" ... [huggingface.bad_rope]"},
    {NEOX, "{\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\"}}}",
     "\"rope_parameters\" ... \"full_attention\" ... [huggingface.unknown_key]"}};

static const refusal WINDOW_REFUSALS[] = {
    {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": 0}",
     "\"sliding_window\" ... 0 ... [huggingface.bad_size]"},
    {LLAMA, "{\"model_type\": \"qwen2\", \"use_sliding_window\": true}",
     "\"use_sliding_window\" ... [huggingface.unsupported]"},
    {LLAMA,
     "{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\", "
     "\"sliding_attention\"]}",
     "\"layer_types\" ... [huggingface.unsupported]"},
    {LLAMA,
     "{\"model_type\": \"mistral\", \"sliding_window\": 5, \"layer_types\": "
     "[\"full_attention\", \"sliding_attention\"]}",
     "\"layer_types\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"layer_types\": \"full_attention\"}",
     "\"layer_types\" ... [huggingface.unsupported]"},
    {LLAMA,
     "{\"model_type\": \"gemma2\", \"num_hidden_layers\": 4, \"layer_types\": "
     "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"]}",
     "\"layer_types\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"model_type\": \"smollm3\", \"use_sliding_window\": true}",
     "\"use_sliding_window\" ... [huggingface.unsupported]"}};

static const refusal OTHER_REFUSALS[] = {
    {LLAMA, "{\"num_attention_heads\": 3, \"num_key_value_heads\": 3}",
     "\"num_attention_heads\" ... 3 ... [huggingface.not_dividing]"},
    {LLAMA, "{\"num_key_value_heads\": 3}",
     "\"num_key_value_heads\" ... 3 ... [huggingface.not_dividing]"},
    {LLAMA, "{\"head_dim\": 7}", "7 ... [huggingface.odd_heads]"},
    {LLAMA, "{\"hidden_act\": \"gelu\"}",
     "\"hidden_act\" ... \"gelu\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"attention_bias\": true}", "\"attention_bias\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"mlp_bias\": true}", "\"mlp_bias\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"pretraining_tp\": 2}", "\"pretraining_tp\" ... 2 ... [huggingface.unsupported]"},
    {LLAMA, "{\"quantization_config\": {\"bits\": 4}}",
     "\"quantization_config\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"auto_map\": {\"AutoModel\": \"x\"}}", "\"auto_map\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"model_type\": \"mistral\", \"hidden_act\": \"relu\"}",
     "\"hidden_act\" ... \"relu\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"model_type\": \"qwen3\", \"attention_bias\": true}",
     "\"attention_bias\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"model_type\": \"mixtral\", \"router_jitter_noise\": 0.1}",
     "\"router_jitter_noise\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"model_type\": \"mixtral\", \"num_local_experts\": 1}",
     "\"num_experts_per_tok\" ... [huggingface.few_experts]"},
    {LLAMA, "{\"model_type\": \"qwen3_moe\", \"mlp_only_layers\": [2]}",
     "\"mlp_only_layers\" ... layers 0 to 1 ... [huggingface.bad_size]"},
    {LLAMA, "{\"rms_norm_eps\": null}", "\"rms_norm_eps\" ... null ... [huggingface.null]"},
    {LLAMA, "{\"hidden_act\": null}", "\"hidden_act\" ... [huggingface.unsupported]"},
    {LLAMA, "{\"attention_multiplier\": 0.5}",
     "\"attention_multiplier\" ... [huggingface.unknown_key]"},
    {GPT2, "{\"scale_attn_weights\": null}",
     "\"scale_attn_weights\" ... [huggingface.unsupported]"},
    {GPT2, "{\"hidden_size\": 32}", "\"hidden_size\" ... [huggingface.contradiction]"},
    {NEOX, "{\"hidden_act\": \"gelu_new\"}",
     "\"hidden_act\" ... \"gelu_new\" ... [huggingface.unsupported]"},
    {NEOX, "{\"attention_bias\": false}", "\"attention_bias\" ... [huggingface.unsupported]"},
    {NEOX, "{\"num_attention_heads\": 5}",
     "\"num_attention_heads\" ... 5 ... [huggingface.not_dividing]"},
    {T5, "{\"tie_word_embeddings\": false, \"scale_decoder_outputs\": true}",
     "\"tie_word_embeddings\" ... [huggingface.unsupported]"},
    {GPT2, "{\"tie_encoder_decoder\": true}",
     "\"tie_encoder_decoder\" ... [huggingface.unsupported]"},
    {GPT2, "{\"pruned_heads\": {\"0\": [1]}}", "\"pruned_heads\" ... [huggingface.unsupported]"},
    {GPT2, "{\"is_encoder_decoder\": true}",
     "\"is_encoder_decoder\" ... [huggingface.unsupported]"}};

static void check_refusals(const refusal *cases, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        bp_hf_shape shape;

        bp_test_expect(read_changed(&shape, cases[k].config, cases[k].changes), BP_ERR_FORMAT);
        bp_test_message_has(cases[k].words);
    }
}

static void what_ours_does_not_compute_is_refused_by_name(void **state)
{
    (void)state;
    check_refusals(POSITION_REFUSALS, sizeof POSITION_REFUSALS / sizeof *POSITION_REFUSALS);
    check_refusals(WINDOW_REFUSALS, sizeof WINDOW_REFUSALS / sizeof *WINDOW_REFUSALS);
    check_refusals(OTHER_REFUSALS, sizeof OTHER_REFUSALS / sizeof *OTHER_REFUSALS);
}

static void harmless_keys_are_silent(void **state)
{
    bp_hf_shape shape;

    (void)state;
    bp_test_expect(read_changed(&shape, LLAMA,
                                "{\"use_cache\": true, \"torch_dtype\": \"bfloat16\", "
                                "\"transformers_version\": \"4.40\", \"bos_token_id\": 1, "
                                "\"initializer_range\": 0.02, \"attention_dropout\": 0.1, "
                                "\"unsloth_version\": \"2024.9\", \"nothing\": null}"),
                   BP_OK);
}

static const char BERT[] =
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], "
    "\"num_hidden_layers\": 2, \"hidden_size\": 24}";

static void one_outcome_is_a_regression(void **state)
{
    static const struct {
        const char *changes;
        int task;
        double outcomes;
    } CASES[] = {{"{}", 1, 2},
                 {"{\"num_labels\": 5}", 1, 5},
                 {"{\"num_labels\": 1}", 2, 1},
                 {"{\"id2label\": {\"0\": \"LABEL_0\"}}", 2, 1},
                 {"{\"id2label\": {\"0\": \"a\"}, \"problem_type\": "
                  "\"single_label_classification\"}",
                  1, 1},
                 {"{\"num_labels\": 1, \"problem_type\": \"regression\"}", 2, 1}};
    static const char *const REFUSED[] = {"{\"problem_type\": \"multi_label_classification\"}",
                                          "{\"problem_type\": \"regression\"}"};
    bp_hf_shape shape;

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        bp_test_expect(read_changed(&shape, BERT, CASES[k].changes), BP_OK);
        assert_int_equal(bp_hf_size_of(&shape, "task"), CASES[k].task);
        assert_true(bp_hf_value_of(&shape, "outcomes") == CASES[k].outcomes);
        json_decref(shape.labels);
    }
    for (size_t k = 0; k < sizeof REFUSED / sizeof *REFUSED; k++) {
        bp_test_expect(read_changed(&shape, BERT, REFUSED[k]), BP_ERR_FORMAT);
        bp_test_message_has("\"problem_type\" ... [huggingface.unsupported]");
        json_decref(shape.labels);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_in_all_spellings),
        cmocka_unit_test(what_is_written_is_read_as_it_was),
        cmocka_unit_test(no_scaling_is_null_and_one_is_an_object),
        cmocka_unit_test(what_ours_does_not_compute_is_refused_by_name),
        cmocka_unit_test(harmless_keys_are_silent),
        cmocka_unit_test(one_outcome_is_a_regression),
    };
    return BP_TEST_RUN(tests);
}
