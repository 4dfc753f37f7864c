/* Columns of the tables that `bagpipe-data compare` prints. */
#include "comparison_columns.h"

#include "file_tool.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void put_name(const char *text, int width)
{
    int own = text_width(text);

    printf("%s%*s", text, own < width ? width - own : 0, "");
}

void put_number(int width, int digits, double value)
{
    if (isfinite(value))
        printf(" %*.*f", width, digits, value);
    else
        printf(" %*s", width, "-");
}

void put_interval(int width, bp_interval interval, int digits, const char *format)
{
    char text[80] = "-";

    if (isfinite(interval.low))
        (void)snprintf(text, sizeof text, format, digits, interval.low, digits, interval.high);
    printf("  %-*s", width, text);
}

void put_p_value(double p)
{
    if (isnan(p))
        printf(" %6s", "-");
    else if (p < 0.001)
        printf(" %6s", "<0.001");
    else
        printf(" %6.3f", p);
}

void put_side(const char *name, const score_folder *scores)
{
    const json_t *model = json_object_get(scores->summary, "model");
    const char *digest = json_string_value(json_object_get(model, "digest"));

    printf("%s: ", name);
    put_clean(scores->given, SIZE_MAX, "");
    printf(" (model ");
    put_clean(digest ? digest : "unknown", 12, "");
    printf(", step %" PRId64 ")\n", (int64_t)json_integer_value(json_object_get(model, "step")));
}
