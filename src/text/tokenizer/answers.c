/* From token ids back to the words of a context, for the answers of a model of spans. */
#include "text/tokenizer/answers.h"
#include "text/unicode/context_words.h"

#include <string.h>

bp_err bp_context_words_of(bp_encoder *encoder, const char *context, int64_t first, int64_t end,
                           size_t *begin, size_t *bytes)
{
    size_t all = strlen(context), last = 0;
    bp_ids ids = {0};
    bp_err err = BP_OK;

    *begin = all;
    for (size_t at = 0, next; at < all && ids.count < end && err == BP_OK; at = next) {
        next = bp_context_word(context, all, at);
        err = bp_encode_piece(encoder, context + at, next - at, at == 0, &ids);
        if (ids.count > first && at < *begin)
            *begin = at;
        last = next;
    }
    if (*begin < last)
        *begin = bp_context_skip_space(context, last, *begin);
    *bytes = last > *begin ? last - *begin : 0;
    bp_ids_clear(&ids);
    return err;
}
