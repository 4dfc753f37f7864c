/* How far the fit of a method is, and what it found. */
#ifndef BP_UNCERTAINTY_METHODS_FIT_H
#define BP_UNCERTAINTY_METHODS_FIT_H

#include <stdbool.h>

typedef struct bp_fit_progress {
    int step, steps;  /* from 1 */
    const char *name; /* of the step: "output factor" */
    double share;     /* of the step, 0 to 1 */
    double left;      /* seconds, estimated: of the step in step 1, later of all; NaN: not known */
} bp_fit_progress;

/** Called with the progress now and then. Returns true: the fit is to stop. */
typedef struct bp_fit_listener {
    bool (*update)(void *context, const bp_fit_progress *progress);
    void *context;
} bp_fit_listener;

#define BP_FIT_FIGURES 4

/** What a fit found. Ranks send it to each other as bytes: no pointers. */
typedef struct bp_fit_report {
    bool reused;       /* its file was there: what follows is of the fit that made it */
    double seconds;    /* that this took, where it was reused */
    char summary[192]; /* of the log, after the method's name and a colon */
    int count;
    struct {
        char key[32];
        double value;
    } figures[BP_FIT_FIGURES]; /* of record.json */
} bp_fit_report;

#endif
