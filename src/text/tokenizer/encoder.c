/* Text to ids: plain tokenizers by scan.c and a cache of words, others by the steps of the
 * pipeline. */
#include "base/files/hash.h"
#include "base/mem.h"
#include "text/pipeline/pipeline.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/invalid_bytes.h"
#include "text/unicode/scan.h"
#include "text/unicode/unicode.h"

#include <string.h>

/* Pieces seen before, with their ids: each has one place, which keeps the most recent one. An entry
 * is a cache line, and the table fits in a core's second-level cache. */
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
    char *name;     /* [2 * longest]: workspace to spell a piece */
    bool specials;  /* names of special tokens in the text are those tokens */
    bp_added own;   /* a plain tokenizer's special tokens, once they are looked for */
    bp_sections raw, normalized;
    bp_regex_work *regex;
    bp_buffer norm[2];
    bp_pre_work pre;
    bp_piece_work pieces;
    uint32_t hidden; /* replacement of the current text's invalid bytes; 0 if it has none */
    bp_buffer hidden_text;
    bp_buffer letters;            /* of the bytes of a piece */
    bp_hidden_blocks *vocabulary; /* blocks that tokens have; NULL: not looked for yet */
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
    encoder->regex = encoder->pre.regex = bp_regex_work_new();
    *out = encoder;
    return BP_OK;
}

void bp_encoder_find_specials(bp_encoder *encoder, bool find)
{
    static const bp_normalizer none;

    if (find && !encoder->tokenizer->pipeline && !encoder->own.tokens)
        BP_CHECK(bp_added_read(&encoder->own, encoder->tokenizer->added, &none, "") == BP_OK);
    encoder->specials = find;
}

void bp_encoder_free(bp_encoder **encoder)
{
    if (!*encoder)
        return;
    bp_bpe_scratch_clear(&(*encoder)->scratch);
    bp_added_clear(&(*encoder)->own);
    bp_sections_clear(&(*encoder)->raw);
    bp_sections_clear(&(*encoder)->normalized);
    bp_regex_work_free(&(*encoder)->regex);
    bp_buffer_clear(&(*encoder)->norm[0]);
    bp_buffer_clear(&(*encoder)->norm[1]);
    bp_pre_work_clear(&(*encoder)->pre);
    bp_piece_work_clear(&(*encoder)->pieces);
    bp_buffer_clear(&(*encoder)->hidden_text);
    bp_buffer_clear(&(*encoder)->letters);
    bp_free((*encoder)->vocabulary);
    bp_free((*encoder)->cache);
    bp_free((*encoder)->name);
    bp_free(*encoder);
    *encoder = NULL;
}

/* ---- pieces ---- */

/* The id of a piece that is a token as it is; -1 if it is not one, or a special one. */
static int64_t whole_token(const bp_encoder *encoder, const uint8_t *piece, size_t bytes)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;
    int64_t id;

    if (bytes > encoder->longest)
        return -1;
    if (tokenizer->pipeline && !tokenizer->pipeline->pre.byte_level)
        return bp_trie_whole(&tokenizer->pipeline->pieces.whole, piece, bytes);
    id = bp_tokenizer_id(tokenizer, encoder->name, bp_name_of_bytes(encoder->name, piece, bytes));
    return id >= 0 && tokenizer->names.entries[id].value == 0 ? id : -1;
}

static void append_id(bp_ids *ids, int64_t id)
{
    bp_ids_reserve(ids, 1);
    ids->data[ids->count++] = (uint32_t)id;
}

/* A piece in the letters of its bytes: of names with a prefix or a suffix (CLIP's). */
static bp_err encode_spelled(bp_encoder *encoder, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;

    encoder->letters.bytes = 0;
    for (size_t k = 0; k < bytes; k++) {
        uint8_t letter[4];

        bp_buffer_add(&encoder->letters, letter, bp_utf8_encode(letter, bp_byte_letter(piece[k])));
    }
    return bp_bpe_characters(&tokenizer->pipeline->pieces, &tokenizer->merges,
                             (const uint8_t *)encoder->letters.data, encoder->letters.bytes,
                             &encoder->pieces, &encoder->scratch, ids);
}

static bp_err encode_bpe_piece(bp_encoder *encoder, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;
    const bp_pipeline *pipeline = tokenizer->pipeline;
    int64_t id = tokenizer->ignore_merges ? whole_token(encoder, piece, bytes) : -1;

    if (id >= 0) {
        append_id(ids, id);
        return BP_OK;
    }
    if (pipeline && pipeline->pre.byte_level &&
        (pipeline->pieces.prefix || pipeline->pieces.suffix))
        return encode_spelled(encoder, piece, bytes, ids);
    if (!pipeline || pipeline->pre.byte_level)
        return bp_bpe_piece(&tokenizer->merges, piece, bytes, &encoder->scratch, ids);
    return bp_bpe_characters(&pipeline->pieces, &tokenizer->merges, piece, bytes, &encoder->pieces,
                             &encoder->scratch, ids);
}

