/* The data of a document's page, as JSON: its tokens, and each method's values for colours or
 * lines. Matrices are in base64, because a thousand tokens have a million values. Called by
 * gather.c.
 */
#include "explain/pages/example.h"
#include "explain/pages/figures.h"

#include "base/mem.h"
#include "job/report/template.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BESIDE      3 /* tokens before and after one with which a character may be shared */
#define VALUE_BYTES 3 /* of a value of a matrix: a page shows three of its digits */

/* ---- numbers ---- */

static void add_base64(bp_buffer *out, const uint8_t *bytes, size_t count)
{
    static const char SIGNS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t k = 0; k < count; k += 3) {
        unsigned value = (unsigned)bytes[k] << 16 |
                         (k + 1 < count ? (unsigned)bytes[k + 1] << 8 : 0) |
                         (k + 2 < count ? (unsigned)bytes[k + 2] : 0);
        const char four[] = {SIGNS[value >> 18], SIGNS[value >> 12 & 63],
                             k + 1 < count ? SIGNS[value >> 6 & 63] : '=',
                             k + 2 < count ? SIGNS[value & 63] : '='};

        bp_buffer_add(out, four, sizeof four);
    }
}

json_t *explain_base64_json(const uint8_t *bytes, size_t count)
{
    bp_buffer text = {0};
    json_t *out;

    add_base64(&text, bytes, count);
    out = json_stringn(text.data ? text.data : "", text.bytes);
    bp_buffer_clear(&text);
    return out;
}

/* Rounded to the digits that a page shows; null if it is not finite. */
json_t *explain_number_json(double value)
{
    double power = value == 0 ? 1 : pow(10, 3 - floor(log10(fabs(value))));

    return bp_json_real(isfinite(value) && isfinite(power) ? round(value * power) / power : value);
}

static json_t *list_json(const float *values, int64_t count)
{
    json_t *list = json_array();

    for (int64_t k = 0; k < count; k++)
        (void)json_array_append_new(list, explain_number_json((double)values[k]));
    return list;
}

/* ---- matrices ---- */

/* The upper bytes of a float32, rounded to the nearest: 16 bits of precision. The lowest is first.
 */
static void put_value(uint8_t *to, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    if (isfinite(value))
        bits += 0x80;
    for (int b = 0; b < VALUE_BYTES; b++)
        to[b] = (uint8_t)(bits >> 8 * (b + 1));
}

/* Rows follow each other; a row ends with the last input that its target depends on. */
static json_t *matrix_json(const explain_shown *shown, const explain_matrix *matrix)
{
    const bp_explained *document = shown->document;
    int64_t count = 0;
    uint8_t *bytes = bp_alloc("explain.page",
                              document->K * explain_matrix_columns(matrix, document), VALUE_BYTES);
    json_t *out;
    bool has_sign = false;

    for (int64_t k = 0; k < document->K; k++) {
        const float *row = explain_matrix_row(matrix, document, k);
        int64_t extent =
            matrix->of_source ? document->S : bp_explain_length(shown->settings, document, k);

        for (int64_t t = 0; t < extent; t++) {
            has_sign = has_sign || row[t] < 0;
            put_value(bytes + VALUE_BYTES * count++, row[t]);
        }
    }
    out = json_pack("{ss ss so sb sb sb sb so}", "method", matrix->method->name, "name",
                    matrix->array->name, "title",
                    explain_worded(explain_matrix_title(matrix->method, matrix->array)), "source",
                    (int)matrix->of_source, "main", (int)explain_matrix_is_main(matrix), "shared",
                    (int)matrix->method->changes, "signed", (int)has_sign, "values",
                    explain_base64_json(bytes, (size_t)(VALUE_BYTES * count)));
    bp_free(bytes);
    return out;
}

/* ---- the lens ---- */

/* Tokens around a prediction: `at` is its place among them. */
typedef struct surroundings {
    int32_t tokens[2 * BESIDE + 1];
    int64_t count, at;
} surroundings;

/* What stands before and after target k, with `token` in its place. What follows the next token of
 * a text is known only where `token` is that of the text. */
static surroundings around(const explain_shown *shown, int64_t k, int32_t token)
{
    const bp_explained *document = shown->document;
    bool causal = bp_explain_is_causal(shown->settings->info);
    int64_t place = document->positions[k] + causal, first = place > BESIDE ? place - BESIDE : 0;
    surroundings out = {.at = place - first};

    for (int64_t t = first; t < place; t++)
        out.tokens[out.count++] = document->inputs[t];
    out.tokens[out.count++] = token;
    for (int64_t t = place + 1; t < document->T && t <= place + BESIDE; t++)
        if (!causal || document->inputs[place] == token)
            out.tokens[out.count++] = document->inputs[t];
    if (causal && !shown->settings->best && place < document->T && place + BESIDE >= document->T &&
        document->inputs[place] == token) /* the last token is no input */
        out.tokens[out.count++] = document->targets[document->K - 1];
    return out;
}

