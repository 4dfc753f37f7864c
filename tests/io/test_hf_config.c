/* config.json of the references' models: a key that is not there means what transformers' class
 * has. */
#include "bp_test.h"

#include "io/huggingface/hf_config_priv.h"
#include "models/family.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What transformers' classes have where config.json lacks a key, for what bagpipe reads or checks.
 * Of bagpipe's own types a size must be there, but for these. */
static const char DEFAULTS[] =
    "{\"gpt2\": {\"vocab_size\": 50257, \"n_positions\": 1024, \"n_embd\": 768, \"n_layer\": 12, "
    "\"n_head\": 12, \"n_inner\": null, \"activation_function\": \"gelu_new\", "
    "\"layer_norm_epsilon\": 1e-5, \"tie_word_embeddings\": true},"
    "\"llama\": {\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 11008, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": null, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-6, "
    "\"tie_word_embeddings\": false, \"rope_theta\": 10000, \"rope_scaling\": null, "
    "\"rope_parameters\": null, \"attention_bias\": false, \"mlp_bias\": false, "
    "\"pretraining_tp\": 1},"
    "\"mistral\": {\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-6, "
    "\"tie_word_embeddings\": false, \"rope_theta\": 10000, \"sliding_window\": 4096},"
    "\"qwen2\": {\"vocab_size\": 151936, \"hidden_size\": 4096, \"intermediate_size\": 22016, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, "
    "\"tie_word_embeddings\": false, \"rope_theta\": 10000, \"use_sliding_window\": false},"
    "\"qwen3\": {\"vocab_size\": 151936, \"hidden_size\": 4096, \"intermediate_size\": 22016, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 32, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, "
    "\"tie_word_embeddings\": false, \"rope_parameters\": null, \"rope_theta\": 10000, "
    "\"head_dim\": 128, "
    "\"attention_bias\": false, \"use_sliding_window\": false},"
    "\"olmo2\": {\"vocab_size\": 50304, \"hidden_size\": 4096, \"intermediate_size\": 11008, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": null, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 2048, \"rms_norm_eps\": 1e-5, "
    "\"tie_word_embeddings\": false, \"rope_theta\": 10000, \"rope_parameters\": null, "
    "\"attention_bias\": false},"
    "\"gemma2\": {\"rope_theta\": 10000, \"rope_parameters\": null, \"attention_bias\": "
    "false, \"rms_norm_eps\": 1e-06, \"vocab_size\": 256000, \"hidden_size\": 2304, "
    "\"intermediate_size\": 9216, \"num_hidden_layers\": 26, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 4, \"head_dim\": 256, \"hidden_activation\": "
    "\"gelu_pytorch_tanh\", \"max_position_embeddings\": 8192, \"tie_word_embeddings\": true, "
    "\"query_pre_attn_scalar\": 256, \"sliding_window\": 4096, \"final_logit_softcapping\": "
    "30.0, \"attn_logit_softcapping\": 50.0, \"use_bidirectional_attention\": null, "
    "\"layer_types\": null},"
    "\"mixtral\": {\"vocab_size\": 32000, \"hidden_size\": 4096, "
    "\"intermediate_size\": 14336, \"num_hidden_layers\": 32, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"hidden_act\": "
    "\"silu\", \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, "
    "\"tie_word_embeddings\": false, \"rope_parameters\": null, "
    "\"num_experts_per_tok\": 2, \"num_local_experts\": 8, "
    "\"router_aux_loss_coef\": 0.001, \"rope_theta\": 1000000, \"head_dim\": "
    "null, \"sliding_window\": null, \"router_jitter_noise\": 0.0},"
    "\"olmoe\": {\"vocab_size\": 50304, \"hidden_size\": 2048, "
    "\"intermediate_size\": 2048, \"num_hidden_layers\": 16, "
    "\"num_attention_heads\": 16, \"num_key_value_heads\": null, \"hidden_act\": "
    "\"silu\", \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-5, "
    "\"tie_word_embeddings\": false, \"rope_parameters\": null, "
    "\"num_experts_per_tok\": 8, \"num_experts\": 64, \"router_aux_loss_coef\": "
    "0.01, \"rope_theta\": 10000, \"attention_bias\": false, \"clip_qkv\": null, "
    "\"norm_topk_prob\": false},"
    "\"qwen3_moe\": {\"vocab_size\": 151936, \"hidden_size\": 2048, "
    "\"intermediate_size\": 6144, \"num_hidden_layers\": 24, "
    "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"hidden_act\": "
    "\"silu\", \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-6, "
    "\"tie_word_embeddings\": false, \"rope_parameters\": null, "
    "\"num_experts_per_tok\": 8, \"num_experts\": 128, \"router_aux_loss_coef\": "
    "0.001, \"rope_theta\": 10000, \"attention_bias\": false, "
    "\"use_sliding_window\": false, \"decoder_sparse_step\": 1, "
    "\"moe_intermediate_size\": 768, \"norm_topk_prob\": false, "
    "\"head_dim\": null, "
    "\"mlp_only_layers\": null},"
    "\"smollm3\": {\"rope_theta\": 2000000, \"rope_parameters\": null, \"attention_bias\": "
    "false, \"rms_norm_eps\": 1e-06, \"vocab_size\": 128256, \"hidden_size\": 2048, "
    "\"intermediate_size\": 11008, \"num_hidden_layers\": 36, \"num_attention_heads\": 16, "
    "\"num_key_value_heads\": 4, \"hidden_act\": \"silu\", \"max_position_embeddings\": "
    "32768, \"tie_word_embeddings\": true, \"use_sliding_window\": false, \"no_rope_layers\": "
    "null, \"no_rope_layer_interval\": 4, \"mlp_bias\": false, \"layer_types\": null},"
    "\"granite\": {\"rope_theta\": 10000, \"rope_parameters\": null, \"attention_bias\": "
    "false, \"rms_norm_eps\": 1e-06, \"vocab_size\": 32000, \"hidden_size\": 4096, "
    "\"intermediate_size\": 11008, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
    "\"num_key_value_heads\": null, \"hidden_act\": \"silu\", \"max_position_embeddings\": "
    "2048, \"tie_word_embeddings\": false, \"mlp_bias\": false, \"embedding_multiplier\": "
    "1.0, \"logits_scaling\": 1.0, \"residual_multiplier\": 1.0, \"attention_multiplier\": "
    "1.0},"
    "\"gemma3_text\": {\"rope_parameters\": null, \"attention_bias\": false, "
    "\"rms_norm_eps\": 1e-06, \"vocab_size\": 262208, \"hidden_size\": 2304, "
    "\"intermediate_size\": 9216, \"num_hidden_layers\": 26, \"num_attention_heads\": 8, "
    "\"num_key_value_heads\": 4, \"head_dim\": 256, \"hidden_activation\": "
    "\"gelu_pytorch_tanh\", \"max_position_embeddings\": 131072, \"tie_word_embeddings\": "
    "true, \"query_pre_attn_scalar\": 256, \"sliding_window\": 4096, "
    "\"rope_theta\": 1000000, \"rope_local_base_freq\": 10000, \"sliding_window_pattern\": 6, "
    "\"final_logit_softcapping\": null, \"attn_logit_softcapping\": null, "
    "\"use_bidirectional_attention\": false, \"layer_types\": null},"
    "\"phi3\": {\"rope_parameters\": null, \"attention_bias\": false, \"rms_norm_eps\": "
    "1e-05, \"vocab_size\": 32064, \"hidden_size\": 3072, \"intermediate_size\": 8192, "
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": null, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 4096, \"tie_word_embeddings\": "
    "false, \"sliding_window\": null, \"partial_rotary_factor\": 1.0, "
    "\"original_max_position_embeddings\": 4096},"
    "\"gpt_neox\": {\"vocab_size\": 50432, \"hidden_size\": 6144, \"num_hidden_layers\": 44, "
    "\"num_attention_heads\": 64, \"intermediate_size\": 24576, \"hidden_act\": \"gelu\", "
    "\"rotary_pct\": 0.25, \"rotary_emb_base\": 10000, \"max_position_embeddings\": 2048, "
    "\"layer_norm_eps\": 1e-5, \"tie_word_embeddings\": false, \"use_parallel_residual\": true, "
    "\"attention_bias\": true},"
    "\"mamba2\": {\"vocab_size\": 32768, \"hidden_size\": 4096, \"num_hidden_layers\": 64, "
    "\"num_heads\": 128, \"head_dim\": 64, \"state_size\": 128, \"n_groups\": 8, "
    "\"conv_kernel\": 4, \"expand\": 2, \"use_bias\": false, \"use_conv_bias\": true, "
    "\"hidden_act\": \"silu\", \"layer_norm_epsilon\": 1e-5, \"rms_norm\": true, "
    "\"tie_word_embeddings\": false},"
    "\"opt\": {\"vocab_size\": 50272, \"hidden_size\": 768, \"num_hidden_layers\": 12, "
    "\"ffn_dim\": 3072, \"max_position_embeddings\": 2048, \"do_layer_norm_before\": true, "
    "\"_remove_final_layer_norm\": false, \"word_embed_proj_dim\": null, "
    "\"num_attention_heads\": 12, \"activation_function\": \"relu\", \"enable_bias\": true, "
    "\"layer_norm_elementwise_affine\": true, \"tie_word_embeddings\": true},"
    "\"openai-gpt\": {\"vocab_size\": 40478, \"n_positions\": 512, \"n_embd\": 768, "
    "\"n_layer\": 12, \"n_head\": 12, \"afn\": \"gelu\", \"layer_norm_epsilon\": 1e-5, "
    "\"tie_word_embeddings\": true},"
    "\"gptj\": {\"vocab_size\": 50400, \"n_positions\": 2048, \"n_embd\": 4096, \"n_layer\": 28, "
    "\"n_head\": 16, \"rotary_dim\": 64, \"n_inner\": null, \"activation_function\": \"gelu_new\", "
    "\"layer_norm_epsilon\": 1e-5, \"tie_word_embeddings\": false},"
    "\"bloom\": {\"vocab_size\": 250880, \"hidden_size\": 64, \"n_layer\": 2, \"n_head\": 8, "
    "\"layer_norm_epsilon\": 1e-5, \"apply_residual_connection_post_layernorm\": false, "
    "\"tie_word_embeddings\": true},"
    "\"bert\": {\"vocab_size\": 30522, \"hidden_size\": 768, \"num_hidden_layers\": 12, "
    "\"num_attention_heads\": 12, \"intermediate_size\": 3072, \"hidden_act\": \"gelu\", "
    "\"max_position_embeddings\": 512, \"type_vocab_size\": 2, \"layer_norm_eps\": 1e-12, "
    "\"position_embedding_type\": \"absolute\", \"tie_word_embeddings\": true, "
    "\"id2label\": {\"0\": \"LABEL_0\", \"1\": \"LABEL_1\"}},"
    "\"roberta\": {\"vocab_size\": 50265, \"hidden_size\": 768, \"num_hidden_layers\": 12, "
    "\"num_attention_heads\": 12, \"intermediate_size\": 3072, \"hidden_act\": \"gelu\", "
    "\"max_position_embeddings\": 512, \"type_vocab_size\": 2, \"layer_norm_eps\": 1e-12, "
    "\"pad_token_id\": 1, \"position_embedding_type\": \"absolute\", "
    "\"tie_word_embeddings\": true},"
    "\"xlm-roberta\": {\"vocab_size\": 30522, \"hidden_size\": 768, \"num_hidden_layers\": 12, "
    "\"num_attention_heads\": 12, \"intermediate_size\": 3072, \"hidden_act\": \"gelu\", "
    "\"max_position_embeddings\": 512, \"type_vocab_size\": 2, \"layer_norm_eps\": 1e-12, "
    "\"pad_token_id\": 1, \"position_embedding_type\": \"absolute\", "
    "\"tie_word_embeddings\": true},"
    "\"distilbert\": {\"vocab_size\": 30522, \"dim\": 768, \"n_layers\": 6, \"n_heads\": 12, "
    "\"hidden_dim\": 3072, \"activation\": \"gelu\", \"max_position_embeddings\": 512, "
    "\"tie_word_embeddings\": true},"
    "\"deberta-v2\": {\"vocab_size\": 128100, \"hidden_size\": 1536, \"num_hidden_layers\": 24, "
    "\"num_attention_heads\": 24, \"intermediate_size\": 6144, \"hidden_act\": \"gelu\", "
    "\"max_position_embeddings\": 512, \"type_vocab_size\": 0, \"layer_norm_eps\": 1e-7, "
    "\"relative_attention\": false, \"max_relative_positions\": -1, \"position_buckets\": -1, "
    "\"norm_rel_ebd\": \"none\", \"share_att_key\": false, \"position_biased_input\": true, "
    "\"conv_kernel_size\": 0, \"conv_act\": \"tanh\", \"conv_groups\": 1, "
    "\"id2label\": {\"0\": \"LABEL_0\", \"1\": \"LABEL_1\"}, "
    "\"pos_att_type\": null, \"pooler_hidden_act\": \"gelu\", \"legacy\": true, "
    "\"tie_word_embeddings\": true},"
    "\"modernbert\": {\"vocab_size\": 50368, \"hidden_size\": 768, \"intermediate_size\": 1152, "
    "\"num_hidden_layers\": 22, \"num_attention_heads\": 12, \"hidden_activation\": \"gelu\", "
    "\"max_position_embeddings\": 8192, \"norm_eps\": 1e-5, \"norm_bias\": false, "
    "\"attention_bias\": false, \"mlp_bias\": false, \"decoder_bias\": true, "
    "\"classifier_bias\": false, \"classifier_activation\": \"gelu\", \"local_attention\": 128, "
    "\"global_rope_theta\": 160000, \"local_rope_theta\": 10000, "
    "\"global_attn_every_n_layers\": 3, "
    "\"tie_word_embeddings\": true, \"rope_parameters\": null},"
    "\"electra\": {\"vocab_size\": 30522, \"embedding_size\": 128, \"hidden_size\": 256, "
    "\"num_hidden_layers\": 12, \"num_attention_heads\": 4, \"intermediate_size\": 1024, "
    "\"hidden_act\": \"gelu\", \"max_position_embeddings\": 512, \"type_vocab_size\": 2, "
    "\"layer_norm_eps\": 1e-12, \"position_embedding_type\": \"absolute\", "
    "\"tie_word_embeddings\": true},"
    "\"bart\": {\"vocab_size\": 50265, \"max_position_embeddings\": 1024, \"encoder_layers\": 12, "
    "\"encoder_ffn_dim\": 4096, \"encoder_attention_heads\": 16, \"decoder_layers\": 12, "
    "\"decoder_ffn_dim\": 4096, \"decoder_attention_heads\": 16, \"activation_function\": "
    "\"gelu\", \"d_model\": 1024, \"scale_embedding\": false, \"is_encoder_decoder\": true, "
    "\"decoder_start_token_id\": 2, \"tie_word_embeddings\": true},"
    "\"t5\": {\"vocab_size\": 32128, \"d_model\": 512, \"d_kv\": 64, \"d_ff\": 2048, "
    "\"num_layers\": 6, \"num_decoder_layers\": null, \"num_heads\": 8, "
    "\"relative_attention_num_buckets\": 32, \"relative_attention_max_distance\": 128, "
    "\"layer_norm_epsilon\": 1e-6, \"feed_forward_proj\": \"relu\", \"is_encoder_decoder\": true, "
    "\"decoder_start_token_id\": 0, \"tie_word_embeddings\": true},"
    "\"mt5\": {\"vocab_size\": 250112, \"d_model\": 512, \"d_kv\": 64, \"d_ff\": 1024, "
    "\"num_layers\": 8, \"num_decoder_layers\": null, \"num_heads\": 6, "
    "\"relative_attention_num_buckets\": 32, \"relative_attention_max_distance\": 128, "
    "\"layer_norm_epsilon\": 1e-6, \"feed_forward_proj\": \"gated-gelu\", "
    "\"is_encoder_decoder\": true, \"decoder_start_token_id\": 0, "
    "\"tie_word_embeddings\": false},"
    "\"marian\": {\"vocab_size\": 58101, \"max_position_embeddings\": 1024, \"encoder_layers\": "
    "12, "
    "\"encoder_ffn_dim\": 4096, \"encoder_attention_heads\": 16, \"decoder_layers\": 12, "
    "\"decoder_ffn_dim\": 4096, \"decoder_attention_heads\": 16, \"activation_function\": "
    "\"gelu\", \"d_model\": 1024, \"scale_embedding\": false, \"is_encoder_decoder\": true, "
    "\"decoder_start_token_id\": 58100, \"pad_token_id\": 58100, "
    "\"decoder_vocab_size\": null, \"share_encoder_decoder_embeddings\": true, "
    "\"tie_word_embeddings\": true},"
    "\"mbart\": {\"vocab_size\": 50265, \"max_position_embeddings\": 1024, \"encoder_layers\": 12, "
    "\"encoder_ffn_dim\": 4096, \"encoder_attention_heads\": 16, \"decoder_layers\": 12, "
    "\"decoder_ffn_dim\": 4096, \"decoder_attention_heads\": 16, \"activation_function\": "
    "\"gelu\", \"d_model\": 1024, \"scale_embedding\": false, \"is_encoder_decoder\": true, "
    "\"decoder_start_token_id\": null, \"tie_word_embeddings\": true},"
    "\"m2m_100\": {\"vocab_size\": 128112, \"max_position_embeddings\": 1024, \"encoder_layers\": "
    "12, "
    "\"encoder_ffn_dim\": 4096, \"encoder_attention_heads\": 16, \"decoder_layers\": 12, "
    "\"decoder_ffn_dim\": 4096, \"decoder_attention_heads\": 16, \"activation_function\": "
    "\"relu\", \"d_model\": 1024, \"scale_embedding\": true, \"is_encoder_decoder\": true, "
    "\"decoder_start_token_id\": 2, \"pad_token_id\": 1, \"tie_word_embeddings\": true},"
    "\"transformer\": {\"decoder_start_token_id\": null}}";

