/* Documents in the order of the merge: pages of examples, words, comparison of methods. Called by
 * method_files.c. */
#include "explain/pages/gather.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/page/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST     5  /* documents of each statistic of heads */
#define BEGIN_SPANS 24 /* of a document's text, in lists */
#define MOST_GROUPS 32 /* classes whose words are listed */
#define ID_BYTES    1025

bp_err explain_gather_begin(explain_gathered *gathered, const explainer *self)
{
    const bp_task_shape *task = &self->job->info.task;
    bp_err err;

    gathered->outcomes = explain_outcomes(self);
    gathered->groups = !gathered->outcomes            ? 1
                       : task->outcomes < MOST_GROUPS ? task->outcomes
                                                      : MOST_GROUPS;
    for (int side = 0; side < 2; side++)
        gathered->words[side] = explain_words_new(gathered->groups);
    gathered->agreement = explain_agreement_new();
    gathered->largest = json_object();
    gathered->examples = json_array();
    gathered->listed = json_array();
    err =
        explain_entries_open(&gathered->entries, bp_explain_keys_of(self->job->config)->datastore);
    return err == BP_OK
               ? explain_speller_open(&gathered->speller, self->texts.corpus, self->job->config)
               : err;
}

void explain_gather_clear(explain_gathered *gathered)
{
    for (int side = 0; side < 2; side++)
        explain_words_free(&gathered->words[side]);
    explain_agreement_free(&gathered->agreement);
    json_decref(gathered->largest);
    json_decref(gathered->examples);
    json_decref(gathered->listed);
    explain_entries_clear(&gathered->entries);
    explain_speller_clear(&gathered->speller);
}

const char *const *explain_outcomes(const explainer *self)
{
    const bp_task_shape *task = &self->job->info.task;

    return bp_task_has_head(task) && bp_task_kind_of(task)->has_names ? self->texts.examples.names
                                                                      : NULL;
}

/* ---- a document in lists ---- */

bp_corpus_file *explain_file_of(const explainer *self, int64_t number, int64_t *own)
{
    bp_corpus *corpus = self->texts.corpus;
    int64_t documents;

    *own = self->texts.framed ? explain_framed_document(&self->texts, number) : number;
    for (int64_t f = 0; f < bp_corpus_files(corpus); f++, *own -= documents) {
        documents = bp_corpus_file_info(bp_corpus_file_at(corpus, f))->documents;
        if (*own < documents)
            return bp_corpus_file_at(corpus, f);
    }
    return NULL;
}

/* What generate wrote is named as generate's page and its `index` name it, and by its line. */
static json_t *name_of(const explainer *self, const char *id)
{
    const bp_buffer *prompts = &self->texts.prompts;
    const int64_t *of = (const int64_t *)(const void *)prompts->data;
    const char *line = strrchr(id, ':');
    int64_t lines = (int64_t)(prompts->bytes / sizeof *of), k = line ? atoll(line + 1) : 0;
    char *name = k >= 1 && k <= lines && of[k - 1] >= 0
                     ? bp_sprintf("prompt %" PRId64 " (%s)", of[k - 1], id)
                     : bp_strdup(id);
    json_t *text = bp_score_page_text(name, strlen(name));

    bp_free(name);
    return text;
}

json_t *explain_id_of(const explainer *self, int64_t number)
{
    int64_t own;
    bp_corpus_file *file = explain_file_of(self, number, &own);
    char id[ID_BYTES] = "";

    if (file)
        (void)bp_corpus_file_doc_id(file, own, id, sizeof id);
    if (id[0] == '\0')
        (void)snprintf(id, sizeof id, "document %" PRId64, own);
    return name_of(self, id);
}

/* The beginning of its text, without special tokens before it: of its source if the spans are
 * that one's. New reference. */
static json_t *beginning_of(const explain_shown *shown, const explain_spans *spans, bool of_source)
{
    const bp_explained *document = shown->document;
    const int32_t *tokens = of_source ? document->sources : document->inputs;
    bp_buffer text = {0};
    int64_t first = 0;
    json_t *out;

    while (first < spans->count &&
           bp_explain_is_special(shown->settings, tokens[spans->list[first].first]))
        first++;
    for (int64_t s = first; s < spans->count && s < first + BEGIN_SPANS; s++) {
        const explain_span *span = &spans->list[s];

        if (span->space)
            bp_buffer_printf(&text, " ");
        bp_buffer_add(&text, spans->texts.data + span->text, span->bytes);
    }
    out = json_stringn(text.data ? text.data : "", text.bytes);
    bp_buffer_clear(&text);
    return out;
}

