/* Models of tokenizer.json, run: the last step of a pipeline, one piece to ids. */
#include "text/pipeline/pieces.h"
#include "base/mem.h"
#include "text/unicode/invalid_bytes.h"
#include "text/unicode/unicode.h"

#include <string.h>

void bp_pieces_clear(bp_pieces *pieces)
{
    bp_trie_clear(&pieces->whole);
    bp_trie_clear(&pieces->inner);
    bp_trie_clear(&pieces->symbols);
    bp_free(pieces->scores);
    bp_free(pieces->prefix);
    bp_free(pieces->suffix);
    *pieces = (bp_pieces){0};
}

void bp_piece_work_clear(bp_piece_work *work)
{
    bp_free(work->best);
    bp_free(work->symbols);
    bp_buffer_clear(&work->name);
    *work = (bp_piece_work){0};
}

static void append(bp_ids *ids, int64_t id)
{
    bp_ids_reserve(ids, 1);
    ids->data[ids->count++] = (uint32_t)id;
}

/* The bytes of the character at p: its own, or the hidden byte. */
static size_t bytes_at(const bp_piece_work *work, const uint8_t *p, size_t bytes, uint8_t out[4])
{
    uint32_t c;
    size_t length = bp_utf8_decode(p, bytes, &c);

    if (bp_is_hidden(work->hidden, p, bytes)) {
        out[0] = bp_hidden_byte(p);
        return 1;
    }
    memcpy(out, p, length);
    return length;
}

static bool has_bytes(const bp_pieces *pieces, const bp_piece_work *work, const uint8_t *piece,
                      size_t bytes)
{
    uint32_t c;

    for (size_t at = 0; at < bytes && pieces->byte_fallback;
         at += bp_utf8_decode(piece + at, bytes - at, &c)) {
        uint8_t own[4];
        size_t count = bytes_at(work, piece + at, bytes - at, own);

        for (size_t k = 0; k < count; k++)
            if (pieces->byte_ids[own[k]] < 0)
                return false;
    }
    return pieces->byte_fallback;
}

/* Text without a token of its own: its bytes' tokens, or the unknown one, or nothing. */
static void append_unknown_text(const bp_pieces *pieces, const bp_piece_work *work,
                                const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    uint32_t c;

    if (!has_bytes(pieces, work, piece, bytes)) {
        if (pieces->unknown >= 0)
            append(ids, pieces->unknown);
        return;
    }
    for (size_t at = 0; at < bytes; at += bp_utf8_decode(piece + at, bytes - at, &c)) {
        uint8_t own[4];
        size_t count = bytes_at(work, piece + at, bytes - at, own);

        for (size_t k = 0; k < count; k++)
            append(ids, pieces->byte_ids[own[k]]);
    }
}

int64_t bp_trie_whole(const bp_trie *trie, const uint8_t *text, size_t bytes)
{
    uint32_t node = BP_TRIE_ROOT;

    if (!trie->slots)
        return -1;
    for (size_t k = 0; k < bytes && node != BP_TRIE_NONE; k++)
        node = bp_trie_step(trie, node, text[k]);
    return node == BP_TRIE_NONE ? -1 : bp_trie_value(trie, node);
}

/* ---- Unigram ---- */

typedef struct bp_best { /* of all splits that end at a byte */
    double score;
    uint32_t start; /* of its last piece; NOWHERE if none ends here */
    uint32_t id;
} bp_best;

#define NOWHERE UINT32_MAX

static bp_best *take_best(bp_piece_work *work, size_t bytes)
{
    if (work->capacity < (int64_t)bytes + 1) {
        bp_free(work->best);
        work->capacity = (int64_t)bytes + 1 < 1024 ? 1024 : (int64_t)bytes + 1;
        work->best = bp_alloc("text.unigram", work->capacity, sizeof *work->best);
    }
    for (size_t k = 0; k <= bytes; k++)
        work->best[k].start = NOWHERE;
    work->best[0].score = 0;
    return work->best;
}

static inline void offer(bp_best *best, size_t start, double score, int64_t id)
{
    if (best->start == NOWHERE || score > best->score)
        *best = (bp_best){score, (uint32_t)start, (uint32_t)id};
}