/* Of the folder `name` of the references, with this config.json: what import makes of it, as JSON;
 * NULL where it is refused. */
static char *read_with(const char *name, const json_t *config)
{
    char from[512], *text = NULL;
    bp_hf_model *model;
    const char *folder = bp_test_path("key-removed"),
               *to = bp_test_path("key-removed/model.safetensors");

    (void)snprintf(from, sizeof from, "reference/%s/model.safetensors", name);
    (void)bp_dir_make(folder);
    (void)unlink(to);
    assert_int_equal(symlink(bp_test_shared(from), to), 0);
    bp_test_expect(bp_json_save(bp_test_path("key-removed/config.json"), config), BP_OK);
    if (bp_hf_open(&model, folder, bp_model_huggingface_tables()) == BP_OK) {
        bp_hf_shape shape = bp_hf_shape_of(model);
        json_t *json = bp_hf_model_json(&shape);

        text = json_dumps(json, JSON_SORT_KEYS);
        json_decref(json);
    }
    bp_hf_close(&model);
    return text;
}

/* Returns whether the folder without the key is still read. */
static bool check_removed(const char *name, const json_t *config, const char *key,
                          const json_t *defaults)
{
    json_t *without = json_deep_copy(config), *written = json_deep_copy(config),
           *value = json_object_get(defaults, key);
    char *a, *b;
    bool is_read;

    (void)json_object_del(without, key);
    if (strcmp(key, "original_max_position_embeddings") == 0 &&
        json_object_get(json_object_get(config, "rope_parameters"), key)) /* it says it too */
        value = NULL;
    if (strcmp(key, "rope_scaling") == 0) /* of any class */
        (void)json_object_set_new(written, key, json_null());
    else if (value)
        (void)json_object_set(written, key, value);
    a = read_with(name, without);
    b = read_with(name, written);
    is_read = a != NULL;
    if (!value && !is_read) { /* a size of a type of our own, or what names the type or the head */
        if (strcmp(key, "model_type") != 0 && strcmp(key, "architectures") != 0 &&
            json_object_get(defaults, "vocab_size"))
            fail_msg("%s without \"%s\" is refused: %s", name, key, bp_err_text());
    } else if ((a == NULL) != (b == NULL) || (a && strcmp(a, b) != 0)) {
        fail_msg("%s without \"%s\": %s; with the default: %s", name, key, a ? a : "refused",
                 b ? b : "refused");
    }
    free(a);
    free(b);
    json_decref(without);
    json_decref(written);
    return is_read;
}