static bp_err encode_new_piece(bp_encoder *encoder, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;
    const bp_pieces *pieces;
    int64_t id;

    if (tokenizer->kind == BP_KIND_BPE)
        return encode_bpe_piece(encoder, piece, bytes, ids);
    pieces = &tokenizer->pipeline->pieces;
    switch (tokenizer->kind) {
    case BP_KIND_UNIGRAM:
        return bp_unigram_piece(pieces, piece, bytes, &encoder->pieces, ids);
    case BP_KIND_WORDPIECE:
        bp_wordpiece_piece(pieces, piece, bytes, ids);
        return BP_OK;
    default:
        id = bp_trie_whole(&pieces->whole, piece, bytes);
        append_id(ids, id < 0 ? pieces->unknown : id);
        return BP_OK;
    }
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

/* Pieces of text that goes on after a piece boundary. Without the pattern a run of valid text is
 * one piece. */
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

/* ---- steps ---- */

/* Only a scanner, for a model that sees bytes: no list of pieces is made. */
static const bp_pre_step *only_scanner(const bp_pipeline *pipeline)
{
    const bp_pre_step *step = pipeline->pre.count == 1 ? &pipeline->pre.steps[0] : NULL;

    return step && pipeline->pre.byte_level && pipeline->normalizer.count == 0 &&
                   (step->kind == BP_PRE_GPT2 || step->kind == BP_PRE_LLAMA)
               ? step
               : NULL;
}

static bp_err encode_scanned(bp_encoder *encoder, const bp_pre_step *step, const uint8_t *text,
                             size_t bytes, bp_ids *ids)
{
    bp_err err = BP_OK;

    for (size_t at = 0, length; at < bytes && err == BP_OK; at += length) {
        length = step->kind == BP_PRE_GPT2
                     ? bp_scan_piece(encoder->classes, text + at, bytes - at)
                     : bp_scan_llama(encoder->classes, text + at, bytes - at, step->digits);
        err = encode_piece(encoder, text + at, length, ids);
    }
    return err;
}

/* A piece with invalid bytes is never one of the cache. A model of bytes has each of them as a
 * piece of its own; to another it is an unknown character. */
static bp_err encode_any(bp_encoder *encoder, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    size_t stretch = bp_hidden_before(encoder->hidden, piece, bytes);
    bp_err err = BP_OK;

    if (stretch == bytes)
        return encode_piece(encoder, piece, bytes, ids);
    if (!encoder->tokenizer->pipeline->pre.byte_level)
        return encode_new_piece(encoder, piece, bytes, ids);
    for (size_t at = 0; at < bytes && err == BP_OK;) {
        stretch = bp_hidden_before(encoder->hidden, piece + at, bytes - at);
        if (stretch > 0) {
            err = encode_piece(encoder, piece + at, stretch, ids);
            at += stretch;
        } else {
            uint8_t byte = bp_hidden_byte(piece + at);

            err = encode_piece(encoder, &byte, 1, ids);
            at += 4;
        }
    }
    return err;
}

/* A piece of the pre-tokenizer, cut further where this changes no ids. */
static bp_err encode_cut(bp_encoder *encoder, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    const size_t length = strlen(BP_SPACE_MARK);
    size_t start = 0, from = 0;
    bp_err err = BP_OK;

    while (encoder->tokenizer->pipeline->cuts_at_marks && err == BP_OK) {
        const uint8_t *mark = memmem(piece + from, bytes - from, BP_SPACE_MARK, length);
        size_t at = !mark ? bytes : (size_t)(mark - piece);

        if (!mark)
            break;
        if (at > from) { /* not right after another mark */
            err = encode_any(encoder, piece + start, at - start, ids);
            start = at;
        }
        from = at + length;
    }
    return err == BP_OK && start < bytes ? encode_any(encoder, piece + start, bytes - start, ids)
                                         : err;
}

static bp_err encode_normalized(bp_encoder *encoder, const char *text, size_t bytes, bool first,
                                bp_ids *ids)
{
    const bp_spans *pieces;
    bp_err err = bp_pretokenize(&encoder->tokenizer->pipeline->pre, &encoder->pre, first, &text,
                                bytes, &pieces);

    for (int64_t k = 0; err == BP_OK && k < pieces->count; k++)
        err = encode_cut(encoder, (const uint8_t *)text + pieces->data[k].start,
                         pieces->data[k].bytes, ids);
    return err;
}

/* Valid text without tokens in it. */
static bp_err encode_stretch(bp_encoder *encoder, const char *text, size_t bytes, bool first,
                             bp_ids *ids)
{
    const bp_pipeline *pipeline = encoder->tokenizer->pipeline;
    bp_sections *sections = &encoder->normalized;
    bp_err err =
        bp_normalize(&pipeline->normalizer, encoder->regex, encoder->norm, &text, &bytes, &first);

    if (err != BP_OK)
        return err;
    bp_added_cut(&pipeline->added, &pipeline->added.normalized, encoder->specials, text, bytes,
                 sections);
    for (int64_t k = 0; k < sections->spans.count && err == BP_OK; k++)
        if (sections->ids[k] >= 0)
            append_id(ids, sections->ids[k]);
        else
            err = encode_normalized(encoder, text + sections->spans.data[k].start,
                                    sections->spans.data[k].bytes, first && k == 0, ids);
    return err;
}

/* Invalid bytes become characters, so that the text is normalized and cut once, as a whole. */
static bp_err hide_bytes(bp_encoder *encoder, const char **text, size_t *bytes)
{
    const bp_strmap *names = &encoder->tokenizer->names;
    bp_err err;

    encoder->hidden = encoder->pre.hidden = encoder->pieces.hidden = 0;
    if (bp_is_valid(*text, *bytes))
        return BP_OK;
    if (!encoder->vocabulary) {
        encoder->vocabulary = bp_alloc("text.encoder", 1, sizeof *encoder->vocabulary);
        for (int64_t id = 0; id < names->count; id++)
            bp_hidden_mark(encoder->vocabulary, bp_strmap_key(names, id), names->entries[id].bytes);
    }
    encoder->hidden_text.bytes = 0;
    err =
        bp_hidden_hide(&encoder->hidden, &encoder->hidden_text, *text, *bytes, encoder->vocabulary);
    if (err != BP_OK)
        return err;
    encoder->pre.hidden = encoder->pieces.hidden = encoder->hidden;
    *text = encoder->hidden_text.data;
    *bytes = encoder->hidden_text.bytes;
    return BP_OK;
}

static bp_err encode_steps(bp_encoder *encoder, const char *text, size_t bytes, bool first,
                           bp_ids *ids)
{
    const bp_pipeline *pipeline = encoder->tokenizer->pipeline;
    const bp_added *added = &pipeline->added;
    bool cuts = encoder->specials ? added->raw.any || added->normalized.any
                                  : added->raw.any_plain || added->normalized.any_plain;
    const bp_sections *sections = &encoder->raw;
    bp_err err;

    if (!cuts && only_scanner(pipeline))
        return encode_scanned(encoder, only_scanner(pipeline), (const uint8_t *)text, bytes, ids);
    bp_regex_work_begin(encoder->regex, bytes);
    err = hide_bytes(encoder, &text, &bytes);
    if (err != BP_OK)
        return err;
    bp_added_cut(added, &added->raw, encoder->specials, text, bytes, &encoder->raw);
    for (int64_t k = 0; k < sections->spans.count && err == BP_OK; k++)
        if (sections->ids[k] >= 0)
            append_id(ids, sections->ids[k]);
        else
            err = encode_stretch(encoder, text + sections->spans.data[k].start,
                                 sections->spans.data[k].bytes, first && k == 0, ids);
    return err;
}

/* ---- words and characters ---- */

static void append_named(bp_encoder *encoder, const uint8_t *name, size_t bytes, bp_ids *ids)
{
    const bp_tokenizer *tokenizer = encoder->tokenizer;
    int64_t id = bp_tokenizer_id(tokenizer, (const char *)name, bytes);

    bp_ids_reserve(ids, 1);
    if (id < 0 || tokenizer->names.entries[id].value != 0) /* text that looks special is text */
        id = tokenizer->roles[BP_ROLE_UNKNOWN];
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

        length = length == 0 ? 1 : length; /* an invalid byte is not a token's name: <unk> */
        append_named(encoder, text + at, length, ids);
        at += length;
    }
}

