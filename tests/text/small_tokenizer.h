/* A small byte-level BPE as tokenizer.json, whose parts a test can replace. */
#pragma once

#include "base/buffer.h"
#include "bp_test.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode/unicode.h"

/* In order of the file. Ids 256.. are: "Ġa", "ab", "abc"; then <|endoftext|>. */
typedef struct small_parts {
    const char *version, *truncation, *padding, *added, *normalizer, *pre_tokenizer, *settings,
        *tokens, *merges;
} small_parts;

static const small_parts SMALL = {
    .version = "\"1.0\"",
    .truncation = "null",
    .padding = "null",
    .added = "[{\"id\": 259, \"content\": \"<|endoftext|>\", \"special\": true}]",
    .normalizer = "null",
    .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
                     "true, \"use_regex\": true}",
    .settings = "\"dropout\": null, \"byte_fallback\": false, ",
    .tokens = ", \"\xC4\xA0"
              "a\": 256, \"ab\": 257, \"abc\": 258, \"<|endoftext|>\": 259",
    .merges = "[\"\xC4\xA0 a\", \"a b\", \"ab c\"]",
};

/** The bytes as tokens 0 to 255, in GPT-2's order: "\"!\": 0, ...". */
static inline void small_add_bytes(bp_buffer *text)
{
    for (int id = 0; id < 256; id++) {
        uint8_t byte = bp_byte_of_rank(id);
        char name[5] = {0};

        (void)bp_name_of_bytes(name, &byte, 1);
        bp_buffer_printf(text, "%s\"%s%s\": %d", id == 0 ? "" : ", ",
                         byte == '"' || byte == '\\' ? "\\" : "", name, id);
    }
}

static inline bp_buffer small_text(const small_parts *parts)
{
    bp_buffer text = {0};

    bp_buffer_printf(&text,
                     "{\"version\": %s, \"truncation\": %s, \"padding\": %s, \"added_tokens\": %s, "
                     "\"normalizer\": %s, \"pre_tokenizer\": %s, \"post_processor\": null, "
                     "\"decoder\": null, \"model\": {\"type\": \"BPE\", %s\"vocab\": {",
                     parts->version, parts->truncation, parts->padding, parts->added,
                     parts->normalizer, parts->pre_tokenizer, parts->settings);
    small_add_bytes(&text);
    bp_buffer_printf(&text, "%s}, \"merges\": %s}}", parts->tokens, parts->merges);
    return text;
}

static inline bp_err small_parse(bp_tokenizer **out, const small_parts *parts)
{
    bp_buffer text = small_text(parts);
    bp_err err = bp_tokenizer_parse(out, text.data, text.bytes, "small.json");

    bp_buffer_clear(&text);
    return err;
}
