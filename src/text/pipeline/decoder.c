/* Decoders, read from tokenizer.json and run: from tokens back to text. */
#include "text/pipeline/decoder.h"
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/pipeline/normalizer.h"
#include "text/unicode/alphabet.h"
#include "text/unicode/scan.h"

#include <string.h>

/* ---- reading ---- */

static bp_err read_strip(bp_decode_step *step, const json_t *json, const char *name)
{
    bp_err err = bp_load_text(&step->content, json, "content", name);

    if (err == BP_OK)
        err = bp_json_get_int(json, "start", &step->start, name);
    if (err == BP_OK)
        err = bp_json_get_int(json, "stop", &step->stop, name);
    if (err == BP_OK && (step->content[0] == '\0' || step->start < 0 || step->stop < 0))
        err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.unsupported",
                      "the decoder Strip takes %lld and %lld of '%s': at %s",
                      (long long)step->start, (long long)step->stop, step->content, name);
    return err;
}

static bp_err read_metaspace(bp_decode_step *step, const json_t *json, const char *name)
{
    const char *mark, *scheme;
    bp_err err = bp_load_optional(&mark, json, "replacement", name);

    if (err == BP_OK)
        err = bp_load_optional(&scheme, json, "prepend_scheme", name);
    if (err != BP_OK)
        return err;
    step->pattern = bp_strdup(mark[0] == '\0' ? "\xE2\x96\x81" : mark);
    step->content = bp_strdup(" ");
    if (scheme[0] == '\0')
        return bp_load_bool(&step->flag, json, "add_prefix_space", true, name);
    step->flag = strcmp(scheme, "never") != 0;
    return BP_OK;
}

static bp_err read_step(bp_decode_step *step, const json_t *json, const char *name)
{
    const char *affix;
    bp_err err;

    switch (step->kind) {
    case BP_DECODE_STRIP:
        return read_strip(step, json, name);
    case BP_DECODE_METASPACE:
        return read_metaspace(step, json, name);
    case BP_DECODE_REPLACE:
        err = bp_load_text(&step->content, json, "content", name);
        return err == BP_OK ? bp_load_pattern(&step->pattern, &step->regex, json, name) : err;
    case BP_DECODE_WORDPIECE:
        err = bp_load_optional(&affix, json, "prefix", name);
        step->pattern = bp_strdup(!json_object_get(json, "prefix") ? "##" : affix);
        return err != BP_OK ? err : bp_load_bool(&step->flag, json, "cleanup", true, name);
    case BP_DECODE_BPE:
        err = bp_load_optional(&affix, json, "suffix", name);
        step->pattern = bp_strdup(!json_object_get(json, "suffix") ? "</w>" : affix);
        return err != BP_OK ? err
               : step->pattern[0] == '\0'
                   ? bp_load_refuse("the decoder BPEDecoder without", "suffix", name)
                   : BP_OK;
    default:
        return BP_OK;
    }
}

static bp_err add_step(void *context, const json_t *json, const char *type, const char *name)
{
    static const char *const types[] = {"ByteLevel", "ByteFallback", "Fuse",      "Metaspace",
                                        "Strip",     "Replace",      "WordPiece", "BPEDecoder"};
    bp_decoder *decoder = context;
    bp_decode_step *step;

    for (int k = 0; k < (int)(sizeof types / sizeof *types); k++) {
        if (strcmp(types[k], type) != 0)
            continue;
        decoder->steps =
            bp_realloc("text.decoder", decoder->steps, decoder->count + 1, sizeof *decoder->steps);
        step = &decoder->steps[decoder->count++];
        *step = (bp_decode_step){.kind = (bp_decode_kind)k};
        return read_step(step, json, name);
    }
    return bp_load_refuse("the decoder", type, name);
}

bp_err bp_decoder_read(bp_decoder *out, const json_t *json, const char *name)
{
    return bp_load_sequence(json, "decoders", add_step, out, name);
}

void bp_decoder_clear(bp_decoder *decoder)
{
    for (int k = 0; k < decoder->count; k++) {
        bp_free(decoder->steps[k].pattern);
        bp_free(decoder->steps[k].content);
        bp_regex_free(&decoder->steps[k].regex);
    }
    bp_free(decoder->steps);
    *decoder = (bp_decoder){0};
}

/* ---- lists of tokens ---- */

void bp_token_list_clear(bp_token_list *list)
{
    bp_buffer_clear(&list->text);
    bp_spans_clear(&list->spans);
}

