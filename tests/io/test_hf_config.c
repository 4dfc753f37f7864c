/* config.json of LLaMA, Mistral, Qwen2, GPT-NeoX and GPT-2: what is read from it, in all its
 * spellings, what is written back, what is refused by name, and which keys are reported as unknown.
 */
#include "bp_test.h"

#include "io/huggingface/hf_config_priv.h"
#include "models/family.h"

#include <math.h>
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

static void sizes_are_read_in_all_spellings(void **state)
{
    static const struct {
        const char *config, *changes, *name;
        double value;
    } CASES[] = {
        {LLAMA, "{}", "rope_theta", 500000},
        {LLAMA, "{}", "rope_scaling", 0},
        {LLAMA, "{}", "head_width", 8},
        {LLAMA, "{}", "window", 0},
        {LLAMA, "{\"head_dim\": 10}", "head_width", 10},
        {LLAMA, "{\"head_dim\": null}", "head_width", 8},
        {LLAMA, "{\"rope_scaling\": null}", "rope_scaling", 0},
        {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"default\"}}", "rope_scaling", 0},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}", "rope_scaling", 1},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}", "rope_factor", 2.5},
        {LLAMA,
         "{\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"linear\", \"factor\": 2}}",
         "rope_scaling", 1},
        {LLAMA,
         "{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}}",
         "rope_original_context", 8192},
        {LLAMA, "{\"rope_theta\": null, \"rope_parameters\": {\"rope_theta\": 7000}}", "rope_theta",
         7000},
        {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": 5}", "window", 5},
        {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": null}", "window", 0},
        {LLAMA, "{\"model_type\": \"qwen2\", \"sliding_window\": 5, \"max_window_layers\": 1}",
         "attention_bias", 1},
        {LLAMA, "{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\"]}", "window", 0},
        {NEOX, "{}", "rope_theta", 20000},
        {NEOX, "{}", "rope_fraction", 0.5},
        {NEOX, "{}", "parallel_residual", 1},
        {NEOX, "{\"use_parallel_residual\": false}", "parallel_residual", 0},
        {NEOX, "{\"rotary_emb_base\": null, \"rope_theta\": 300}", "rope_theta", 300},
        {NEOX, "{\"rotary_pct\": null}", "rope_fraction", 0.25},
        {NEOX, "{\"rotary_pct\": null, \"rope_parameters\": {\"partial_rotary_factor\": 1}}",
         "rope_fraction", 1},
        {NEOX, "{\"rope_parameters\": {\"rope_type\": \"default\"}}", "rope_fraction", 0.5},
        {NEOX, "{\"tie_word_embeddings\": true}", "tied", 1},
        {GPT2, "{\"tie_word_embeddings\": false}", "tied", 0},
        {GPT2, "{\"tie_word_embeddings\": null}", "tied", 1},
        {GPT2, "{\"quantization_config\": null, \"pruned_heads\": {}}", "layers", 2}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        bp_hf_shape shape;
        const char *changes = CASES[k].changes;
        bp_test_expect(read_changed(&shape, CASES[k].config, changes), BP_OK);
        if (fabs(bp_hf_value_of(&shape, CASES[k].name) - CASES[k].value) > 1e-12)
            fail_msg("%s of %s is %g", CASES[k].name, changes,
                     bp_hf_value_of(&shape, CASES[k].name));
    }
}

