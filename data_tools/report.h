/* Folders of reports: figures as JSON and one page. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "statistics/inference.h"

#include <stdbool.h>
#include <stdint.h>

/** Write FOLDER/NAME.json, and FOLDER/index.html from pages/NAME.html; creates the folder. `page`
 * has the template's data other than `figures` and the command (about); `ranks`: of the command.
 *
 * Owns:   page is consumed.
 * Errors: those of bp_dir_make, bp_json_save and bp_report_page. */
bp_err tool_report_save(const char *folder, const char *name, const json_t *figures, json_t *page,
                        int ranks);

/** "report" and "format_version" of NAME.json, to which the caller adds figures. New reference. */
json_t *tool_report_begin(const char *name);
/** "corpora" of a report: the hashes of the content of the corpora among `paths`; texts have none.
 * Unreadable ones are omitted. */
void tool_report_corpora(json_t *report, const char *const *paths, int count);
/** NAME.json of a folder, or a file of that form: *name is the report's name. Owns: *out is a new
 * reference. Errors: those of bp_json_load; BP_ERR_FORMAT not a report of these tools, or another
 * version. */
bp_err tool_report_load(json_t **out, const char **name, const char *path);

/** {"value", "low", "high"} of `count` of `all`, with Wilson's interval; null for 0 of 0. */
json_t *tool_share(int64_t count, int64_t all);
/** The same for a value with its interval. */
json_t *tool_figure(double value, bp_interval interval);
/** The same as texts for a page: {"value", "low", "high"}, with shares in percent. */
json_t *tool_figure_shown(const json_t *figure, bool percent);
