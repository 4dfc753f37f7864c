/* Figures for people. Called by metrics.c at its end. */
#include "metrics_print.h"

/* A figure without an interval (of less than two documents) has none here either. */
static void say_interval(FILE *out, const char *before, const json_t *figure)
{
    const json_t *low = json_object_get(figure, "low"), *high = json_object_get(figure, "high");

    if (json_is_number(low) && json_is_number(high))
        fprintf(out, "%s%.4f to %.4f)", before, json_number_value(low), json_number_value(high));
}

static void say_difference(FILE *out, const json_t *other, const json_t *difference)
{
    const json_t *value = json_object_get(other, "value"),
                 *p_value = json_object_get(difference, "p_value");

    if (!json_is_number(value))
        return;
    fprintf(out, "%15s %8.4f  difference %.4f", "against", json_number_value(value),
            json_number_value(json_object_get(difference, "value")));
    say_interval(out, " (", difference);
    if (json_is_number(p_value))
        fprintf(out, ", p = %.3f", json_number_value(p_value));
    fprintf(out, "\n");
}

void metrics_print(FILE *out, const json_t *root, const bp_metric *metric)
{
    json_t *figures = json_object_get(root, "figures"), *against = json_object_get(root, "against"),
           *differences = json_object_get(root, "difference");

    for (int64_t k = 0; k < metric->width; k++) {
        const char *name = metric->names[k];
        const json_t *one = json_object_get(figures, name),
                     *difference = json_object_get(differences, name);

        if (!json_is_number(json_object_get(one, "value")))
            continue;
        fprintf(out, "%-15s %8.4f", name, json_number_value(json_object_get(one, "value")));
        say_interval(out, "  (95 % interval ", one);
        fprintf(out, "\n");
        if (difference)
            say_difference(out, json_object_get(against, name), difference);
    }
}