/* ---- statistics of heads ---- */

/* Inserts a document among those with the largest values. */
static void insert(json_t *list, double value, json_t *row)
{
    size_t at = 0;

    while (at < json_array_size(list) &&
           json_real_value(json_object_get(json_array_get(list, at), "value")) >= value)
        at++;
    (void)json_array_insert_new(list, at, row);
    if (json_array_size(list) > LARGEST)
        (void)json_array_remove(list, LARGEST);
}

static json_t *lists_of(json_t *object, const char *name, bool of_list)
{
    json_t *found = json_object_get(object, name);

    if (!found) {
        found = of_list ? json_array() : json_object();
        (void)json_object_set_new(object, name, found);
    }
    return found;
}

/* values[count], by layer and head */
static void add_largest(json_t *list, const explainer *self, int64_t number, const float *values,
                        int64_t count, json_t *text)
{
    int64_t heads = self->settings.info->heads, best = -1;

    for (int64_t h = 0; h < count; h++)
        if (isfinite(values[h]) && (best < 0 || values[h] > values[best]))
            best = h;
    if (best < 0 || (json_array_size(list) == LARGEST &&
                     json_real_value(json_object_get(json_array_get(list, LARGEST - 1), "value")) >=
                         (double)values[best]))
        return;
    insert(list, (double)values[best],
           json_pack("{sf sI sI sI so sO}", "value", (double)values[best], "layer",
                     (json_int_t)(best / heads), "head", (json_int_t)(best % heads), "document",
                     (json_int_t)number, "id", explain_id_of(self, number), "text", text));
}

/* Of the encoder the text is the source. */
static void add_heads(explain_gathered *gathered, const explainer *self, int64_t number,
                      const explain_shown *shown, const explain_spans *spans,
                      const explain_spans *sources)
{
    const float *at = shown->results;
    json_t *text = beginning_of(shown, spans, false), *source = beginning_of(shown, sources, true);

    for (int m = 0; m < shown->count; m++)
        for (int k = 0; k < BP_EXPLAIN_ARRAYS && shown->methods[m]->arrays[k].name; k++) {
            const bp_explain_array *array = &shown->methods[m]->arrays[k];
            int64_t count = bp_explain_values(array, shown->form);

            if (count > 0 && bp_explain_head_layers(array, self->settings.info) > 0)
                add_largest(lists_of(lists_of(gathered->largest, shown->methods[m]->name, false),
                                     array->name, true),
                            self, number, at, count,
                            array->shape == BP_EXPLAIN_BY_SOURCE_HEAD ? source : text);
            at += count;
        }
    json_decref(source);
    json_decref(text);
}

/* ---- examples ---- */

static bp_err add_example(explain_gathered *gathered, explainer *self, int64_t number,
                          const explain_shown *shown, const explain_spans *spans)
{
    int64_t example = explain_examples_find(&self->examples, number);
    char *name = bp_sprintf("example-%" PRId64 ".html", example + 1), *data = NULL;
    json_t *id = explain_id_of(self, number), *row, *page;
    bp_err err = explain_example_data(&data, shown, &gathered->speller);

    row = json_pack("{sI sO ss* sI}", "document", (json_int_t)number, "id", id, "page",
                    data ? name : NULL, "targets", (json_int_t)shown->document->K);
    if (err == BP_OK)
        (void)json_array_append(gathered->examples, row);
    if (err == BP_OK && data) {
        page = json_copy(row);
        (void)json_object_set_new(page, "text", beginning_of(shown, spans, false));
        (void)json_object_set_new(page, "one", json_boolean(shown->document->K == 1));
        (void)json_array_append_new(gathered->listed, page);
        page = json_copy(row);
        (void)json_object_set_new(page, "data", json_string(data));
        (void)json_object_set_new(page, "title",
                                  explain_title(bp_explain_keys_of(self->job->config)->model, id));
        (void)json_object_set_new(page, "cut", json_boolean(self->texts.cut > 0));
        bp_work_write_page_at(self->job, name, "explain-example", page, BP_OK);
    }
    json_decref(row);
    bp_free(data);
    bp_free(name);
    json_decref(id);
    return err;
}

