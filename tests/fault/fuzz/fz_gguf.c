/* GGUF files: what is accepted has all its tensors inside the file, side by side, and the keys make
 * a tokenizer, or none. */
#include "fuzz.h"
#include "io/gguf/gguf.h"
#include "io/gguf/gguf_tokenizer.h"

#define CAPACITY 64

/* The first and the last values. */
static void read_some(const bp_gguf *file, const bp_gguf_tensor *tensor)
{
    float values[CAPACITY];
    int64_t count = tensor->count < CAPACITY ? tensor->count : CAPACITY;
    int64_t firsts[2] = {0, tensor->count - count};

    for (int k = 0; k < 2; k++)
        FUZZ_CHECK(bp_gguf_read(file, tensor, firsts[k], count, values) == BP_OK);
}

static void check(const bp_gguf *file, int64_t bytes)
{
    bp_tokenizer *tokenizer = NULL;
    int64_t end = 0;
    bp_err err;

    for (int64_t k = 0; k < bp_gguf_count(file); k++) {
        const bp_gguf_tensor *tensor = bp_gguf_at(file, k);

        FUZZ_CHECK(tensor->place >= end && tensor->bytes > 0);
        end = tensor->place + tensor->bytes;
        FUZZ_CHECK(end <= bytes);
        FUZZ_CHECK(bp_gguf_find(file, tensor->name) == tensor);
        read_some(file, tensor);
    }
    FUZZ_CHECK(json_is_object(bp_gguf_keys(file)));
    err = bp_gguf_tokenizer(&tokenizer, file);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    bp_tokenizer_free(&tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    bp_gguf *file;
    bp_err err;

    fuzz_begin();
    err = bp_gguf_open(&file, fuzz_file(data, bytes));
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK)
        check(file, (int64_t)bytes);
    bp_gguf_close(&file);
    fuzz_end();
    return 0;
}
