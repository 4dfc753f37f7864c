/* What training runs have done, step by step, read only from their folders: for plots and tables.
 * No MPI, no lock, nothing is written; a run that is at work is read as far as its lines are whole.
 */
#ifndef BP_RUN_STATUS_RUN_HISTORY_H
#define BP_RUN_STATUS_RUN_HISTORY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_history_column {
    BP_HISTORY_STEP,
    BP_HISTORY_TOKENS,
    BP_HISTORY_HOURS, /* of training, without validation and checkpoints */
    BP_HISTORY_LOSS,
    BP_HISTORY_VALID_LOSS,
    BP_HISTORY_RATE,
    BP_HISTORY_GRAD_NORM,
    BP_HISTORY_SPEED,          /* tokens a second */
    BP_HISTORY_VALID_ACCURACY, /* of a task with names */
    BP_HISTORY_COLUMNS
} bp_history_column;

/** The lines of a metrics.jsonl. */
typedef struct bp_curve {
    char *name;                         /* "": the run's own; "m00"; "mean": of the members */
    double (*rows)[BP_HISTORY_COLUMNS]; /* [count], by step; NaN: not in the line */
    int64_t count, capacity;
} bp_curve;

typedef struct bp_history {
    const char *folder; /* borrowed */
    char *state;        /* "running", "finished", ...: as bagpipe status has it */
    int64_t steps;      /* of the training, or of each member; 0: it does not say yet */
    bp_curve *curves; /* the members of an ensemble, and last their mean; of another run its own */
    int64_t curve_count;
    char **pairs; /* config.ini: key, value, key, value...; of an ensemble those keys besides run.*
                     and ensemble.* that its first member has, with that member's values */
    int64_t pair_count;
} bp_history;

/** Read a run of pretrain or ensemble, or a folder with members. Clear after an error too.
 *
 * Errors:     BP_ERR_INPUT there is no such folder; BP_ERR_FORMAT it is not a run, or one of a job
 *             that trains nothing, or run.json is damaged; BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM.
 */
bp_err bp_history_read(bp_history *out, const char *folder);
void bp_history_clear(bp_history *history);

/** The value of a key in config.ini, NULL: it has none. Borrowed. */
const char *bp_history_key(const bp_history *history, const char *key);

/** The keys, run.dir aside, that do not have one value in all of `count` runs, in the order of the
 * configurations. Free the list, not the keys, with bp_free(). */
void bp_history_differences(const char ***keys, int64_t *key_count, const bp_history *runs,
                            int64_t count);

/** The mean of several runs of one curve each that differ in no key but run.seed, at the steps that
 * all have: as an ensemble's history, with their curves, borrowed, and last "mean". False: they are
 * not such runs, and *out is empty. bp_history_mean_clear() frees it. */
bool bp_history_mean(bp_history *out, const bp_history *runs, int64_t count);
void bp_history_mean_clear(bp_history *mean);

/** The last values of a curve. NaN and 0: unknown. */
typedef struct bp_curve_figures {
    int64_t step, tokens, best_step;
    double hours, loss; /* of the last line that has one */
    double best_valid_loss, median_speed;
} bp_curve_figures;
bp_curve_figures bp_curve_figures_of(const bp_curve *curve);
/** The curve that stands for the run: its own, or the members' mean. */
const bp_curve *bp_history_main(const bp_history *history);

#endif
