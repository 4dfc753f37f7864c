/* Hugging Face folders that are a GPT-2 of ours, in all their spellings, and those that are
 * refused. */
#include "io/hf_folder.h"

#include "base/files/hash.h"
#include "io/huggingface/hf_model.h"
#include "models/list.h"

#include <unistd.h>

/* ---- safetensors files made of others ---- */

/* A file of tensors of `from`: those that `keep` says, under the names that `rename` gives; then
 * `extra`, filled from the values of the tensor it is named after (as many as it takes, one changed
 * when `changed`). */
typedef struct remake {
    const char *prefix;
    bool (*keep)(const char *name);
    const char *extra, *filled_from;
    int dims;
    int64_t shape[2];
    bool changed;
} remake;

static int64_t volume_of(const bp_safetensor *tensor)
{
    int64_t volume = 1;

    for (int d = 0; d < tensor->dims; d++)
        volume *= tensor->shape[d];
    return volume;
}

static void write_values(bp_safetensors_writer *writer, bp_safetensors *from,
                         const bp_safetensor *tensor, int64_t count, bool changed)
{
    float *values = bp_alloc("test.values", tensor->count, sizeof *values);

    bp_test_expect(bp_safetensors_read(from, tensor, 0, tensor->count, values), BP_OK);
    if (changed)
        values[count - 1] += 1.0f;
    bp_test_expect(bp_safetensors_write(writer, values, count), BP_OK);
    bp_free(values);
}

static void make_file(const char *to, const remake *how)
{
    char from_path[PATH_MAX], names[64][128];
    const bp_safetensor *sources[64];
    bp_safetensor specs[64];
    bp_safetensors_writer *writer;
    bp_safetensors *from;
    int count = 0;

    (void)snprintf(from_path, sizeof from_path, "%s/model.safetensors", hf_model());
    bp_test_expect(bp_safetensors_open(&from, from_path), BP_OK);
    for (int64_t k = 0; k < bp_safetensors_count(from); k++) {
        const bp_safetensor *tensor = bp_safetensors_at(from, k);

        if (how->keep != NULL && !how->keep(tensor->name))
            continue;
        (void)snprintf(names[count], sizeof names[count], "%s%s",
                       how->prefix == NULL ? "" : how->prefix, tensor->name);
        specs[count] = *tensor;
        specs[count].name = names[count];
        sources[count++] = tensor;
    }
    if (how->extra != NULL) {
        specs[count] = (bp_safetensor){
            .name = how->extra, .dims = how->dims, .shape = {how->shape[0], how->shape[1]}};
        sources[count++] = bp_safetensors_find(from, how->filled_from);
    }
    (void)unlink(bp_test_path(to));
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path(to), specs, count, "pt"), BP_OK);
    for (int k = 0; k < count; k++)
        write_values(writer, from, sources[k], volume_of(&specs[k]),
                     how->changed && k == count - 1);
    bp_test_expect(bp_safetensors_finish(&writer), BP_OK);
    bp_safetensors_close(&from);
}

/* The folder "tiny" opens and gives the model's values; its report. */
static bp_hf_report check_opens(void)
{
    bp_hf_model *tiny, *whole;
    const bp_slice *slices;
    bp_hf_report report;
    int64_t count;

    bp_test_expect(bp_hf_open(&tiny, bp_test_path("tiny"), bp_gpt_family.huggingface), BP_OK);
    bp_test_expect(bp_hf_open(&whole, hf_model(), bp_gpt_family.huggingface), BP_OK);
    slices = bp_hf_slices(tiny, &count);
    assert_int_equal(count, 36);
    for (int64_t k = 0; k < count; k++) {
        const float *a, *b;
        size_t bytes =
            (size_t)(slices[k].extent[0] * (slices[k].dims == 2 ? slices[k].extent[1] : 1)) *
            sizeof *a;

        bp_test_expect(bp_hf_fetch(tiny, &slices[k], k, &a), BP_OK);
        bp_test_expect(bp_hf_fetch(whole, &slices[k], k, &b), BP_OK);
        assert_memory_equal(a, b, bytes);
    }
    report = bp_hf_report_of(tiny);
    bp_hf_close(&tiny);
    bp_hf_close(&whole);
    return report;
}

static void check_refused(bp_err expected, const char *words)
{
    bp_hf_model *model;

    bp_test_expect(bp_hf_open(&model, bp_test_path("tiny"), bp_gpt_family.huggingface), expected);
    assert_null(model);
    bp_test_message_has(words);
}

