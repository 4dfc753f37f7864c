/* Hugging Face folders for tests: a small GPT-2 as transformers writes it, copied and changed. */
#pragma once

#include "bp_test.h"

#include "base/config/json.h"
#include "base/rng.h"
#include "io/huggingface/safetensors.h"

static const char HF_CONFIG[] =
    "{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, "
    "\"n_head\": 4, \"n_embd\": 64, \"vocab_size\": 300, \"n_positions\": 64, \"n_ctx\": 64, "
    "\"activation_function\": \"gelu_new\", \"layer_norm_epsilon\": 1e-05, \"attn_pdrop\": 0.0, "
    "\"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, \"tie_word_embeddings\": true}";

/* Its tensors, in the order of the file; those of a block for each of the two. */
static const bp_safetensor HF_EMBEDDINGS[] = {{.name = "wte.weight", .dims = 2, .shape = {300, 64}},
                                              {.name = "wpe.weight", .dims = 2, .shape = {64, 64}}};
static const bp_safetensor HF_BLOCK[] = {
    {.name = "ln_1.weight", .dims = 1, .shape = {64}},
    {.name = "ln_1.bias", .dims = 1, .shape = {64}},
    {.name = "attn.c_attn.weight", .dims = 2, .shape = {64, 192}},
    {.name = "attn.c_attn.bias", .dims = 1, .shape = {192}},
    {.name = "attn.c_proj.weight", .dims = 2, .shape = {64, 64}},
    {.name = "attn.c_proj.bias", .dims = 1, .shape = {64}},
    {.name = "ln_2.weight", .dims = 1, .shape = {64}},
    {.name = "ln_2.bias", .dims = 1, .shape = {64}},
    {.name = "mlp.c_fc.weight", .dims = 2, .shape = {64, 256}},
    {.name = "mlp.c_fc.bias", .dims = 1, .shape = {256}},
    {.name = "mlp.c_proj.weight", .dims = 2, .shape = {256, 64}},
    {.name = "mlp.c_proj.bias", .dims = 1, .shape = {64}}};
static const bp_safetensor HF_LAST[] = {{.name = "ln_f.weight", .dims = 1, .shape = {64}},
                                        {.name = "ln_f.bias", .dims = 1, .shape = {64}}};
#define HF_TENSORS (2 + 2 * 12 + 2)

/* No two values are equal. */
static inline void hf_write_tensors(const char *path, const bp_safetensor *specs)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);
    bp_safetensors_writer *writer;
    uint64_t at = 0;

    bp_test_expect(bp_safetensors_create(&writer, path, specs, HF_TENSORS, "pt"), BP_OK);
    for (int k = 0; k < HF_TENSORS; k++) {
        int64_t count = specs[k].shape[0] * (specs[k].dims == 2 ? specs[k].shape[1] : 1);
        float *values = bp_alloc("test.values", count, sizeof *values);

        for (int64_t i = 0; i < count; i++)
            values[i] = (float)(0.2 * bp_rng_uniform(&key, at++) - 0.1);
        bp_test_expect(bp_safetensors_write(writer, values, count), BP_OK);
        bp_free(values);
    }
    bp_test_expect(bp_safetensors_finish(&writer), BP_OK);
}

/** The folder of the model, made on the first call: not to be changed. */
static inline const char *hf_model(void)
{
    static char names[HF_TENSORS][64];
    bp_safetensor specs[HF_TENSORS];
    const char *folder = bp_test_path("hf-model");
    int used = 0;

    if (bp_path_exists(folder))
        return folder;
    bp_test_expect(bp_dir_make(folder), BP_OK);
    specs[used++] = HF_EMBEDDINGS[0];
    specs[used++] = HF_EMBEDDINGS[1];
    for (int block = 0; block < 2; block++)
        for (int k = 0; k < 12; k++) {
            (void)snprintf(names[used], sizeof names[used], "h.%d.%s", block, HF_BLOCK[k].name);
            specs[used] = HF_BLOCK[k];
            specs[used].name = names[used];
            used++;
        }
    specs[used++] = HF_LAST[0];
    specs[used++] = HF_LAST[1];
    hf_write_tensors(bp_test_path("hf-model/model.safetensors"), specs);
    (void)bp_test_write("hf-model/config.json", HF_CONFIG, sizeof HF_CONFIG - 1);
    return folder;
}

/** A fresh copy of it, as `name` in the test's folder. */
static inline void hf_copy_model(const char *name)
{
    char command[3 * PATH_MAX];
    const char *from = hf_model(), *to = bp_test_path(name);

    (void)snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", to, from, to);
    assert_int_equal(system(command), 0);
}