static bp_err encode_plain(bp_encoder *encoder, const uint8_t *text, size_t bytes, bool first,
                           bp_ids *ids)
{
    if (encoder->tokenizer->kind == BP_KIND_BPE)
        return encode_bpe(encoder, text, bytes, first, ids);
    if (encoder->tokenizer->kind == BP_KIND_WORD)
        encode_words(encoder, text, bytes, ids);
    else
        encode_characters(encoder, text, bytes, ids);
    return BP_OK;
}

bp_err bp_encode_piece(bp_encoder *encoder, const char *text, size_t bytes, bool first, bp_ids *ids)
{
    const bp_sections *sections = &encoder->raw;
    bp_err err = BP_OK;

    if (encoder->tokenizer->pipeline)
        return encode_steps(encoder, text, bytes, first, ids);
    if (!encoder->specials)
        return encode_plain(encoder, (const uint8_t *)text, bytes, first, ids);
    bp_added_cut(&encoder->own, &encoder->own.normalized, true, text, bytes, &encoder->raw);
    for (int64_t k = 0; k < sections->spans.count && err == BP_OK; k++)
        if (sections->ids[k] >= 0)
            append_id(ids, sections->ids[k]);
        else
            err = encode_plain(encoder, (const uint8_t *)text + sections->spans.data[k].start,
                               sections->spans.data[k].bytes, first && k == 0, ids);
    return err;
}

bp_err bp_encode(bp_encoder *encoder, const char *text, size_t bytes, bp_ids *ids)
{
    return bp_encode_piece(encoder, text, bytes, true, ids);
}