static void model_is_mapped(void **state)
{
    bp_hf_model *model;
    bp_hf_shape shape;
    bp_hf_report report;
    int64_t count;

    (void)state;
    bp_test_expect(bp_hf_open(&model, hf_model(), bp_gpt_family.huggingface), BP_OK);
    shape = bp_hf_shape_of(model);
    static const double sizes[] = {
        2,  64,  4,    64, 300, /* layers, width, heads, context, tokens, */
        16, 256, 1e-5, 1};      /* width of a head, of the MLP, epsilon, tied */
    assert_memory_equal(shape.sizes, sizes, sizeof sizes);
    assert_int_equal(bp_hf_size_of(&shape, "3*width"), 192);
    assert_int_equal(shape.eos_id, -1);
    assert_string_equal(bp_hf_slices(model, &count)[2].name, "h.0.ln1.gain");
    report = bp_hf_report_of(model);
    assert_true(report.tensors == 28 && report.used == 28 && report.made == 36 &&
                report.transposed == 8 && report.split == 4);
    bp_hf_close(&model);
}

static bool in_first_shard(const char *name)
{
    return strncmp(name, "h.", 2) != 0;
}

static bool in_second_shard(const char *name)
{
    return !in_first_shard(name);
}

/* model.safetensors.index.json beside two files. */
static void write_index(const char *second)
{
    json_t *map = json_object(),
           *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
    char path[PATH_MAX];
    bp_safetensors *from;

    (void)snprintf(path, sizeof path, "%s/model.safetensors", hf_model());
    bp_test_expect(bp_safetensors_open(&from, path), BP_OK);
    for (int64_t k = 0; k < bp_safetensors_count(from); k++) {
        const char *name = bp_safetensors_at(from, k)->name;

        json_object_set_new(
            map, name,
            json_string(in_first_shard(name) ? "model-00001-of-00002.safetensors" : second));
    }
    bp_safetensors_close(&from);
    bp_test_expect(bp_json_save(bp_test_path("tiny/model.safetensors.index.json"), index), BP_OK);
    json_decref(index);
}

static void make_shards(void)
{
    const remake first = {.keep = in_first_shard}, second = {.keep = in_second_shard};

    hf_copy_model("tiny");
    assert_int_equal(unlink(bp_test_path("tiny/model.safetensors")), 0);
    make_file("tiny/model-00001-of-00002.safetensors", &first);
    make_file("tiny/model-00002-of-00002.safetensors", &second);
    write_index("model-00002-of-00002.safetensors");
}

static void shards_are_one_model(void **state)
{
    (void)state;
    make_shards();
    assert_int_equal(check_opens().used, 28);
    write_index("model-00001-of-00002.safetensors"); /* not where they are */
    check_refused(BP_ERR_FORMAT, "[huggingface.tensor_missing]");
    write_index("../model-00002-of-00002.safetensors");
    check_refused(BP_ERR_FORMAT, "[huggingface.bad_index]");
    write_index("model-00003-of-00003.safetensors");
    check_refused(BP_ERR_INPUT, "model-00003-of-00003.safetensors");
}

static void change_index(const char *tensor, const char *file)
{
    json_t *index;
    const char *path = bp_test_path("tiny/model.safetensors.index.json");

    bp_test_expect(bp_json_load(&index, path, 1 << 20), BP_OK);
    json_object_set_new(json_object_get(index, "weight_map"), tensor, json_string(file));
    bp_test_expect(bp_json_save(path, index), BP_OK);
    json_decref(index);
}

/* Whichever of the two the index names. */
static void tensor_in_two_shards_is_refused(void **state)
{
    static const remake both = {.keep = in_second_shard,
                                .extra = "wpe.weight",
                                .filled_from = "wpe.weight",
                                .dims = 2,
                                .shape = {64, 64}};

    (void)state;
    for (int in_second = 0; in_second < 2; in_second++) {
        make_shards();
        make_file("tiny/model-00002-of-00002.safetensors", &both);
        change_index("wpe.weight", in_second ? "model-00002-of-00002.safetensors"
                                             : "model-00001-of-00002.safetensors");
        check_refused(BP_ERR_FORMAT, "'wpe.weight' ... 'model-0000 ... [huggingface.tensor_twice]");
    }
}

