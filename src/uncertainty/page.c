/* index.html: the tables, the plots in it as SVG, and what each figure means. It needs no other
 * file and no network. */
#include "uncertainty/outcome_priv.h"

#include "base/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SVG_LIMIT ((int64_t)64 << 20)

static const char STYLE[] =
    "body{font:16px/1.5 sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#222;"
    "background:#fff}\n"
    "table{border-collapse:collapse;margin:1em 0;font-size:14px;display:block;overflow-x:auto}\n"
    "th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\n"
    "th:first-child,td:first-child,td.text,th.text{text-align:left}\n"
    "th{border-bottom:2px solid #888}\n"
    ".interval{display:block;color:#666;font-size:12px}\n"
    ".certain{font-weight:bold}\n"
    "figure{margin:2em 0}figcaption{max-width:48em;color:#444}\n"
    "svg{max-width:100%;height:auto}\n"
    "dt{font-weight:bold}dd{margin:0 0 .6em 1.5em}\n"
    "code,pre{font-size:14px;background:#f4f4f4;padding:.1em .3em;overflow-x:auto}\n";

static void put_escaped(bp_buffer *out, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '&')
            bp_buffer_printf(out, "&amp;");
        else if (*c == '<')
            bp_buffer_printf(out, "&lt;");
        else if (*c == '>')
            bp_buffer_printf(out, "&gt;");
        else if (*c == '"')
            bp_buffer_printf(out, "&quot;");
        else
            bp_buffer_add(out, c, 1);
    }
}

/* ---- cells ---- */

static void put_text(bp_buffer *out, const char *text)
{
    bp_buffer_printf(out, "<td class=\"text\">");
    put_escaped(out, text);
    bp_buffer_printf(out, "</td>");
}

static void put_real(bp_buffer *out, double value, const char *format)
{
    char text[64] = "&ndash;";

    if (isfinite(value))
        (void)snprintf(text, sizeof(text), strcmp(format, "s") == 0 ? "%.1f" : "%.4f", value);
    bp_buffer_printf(out, "<td>%s</td>", text);
}

static void put_value(bp_buffer *out, const study_value *value, bool difference)
{
    bool certain = difference && (value->low > 0 || value->high < 0);

    if (!isfinite(value->value)) {
        bp_buffer_printf(out, "<td>&ndash;</td>");
        return;
    }
    bp_buffer_printf(out, difference ? "<td%s>%+.4f" : "<td%s>%.4f",
                     certain ? " class=\"certain\"" : "", value->value);
    if (isfinite(value->low) && isfinite(value->high))
        bp_buffer_printf(out,
                         difference ? "<span class=\"interval\">%+.4f to %+.4f</span>"
                                    : "<span class=\"interval\">%.4f to %.4f</span>",
                         value->low, value->high);
    bp_buffer_printf(out, "</td>");
}

/* ---- tables ---- */

static const char *title_of(const char *key)
{
    for (const study_definition *one = study_definitions; one->key; one++)
        if (strcmp(one->key, key) == 0)
            return one->title;
    return key;
}

static void put_methods(bp_buffer *out, const study_outcome *outcome)
{
    bp_buffer_printf(out,
                     "<h2>Methods</h2>\n<table>\n<tr><th>method</th><th class=\"text\">way</th>"
                     "<th>members</th>");
    for (int f = 0; f < STUDY_FIGURES; f++)
        bp_buffer_printf(out, "<th>%s</th>", title_of(study_figure_name(f)));
    bp_buffer_printf(out, "<th>Temperature</th><th>training, s</th><th>fit, s</th><th>scoring, s"
                          "</th><th>memory, MiB</th></tr>\n");
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        const study_cost *cost = &outcome->costs[m];

        bp_buffer_printf(out, "<tr>");
        put_text(out, outcome->methods.items[m].name);
        put_text(out, study_way_name(outcome->methods.items[m].way));
        bp_buffer_printf(out, "<td>%" PRId64 "</td>", outcome->members[m]);
        for (int f = 0; f < STUDY_FIGURES; f++)
            put_value(out, &outcome->results[m].values[f], false);
        put_real(out, outcome->tempers[m].temperature, "f");
        put_real(out, cost->train_seconds, "s");
        put_real(out, cost->fit_seconds, "s");
        put_real(out, cost->score_seconds, "s");
        put_real(out, cost->memory_mib, "s");
        bp_buffer_printf(out, "</tr>\n");
    }
    bp_buffer_printf(out,
                     "</table>\n<p>In small print: 95 %% intervals over %" PRId64
                     " documents in the domain (%" PRId64 " resamples).</p>\n",
                     outcome->in_domain.items[0].document_count, outcome->resamples);
}

