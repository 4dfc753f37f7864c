/* Pieces of cards as text. */
#include "card.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "base/printable.h"
#include "job/report/report.h"
#include "models/family.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

json_t *card_text(const char *text)
{
    char *shown = bp_printable(text);
    bp_buffer out = {0};

    for (const char *c = shown; *c; c++) {
        if (strchr("|\\`*_<>[]", *c)) /* what would be a table, code, emphasis, a link or HTML */
            bp_buffer_add(&out, "\\", 1);
        bp_buffer_add(&out, c, 1);
    }
    json_t *value = json_string(out.data ? out.data : "");
    bp_buffer_clear(&out);
    bp_free(shown);
    return value;
}

json_t *card_code(const char *text)
{
    char *shown = bp_printable(text);
    bp_buffer out = {0};
    size_t run = 0, longest = 0;

    for (const char *c = shown; *c; c++) {
        run = *c == '`' ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    for (size_t k = 0; k <= longest; k++)
        bp_buffer_add(&out, "`", 1);
    if (longest > 0) /* a blank at both ends is not part of the code */
        bp_buffer_printf(&out, " %s ", shown);
    else
        bp_buffer_add(&out, shown, strlen(shown));
    for (size_t k = 0; k <= longest; k++)
        bp_buffer_add(&out, "`", 1);
    json_t *value = json_string(out.data);
    bp_buffer_clear(&out);
    bp_free(shown);
    return value;
}

json_t *card_yaml(const char *text)
{
    char *shown = bp_printable(text); /* without control characters JSON's strings are YAML's */
    json_t *plain = bp_json_string(shown), *value;
    char *quoted = json_dumps(plain, JSON_ENCODE_ANY);

    value = json_string(quoted ? quoted : "\"\"");
    free(quoted); /* jansson's */
    json_decref(plain);
    bp_free(shown);
    return value;
}

static json_t *formatted(const char *format, va_list arguments)
{
    va_list copy;
    int bytes;

    va_copy(copy, arguments);
    bytes = vsnprintf(NULL, 0, format, copy);
    va_end(copy);
    char *text = bp_alloc("tool.card", bytes + 1, 1);
    (void)vsnprintf(text, (size_t)bytes + 1, format, arguments);
    json_t *value = text[0] ? bp_json_string(text) : NULL;
    bp_free(text);
    return value;
}

void card_fact(json_t *list, const char *name, const char *format, ...)
{
    va_list arguments;
    json_t *value;

    va_start(arguments, format);
    value = formatted(format, arguments);
    va_end(arguments);
    if (value)
        (void)json_array_append_new(list, json_pack("{s:s, s:o}", "name", name, "value", value));
}

json_t *card_list(card *self, const char *name)
{
    json_t *list = json_object_get(self->data, name);

    if (!list) {
        list = json_array();
        (void)json_object_set_new(self->data, name, list);
    }
    return list;
}

void card_line(card *self, const char *list, const char *format, ...)
{
    va_list arguments;
    json_t *value;

    va_start(arguments, format);
    value = formatted(format, arguments);
    va_end(arguments);
    if (value)
        (void)json_array_append_new(card_list(self, list), value);
}

static double number(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : NAN;
}

char *card_figure(const json_t *value, const json_t *low, const json_t *high)
{
    double error = (number(high) - number(low)) / 2;
    char *of = bp_report_figure(number(value), error, false), *from, *to, *text;

    if (!of || isnan(error))
        return of ? of : bp_strdup("");
    from = bp_report_figure(number(low), error, false);
    to = bp_report_figure(number(high), error, false);
    text = bp_sprintf("%s (%s to %s)", of, from, to);
    bp_free(of);
    bp_free(from);
    bp_free(to);
    return text;
}

char *card_figure_of(const json_t *figure)
{
    return card_figure(json_object_get(figure, "value"), json_object_get(figure, "low"),
                       json_object_get(figure, "high"));
}

const char *card_library(const char *kind, bool ensemble)
{
    for (const bp_hf_table *const *table = bp_model_huggingface_tables(); *table; table++)
        if (!ensemble && strcmp((*table)->kind, kind) == 0 && !(*table)->instead)
            return "transformers";
    return "bagpipe";
}
