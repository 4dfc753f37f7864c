/* The step-by-step history of training runs, read only from their folders: for plots and tables. No
 * MPI, no lock, no writes; of a running job only whole lines are read. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_history_column {
    BP_HISTORY_STEP,
    BP_HISTORY_TOKENS, /* without padding, where the line tells (bp_curve.padded) */
    BP_HISTORY_HOURS,  /* of training, without validation and checkpoints */
    BP_HISTORY_LOSS,
    BP_HISTORY_VALID_LOSS,
    BP_HISTORY_RATE,
    BP_HISTORY_GRAD_NORM,
    BP_HISTORY_SPEED,          /* tokens a second */
    BP_HISTORY_VALID_ACCURACY, /* of a task with named outcomes */
    BP_HISTORY_COLUMNS
} bp_history_column;

/** The lines of a metrics.jsonl. */
typedef struct bp_curve {
    char *name; /* "" for the run itself; "m00" for a member; "mean" of the members */
    double (*rows)[BP_HISTORY_COLUMNS]; /* [count], by step; NaN: not in the line */
    int64_t count, capacity;
    bool padded; /* tokens are those of lines that do not tell how many of them are padding: of
                    windows, which have none, or of an older version */
} bp_curve;

typedef struct bp_history {
    const char *folder; /* borrowed */
    char *state;        /* "running", "finished", ...: the state of bagpipe status */
    int64_t steps;      /* of the training, or of each member; 0: not yet known */
    bp_curve *curves;   /* for an ensemble the members', and last their mean; else the run's own */
    int64_t curve_count;
    char **pairs; /* config.ini: key, value, key, value...; for an ensemble run.*, ensemble.*, and
                     those of its other keys that its first member has, with that member's values */
    int64_t pair_count;
} bp_history;

/** Read a run of pretrain or ensemble, or a folder with members. Clear after an error too.
 *
 * Errors:     BP_ERR_INPUT there is no such folder; BP_ERR_FORMAT it is not a run, its job does not
 *             train, or run.json is damaged; BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM.
 */
bp_err bp_history_read(bp_history *out, const char *folder);
void bp_history_clear(bp_history *history);

/** The value of a key in config.ini, or NULL. Borrowed. */
const char *bp_history_key(const bp_history *history, const char *key);

/** The keys, except run.dir, whose values differ among `count` runs, in the order of the
 * configurations. Free the list, not the keys, with bp_free(). */
void bp_history_differences(const char ***keys, int64_t *key_count, const bp_history *runs,
                            int64_t count);

/** The mean of several runs with one curve each that differ only in run.seed, at the steps that all
 * have. *out is like an ensemble's history: their curves, borrowed, and last "mean". Returns false,
 * with *out empty, for other runs. Free with bp_history_mean_clear(). */
bool bp_history_mean(bp_history *out, const bp_history *runs, int64_t count);
void bp_history_mean_clear(bp_history *mean);

/** The last values of a curve. NaN and 0: unknown. */
typedef struct bp_curve_figures {
    int64_t step, tokens, best_step;
    double hours, loss; /* of the last line with a value */
    double best_valid_loss, median_speed;
} bp_curve_figures;
bp_curve_figures bp_curve_figures_of(const bp_curve *curve);
/** The same of a run: of an ensemble the sums of its members' tokens and hours, and the values of
 * their mean. *members: how many are added up; 1 if it is no ensemble. */
bp_curve_figures bp_history_figures(const bp_history *history, int64_t *members);
/** The figures of curve c; of the mean of others the means of what these took. */
bp_curve_figures bp_history_row(const bp_history *history, int64_t c);
/** The main curve of the run: its own, or the members' mean. */
const bp_curve *bp_history_main(const bp_history *history);
