/* Files of word vectors, read with a tokenizer and without: what is accepted has finite vectors,
 * one for each token of the tokenizer. */
#include "base/mem.h"
#include "fuzz.h"
#include "models/list.h"
#include "models/word2vec/word2vec_priv.h"

#include <string.h>

#define WORDS                                                                                      \
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":3,"       \
    "\"content\":\"<|endoftext|>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"       \
    "\"normalized\":true,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"      \
    "\"WhitespaceSplit\"},\"post_processor\":null,\"decoder\":null,\"model\":{\"type\":"           \
    "\"WordLevel\",\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"<|endoftext|>\":3},\"unk_token\":"     \
    "\"<unk>\"}}"

static void check_import(const bp_model_import *import, const bp_tokenizer *tokenizer)
{
    int64_t V = import->shape.vocab_size, padded = w2v_padded(&import->shape);

    FUZZ_CHECK(tokenizer && bp_tokenizer_size(tokenizer) == V);
    FUZZ_CHECK(import->slice_count == 2 && import->eod_id >= 0 && import->eod_id < V);
    FUZZ_CHECK(import->slices[0].shape[0] == V);
    FUZZ_CHECK(bp_are_finite(import->slices[0].data, V * padded));
}

static void read_with(const char *path, const bp_tokenizer *tokenizer)
{
    bp_model_import import = {0};
    bp_err err = w2v_vectors_read(&bp_word2vec_family, &import, path, tokenizer);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT || err == BP_ERR_SYSTEM);
    if (err == BP_OK)
        check_import(&import, tokenizer ? tokenizer : import.tokenizer);
    for (int64_t k = 0; k < import.slice_count; k++)
        bp_free(import.slices[k].data);
    json_decref(import.state);
    bp_tokenizer_free(&import.tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bp_tokenizer *words;
    const char *path = fuzz_file(data, bytes);

    if (!words)
        FUZZ_CHECK(bp_tokenizer_parse(&words, WORDS, strlen(WORDS), "words") == BP_OK);
    fuzz_begin();
    (void)w2v_vectors_is(path);
    read_with(path, NULL);
    read_with(path, words);
    fuzz_end();
    return 0;
}
