/* A job: what bagpipe's first argument names. jobs/bagpipe.c parses the command line and the
 * configuration, jobs/NAME.c builds, runs and reports. */
#ifndef BP_JOBS_JOB_H
#define BP_JOBS_JOB_H

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
    const bp_planned_world *plan; /* --plan: print memory and time estimated of this job to come, do
                                     nothing else; NULL: do it */
} bp_job_call;

typedef struct bp_job {
    const char *name;
    const char *help;                     /* one line, the job being the subject: "trains ..." */
    const char *text;                     /* of --help: more paragraphs, parted by "\n" */
    const char *examples;                 /* of --help: lines */
    const bp_option *const *options;      /* the job's tables, NULL-ended */
    const bp_option *const *plan_options; /* those whose required keys --plan needs; NULL: all */
    void (*require)(bp_config *config);   /* for bp_config_require_by; NULL: nothing */
    /* Where it is set, the job does a part of itself, and holds that part's folder, not run.dir;
     * NULL: there is none. */
    const char *part_key;
    bp_run_status_job status; /* what `bagpipe status` says of its runs; without a name */
    /** Faults that need no file and no mesh: adds to the configuration's faults (bp_config_fault);
     * NULL: there are none. Local. */
    void (*check)(bp_config *config);
    /** Warnings of keys without effect here (BP_WARN); NULL: none. Local. */
    void (*warn)(const bp_config *config);
    /** Do it. Collective over call->world; the error is the same on all ranks. NULL: `work`. */
    bp_err (*run)(const bp_job_call *call);
    const bp_work *work;
} bp_job;

extern const bp_job bp_job_bench, bp_job_ensemble, bp_job_explain, bp_job_finetune, bp_job_generate,
    bp_job_pretrain, bp_job_score, bp_job_search, bp_job_uncertainty;
extern const bp_job *const bp_jobs[]; /* all of them, NULL-ended */

/** bagpipe status RUN...: the words after it; prints, and gives the exit status. Local, no MPI. */
int bp_status_command(int argc, char **argv);

/** bagpipe plot RUN...: argv[0] is "plot"; gives the exit status. Local, no MPI. */
int bp_plot_command(int argc, char **argv);

#endif
