/* Plots: a gnuplot script each, with its numbers in it, so that it can be changed and drawn again
 * (from RUN/uncertainty: gnuplot plots/NAME.gp). */
#include "uncertainty/outcome_priv.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Okabe and Ito's colours, told apart by all eyes; then again with dashes. */
static const char *const COLOURS[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#000000"};
#define COLOUR_COUNT ((int64_t)(sizeof COLOURS / sizeof COLOURS[0]))

#define KEY_ROW      19 /* points of a line of a key */

typedef void (*draw)(bp_buffer *out, const study_outcome *outcome, const study_plot *plot);

/* ---- pieces of scripts ---- */

/* In single quotes, where gnuplot knows no escape but a doubled quote. */
static void put_quoted(bp_buffer *out, const char *text)
{
    bp_buffer_printf(out, "'");
    for (const char *c = text; *c; c++)
        bp_buffer_printf(out, "%s%c", *c == '\'' ? "'" : "", (unsigned char)*c < ' ' ? ' ' : *c);
    bp_buffer_printf(out, "'");
}

/* Curve k of `count`: the later ones are thinner, so that one below another is seen. */
static void put_style(bp_buffer *out, int64_t k, int64_t count)
{
    bp_buffer_printf(out, " lc rgb '%s' dt %" PRId64 " lw %.2g", COLOURS[k % COLOUR_COUNT],
                     1 + k / COLOUR_COUNT % 5,
                     count > 1 ? 4 - 2.0 * (double)k / (double)(count - 1) : 3);
}

static void put_number(bp_buffer *out, double value)
{
    if (isfinite(value))
        bp_buffer_printf(out, " %.9g", value);
    else
        bp_buffer_printf(out, " NaN");
}

static const char *method_name(const study_outcome *outcome, int64_t m)
{
    return outcome->methods.items[m].name;
}

/* A curve of the list behind `plot `: block $BLOCKm, with the name of the method or without. */
static void put_curve(bp_buffer *out, const study_outcome *outcome, const char *block, int64_t m,
                      const char *with, bool named)
{
    bool first = out->data && out->data[out->bytes - 1] == ' ';

    bp_buffer_printf(out, "%s$%s%" PRId64 " using 1:2 with %s", first ? "" : ", ", block, m, with);
    put_style(out, m, outcome->methods.count);
    bp_buffer_printf(out, named ? " title " : " notitle");
    if (named)
        put_quoted(out, method_name(outcome, m));
}

/* Below the axes, a name a line: nothing lies over a curve, and a name may be long. */
static void put_key_below(bp_buffer *out)
{
    bp_buffer_printf(out, "set key bmargin center vertical maxcols 1 Left reverse height 1\n");
}

/* ---- data and drawings ---- */

static void data_nll(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    (void)plot;
    bp_buffer_printf(out, "$nll << EOD\n");
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        const study_value *nll = &outcome->results[m].values[STUDY_FIGURE_NLL];

        bp_buffer_printf(out, "%s", method_name(outcome, m));
        put_number(out, nll->value);
        put_number(out, isfinite(nll->low) ? nll->low : nll->value);
        put_number(out, isfinite(nll->high) ? nll->high : nll->value);
        bp_buffer_printf(out, "\n");
    }
    bp_buffer_printf(out, "EOD\n");
}

static void draw_nll(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    (void)plot;
    bp_buffer_printf(out,
                     "set xlabel 'nats a token'\nset yrange [%" PRId64 ".5:-0.5]\nunset key\n"
                     "plot $nll using 2:0:3:4:ytic(1) with xerrorbars lc rgb '%s' lw 2 pt 7 "
                     "notitle\n",
                     outcome->methods.count - 1, COLOURS[0]);
}

/* A handful of tokens says nothing of how often they are right. */
#define FEW_TOKENS 10

static bool has_bars(const study_result *result)
{
    for (int b = 0; b < BP_CALIBRATION_BINS; b++)
        if (result->bars[b].tokens >= FEW_TOKENS)
            return true;
    return false;
}

static void data_reliability(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    (void)plot;
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        bp_buffer_printf(out, "$bars%" PRId64 " << EOD\n", m);
        for (int b = 0; b < BP_CALIBRATION_BINS; b++)
            if (outcome->results[m].bars[b].tokens >= FEW_TOKENS) {
                put_number(out, outcome->results[m].bars[b].confidence);
                put_number(out, outcome->results[m].bars[b].accuracy);
                bp_buffer_printf(out, "\n");
            }
        bp_buffer_printf(out, "EOD\n");
    }
}

