/* The characters of a vocabulary's words. Called by bilm_read.c and elmo.c. */
#include "models/elmo/elmo.h"

#include "nn/core/layers.h"

#include <string.h>

static void spell(float to[BP_WORD_CHARACTERS], const float *inside, int64_t count)
{
    int64_t used = 0;

    for (int64_t k = 0; k < BP_WORD_CHARACTERS; k++)
        to[k] = BP_WORD_PADDING;
    to[used++] = BP_WORD_BEGIN;
    for (int64_t k = 0; k < count; k++)
        to[used++] = inside[k];
    to[used] = BP_WORD_END;
}

static void spell_bytes(float to[BP_WORD_CHARACTERS], const char *data, size_t bytes)
{
    float inside[BP_WORD_CHARACTERS - 2];
    int64_t count = 0;

    for (; count < BP_WORD_CHARACTERS - 2 && count < (int64_t)bytes; count++)
        inside[count] = (unsigned char)data[count];
    spell(to, inside, count);
}

bp_err bp_elmo_characters(float **out, int64_t *floats, const bp_model_shape *shape,
                          const bp_tokenizer *tokenizer)
{
    static const float END = BP_TEXT_END, BEGIN = BP_TEXT_BEGIN;
    int64_t words = shape->vocab_size, eod = tokenizer ? bp_tokenizer_eod(tokenizer) : -1,
            unknown = tokenizer ? bp_tokenizer_unk(tokenizer) : -1;
    bp_err err = BP_OK;

    *out = NULL;
    *floats = (words + 1) * BP_WORD_CHARACTERS;
    if (!tokenizer)
        return BP_FAIL(BP_ERR_CONFIG, "elmo.no_tokenizer",
                       "elmo reads its words' characters from the tokenizer, but the corpus "
                       "names none: at corpus.train; give tokenizer.path");
    if (strcmp(bp_tokenizer_kind(tokenizer), "word") != 0)
        return BP_FAIL(BP_ERR_CONFIG, "elmo.not_words",
                       "elmo spells whole words, but the tokenizer is of kind %s: at "
                       "corpus.train; make the corpus with bagpipe-data tokenizer --kind word",
                       bp_tokenizer_kind(tokenizer));
    *out = bp_try_alloc("model.constants", *floats, sizeof **out);
    if (!*out)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at the characters of %lld words; use fewer ranks a node",
                       (long long)words);
    for (int64_t id = 0; id < words && err == BP_OK; id++) {
        bp_buffer word = {0};

        err = bp_tokenizer_token_bytes(tokenizer, id, &word);
        if (err == BP_OK)
            spell_bytes(*out + id * BP_WORD_CHARACTERS, word.data, word.bytes);
        bp_buffer_clear(&word);
    }
    if (unknown >= 0 && unknown < words)
        spell_bytes(*out + unknown * BP_WORD_CHARACTERS, BP_ELMO_UNKNOWN, strlen(BP_ELMO_UNKNOWN));
    if (eod >= 0 && eod < words)
        spell(*out + eod * BP_WORD_CHARACTERS, &END, 1);
    spell(*out + words * BP_WORD_CHARACTERS, &BEGIN, 1);
    return err;
}
