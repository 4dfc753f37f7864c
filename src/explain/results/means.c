/* Means over the corpus, by layer or by head, with intervals over documents. While documents are
 * read, `figures` has the sums of the current one ("open") and of all earlier ones ("sums"). Called
 * by methods and method_files.c. */
#include "explain/method.h"

#include <math.h>

#define OPEN  "open"
#define SUMS  "sums"
#define PARTS 6 /* numbers of a bp_ratio */

/* The list `name` of figures[kind], created with `count` zeros if there is none. */
static json_t *list_of(json_t *figures, const char *kind, const char *name, int64_t count)
{
    json_t *lists = json_object_get(figures, kind), *list;

    if (!lists) {
        lists = json_object();
        (void)json_object_set_new(figures, kind, lists);
    }
    list = json_object_get(lists, name);
    if (!list) {
        list = json_array();
        (void)json_object_set_new(lists, name, list);
        for (int64_t k = 0; k < count; k++)
            (void)json_array_append_new(list, json_real(0));
    }
    return list;
}

static double get(const json_t *list, size_t k)
{
    return json_real_value(json_array_get(list, k));
}

void bp_explain_add(json_t *figures, const char *name, int64_t count, const float *means,
                    double weight)
{
    json_t *open = list_of(figures, OPEN, name, count + 1);

    for (int64_t k = 0; k <= count && weight > 0; k++) {
        double more = k < count ? (double)means[k] * weight : weight;

        (void)json_array_set_new(open, (size_t)k, json_real(get(open, (size_t)k) + more));
    }
}

static bp_ratio read_ratio(const json_t *list, size_t k)
{
    return (bp_ratio){.sum = get(list, PARTS * k),
                      .weight = get(list, PARTS * k + 1),
                      .square = get(list, PARTS * k + 2),
                      .cross = get(list, PARTS * k + 3),
                      .weight_square = get(list, PARTS * k + 4),
                      .documents = get(list, PARTS * k + 5)};
}

static void write_ratio(json_t *list, size_t k, const bp_ratio *ratio)
{
    const double parts[PARTS] = {ratio->sum,   ratio->weight,        ratio->square,
                                 ratio->cross, ratio->weight_square, ratio->documents};

    for (size_t p = 0; p < PARTS; p++)
        (void)json_array_set_new(list, PARTS * k + p, json_real(parts[p]));
}

void bp_explain_end_document(json_t *figures)
{
    json_t *lists = json_object_get(figures, OPEN), *open;
    const char *name;

    json_object_foreach(lists, name, open)
    {
        size_t count = json_array_size(open) - 1;
        json_t *sums = list_of(figures, SUMS, name, (int64_t)(PARTS * count));

        for (size_t k = 0; k < count; k++) {
            bp_ratio ratio = read_ratio(sums, k);

            bp_ratio_add(&ratio, get(open, k), get(open, count));
            write_ratio(sums, k, &ratio);
        }
    }
    (void)json_object_del(figures, OPEN);
}

json_t *bp_explain_interval(const bp_ratio *ratio)
{
    bp_interval interval = bp_ratio_interval(ratio);

    return isfinite(interval.low) ? json_pack("[ff]", interval.low, interval.high) : json_null();
}

void bp_explain_means(json_t *figures)
{
    json_t *lists = json_incref(json_object_get(figures, SUMS)), *sums, *intervals = json_object();
    const char *name;

    json_object_foreach(lists, name, sums)
    {
        json_t *means = json_array(), *ranges = json_array();

        for (size_t k = 0; k < json_array_size(sums) / PARTS; k++) {
            bp_ratio ratio = read_ratio(sums, k);

            (void)json_array_append_new(means, bp_json_real(bp_ratio_mean(&ratio)));
            (void)json_array_append_new(ranges, bp_explain_interval(&ratio));
        }
        (void)json_object_set_new(figures, name, means);
        (void)json_object_set_new(intervals, name, ranges);
    }
    (void)json_object_del(figures, SUMS);
    (void)json_object_set_new(figures, "intervals", intervals);
    json_decref(lists);
}
