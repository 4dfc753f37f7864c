/* The texts that the model is least sure of. Called by outputs.c for each line, and by page.c. */
#include "infer/generate/results/least_sure.h"

#include "base/config/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>

#define SHOWN_BYTES 400 /* of a prompt, and of a text */

/* Its beginning, of whole characters; null if there is none. */
static json_t *beginning_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    const char *text = json_string_value(value);
    size_t bytes = json_string_length(value);

    if (!text)
        return json_null();
    if (bytes > SHOWN_BYTES)
        for (bytes = SHOWN_BYTES; bytes > 0 && ((unsigned char)text[bytes] & 0xC0) == 0x80;)
            bytes--;
    return json_stringn(text, bytes);
}

static json_t *figure(double value)
{
    char *text = isfinite(value) ? bp_sprintf("%.4g", value) : NULL;
    json_t *json = text ? bp_json_string(text) : json_null();

    bp_free(text);
    return json;
}

static json_t *tenth(double value)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%.1f", value);
    return isfinite(value) ? bp_json_string(text) : json_null();
}

json_t *bp_least_sure_anchor(int64_t number)
{
    return json_sprintf("text-%lld", (long long)number);
}

/* Samples of a prompt may be the same text. */
static bool has_text(const bp_least_sure *list, const json_t *line, double value)
{
    json_t *text = beginning_of(line, "text");
    const json_t *row;
    bool has = false;
    size_t k;

    json_array_foreach(list->rows, k, row)
    {
        has = has || (list->values[k] == value && json_equal(json_object_get(row, "text"), text) &&
                      json_equal(json_object_get(row, "index"), json_object_get(line, "index")));
    }
    json_decref(text);
    return has;
}

void bp_least_sure_note(bp_least_sure *list, const json_t *line, int64_t number, bool by_members)
{
    size_t tokens = json_array_size(json_object_get(line, "tokens")),
           count = json_array_size(list->rows), k = count;
    double perplexity = bp_json_number(line, "perplexity"),
           information = bp_json_number(line, "sequence_mutual_information") / (double)tokens,
           value = by_members ? information : perplexity;

    if (isnan(value) || (count == BP_LEAST_SURE && !(value > list->values[count - 1])) ||
        has_text(list, line, value))
        return;
    if (!list->rows)
        list->rows = json_array();
    for (; k > 0 && value > list->values[k - 1]; k--)
        list->values[k] = list->values[k - 1];
    list->values[k] = value;
    (void)json_array_insert_new(
        list->rows, k,
        json_pack("{s:O, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "index",
                  json_object_get(line, "index"), "number", (json_int_t)number, "at",
                  bp_least_sure_anchor(number), "tokens", (json_int_t)tokens, "perplexity",
                  figure(perplexity), "information", figure(information), "prompt",
                  beginning_of(line, "prompt"), "text", beginning_of(line, "text"), "bleu",
                  tenth(bp_json_number(line, "sentence_bleu")), "chrf",
                  tenth(bp_json_number(line, "sentence_chrf2")), "reference",
                  beginning_of(line, "reference")));
    if (count == BP_LEAST_SURE)
        (void)json_array_remove(list->rows, count);
}

void bp_least_sure_clear(bp_least_sure *list)
{
    json_decref(list->rows);
    *list = (bp_least_sure){0};
}
