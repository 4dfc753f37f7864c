/* A tokenizer: its vocabulary and roles, ids to text. */
#include "text/tokenizer/tokenizer.h"
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/pipeline/pipeline.h"
#include "text/tokenizer/meaning_priv.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"

#include <string.h>

/* ---- finishing one ---- */

/* Plain ones have one spelling: the hash of their text is that of their meaning. */
bp_err bp_tokenizer_make_hash(bp_tokenizer *tokenizer, const json_t *root)
{
    char *text = bp_tokenizer_text(tokenizer), of_text[BP_SHA256_HEX];
    bp_err err;

    if (!text)
        return bp_fail_memory("the text of a tokenizer", 1, 0);
    bp_sha256_of(text, strlen(text), of_text);
    bp_free(text);
    if (!root) {
        memcpy(tokenizer->hash, of_text, sizeof of_text);
        return BP_OK;
    }
    err = bp_meaning_hash(tokenizer->hash, root);
    if (err == BP_OK)
        bp_meaning_remember(of_text, tokenizer->hash);
    return err;
}

bp_err bp_tokenizer_finish(bp_tokenizer *tokenizer, bp_merge *merges, int64_t count,
                           const char *name)
{
    bp_err err = BP_OK;

    if (tokenizer->kind == BP_KIND_BPE) {
        err = bp_tokenizer_take_merges(tokenizer, merges, count, true, name);
    } else {
        int64_t unk = bp_tokenizer_id(tokenizer, BP_UNK_TOKEN, strlen(BP_UNK_TOKEN));

        tokenizer->roles[BP_ROLE_UNKNOWN] = unk;
        if (unk < 0)
            err = BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_special",
                          "the vocabulary lacks \"" BP_UNK_TOKEN "\": at %s", name);
    }
    bp_tokenizer_name_roles(tokenizer);
    return err == BP_OK ? bp_tokenizer_make_hash(tokenizer, NULL) : err;
}

/* ---- asking ---- */

int64_t bp_tokenizer_size(const bp_tokenizer *tokenizer)
{
    return tokenizer->names.count;
}

const char *bp_tokenizer_loses(const bp_tokenizer *tokenizer)
{
    return tokenizer->pipeline ? bp_normalizer_loses(&tokenizer->pipeline->normalizer) : NULL;
}

bool bp_tokenizer_keeps_bytes(const bp_tokenizer *tokenizer)
{
    const bp_pipeline *pipeline = tokenizer->pipeline;
    bool keeps = !pipeline || pipeline->pre.byte_level || pipeline->pieces.byte_fallback;

    for (int byte = 0x80; byte < 256 && pipeline && !pipeline->pre.byte_level; byte++)
        keeps = keeps && pipeline->pieces.byte_ids[byte] >= 0;
    for (int k = 0; pipeline && k < pipeline->normalizer.count; k++) /* may take them */
        keeps = keeps && !pipeline->normalizer.steps[k].regex;
    for (int k = 0; pipeline && k < pipeline->pre.count; k++)
        keeps = keeps &&
                (!pipeline->pre.steps[k].regex || pipeline->pre.steps[k].behavior != BP_REMOVED);
    return keeps && (pipeline || tokenizer->kind == BP_KIND_BPE);
}

const char *bp_tokenizer_word_end(const bp_tokenizer *tokenizer)
{
    return tokenizer->pipeline ? tokenizer->pipeline->pieces.suffix : NULL;
}

const char *bp_tokenizer_kind(const bp_tokenizer *tokenizer)
{
    static const char *const names[] = {"bpe", "word", "char", "unigram", "wordpiece"};

    return names[tokenizer->kind];
}

