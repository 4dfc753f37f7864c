/* Foreign text for terminals, pages and JSON. */
#include "base/printable.h"

#include "base/mem.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the character at p[0] of p[left], *c; 0 if it is not UTF-8. */
static size_t character(const uint8_t *p, size_t left, uint32_t *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t bytes = p[0] < 0x80                   ? 1
                   : p[0] >= 0xC2 && p[0] < 0xE0 ? 2
                   : p[0] >= 0xE0 && p[0] < 0xF0 ? 3
                   : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
                                                 : 0;

    if (bytes == 0 || bytes > left)
        return 0;
    *c = bytes == 1 ? p[0] : p[0] & (0xFFu >> (bytes + 1));
    for (size_t k = 1; k < bytes; k++) {
        if ((p[k] & 0xC0) != 0x80)
            return 0;
        *c = *c << 6 | (p[k] & 0x3F);
    }
    return *c < least[bytes] || (*c >= 0xD800 && *c < 0xE000) || *c > 0x10FFFF ? 0 : bytes;
}

void bp_printable_add(bp_buffer *out, const char *text, size_t bytes, const char *kept)
{
    const uint8_t *p = (const uint8_t *)text;

    for (size_t at = 0; at < bytes;) {
        uint32_t c = 0;
        size_t length = character(p + at, bytes - at, &c);
        bool shown = length > 0 && c >= 0x20 && (c < 0x7F || c >= 0xA0);

        if (!shown && length == 1 && c != 0 && strchr(kept, (int)c))
            shown = true;
        if (shown)
            bp_buffer_add(out, text + at, length);
        for (size_t k = 0; !shown && (k == 0 || k < length); k++)
            bp_buffer_printf(out, "\\x%02X", (unsigned)p[at + k]);
        at += length > 0 ? length : 1;
    }
}

char *bp_printable(const char *text)
{
    bp_buffer out = {0};

    bp_printable_add(&out, text, strlen(text), "");
    return out.data ? bp_buffer_take(&out) : bp_strdup("");
}
