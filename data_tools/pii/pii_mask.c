/* Full-width forms, percent-encoded '@', and masks. Called by pii_run.c and pii.c. */
#include "pii_mask.h"

#include "pii_numbers.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <string.h>

#define WIDE_BYTES 3 /* of U+3000 and U+FF01 to U+FF5E in UTF-8; and of %40 */

/* ---- full-width forms ---- */

/* The ASCII byte that a full-width form means; 0: it is not such a form. */
static char narrow(const char *text, size_t left)
{
    const unsigned char *u = (const unsigned char *)text;

    if (left < WIDE_BYTES || u[0] < 0xE3)
        return 0;
    if (u[0] == 0xE3)
        return u[1] == 0x80 && u[2] == 0x80 ? ' ' : 0;
    if (u[0] != 0xEF || (u[1] != 0xBC && u[1] != 0xBD) || u[2] < 0x80 || u[2] > 0xBF)
        return 0;
    int code = 0x20 + (u[1] - 0xBC) * 64 + (u[2] - 0x80); /* U+FF01 is ! */

    return code > 0x20 && code < 0x7F ? (char)code : 0;
}

static bool is_alphanumeric(char c)
{
    return pii_is_digit(c) || pii_is_letter(c);
}

/* Counts whatever is beside it. */
static bool counts(char c)
{
    return is_alphanumeric(c) || c == '@';
}

/* A full-width digit or letter is before or after the form at `at`. */
static bool has_neighbour(const char *text, size_t bytes, size_t at)
{
    return (at >= WIDE_BYTES &&
            is_alphanumeric(narrow(text + at - WIDE_BYTES, bytes - at + WIDE_BYTES))) ||
           is_alphanumeric(narrow(text + at + WIDE_BYTES, bytes - at - WIDE_BYTES));
}

/* The %40 of a URL at `at`, between what may be the parts of an address. */
static bool is_encoded(const char *text, size_t bytes, size_t at)
{
    return at > 0 && bytes - at > WIDE_BYTES && strncmp(text + at, "%40", WIDE_BYTES) == 0 &&
           !pii_is_one_of(text[at - 1], "/ \t\n\r") &&
           (is_alphanumeric(text[at + WIDE_BYTES]) || (unsigned char)text[at + WIDE_BYTES] >= 0x80);
}

static bool has_encoded(const char *text, size_t bytes)
{
    const char *at = text;

    for (; (at = memchr(at, '%', bytes - (size_t)(at - text))); at++)
        if (is_encoded(text, bytes, (size_t)(at - text)))
            return true;
    return false;
}

static bool has_wide(const char *text, size_t bytes)
{
    const char *end = text + bytes;

    for (; (text = memchr(text, 0xEF, (size_t)(end - text))); text++)
        if (counts(narrow(text, (size_t)(end - text))))
            return true;
    return false;
}

void pii_fold(pii_folded *out, const char *text, size_t bytes)
{
    size_t used = 0;

    *out = (pii_folded){.text = text, .bytes = bytes};
    if (!has_wide(text, bytes) && !has_encoded(text, bytes))
        return;
    out->folded = bp_alloc("tool.pii", (int64_t)bytes + 1, 1);
    out->at = bp_alloc("tool.pii", (int64_t)bytes + 1, sizeof *out->at);
    for (size_t k = 0; k < bytes;) {
        char c = is_encoded(text, bytes, k) ? '@' : narrow(text + k, bytes - k);
        bool is_folded = c && (counts(c) || has_neighbour(text, bytes, k));

        out->at[used] = k;
        out->folded[used++] = is_folded ? c : text[k];
        k += is_folded ? WIDE_BYTES : 1;
    }
    out->at[used] = bytes;
    out->text = out->folded;
    out->bytes = used;
}

void pii_folded_clear(pii_folded *folded)
{
    bp_free(folded->folded);
    bp_free(folded->at);
    *folded = (pii_folded){0};
}

size_t pii_folded_at(const pii_folded *folded, size_t at)
{
    size_t low = 0, high = folded->bytes;

    if (!folded->at)
        return at;
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (folded->at[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- masks ---- */

void pii_shape(char *shape, size_t capacity, const char *text, size_t bytes)
{
    size_t used = 0;

    for (size_t k = 0; k < bytes; k++) {
        unsigned char c = (unsigned char)text[k];

        if (used + 4 >= capacity) {
            memcpy(shape + used, "...", 4);
            return;
        }
        if ((c & 0xC0) != 0x80)
            shape[used++] = pii_is_digit(text[k])                 ? '9'
                            : pii_is_letter(text[k]) || c >= 0x80 ? 'x'
                                                                  : text[k];
    }
    shape[used] = '\0';
}

/* Finds of the first `bytes` of a name to marks[bytes]. */
static bool mark(bool *marks, const char *text, size_t bytes, uint64_t countries)
{
    pii_folded folded;
    pii_find find;
    bool any = false;

    pii_fold(&folded, text, bytes);
    pii_scan scan = {
        .text = folded.text, .bytes = folded.bytes, .end = folded.bytes, .countries = countries};
    while (pii_scan_next(&scan, &find)) {
        for (size_t k = pii_unfolded(&folded, find.start); k < pii_unfolded(&folded, find.end); k++)
            marks[k] = true;
        any = true;
    }
    pii_folded_clear(&folded);
    return any;
}

char *pii_masked(const char *text, uint64_t countries)
{
    size_t bytes = strlen(text), end = bytes;
    bool *marks = bp_alloc("tool.pii", (int64_t)bytes + 1, sizeof *marks);
    bp_buffer out = {0};

    while (end > 0) { /* jane@example.org.txt.gz: no domain ends so */
        (void)mark(marks, text, end, countries);
        while (end > 0 && text[end - 1] != '.')
            end--;
        end -= end > 0;
    }
    for (size_t k = 0; k < bytes;) {
        size_t last = k;
        char shape[4 * PII_REACH];

        while (last < bytes && marks[last] == marks[k])
            last++;
        if (marks[k])
            pii_shape(shape, sizeof shape, text + k, last - k);
        bp_buffer_add(&out, marks[k] ? shape : text + k, marks[k] ? strlen(shape) : last - k);
        k = last;
    }
    bp_free(marks);
    return bp_buffer_take(&out);
}