/* Every key of one file; returns how many can be left out. Newer folders have both files. */
static int check_all(const char *name, const char *file, const json_t *all)
{
    char path[512];
    json_t *config, *value;
    const char *key;
    int is_read = 0;

    (void)snprintf(path, sizeof path, "%s/reference/%s/%s", BP_TEST_SHARED, name, file);
    if (strcmp(file, "config.json") != 0 && !bp_path_exists(path))
        return 0;
    (void)snprintf(path, sizeof path, "reference/%s/%s", name, file);
    bp_test_expect(bp_json_load_python(&config, bp_test_shared(path), 1 << 20), BP_OK);
    const json_t *defaults =
        json_object_get(all, json_string_value(json_object_get(config, "model_type")));
    json_object_foreach(config, key, value)
    {
        is_read += check_removed(name, config, key, defaults);
    }
    json_decref(config);
    return is_read;
}

static void a_key_that_is_not_there_means_the_class_default(void **state)
{
    static const char *const FOLDERS[] = {"opt-tiny",
                                          "opt-350m-tiny",
                                          "openai-gpt-tiny",
                                          "gptj-tiny",
                                          "bloom-tiny",
                                          "llama-yarn-tiny",
                                          "llama-dynamic-tiny",
                                          "gpt2-tiny",
                                          "gpt2-lmhead-tiny",
                                          "llama-tiny",
                                          "llama-llama3-tiny",
                                          "mistral-tiny",
                                          "qwen2-tiny",
                                          "qwen3-tiny",
                                          "olmo2-tiny",
                                          "gemma2-tiny",
                                          "smollm3-tiny",
                                          "granite-tiny",
                                          "gemma3-tiny",
                                          "phi3-tiny",
                                          "gpt_neox-tiny",
                                          "mamba2-tiny",
                                          "mixtral-tiny",
                                          "olmoe-tiny",
                                          "qwen3_moe-tiny",
                                          "bert-tiny",
                                          "bert-sequence-tiny",
                                          "bert-token-tiny",
                                          "bert-span-tiny",
                                          "roberta-tiny",
                                          "xlm-roberta-tiny",
                                          "distilbert-tiny",
                                          "modernbert-tiny",
                                          "deberta-v3-tiny",
                                          "deberta-v2-sequence-tiny",
                                          "electra-generator-tiny",
                                          "electra-discriminator-tiny",
                                          "bart-tiny",
                                          "t5-tiny",
                                          "t5-plain-tiny",
                                          "mt5-tiny",
                                          "marian-tiny",
                                          "mbart-tiny",
                                          "m2m_100-tiny",
                                          "transformer-tiny",
                                          "lstm-tiny",
                                          "gru-tied-tiny"};
    json_t *all = json_loads(DEFAULTS, 0, NULL);
    int is_read = 0;

    (void)state;
    assert_non_null(all);
    for (size_t k = 0; k < sizeof FOLDERS / sizeof *FOLDERS; k++) {
        is_read += check_all(FOLDERS[k], "config.json", all);
        is_read += check_all(FOLDERS[k], "config-old.json", all);
    }
    assert_true(is_read > 100);
    json_decref(all);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_that_is_not_there_means_the_class_default),
    };
    return BP_TEST_RUN(tests);
}
