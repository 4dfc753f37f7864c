/* SentencePiece's compiled normalization (Darts-clone's double array), a step of normalizer.c. */
#include "base/mem.h"
#include "text/pipeline/charsmap_priv.h"
#include "text/unicode/unicode.h"

#include <openssl/evp.h>
#include <string.h>
#include <utf8proc.h>

#define WHOLE_BYTES 6 /* graphemes shorter than this are looked up whole */

struct bp_charsmap {
    uint8_t *blob;
    uint32_t *units; /* [unit_count] */
    size_t unit_count;
    const char *texts; /* [text_bytes], ends with a zero byte */
    size_t text_bytes;
};

/* ---- units: label 8 bits, a leaf 1 bit, the offset of the children; or a value ---- */

static bool has_leaf(uint32_t unit)
{
    return (unit >> 8 & 1) != 0;
}

static uint32_t label_of(uint32_t unit)
{
    return unit & (1u << 31 | 0xFF);
}

static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & 1u << 9) >> 6);
}

static uint32_t value_of(uint32_t unit)
{
    return unit & ~(1u << 31);
}

/* The text of the shortest key that `text` begins with; NULL if none. All reachable units were
 * checked. */
static const char *find(const bp_charsmap *map, const uint8_t *text, size_t bytes)
{
    uint32_t at = offset_of(map->units[0]);

    for (size_t k = 0; k < bytes; k++) {
        uint32_t unit;

        at ^= text[k];
        unit = map->units[at];
        if (label_of(unit) != text[k])
            return NULL;
        at ^= offset_of(unit);
        if (has_leaf(unit))
            return map->texts + value_of(map->units[at]);
    }
    return NULL;
}

/* ---- checking ---- */

typedef struct walk {
    const bp_charsmap *map;
    uint32_t *nodes; /* where children are: a stack */
    size_t count;
    uint8_t *seen; /* [unit_count] */
} walk;

/* Replacement texts must be UTF-8, as all later steps assume. */
static bool check_texts(const bp_charsmap *map)
{
    for (size_t at = 0; at < map->text_bytes;) {
        uint32_t code_point;
        size_t length =
            bp_utf8_decode((const uint8_t *)map->texts + at, map->text_bytes - at, &code_point);

        if (length == 0)
            return false;
        at += length;
    }
    return true;
}

/* A text that begins at a character. */
static bool is_text(const bp_charsmap *map, uint32_t unit)
{
    uint32_t value = value_of(unit);

    return value < map->text_bytes && ((uint8_t)map->texts[value] & 0xC0) != 0x80;
}

/* The 256 units that bytes lead to from here. */
static bool check_children(walk *self, uint32_t at)
{
    const bp_charsmap *map = self->map;

    if ((at | 0xFF) >= map->unit_count)
        return false;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t unit = map->units[at ^ byte], next;

        if (label_of(unit) != byte)
            continue;
        next = (at ^ byte) ^ offset_of(unit);
        if (next >= map->unit_count || (has_leaf(unit) && !is_text(map, map->units[next])))
            return false;
        if (self->seen[next])
            continue;
        self->seen[next] = 1;
        self->nodes[self->count++] = next;
    }
    return true;
}

static bool check_units(const bp_charsmap *map)
{
    walk self = {.map = map,
                 .nodes = bp_alloc("text.charsmap", (int64_t)map->unit_count, sizeof(uint32_t)),
                 .seen = bp_alloc("text.charsmap", (int64_t)map->unit_count, 1)};
    uint32_t root = offset_of(map->units[0]);
    bool ok = root < map->unit_count;

    if (ok) {
        self.seen[root] = 1;
        self.nodes[self.count++] = root;
    }
    while (ok && self.count > 0)
        ok = check_children(&self, self.nodes[--self.count]);
    bp_free(self.nodes);
    bp_free(self.seen);
    return ok;
}

