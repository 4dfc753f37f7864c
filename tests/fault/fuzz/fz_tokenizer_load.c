/* tokenizer.json: what is accepted is written as a text with the same hash, and what a plain one
 * decodes to, it encodes and decodes to the same again. Inputs that begin with a byte below 32 are
 * short for a byte-level BPE whose first 256 tokens are the bytes: the byte's bits are settings,
 * and "left right" lines are tokens with their merges. */
#include "base/buffer.h"
#include "base/mem.h"
#include "fuzz.h"
#include "text/tokenizer/tokenizer_parts.h"

#include <string.h>

static const char *const TEXTS[] = {
    "",
    "a",
    " ",
    "Hello, world! It's 2024.",
    "abcabc abc",
    "\n\n a  b ",
    "\xc3\xa9t\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac",
    "\xff\xfe\x80",
    "<unk>",
    "<|endoftext|>",
    "a<|endoftext|>b",
    "\xf0\x9f\x98\x80 x",
    "\t\ttab\t",
    "don't we'll",
    "\xe2\x80\x83wide\xc2\xa0space",
    "1234567890 12 a1",
};
#define TEXT_COUNT (sizeof TEXTS / sizeof TEXTS[0])

/* With steps, text may come back otherwise, and a regular expression may give up. */
static void pass_steps(bp_encoder *encoder, const bp_tokenizer *tokenizer, const char *text)
{
    bp_ids ids = {0};
    bp_err err = bp_encode(encoder, text, strlen(text), &ids);
    size_t bytes;
    char *out;

    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    for (int64_t k = 0; k < ids.count; k++)
        FUZZ_CHECK(ids.data[k] < (uint64_t)bp_tokenizer_size(tokenizer));
    err = bp_decode(tokenizer, ids.data, ids.count, &out, &bytes);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    bp_free(out);
    bp_ids_clear(&ids);
}

/* Encoded, and back to text. */
static char *pass(bp_encoder *encoder, const bp_tokenizer *tokenizer, const char *text,
                  size_t bytes, size_t *out_bytes, bool *has_unknown)
{
    bp_ids ids = {0};
    char *out;

    FUZZ_CHECK(bp_encode(encoder, text, bytes, &ids) == BP_OK);
    for (int64_t k = 0; k < ids.count; k++) {
        FUZZ_CHECK(ids.data[k] < (uint64_t)bp_tokenizer_size(tokenizer));
        *has_unknown = *has_unknown || (int64_t)ids.data[k] == bp_tokenizer_unk(tokenizer);
    }
    FUZZ_CHECK(bp_decode(tokenizer, ids.data, ids.count, &out, out_bytes) == BP_OK);
    bp_ids_clear(&ids);
    return out;
}

static void check_texts(const bp_tokenizer *tokenizer)
{
    bool is_char = strcmp(bp_tokenizer_kind(tokenizer), "char") == 0;
    bp_encoder *encoder;

    FUZZ_CHECK(bp_encoder_new(&encoder, tokenizer) == BP_OK);
    for (size_t k = 0; k < TEXT_COUNT; k++) {
        bool unknown = false, unknown_again = false;
        size_t bytes, bytes_again;

        if (tokenizer->pipeline != NULL) {
            bp_encoder_find_specials(encoder, k % 2 == 1);
            pass_steps(encoder, tokenizer, TEXTS[k]);
            continue;
        }
        char *once = pass(encoder, tokenizer, TEXTS[k], strlen(TEXTS[k]), &bytes, &unknown);
        char *twice = pass(encoder, tokenizer, once, bytes, &bytes_again, &unknown_again);

        /* "<unk>" for a character is five characters the next time */
        if (!is_char || !unknown)
            FUZZ_CHECK(bytes == bytes_again && memcmp(once, twice, bytes) == 0);
        bp_free(once);
        bp_free(twice);
    }
    bp_encoder_free(&encoder);
}