/* All pieces that begin at `at`. */
static void offer_pieces(const bp_pieces *pieces, const uint8_t *piece, size_t bytes, size_t at,
                         bp_best *best)
{
    double here = best[at].score;
    uint32_t node = BP_TRIE_ROOT, code_point;
    size_t length = bp_utf8_decode(piece + at, bytes - at, &code_point);
    bool single = false;

    for (size_t k = at; k < bytes; k++) {
        int64_t id;

        node = bp_trie_step(&pieces->whole, node, piece[k]);
        if (node == BP_TRIE_NONE)
            break;
        id = bp_trie_value(&pieces->whole, node);
        if (id < 0)
            continue;
        offer(&best[k + 1], at, here + pieces->scores[id], id);
        single = single || k + 1 == at + length;
    }
    if (!single)
        offer(&best[at + length], at, here + pieces->unknown_score, pieces->unknown);
}

/* A run of unknown characters may be spelled as a piece is, whose score was lower. */
static void append_unknown(const bp_pieces *pieces, const bp_piece_work *work, const uint8_t *text,
                           size_t bytes, bp_ids *ids)
{
    int64_t id = bp_trie_whole(&pieces->whole, text, bytes);

    if (id >= 0)
        append(ids, id);
    else
        append_unknown_text(pieces, work, text, bytes, ids);
}

static uint32_t *take_symbols(bp_piece_work *work, size_t bytes)
{
    if (work->symbol_capacity < (int64_t)bytes) {
        bp_free(work->symbols);
        work->symbol_capacity = (int64_t)bytes < 256 ? 256 : (int64_t)bytes;
        work->symbols = bp_alloc("text.symbols", work->symbol_capacity, sizeof *work->symbols);
    }
    return work->symbols;
}

static void append_path(const bp_pieces *pieces, const uint8_t *piece, size_t bytes,
                        bp_piece_work *work, bp_ids *ids)
{
    const bp_best *best = work->best;
    uint32_t *ends = take_symbols(work, bytes); /* of the best split's pieces, the last first */
    int64_t count = 0;

    for (size_t at = bytes; at > 0; at = best[at].start)
        ends[count++] = (uint32_t)at;
    for (size_t at = 0; count > 0;) {
        size_t end = ends[--count];

        if (best[end].id != pieces->unknown) {
            append(ids, best[end].id);
        } else {
            while (pieces->fuse_unknown && count > 0 && best[ends[count - 1]].id == pieces->unknown)
                end = ends[--count];
            append_unknown(pieces, work, piece + at, end - at, ids);
        }
        at = end;
    }
}

bp_err bp_unigram_piece(const bp_pieces *pieces, const uint8_t *piece, size_t bytes,
                        bp_piece_work *work, bp_ids *ids)
{
    bp_best *best;
    uint32_t code_point;

    if (bytes >= NOWHERE)
        return BP_FAIL(BP_ERR_SYSTEM, "text.too_long", "a piece of text is longer than 4 GiB");
    best = take_best(work, bytes);
    for (size_t at = 0; at < bytes; at += bp_utf8_decode(piece + at, bytes - at, &code_point))
        offer_pieces(pieces, piece, bytes, at, best);
    append_path(pieces, piece, bytes, work, ids);
    return BP_OK;
}

/* ---- WordPiece ---- */

static int64_t count_characters(const uint8_t *text, size_t bytes)
{
    int64_t count = 0;

    for (size_t k = 0; k < bytes; k++)
        count += (text[k] & 0xC0) != 0x80;
    return count;
}

/* The longest key at text[0]: its bytes, 0 if none. */
static size_t longest(const bp_trie *trie, const uint8_t *text, size_t bytes, int64_t *id)
{
    uint32_t node = BP_TRIE_ROOT;
    size_t found = 0;

    for (size_t k = 0; k < bytes; k++) {
        node = bp_trie_step(trie, node, text[k]);
        if (node == BP_TRIE_NONE)
            break;
        if (bp_trie_value(trie, node) >= 0) {
            *id = bp_trie_value(trie, node);
            found = k + 1;
        }
    }
    return found;
}