static void draw_reliability(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    (void)plot;
    bp_buffer_printf(out, "set xlabel 'confidence'\nset ylabel 'accuracy'\n"
                          "set xrange [-0.02:1.02]\nset yrange [-0.02:1.02]\nset size square\n");
    put_key_below(out);
    bp_buffer_printf(out, "plot x with lines lc rgb '#999999' dt 2 title 'as sure as right'");
    for (int64_t m = 0; m < outcome->methods.count; m++)
        if (has_bars(&outcome->results[m]))
            put_curve(out, outcome, "bars", m, "linespoints pt 7 ps 0.6", true);
    bp_buffer_printf(out, "\n");
}

static void data_risk(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    (void)plot;
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        bp_buffer_printf(out, "$risk%" PRId64 " << EOD\n", m);
        for (int p = 0; p < BP_RISK_POINTS; p++) {
            put_number(out, (p + 1) / (double)BP_RISK_POINTS);
            put_number(out, outcome->results[m].risk[STUDY_BY_CONFIDENCE].error[p]);
            bp_buffer_printf(out, "\n");
        }
        bp_buffer_printf(out, "EOD\n");
    }
}

static void draw_risk(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    (void)plot;
    bp_buffer_printf(out, "set xlabel 'coverage: share of tokens, the most confident first'\n"
                          "set ylabel 'share of them that are wrong'\nset xrange [0:1.02]\n"
                          "set yrange [0:*]\nset offsets 0, 0, graph 0.08, 0\n");
    put_key_below(out);
    bp_buffer_printf(out, "plot ");
    for (int64_t m = 0; m < outcome->methods.count; m++)
        put_curve(out, outcome, "risk", m, "lines", true);
    bp_buffer_printf(out, "\n");
}

static void data_roc(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    for (int c = 0; c < STUDY_SCORES; c++)
        for (int64_t m = 0; m < outcome->methods.count; m++) {
            const study_curve *curve = &outcome->results[m].curves[plot->shift * STUDY_SCORES + c];

            bp_buffer_printf(out, "$%s%" PRId64 " << EOD\n", study_score_name((study_score)c), m);
            for (int64_t p = 0; p < curve->count; p++) {
                put_number(out, curve->points[p].fpr);
                put_number(out, curve->points[p].tpr);
                bp_buffer_printf(out, "\n");
            }
            bp_buffer_printf(out, "EOD\n");
        }
}

/* Three square panels side by side, and one key below them for all. In points of the SVG. */
#define ROC_SIDE   280
#define ROC_STEP   345
#define ROC_LEFT   85
#define ROC_TOP    60
#define ROC_BOTTOM 55 /* for the tics and the axis' name */
#define ROC_WIDTH  (ROC_LEFT + 2 * ROC_STEP + ROC_SIDE + 30)
#define ROC_HEIGHT (ROC_TOP + ROC_SIDE + ROC_BOTTOM + 10)

static int height_of(const study_outcome *outcome, const study_plot *plot);

static void put_panel(bp_buffer *out, int panel, double height)
{
    const double left = ROC_LEFT + panel * ROC_STEP;

    bp_buffer_printf(out,
                     "set lmargin at screen %.4f\nset rmargin at screen %.4f\n"
                     "set tmargin at screen %.4f\nset bmargin at screen %.4f\n",
                     left / ROC_WIDTH, (left + ROC_SIDE) / ROC_WIDTH, 1 - ROC_TOP / height,
                     1 - (ROC_TOP + ROC_SIDE) / height);
}

static void draw_roc(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    static const char *const TITLES[] = {"mutual information", "entropy", "NLL"};
    const double height = height_of(outcome, plot);

    bp_buffer_printf(out, "unset title\nset multiplot title ");
    put_quoted(out, plot->title);
    bp_buffer_printf(out,
                     "\nset xrange [-0.02:1.02]\nset yrange [-0.02:1.02]\n"
                     "set xtics 0.25\nset ytics 0.25\n"
                     "set key at screen %.4f, screen %.4f left top vertical maxcols 1 Left reverse"
                     "\nset xlabel 'in-domain documents called shifted'\n",
                     (double)ROC_LEFT / ROC_WIDTH, 1 - (ROC_HEIGHT - 10) / height);
    for (int c = 0; c < STUDY_SCORES; c++) {
        put_panel(out, c, height);
        bp_buffer_printf(
            out,
            "set title 'by %s'\nset ylabel '%s'\nplot x with lines lc rgb '#999999' dt 2 notitle",
            TITLES[c], c == 0 ? "shifted documents found" : "");
        for (int64_t m = 0; m < outcome->methods.count; m++)
            if (outcome->results[m].curves[plot->shift * STUDY_SCORES + c].count > 0)
                put_curve(out, outcome, study_score_name((study_score)c), m, "lines",
                          c == STUDY_NLL); /* by which each method has a curve */
        bp_buffer_printf(out, "\n");
    }
    bp_buffer_printf(out, "unset multiplot\n");
}

