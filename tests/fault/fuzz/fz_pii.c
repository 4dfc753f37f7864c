/* Texts with personal data: two bytes pick countries. Finds are in order, apart, within the text
 * and near their candidate; a line has the same ones alone as among others, and so has a text whose
 * candidates are looked at in two steps between lines. */
#include "fuzz.h"
#include "pii/pii_scan.h"

#include "base/mem.h"

#include <string.h>

static void check_find(const pii_find *find, const pii_scan *scan, size_t before)
{
    FUZZ_CHECK(find->start >= before && find->start < find->end && find->end <= scan->bytes);
    FUZZ_CHECK(find->end - find->start <= PII_REACH && find->kind < PII_KINDS);
    FUZZ_CHECK((find->kind == PII_NATIONAL) == (find->country >= 0));
    FUZZ_CHECK(!memchr(scan->text + find->start, '\n', find->end - find->start));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    uint64_t countries = fuzz_u16(&in);
    pii_find find, one;
    size_t before = 0;

    countries |= countries << 16;
    fuzz_begin();
    char *text =
        bp_alloc("fuzz.text", in.left > 0 ? (int64_t)in.left : 1, 1); /* its end is watched */
    memcpy(text, in.data, in.left);
    pii_scan whole = {text, in.left, 0, in.left, 0, countries};
    size_t line = 0;
    pii_scan lines = {0};
    while (pii_scan_next(&whole, &find)) {
        bool found = false;

        check_find(&find, &whole, before);
        before = find.end;
        while (!found) {
            if (!lines.text) {
                const char *end = memchr(text + line, '\n', in.left - line);
                size_t length = (end ? (size_t)(end - text) : in.left) - line;

                lines = (pii_scan){text + line, length, 0, length, 0, countries};
            }
            found = pii_scan_next(&lines, &one);
            if (!found) {
                line += lines.bytes + 1;
                lines.text = NULL;
                FUZZ_CHECK(line <= in.left);
            }
        }
        FUZZ_CHECK(one.start + line == find.start && one.end + line == find.end &&
                   one.kind == find.kind && one.country == find.country &&
                   one.reserved == find.reserved);
    }
    bp_free(text);
    fuzz_end();
    return 0;
}