bp_cut bp_tokenizer_cut(const bp_tokenizer *tokenizer)
{
    if (tokenizer->pipeline)
        return bp_pipeline_cut(tokenizer->pipeline);
    if (tokenizer->kind == BP_KIND_BPE)
        return tokenizer->use_regex ? BP_CUT_PATTERN : BP_CUT_NEVER;
    return tokenizer->kind == BP_KIND_CHAR ? BP_CUT_CHAR : BP_CUT_SPACE;
}

/* Can one of them, with the text that it takes around it, span White_Space? */
static bool special_has_space(const bp_tokenizer *tokenizer)
{
    const bp_pipeline *pipeline = tokenizer->pipeline;

    for (int k = 0; pipeline && k < pipeline->added.count; k++)
        if (pipeline->added.tokens[k].lstrip || pipeline->added.tokens[k].rstrip)
            return true;
    for (int64_t id = 0; id < tokenizer->names.count; id++) {
        const uint8_t *name = (const uint8_t *)bp_strmap_key(&tokenizer->names, id);
        size_t bytes = tokenizer->names.entries[id].bytes, at = 0;

        while (tokenizer->names.entries[id].value == 1 && at < bytes)
            if (bp_space_before(name, ++at) > 0)
                return true;
    }
    return pipeline && pipeline->normalizer.count > 0 && pipeline->added.normalized.any;
}

bp_cut bp_tokenizer_cut_specials(const bp_tokenizer *tokenizer)
{
    bp_cut cut = bp_tokenizer_cut(tokenizer);

    if (special_has_space(tokenizer))
        return BP_CUT_NEVER;
    return cut == BP_CUT_PATTERN ? BP_CUT_BLANK : cut == BP_CUT_CHAR ? BP_CUT_SPACE : cut;
}

size_t bp_tokenizer_longest(const bp_tokenizer *tokenizer)
{
    size_t longest = 0;

    for (int64_t id = 0; id < tokenizer->names.count; id++)
        if (tokenizer->names.entries[id].bytes > longest)
            longest = tokenizer->names.entries[id].bytes;
    return longest;
}

bool bp_tokenizer_was_framed(const bp_tokenizer *tokenizer)
{
    return tokenizer->framed;
}