static void put_detection(bp_buffer *out, const study_outcome *outcome)
{
    if (outcome->shifted.count == 0)
        return;
    bp_buffer_printf(out, "<h2>Shifted text</h2>\n<p>Is a document of the shift told from one in "
                          "the domain by its mean score? Positive class: shifted.</p>\n<table>\n"
                          "<tr><th>shift</th><th class=\"text\">method</th><th class=\"text\">score"
                          "</th><th>AUROC</th><th>AUPR</th><th>FPR95</th></tr>\n");
    for (int64_t s = 0; s < outcome->shifted.count; s++)
        for (int64_t m = 0; m < outcome->methods.count; m++)
            for (int c = 0; c < STUDY_SCORES; c++) {
                bp_buffer_printf(out, "<tr>");
                put_text(out, outcome->shifted.items[s].name);
                put_text(out, outcome->methods.items[m].name);
                put_text(out, study_score_name((study_score)c));
                for (int d = 0; d < STUDY_DETECTIONS; d++)
                    put_value(out, &outcome->results[m].values[study_column(s, (study_score)c, d)],
                              false);
                bp_buffer_printf(out, "</tr>\n");
            }
    bp_buffer_printf(out, "</table>\n");
}

static void put_differences(bp_buffer *out, const study_outcome *outcome)
{
    int64_t methods = outcome->methods.count, columns = study_columns(outcome->shifted.count);

    if (methods < 2)
        return;
    bp_buffer_printf(out,
                     "<h2>Differences</h2>\n<p>Method minus other, on the same resamples; bold "
                     "where the interval excludes 0. A method of one distribution has no mutual "
                     "information, so no difference by it.</p>\n"
                     "<table>\n<tr><th>method</th><th class=\"text\">other</th>");
    for (int f = 0; f < STUDY_FIGURES; f++)
        bp_buffer_printf(out, "<th>%s</th>", title_of(study_figure_name(f)));
    for (int64_t s = 0; s < outcome->shifted.count; s++)
        for (int c = 0; c < STUDY_SCORES; c++) {
            bp_buffer_printf(out, "<th>AUROC, ");
            put_escaped(out, outcome->shifted.items[s].name);
            bp_buffer_printf(out, ",<br>%s</th>", study_score_name((study_score)c));
        }
    bp_buffer_printf(out, "</tr>\n");
    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; k < methods; k++) {
            const study_value *values = outcome->differences + study_pair(i, k, methods) * columns;

            bp_buffer_printf(out, "<tr>");
            put_text(out, outcome->methods.items[i].name);
            put_text(out, outcome->methods.items[k].name);
            for (int f = 0; f < STUDY_FIGURES; f++)
                put_value(out, &values[f], true);
            for (int64_t s = 0; s < outcome->shifted.count; s++)
                for (int c = 0; c < STUDY_SCORES; c++)
                    put_value(out, &values[study_column(s, (study_score)c, STUDY_AUROC)], true);
            bp_buffer_printf(out, "</tr>\n");
        }
    bp_buffer_printf(out, "</table>\n");
}

/* ---- plots ---- */

/* Where an id stands behind text: id='x', href='#x', url(#x); NULL: at none. */
static const char *find_id(const char *text)
{
    static const char *const BEFORE[] = {" id='",    " id=\"",    " href='#", " href=\"#",
                                         ":href='#", ":href=\"#", "url(#"};

    for (size_t k = 0; k < sizeof BEFORE / sizeof BEFORE[0]; k++)
        if (strncmp(text, BEFORE[k], strlen(BEFORE[k])) == 0)
            return text + strlen(BEFORE[k]);
    return NULL;
}

/* With all ids behind a prefix, since a page has many such elements, and without titles, which show
 * gnuplot's own words under the mouse. */
static void put_element(bp_buffer *out, const char *text, const char *prefix)
{
    static const char OPEN[] = "<title>", CLOSE[] = "</title>";

    while (*text) {
        const char *id = find_id(text);
        const char *end = strncmp(text, OPEN, strlen(OPEN)) == 0 ? strstr(text, CLOSE) : NULL;

        if (end) {
            text = end + strlen(CLOSE);
        } else if (id) {
            bp_buffer_add(out, text, (size_t)(id - text));
            put_escaped(out, prefix);
            bp_buffer_printf(out, "-");
            text = id;
        } else {
            size_t bytes = 1 + strcspn(text + 1, " :u<");

            bp_buffer_add(out, text, bytes);
            text += bytes;
        }
    }
}

/* The element of an SVG file, without what stands before it. */
static bool put_svg(bp_buffer *out, const char *path, const char *prefix)
{
    char *data = NULL;
    const char *element;
    size_t bytes;
    bool there = bp_path_exists(path) && bp_file_read(path, SVG_LIMIT, &data, &bytes) == BP_OK;

    element = there ? strstr(data, "<svg") : NULL;
    if (element)
        put_element(out, element, prefix);
    bp_free(data);
    return element != NULL;
}

