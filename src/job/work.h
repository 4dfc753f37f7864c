/* A job that applies models to units of work. What the job is, is a table (bp_work): its inputs,
 * its units, its files. The rest is done here, once for all jobs: mesh, precision, the question
 * whether there is enough memory, the run folder, units from the queue to part files, resumption,
 * progress, stop requests, merge, --plan.
 *
 *     bp_work_job job = {.work = &MINE, .self = &self, .config = config};
 *     self.job = &job;
 *     err = bp_work_run(&job, world);           or bp_work_estimate(&job, world, &asked)
 */
#ifndef BP_JOB_WORK_H
#define BP_JOB_WORK_H

#include "base/buffer.h"
#include "job/memory.h"
#include "job/parts.h"
#include "job/work_queue.h"
#include "models/model.h"
#include "run/run_folder.h"

#define BP_WORK_IDENTITIES 8
#define BP_WORK_FIGURES    4

typedef struct bp_work bp_work;
typedef struct bp_work_units bp_work_units;

/** A job while it runs. The caller fills in the first three, the rest is for reading. */
typedef struct bp_work_job {
    const bp_work *work;
    void *self;        /* of the work, for its functions */
    bp_config *config; /* borrowed; gets its resolved values */

    bool ensemble; /* what is applied is one; on all ranks */
    bp_mesh_shape mesh_shape;
    bp_mesh *mesh;
    bool leads;         /* this rank leads a mesh->ensemble: it writes parts */
    bp_model *lm;       /* NULL on a dedicated coordinator */
    bp_model_info info; /* on all ranks (`kind` on the computing ones) */
    bp_run *run;        /* NULL until bp_work.open has been called */
    char *folder;       /* RUN/NAME */

    bp_work_queue *queue; /* of the units that are done now; NULL: none are */
    bool asked;           /* for the next unit; on leads */
    int64_t unreported;   /* amount since the last question; on leads */
    int64_t sets_done;    /* units of the sets before, for status.json; on the coordinator */
} bp_work_job;

/** Units that the queue hands out and part files keep. Borrowed from the work while they are done.
 * `self` of the functions is the job's. */
struct bp_work_units {
    const char *parts; /* the folder of part files, in RUN/NAME: "parts" */
    const char *key;   /* names the work in part files: all that a result's bits depend on except
                          the machine. On leads and the coordinator, as `count` */
    int64_t count;
    const char *mesh_keys; /* that `key` depends on, for a warning */
    const char *again;     /* what happens to units that are missing: "scored" */

    /* Progress, on the coordinator: of all units together and of a usual one, in inputs, say. */
    double amount, unit_amount;
    const char *noun, *speed; /* "inputs", "tokens/s" */
    int speed_digits;

    /** Allocate, on the computing ranks; NULL: nothing. Collective over mesh->ensemble, but errors
     * may differ between ranks. */
    bp_err (*prepare)(void *self);
    /** Do one unit: the ranks of mesh->ensemble together. The lead's result goes to `out` (empty
     * before, NULL on the others). It moves the heartbeat (bp_heartbeat_step,
     * bp_heartbeat_progress) once a batch at least: the watchdog ends a job that does not. A unit
     * of several batches or steps calls bp_work_between between them; where that is true, it ends
     * the unit on all ranks, with *stopped set on the lead. Errors: may differ between the ranks of
     * mesh->ensemble, all of which return. */
    bp_err (*run)(void *self, int64_t unit, bp_buffer *out, bool *stopped);
    /** The amount of the unit that this lead has just done. */
    int64_t (*amount_of)(const void *self, int64_t unit);
    /** What `prepare` allocated; NULL: nothing. After an error of it too. */
    void (*release)(void *self);
    /** Files and figures of the parts. On the coordinator, local. NULL: none. */
    bp_err (*merge)(void *self, bp_parts *parts);
};

/** What a job is. Functions are local unless they are said to be collective. `describe`,
 * `open_model`, `started`, `say` and `report` may be NULL: a job without a model leaves out the
 * first two. */
struct bp_work {
    const char *name;      /* of the run, and of the folder of its files: "score" */
    const char *model_key; /* "score.model" */
    const char *results;   /* what RUN/NAME holds, for the log: "scores" */
    const char *const *may_change, *const *other_bits; /* bp_run_spec's, as the next two */
    bool (*keeps_bits)(const bp_config *config, const char *key, const char *before,
                       const char *now);
    const char *(*missing)(const void *self);

    /** What is applied, and what a rank takes of memory for it: fills in all but config and plan.
     * On all ranks, before there is a mesh. Errors: the same on all ranks. */
    bp_err (*describe)(void *self, bp_work_memory *out);
    /** On the computing ranks, together. *out is freed by the job, after an error too. */
    bp_err (*open_model)(void *self, bp_model **out);
    /** Inputs and units, once job->info is known. Collective over world. Errors: the same on all
     * ranks. */
    bp_err (*open)(void *self);
    /** The inputs that identify the run, by content (bp_run_spec.identities): at most
     * BP_WORK_IDENTITIES - 1. `model` says which model: its digest, and whether it is an
     * ensemble. */
    void (*identify)(const void *self, const char *model, bp_run_identity *out);
    /** Log a line: what is about to be done. On the coordinator. */
    void (*say)(const void *self);
    /** Members of the event "started" or "resumed". On the coordinator. */
    json_t *(*started)(const void *self);
    /** Its units: set `index`, from 0 on; NULL: no more. Sets are done one after another, then each
     * is merged, in the same order. On all ranks. */
    const bp_work_units *(*units)(void *self, int index);
    /** Figures, and where the files are. On the coordinator. */
    void (*report)(const void *self);
    /** What --plan measures, on the computing ranks together; those of the last one count. */
    bp_err (*measure)(void *self, double figures[BP_WORK_FIGURES]);
    /** Print it; bytes: the most that a rank took. On the coordinator. */
    void (*print)(const void *self, const double figures[BP_WORK_FIGURES], int64_t bytes);
    /** Free what `open` took, while model and mesh are still there. After an error too. */
    void (*close)(void *self);
};

/** Do the job, and continue where an earlier start was stopped. job->mesh and the rest are freed
 * afterwards.
 *
 * Collective: over `world`; config is equal on all ranks.
 * Errors:     the same on all ranks. BP_ERR_CONFIG a mesh that does not fit, another run's folder;
 *             BP_ERR_BUSY another job holds the folder; BP_ERR_SYSTEM memory; BP_ERR_STOPPED
 *             stopped in time: the same command goes on; those of the work. */
bp_err bp_work_run(bp_work_job *job, MPI_Comm world);

/** Print memory and time estimated, of the job `asked`, which one rank may represent.
 *
 * Collective: over `world`. Errors: those of bp_work_run before its first unit. */
bp_err bp_work_estimate(bp_work_job *job, MPI_Comm world, const bp_planned_world *asked);

/** Between two batches or steps of a unit: the coordinator answers questions. True: stop here. On
 * leads. */
bool bp_work_between(bp_work_job *job);
/** The last batch of a unit begins: ask for the next one, so that it is there in time. Without it,
 * that happens after the unit. On leads. */
void bp_work_ask_next(bp_work_job *job);

/** The steps of bp_work_run that work for any mesh and model (tests bring their own): units, and
 * what is made of them. Collective over world. Errors: the same on all ranks; BP_ERR_STOPPED where
 * some are still missing. */
bp_err bp_work_do_units(bp_work_job *job, const bp_work_units *units);
bp_err bp_work_merge(bp_work_job *job, const bp_work_units *units);

#endif
