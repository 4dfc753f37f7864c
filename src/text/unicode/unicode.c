/* Properties of code points, from the table in unicode_table.c. */
#include "text/unicode/unicode.h"
#include "base/err.h"

#include <pthread.h>
#include <stdbool.h>

static uint8_t classes[BP_CODE_POINTS];
static pthread_once_t classes_once = PTHREAD_ONCE_INIT;

/* Unicode's property White_Space (PropList.txt); it has not changed since Unicode 6.3. */
static bool is_white_space(uint32_t code_point)
{
    return (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x20 || code_point == 0x85 ||
           code_point == 0xA0 || code_point == 0x1680 ||
           (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
           code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
           code_point == 0x3000;
}

static void fill_ranges(const bp_code_range *ranges, int count, uint8_t class)
{
    for (int k = 0; k < count; k++)
        for (uint32_t code_point = ranges[k].first; code_point <= ranges[k].last; code_point++)
            classes[code_point] = class;
}

static void fill_classes(void)
{
    fill_ranges(bp_letter_ranges, bp_letter_ranges_count, BP_CLASS_LETTER);
    fill_ranges(bp_number_ranges, bp_number_ranges_count, BP_CLASS_NUMBER);
    for (uint32_t code_point = 0; code_point <= 0x3000; code_point++)
        if (is_white_space(code_point))
            classes[code_point] = BP_CLASS_SPACE | BP_CLASS_RUN;
    for (uint32_t code_point = 0x1C; code_point <= 0x1F; code_point++)
        classes[code_point] = BP_CLASS_OTHER | BP_CLASS_RUN;
}

const uint8_t *bp_unicode_classes(void)
{
    BP_CHECK(pthread_once(&classes_once, fill_classes) == 0);
    return classes;
}

size_t bp_utf8_encode(uint8_t *out, uint32_t code_point)
{
    size_t length = code_point < 0x80 ? 1 : code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};

    for (size_t k = length - 1; k > 0; k--) {
        out[k] = (uint8_t)(0x80 | (code_point & 0x3F));
        code_point >>= 6;
    }
    out[0] = (uint8_t)(lead[length] | code_point);
    return length;
}

/* A lead byte is never inside another sequence, so whatever comes before, the bytes of a
 * White_Space character are that character: looking back needs no synchronisation. */
size_t bp_space_before(const uint8_t *text, size_t end)
{
    const uint8_t *unicode = bp_unicode_classes();
    size_t longest = end < 3 ? end : 3; /* the longest White_Space has three bytes */

    for (size_t length = 1; length <= longest; length++) {
        uint32_t code_point;

        if (bp_utf8_decode(text + end - length, length, &code_point) == length)
            return (unicode[code_point] & BP_CLASS_MASK) == BP_CLASS_SPACE ? length : 0;
    }
    return 0;
}