/* A token that is predicted as target k, as in its text. */
static json_t *predicted_json(const explain_shown *shown, const explain_speller *speller, int64_t k,
                              int32_t token)
{
    const surroundings beside = around(shown, k, token);

    return explain_joined_json(speller, beside.tokens, beside.count, beside.at);
}

/* Texts of the tokens in lists of ids, each once: {"id": text}; joined.K has those of target K that
 * are other texts there: their bytes are of a character of the text, or end one that it has begun.
 */
static void add_names(json_t *lens, const explain_shown *shown, const explain_speller *speller,
                      const float *ids, int64_t count)
{
    json_t *names = json_object_get(lens, "names"), *joined = json_object_get(lens, "joined");

    for (int64_t i = 0; i < count; i++) {
        char key[24], target[24];
        int64_t k = i / (count / shown->document->K);
        json_t *own;

        (void)snprintf(key, sizeof key, "%.0f", (double)ids[i]);
        if (ids[i] < 0)
            continue;
        if (!json_object_get(names, key))
            (void)json_object_set_new(names, key, explain_token_json(speller, (int64_t)ids[i]));
        own = predicted_json(shown, speller, k, (int32_t)ids[i]);
        if (!json_equal(own, json_object_get(names, key))) {
            (void)snprintf(target, sizeof target, "%" PRId64, k);
            if (!json_object_get(joined, target))
                (void)json_object_set_new(joined, target, json_object());
            (void)json_object_set(json_object_get(joined, target), key, own);
        }
        json_decref(own);
    }
}

static void add_layers(json_t *lens, const explain_shown *shown, const explain_speller *speller,
                       const bp_explain_array *array, const float *values)
{
    int64_t count = bp_explain_values(array, shown->form);

    (void)json_object_set_new(lens, array->name, list_json(values, count));
    if (array->shape != BP_EXPLAIN_TOPS)
        return;
    (void)json_object_set_new(lens, "names", json_object());
    (void)json_object_set_new(lens, "joined", json_object());
    add_names(lens, shown, speller, values, count);
}

/* ---- attention ---- */

/* Keys as two bytes each, the lower first; 65535 if there is none. Weights in 255ths. */
static json_t *weights_json(const explain_weights *kind, int64_t heads)
{
    int64_t values = kind->values;
    uint8_t *bytes = bp_alloc("explain.page", 3 * values, 1), *of_weights = bytes + 2 * values;
    json_t *out;

    for (int64_t k = 0; k < values; k++) {
        unsigned key = kind->keys[k] < 0 ? 65535U : (unsigned)kind->keys[k];

        bytes[2 * k] = (uint8_t)(key & 255);
        bytes[2 * k + 1] = (uint8_t)(key >> 8);
        of_weights[k] = (uint8_t)lround((double)kind->weights[k] * 255);
    }
    out =
        json_pack("{ss sI sI sI so so}", "of", kind->of.prefix, "layers",
                  (json_int_t)kind->of.layers, "heads", (json_int_t)heads, "kept",
                  (json_int_t)kind->kept, "keys", explain_base64_json(bytes, (size_t)(2 * values)),
                  "weights", explain_base64_json(of_weights, (size_t)values));
    bp_free(bytes);
    return out;
}

/* A list of the kinds of attention. */
static json_t *attention_json(const explain_shown *shown)
{
    explain_weights kinds[BP_EXPLAIN_ATTENTIONS];
    int count = explain_weights_in(kinds, shown->weights, shown->form);
    json_t *out = json_array();

    for (int k = 0; k < count; k++)
        (void)json_array_append_new(out, weights_json(&kinds[k], shown->form->heads));
    return out;
}

/* ---- all ---- */

static void add_arrays(json_t *data, const explain_shown *shown, const explain_speller *speller,
                       const bp_explain_method *method, const float *at)
{
    json_t *values = json_object_get(data, "values"), *lens = json_object_get(data, "lens");

    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++) {
        const bp_explain_array *array = &method->arrays[k];

        if (array->shape == BP_EXPLAIN_BY_LAYER || array->shape == BP_EXPLAIN_TOPS)
            add_layers(lens, shown, speller, array, at);
        else if (array->shape == BP_EXPLAIN_BY_TARGET)
            (void)json_object_set_new(values, array->name, list_json(at, shown->document->K));
        at += bp_explain_values(array, shown->form);
    }
}

/* The nearest entries of a datastore. */
static bp_err add_sources(json_t *data, const explain_shown *shown, const explain_speller *speller,
                          const float *results)
{
    const float *at[BP_EXPLAIN_ARRAYS];
    json_t *sources = NULL;
    bp_err err;

    bp_explain_lay_out(at, &bp_explain_sources, shown->form, results);
    err = explain_entries_json(&sources, shown->entries, speller, at, shown->document->K,
                               shown->form->neighbours);
    (void)json_object_set_new(data, "nearest", sources);
    return err;
}

