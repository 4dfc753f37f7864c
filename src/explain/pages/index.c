/* index.html: summary.json as tables, with the examples. Called by method_files.c. */
#include "explain/pages/figures.h"
#include "explain/pages/pages.h"

#include "base/mem.h"
#include "infer/score/page/page.h"

#include <math.h>
#include <string.h>

static bool is_known(const json_t *interval)
{
    return json_is_number(json_array_get(interval, 0));
}

/* A figure as text, rounded by the width of its interval. */
static void put_figure(json_t *cell, const json_t *value, const json_t *interval)
{
    double low = json_number_value(json_array_get(interval, 0)),
           high = json_number_value(json_array_get(interval, 1)),
           error = is_known(interval) ? (high - low) / 2 : NAN;

    if (!json_is_number(value))
        return;
    bp_score_page_add_figure(cell, "value", json_number_value(value), error);
    if (is_known(interval)) {
        bp_score_page_add_figure(cell, "low", low, error);
        bp_score_page_add_figure(cell, "high", high, error);
    }
}

/* ---- figures by head ---- */

static double largest_of(const json_t *list)
{
    double most = 0;
    const json_t *value;
    size_t k;

    json_array_foreach(list, k, value) most = fmax(most, fabs(json_number_value(value)));
    return most;
}

static json_t *grid_row(const json_t *values, const json_t *intervals, int64_t layer, int64_t heads)
{
    json_t *cells = json_array();
    double most = largest_of(values);

    for (int64_t h = 0; h < heads; h++) {
        size_t k = (size_t)(layer * heads + h);
        const json_t *value = json_array_get(values, k);
        json_t *cell = json_object();

        put_figure(cell, value, json_array_get(intervals, k));
        bp_score_page_add_value(cell, "share", "%.3f",
                                most > 0 ? fabs(json_number_value(value)) / most : 0);
        (void)json_array_append_new(cells, cell);
    }
    return json_pack("{sI so}", "layer", (json_int_t)layer, "cells", cells);
}

/* The page of a document; null if it has none. */
static json_t *page_of(const explain_gathered *gathered, const json_t *document)
{
    const json_t *example;
    size_t k;

    json_array_foreach(
        gathered->examples, k,
        example) if (json_equal(json_object_get(example, "document"),
                                document)) return json_incref(json_object_get(example, "page"));
    return json_null();
}

