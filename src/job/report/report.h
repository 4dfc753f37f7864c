/* Pages and plots: templates and gnuplot scripts that are installed with the programs, filled with
 * JSON. Local: no MPI.
 *
 * pages/NAME.html is a template (report/template.h); a page holds its style and its plots, and
 * needs no other file and no network. plots/NAME.gp draws from variables and CSV files.
 *
 * Both are read from the folder $BAGPIPE_SHARE/report if that is set, else from
 * ../share/bagpipe/report relative to the program's folder. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "job/report/figures.h"

/** Does the template pages/NAME.html exist? */
bool bp_report_has_page(const char *name);

/** Write `path` from pages/head.html and pages/NAME.html. In both, {{{style}}} is pages/style.css.
 *
 * Errors:     BP_ERR_INPUT the template is missing; those of bp_template_render and
 *             bp_file_write. */
bp_err bp_report_page(const char *path, const char *name, const json_t *data);

/** The text of pages/FILE, a template of another form than HTML, filled with `data`. Owns: *out is
 * the caller's, bp_free(); NULL after an error. Errors: those of bp_report_page. */
bp_err bp_report_text(char **out, const char *file, const json_t *data);

/** page.about: run, model, parameters, corpus, command, version and date of the run at `folder`, as
 * far as run.json and config.ini have them; pages/head.html shows it at the top of every page. */
void bp_report_about(json_t *page, const char *folder);
/** For several runs: page.about has the versions of all, and when the first and the last began;
 * page.commands has the command of each, or its folder without one. */
void bp_report_about_runs(json_t *page, char *const *names, const char *const *folders,
                          int64_t count);

/** A self-contained gnuplot script: `variables`, common.gp, NAME.gp.
 *
 * variables:  an object. Strings, numbers and arrays of them become gnuplot variables; a string
 *             whose name begins with '$' becomes a data block.
 * Owns:       *script is the caller's, bp_free(); NULL after an error.
 * Errors:     BP_ERR_INPUT the script is missing; BP_ERR_SYSTEM. */
bp_err bp_report_script(char **script, const char *name, const json_t *variables);

/** Run gnuplot on a script in `folder` (NULL: here), for bp_gnuplot_seconds at most.
 *
 * Owns:       *picture[*bytes], followed by a zero byte, is what it wrote without `set output`: the
 *             caller's, bp_free(); NULL after an error.
 * Errors:     BP_ERR_INPUT there is no gnuplot; BP_ERR_FORMAT it failed: the message has its last
 *             line; BP_ERR_SYSTEM it can't be run, or took too long. */
extern double bp_gnuplot_seconds; /* 20; tests set it */
bp_err bp_gnuplot(char **picture, size_t *bytes, const char *folder, const char *script);

/** The <svg> element of gnuplot's output, for a page: its ids get `prefix`, since a page has many
 * such elements, and gnuplot's titles are removed. Free with bp_free(); NULL if there is no such
 * element, or no memory. */
char *bp_report_svg(const char *text, const char *prefix);

/** page.plot: the <svg> element that plots/NAME.gp draws of `variables` (bp_report_script), whose
 * ids begin with `prefix`. If gnuplot fails, page.notice says why, and that is not an error.
 * Errors: those of bp_report_script. */
bp_err bp_report_plot(json_t *page, const char *name, const json_t *variables, const char *prefix);
