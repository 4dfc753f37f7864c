/* A byte-level BPE as GPT-2 is handed on: vocab.json and merges.txt. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "bp_test.h"

/** Write the vocabulary and the merges of a tokenizer.json into `folder` (of the test's folder). */
static inline void gpt2_pair_write(const char *tokenizer, const char *folder)
{
    json_t *root, *model, *merge;
    bp_buffer text = {0};
    char name[256];
    size_t k;

    bp_test_expect(bp_json_load(&root, tokenizer, 1 << 24), BP_OK);
    model = json_object_get(root, "model");
    (void)snprintf(name, sizeof name, "%s/vocab.json", folder);
    bp_test_expect(bp_json_save(bp_test_path(name), json_object_get(model, "vocab")), BP_OK);
    bp_buffer_printf(&text, "#version: 0.2\n");
    json_array_foreach(json_object_get(model, "merges"), k, merge)
        bp_buffer_printf(&text, "%s\n", json_string_value(merge));
    (void)snprintf(name, sizeof name, "%s/merges.txt", folder);
    (void)bp_test_write(name, text.data, text.bytes);
    bp_buffer_clear(&text);
    json_decref(root);
}
