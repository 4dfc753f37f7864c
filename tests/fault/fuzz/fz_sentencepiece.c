/* Models of SentencePiece: what is accepted becomes a tokenizer that encodes, or is refused. */
#include "base/mem.h"
#include "fuzz.h"
#include "text/sentencepiece/sentencepiece.h"

#include <string.h>

static void encode(const char *json)
{
    static const char TEXT[] = " abba  \xE2\x96\x81 ab\xEF\xAC\x81<s>\xF0\x9F\x98\x80\xFF";
    bp_tokenizer *tokenizer = NULL;
    bp_encoder *encoder = NULL;
    bp_ids ids = {0};
    bp_err err = bp_tokenizer_parse(&tokenizer, json, strlen(json), "fuzz");

    fuzz_check_error(err);
    if (err == BP_OK)
        err = bp_encoder_new(&encoder, tokenizer);
    if (err == BP_OK)
        err = bp_encode(encoder, TEXT, sizeof TEXT - 1, &ids);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    for (int64_t k = 0; k < ids.count; k++)
        FUZZ_CHECK(ids.data[k] < (uint64_t)bp_tokenizer_size(tokenizer));
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    bp_sentencepiece model;
    char *json = NULL;
    bp_err err;

    fuzz_begin();
    err = bp_sentencepiece_parse(&model, data, bytes, "fuzz");
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        err = bp_sentencepiece_json(&json, &model, &(bp_sentencepiece_class){0}, "fuzz");
        fuzz_check_error(err);
        FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    }
    if (json)
        encode(json);
    bp_free(json);
    bp_sentencepiece_clear(&model);
    fuzz_end();
    return 0;
}
