/* The grammar is checked here; the C library rounds, in the locale "C". */
#include "base/config/decimal.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 400 /* enough for a double in full */

static locale_t plain;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_plain(void)
{
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static size_t digits_at(const char *text, size_t bytes, size_t at)
{
    size_t count = 0;

    while (at + count < bytes && text[at + count] >= '0' && text[at + count] <= '9')
        count++;
    return count;
}

static size_t sign_at(const char *text, size_t bytes, size_t at)
{
    return at < bytes && (text[at] == '+' || text[at] == '-') ? 1 : 0;
}

static bool is_decimal(const char *text, size_t bytes)
{
    size_t at = sign_at(text, bytes, 0), digits = digits_at(text, bytes, at);

    at += digits;
    if (at < bytes && text[at] == '.') {
        size_t after = digits_at(text, bytes, at + 1);

        at += 1 + after;
        digits += after;
    }
    if (digits == 0)
        return false;
    if (at < bytes && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        at += sign_at(text, bytes, at);
        digits = digits_at(text, bytes, at);
        at += digits;
    }
    return digits > 0 && at == bytes;
}

/* With a zero byte after it. */
static bool copy_decimal(char copy[NUMBER_BYTES], const char *text, size_t bytes)
{
    if (bytes >= NUMBER_BYTES || !is_decimal(text, bytes))
        return false;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    (void)pthread_once(&once, make_plain);
    return true;
}

bool bp_decimal(double *value, const char *text, size_t bytes)
{
    char copy[NUMBER_BYTES];

    *value = 0;
    if (!copy_decimal(copy, text, bytes))
        return false;
    *value = plain ? strtod_l(copy, NULL, plain) : strtod(copy, NULL);
    if (isfinite(*value))
        return true;
    *value = 0;
    return false;
}

bool bp_decimal_float(float *value, const char *text, size_t bytes)
{
    char copy[NUMBER_BYTES];

    *value = 0;
    if (!copy_decimal(copy, text, bytes))
        return false;
    *value = plain ? strtof_l(copy, NULL, plain) : strtof(copy, NULL);
    if (isfinite(*value))
        return true;
    *value = 0;
    return false;
}