void bp_token_list_add(bp_token_list *list, const char *text, size_t bytes)
{
    size_t start = list->text.bytes;

    bp_buffer_add(&list->text, text, bytes);
    bp_spans_add(&list->spans, start, bytes);
}

/* ---- running ---- */

/* The byte that a token <0xNN> stands for; -1 for other tokens. */
static int byte_of_fallback(const char *name, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;

    if (bytes != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>')
        return -1;
    high = memchr(digits, name[3], 16);
    low = memchr(digits, name[4], 16);
    return !high || !low ? -1 : (int)(16 * (high - digits) + (low - digits));
}

static void decode_bytes(const char *text, size_t bytes, bp_token_list *out)
{
    uint8_t *scratch = bp_alloc("text.decode", (int64_t)bytes, 1);
    int64_t count = bp_bytes_of_name(scratch, text, bytes);

    if (count >= 0)
        bp_token_list_add(out, (char *)scratch, (size_t)count);
    else
        bp_token_list_add(out, text, bytes); /* special, or spelled with other characters */
    bp_free(scratch);
}

static void strip_token(const bp_decode_step *step, const char *text, size_t bytes,
                        bp_token_list *out)
{
    size_t length = strlen(step->content);

    for (int64_t k = 0;
         k < step->start && bytes >= length && memcmp(text, step->content, length) == 0; k++) {
        text += length;
        bytes -= length;
    }
    for (int64_t k = 0; k < step->stop && bytes >= length &&
                        memcmp(text + bytes - length, step->content, length) == 0;
         k++)
        bytes -= length;
    bp_token_list_add(out, text, bytes);
}

/* Replace, and Metaspace: an ordinary replacement, except that the first token's marks are removed.
 */
static bp_err replace(const bp_decode_step *step, bp_regex_work *work, const char *text,
                      size_t bytes, bool first, bp_token_list *out)
{
    bool goes = step->kind == BP_DECODE_METASPACE && step->flag && first;
    bp_norm_step replacing = {.kind = BP_NORM_REPLACE,
                              .content = step->content,
                              .content_bytes = goes ? 0 : strlen(step->content),
                              .pattern = step->pattern,
                              .pattern_bytes = !step->pattern ? 0 : strlen(step->pattern),
                              .regex = step->regex};
    bp_buffer made = {0};
    bp_err err = BP_OK;

    /* regular expressions do not match invalid bytes */
    if (step->regex && bp_scan_valid((const uint8_t *)text, bytes) != bytes)
        bp_buffer_add(&made, text, bytes);
    else
        err = bp_norm_apply(&replacing, work, text, bytes, &made);
    if (made.bytes > 0)
        bp_token_list_add(out, made.data, made.bytes);
    bp_buffer_clear(&made);
    return err;
}

/* English contractions and punctuation without the space before them, in one token's text. Source:
 * huggingface/tokenizers, decoders/wordpiece.rs (cleanup). */
static bp_err clean_up(const char *text, size_t bytes, bp_token_list *out)
{
    static const char *const pairs[][2] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    bp_buffer scratch[2] = {{0}, {0}};
    int turn = 0;

    bp_buffer_add(&scratch[0], text, bytes);
    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++, turn = !turn) {
        bp_norm_step step = {.kind = BP_NORM_REPLACE,
                             .content = (char *)pairs[k][1],
                             .content_bytes = strlen(pairs[k][1]),
                             .pattern = (char *)pairs[k][0],
                             .pattern_bytes = strlen(pairs[k][0])};

        scratch[!turn].bytes = 0;
        (void)bp_norm_apply(&step, NULL, !scratch[turn].data ? "" : scratch[turn].data,
                            scratch[turn].bytes, &scratch[!turn]);
    }
    bp_token_list_add(out, scratch[turn].data, scratch[turn].bytes);
    bp_buffer_clear(&scratch[0]);
    bp_buffer_clear(&scratch[1]);
    return BP_OK;
}

static bp_err join_words(const bp_decode_step *step, const char *text, size_t bytes, bool first,
                         bp_token_list *out)
{
    size_t prefix = strlen(step->pattern);
    bp_buffer made = {0};
    bp_err err = BP_OK;

    if (!first && bytes >= prefix && memcmp(text, step->pattern, prefix) == 0)
        bp_buffer_add(&made, text + prefix, bytes - prefix);
    else
        bp_buffer_printf(&made, "%s%.*s", first ? "" : " ", (int)bytes, text);
    if (step->flag)
        err = clean_up(!made.data ? "" : made.data, made.bytes, out);
    else
        bp_token_list_add(out, !made.data ? "" : made.data, made.bytes);
    bp_buffer_clear(&made);
    return err;
}

