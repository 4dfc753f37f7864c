/* Plots: gnuplot scripts that read the tables next to them, so that they can be changed and drawn
 * again (from RUN/uncertainty: gnuplot plots/NAME.gp). Called by uncertainty/comparison/job.c and
 * page.c. */
#include "uncertainty/results/results.h"

#include "base/config/json.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "job/report/report.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- which plots ---- */

comparison_plot *comparison_plots_list(const comparison_results *results)
{
    static const char *const KINDS[] = {"nll", "reliability", "risk_coverage"};
    static const char *const TITLES[] = {"Negative log-likelihood in the domain",
                                         "Reliability of the top prediction", "Risk and coverage"};
    int64_t shifts = results->shifted.count, methods = results->methods.count;
    comparison_plot *plots = bp_alloc("comparison.plots", 4 + shifts + methods, sizeof *plots);
    comparison_plot *plot = plots;

    for (int k = 0; k < 3; k++)
        *plot++ = (comparison_plot){bp_strdup(KINDS[k]), bp_strdup(TITLES[k]), .kind = KINDS[k]};
    for (int64_t s = 0; s < shifts; s++) {
        const char *shift = results->shifted.items[s].name;
        char *safe = comparison_safe_name(shift);

        *plot++ =
            (comparison_plot){bp_sprintf("roc-%02" PRId64 "-%s", s + 1, safe),
                              bp_sprintf("In the domain or %s?", shift), .kind = "roc", .shift = s};
        bp_free(safe);
    }
    for (int64_t m = 0; m < methods; m++)
        if (results->members[m] > 1) /* one distribution has no mutual information */
            *plot++ = (comparison_plot){
                bp_sprintf("histogram-%s", results->methods.items[m].name),
                bp_sprintf("Mutual information of %s", results->methods.items[m].name),
                .kind = "histogram", .method = m};
    return plots;
}

void comparison_plots_clear(comparison_plot **plots)
{
    for (comparison_plot *plot = *plots; plot && plot->name; plot++) {
        bp_free(plot->name);
        bp_free(plot->title);
    }
    bp_free(*plots);
    *plots = NULL;
}

/* ---- variables of the scripts ---- */

/* A few tokens do not show how often they are right. */
#define FEW_TOKENS 10

static bool has_bars(const comparison_result *result)
{
    for (int b = 0; b < BP_CALIBRATION_BINS; b++)
        if (result->bars[b].tokens >= FEW_TOKENS)
            return true;
    return false;
}

/* Names of shifts may contain characters that gnuplot can't read in a table: rows have their
 * numbers. method,score,fpr,tpr */
static void put_curves(bp_buffer *out, const comparison_results *results, int64_t s)
{
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int c = 0; c < COMPARISON_SCORES; c++) {
            const comparison_curve *curve = &results->results[m].curves[s * COMPARISON_SCORES + c];

            for (int64_t p = 0; p < curve->count; p++)
                bp_buffer_printf(out, "%" PRId64 ",%d,%.9g,%.9g\n", m + 1, c + 1,
                                 curve->points[p].fpr, curve->points[p].tpr);
        }
}

/* group,middle of the bin,share of the group's documents */
static void put_bins(bp_buffer *out, const comparison_results *results, int64_t m)
{
    const comparison_histogram *histogram = &results->results[m].histogram;

    for (int64_t g = 0; g <= results->shifted.count; g++) {
        const comparison_group *group =
            g == 0 ? &results->in_domain.items[0] : &results->shifted.items[g - 1];

        for (int b = 0; b < COMPARISON_HISTOGRAM_BINS; b++)
            bp_buffer_printf(out, "%" PRId64 ",%.9g,%.9g\n", g + 1,
                             comparison_histogram_edge(histogram, b + 0.5),
                             (double)histogram->counts[g * COMPARISON_HISTOGRAM_BINS + b] /
                                 (double)group->document_count);
    }
}

/* The unit and number of predictions, and the risk of all of them, which is that of any order. */
static void add_units(json_t *variables, const comparison_results *results)
{
    json_t *risks = json_array();

    for (int64_t m = 0; m < results->methods.count; m++)
        (void)json_array_append_new(
            risks, bp_json_real(results->results[m].risk[0].error[BP_RISK_POINTS - 1]));
    (void)json_object_set_new(variables, "risks", risks);
    (void)json_object_set_new(variables, "unit",
                              bp_json_string(comparison_prediction_name(results)));
    (void)json_object_set_new(variables, "count", json_integer(results->results[0].tokens));
    (void)json_object_set_new(variables, "is_value", json_integer(results->task->is_value));
}