const char *bp_tokenizer_hash(const bp_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

bp_err bp_tokenizer_save(const bp_tokenizer *tokenizer, const char *path)
{
    char *text = bp_tokenizer_text(tokenizer);
    bp_err err;

    if (!text)
        return bp_fail_memory("the text of a tokenizer", 1, 0);
    err = bp_file_write(path, text, strlen(text));
    bp_free(text);
    return err;
}

/* ---- back to text ---- */

static bool is_byte_level(const bp_tokenizer *tokenizer)
{
    return !tokenizer->pipeline || tokenizer->pipeline->pre.byte_level;
}

static bp_err fail_id(const bp_tokenizer *tokenizer, int64_t id)
{
    return BP_FAIL(BP_ERR_FORMAT, "vocabulary.unknown_id",
                   "token id %lld is beyond the vocabulary of %lld", (long long)id,
                   (long long)tokenizer->names.count);
}

/* `scratch` holds the bytes of any token. */
static bp_err decode_one(const bp_tokenizer *tokenizer, int64_t id, bool first, uint8_t *scratch,
                         bp_buffer *text)
{
    const bp_strmap_entry *entry;
    const char *name;
    int64_t count = -1;

    if (id < 0 || id >= tokenizer->names.count)
        return fail_id(tokenizer, id);
    entry = &tokenizer->names.entries[id];
    name = bp_strmap_key(&tokenizer->names, id);
    if (entry->value == BP_HOLE)
        return BP_OK;
    if (tokenizer->kind == BP_KIND_WORD && !first)
        bp_buffer_add(text, " ", 1);
    if (tokenizer->kind == BP_KIND_BPE && entry->value == 0 && is_byte_level(tokenizer))
        count = bp_bytes_of_name(scratch, name, entry->bytes);
    if (count >= 0)
        bp_buffer_add(text, scratch, (size_t)count);
    else /* special, or spelled with other characters: it stands for itself */
        bp_buffer_add(text, name, entry->bytes);
    return BP_OK;
}

static bp_err decode_by_steps(const bp_tokenizer *tokenizer, const uint32_t *ids, int64_t count,
                              bp_buffer *text)
{
    bp_token_list tokens = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (ids[k] >= tokenizer->names.count)
            err = fail_id(tokenizer, ids[k]);
        else if (tokenizer->names.entries[ids[k]].value != BP_HOLE)
            bp_token_list_add(&tokens, bp_strmap_key(&tokenizer->names, ids[k]),
                              tokenizer->names.entries[ids[k]].bytes);
    if (err == BP_OK)
        err = bp_decoder_run(&tokenizer->pipeline->decoder, &tokens, text);
    bp_token_list_clear(&tokens);
    return err;
}

bp_err bp_decode(const bp_tokenizer *tokenizer, const uint32_t *ids, int64_t count, char **text,
                 size_t *bytes)
{
    uint8_t *scratch = bp_alloc("text.decode", (int64_t)bp_tokenizer_longest(tokenizer), 1);
    bp_buffer buffer = {0};
    bp_err err = BP_OK;

    *text = NULL;
    *bytes = 0;
    if (tokenizer->pipeline)
        err = decode_by_steps(tokenizer, ids, count, &buffer);
    for (int64_t k = 0; k < count && err == BP_OK && !tokenizer->pipeline; k++)
        err = decode_one(tokenizer, ids[k], k == 0, scratch, &buffer);
    bp_free(scratch);
    *bytes = buffer.bytes;
    if (err == BP_OK) {
        *text = bp_buffer_take(&buffer);
    }
    if (err != BP_OK) {
        bp_buffer_clear(&buffer);
        *bytes = 0;
    }
    return err;
}

/* ---- words ---- */

static bool begins_with(const bp_buffer *text, const char *start)
{
    size_t bytes = strlen(start);

    return text->bytes >= bytes && memcmp(text->data, start, bytes) == 0;
}

static bool begins_word(const bp_tokenizer *tokenizer, const bp_buffer *text)
{
    uint32_t c = 0;

    if (tokenizer->kind == BP_KIND_WORD || text->bytes == 0)
        return true;
    if (tokenizer->kind == BP_KIND_WORDPIECE)
        return !begins_with(text, "##");
    (void)bp_utf8_decode((const uint8_t *)text->data, text->bytes, &c);
    return begins_with(text, "\xE2\x96\x81") || (bp_unicode_classes()[c] & 7) == BP_CLASS_SPACE;
}

bp_err bp_tokenizer_spell(const bp_tokenizer *tokenizer, int64_t id, bp_buffer *text)
{
    const bp_strmap_entry *entry =
        id >= 0 && id < tokenizer->names.count ? &tokenizer->names.entries[id] : NULL;

    if (!entry || entry->value != 0 || is_byte_level(tokenizer))
        return bp_tokenizer_token_bytes(tokenizer, id, text);
    return bp_decoder_spell(&tokenizer->pipeline->decoder, bp_strmap_key(&tokenizer->names, id),
                            entry->bytes, text);
}

bp_err bp_tokenizer_word_parts(const bp_tokenizer *tokenizer, bool *continues)
{
    bp_buffer text = {0};
    bp_err err = BP_OK;

    for (int64_t id = 0; id < tokenizer->names.count && err == BP_OK; id++) {
        text.bytes = 0;
        err = bp_tokenizer_spell(tokenizer, id, &text);
        continues[id] = tokenizer->names.entries[id].value == 0 && !begins_word(tokenizer, &text);
    }
    bp_buffer_clear(&text);
    return err;
}

/* ---- for people ---- */

/* Would it break a line, or do something to a terminal? */
static bool is_shown(uint32_t c)
{
    return c >= 0x20 && (c < 0x7F || c >= 0xA0) && c != 0x2028 && c != 0x2029;
}

void bp_text_escape(bp_buffer *out, const char *text, size_t bytes)
{
    static const char LETTERS[] = "\\\\\nn\tt\rr"; /* a character, and its letter */
    const uint8_t *p = (const uint8_t *)text, *end = p + bytes;

    while (p < end) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode(p, (size_t)(end - p), &c);
        const char *letter = length == 1 && c != 0 ? strchr(LETTERS, (int)c) : NULL;

        if (letter && (letter - LETTERS) % 2 == 0)
            bp_buffer_printf(out, "\\%c", letter[1]);
        else if (length > 0 && is_shown(c))
            bp_buffer_add(out, p, length);
        else
            for (size_t k = 0; k == 0 || k < length; k++)
                bp_buffer_printf(out, "\\x%02X", (unsigned)p[k]);
        p += length == 0 ? 1 : length;
    }
}

