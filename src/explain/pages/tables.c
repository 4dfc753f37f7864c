/* Tables of files, and figures by layer, for pages. Called by the pages of methods of the whole
 * corpus. */
#include "explain/pages/tables.h"
#include "explain/pages/figures.h"

#include "base/mem.h"
#include "infer/score/page/page.h"

#include <math.h>
#include <string.h>

bp_err explain_table_read(bp_h5 *h5, const char *name, bp_h5_type type, void **out, int64_t *rows,
                          int64_t *columns)
{
    bp_h5_shape shape = {0};
    bp_err err = bp_h5_shape_of(h5, name, &shape);
    int64_t across = shape.columns > 0 ? shape.columns : 1, cells = shape.count;

    *out = NULL;
    if (err != BP_OK)
        return err;
    *out = bp_try_alloc("explain.page", cells, bp_h5_type_bytes(type));
    if (!*out)
        return bp_fail_memory("a table of a page", cells, bp_h5_type_bytes(type));
    if (rows)
        *rows = cells / across;
    if (columns)
        *columns = across;
    return cells > 0 ? bp_h5_read(h5, name, type, 0, *out, cells) : BP_OK;
}

/* Is it a figure of each layer? */
static bool is_by_layer(const char *name, const json_t *values, size_t layers)
{
    return strcmp(name, "layers") != 0 && json_is_array(values) &&
           json_array_size(values) == layers &&
           (layers == 0 || !json_is_object(json_array_get(values, 0)));
}

static json_t *cells_of(const json_t *figures, size_t at, size_t layers)
{
    json_t *cells = json_array(), *values;
    const char *name;

    json_object_foreach((json_t *)figures, name, values)
    {
        const json_t *value = json_array_get(values, at);
        json_t *cell;

        if (!is_by_layer(name, values, layers))
            continue;
        cell = json_object();
        if (json_is_integer(value))
            (void)json_object_set(cell, "value", (json_t *)value);
        else
            bp_score_page_add_value(cell, "value", "%.4f",
                                    json_is_number(value) ? json_number_value(value) : NAN);
        (void)json_array_append_new(cells, cell);
    }
    return cells;
}

void explain_add_layers(json_t *data, json_t *page, const json_t *figures)
{
    const json_t *layers = json_object_get(figures, "layers");
    size_t count = json_array_size(layers);
    json_t *series = json_array(), *titles = json_array(), *rows = json_array(), *values;
    const char *name;

    json_object_foreach((json_t *)figures, name, values)
    {
        if (!is_by_layer(name, values, count))
            continue;
        (void)json_array_append_new(titles, explain_worded(name));
        if (count == 0 || !json_is_integer(json_array_get(values, 0)))
            (void)json_array_append_new(series, json_pack("{ss so sO}", "name", name, "title",
                                                          explain_worded(name), "values", values));
    }
    for (size_t at = 0; at < count; at++)
        (void)json_array_append_new(rows, json_pack("{sO so}", "layer", json_array_get(layers, at),
                                                    "cells", cells_of(figures, at, count)));
    (void)json_object_set(data, "layers", (json_t *)layers);
    (void)json_object_set_new(data, "figures", series);
    (void)json_object_set_new(page, "layers", json_pack("{so so}", "titles", titles, "rows", rows));
}
