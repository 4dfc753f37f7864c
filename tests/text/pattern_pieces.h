/* The pieces of a text by the scanner, against those of its pattern. */
#pragma once

#include "bp_test.h"
#include "pattern_twin.h"
#include "text/unicode/scan.h"
#include "text/unicode/unicode.h"

/* Pieces of text with invalid bytes: each of them alone, and each valid stretch by the pattern on
 * its own. */
static inline void compare_with_pattern(const pattern_twin *twin, const char *text, size_t bytes)
{
    const uint8_t *classes = bp_unicode_classes();
    size_t at = 0;

    while (at < bytes) {
        size_t stretch = bp_scan_valid((const uint8_t *)text + at, bytes - at);
        uint32_t code_point;

        if (bp_utf8_decode((const uint8_t *)text + at, bytes - at, &code_point) == 0) {
            assert_int_equal(bp_scan_piece(classes, (const uint8_t *)text + at, bytes - at), 1);
            at++;
            continue;
        }
        for (size_t in = 0; in < stretch;) {
            size_t expected = pattern_twin_piece(twin, text + at, stretch, in);
            size_t got = bp_scan_piece(classes, (const uint8_t *)text + at + in, bytes - at - in);

            assert_true(expected > 0);
            assert_int_equal(got, expected);
            in += expected;
        }
        at += stretch;
    }
}
