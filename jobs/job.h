/* A job, named by bagpipe's first argument. jobs/bagpipe.c parses the command line and the
 * configuration, jobs/NAME.c builds, runs and reports. */
#pragma once

#include "base/config/config.h"
#include "base/config/run_options.h"
#include "base/err.h"
#include "job/work.h"
#include "mesh/mesh.h"
#include "run/status/run_status.h"
#include <mpi.h>
#include <stdbool.h>

typedef struct bp_job_call {
    const char *name;             /* of the job */
    MPI_Comm world;               /* all ranks of this program */
    bp_config *config;            /* read and checked against the tables, equal on all ranks */
    const bp_planned_world *plan; /* --plan: only print the estimated memory and time of this future
                                     job; NULL: run it */
} bp_job_call;

typedef struct bp_job {
    const char *name;
    const char *help;                     /* one line, a predicate of the job: "trains ..." */
    const char *text;                     /* for --help: more paragraphs, separated by "\n" */
    const char *examples;                 /* for --help: lines */
    const bp_option *const *options;      /* the job's tables, NULL-ended */
    const bp_option *const *plan_options; /* those whose required keys --plan needs; NULL: all */
    void (*require)(bp_config *config);   /* for bp_config_require_by; NULL: nothing */
    /* If this key is set, the job does one part of its work, and locks that part's folder instead
     * of run.dir; NULL if there is none. */
    const char *part_key;
    bp_run_status_job status; /* how `bagpipe status` describes its runs, without a name */
    /** Adds the faults that need no file and no mesh to the configuration's (bp_config_fault); NULL
     * if there are none. Local. */
    void (*check)(bp_config *config);
    /** Warnings of keys without effect here (BP_WARN); NULL if there are none. Local. */
    void (*warn)(const bp_config *config);
    /** Run the job. Collective over call->world; the error is the same on all ranks. NULL:
     * `work`. */
    bp_err (*run)(const bp_job_call *call);
    const bp_work *work;
} bp_job;

extern const bp_job bp_job_bench, bp_job_ensemble, bp_job_explain, bp_job_finetune, bp_job_generate,
    bp_job_pretrain, bp_job_score, bp_job_search, bp_job_uncertainty;
extern const bp_job *const bp_jobs[]; /* all of them, NULL-ended */

/** bagpipe status RUN...: takes the words after it, prints, and returns the exit status. Local, no
 * MPI. */
int bp_status_command(int argc, char **argv);

/** bagpipe plot RUN...: argv[0] is "plot"; returns the exit status. Local, no MPI. */
int bp_plot_command(int argc, char **argv);
