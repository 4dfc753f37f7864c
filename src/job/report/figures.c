/* Figures as text for pages and people. */
#include "job/report/figures.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

#define DECIMALS_MOST 6

/* Decimals that show that many digits of a value; 0 if it has no digits. */
static int decimals_for(double value, int digits)
{
    int wanted = value != 0 && isfinite(value) ? digits - 1 - (int)floor(log10(fabs(value))) : 0;

    return wanted < 0 ? 0 : wanted > DECIMALS_MOST ? DECIMALS_MOST : wanted;
}

char *bp_report_figure(double value, double error, bool difference)
{
    bool has_error = isfinite(error) && error != 0;
    int decimals = value == 0 ? 3 : decimals_for(value, has_error ? 3 : 4);
    int of_error = has_error ? decimals_for(error, 2) : 0;
    char *text, *out;

    if (!isfinite(value))
        return NULL;
    text =
        bp_sprintf(difference ? "%+.*f" : "%.*f", of_error > decimals ? of_error : decimals, value);
    out = bp_report_thousands(text);
    bp_free(text);
    return out;
}

char *bp_report_thousands(const char *digits)
{
    size_t first = strcspn(digits, "0123456789"), count = strspn(digits + first, "0123456789");
    bp_buffer out = {0};

    bp_buffer_add(&out, digits, first);
    for (size_t k = 0; k < count; k++) {
        if (k > 0 && (count - k) % 3 == 0)
            bp_buffer_add(&out, ",", 1);
        bp_buffer_add(&out, digits + first + k, 1);
    }
    bp_buffer_printf(&out, "%s", digits + first + count);
    return bp_buffer_take(&out);
}