void bp_wordpiece_piece(const bp_pieces *pieces, const uint8_t *piece, size_t bytes, bp_ids *ids)
{
    int64_t before = ids->count, id = 0;

    if (count_characters(piece, bytes) > pieces->most_characters) {
        append(ids, pieces->unknown);
        return;
    }
    for (size_t at = 0, length; at < bytes; at += length) {
        length = longest(at == 0 ? &pieces->whole : &pieces->inner, piece + at, bytes - at, &id);
        if (length == 0) { /* then the whole word is unknown */
            ids->count = before;
            id = pieces->unknown;
            length = bytes - at;
        }
        append(ids, id);
    }
}

/* ---- BPE of characters ---- */

/* The character piece[at, at + length) as the vocabulary spells it, in work->name or as it is. */
static const uint8_t *spell_character(const bp_pieces *pieces, bp_piece_work *work,
                                      const uint8_t *piece, size_t bytes, size_t at, size_t *length)
{
    bool has_prefix = pieces->prefix && at > 0;
    bool has_suffix = pieces->suffix && at + *length == bytes;

    if (!has_prefix && !has_suffix)
        return piece + at;
    work->name.bytes = 0;
    if (has_prefix)
        bp_buffer_add(&work->name, pieces->prefix, strlen(pieces->prefix));
    bp_buffer_add(&work->name, piece + at, *length);
    if (has_suffix)
        bp_buffer_add(&work->name, pieces->suffix, strlen(pieces->suffix));
    *length = work->name.bytes;
    return (const uint8_t *)work->name.data;
}

/* Append the tokens of its bytes to symbols[*count]. */
static void add_bytes(const bp_pieces *pieces, const bp_piece_work *work, const uint8_t *name,
                      size_t bytes, uint32_t *symbols, size_t *count)
{
    uint32_t c;

    for (size_t at = 0; at < bytes; at += bp_utf8_decode(name + at, bytes - at, &c)) {
        uint8_t own[4];
        size_t own_count = bytes_at(work, name + at, bytes - at, own);

        for (size_t k = 0; k < own_count; k++)
            symbols[(*count)++] = (uint32_t)pieces->byte_ids[own[k]];
    }
}

/* Bytes of what merging begins with: the longest piece that is never cut, or a character. */
static size_t symbol_at(const bp_pieces *pieces, const uint8_t *text, size_t bytes)
{
    uint32_t c;
    int64_t id;
    size_t length = pieces->symbols.slots ? longest(&pieces->symbols, text, bytes, &id) : 0;

    return length > 0 ? length : bp_utf8_decode(text, bytes, &c);
}

/* An unknown character's token waits for the next known character: byte tokens come before it, as
 * in Hugging Face's library. */
bp_err bp_bpe_characters(const bp_pieces *pieces, const bp_merges *merges, const uint8_t *piece,
                         size_t bytes, bp_piece_work *work, bp_bpe_scratch *scratch, bp_ids *ids)
{
    size_t affixes = (pieces->prefix ? strlen(pieces->prefix) : 0) +
                     (pieces->suffix ? strlen(pieces->suffix) : 0);
    uint32_t *symbols = take_symbols(work, bytes * (1 + affixes));
    uint32_t unknown = (uint32_t)pieces->unknown;
    size_t count = 0, length;
    bool waits = false;

    for (size_t at = 0; at < bytes; at += length) {
        const uint8_t *name;
        size_t name_bytes = length = symbol_at(pieces, piece + at, bytes - at);
        int64_t id;

        name = spell_character(pieces, work, piece, bytes, at, &name_bytes);
        id = bp_trie_whole(&pieces->whole, name, name_bytes);
        if (id < 0 && has_bytes(pieces, work, name, name_bytes)) {
            add_bytes(pieces, work, name, name_bytes, symbols, &count);
            continue;
        }
        if (waits && (id >= 0 || !pieces->fuse_unknown))
            symbols[count++] = unknown;
        waits = id < 0 && pieces->unknown >= 0;
        if (id >= 0)
            symbols[count++] = (uint32_t)id;
    }
    if (waits)
        symbols[count++] = unknown;
    return bp_bpe_symbols(merges, symbols, count, scratch, ids);
}