static void data_histogram(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    const study_histogram *histogram = &outcome->results[plot->method].histogram;

    for (int64_t g = 0; g <= outcome->shifted.count; g++) {
        const study_group *group =
            g == 0 ? &outcome->in_domain.items[0] : &outcome->shifted.items[g - 1];

        bp_buffer_printf(out, "$group%" PRId64 " << EOD\n", g);
        for (int b = 0; b < STUDY_HISTOGRAM_BINS; b++) {
            put_number(out, study_histogram_edge(histogram, b + 0.5));
            put_number(out, (double)histogram->counts[g * STUDY_HISTOGRAM_BINS + b] /
                                (double)group->document_count);
            bp_buffer_printf(out, "\n");
        }
        bp_buffer_printf(out, "EOD\n");
    }
}

static void draw_histogram(bp_buffer *out, const study_outcome *outcome, const study_plot *plot)
{
    (void)plot;
    bp_buffer_printf(out, "set xlabel 'mutual information of a document, nats a token'\n"
                          "set ylabel 'share of documents'\nset yrange [0:*]\n"
                          "set offsets 0, 0, graph 0.08, 0\n");
    put_key_below(out);
    bp_buffer_printf(out, "plot ");
    for (int64_t g = 0; g <= outcome->shifted.count; g++) {
        bp_buffer_printf(out, "%s$group%" PRId64 " using 1:2 with histeps", g > 0 ? ", " : "", g);
        put_style(out, g, 1 + outcome->shifted.count);
        bp_buffer_printf(out, " title ");
        put_quoted(out, g == 0 ? "in the domain" : outcome->shifted.items[g - 1].name);
    }
    bp_buffer_printf(out, "\n");
}

/* ---- which plots ---- */

typedef struct plot_kind {
    draw data, drawing;
    const char *says;
    int width, height; /* of the SVG, without the key */
} plot_kind;

static const plot_kind NLL_KIND = {
    data_nll, draw_nll,
    "NLL of a token in the domain with its 95 % interval over documents; lower is better. "
    "Intervals "
    "of two methods may overlap and their difference be certain all the same: see the differences.",
    720, 320};
static const plot_kind RELIABILITY_KIND = {
    data_reliability, draw_reliability,
    "How often predictions of some confidence are right. Below the line a method is too sure of "
    "itself, above it not sure enough. Bins of fewer than 10 tokens are left out; "
    "reliability.csv has them.",
    720, 480};
static const plot_kind RISK_KIND = {
    data_risk, draw_risk,
    "The error rate of the tokens that a method is most confident of: a curve that rises late and "
    "from low knows what it does not know.",
    720, 420};
static const plot_kind ROC_KIND = {
    data_roc, draw_roc,
    "How well documents of the shift are told from those in the domain by each score. A method of "
    "one distribution has no mutual information, so no curve by it.",
    ROC_WIDTH, ROC_HEIGHT};
static const plot_kind HISTOGRAM_KIND = {
    data_histogram, draw_histogram,
    "What the members disagree about, a document at a time: shifted text should lie to the right.",
    720, 380};

static const plot_kind *kind_of(const study_plot *plot)
{
    if (plot->shift >= 0)
        return &ROC_KIND;
    if (plot->method >= 0)
        return &HISTOGRAM_KIND;
    if (strcmp(plot->name, "nll") == 0)
        return &NLL_KIND;
    return strcmp(plot->name, "reliability") == 0 ? &RELIABILITY_KIND : &RISK_KIND;
}

/* A line of the key each. */
static int64_t key_rows(const study_outcome *outcome, const study_plot *plot)
{
    int64_t methods = outcome->methods.count;

    if (plot->method >= 0)
        return 1 + outcome->shifted.count;
    if (kind_of(plot) == &NLL_KIND) /* it has names at its axis: the tenth and more need room */
        return methods > 9 ? methods - 9 : 0;
    return kind_of(plot) == &RELIABILITY_KIND ? 1 + methods : methods;
}