static bool take_parts(bp_charsmap *map, size_t bytes)
{
    uint32_t trie_bytes;

    if (bytes < sizeof trie_bytes)
        return false;
    trie_bytes = (uint32_t)map->blob[0] | (uint32_t)map->blob[1] << 8 |
                 (uint32_t)map->blob[2] << 16 | (uint32_t)map->blob[3] << 24;
    if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > bytes - 4)
        return false;
    map->unit_count = trie_bytes / 4;
    map->units = bp_alloc("text.charsmap", (int64_t)map->unit_count, sizeof *map->units);
    for (size_t k = 0; k < map->unit_count; k++) {
        const uint8_t *p = map->blob + 4 + 4 * k;

        map->units[k] =
            (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    map->texts = (const char *)map->blob + 4 + trie_bytes;
    map->text_bytes = bytes - 4 - trie_bytes;
    return map->text_bytes > 0 && map->texts[map->text_bytes - 1] == '\0' && check_texts(map) &&
           check_units(map);
}

bp_err bp_charsmap_new(bp_charsmap **out, const char *base64, const char *name)
{
    size_t length = strlen(base64);
    bp_charsmap *map = bp_alloc("text.charsmap", 1, sizeof *map);
    int bytes;
    bool ok;

    *out = NULL;
    map->blob = bp_alloc("text.charsmap", (int64_t)length + 4, 1);
    bytes = length % 4 != 0 || length > INT32_MAX
                ? -1
                : EVP_DecodeBlock(map->blob, (const uint8_t *)base64, (int)length);
    for (size_t k = 0; k < 2 && bytes > 0 && base64[length - 1 - k] == '='; k++)
        bytes--; /* it counts the padding as zero bytes */
    ok = bytes > 0 && take_parts(map, (size_t)bytes);
    if (!ok) {
        bp_charsmap_free(&map);
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_charsmap",
                       "\"precompiled_charsmap\" is %s: at %s",
                       bytes <= 0 ? "no base64" : "no map of characters, or a damaged one", name);
    }
    *out = map;
    return BP_OK;
}

void bp_charsmap_free(bp_charsmap **map)
{
    if (!*map)
        return;
    bp_free((*map)->blob);
    bp_free((*map)->units);
    bp_free(*map);
    *map = NULL;
}

/* ---- text ---- */

/* The grapheme that text begins with. */
static size_t grapheme_bytes(const uint8_t *text, size_t bytes)
{
    uint32_t left = 0, right = 0;
    utf8proc_int32_t state = 0;
    size_t at = bp_utf8_decode(text, bytes, &left);

    while (at < bytes) {
        size_t length;

        if (left < 0x80 && text[at] < 0x80 && left != '\r')
            return at;
        length = bp_utf8_decode(text + at, bytes - at, &right);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)left, (utf8proc_int32_t)right,
                                             &state))
            return at;
        left = right;
        at += length;
    }
    return at;
}

static void add_characters(const bp_charsmap *map, const uint8_t *text, size_t bytes,
                           bp_buffer *out)
{
    for (size_t at = 0; at < bytes;) {
        uint32_t code_point;
        size_t length = bp_utf8_decode(text + at, bytes - at, &code_point);
        const char *found = find(map, text + at, length);

        if (found)
            bp_buffer_add(out, found, strlen(found));
        else
            bp_buffer_add(out, text + at, length);
        at += length;
    }
}

void bp_charsmap_apply(const bp_charsmap *map, const char *text, size_t bytes, bp_buffer *out)
{
    const uint8_t *p = (const uint8_t *)text;

    for (size_t at = 0; at < bytes;) {
        size_t length = grapheme_bytes(p + at, bytes - at);
        const char *found = length < WHOLE_BYTES ? find(map, p + at, length) : NULL;

        if (found)
            bp_buffer_add(out, found, strlen(found));
        else
            add_characters(map, p + at, length, out);
        at += length;
    }
}

/* The text of the longest key that `text` begins with, of *length bytes; NULL if none. */
static const char *find_longest(const bp_charsmap *map, const uint8_t *text, size_t bytes,
                                size_t *length)
{
    uint32_t at = offset_of(map->units[0]);
    const char *found = NULL;

    for (size_t k = 0; k < bytes; k++) {
        uint32_t unit;

        at ^= text[k];
        unit = map->units[at];
        if (label_of(unit) != text[k])
            break;
        at ^= offset_of(unit);
        if (has_leaf(unit)) {
            found = map->texts + value_of(map->units[at]);
            *length = k + 1;
        }
    }
    return found;
}

static size_t longest_kept(const bp_trie *keep, const uint8_t *text, size_t bytes)
{
    uint32_t node = BP_TRIE_ROOT;
    size_t length = 0;

    for (size_t k = 0; keep->slots && k < bytes; k++) {
        node = bp_trie_step(keep, node, text[k]);
        if (node == BP_TRIE_NONE)
            break;
        if (bp_trie_value(keep, node) >= 0)
            length = k + 1;
    }
    return length;
}

void bp_charsmap_apply_longest(const bp_charsmap *map, const bp_trie *keep, const char *text,
                               size_t bytes, bp_buffer *out)
{
    const uint8_t *p = (const uint8_t *)text;
    uint32_t c;

    for (size_t at = 0, length; at < bytes; at += length) {
        const char *found = NULL;

        length = longest_kept(keep, p + at, bytes - at);
        if (length == 0)
            found = find_longest(map, p + at, bytes - at, &length);
        if (found) {
            bp_buffer_add(out, found, strlen(found));
            continue;
        }
        if (length == 0)
            length = bp_utf8_decode(p + at, bytes - at, &c);
        bp_buffer_add(out, text + at, length);
    }
}