static json_t *largest_rows(const explain_gathered *gathered, const json_t *list)
{
    json_t *rows = json_array(), *one;
    size_t k;

    json_array_foreach((json_t *)list, k, one)
    {
        json_t *row = json_copy(one);

        put_figure(row, json_object_get(one, "value"), NULL);
        (void)json_object_set_new(row, "page", page_of(gathered, json_object_get(one, "document")));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* Where the first token is the only separator, weights on separators are those on it: the title of
 * that table; else null. */
static json_t *equal_to(const json_t *figures, const char *name, bool pairs)
{
    static const char SEPARATORS[] = "separators", FIRST[] = "first";
    size_t before = strlen(name) - strlen(SEPARATORS);
    char *first;
    json_t *title = NULL;

    if (strlen(name) < strlen(SEPARATORS) || strcmp(name + before, SEPARATORS) != 0)
        return json_null();
    first = bp_sprintf("%.*s%s", (int)before, name, FIRST);
    if (json_equal(json_object_get(figures, name), json_object_get(figures, first)))
        title = explain_head_title(first, pairs);
    bp_free(first);
    return title ? title : json_null();
}

static json_t *grid_of(const explain_gathered *gathered, const explainer *self,
                       const json_t *figures, const char *name, int64_t layers)
{
    bool pairs = self->settings.info->source_layers > 0;
    const json_t *values = json_object_get(figures, name),
                 *intervals = json_object_get(json_object_get(figures, "intervals"), name);
    json_t *heads = json_array(), *rows = json_array(), *largest;

    for (int64_t h = 0; h < self->settings.info->heads; h++)
        (void)json_array_append_new(heads, json_integer(h));
    for (int64_t l = 0; l < layers; l++)
        (void)json_array_append_new(rows,
                                    grid_row(values, intervals, l, self->settings.info->heads));
    largest = largest_rows(gathered, json_object_get(json_object_get(figures, "largest"), name));
    return json_pack("{so so so so so sb so}", "name", explain_head_title(name, pairs), "meaning",
                     explain_head_meaning(name), "equal", equal_to(figures, name, pairs), "heads",
                     heads, "rows", rows, "has_largest", json_array_size(largest) > 0, "largest",
                     largest);
}

/* ---- figures by layer, and others ---- */

static json_t *layers_of(const explainer *self, const json_t *figures)
{
    json_t *titles = json_array(), *rows = json_array(), *list;
    const char *name;

    for (int64_t l = 0; l <= self->settings.info->layers; l++) {
        json_t *cells = json_array();

        json_object_foreach((json_t *)figures, name, list)
        {
            json_t *cell = json_object();

            if (!json_object_get(json_object_get(figures, "intervals"), name) ||
                json_array_size(list) != (size_t)self->settings.info->layers + 1) {
                json_decref(cell);
                continue;
            }
            if (l == 0)
                (void)json_array_append_new(titles, explain_worded(name));
            put_figure(cell, json_array_get(list, (size_t)l),
                       json_array_get(json_object_get(json_object_get(figures, "intervals"), name),
                                      (size_t)l));
            (void)json_array_append_new(cells, cell);
        }
        (void)json_array_append_new(rows,
                                    json_pack("{sI so}", "layer", (json_int_t)l, "cells", cells));
    }
    if (json_array_size(titles) > 0)
        return json_pack("{so so}", "titles", titles, "rows", rows);
    json_decref(titles);
    json_decref(rows);
    return json_null();
}

/* A number, or the only one of a list that is not by layer or head. */
static const json_t *number_in(const bp_explain_method *method, const char *name,
                               const json_t *value)
{
    if (!json_is_array(value) || json_array_size(value) != 1)
        return value;
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++)
        if (strcmp(method->arrays[k].name, name) == 0 &&
            method->arrays[k].shape != BP_EXPLAIN_BY_DOCUMENT)
            return value;
    return json_array_get(value, 0);
}

static json_t *scalars_of(const bp_explain_method *method, const json_t *figures)
{
    json_t *rows = json_array(), *value;
    const char *name;

    json_object_foreach((json_t *)figures, name, value)
    {
        const json_t *range = json_object_get(json_object_get(figures, "intervals"), name);
        json_t *row = json_pack("{so}", "name", explain_worded(name));

        if (json_is_integer(value))
            (void)json_object_set(row, "value", value);
        else
            put_figure(row, number_in(method, name, value),
                       json_is_array(value) ? json_array_get(range, 0) : range);
        if (json_object_get(row, "value"))
            (void)json_array_append(rows, row);
        json_decref(row);
    }
    return rows;
}

/* ---- words ---- */

static json_t *word_rows(const json_t *list)
{
    json_t *rows = json_array(), *one;
    size_t k;

    json_array_foreach((json_t *)list, k, one)
    {
        json_t *row = json_copy(one);

        put_figure(row, json_object_get(one, "mean"), json_object_get(one, "interval"));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* The name of a method's array in lists. */
static const char *title_of(const bp_explain_method *method, const char *name)
{
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++)
        if (strcmp(method->arrays[k].name, name) == 0)
            return explain_matrix_title(method, &method->arrays[k]);
    return name;
}

/* Entries without a word are omitted. of: "source" or "target"; NULL: inputs of one text. */
static void add_words(json_t *tables, const char *name, const char *of, const char *outcome,
                      const json_t *lists)
{
    const json_t *largest = json_object_get(lists, "largest"),
                 *smallest = json_object_get(lists, "smallest");
    bool raised = json_array_size(largest) > 0, lowered = json_array_size(smallest) > 0;

    if (raised || lowered)
        (void)json_array_append_new(tables, json_pack("{so ss* ss* sb so sb so}", "name",
                                                      explain_worded(name), "of", of, "outcome",
                                                      outcome, "raised", (int)raised, "largest",
                                                      word_rows(largest), "signed", (int)lowered,
                                                      "smallest", word_rows(smallest)));
}

/* pairs: documents have a source and a target. */
static json_t *words_of(const bp_explain_method *method, const json_t *figures, bool pairs)
{
    static const char SOURCE[] = "source_"; /* before the names of arrays over sources */
    json_t *tables = json_array(), *lists, *list;
    const char *name, *outcome;

    json_object_foreach(json_object_get(figures, "words"), name, lists)
    {
        bool of_source = strncmp(name, SOURCE, strlen(SOURCE)) == 0;
        const char *title = title_of(method, name), *of = !pairs      ? NULL
                                                          : of_source ? "source"
                                                                      : "target";

        if (strncmp(title, SOURCE, strlen(SOURCE)) == 0)
            title += strlen(SOURCE);
        if (json_is_array(json_object_get(lists, "largest")))
            add_words(tables, title, of, NULL, lists);
        else
            json_object_foreach(lists, outcome, list) add_words(tables, title, of, outcome, list);
    }
    return tables;
}

/* ---- all ---- */

/* ---- faithfulness of methods ---- */

static json_t *curve_of(const json_t *of)
{
    json_t *cell = json_object(), *shares = json_array(), *value;
    size_t k;

    put_figure(cell, json_object_get(of, "mean"), json_object_get(of, "interval"));
    json_array_foreach(json_object_get(of, "by_share"), k, value)
    {
        json_t *share = json_object();

        put_figure(share, value, json_array_get(json_object_get(of, "share_intervals"), k));
        (void)json_array_append_new(shares, share);
    }
    (void)json_object_set_new(cell, "shares", shares);
    return cell;
}

/* One row per measured method; null if there is none. */
static json_t *curves_of(const json_t *figures)
{
    json_t *rows = json_array(), *titles = json_array(), *value;
    size_t k;

    json_array_foreach(json_object_get(figures, "shares"), k, value)
    {
        char *title = bp_sprintf("%g %%", 100 * json_number_value(value));

        (void)json_array_append_new(titles, json_string(title));
        bp_free(title);
    }
    json_array_foreach(json_object_get(figures, "rows"), k, value)
    {
        const json_t *of = json_object_get(figures, json_string_value(value));

        (void)json_array_append_new(
            rows, json_pack("{sO so so}", "name", value, "without",
                            curve_of(json_object_get(of, "comprehensiveness")), "alone",
                            curve_of(json_object_get(of, "sufficiency"))));
    }
    if (json_array_size(rows) > 0)
        return json_pack("{so so}", "titles", titles, "rows", rows);
    json_decref(titles);
    json_decref(rows);
    return json_null();
}

/* Targets whose integrated gradients do not sum to what they should; null if there are none. */
static json_t *flagged_of(const explainer *self, const json_t *figures)
{
    json_t *flagged = json_object_get(figures, "flagged");

    return json_integer_value(flagged) > 0 ? json_pack("{sO sO sI}", "count", flagged, "targets",
                                                       json_object_get(figures, "targets"), "steps",
                                                       (json_int_t)self->settings.steps)
                                           : json_null();
}

/* member: the ensemble's member of these figures; NULL: the model, or the mean. */
static json_t *method_of(const explain_gathered *gathered, explainer *self, int m,
                         const json_t *figures, const char *member)
{
    const bp_explain_method *method = self->methods[m];
    json_t *grids = json_array();

    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++) {
        const char *name = method->arrays[k].name;
        int64_t layers = bp_explain_head_layers(&method->arrays[k], self->settings.info);

        if (layers > 0 && json_is_array(json_object_get(figures, name)))
            (void)json_array_append_new(grids, grid_of(gathered, self, figures, name, layers));
    }
    json_t *scalars = scalars_of(method, figures);

    return json_pack("{sb ss ss ss so so so so so so so so}", "has_scalars",
                     json_array_size(scalars) > 0, "name", method->name, "title", method->title,
                     "help", method->help, "flagged", flagged_of(self, figures), "member",
                     member ? bp_json_string(member) : json_null(), "own",
                     explain_page_of(gathered, self, method, figures), "grids", grids, "layers",
                     layers_of(self, figures), "scalars", scalars, "words",
                     words_of(method, figures,
                              self->settings.info->source_layers > 0 &&
                                  !bp_task_has_head(&self->settings.info->task)),
                     "curves", curves_of(figures));
}

static json_t *agreement_of(const json_t *list)
{
    json_t *rows = json_array(), *one;
    size_t k;

    json_array_foreach((json_t *)list, k, one)
    {
        json_t *row = json_copy(one);

        for (int s = 0; s < 2; s++) {
            const char *side = s == 0 ? "one" : "other",
                       *name = json_string_value(json_object_get(one, side));

            (void)json_object_set_new(row, side, explain_worded(name ? name : ""));
        }
        put_figure(row, json_object_get(one, "spearman"), json_object_get(one, "interval"));
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

/* The target explained for each prediction. */
static const char *target_of(const explainer *self)
{
    static const char *const WORDS[] = {[EXPLAIN_NEXT] = "the token that follows",
                                        [EXPLAIN_BEST] = "the outcome that the model prefers",
                                        [EXPLAIN_LABEL] = "the outcome that the corpus has",
                                        [EXPLAIN_EVERY] = "each outcome",
                                        [EXPLAIN_CLASS] = "one outcome",
                                        [EXPLAIN_HIDDEN] = "the token that is masked"};
    const bp_model_info *info = self->settings.info;

    if (self->target == EXPLAIN_NEXT && info->reads_source && !bp_task_has_head(&info->task))
        return bp_explain_keys_of(self->job->config)->texts
                   ? "the token that follows in what generate wrote"
                   : "the token that follows in the corpus's target, not in what the model writes";
    return WORDS[self->target];
}

/* Does a method explain predictions? Others look at states of the whole corpus. */
static bool has_targets(const explainer *self)
{
    for (int m = 0; m < self->count; m++)
        if (!self->methods[m]->merge)
            return true;
    return false;
}

/* Documents of which the model gives values that are not finite; null if there are none. */
static json_t *not_finite(const json_t *summary)
{
    json_t *count = json_object_get(summary, "not_finite");

    return json_integer_value(count) > 0 ? json_incref(count) : json_null();
}

void explain_index_write(const explain_gathered *gathered, explainer *self, const json_t *summary)
{
    const bp_explain_keys *keys = bp_explain_keys_of(self->job->config);
    json_t *methods = json_array(),
           *agreement = agreement_of(json_object_get(summary, "agreement")),
           *page = json_pack("{so so so so so sI sI ss sb so sb sO}", "writer",
                             self->texts.writer ? bp_score_page_text(self->texts.writer,
                                                                     strlen(self->texts.writer))
                                                : json_null(),
                             "title", explain_title(keys->model, NULL), "model",
                             bp_score_page_text(keys->model, strlen(keys->model)), "methods",
                             methods, "not_finite", not_finite(summary), "documents",
                             (json_int_t)self->texts.documents, "targets",
                             (json_int_t)self->texts.targets, "target", target_of(self), "agrees",
                             json_array_size(agreement) > 0, "agreement", agreement, "has_examples",
                             json_array_size(gathered->listed) > 0, "examples", gathered->listed);

    for (int m = 0; m < self->count; m++) {
        const json_t *figures =
            json_object_get(json_object_get(summary, "methods"), self->methods[m]->name);
        json_t *own;
        const char *name;

        json_object_foreach(json_object_get(figures, "members"), name, own)(void)
            json_array_append_new(methods, method_of(gathered, self, m, own, name));
        if (!json_object_get(figures, "members"))
            (void)json_array_append_new(methods, method_of(gathered, self, m, figures, NULL));
    }
    (void)json_object_set_new(page, "of_targets", json_boolean(has_targets(self)));
    (void)json_object_set_new(page, "no_examples",
                              json_boolean(json_array_size(gathered->listed) == 0));
    bp_work_write_page(self->job, "explain", page, BP_OK);
}
