/* Hugging Face folders for tests: the reference GPT-2, copied and changed. */
#ifndef BP_TESTS_HF_FOLDER_H
#define BP_TESTS_HF_FOLDER_H

#include "bp_test.h"

#include "base/json.h"
#include "store/safetensors.h"

/** The reference model's folder; skips the test where it is missing. */
static inline const char *hf_reference(void)
{
    return bp_test_shared("reference/gpt2-tiny");
}

/** A fresh copy of it, writable, as `name` in the test's folder. */
static inline void hf_copy_reference(const char *name)
{
    char command[3 * PATH_MAX];
    const char *from = hf_reference(), *to = bp_test_path(name);

    (void)snprintf(
        command, sizeof command,
        "rm -rf %s && mkdir %s && cp %s/config.json %s/model.safetensors %s/ && chmod -R u+w %s",
        to, to, from, from, to, to);
    assert_int_equal(system(command), 0);
}

#endif
