/* Text as a cell of a CSV file. */
#include "base/config/csv.h"

#include <string.h>

static size_t skip_digits(const char *text, size_t bytes, size_t at)
{
    while (at < bytes && text[at] >= '0' && text[at] <= '9')
        at++;
    return at;
}

/* As "-1", "+2.50", "-.5e-7". */
static bool is_number(const char *text, size_t bytes)
{
    size_t at = text[0] == '+' || text[0] == '-', first = at, digits;

    at = skip_digits(text, bytes, at);
    digits = at - first;
    if (at < bytes && text[at] == '.') {
        first = ++at;
        at = skip_digits(text, bytes, at);
        digits += at - first;
    }
    if (digits > 0 && at < bytes && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        at += at < bytes && (text[at] == '+' || text[at] == '-');
        first = at;
        at = skip_digits(text, bytes, at);
        digits = at - first;
    }
    return digits > 0 && at == bytes;
}

bool bp_csv_is_formula(const char *text, size_t bytes)
{
    return bytes > 1 && memchr("=+-@\t\r", text[0], 6) && !is_number(text, bytes);
}

void bp_csv_add(bp_buffer *out, const char *text, size_t bytes)
{
    bool quoted = false;

    for (size_t k = 0; k < bytes && !quoted; k++)
        quoted = memchr(",\"\n\r", text[k], 4) != NULL;
    bp_buffer_add(out, "\"", quoted);
    bp_buffer_add(out, "'", bp_csv_is_formula(text, bytes));
    for (size_t k = 0; k < bytes; k++) {
        bp_buffer_add(out, "\"", text[k] == '"');
        bp_buffer_add(out, text + k, 1);
    }
    bp_buffer_add(out, "\"", quoted);
}
