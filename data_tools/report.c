/* Reports of tools: JSON, and a page of the house's templates. */
#include "report.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/command_line.h"
#include "document_texts.h"
#include "io/corpus/corpus_file.h"
#include "job/report/report.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define VERSION     1
#define LIMIT_BYTES ((int64_t)256 << 20)
static const char *const REPORTS[] = {"pii", "toxicity", "leakage", "exposure", NULL};

json_t *tool_report_begin(const char *name)
{
    return json_pack("{s:s, s:i}", "report", name, "format_version", VERSION);
}

void tool_report_corpora(json_t *report, const char *const *paths, int count)
{
    json_t *list = json_array();

    for (int k = 0; k < count; k++) {
        bp_corpus_file *file = NULL;

        if (!document_is_corpus(paths[k]) || bp_corpus_file_open(&file, paths[k]) != BP_OK)
            continue;
        (void)json_array_append_new(list, json_string(bp_corpus_file_info(file)->content_hash));
        bp_corpus_file_close(&file);
    }
    (void)json_object_set_new(report, "corpora", list);
}

static void add_about(json_t *page, const char *name, const char *value, bool code)
{
    json_t *about = json_object_get(page, "about");

    if (!about) {
        about = json_array();
        (void)json_object_set_new(page, "about", about);
    }
    (void)json_array_append_new(
        about, json_pack("{s:s, s:s, s:b}", "name", name, "value", value, "code", (int)code));
}

static void add_date(json_t *page)
{
    char text[32];
    time_t now = time(NULL);
    struct tm utc;

    if (gmtime_r(&now, &utc) && strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &utc) > 0)
        add_about(page, "Date", text, false);
}

bp_err tool_report_save(const char *folder, const char *name, const json_t *figures, json_t *page,
                        int ranks)
{
    char *file = bp_sprintf("%s.json", name), *path = bp_path_join(folder, file),
         *html = bp_path_join(folder, "index.html"), *command = bp_command_line(ranks);
    bp_err err = bp_dir_make(folder);

    (void)json_object_set(page, "figures", (json_t *)figures);
    add_about(page, "Command", command, true);
    add_about(page, "bagpipe", BAGPIPE_VERSION, false);
    add_date(page);
    if (err == BP_OK)
        err = bp_report_page(html, name, page);
    if (err == BP_OK)
        err = bp_json_save(path, figures);
    json_decref(page);
    bp_free(command);
    bp_free(html);
    bp_free(path);
    bp_free(file);
    return err;
}

/* The report of a folder: the first of those there are. Owns: the result is the caller's. */
static char *path_of(const char *path)
{
    for (int k = 0; REPORTS[k] && bp_path_is_dir(path); k++) {
        char *name = bp_sprintf("%s.json", REPORTS[k]), *file = bp_path_join(path, name);

        bp_free(name);
        if (bp_path_exists(file))
            return file;
        bp_free(file);
    }
    return bp_strdup(path);
}

bp_err tool_report_load(json_t **out, const char **name, const char *path)
{
    char *file = path_of(path);
    int64_t version = 0;
    bp_err err = bp_json_load(out, file, LIMIT_BYTES);
    int k = 0;

    if (err == BP_OK)
        err = bp_json_get_string(*out, "report", name, file);
    while (err == BP_OK && REPORTS[k] && strcmp(REPORTS[k], *name) != 0)
        k++;
    if (err == BP_OK && !REPORTS[k])
        err = BP_FAIL(BP_ERR_FORMAT, "report.unknown",
                      "'%.40s' is no report that a card takes: at %s; give the folder of pii, "
                      "toxicity or leakage",
                      *name, file);
    if (err == BP_OK)
        err = bp_json_get_int(*out, "format_version", &version, file);
    if (err == BP_OK && version != VERSION)
        err = BP_FAIL(BP_ERR_FORMAT, "report.version",
                      "the report has version %lld, and %d is known: at %s; make it again with "
                      "this bagpipe",
                      (long long)version, VERSION, file);
    if (err != BP_OK) {
        json_decref(*out);
        *out = NULL;
    }
    bp_free(file);
    return err;
}

json_t *tool_figure(double value, bp_interval interval)
{
    return json_pack("{s:o, s:o, s:o}", "value", bp_json_real(value), "low",
                     bp_json_real(interval.low), "high", bp_json_real(interval.high));
}

json_t *tool_share(int64_t count, int64_t all)
{
    double share = (double)count / (double)all;

    return all > 0 ? tool_figure(share, bp_wilson_interval(share, all)) : json_null();
}

json_t *tool_figure_shown(const json_t *figure, bool percent)
{
    static const char *const keys[] = {"value", "low", "high"};
    double error = (bp_json_number(figure, "high") - bp_json_number(figure, "low")) / 2;
    json_t *out = json_object();

    for (int k = 0; k < 3; k++) {
        double value = bp_json_number(figure, keys[k]);
        char *text = percent ? bp_sprintf("%.3g %%", 100 * value) : NULL;

        if (!percent && !isnan(value))
            text = bp_report_figure(value, error, false);
        if (text && !isnan(value))
            (void)json_object_set_new(out, keys[k], json_string(text));
        bp_free(text);
    }
    return out;
}
