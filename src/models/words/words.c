/* The words of a model's ids, for its text files. */
#include "models/words/words.h"

#include "base/buffer.h"

#include <inttypes.h>

static bp_err spell(bp_buffer *out, const bp_tokenizer *tokenizer, int64_t id)
{
    bp_buffer text = {0};
    bp_err err = bp_tokenizer_token_text(tokenizer, id, &text);

    for (size_t k = 0; err == BP_OK && k < text.bytes; k++)
        if (text.data[k] == ' ')
            bp_buffer_add(out, "\\x20", 4);
        else
            bp_buffer_add(out, text.data + k, 1);
    bp_buffer_clear(&text);
    return err;
}

static bp_err add_word(bp_strmap *words, const char *text, size_t bytes, int64_t id)
{
    int64_t index;
    bp_err err = bp_strmap_add(words, text, bytes, 0, &index);

    if (err == BP_OK && index != id)
        err = BP_FAIL(BP_ERR_FORMAT, "arpa.same_spelling",
                      "the tokens %" PRId64 " and %" PRId64
                      " are both spelt '%.40s': at the tokenizer; the file can't distinguish them, "
                      "give --no-tokenizer",
                      index, id, text);
    return err;
}

bp_err bp_words_of_ids(bp_strmap *words, const bp_tokenizer *tokenizer, int64_t vocab_size,
                       int64_t eod_id)
{
    bp_buffer text = {0};
    bp_err err = BP_OK;

    *words = (bp_strmap){0};
    if (tokenizer && bp_tokenizer_size(tokenizer) != vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.other_size",
                       "the tokenizer has %" PRId64 " tokens and the model %" PRId64
                       ": at the tokenizer; give the model's own, or --no-tokenizer",
                       bp_tokenizer_size(tokenizer), vocab_size);
    for (int64_t id = 0; id <= vocab_size && err == BP_OK; id++) {
        text.bytes = 0;
        if (id == vocab_size)
            bp_buffer_printf(&text, BP_WORD_START);
        else if (id == eod_id)
            bp_buffer_printf(&text, BP_WORD_END);
        else if (!tokenizer)
            bp_buffer_printf(&text, "%" PRId64, id);
        else if (id == bp_tokenizer_role(tokenizer, BP_ROLE_UNKNOWN))
            bp_buffer_printf(&text, BP_WORD_UNKNOWN);
        else
            err = spell(&text, tokenizer, id);
        if (err == BP_OK)
            err = add_word(words, text.data, text.bytes, id);
    }
    bp_buffer_clear(&text);
    return err;
}
