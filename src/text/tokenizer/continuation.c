/* Pairs of a context and its continuation. Called by readers of choices and of question sets. */
#include "text/tokenizer/continuation.h"

#include "base/buffer.h"
#include "text/unicode/tally.h"

#include <string.h>

/* Bytes of the text without the white space at its end: Python's str.rstrip(). */
static size_t strip_end(const char *text, size_t bytes)
{
    bp_text_tally tally;
    size_t at = bytes;

    while (at > 0) {
        size_t begin = at - 1;

        while (begin > 0 && at - begin < 4 && ((unsigned char)text[begin] & 0xC0) == 0x80)
            begin--;
        tally = (bp_text_tally){0};
        bp_text_tally_add(&tally, text + begin, at - begin);
        if (!tally.ends_in_run || tally.invalid_bytes > 0)
            break;
        at = begin;
    }
    return at;
}

bp_err bp_context_text_encode(bp_context_text *context, bp_encoder *encoder, bp_ids *ids)
{
    bp_err err = BP_OK;

    context->kept = strip_end(context->text, context->bytes);
    context->tokens = -ids->count;
    if (context->kept > 0)
        err = bp_encode(encoder, context->text, context->kept, ids);
    context->tokens += ids->count;
    return err;
}

bp_err bp_continuation_encode(bp_encoder *encoder, const bp_context_text *context, const char *text,
                              size_t bytes, bp_ids *ids)
{
    bp_ids all = {0};
    bp_buffer whole = {0};
    int64_t tokens = context->tokens; /* that are not the continuation's */
    bp_err err;

    bp_buffer_add(&whole, context->text, context->bytes);
    bp_buffer_add(&whole, text, bytes);
    err = bp_encode(encoder, whole.data, whole.bytes, &all);
    if (err == BP_OK && all.count <= tokens) { /* it has no token of its own */
        tokens = all.count = 0;
        err = bp_encode(encoder, whole.data + context->kept, whole.bytes - context->kept, &all);
    }
    if (err == BP_OK && all.count > tokens) {
        bp_ids_reserve(ids, all.count - tokens);
        memcpy(ids->data + ids->count, all.data + tokens,
               (size_t)(all.count - tokens) * sizeof *all.data);
        ids->count += all.count - tokens;
    }
    bp_buffer_clear(&whole);
    bp_ids_clear(&all);
    return err;
}
