/* Fills a template (HTML, gnuplot) from JSON: variables, lists, conditions. Called by report.c. */
#include "job/report/template.h"

#include "base/mem.h"
#include "job/report/figures.h"

#include <stdio.h>
#include <string.h>

#define BLANKS " \t\r"

typedef struct frame {
    const json_t *value;
    const struct frame *outer;
} frame;

typedef struct reader {
    const char *name, *begin, *at;
    bp_buffer *out;
} reader;

/* A tag, as {{#name}}; kind is 0 for a plain one and '{' for {{{name}}}. */
typedef struct tag {
    const char *begin, *end; /* the tag's bytes, with its line if nothing else is there */
    const char *name;
    int bytes; /* of the name */
    char kind;
} tag;

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F;
}

static const char *escape_of(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    default:
        return NULL;
    }
}

void bp_html_escape(bp_buffer *out, const char *text, size_t bytes)
{
    for (size_t k = 0, plain = 0; k <= bytes; k++) {
        const char *escape = k < bytes ? escape_of(text[k]) : "";

        if (escape == NULL && !is_control(text[k]))
            continue;
        bp_buffer_add(out, text + plain, k - plain);
        plain = k + 1;
        if (escape != NULL)
            bp_buffer_printf(out, "%s", escape);
        else
            bp_buffer_printf(out, "\\x%02X", (unsigned)text[k]);
    }
}

void bp_script_escape(bp_buffer *out, const char *json)
{
    static const char LESS[] = "\\u003c";

    for (size_t plain; *json; json += plain) {
        plain = strcspn(json, "<");
        bp_buffer_add(out, json, plain);
        if (json[plain] == '<') {
            bp_buffer_add(out, LESS, strlen(LESS));
            plain++;
        }
    }
}

static bp_err fail(const reader *self, const char *at, const char *what)
{
    int line = 1;

    for (const char *c = self->begin; c < at; c++)
        line += *c == '\n';
    return BP_FAIL(BP_ERR_FORMAT, "report.bad_template", "%s: at %s:%d; mend the template", what,
                   self->name, line);
}

/* ---- tags ---- */

/* A tag that shows nothing takes its line with it, if nothing else is there. */
static void take_line(const reader *self, tag *found)
{
    const char *begin = found->begin, *end = found->end + strspn(found->end, BLANKS);

    while (begin > self->begin && strchr(BLANKS, begin[-1]))
        begin--;
    if ((begin == self->begin || begin[-1] == '\n') && (*end == '\n' || *end == '\0')) {
        found->begin = begin;
        found->end = end + (*end == '\n');
    }
}

/* The next tag from `self->at` on; found->begin is NULL at the end. */
static bp_err find_tag(const reader *self, tag *found)
{
    const char *open = strstr(self->at, "{{"), *close;
    bool raw = open && open[2] == '{';

    *found = (tag){.begin = open};
    if (!open)
        return BP_OK;
    found->name = open + 2;
    if (*found->name && strchr("{#^/!", *found->name))
        found->kind = *found->name++;
    close = strstr(found->name, raw ? "}}}" : "}}");
    if (!close)
        return fail(self, open, "a tag is not closed");
    found->end = close + (raw ? 3 : 2);
    found->name += strspn(found->name, BLANKS "\n");
    while (close > found->name && strchr(BLANKS "\n", close[-1]))
        close--;
    found->bytes = close > found->name ? (int)(close - found->name) : 0;
    if (found->bytes == 0 && found->kind != '!')
        return fail(self, open, "a tag has no name");
    if (found->kind && found->kind != '{')
        take_line(self, found);
    return BP_OK;
}

/* ---- values ---- */

static const json_t *member_of(const json_t *object, const char *name, const char *end)
{
    char key[64];

    (void)snprintf(key, sizeof key, "%.*s", (int)(end - name), name);
    return json_object_get(object, key);
}

/* The value of a name, or NULL. The first part of a name is looked up outwards, later parts only in
 * it. */