static void what_is_written_is_read_as_it_was(void **state)
{
    static const char *const CASES[][2] = {
        {LLAMA, "{}"},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}"},
        {LLAMA, "{\"head_dim\": 12, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
                "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                "\"original_max_position_embeddings\": 8192}}"},
        {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": 5}"},
        {LLAMA, "{\"model_type\": \"qwen2\"}"},
        {NEOX, "{\"use_parallel_residual\": false, \"tie_word_embeddings\": true}"},
        {GPT2, "{}"},
        {GPT2, "{\"tie_word_embeddings\": false}"}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        bp_hf_shape shape, again;
        bp_buffer unknown = {0};

        bp_test_expect(read_changed(&shape, CASES[k][0], CASES[k][1]), BP_OK);
        json_t *written = hf_config_json(&shape);
        bp_test_expect(
            hf_config_read(&again, written, bp_model_huggingface_tables(), "config.json"), BP_OK);
        assert_ptr_equal(shape.table, again.table);
        assert_memory_equal(shape.sizes, again.sizes, sizeof shape.sizes);
        hf_config_unknown(&unknown, again.table, written);
        assert_int_equal(unknown.bytes, 0);
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

static void what_ours_does_not_compute_is_refused_by_name(void **state)
{
    static const struct {
        const char *config, *changes, *words;
    } CASES[] = {
        {LLAMA, "{\"num_attention_heads\": 3, \"num_key_value_heads\": 3}",
         "\"num_attention_heads\" ... 3 ... [huggingface.not_dividing]"},
        {LLAMA, "{\"num_key_value_heads\": 3}",
         "\"num_key_value_heads\" ... 3 ... [huggingface.not_dividing]"},
        {LLAMA, "{\"head_dim\": 7}", "7 ... [huggingface.odd_heads]"},
        {LLAMA, "{\"hidden_act\": \"gelu\"}",
         "\"hidden_act\" ... \"gelu\" ... [huggingface.unsupported]"},
        {LLAMA, "{\"attention_bias\": true}", "\"attention_bias\" ... [huggingface.unsupported]"},
        {LLAMA, "{\"mlp_bias\": true}", "\"mlp_bias\" ... [huggingface.unsupported]"},
        {LLAMA, "{\"pretraining_tp\": 2}",
         "\"pretraining_tp\" ... 2 ... [huggingface.unsupported]"},
        {LLAMA, "{\"partial_rotary_factor\": 0.5}",
         "\"partial_rotary_factor\" ... 0.5 ... [huggingface.unsupported]"},
        {LLAMA, "{\"quantization_config\": {\"bits\": 4}}",
         "\"quantization_config\" ... [huggingface.unsupported]"},
        {LLAMA, "{\"auto_map\": {\"AutoModel\": \"x\"}}",
         "\"auto_map\" ... [huggingface.unsupported]"},
        {LLAMA, "{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}}",
         "\"rope_scaling.rope_type\" ... \"yarn\" ... [huggingface.unsupported]"},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}", "\"dynamic\""},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"rope_type\": \"llama3\"}}",
         "[huggingface.contradiction]"},
        {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\"}}",
         "\"factor\" ... [huggingface.bad_rope]"},
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
        {LLAMA, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2, \"mscale\": 1}}",
         "\"rope_scaling\" ... \"mscale\" ... [huggingface.unknown_key]"},
        {LLAMA, "{\"rope_scaling\": \"linear\"}", "\"rope_scaling\" ... [json.wrong_type]"},
        {LLAMA, "{\"rope_parameters\": {\"rope_theta\": 7000}}", "[huggingface.contradiction]"},
        {LLAMA, "{\"model_type\": \"mistral\", \"hidden_act\": \"relu\"}",
         "\"hidden_act\" ... \"relu\" ... [huggingface.unsupported]"},
        {LLAMA, "{\"model_type\": \"mistral\", \"sliding_window\": 0}",
         "\"sliding_window\" ... 0 ... [huggingface.bad_size]"},
        {LLAMA, "{\"model_type\": \"qwen2\", \"use_sliding_window\": true}",
         "\"use_sliding_window\" ... [huggingface.unsupported]"},
        {LLAMA,
         "{\"model_type\": \"qwen2\", \"layer_types\": [\"full_attention\", "
         "\"sliding_attention\"]}",
         "\"layer_types\" ... [huggingface.unsupported]"},
        {NEOX, "{\"hidden_act\": \"gelu_new\"}",
         "\"hidden_act\" ... \"gelu_new\" ... [huggingface.unsupported]"},
        {NEOX, "{\"attention_bias\": false}", "\"attention_bias\" ... [huggingface.unsupported]"},
        {NEOX, "{\"num_attention_heads\": 5}",
         "\"num_attention_heads\" ... 5 ... [huggingface.not_dividing]"},
        {NEOX, "{\"rotary_pct\": 0.1}", "0 ... 8 ... [huggingface.bad_rope]"},
        {NEOX, "{\"rotary_pct\": 0.4}", "3 ... 8 ... [huggingface.bad_rope]"},
        {NEOX, "{\"rotary_pct\": 1.5}", "12 ... 8 ... [huggingface.bad_rope]"},
        {NEOX, "{\"partial_rotary_factor\": 0.25}", "[huggingface.contradiction]"},
        {NEOX, "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}",
         "\"rope_scaling\" ... [huggingface.unsupported]"},
        {NEOX, "{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2}}",
         "\"rope_parameters\" ... \"factor\" ... [huggingface.unknown_key]"},
        {NEOX, "{\"rope_parameters\": {\"rope_type\": \"linear\"}}",
         "\"rope_parameters.rope_type\" ... \"linear\" ... [huggingface.unsupported]"},
        {GPT2, "{\"tie_encoder_decoder\": true}",
         "\"tie_encoder_decoder\" ... [huggingface.unsupported]"},
        {GPT2, "{\"pruned_heads\": {\"0\": [1]}}",
         "\"pruned_heads\" ... [huggingface.unsupported]"},
        {GPT2, "{\"is_encoder_decoder\": true}",
         "\"is_encoder_decoder\" ... [huggingface.unsupported]"}};

    (void)state;
    for (size_t k = 0; k < sizeof CASES / sizeof *CASES; k++) {
        bp_hf_shape shape;

        bp_test_expect(read_changed(&shape, CASES[k].config, CASES[k].changes), BP_ERR_FORMAT);
        bp_test_message_has(CASES[k].words);
    }
}

static void harmless_keys_are_silent_and_unknown_ones_reported(void **state)
{
    bp_hf_shape shape;
    bp_buffer unknown = {0};
    json_t *config = changed(LLAMA, "{\"use_cache\": true, \"torch_dtype\": \"bfloat16\", "
                                    "\"transformers_version\": \"4.40\", \"bos_token_id\": 1, "
                                    "\"initializer_range\": 0.02, \"attention_dropout\": 0.1, "
                                    "\"mystery\": 3, \"nothing\": null, \"rope\": {\"x\": 1}}");

    (void)state;
    bp_test_expect(hf_config_read(&shape, config, bp_model_huggingface_tables(), "config.json"),
                   BP_OK);
    hf_config_unknown(&unknown, shape.table, config);
    assert_string_equal(unknown.data, "mystery, rope");
    bp_buffer_clear(&unknown);
    json_decref(config);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_in_all_spellings),
        cmocka_unit_test(what_is_written_is_read_as_it_was),
        cmocka_unit_test(no_scaling_is_null_and_one_is_an_object),
        cmocka_unit_test(what_ours_does_not_compute_is_refused_by_name),
        cmocka_unit_test(harmless_keys_are_silent_and_unknown_ones_reported),
    };
    return BP_TEST_RUN(tests);
}
