/* Corpora whose every token is a function of its place, written with the corpus writer. For one
 * program: include bp_test.h first. */
#pragma once

#include "base/files/hash.h"
#include "base/mem.h"
#include "io/corpus/corpus_writer.h"

#define TOY_HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define TOY_HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

typedef struct toy_corpus {
    int64_t documents;
    const int64_t *lengths; /* [documents], of text; NULL: each `length` */
    int64_t length;
    int64_t vocab_size;
    int64_t eod_id;   /* the last of the vocabulary, or -1 */
    const char *hash; /* of the tokenizer; NULL: TOY_HASH_A */
    int64_t salt;     /* other salt, other tokens */
    int64_t first;    /* its first document has the tokens of such a one */
} toy_corpus;

static inline int64_t toy_length(const toy_corpus *toy, int64_t document)
{
    return toy->lengths ? toy->lengths[document] : toy->length;
}

/* Token k of a document; at k = length the end-of-document token. */
static inline int32_t toy_token(const toy_corpus *toy, int64_t document, int64_t k)
{
    uint64_t x =
        (uint64_t)(toy->salt * 1000003 + toy->first + document) * UINT64_C(0x9e3779b97f4a7c15);

    if (k == toy_length(toy, document))
        return (int32_t)toy->eod_id;
    x = (x ^ (uint64_t)k) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return (int32_t)((x >> 20) % (uint64_t)(toy->vocab_size - (toy->eod_id >= 0)));
}

/* XXH3 of the text's tokens, all at once. */
static inline uint64_t toy_hash(const toy_corpus *toy, int64_t document)
{
    int64_t n = toy_length(toy, document);
    uint32_t *tokens = bp_alloc("test", n, sizeof(*tokens));

    assert_non_null(tokens);
    for (int64_t k = 0; k < n; k++)
        tokens[k] = (uint32_t)toy_token(toy, document, k);
    uint64_t hash = bp_xxh3(tokens, (size_t)n * sizeof(*tokens));
    bp_free(tokens);
    return hash;
}

/* Bytes and words of the text that a document is said to come from. */
static inline bp_corpus_row toy_row(const toy_corpus *toy, int64_t document)
{
    int64_t n = toy_length(toy, document);

    return (bp_corpus_row){.bytes = 4 * n + document % 2, .words = n, .words_split = n + 1};
}

/* Writes FOLDER/name; labels "kind" (document mod 3) where there are documents. */
static inline const char *toy_write(const toy_corpus *toy, const char *name)
{
    static const char *const label_names[1] = {"kind"}, *const kinds[3] = {"x", "y", "z"};
    const char *path = bp_test_path(name);
    bp_corpus_spec spec = {.vocab_size = toy->vocab_size,
                           .eod_id = toy->eod_id,
                           .tokenizer_hash = toy->hash ? toy->hash : TOY_HASH_A,
                           .tokenizer = "{\"model\": null}",
                           .labels = label_names,
                           .label_count = 1,
                           .has_ids = true};
    bp_corpus_writer *writer;

    bp_test_expect(bp_corpus_writer_new(&writer, path, &spec), BP_OK);
    for (int64_t d = 0; d < toy->documents; d++) {
        bp_corpus_row row = toy_row(toy, d);
        const char *label[1] = {kinds[d % 3]};
        char id[32];

        for (int64_t k = 0; k < toy_length(toy, d); k++) {
            uint32_t token = (uint32_t)toy_token(toy, d, k);
            bp_test_expect(bp_corpus_writer_tokens(writer, &token, 1), BP_OK);
        }
        snprintf(id, sizeof(id), "doc-%lld", (long long)d);
        row.id = id;
        row.labels = label;
        bp_test_expect(bp_corpus_writer_end(writer, &row), BP_OK);
    }
    bp_test_expect(bp_corpus_writer_commit(writer), BP_OK);
    bp_corpus_writer_free(&writer);
    return path;
}

/* All tokens of the toy, documents in order, each with its end-of-document token; free with
 * bp_free(). */
static inline int32_t *toy_stream(const toy_corpus *toy, int64_t *count)
{
    int32_t *tokens;
    int64_t at = 0;

    *count = 0;
    for (int64_t d = 0; d < toy->documents; d++)
        *count += toy_length(toy, d) + (toy->eod_id >= 0);
    tokens = bp_alloc("test", *count, sizeof(*tokens));
    assert_non_null(tokens);
    for (int64_t d = 0; d < toy->documents; d++) {
        for (int64_t k = 0; k < toy_length(toy, d) + (toy->eod_id >= 0); k++)
            tokens[at++] = toy_token(toy, d, k);
    }
    return tokens;
}