static const json_t *find_value(const frame *context, const char *name, int bytes)
{
    const char *end = name + bytes, *dot = memchr(name, '.', (size_t)bytes);
    const json_t *value = NULL;

    if (bytes == 1 && dot)
        return context->value;
    for (; context && !value; context = context->outer)
        value = member_of(context->value, name, dot ? dot : end);
    while (value && dot) {
        name = dot + 1;
        dot = memchr(name, '.', (size_t)(end - name));
        value = member_of(value, name, dot ? dot : end);
    }
    return value;
}

static void put_integer(bp_buffer *out, json_int_t value, bool raw)
{
    char *digits = bp_sprintf("%" JSON_INTEGER_FORMAT, value);
    char *text = raw ? bp_strdup(digits) : bp_report_thousands(digits);

    bp_buffer_printf(out, "%s", text);
    bp_free(text);
    bp_free(digits);
}

static void put_value(bp_buffer *out, const json_t *value, bool raw)
{
    if (json_is_string(value) && raw)
        bp_buffer_add(out, json_string_value(value), json_string_length(value));
    else if (json_is_string(value))
        bp_html_escape(out, json_string_value(value), json_string_length(value));
    else if (json_is_integer(value))
        put_integer(out, json_integer_value(value), raw);
    else if (json_is_real(value))
        bp_buffer_printf(out, "%.6g", json_real_value(value));
    else if (json_is_boolean(value))
        bp_buffer_printf(out, json_is_true(value) ? "true" : "false");
}

/* ---- sections ---- */

static bp_err render(reader *self, const tag *section, const frame *context, bool shown);

/* The body is at self->at; it is parsed once even if nothing of it is shown. */
static bp_err render_section(reader *self, const tag *section, const frame *context, bool shown)
{
    const json_t *value = find_value(context, section->name, section->bytes);
    bool list = json_is_array(value), inverted = section->kind == '^';
    bool empty = !value || json_is_null(value) || json_is_false(value) ||
                 (list && json_array_size(value) == 0);
    size_t count =
        shown && empty == inverted ? (list && !inverted ? json_array_size(value) : 1) : 0;
    const char *body = self->at;
    bp_err err = count == 0 ? render(self, section, context, false) : BP_OK;

    for (size_t k = 0; k < count && err == BP_OK; k++) {
        const frame inner = {list ? json_array_get(value, k) : value, context};

        self->at = body;
        err = render(self, section, inverted ? context : &inner, true);
    }
    return err;
}

/* Renders up to the end of `section`, or of the text if that is NULL. */
static bp_err render(reader *self, const tag *section, const frame *context, bool shown)
{
    tag found;
    bp_err err = find_tag(self, &found);

    for (; err == BP_OK && found.begin; err = err == BP_OK ? find_tag(self, &found) : err) {
        if (shown)
            bp_buffer_add(self->out, self->at, (size_t)(found.begin - self->at));
        self->at = found.end;
        if (found.kind == '/' && section && found.bytes == section->bytes &&
            memcmp(found.name, section->name, (size_t)found.bytes) == 0)
            return BP_OK;
        if (found.kind == '/')
            err = fail(self, found.name, "a section is closed that is not open");
        else if (found.kind == '#' || found.kind == '^')
            err = render_section(self, &found, context, shown);
        else if (found.kind != '!' && shown)
            put_value(self->out, find_value(context, found.name, found.bytes), found.kind == '{');
    }
    if (err == BP_OK && section)
        err = fail(self, section->name, "a section is not closed");
    if (err == BP_OK && shown)
        bp_buffer_printf(self->out, "%s", self->at);
    return err;
}

bp_err bp_template_render(bp_buffer *out, const char *text, const char *name, const json_t *data)
{
    reader self = {.name = name, .begin = text, .at = text, .out = out};
    const frame outermost = {data, NULL};

    return render(&self, NULL, &outermost, true);
}
