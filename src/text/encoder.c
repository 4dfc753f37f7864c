/* Text to ids. */
#include "base/hash.h"
#include "base/mem.h"
#include "text/scan_priv.h"
#include "text/tokenizer_priv.h"
#include "text/unicode_priv.h"

#include <string.h>

/* Pieces seen before, with their ids: each has one place, where the last one that came stays. An
 * entry is a cache line, and all of them stay within a core's second-level cache. */
#define CACHE_SLOTS 16384
#define CACHE_BYTES 26
#define CACHE_IDS   8

typedef struct cached_piece {
    uint32_t hash; /* high half of it; the low half is the place */
    uint8_t bytes; /* 0: free */
    uint8_t count;
    char text[CACHE_BYTES];
    uint32_t ids[CACHE_IDS];
} cached_piece;

_Static_assert(sizeof(cached_piece) == 64, "an entry is a cache line");

struct bp_encoder {
    const bp_tokenizer *tokenizer;
    const uint8_t *classes;
    cached_piece *cache; /* [CACHE_SLOTS]; bpe */
    bp_bpe_scratch scratch;
    size_t longest; /* token, in bytes of its name */
    char *name;     /* [2 * longest]: room to spell a piece */
};

bp_err bp_encoder_new(bp_encoder **out, const bp_tokenizer *tokenizer)
{
    bp_encoder *encoder = bp_alloc("text.encoder", 1, sizeof *encoder);

    *out = NULL;
    encoder->tokenizer = tokenizer;
    encoder->classes = bp_unicode_classes();
    encoder->longest = bp_tokenizer_longest(tokenizer);
    encoder->name = bp_alloc("text.encoder", 2 * (int64_t)encoder->longest, 1);
    encoder->cache = bp_alloc("text.encoder", CACHE_SLOTS, sizeof *encoder->cache);
    *out = encoder;
    return BP_OK;
}

void bp_encoder_free(bp_encoder **encoder)
{
    if (*encoder == NULL)
        return;
    bp_bpe_scratch_clear(&(*encoder)->scratch);
    bp_free((*encoder)->cache);
    bp_free((*encoder)->name);
    bp_free(*encoder);
    *encoder = NULL;
}

/* ---- byte-level BPE ---- */

/* The id of a piece that is a token as it stands, -1: it is none, or a special one. */
static int64_t whole_token(const bp_encoder *encoder, const uint8_t *piece, size_t bytes)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;
    int64_t id;

    if (bytes > encoder->longest)
        return -1;
    id = bp_tokenizer_id(tokenizer, encoder->name, bp_name_of_bytes(encoder->name, piece, bytes));
    return id >= 0 && tokenizer->names.entries[id].value == 0 ? id : -1;
}

static bp_err encode_new_piece(bp_encoder *encoder, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;

    if (tokenizer->ignore_merges) {
        int64_t id = whole_token(encoder, piece, bytes);

        if (id >= 0) {
            bp_err err = BP_OK;

            bp_ids_reserve(ids, 1);
            if (err == BP_OK)
                ids->data[ids->count++] = (uint32_t)id;
            return err;
        }
    }
    return bp_bpe_piece(&tokenizer->merges, piece, bytes, &encoder->scratch, ids);
}

static bp_err encode_piece(bp_encoder *encoder, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    uint64_t hash;
    cached_piece *cached;
    int64_t before = ids->count;
    bp_err err;

    if (bytes > CACHE_BYTES)
        return encode_new_piece(encoder, piece, bytes, ids);
    hash = bp_xxh3(piece, bytes);
    cached = &encoder->cache[hash % CACHE_SLOTS];
    if (cached->hash == (uint32_t)(hash >> 32) && cached->bytes == bytes &&
        memcmp(cached->text, piece, bytes) == 0) {
        bp_ids_reserve(ids, CACHE_IDS);
        memcpy(ids->data + ids->count, cached->ids, sizeof cached->ids);
        ids->count += cached->count;
        return BP_OK;
    }
    err = encode_new_piece(encoder, piece, bytes, ids);
    if (err == BP_OK && ids->count - before <= CACHE_IDS) {
        cached->hash = (uint32_t)(hash >> 32);
        cached->bytes = (uint8_t)bytes;
        cached->count = (uint8_t)(ids->count - before);
        memcpy(cached->text, piece, bytes);
        memcpy(cached->ids, ids->data + before, cached->count * sizeof *cached->ids);
    }
    return err;
}