static void index_that_lies_is_refused(void **state)
{
    (void)state;
    make_shards();
    change_index("h.9.ln_1.weight", "model-00001-of-00002.safetensors");
    check_refused(BP_ERR_FORMAT, "'h.9.ln_1.weight' ... 'model-00001-of-00002.safetensors' ... "
                                 "[huggingface.tensor_missing]");
    make_shards();
    assert_int_equal(unlink(bp_test_path("tiny/model-00002-of-00002.safetensors")), 0);
    check_refused(BP_ERR_INPUT, "model-00002-of-00002.safetensors");
    make_shards();
    assert_int_equal(truncate(bp_test_path("tiny/model-00002-of-00002.safetensors"), 100000), 0);
    check_refused(BP_ERR_FORMAT, "[safetensors.bad_tensor]");
    bp_test_message_has("model-00002-of-00002.safetensors");
    make_shards();
    bp_test_expect(bp_file_write(bp_test_path("tiny/model.safetensors.index.json"), "{}", 2),
                   BP_OK);
    check_refused(BP_ERR_FORMAT, "\"weight_map\" ... [huggingface.bad_index]");
}

/* ---- tensors beside the model's ---- */

static void tied_head_is_accepted_and_another_is_not(void **state)
{
    remake with = {
        .extra = "lm_head.weight", .filled_from = "wte.weight", .dims = 2, .shape = {300, 64}};

    (void)state;
    hf_copy_model("tiny");
    make_file("tiny/model.safetensors", &with);
    assert_int_equal(check_opens().tied_heads, 1);
    with.changed = true;
    make_file("tiny/model.safetensors", &with);
    check_refused(BP_ERR_FORMAT, "lm_head.weight ... wte.weight ... [huggingface.untied]");
}

static void masks_are_left_and_unknown_ones_are_named(void **state)
{
    remake with = {.prefix = "transformer.",
                   .extra = "transformer.h.1.attn.bias",
                   .filled_from = "wte.weight",
                   .dims = 1,
                   .shape = {7}};
    bp_hf_report report;
    bp_hf_model *model;

    (void)state;
    hf_copy_model("tiny");
    make_file("tiny/model.safetensors", &with);
    report = check_opens();
    assert_true(report.buffers == 1 && report.left == 0 &&
                strcmp(report.prefix, "transformer.") == 0);
    with.extra = "score.weight";
    make_file("tiny/model.safetensors", &with);
    assert_int_equal(check_opens().left, 1);
    bp_test_expect(bp_hf_open(&model, bp_test_path("tiny"), bp_gpt_family.huggingface), BP_OK);
    assert_string_equal(bp_hf_left(model, 0), "score.weight");
    bp_hf_close(&model);
}

static bool not_the_last_norm(const char *name)
{
    return strcmp(name, "ln_f.bias") != 0;
}

static bool nothing_of_wte(const char *name)
{
    return strcmp(name, "wte.weight") != 0;
}

static void model_that_is_not_whole_is_refused(void **state)
{
    const struct {
        remake how;
        const char *words;
    } cases[] = {{{.keep = not_the_last_norm}, "'ln_f.bias' ... [huggingface.tensor_missing]"},
                 {{.keep = not_the_last_norm,
                   .extra = "ln_f.bias",
                   .filled_from = "wte.weight",
                   .dims = 1,
                   .shape = {63}},
                  "(64) ... [huggingface.wrong_shape]"},
                 {{.keep = not_the_last_norm,
                   .extra = "ln_f.bias",
                   .filled_from = "wte.weight",
                   .dims = 2,
                   .shape = {8, 8}},
                  "(64) ... [huggingface.wrong_shape]"},
                 {{.keep = nothing_of_wte}, "wte.weight ... [huggingface.tensor_missing]"},
                 {{.extra = "transformer.wte.weight",
                   .filled_from = "wte.weight",
                   .dims = 2,
                   .shape = {300, 64}},
                  "[huggingface.tensor_twice]"},
                 {{.extra = "h.2.ln_1.bias", .filled_from = "wte.weight", .dims = 1, .shape = {64}},
                  "n_layer = 2 ... [huggingface.extra_layer]"}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        hf_copy_model("tiny");
        make_file("tiny/model.safetensors", &cases[k].how);
        check_refused(BP_ERR_FORMAT, cases[k].words);
    }
}

/* ---- names of real saves ---- */

static bool is_no_table(const char *name)
{
    return strcmp(name, "wte.weight") != 0;
}