void bp_text_repair(bp_buffer *out, const char *text, size_t bytes)
{
    static const char REPLACEMENT[] = "\xEF\xBF\xBD"; /* U+FFFD */
    const uint8_t *p = (const uint8_t *)text, *end = p + bytes;

    while (p < end) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode(p, (size_t)(end - p), &c);

        if (length > 0)
            bp_buffer_add(out, p, length);
        else
            bp_buffer_add(out, REPLACEMENT, sizeof REPLACEMENT - 1);
        p += length == 0 ? 1 : length;
    }
}

bp_err bp_tokenizer_token_bytes(const bp_tokenizer *tokenizer, int64_t id, bp_buffer *bytes)
{
    bool known = id >= 0 && id < tokenizer->names.count;
    int64_t capacity_bytes = known ? tokenizer->names.entries[id].bytes : 0;
    uint8_t *scratch = bp_alloc("text.decode", capacity_bytes, 1);
    bp_err err = decode_one(tokenizer, id, true, scratch, bytes);

    bp_free(scratch);
    return err;
}

bp_err bp_tokenizer_token_text(const bp_tokenizer *tokenizer, int64_t id, bp_buffer *text)
{
    bp_buffer bytes = {0};
    bp_err err = bp_tokenizer_token_bytes(tokenizer, id, &bytes);

    if (err == BP_OK)
        bp_text_escape(text, bytes.data, bytes.bytes);
    bp_buffer_clear(&bytes);
    return err;
}

/* Do the last bytes begin a character of UTF-8 that they do not end? */
static bool ends_within(const char *text, size_t bytes)
{
    for (size_t back = 1; back <= 3 && back <= bytes; back++) {
        uint8_t byte = (uint8_t)text[bytes - back];

        if ((byte & 0xC0) != 0x80)
            return back < (byte >= 0xF0 ? 4U : byte >= 0xE0 ? 3U : byte >= 0xC0 ? 2U : 1U);
    }
    return false;
}

bp_err bp_tokenizer_characters(const bp_tokenizer *tokenizer, const int32_t *ids, int64_t count,
                               bp_buffer *text, int64_t *taken)
{
    bp_buffer bytes = {0};
    bp_err err = bp_tokenizer_token_bytes(tokenizer, ids[0], &bytes);
    size_t first = bytes.bytes;

    for (*taken = 1;
         err == BP_OK && *taken < count && *taken < 4 && ends_within(bytes.data, bytes.bytes);
         ++*taken)
        err = bp_tokenizer_token_bytes(tokenizer, ids[*taken], &bytes);
    if (*taken > 1 && err == BP_OK && !bp_text_is_utf8(bytes.data, bytes.bytes)) {
        *taken = 1; /* it never becomes a character: each token is shown separately */
        bytes.bytes = first;
    }
    if (err == BP_OK)
        bp_text_escape(text, bytes.data, bytes.bytes);
    bp_buffer_clear(&bytes);
    return err;
}
