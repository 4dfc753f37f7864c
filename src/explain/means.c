/* Means over the corpus, by layer or by head: sums in the lists of a method's figures, and how many
 * values went into each. Called by methods. */
#include "explain/method.h"

void bp_explain_add(json_t *figures, const char *name, int64_t count, const float *means,
                    double weight)
{
    json_t *list = json_object_get(figures, name);

    if (!list) {
        list = json_array();
        (void)json_object_set_new(figures, name, list);
        for (int64_t k = 0; k <= count; k++)
            (void)json_array_append_new(list, json_real(0));
    }
    for (int64_t k = 0; k <= count && weight > 0; k++) {
        double sum = json_real_value(json_array_get(list, (size_t)k)),
               more = k < count ? (double)means[k] * weight : weight;

        (void)json_array_set_new(list, (size_t)k, json_real(sum + more));
    }
}

void bp_explain_means(json_t *figures)
{
    const char *name;
    json_t *list;

    json_object_foreach(figures, name, list)
    {
        size_t count = json_array_size(list) - 1;
        double weight = json_real_value(json_array_get(list, count));

        (void)json_array_remove(list, count);
        for (size_t k = 0; k < count; k++)
            (void)json_array_set_new(
                list, k,
                weight > 0 ? json_real(json_real_value(json_array_get(list, k)) / weight)
                           : json_null());
    }
}
