/* Positions of the corpus with their contexts, as shown on pages. Called by the pages of maps, of
 * memories and of similarity. */
#include "explain/pages/contexts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define AROUND 48 /* bytes of context on either side */

/* The text of spans [first, end) that is nearest to one of the ends, at most AROUND bytes. */
static json_t *text_of(const explain_spans *spans, int64_t first, int64_t end, bool at_end)
{
    size_t bytes = 0;

    for (int64_t s = end; at_end && s > first; s--) {
        bytes += spans->list[s - 1].bytes + spans->list[s - 1].space;
        if (bytes > AROUND)
            first = s;
    }
    return explain_spans_text(spans, first, end, AROUND);
}

/* The texts of positions [k, end), which are of one document. */
static bp_err add_texts(json_t *data, const explain_gathered *gathered,
                        const bp_explained *document, const explain_place *positions, int64_t k,
                        int64_t end)
{
    json_t *token = json_object_get(data, "token"), *before = json_object_get(data, "before"),
           *after = json_object_get(data, "after");
    explain_spans spans;
    bp_err err = explain_spans_of(&spans, &gathered->speller, document->inputs, document->T);

    for (int64_t s = 0; k < end && err == BP_OK; k++) {
        int64_t place = positions[k].place;
        const explain_span *span;

        while (s + 1 < spans.count && spans.list[s + 1].first <= place)
            s++;
        span = &spans.list[s];
        (void)json_array_append_new(
            token,
            json_stringn(spans.texts.data ? spans.texts.data + span->text : "", span->bytes));
        (void)json_array_append_new(before, text_of(&spans, 0, s, true));
        (void)json_array_append_new(after, text_of(&spans, s + 1, spans.count, false));
        (void)json_array_append_new(json_object_get(data, "place"),
                                    json_integer((json_int_t)place));
    }
    explain_spans_clear(&spans);
    return err;
}

/* A document's value of each label: labels.NAME[documents]; "" if it has none. */
static bp_err add_labels(json_t *labels, const explainer *self, int64_t number, size_t index)
{
    int64_t own;
    bp_corpus_file *file = explain_file_of(self, number, &own);
    bp_err err = BP_OK;
    const char *name;
    json_t *list;

    for (int k = 0; file && k < bp_corpus_file_info(file)->labels && err == BP_OK; k++) {
        bp_corpus_label label;

        err = bp_corpus_file_label(file, k, &label);
        if (err != BP_OK)
            break;
        list = json_object_get(labels, label.name);
        if (!list)
            (void)json_object_set_new(labels, label.name, list = json_array());
        while (json_array_size(list) < index)
            (void)json_array_append_new(list, json_string(""));
        (void)json_array_append_new(list, bp_json_string(label.values[label.codes[own]]));
    }
    json_object_foreach(labels, name, list) while (json_array_size(list) <= index)(void)
        json_array_append_new(list, json_string(""));
    return err;
}

bp_err explain_contexts_add(json_t *data, explainer *self, const explain_gathered *gathered,
                            const explain_place *positions, int64_t count)
{
    static const char *const LISTS[] = {"token", "before",   "after",
                                        "place", "document", "documents"};
    explain_reading read;
    bp_err err = BP_OK;

    for (size_t k = 0; k < sizeof LISTS / sizeof LISTS[0]; k++)
        (void)json_object_set_new(data, LISTS[k], json_array());
    (void)json_object_set_new(data, "labels", json_object());
    json_t *of = json_object_get(data, "document"), *ids = json_object_get(data, "documents");

    explain_reading_new(&read, &self->texts);
    for (int64_t k = 0, end; k < count && err == BP_OK; k = end) {
        int64_t number = positions[k].document;

        for (end = k; end < count && positions[end].document == number; end++)
            (void)json_array_append_new(of, json_integer((json_int_t)json_array_size(ids)));
        err = explain_texts_read(&self->texts, number, &read);
        if (err == BP_OK)
            err = add_texts(data, gathered, &read.document, positions, k, end);
        if (err == BP_OK)
            err = add_labels(json_object_get(data, "labels"), self, number, json_array_size(ids));
        (void)json_array_append_new(ids, explain_id_of(self, number));
    }
    explain_reading_clear(&read);
    return err;
}

/* ---- lists of positions ---- */

static int by_place(const void *a, const void *b)
{
    const explain_place *x = a, *y = b;

    if (x->document != y->document)
        return x->document < y->document ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

int64_t explain_positions_sort(explain_place *positions, int64_t count)
{
    int64_t kept = 0;

    qsort(positions, (size_t)count, sizeof *positions, by_place);
    for (int64_t k = 0; k < count; k++)
        if (kept == 0 || by_place(&positions[kept - 1], &positions[k]) != 0)
            positions[kept++] = positions[k];
    return kept;
}

int64_t explain_positions_find(const explain_place *positions, int64_t count, explain_place place)
{
    const explain_place *found =
        count > 0 ? bsearch(&place, positions, (size_t)count, sizeof *positions, by_place) : NULL;

    return found ? found - positions : -1;
}

void explain_names_add(json_t *names, const explain_speller *speller, int64_t id)
{
    char key[24];

    (void)snprintf(key, sizeof key, "%" PRId64, id);
    if (id >= 0 && !json_object_get(names, key))
        (void)json_object_set_new(names, key, explain_token_json(speller, id));
}
