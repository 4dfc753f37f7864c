/* A job's log for people: plain lines in log.txt and on standard output, one progress line on a
 * terminal. */
#pragma once

#include "base/err.h"
#include <stdbool.h>

/** Only the speaker (rank 0) prints and writes; calls on other ranks do nothing. Before MPI
 * starts, all ranks speak. */
void bp_log_set_speaker(bool speaks);
bool bp_log_speaks(void);

/** A job within a job has its own channel: its lines go only to its own file, and its warnings go
 * to standard error, preceded by its name. All functions here act on the channel in use; each
 * channel has its own speaker and file. */
typedef enum bp_log_channel { BP_LOG_JOB, BP_LOG_MEMBER } bp_log_channel;
/** Switch; returns the channel that was in use. */
bp_log_channel bp_log_use(bp_log_channel channel);
/** Set the member of BP_LOG_MEMBER lines ("m03"), and whether this rank speaks for it. */
void bp_log_set_member(const char *name, bool speaks);

/** Also append to this file from now on (NULL: stop), each line with the time before it. A disk
 * that fills up later gives a warning, not a failure.
 *
 * Errors: those of bp_plain_open.
 */
bp_err bp_log_open(const char *path);
void bp_log_close(void);
/** One line to standard output and to the file. On a narrower terminal it wraps between words;
 * tables should fit 80 columns. */
void bp_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** A progress line: on a terminal it overwrites the previous one, and fields that do not fit are
 * dropped (two spaces separate fields). Elsewhere it is a plain line. The file always gets all of
 * it. */
void bp_log_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Whether the next progress line is due, `printed` (bp_clock_now) being the time of the last:
 * after 5 seconds on a terminal, after 30 elsewhere. */
bool bp_log_progress_due(double printed);
/** A line that goes only to standard output; one that goes only to the file, and may have breaks
 * there. */
void bp_log_screen_only(const char *format, ...) __attribute__((format(printf, 1, 2)));
void bp_log_file_only(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Lines to standard output from any rank, for commands that are not jobs. On a narrower terminal
 * they wrap between words, with continuation lines indented by `goes_on` spaces. */
void bp_print_lines(const char *text, int goes_on);
/** Keep the progress line on the terminal: further output begins on a new line. */
void bp_log_keep_progress(void);

/** Print "PROGRAM: error[CODE]: MESSAGE" (a line a fault) on standard error, or "PROGRAM: stopped:
 * ..." for a requested stop. Only for jobs/ and data_tools/. */
void bp_err_print(bp_err code);

/** Print "PROGRAM: warning: MESSAGE [IDENTIFIER]" on standard error (only on the speaker,
 * bp_log_set_speaker): `BP_WARN("corpus.few_windows", "the corpus has ...", ...)`. The rules of
 * messages and identifiers are those of BP_FAIL. */
#define BP_WARN(id, ...) bp_warn("" id, __VA_ARGS__)
void bp_warn(const char *id, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** The same for a current failure that ends nothing, with the failure's identifier:
 * `bp_warn_failure("the page was not written: %s", bp_err_text())`. */
void bp_warn_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