/* Pieces of text that goes on after a piece boundary. Without the pattern a stretch of valid text
 * is one piece. */
static bp_err encode_pieces(bp_encoder *encoder, const uint8_t *text, size_t bytes, bp_ids *ids)
{
    bool use_regex = encoder->tokenizer->use_regex;
    bp_err err = BP_OK;

    for (size_t at = 0, length; at < bytes && err == BP_OK; at += length) {
        length = use_regex ? bp_scan_piece(encoder->classes, text + at, bytes - at)
                           : bp_scan_valid(text + at, bytes - at);
        err = encode_piece(encoder, text + at, length, ids);
    }
    return err;
}

static bp_err encode_bpe(bp_encoder *encoder, const uint8_t *text, size_t bytes, bool first,
                         bp_ids *ids)
{
    uint8_t *spaced;
    bp_err err;

    if (!first || !encoder->tokenizer->add_prefix_space || bytes == 0 || text[0] == ' ')
        return encode_pieces(encoder, text, bytes, ids);
    spaced = bp_alloc("text.encoder", (int64_t)bytes + 1, 1);
    spaced[0] = ' ';
    memcpy(spaced + 1, text, bytes);
    err = encode_pieces(encoder, spaced, bytes + 1, ids);
    bp_free(spaced);
    return err;
}

/* ---- words and characters ---- */

static void append_named(bp_encoder *encoder, const uint8_t *name, size_t bytes, bp_ids *ids)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;
    int64_t id = bp_tokenizer_id(tokenizer, (const char *)name, bytes);

    bp_ids_reserve(ids, 1);
    if (id < 0 || tokenizer->names.entries[id].value != 0) /* text that looks special is text */
        id = tokenizer->unk;
    ids->data[ids->count++] = (uint32_t)id;
}

static void encode_words(bp_encoder *encoder, const uint8_t *text, size_t bytes, bp_ids *ids)
{
    size_t at = bp_scan_space(encoder->classes, text, bytes);

    while (at < bytes) {
        size_t length = bp_scan_word(encoder->classes, text + at, bytes - at);

        append_named(encoder, text + at, length, ids);
        at += length;
        at += bp_scan_space(encoder->classes, text + at, bytes - at);
    }
}

static void encode_characters(bp_encoder *encoder, const uint8_t *text, size_t bytes, bp_ids *ids)
{

    for (size_t at = 0; at < bytes;) {
        uint32_t code_point;
        size_t length = bp_utf8_decode(text + at, bytes - at, &code_point);

        length = length == 0 ? 1 : length; /* an invalid byte is no token's name: <unk> */
        append_named(encoder, text + at, length, ids);
        at += length;
    }
}

bp_err bp_encode_piece(bp_encoder *encoder, const char *text, size_t bytes, bool first, bp_ids *ids)
{
    const uint8_t *start = (const uint8_t *)text;

    switch (encoder->tokenizer->kind) {
    case BP_KIND_BPE:
        return encode_bpe(encoder, start, bytes, first, ids);
    case BP_KIND_WORD: {
        encode_words(encoder, start, bytes, ids);
        return BP_OK;
    }
    case BP_KIND_CHAR:
        break;
    }
    encode_characters(encoder, start, bytes, ids);
    return BP_OK;
}

bp_err bp_encode(bp_encoder *encoder, const char *text, size_t bytes, bp_ids *ids)
{
    return bp_encode_piece(encoder, text, bytes, true, ids);
}
