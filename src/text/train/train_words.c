/* Vocabularies of words and of characters: the most frequent ones. */
#include "base/mem.h"
#include "text/train/tokenizer_train_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct ranked_word {
    const char *text;
    size_t bytes;
    int64_t count;
} ranked_word;

/* The more frequent first; equally frequent ones in order of their bytes. */
static int compare(const void *left, const void *right)
{
    const ranked_word *a = left, *b = right;
    size_t both = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order;

    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    order = memcmp(a->text, b->text, both);
    return order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static bp_err add_tokens(bp_tokenizer *tokenizer, const ranked_word *ranked, int64_t count,
                         const bp_trainer_options *options)
{
    bp_err err = bp_tokenizer_add(tokenizer, BP_UNK_TOKEN, strlen(BP_UNK_TOKEN));

    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = bp_tokenizer_add(tokenizer, ranked[k].text, ranked[k].bytes);
    if (err == BP_OK)
        err = bp_add_specials(tokenizer, options);
    if (err == BP_OK)
        err = bp_tokenizer_add(tokenizer, BP_EOD_TOKEN, strlen(BP_EOD_TOKEN));
    if (err == BP_OK)
        err = bp_tokenizer_add_special(tokenizer, tokenizer->names.count - 1);
    return err == BP_OK ? bp_tokenizer_finish(tokenizer, NULL, 0, "a trained tokenizer") : err;
}

bp_err bp_build_words(bp_tokenizer **out, bp_kind kind, const bp_strmap *words,
                      const bp_trainer_options *options)
{
    int64_t kept = words->count, others = 2 + options->special_count;
    ranked_word *ranked = bp_alloc("text.trainer", words->count, sizeof *ranked);
    bp_err err;

    *out = NULL;
    for (int64_t k = 0; k < words->count; k++)
        ranked[k] = (ranked_word){bp_strmap_key(words, k), words->entries[k].bytes,
                                  words->entries[k].value};
    qsort(ranked, (size_t)words->count, sizeof *ranked, compare);
    if (options->size > 0 && kept > options->size - others)
        kept = options->size - others;
    while (kept > 0 && ranked[kept - 1].count < options->min_count)
        kept--;
    err = bp_tokenizer_new(out, kind);
    if (err == BP_OK)
        err = add_tokens(*out, ranked, kept, options);
    if (err != BP_OK)
        bp_tokenizer_free(out);
    bp_free(ranked);
    return err;
}
