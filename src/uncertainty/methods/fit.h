/* Progress and result of the fit of a method. */
#pragma once

#include <stdbool.h>

typedef struct bp_fit_progress {
    int step, steps;  /* from 1 */
    const char *name; /* of the step: "output factor" */
    double share;     /* of the step, 0 to 1 */
    double left;      /* seconds, estimated: of the step in step 1, later of all; NaN if unknown */
} bp_fit_progress;

/** Called periodically with the progress. Returns true to stop the fit. */
typedef struct bp_fit_listener {
    bool (*update)(void *context, const bp_fit_progress *progress);
    void *context;
} bp_fit_listener;

#define BP_FIT_FIGURES 4

/** The result of a fit. Ranks exchange it as bytes, so it has no pointers. */
typedef struct bp_fit_report {
    bool reused;       /* its file existed: the following fields describe the fit that made it */
    double seconds;    /* of that fit; read only if reused; 0 if its file does not have them */
    char summary[192]; /* text for the log, after the method's name and a colon */
    int count;
    struct {
        char key[32]; /* none of the comparison's own, such as "sets" or "by_predictions" */
        double value;
    } figures[BP_FIT_FIGURES]; /* for record.json */
} bp_fit_report;
