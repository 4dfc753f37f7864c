/* Small JSON files of users: ensemble.json, and config.json of a Hugging Face GPT-2. What is
 * accepted is written as a file that reads back as the same. */
#include "base/config/json.h"
#include "base/mem.h"
#include "fuzz.h"
#include "io/checkpoint/ensemble_file.h"
#include "io/huggingface/hf_config_priv.h"
#include "models/list.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_member_equal(const bp_ensemble_member *a, const bp_ensemble_member *b)
{
    return strcmp(a->name, b->name) == 0 &&
           (a->oob_perplexity == b->oob_perplexity ||
            (!isfinite(a->oob_perplexity) && !isfinite(b->oob_perplexity)));
}

static void try_ensemble(const uint8_t *data, size_t bytes)
{
    bp_ensemble_list list = {0}, again = {0};
    bp_err err = bp_ensemble_list_load(&list, fuzz_file_named("ensemble.json", data, bytes));

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        FUZZ_CHECK(list.count > 0 && list.count <= BP_ENSEMBLE_MEMBERS_MAX);
        for (int64_t k = 0; k < list.count; k++)
            FUZZ_CHECK(list.members[k].name != NULL && list.members[k].path[0] != 0);
        FUZZ_CHECK(bp_ensemble_list_save(&list, fuzz_folder()) == BP_OK);
        FUZZ_CHECK(bp_ensemble_is(fuzz_folder()) && !bp_ensemble_is_unfinished(fuzz_folder()));
        FUZZ_CHECK(bp_ensemble_list_load(&again, fuzz_folder()) == BP_OK);
        FUZZ_CHECK(again.count == list.count);
        for (int64_t k = 0; k < list.count; k++)
            FUZZ_CHECK(is_member_equal(&list.members[k], &again.members[k]));
    }
    bp_ensemble_list_clear(&list);
    bp_ensemble_list_clear(&again);
}

static void try_shape(const uint8_t *data, size_t bytes)
{
    bp_hf_shape shape = {0}, again = {0};
    json_t *config, *written;
    bp_err err = bp_json_parse(&config, (const char *)data, bytes, "config.json");

    if (err != BP_OK)
        return;
    err = hf_config_read(&shape, config, bp_gpt_family.huggingface, "config.json");
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        int64_t layers = bp_hf_size_of(&shape, "layers"), heads = bp_hf_size_of(&shape, "heads");

        FUZZ_CHECK(layers >= 1 && layers <= HF_MAX_LAYERS);
        FUZZ_CHECK(heads >= 1 && bp_hf_size_of(&shape, "width") % heads == 0);
        FUZZ_CHECK(shape.eos_id >= -1 && shape.eos_id < bp_hf_size_of(&shape, "vocab_size"));
        written = hf_config_json(&shape);
        FUZZ_CHECK(written != NULL &&
                   hf_config_read(&again, written, bp_gpt_family.huggingface, "again") == BP_OK);
        FUZZ_CHECK(memcmp(&shape, &again, sizeof shape) == 0);
        json_decref(written);
    }
    json_decref(config);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_begin();
    try_ensemble(data, bytes);
    try_shape(data, bytes);
    fuzz_end();
    return 0;
}