static bp_err put_plots(bp_buffer *out, const study_outcome *outcome)
{
    study_plot *plots = NULL;
    bp_err err = study_plots_list(&plots, outcome);

    bp_buffer_printf(out, "<h2>Plots</h2>\n");
    for (const study_plot *plot = plots; err == BP_OK && plot->name; plot++) {
        char *path = bp_sprintf("%s/plots/%s.svg", outcome->folder, plot->name);

        bp_buffer_printf(out, "<figure id=\"");
        put_escaped(out, plot->name);
        bp_buffer_printf(out, "\">\n<h3>");
        put_escaped(out, plot->title);
        bp_buffer_printf(out, "</h3>\n");
        if (!path)
            err = BP_FAIL(BP_ERR_SYSTEM, "no memory for a plot: at %s", plot->name);
        else if (!put_svg(out, path, plot->name))
            bp_buffer_printf(out, "<p>Not drawn: gnuplot was not there, or it failed.</p>\n");
        bp_buffer_printf(out, "<figcaption>");
        put_escaped(out, plot->says);
        bp_buffer_printf(out,
                         " <a href=\"plots/%s.png\">PNG</a>, <a href=\"plots/%s.svg\">SVG</a>, "
                         "<a href=\"plots/%s.gp\">gnuplot</a></figcaption>\n</figure>\n",
                         plot->name, plot->name, plot->name);
        bp_free(path);
    }
    study_plots_clear(&plots);
    return err;
}

/* ---- words ---- */

static void put_head(bp_buffer *out, const study_outcome *outcome)
{
    bp_buffer_printf(out,
                     "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<meta name=\"viewport\" content=\"width=device-width\">\n"
                     "<title>Uncertainty of language models</title>\n<style>\n%s</style>\n</head>\n"
                     "<body>\n<h1>Uncertainty of language models</h1>\n<p>%" PRId64
                     " method%s on %" PRId64 " tokens of %" PRId64 " documents in the domain",
                     STYLE, outcome->methods.count, outcome->methods.count == 1 ? "" : "s",
                     outcome->results[0].tokens, outcome->in_domain.items[0].document_count);
    for (int64_t s = 0; s < outcome->shifted.count; s++) {
        bp_buffer_printf(out, s == 0 ? ", and on shifted documents: " : ", ");
        put_escaped(out, outcome->shifted.items[s].name);
        bp_buffer_printf(out, " (%" PRId64 ")", outcome->shifted.items[s].document_count);
    }
    bp_buffer_printf(out, ".</p>\n<pre>");
    put_escaped(out, outcome->command);
    bp_buffer_printf(out, "</pre>\n");
}

static void put_definitions(bp_buffer *out)
{
    bp_buffer_printf(out, "<h2>What the figures mean</h2>\n<dl>\n");
    for (const study_definition *one = study_definitions; one->key; one++) {
        bp_buffer_printf(out, "<dt>");
        put_escaped(out, one->title);
        bp_buffer_printf(out, "</dt><dd>");
        put_escaped(out, one->text);
        bp_buffer_printf(out, "</dd>\n");
    }
    bp_buffer_printf(
        out,
        "</dl>\n<h2>Files</h2>\n<p><a href=\"summary.json\">summary.json</a> has every figure; "
        "tables: <a href=\"methods.csv\">methods</a>, <a href=\"detection.csv\">detection</a>, "
        "<a href=\"differences.csv\">differences</a>, <a href=\"reliability.csv\">reliability"
        "</a>, <a href=\"risk_coverage.csv\">risk and coverage</a>, <a href=\"roc.csv\">ROC "
        "curves</a>, <a href=\"histogram.csv\">histograms</a>. <code>scores/NAME/score</code> "
        "holds every token of each method, <a href=\"../config.ini\">config.ini</a> every key."
        "</p>\n</body>\n</html>\n");
}

bp_err study_page_write(const study_outcome *outcome)
{
    char *path = bp_path_join(outcome->folder, "index.html"), *text;
    bp_buffer page = {0};
    bp_err err;

    put_head(&page, outcome);
    put_methods(&page, outcome);
    put_detection(&page, outcome);
    put_differences(&page, outcome);
    err = put_plots(&page, outcome);
    put_definitions(&page);
    text = bp_buffer_take(&page);
    if (err == BP_OK && (!path || !text))
        err = BP_FAIL(BP_ERR_SYSTEM, "no memory for the page of a study");
    if (err == BP_OK)
        err = bp_file_write(path, text, strlen(text));
    bp_free(text);
    bp_free(path);
    return err;
}