static void prefixes_of_wrappers_are_taken_off(void **state)
{
    static const char *const PREFIXES[] = {
        "_orig_mod.",        "module.",
        "base_model.model.", "_orig_mod.module.transformer.",
        "module._orig_mod.", "_forward_module.module.transformer."};

    (void)state;
    for (size_t k = 0; k < sizeof PREFIXES / sizeof *PREFIXES; k++) {
        hf_copy_model("tiny");
        make_file("tiny/model.safetensors", &(remake){.prefix = PREFIXES[k]});
        bp_hf_report report = check_opens();
        assert_int_equal(report.left, 0);
    }
    hf_copy_model("tiny");
    make_file("tiny/model.safetensors", &(remake){.prefix = "student."});
    check_refused(BP_ERR_FORMAT, "'student.' ... [huggingface.other_prefix]");
    make_file("tiny/model.safetensors", &(remake){.extra = "h.0.attn.c_attn.lora_A.default.weight",
                                                  .filled_from = "wte.weight",
                                                  .dims = 2,
                                                  .shape = {4, 64}});
    check_refused(BP_ERR_FORMAT, "lora_A ... merge ... [huggingface.adapter]");
    make_file("tiny/model.safetensors", &(remake){.extra = "module.wte.weight",
                                                  .filled_from = "wte.weight",
                                                  .dims = 2,
                                                  .shape = {300, 64}});
    check_refused(BP_ERR_FORMAT, "'module.' ... [huggingface.tensor_twice]");
}

static void a_tied_table_may_have_the_heads_name_alone(void **state)
{
    static const char *const PREFIXES[] = {"", "module."};

    (void)state;
    for (int k = 0; k < 2; k++) {
        char name[64];

        (void)snprintf(name, sizeof name, "%slm_head.weight", PREFIXES[k]);
        hf_copy_model("tiny");
        make_file("tiny/model.safetensors", &(remake){.prefix = PREFIXES[k],
                                                      .keep = is_no_table,
                                                      .extra = name,
                                                      .filled_from = "wte.weight",
                                                      .dims = 2,
                                                      .shape = {300, 64}});
        bp_hf_report report = check_opens();
        assert_int_equal(report.used, HF_TENSORS);
        assert_int_equal(report.left + report.tied_heads, 0);
    }
}

