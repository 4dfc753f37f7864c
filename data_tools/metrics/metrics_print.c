/* Figures for people. Called by metrics.c at its end. */
#include "metrics_print.h"

#include "base/mem.h"

#include <string.h>

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

/* The first figure of the surest texts, at a few coverages. */
static void say_coverage(FILE *out, const json_t *coverage, const char *name)
{
    static const size_t SHOWN[] = {1, 4, 9, 19}; /* twentieths, from 0 */
    const char *order;
    json_t *curve;

    json_object_foreach((json_t *)coverage, order, curve)
    {
        char *ends[] = {bp_sprintf("%s_low", name), bp_sprintf("%s_high", name)};

        fprintf(out, "%s of the surest by %s:", name,
                strcmp(order, "logprob") == 0 ? "log-probability a token"
                                              : "mutual information a token");
        for (size_t k = 0; k < sizeof SHOWN / sizeof SHOWN[0]; k++) {
            const json_t *value = json_array_get(json_object_get(curve, name), SHOWN[k]),
                         *low = json_array_get(json_object_get(curve, ends[0]), SHOWN[k]),
                         *high = json_array_get(json_object_get(curve, ends[1]), SHOWN[k]);

            fprintf(out, "%s %.0f %% %.2f", k > 0 ? "," : "",
                    100 * json_number_value(
                              json_array_get(json_object_get(curve, "coverage"), SHOWN[k])),
                    json_number_value(value));
            if (json_is_number(low))
                fprintf(out, " (%.2f to %.2f)", json_number_value(low), json_number_value(high));
        }
        fprintf(out, "\n");
        bp_free(ends[0]);
        bp_free(ends[1]);
    }
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
    say_coverage(out, json_object_get(root, "coverage"), metric->names[0]);
}