static int height_of(const study_outcome *outcome, const study_plot *plot)
{
    return kind_of(plot)->height + (int)(KEY_ROW * key_rows(outcome, plot));
}

static bool add_plot(study_plot *plots, int64_t *count, char *name, char *title, int64_t shift,
                     int64_t method)
{
    study_plot *plot = &plots[(*count)++];

    *plot = (study_plot){.name = name, .title = title, .shift = shift, .method = method};
    if (!name || !title)
        return false;
    plot->says = kind_of(plot)->says;
    return true;
}

static bool add_roc(study_plot *plots, int64_t *count, const study_outcome *outcome, int64_t s)
{
    const char *shift = outcome->shifted.items[s].name;
    char *safe = study_safe_name(shift);
    bool added = safe && add_plot(plots, count, bp_sprintf("roc-%02" PRId64 "-%s", s + 1, safe),
                                  bp_sprintf("In the domain or %s?", shift), s, -1);

    bp_free(safe);
    return added;
}

bp_err study_plots_list(study_plot **out, const study_outcome *outcome)
{
    int64_t shifts = outcome->shifted.count, methods = outcome->methods.count, count = 0;
    study_plot *plots = bp_alloc("study.plots", 4 + shifts + methods, sizeof(*plots));
    bool added = plots != NULL;

    added = added && add_plot(plots, &count, bp_strdup("nll"),
                              bp_strdup("Negative log-likelihood in the domain"), -1, -1);
    added = added && add_plot(plots, &count, bp_strdup("reliability"),
                              bp_strdup("Reliability of the top prediction"), -1, -1);
    added = added && add_plot(plots, &count, bp_strdup("risk_coverage"),
                              bp_strdup("Risk and coverage"), -1, -1);
    for (int64_t s = 0; added && s < shifts; s++)
        added = add_roc(plots, &count, outcome, s);
    for (int64_t m = 0; added && m < methods; m++)
        if (outcome->members[m] > 1) /* one distribution has no mutual information */
            added =
                add_plot(plots, &count, bp_sprintf("histogram-%s", method_name(outcome, m)),
                         bp_sprintf("Mutual information of %s", method_name(outcome, m)), -1, m);
    *out = plots;
    return added ? BP_OK : BP_FAIL(BP_ERR_SYSTEM, "no memory for the plots of a study");
}

void study_plots_clear(study_plot **plots)
{
    for (study_plot *plot = *plots; plot && (plot->name || plot->title); plot++) {
        bp_free(plot->name);
        bp_free(plot->title);
    }
    bp_free(*plots);
    *plots = NULL;
}

/* ---- what an earlier start drew ---- */

/* The first line of a script: a copy that someone made under another name is told by it. */
#define MARK       "# %s.gp: written by bagpipe uncertainty, and anew by its next start\n"
#define MARK_BYTES 256

/* Is plots/NAME.gp a script of ours? */
static bool is_ours(const char *folder, const char *name)
{
    char *path = bp_sprintf("%s/%s.gp", folder, name), *mark = bp_sprintf(MARK, name);
    char line[MARK_BYTES];
    FILE *file = path ? fopen(path, "r") : NULL;
    bool ours = file && mark && fgets(line, sizeof(line), file) != NULL && strcmp(line, mark) == 0;

    if (file)
        (void)fclose(file); /* only read from */
    bp_free(mark);
    bp_free(path);
    return ours;
}

/* One that can't be removed is in nobody's way. */
static void remove_file(const char *folder, const char *name, const char *suffix)
{
    char *path = bp_sprintf("%s/%s.%s", folder, name, suffix);

    if (path)
        (void)unlink(path);
    bp_free(path);
}

/* Scripts and drawings of ours: of methods and shifts that are gone, and those that a missing
 * gnuplot would leave as they were. */
static bp_err remove_drawn(const char *folder)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_dir_list(folder, &names, &count);

    for (int64_t k = 0; err == BP_OK && k < count; k++) {
        char *dot = strrchr(names[k], '.');

        if (!dot || strcmp(dot, ".gp") != 0)
            continue;
        *dot = '\0';
        if (!is_ours(folder, names[k]))
            continue;
        remove_file(folder, names[k], "svg");
        remove_file(folder, names[k], "png");
        remove_file(folder, names[k], "gp");
    }
    bp_names_free(&names, count);
    return err;
}

/* ---- drawing ---- */