static json_t *variables_of(const comparison_results *results, const comparison_plot *plot)
{
    json_t *methods = json_array(), *drawn = json_array(), *groups = json_array(),
           *scores = json_array(), *titles = json_array();
    char *output = bp_sprintf("plots/%s", plot->name);
    bp_buffer rows = {0};
    json_t *variables;

    for (int64_t m = 0; m < results->methods.count; m++) {
        (void)json_array_append_new(methods, bp_json_string(results->methods.items[m].name));
        (void)json_array_append_new(drawn, json_integer(has_bars(&results->results[m])));
    }
    (void)json_array_append_new(groups, json_string("in the domain"));
    for (int64_t s = 0; s < results->shifted.count; s++)
        (void)json_array_append_new(groups, bp_json_string(results->shifted.items[s].name));
    for (int c = 0; c < COMPARISON_SCORES; c++)
        if (comparison_has_score(results, c)) {
            (void)json_array_append_new(scores, json_integer(c + 1));
            (void)json_array_append_new(titles, json_string(comparison_score_title(results, c)));
        }
    if (strcmp(plot->kind, "roc") == 0)
        put_curves(&rows, results, plot->shift);
    if (strcmp(plot->kind, "histogram") == 0)
        put_bins(&rows, results, plot->method);
    variables = json_pack("{s:s, s:s?, s:s, s:o, s:o, s:o, s:i, s:s?}", "formats", "svg png",
                          "output", output, "title", plot->title, "methods", methods, "drawn",
                          drawn, "groups", groups, "intervals", (int)comparison_has_limits(results),
                          "$rows", rows.data ? rows.data : "");
    (void)json_object_set_new(variables, "scores", scores);
    (void)json_object_set_new(variables, "score_titles", titles);
    bp_buffer_clear(&rows);
    bp_free(output);
    add_units(variables, results);
    return variables;
}

/* ---- drawings of an earlier start ---- */

/* The first line of a script: it distinguishes a user's copy under another name. */
#define MARK       "# %s.gp: written by bagpipe uncertainty, and anew by its next start\n"
#define MARK_BYTES 256

/* Is plots/NAME.gp a script of ours? */
static bool is_ours(const char *folder, const char *name)
{
    char *path = bp_sprintf("%s/%s.gp", folder, name), *mark = bp_sprintf(MARK, name);
    char line[MARK_BYTES];
    int fd = -1;
    bool opened = bp_plain_open(path, O_RDONLY, &fd) == BP_OK;
    FILE *file = opened ? fdopen(fd, "r") : NULL;
    bool ours = file && fgets(line, sizeof(line), file) && strcmp(line, mark) == 0;

    if (file)
        (void)fclose(file); /* opened for reading only */
    else if (opened)
        (void)close(fd);
    bp_free(mark);
    bp_free(path);
    return ours;
}

/* Remove our scripts and drawings: of methods and shifts that no longer exist, and those that a
 * missing gnuplot would leave outdated. */
static bp_err remove_drawn(const char *folder)
{
    static const char *const SUFFIXES[] = {"svg", "png", "gp"};
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_dir_list(folder, &names, &count);

    if (err == BP_OK)
        err = bp_fence_check(); /* after the listing, which does not include later drawings */
    for (int64_t k = 0; err == BP_OK && k < count; k++) {
        char *dot = strrchr(names[k], '.');

        if (!dot || strcmp(dot, ".gp") != 0)
            continue;
        *dot = '\0';
        if (!is_ours(folder, names[k]))
            continue;
        for (int s = 0; s < 3; s++) {
            char *path = bp_sprintf("%s/%s.%s", folder, names[k], SUFFIXES[s]);

            (void)unlink(path); /* ignore one that can't be removed */
            bp_free(path);
        }
    }
    bp_names_free(&names, count);
    return err;
}

/* ---- drawing ---- */

static bp_err write_script(const comparison_results *results, const comparison_plot *plot)
{
    char *path = bp_sprintf("%s/plots/%s.gp", results->folder, plot->name);
    char *kind = bp_sprintf("uncertainty-%s", plot->kind), *script = NULL, *text;
    json_t *variables = variables_of(results, plot);
    bp_err err = bp_report_script(&script, kind, variables);

    if (err == BP_OK) {
        text = bp_sprintf(MARK "%s", plot->name, script);
        err = bp_file_write(path, text, strlen(text));
        bp_free(text);
    }
    json_decref(variables);
    bp_free(script);
    bp_free(kind);
    bp_free(path);
    return err;
}

bp_err comparison_plots_draw(const comparison_results *results)
{
    char *folder = bp_path_join(results->folder, "plots");
    comparison_plot *plots = comparison_plots_list(results);
    bp_err err = bp_dir_make(folder), drawn = BP_OK;

    bp_dir_sweep(folder); /* a job killed while writing a script leaves a partial one */
    if (err == BP_OK)
        err = remove_drawn(folder);
    for (const comparison_plot *plot = plots; err == BP_OK && plot->name; plot++)
        err = write_script(results, plot);
    for (const comparison_plot *plot = plots;
         err == BP_OK && (drawn == BP_OK || drawn == BP_ERR_FORMAT) && plot->name; plot++) {
        char *script = bp_sprintf("load 'plots/%s.gp'\n", plot->name), *nothing = NULL;
        size_t bytes;

        err = bp_fence_check(); /* gnuplot writes the picture itself */
        drawn = err == BP_OK ? bp_gnuplot(&nothing, &bytes, results->folder, script) : BP_OK;
        if (drawn == BP_ERR_FORMAT)
            bp_warn_failure("%s is not drawn: %s", plot->name, bp_err_text());
        else if (drawn != BP_OK) /* drawing the others would fail too */
            bp_warn_failure(
                "no plots: %s; everything else is there, and 'gnuplot plots/NAME.gp' in %s "
                "draws them later",
                bp_err_text(), results->folder);
        bp_free(nothing);
        bp_free(script);
    }
    comparison_plots_clear(&plots);
    bp_free(folder);
    return err;
}