/* Source: huggingface/tokenizers, decoders/bpe.rs. */
static void end_words(const bp_decode_step *step, const char *text, size_t bytes, bool last,
                      bp_token_list *out)
{
    bp_norm_step ends = {.kind = BP_NORM_REPLACE,
                         .content = last ? "" : " ",
                         .content_bytes = last ? 0 : 1,
                         .pattern = step->pattern,
                         .pattern_bytes = strlen(step->pattern)};
    bp_buffer made = {0};

    (void)bp_norm_apply(&ends, NULL, text, bytes, &made);
    bp_token_list_add(out, !made.data ? "" : made.data, made.bytes);
    bp_buffer_clear(&made);
}

static bp_err run_one(const bp_decode_step *step, bp_regex_work *work, const char *text,
                      size_t bytes, bool first, bool last, bp_token_list *out)
{
    int byte;
    char letter;

    switch (step->kind) {
    case BP_DECODE_BYTE_LEVEL:
        decode_bytes(text, bytes, out);
        return BP_OK;
    case BP_DECODE_BYTE_FALLBACK:
        byte = byte_of_fallback(text, bytes);
        letter = (char)byte;
        bp_token_list_add(out, byte < 0 ? text : &letter, byte < 0 ? bytes : 1);
        return BP_OK;
    case BP_DECODE_STRIP:
        strip_token(step, text, bytes, out);
        return BP_OK;
    case BP_DECODE_METASPACE:
    case BP_DECODE_REPLACE:
        return replace(step, work, text, bytes, first, out);
    case BP_DECODE_WORDPIECE:
        return join_words(step, text, bytes, first, out);
    case BP_DECODE_BPE:
        end_words(step, text, bytes, last, out);
        return BP_OK;
    case BP_DECODE_FUSE:
        break;
    }
    return BP_OK;
}

static bp_err run_step(const bp_decode_step *step, bp_regex_work *work, bp_token_list *tokens)
{
    bp_token_list out = {0};
    bp_err err = BP_OK;

    if (step->kind == BP_DECODE_FUSE) {
        tokens->spans.count = 0;
        bp_spans_add(&tokens->spans, 0, tokens->text.bytes);
        return BP_OK;
    }
    for (int64_t k = 0; k < tokens->spans.count && err == BP_OK; k++) {
        bp_span span = tokens->spans.data[k];

        err = run_one(step, work, tokens->text.data + span.start, span.bytes, k == 0,
                      k + 1 == tokens->spans.count, &out);
    }
    bp_token_list_clear(tokens);
    *tokens = out;
    return err;
}

/* Except steps that need its neighbours. */
static bool spells(bp_decode_kind kind)
{
    return kind != BP_DECODE_FUSE && kind != BP_DECODE_STRIP && kind != BP_DECODE_WORDPIECE;
}

bp_err bp_decoder_spell(const bp_decoder *decoder, const char *token, size_t bytes, bp_buffer *text)
{
    bp_regex_work *work = bp_regex_work_new();
    bp_token_list now = {0};
    bp_err err = BP_OK;

    bp_token_list_add(&now, token, bytes);
    for (int k = 0; k < decoder->count && now.spans.count > 0 && err == BP_OK; k++) {
        bp_token_list next = {0};

        if (!spells(decoder->steps[k].kind))
            continue;
        err = run_one(&decoder->steps[k], work, now.text.data, now.text.bytes, false, false, &next);
        bp_token_list_clear(&now);
        now = next;
    }
    if (now.text.bytes > 0)
        bp_buffer_add(text, now.text.data, now.text.bytes);
    bp_token_list_clear(&now);
    bp_regex_work_free(&work);
    return err;
}

bp_err bp_decoder_run(const bp_decoder *decoder, bp_token_list *tokens, bp_buffer *text)
{
    bp_regex_work *work = bp_regex_work_new();
    bp_err err = BP_OK;

    for (int k = 0; k < decoder->count && err == BP_OK; k++)
        err = run_step(&decoder->steps[k], work, tokens);
    for (int64_t k = 0; k < tokens->spans.count && err == BP_OK; k++) {
        if (decoder->count == 0 && k > 0)
            bp_buffer_add(text, " ", 1);
        bp_buffer_add(text, tokens->text.data + tokens->spans.data[k].start,
                      tokens->spans.data[k].bytes);
    }
    bp_regex_work_free(&work);
    return err;
}
