/* Decoders of tokenizer.json: tokens back to text. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "text/pipeline/pretokenizer.h"

typedef enum bp_decode_kind {
    BP_DECODE_BYTE_LEVEL,
    BP_DECODE_BYTE_FALLBACK, /* <0x0A> is the byte */
    BP_DECODE_FUSE,          /* all tokens become one */
    BP_DECODE_METASPACE,
    BP_DECODE_STRIP,
    BP_DECODE_REPLACE,
    BP_DECODE_WORDPIECE,
    BP_DECODE_BPE /* suffixes of words become spaces, the last one nothing */
} bp_decode_kind;

typedef struct bp_decode_step {
    bp_decode_kind kind;
    char *pattern, *content; /* METASPACE: the mark; STRIP: the text to remove; WORDPIECE: the
                                prefix; BPE: the suffix */
    bp_regex *regex;         /* REPLACE */
    int64_t start, stop;     /* STRIP: at most this many of `content` at each end */
    bool flag;               /* METASPACE: removes the first space; WORDPIECE: clean up */
} bp_decode_step;

typedef struct bp_decoder { /* {0}: tokens with spaces between */
    bp_decode_step *steps;
    int count;
} bp_decoder;

/** As bp_normalizer_read. */
bp_err bp_decoder_read(bp_decoder *out, const json_t *json, const char *name);
void bp_decoder_clear(bp_decoder *decoder);

/** A list of tokens' texts. */
typedef struct bp_token_list {
    bp_buffer text;
    bp_spans spans;
} bp_token_list;
void bp_token_list_clear(bp_token_list *list);
void bp_token_list_add(bp_token_list *list, const char *text, size_t bytes);

/** Append the text of the tokens, which are used up. Errors: those of bp_regex_next. */
bp_err bp_decoder_run(const bp_decoder *decoder, bp_token_list *tokens, bp_buffer *text);
/** Append the text of one token in the middle of a text: its marks become spaces, and <0x0A> the
 * byte, according to the steps. Errors: those of bp_regex_next. */
bp_err bp_decoder_spell(const bp_decoder *decoder, const char *token, size_t bytes,
                        bp_buffer *text);