static void set_config(const char *key, const char *value)
{
    json_t *config;

    bp_test_expect(bp_json_load(&config, bp_test_path("tiny/config.json"), 1 << 20), BP_OK);
    assert_int_equal(json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
    bp_test_expect(bp_json_save(bp_test_path("tiny/config.json"), config), BP_OK);
    json_decref(config);
}

static void a_base_class_is_read_without_a_head(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    set_config("architectures", "[\"GPT2Model\"]");
    assert_false(check_opens().headless); /* its head is the table */
    set_config("tie_word_embeddings", "false");
    bp_hf_report report = check_opens();
    assert_true(report.headless);
    assert_int_equal(report.used, HF_TENSORS);
}

/* ---- configurations ---- */

static void model_that_ours_is_not_is_refused(void **state)
{
    static const struct {
        const char *key, *value, *words;
    } cases[] = {
        {"model_type", "\"gpt_neo\"",
         "\"model_type\" ... \"gpt_neo\" ... [huggingface.unknown_type]"},
        {"activation_function", "\"relu\"",
         "\"activation_function\" ... \"relu\" ... [huggingface.unsupported]"},
        {"layer_norm_epsilon", "0", "\"layer_norm_epsilon\" ... 0 ... [huggingface.bad_size]"},
        {"tie_word_embeddings", "false", "lm_head.weight ... [huggingface.tensor_missing]"},
        {"n_inner", "128", "(64, 128) ... [huggingface.wrong_shape]"},
        {"n_inner", "-1", "\"n_inner\" ... -1 ... [huggingface.bad_size]"},
        {"scale_attn_weights", "false", "\"scale_attn_weights\" ... [huggingface.unsupported]"},
        {"scale_attn_by_inverse_layer_idx", "true",
         "\"scale_attn_by_inverse_layer_idx\" ... [huggingface.unsupported]"},
        {"add_cross_attention", "true", "\"add_cross_attention\" ... [huggingface.unsupported]"},
        {"n_head", "5", "\"n_head\" ... 5 ... [huggingface.not_dividing]"},
        {"n_head", "0", "\"n_head\" ... 0 ... [huggingface.bad_size]"},
        {"n_layer", "\"two\"", "\"n_layer\" ... [json.wrong_type]"},
        {"n_layer", "99999999", "\"n_layer\" ... 99999999 ... [huggingface.bad_size]"},
        {"n_embd", "-64", "\"n_embd\" ... -64 ... [huggingface.bad_size]"},
        {"n_embd", "128", "(300, 128) ... [huggingface.wrong_shape]"},
        {"vocab_size", "301", "(301, 64) ... [huggingface.wrong_shape]"},
        {"n_layer", "3", "'h.2.ln_1.weight' ... [huggingface.tensor_missing]"},
        {"n_layer", "1", "n_layer = 1 ... [huggingface.extra_layer]"}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        hf_copy_model("tiny");
        set_config(cases[k].key, cases[k].value);
        check_refused(BP_ERR_FORMAT, cases[k].words);
    }
}

/* What has another name for the same thing, or is null. */
static void model_that_ours_is_in_other_words_is_taken(void **state)
{
    static const char *const values[][2] = {
        {"activation_function", "\"gelu_pytorch_tanh\""}, {"n_inner", "256"}, {"n_inner", "null"}};

    (void)state;
    for (int k = 0; k < 3; k++) {
        hf_copy_model("tiny");
        set_config(values[k][0], values[k][1]);
        (void)check_opens();
    }
}

/* ---- files ---- */

static void folder_without_a_model_is_a_missing_input(void **state)
{
    bp_hf_model *model;

    (void)state;
    bp_test_expect(bp_hf_open(&model, bp_test_path("none"), bp_gpt_family.huggingface),
                   BP_ERR_INPUT);
    hf_copy_model("tiny");
    assert_int_equal(unlink(bp_test_path("tiny/model.safetensors")), 0);
    check_refused(BP_ERR_INPUT, "model.safetensors ... [huggingface.no_weights]");
    bp_test_expect(bp_file_write(bp_test_path("tiny/pytorch_model.bin"), "", 0), BP_OK);
    check_refused(BP_ERR_INPUT, "pytorch_model.bin ... [huggingface.no_weights]");
    assert_int_equal(unlink(bp_test_path("tiny/config.json")), 0);
    check_refused(BP_ERR_INPUT, "config.json");
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    assert_int_equal(truncate(bp_test_path("tiny/model.safetensors"), 400000), 0);
    check_refused(BP_ERR_FORMAT, "[safetensors.bad_tensor]");
    bp_test_expect(bp_file_write(bp_test_path("tiny/config.json"), "{", 1), BP_OK);
    check_refused(BP_ERR_FORMAT, "config.json");
}

/* Opened well, and one of its values is no number. */
static void value_that_is_not_finite_is_refused_when_it_is_fetched(void **state)
{
    static const uint32_t infinity = 0x7f800000;
    bp_hf_model *model;
    const bp_slice *slices;
    const float *data;
    int64_t count;
    FILE *file;

    (void)state;
    hf_copy_model("tiny");
    file = fopen(bp_test_path("tiny/model.safetensors"), "r+b");
    assert_true(file != NULL && fseek(file, -4, SEEK_END) == 0 &&
                fwrite(&infinity, 4, 1, file) == 1 && fclose(file) == 0);
    bp_test_expect(bp_hf_open(&model, bp_test_path("tiny"), bp_gpt_family.huggingface), BP_OK);
    slices = bp_hf_slices(model, &count);
    bp_test_expect(bp_hf_fetch(model, &slices[count - 1], count - 1, &data), BP_ERR_FORMAT);
    bp_test_message_has("[safetensors.not_finite]");
    bp_test_message_has("'ln_f.bias' ... [safetensors.not_finite]");
    bp_hf_close(&model);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_is_mapped),
        cmocka_unit_test(shards_are_one_model),
        cmocka_unit_test(tensor_in_two_shards_is_refused),
        cmocka_unit_test(index_that_lies_is_refused),
        cmocka_unit_test(tied_head_is_accepted_and_another_is_not),
        cmocka_unit_test(masks_are_left_and_unknown_ones_are_named),
        cmocka_unit_test(model_that_is_not_whole_is_refused),
        cmocka_unit_test(prefixes_of_wrappers_are_taken_off),
        cmocka_unit_test(a_tied_table_may_have_the_heads_name_alone),
        cmocka_unit_test(a_base_class_is_read_without_a_head),
        cmocka_unit_test(model_that_ours_is_not_is_refused),
        cmocka_unit_test(model_that_ours_is_in_other_words_is_taken),
        cmocka_unit_test(folder_without_a_model_is_a_missing_input),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(value_that_is_not_finite_is_refused_when_it_is_fetched),
    };
    return BP_TEST_RUN(tests);
}
