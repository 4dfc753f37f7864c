/* Invalid bytes of a text, hidden as characters while a pipeline runs. */
#include "text/unicode/invalid_bytes.h"

#include "base/mem.h"
#include "text/unicode/scan.h"

void bp_hidden_mark(bp_hidden_blocks *blocks, const char *text, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)text;

    for (size_t at = 0; at < bytes; at++) {
        uint32_t c = 0;

        if (p[at] >= 0xF1 && p[at] <= 0xF3 && bp_utf8_decode(p + at, bytes - at, &c) == 4 &&
            c - BP_HIDDEN_FIRST < BP_HIDDEN_BLOCKS * 0x80u)
            blocks->used[(c - BP_HIDDEN_FIRST) / 0x80] = true;
    }
}

/* The first character of a block that neither has, 0: all are used. */
static uint32_t choose_block(const bp_hidden_blocks *one, const bp_hidden_blocks *other)
{
    for (uint32_t k = 0; k < BP_HIDDEN_BLOCKS; k++)
        if (k % 512 != 511 && !one->used[k] && !other->used[k]) /* no noncharacters */
            return BP_HIDDEN_FIRST + k * 0x80;
    return 0;
}

/* Append text as valid UTF-8: invalid byte b is character base + (b & 0x7F). */
static void add_hidden(bp_buffer *out, uint32_t base, const char *text, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)text;

    for (size_t at = 0; at < bytes;) {
        uint32_t c;
        uint8_t hidden[4];

        if (bp_utf8_decode(p + at, bytes - at, &c) > 0) {
            size_t length = bp_scan_valid(p + at, bytes - at);

            bp_buffer_add(out, text + at, length);
            at += length;
        } else {
            bp_buffer_add(out, hidden, bp_utf8_encode(hidden, base + (p[at] & 0x7F)));
            at++;
        }
    }
}

bp_err bp_hidden_hide(uint32_t *base, bp_buffer *out, const char *text, size_t bytes,
                      const bp_hidden_blocks *names)
{
    bp_hidden_blocks *own = bp_alloc("text.hidden", 1, sizeof *own);

    bp_hidden_mark(own, text, bytes);
    *base = choose_block(own, names != NULL ? names : own);
    bp_free(own);
    if (*base == 0)
        return BP_FAIL(BP_ERR_FORMAT, "text.not_utf8_hidden",
                       "a text has bytes that are not valid UTF-8, and characters of every block "
                       "of planes 4 to 13, which stand for such bytes: mend its bytes");
    add_hidden(out, *base, text, bytes);
    return BP_OK;
}

bool bp_is_valid(const char *text, size_t bytes)
{
    uint32_t c;

    return bytes == 0 || (bp_utf8_decode((const uint8_t *)text, bytes, &c) > 0 &&
                          bp_scan_valid((const uint8_t *)text, bytes) == bytes);
}

size_t bp_hidden_before(uint32_t base, const uint8_t *p, size_t bytes)
{
    for (size_t at = 0; base != 0 && at < bytes; at++)
        if (bp_is_hidden(base, p + at, bytes - at))
            return at;
    return bytes;
}
