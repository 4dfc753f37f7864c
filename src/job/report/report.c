/* Makes pages and plots from the files that are installed with the programs. */
#include "job/report/report_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "job/report/template.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_LIMIT ((int64_t)1 << 20)
#define PATH_BYTES 4096

/* ---- installed files ---- */

/* The path of a file of the templates. The folder of this program is FOLDER in FOLDER/../share.
 * Free with bp_free(). */
static char *installed_path(const char *kind, const char *name)
{
    const char *share = getenv("BAGPIPE_SHARE");
    char program[PATH_BYTES], *slash;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

    program[length > 0 ? length : 0] = '\0';
    slash = strrchr(program, '/');
    if (slash)
        *slash = '\0';
    return share && share[0] ? bp_sprintf("%s/report/%s/%s", share, kind, name)
                             : bp_sprintf("%s/../share/bagpipe/report/%s/%s", program, kind, name);
}

/* Add a file's text. */
static bp_err add_file(bp_buffer *out, const char *kind, const char *name)
{
    char *path = installed_path(kind, name), *text = NULL;
    size_t bytes = 0;
    bp_err err;

    err = bp_file_read(path, FILE_LIMIT, &text, &bytes);
    if (err == BP_OK)
        bp_buffer_printf(out, "%s", text); /* of an empty file "" */
    if (err == BP_ERR_INPUT)
        err = BP_FAIL(err, "report.file_missing",
                      "a file of bagpipe's pages and plots is missing: at %s; install bagpipe "
                      "again, or set BAGPIPE_SHARE to the folder share/bagpipe of its installation",
                      path);
    bp_free(text);
    bp_free(path);
    return err;
}

/* ---- pages ---- */

bool bp_report_has_page(const char *name)
{
    char *file = bp_sprintf("%s.html", name), *path = installed_path("pages", file);
    bool is = bp_path_exists(path);

    bp_free(path);
    bp_free(file);
    return is;
}

bp_err bp_report_page(const char *path, const char *name, const json_t *data)
{
    json_t *all = json_copy((json_t *)data); /* its members are shared; it is only read from */
    char *file = bp_sprintf("%s.html", name);
    bp_buffer template = {0}, head = {0}, style = {0}, script = {0}, page = {0};
    bp_err err = add_file(&template, "pages", file);

    if (err == BP_OK)
        err = add_file(&head, "pages", "head.html");
    if (err == BP_OK)
        err = add_file(&style, "pages", "style.css");
    if (err == BP_OK)
        err = add_file(&script, "pages", "script.js");
    if (err == BP_OK) {
        (void)json_object_set_new(all, "style", bp_json_string(style.data));
        (void)json_object_set_new(all, "script", bp_json_string(script.data));
        err = bp_template_render(&page, head.data, "head.html", all);
    }
    if (err == BP_OK)
        err = bp_template_render(&page, template.data, file, all);
    if (err == BP_OK)
        err = bp_file_write(path, page.data, page.bytes);
    json_decref(all);
    bp_buffer_clear(&page);
    bp_buffer_clear(&script);
    bp_buffer_clear(&style);
    bp_buffer_clear(&head);
    bp_buffer_clear(&template);
    bp_free(file);
    return err;
}

bp_err bp_report_text(char **out, const char *file, const json_t *data)
{
    bp_buffer template = {0}, text = {0};
    bp_err err = add_file(&template, "pages", file);

    if (err == BP_OK)
        err = bp_template_render(&text, template.data, file, data);
    *out = err == BP_OK ? bp_buffer_take(&text) : NULL;
    bp_buffer_clear(&text);
    bp_buffer_clear(&template);
    return err;
}

/* Where the next id of the text is: id='x', href='#x', url(#x); NULL without one. */
static const char *find_id(const char *text)
{
    static const char *const BEFORE[] = {" id='",    " id=\"",    " href='#", " href=\"#",
                                         ":href='#", ":href=\"#", "url(#"};

    for (size_t k = 0; k < sizeof BEFORE / sizeof BEFORE[0]; k++)
        if (strncmp(text, BEFORE[k], strlen(BEFORE[k])) == 0)
            return text + strlen(BEFORE[k]);
    return NULL;
}

char *bp_report_svg(const char *text, const char *prefix)
{
    static const char OPEN[] = "<title>", CLOSE[] = "</title>";
    bp_buffer out = {0};

    text = text ? strstr(text, "<svg") : NULL;
    if (!text)
        return NULL;
    while (*text) {
        const char *id = find_id(text);
        const char *end = strncmp(text, OPEN, strlen(OPEN)) == 0 ? strstr(text, CLOSE) : NULL;

        if (end) {
            text = end + strlen(CLOSE);
        } else if (id) {
            bp_buffer_add(&out, text, (size_t)(id - text));
            bp_html_escape(&out, prefix, strlen(prefix));
            bp_buffer_add(&out, "-", 1);
            text = id;
        } else {
            size_t bytes = 1 + strcspn(text + 1, " :u<");

            bp_buffer_add(&out, text, bytes);
            text += bytes;
        }
    }
    return bp_buffer_take(&out);
}

/* ---- scripts ---- */

static void put_scalar(bp_buffer *out, const json_t *value)
{
    if (json_is_string(value))
        report_put_quoted(out, json_string_value(value));
    else if (json_is_number(value))
        bp_buffer_printf(out, "%.9g", json_number_value(value));
    else
        bp_buffer_printf(out, "NaN");
}

static void put_variable(bp_buffer *out, const char *name, const json_t *value)
{
    size_t count = json_array_size(value);

    if (name[0] == '$') {
        bp_buffer_printf(out, "%s << EOD\n%sEOD\n", name,
                         json_is_string(value) ? json_string_value(value) : "");
        return;
    }
    if (!json_is_array(value)) {
        bp_buffer_printf(out, "%s = ", name);
        put_scalar(out, value);
        bp_buffer_printf(out, "\n");
        return;
    }
    bp_buffer_printf(out, "array %s[%zu]\n", name, count > 0 ? count : 1);
    for (size_t k = 0; k < count; k++) {
        bp_buffer_printf(out, "%s[%zu] = ", name, k + 1);
        put_scalar(out, json_array_get(value, k));
        bp_buffer_printf(out, "\n");
    }
}

bp_err bp_report_script(char **script, const char *name, const json_t *variables)
{
    char *file = bp_sprintf("%s.gp", name);
    bp_buffer out = {0};
    const char *key;
    json_t *value;
    bp_err err;

    json_object_foreach((json_t *)variables, key, value) put_variable(&out, key, value);
    err = add_file(&out, "plots", "common.gp");
    if (err == BP_OK)
        err = add_file(&out, "plots", file);
    *script = err == BP_OK ? bp_buffer_take(&out) : NULL;
    bp_buffer_clear(&out);
    bp_free(file);
    return err;
}

bp_err bp_report_plot(json_t *page, const char *name, const json_t *variables, const char *prefix)
{
    char *script = NULL, *picture = NULL, *svg = NULL;
    size_t bytes;
    bp_err err = bp_report_script(&script, name, variables);

    if (err == BP_OK && bp_gnuplot(&picture, &bytes, NULL, script) == BP_OK)
        svg = bp_report_svg(picture, prefix);
    if (svg)
        (void)json_object_set_new(page, "plot", bp_json_string(svg));
    else if (err == BP_OK)
        (void)json_object_set_new(page, "notice", bp_json_string(bp_err_message()));
    bp_free(svg);
    bp_free(picture);
    bp_free(script);
    return err;
}