json_t *explain_title(const char *model, const json_t *id)
{
    char *text = id ? bp_sprintf("Explanation of %s by %s", json_string_value(id), model)
                    : bp_sprintf("Explanations of %s", model);
    json_t *title = bp_score_page_text(text, strlen(text));

    bp_free(text);
    return title;
}

/* Those over inputs, and those over sources; errors of values are no explanation. */
static void take_sides(explain_gathered *gathered, const explain_matrix *matrices, int count)
{
    gathered->matrix_counts[0] = gathered->matrix_counts[1] = 0;
    for (int m = 0; m < count; m++) {
        bool side = matrices[m].of_source;

        if (!explain_matrix_is_shown(&matrices[m]))
            continue;
        gathered->matrices[side][gathered->matrix_counts[side]++] = matrices[m];
    }
}

bp_err explain_gather_add(explain_gathered *gathered, explainer *self, int64_t number,
                          const explain_shown *shown)
{
    const bp_explained *document = shown->document;
    explain_matrix matrices[EXPLAIN_MATRICES];
    explain_spans spans, sources = {0};
    int count = explain_matrices_in(matrices, shown->settings->info, shown->methods, shown->count,
                                    shown->results, shown->form);
    bp_err err = explain_spans_of(&spans, &gathered->speller, document->inputs, document->T);

    take_sides(gathered, matrices, count);
    if (err == BP_OK && document->S > 0)
        err = explain_spans_of(&sources, &gathered->speller, document->sources, document->S);
    if (err == BP_OK)
        err = explain_words_add(gathered->words[0], &self->settings, document, &spans,
                                gathered->matrices[0], gathered->matrix_counts[0]);
    if (err == BP_OK && gathered->matrix_counts[1] > 0)
        err = explain_words_add(gathered->words[1], &self->settings, document, &sources,
                                gathered->matrices[1], gathered->matrix_counts[1]);
    if (err == BP_OK) {
        explain_agreement_add(gathered->agreement, &self->settings, document, gathered->matrices[0],
                              gathered->matrix_counts[0]);
        add_heads(gathered, self, number, shown, &spans, &sources);
    }
    if (err == BP_OK && explain_examples_find(&self->examples, number) >= 0)
        err = add_example(gathered, self, number, shown, &spans);
    explain_spans_clear(&sources);
    explain_spans_clear(&spans);
    return err;
}

/* ---- summary.json ---- */

/* The fewest documents of a listed word: a twentieth of the corpus, from 2 to 10. */
static int64_t least_documents(int64_t documents)
{
    int64_t least = documents / 20 < BP_FEW_DOCUMENTS ? documents / 20 : BP_FEW_DOCUMENTS;

    return documents < 2 ? 1 : least < 2 ? 2 : least;
}

/* words.ARRAY, or words.ARRAY.CLASS. */
static void add_words(const explain_gathered *gathered, json_t *words, int side, int m,
                      int64_t least)
{
    const char *name = gathered->matrices[side][m].array->name;
    const explain_words *from = gathered->words[side];

    if (!gathered->outcomes)
        (void)json_object_set_new(words, name, explain_words_json(from, m, 0, least));
    for (int64_t g = 0; g < gathered->groups && gathered->outcomes; g++)
        (void)json_object_set_new(lists_of(words, name, false), gathered->outcomes[g],
                                  explain_words_json(from, m, g, least));
}

void explain_gather_finish(const explain_gathered *gathered, const explainer *self, json_t *summary)
{
    json_t *methods = json_object_get(summary, "methods");
    int64_t least = least_documents(self->texts.documents);

    for (int side = 0; side < 2; side++)
        for (int m = 0; m < gathered->matrix_counts[side]; m++) {
            json_t *of = json_object_get(methods, gathered->matrices[side][m].method->name);

            add_words(gathered, lists_of(of, "words", false), side, m, least);
        }
    for (int m = 0; m < self->count; m++) {
        json_t *largest = json_object_get(gathered->largest, self->methods[m]->name);

        if (largest)
            (void)json_object_set(json_object_get(methods, self->methods[m]->name), "largest",
                                  largest);
    }
    (void)json_object_set_new(summary, "agreement", explain_agreement_json(gathered->agreement));
    (void)json_object_set(summary, "examples", gathered->examples);
}
