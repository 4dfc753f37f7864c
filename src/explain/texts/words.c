/* Words by the tokenizer of a corpus. Called by explain.c. */
#include "explain/texts/words.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/strmap.h"

static bp_err find_same(explain_words *out, const bp_tokenizer *tokenizer, int64_t size)
{
    bp_buffer text = {0};
    bp_strmap found = {0};
    bp_err err = BP_OK;

    for (int64_t v = 0; v < out->count; v++)
        out->same[v] = (int32_t)v;
    for (int64_t v = 0; v < size && v < out->count && err == BP_OK; v++) {
        const bp_strmap_entry *entry;
        size_t space; /* before the word */

        text.bytes = 0;
        err = bp_tokenizer_spell(tokenizer, v, &text);
        if (err != BP_OK)
            break;
        space = text.bytes > 1 && text.data[0] == ' ';
        entry = bp_strmap_find(&found, text.data + space, text.bytes - space);
        if (entry && out->parts[entry->value] == out->parts[v])
            out->same[v] = (int32_t)entry->value;
        else if (!entry)
            err = bp_strmap_add(&found, text.data + space, text.bytes - space, v, NULL);
    }
    bp_strmap_clear(&found);
    bp_buffer_clear(&text);
    return err;
}

static bp_err mark(explain_words *out, const bp_tokenizer *tokenizer)
{
    int64_t size = bp_tokenizer_size(tokenizer);
    bool *parts = bp_alloc("explain.words", size, sizeof *parts);
    bp_err err = bp_tokenizer_word_parts(tokenizer, parts);

    for (int64_t v = 0; v < size && v < out->count; v++)
        out->parts[v] = parts[v];
    bp_free(parts);
    return err == BP_OK ? find_same(out, tokenizer, size) : err;
}

bp_err explain_words_open(explain_words *out, const bp_corpus *corpus, int64_t tokens)
{
    bp_corpus_file *file = bp_corpus_file_at(corpus, 0);
    bp_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_corpus_file_tokenizer(file, &text, &bytes);

    *out = (explain_words){0};
    if (err == BP_OK && text)
        err = bp_tokenizer_parse(&tokenizer, text, bytes, bp_corpus_file_path(file));
    if (err == BP_OK && text) {
        out->count = tokens;
        out->parts = bp_alloc("explain.words", tokens, sizeof *out->parts);
        out->same = bp_alloc("explain.words", tokens, sizeof *out->same);
        err = mark(out, tokenizer);
    }
    bp_tokenizer_free(&tokenizer);
    bp_free(text);
    return err;
}

void explain_words_share(explain_words *words, MPI_Comm comm)
{
    bp_bcast_bytes(&words->count, sizeof words->count, 0, comm);
    if (words->count == 0)
        return;
    if (!words->parts) {
        words->parts = bp_alloc("explain.words", words->count, sizeof *words->parts);
        words->same = bp_alloc("explain.words", words->count, sizeof *words->same);
    }
    bp_bcast_bytes(words->parts, words->count * (int64_t)sizeof *words->parts, 0, comm);
    bp_bcast_bytes(words->same, words->count * (int64_t)sizeof *words->same, 0, comm);
}

void explain_words_clear(explain_words *words)
{
    bp_free(words->parts);
    bp_free(words->same);
}