static void read_again(const bp_tokenizer *tokenizer)
{
    char *text = bp_tokenizer_text(tokenizer), *text_again;
    bp_tokenizer *again;

    FUZZ_CHECK(text != NULL);
    FUZZ_CHECK(bp_tokenizer_parse(&again, text, strlen(text), "again") == BP_OK);
    text_again = bp_tokenizer_text(again);
    FUZZ_CHECK(text_again != NULL && strcmp(text, text_again) == 0);
    FUZZ_CHECK(strcmp(bp_tokenizer_hash(tokenizer), bp_tokenizer_hash(again)) == 0);
    FUZZ_CHECK(bp_tokenizer_size(tokenizer) == bp_tokenizer_size(again));
    FUZZ_CHECK(bp_tokenizer_eod(tokenizer) == bp_tokenizer_eod(again));
    FUZZ_CHECK(bp_tokenizer_unk(tokenizer) == bp_tokenizer_unk(again));
    bp_free(text);
    bp_free(text_again);
    bp_tokenizer_free(&again);
}

/* ---- short for a byte-level BPE ---- */

static void add_tokens(bp_buffer *out)
{
    for (int id = 0; id < 256; id++) {
        uint8_t byte = bp_byte_of_rank(id);
        char name[5] = {0};

        (void)bp_name_of_bytes(name, &byte, 1);
        bp_buffer_printf(out, "%s\"%s%s\": %d", id == 0 ? "" : ", ",
                         byte == '"' || byte == '\\' ? "\\" : "", name, id);
    }
}

/* For each line a token without the space, or with `merges` the merge as it stands. */
static void add_lines(bp_buffer *out, const char *data, size_t bytes, bool merges)
{
    int id = 256;

    for (size_t at = 0; at < bytes; id++) {
        const char *end = memchr(data + at, '\n', bytes - at);
        size_t length = end == NULL ? bytes - at : (size_t)(end - data) - at;

        bp_buffer_printf(out, merges && id == 256 ? "\"" : ", \"");
        for (size_t k = at; k < at + length; k++)
            if (merges || data[k] != ' ')
                bp_buffer_add(out, data + k, 1);
        if (merges)
            bp_buffer_printf(out, "\"");
        else
            bp_buffer_printf(out, "\": %d", id);
        at += length + 1;
    }
}

static bp_buffer write_out(const uint8_t *data, size_t bytes)
{
    int settings = data[0];
    const char *lines = (const char *)data + 1;
    bp_buffer out = {0};

    bp_buffer_printf(&out,
                     "{\"version\": \"1.0\", \"added_tokens\": [], \"pre_tokenizer\": {\"type\": "
                     "\"ByteLevel\", \"add_prefix_space\": %s, \"use_regex\": %s}, \"model\": "
                     "{\"type\": \"BPE\", \"ignore_merges\": %s, \"vocab\": {",
                     settings & 1 ? "true" : "false", settings & 2 ? "true" : "false",
                     settings & 4 ? "true" : "false");
    add_tokens(&out);
    add_lines(&out, lines, bytes - 1, false);
    bp_buffer_printf(&out, "}, \"merges\": [");
    add_lines(&out, lines, bytes - 1, true);
    bp_buffer_printf(&out, "]}}");
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    bool is_short = bytes > 0 && data[0] < 32;
    bp_buffer text = {0};
    bp_tokenizer *tokenizer;
    bp_err err;

    fuzz_begin();
    if (is_short)
        text = write_out(data, bytes);
    err = bp_tokenizer_parse(&tokenizer, is_short ? text.data : (const char *)data,
                             is_short ? text.bytes : bytes, "tokenizer.json");
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    FUZZ_CHECK((tokenizer != NULL) == (err == BP_OK));
    if (err == BP_OK) {
        FUZZ_CHECK(bp_tokenizer_size(tokenizer) > 0);
        FUZZ_CHECK(bp_tokenizer_eod(tokenizer) < bp_tokenizer_size(tokenizer));
        read_again(tokenizer);
        check_texts(tokenizer);
    }
    bp_tokenizer_free(&tokenizer);
    bp_buffer_clear(&text);
    fuzz_end();
    return 0;
}
