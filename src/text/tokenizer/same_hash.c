/* Are two hashes of one tokenizer? Asked when a corpus and a checkpoint meet. */
#include "base/mem.h"
#include "text/tokenizer/meaning_priv.h"
#include "text/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

void bp_tokenizer_hash_is_of(const char *hash, const char *path, bp_tokenizer_source *read)
{
    bp_meaning_is_in(hash, path, read);
}

/* A file that can't be read any more leaves the hash what it is. */
static void look_up(bp_known_hash *one)
{
    bp_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes = 0;

    if (one->read(one->path, &text, &bytes) == BP_OK && text &&
        bp_tokenizer_parse(&tokenizer, text, bytes, one->path) == BP_OK)
        snprintf(one->meaning, sizeof one->meaning, "%s", bp_tokenizer_hash(tokenizer));
    bp_tokenizer_free(&tokenizer);
    bp_free(text);
}

static void meaning_of(char out[BP_SHA256_HEX], const char *hash)
{
    bp_known_hash one = {.read = NULL};

    snprintf(out, BP_SHA256_HEX, "%s", hash);
    if (!bp_meaning_find(&one, hash))
        return;
    if (one.meaning[0] == '\0' && one.read) {
        look_up(&one);
        if (one.meaning[0] != '\0')
            bp_meaning_remember(hash, one.meaning);
    }
    if (one.meaning[0] != '\0')
        snprintf(out, BP_SHA256_HEX, "%s", one.meaning);
}

bool bp_tokenizer_same_hash(const char *one, const char *other)
{
    char a[BP_SHA256_HEX], b[BP_SHA256_HEX];

    if (strcmp(one, other) == 0)
        return true;
    if (one[0] == '\0' || other[0] == '\0')
        return false;
    meaning_of(a, one);
    meaning_of(b, other);
    return strcmp(a, b) == 0;
}