static void put_terminal(bp_buffer *out, const study_outcome *outcome, const study_plot *plot,
                         bool png)
{
    const int width = kind_of(plot)->width, height = height_of(outcome, plot);

    bp_buffer_printf(out, "reset\n");
    if (png)
        bp_buffer_printf(out, "set terminal pngcairo noenhanced size %d,%d fontscale 1.3\n",
                         width * 3 / 2, height * 3 / 2);
    else
        bp_buffer_printf(out,
                         "set terminal svg noenhanced size %d,%d font 'sans-serif,13' "
                         "background '#ffffff'\n",
                         width, height);
    bp_buffer_printf(out, "set output 'plots/%s.%s'\n", plot->name, png ? "png" : "svg");
    bp_buffer_printf(out, "set encoding utf8\nset grid lt 1 lc rgb '#cccccc' lw 0.6\nset title ");
    put_quoted(out, plot->title);
    bp_buffer_printf(out, "\n");
}

static bp_err write_script(const study_outcome *outcome, const study_plot *plot)
{
    const plot_kind *kind = kind_of(plot);
    char *path = bp_sprintf("%s/plots/%s.gp", outcome->folder, plot->name), *text;
    bp_buffer script = {0};
    bp_err err;

    bp_buffer_printf(&script, MARK, plot->name);
    kind->data(&script, outcome, plot);
    for (int png = 0; png < 2; png++) {
        put_terminal(&script, outcome, plot, png != 0);
        kind->drawing(&script, outcome, plot);
    }
    bp_buffer_printf(&script, "set output\n");
    text = bp_buffer_take(&script);
    err = path && text ? bp_file_write(path, text, strlen(text))
                       : BP_FAIL(BP_ERR_SYSTEM, "no memory for a plot: at %s", plot->name);
    bp_free(text);
    bp_free(path);
    return err;
}

/* gnuplot, in the folder, with its words in plots/gnuplot.log. 0, its status, or errno. */
static int spawn(const char *in_folder, const char *script, const char *log)
{
    char *const arguments[] = {(char *)"gnuplot", (char *)"-e", (char *)in_folder, (char *)script,
                               NULL};
    posix_spawn_file_actions_t actions;
    int status = 0, failed;
    pid_t child;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return ENOMEM;
    failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (failed == 0)
        failed =
            posix_spawn_file_actions_addopen(&actions, 2, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (failed == 0)
        failed = posix_spawn_file_actions_adddup2(&actions, 2, 1);
    if (failed == 0)
        failed = posix_spawnp(&child, "gnuplot", &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (failed != 0)
        return failed;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return errno;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return ENOENT; /* where posix_spawn can't tell */
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : EPROTO;
}

/* false: there is no use in drawing the others. */
static bool draw_plot(const study_outcome *outcome, const study_plot *plot)
{
    char *script = bp_sprintf("plots/%s.gp", plot->name);
    char *log = bp_sprintf("%s/plots/gnuplot.log", outcome->folder);
    bp_buffer text = {0};
    char *in_folder;
    int failed = ENOMEM;

    bp_buffer_printf(&text, "cd ");
    put_quoted(&text, outcome->folder);
    in_folder = bp_buffer_take(&text);
    if (script && log && in_folder)
        failed = spawn(in_folder, script, log);
    if (failed == ENOENT)
        bp_warn("there is no gnuplot, so no plots: at %s/plots; everything else is there, and "
                "'gnuplot plots/NAME.gp' in %s draws them later",
                outcome->folder, outcome->folder);
    else if (failed != 0)
        bp_warn("gnuplot could not draw %s (%s): see %s", plot->name,
                failed == EPROTO ? "it says why" : strerror(failed), log ? log : "its log");
    else
        (void)unlink(log);
    bp_free(in_folder);
    bp_free(log);
    bp_free(script);
    return failed == 0 || failed == EPROTO;
}

bp_err study_plots_draw(const study_outcome *outcome)
{
    char *folder = bp_path_join(outcome->folder, "plots");
    study_plot *plots = NULL;
    bp_err err = folder ? bp_dir_make(folder) : BP_FAIL(BP_ERR_SYSTEM, "no memory for the plots");

    if (err == BP_OK)
        err = remove_drawn(folder);
    if (err == BP_OK)
        err = study_plots_list(&plots, outcome);
    for (const study_plot *plot = plots; err == BP_OK && plot->name; plot++)
        err = write_script(outcome, plot);
    for (const study_plot *plot = plots; err == BP_OK && plot->name; plot++)
        if (!draw_plot(outcome, plot))
            break;
    study_plots_clear(&plots);
    bp_free(folder);
    return err;
}