char *explain_script_text(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
    bp_buffer out = {0};

    bp_script_escape(&out, text ? text : "{}");
    free(text); /* jansson's */
    return bp_buffer_take(&out);
}

/* The coloured values: the matrices of methods, and attention flow. */
static void add_matrices(json_t *data, const explain_shown *shown)
{
    static const bp_explain_array FLOW = {"flow", BP_EXPLAIN_BY_POSITIONS};
    json_t *list = json_object_get(data, "matrices");
    explain_matrix matrices[EXPLAIN_MATRICES];
    int count = explain_matrices_in(matrices, shown->settings->info, shown->methods, shown->count,
                                    shown->results, shown->form);

    if (shown->weights) {
        const explain_matrix flow = {.method = &bp_explain_attention,
                                     .array = &FLOW,
                                     .values = explain_flow_in(shown->weights, shown->form),
                                     .by_place = true,
                                     .stride = shown->form->T};

        if (flow.values)
            (void)json_array_append_new(list, matrix_json(shown, &flow));
    }
    for (int m = 0; m < count; m++)
        if (explain_matrix_is_shown(&matrices[m]))
            (void)json_array_append_new(list, matrix_json(shown, &matrices[m]));
}

/* The name of a class or tag, or the token that is predicted, or at which an answer begins or ends.
 */
static json_t *target_json(const explain_shown *shown, const explain_speller *speller, int64_t k)
{
    const bp_explained *document = shown->document;
    const bp_task_shape *task = &shown->settings->info->task;
    int32_t target = document->targets[k];

    if (shown->outcomes)
        return bp_json_string(shown->outcomes[target]);
    if (!bp_task_has_head(task))
        return predicted_json(shown, speller, k, target);
    return bp_task_kind_of(task)->is_value
               ? json_string("value")
               : explain_joined_json(speller, document->inputs, document->T, target);
}

/* The source of an encoder-decoder, and for each input, its text of the two. */
static bp_err add_texts(json_t *data, const explain_shown *shown, const explain_speller *speller)
{
    const bp_explained *document = shown->document;
    explain_spans spans = {0};
    bp_err err = BP_OK;

    if (document->S > 0)
        err = explain_spans_of(&spans, speller, document->sources, document->S);
    if (err == BP_OK && document->S > 0)
        (void)json_object_set_new(data, "sources", explain_spans_json(&spans));
    explain_spans_clear(&spans);
    if (document->segments) {
        json_t *segments = json_array();
        bool two = false;

        for (int64_t t = 0; t < document->T; t++) {
            two = two || document->segments[t] > 0;
            (void)json_array_append_new(segments, json_integer(document->segments[t]));
        }
        if (two)
            (void)json_object_set(data, "segments", segments);
        json_decref(segments);
    }
    return err;
}

/* Has a method something to show of a single document? */
static bool shows_anything(const json_t *data)
{
    return json_array_size(json_object_get(data, "matrices")) > 0 ||
           json_object_get(json_object_get(data, "lens"), "rank") ||
           json_object_get(data, "attention") || json_object_get(data, "nearest") ||
           json_object_get(data, "edits");
}

bp_err explain_example_data(char **out, const explain_shown *shown, const explain_speller *speller)
{
    const bp_explained *document = shown->document;
    explain_spans spans;
    bp_err err = explain_spans_of(&spans, speller, document->inputs, document->T);
    json_t *targets = json_array(), *positions = json_array(),
           *data = json_pack("{so so s[] s{} s{} sb}", "targets", targets, "places", positions,
                             "matrices", "values", "lens", "causal",
                             (int)(bp_explain_is_causal(shown->settings->info) &&
                                   !bp_task_has_head(&shown->settings->info->task)));
    const float *at = shown->results;

    (void)json_object_set_new(data, "inputs", explain_spans_json(&spans));
    for (int64_t k = 0; k < document->K; k++) {
        (void)json_array_append_new(positions, json_integer(document->positions[k]));
        (void)json_array_append_new(targets, target_json(shown, speller, k));
    }
    for (int k = 0; k < shown->count && err == BP_OK; k++) {
        if (shown->methods[k] == &bp_explain_sources)
            err = add_sources(data, shown, speller, at);
        if (shown->methods[k] == &bp_explain_counterfactual && document->K > 0)
            (void)json_object_set_new(data, "edits", explain_edits_json(shown, speller, at));
        add_arrays(data, shown, speller, shown->methods[k], at);
        at += bp_explain_floats(shown->methods[k], shown->form);
    }
    add_matrices(data, shown);
    if (err == BP_OK)
        err = add_texts(data, shown, speller);
    if (shown->weights)
        (void)json_object_set_new(data, "attention", attention_json(shown));
    *out = err == BP_OK && shows_anything(data) ? explain_script_text(data) : NULL;
    json_decref(data);
    explain_spans_clear(&spans);
    return err;
}
