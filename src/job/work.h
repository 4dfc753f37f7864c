/* A job that applies models to units of work. What the job is, is a table (bp_work): its inputs,
 * its units, its files. The rest is done here, once for all jobs: mesh, precision, the question
 * whether there is enough memory, the run folder, units from the queue to part files, resumption,
 * progress, stop requests, merge, --plan.
 *
 *     err = bp_work_start(&MINE, world, config, plan);
 *
 * Who calls what ("together": collective over these ranks; else each by itself; GROUP: the ranks of
 * one mesh->replica; its rank 0 is the lead):
 *
 *     member of bp_work                                called on
 *     describe, open                                   all ranks, together
 *     identify, units, close                           all ranks
 *     open_model, measure                              computing ranks, together
 *     writes, missing, say, started, report, print     the coordinator
 *
 *     member of bp_work_units
 *     prepare                                          computing ranks, each GROUP together
 *     run, without `answer`                            each GROUP, together
 *     run, with `answer`                               its lead, whose requests call
 *     answer                                           all of its GROUP, together
 *     amount_of                                        the lead
 *     release                                          computing ranks
 *     merge                                            the coordinator, whose requests call
 *     help                                             all ranks, together
 */
#ifndef BP_JOB_WORK_H
#define BP_JOB_WORK_H

#include "base/buffer.h"
#include "job/memory.h"
#include "job/parts.h"
#include "job/work_queue.h"
#include "mesh/requests.h"
#include "models/model.h"
#include "run/run_folder.h"

#define BP_WORK_IDENTITIES 8
#define BP_WORK_FIGURES    4
#define BP_WORK_CHANGES    8 /* keys of other_bits, with those of all jobs */

typedef struct bp_work bp_work;

/** Units that the queue hands out and part files keep. Borrowed from the work while they are done.
 * `self` of the functions is the job's. */
typedef struct bp_work_units {
    const char *parts; /* the folder of part files, in RUN/NAME; NULL: "parts" */
    const char *key;   /* names the work in part files (bp_work_key): all that a result's bits
                          depend on except the machine. On leads and the coordinator, as `count` */
    int64_t count;
    const char *mesh_keys; /* that `key` depends on, for a warning; NULL: it does not */
    const char *again;     /* what happens to units that are missing: "scored"; NULL: "computed" */

    /* Progress, on the coordinator: of all units together, in inputs, say; NULL: in units. */
    double amount;
    const char *noun, *speed; /* "inputs", "tokens/s"; speed NULL: the noun's */
    int speed_digits;

    /** Allocate, on the computing ranks; NULL: nothing. Collective over mesh->replica, but errors
     * may differ between ranks. */
    bp_err (*prepare)(void *self);
    /** Do one unit: the ranks of mesh->replica together, or, with `answer`, only the lead, which
     * has the others compute by bp_request(&job->requests, ...). The lead's result goes to `out`
     * (empty before, NULL on the others). It moves the heartbeat (bp_heartbeat_step,
     * bp_heartbeat_progress) once a batch at least: the watchdog ends a job that does not. A unit
     * of several batches or steps calls bp_work_between between them; where that is true, it ends
     * the unit on all ranks, with *stopped set on the lead. Errors: may differ between the ranks of
     * mesh->replica, all of which return. */
    bp_err (*run)(void *self, int64_t unit, bp_buffer *out, bool *stopped);
    /** bp_requests.answer: on the ranks of mesh->replica, together. NULL: `run` asks for nothing.
     */
    bp_err (*answer)(void *self, const void *what);
    /** The amount of the unit that this lead has just done; NULL: 1, as amount and noun. */
    int64_t (*amount_of)(const void *self, int64_t unit);
    /** What `prepare` allocated; NULL: nothing. After an error of it too. */
    void (*release)(void *self);
    /** Files and figures of the parts (bp_parts_next). On the coordinator; with `help`, it may have
     * all ranks compute by bp_request(&job->requests, ...). NULL: none. */
    bp_err (*merge)(void *self, bp_parts *parts);
    /** bp_requests.answer: on all ranks, together. NULL: `merge` asks for nothing. */
    bp_err (*help)(void *self, const void *what);
} bp_work_units;

/** A job while it runs. The caller fills in the first three, the rest is for reading. */
typedef struct bp_work_job {
    const bp_work *work;
    void *self;        /* of the work, for its functions */
    bp_config *config; /* borrowed; gets its resolved values */

    bool ensemble; /* what is applied is one; on all ranks */
    bp_mesh_shape mesh_shape;
    bp_mesh *mesh;
    bool leads;          /* this rank leads a mesh->replica: it writes parts */
    bp_model *lm;        /* NULL on a dedicated coordinator */
    bp_model_info info;  /* on all ranks (`kind` on the computing ones) */
    bp_work_units units; /* of a work with one set: bp_work.open fills it in */
    bp_run *run;         /* NULL until bp_work.open has been called */
    char *folder;        /* RUN/NAME */

    bp_requests requests; /* of the unit that is done now, if its units have `answer`; of
                             the merge, if they have `help` */
    bp_work_queue *queue; /* of the units that are done now; NULL: none are */
    bool asked;           /* for the next unit; on leads */
    int64_t unreported;   /* amount since the last question; on leads */
    int64_t sets_done;    /* units of the sets before, for status.json; on the coordinator */
    bool no_page;         /* it could not be written; on the coordinator */
} bp_work_job;

/** What a job is. Functions are local unless they are said to be collective. Only `name`,
 * `self_bytes`, `results`, `open` and `close` are needed; a job without a model leaves out
 * `model_key`, `describe` and `open_model`. */
struct bp_work {
    const char *name;      /* of the run, and of the folder of its files: "score" */
    size_t self_bytes;     /* of the state that bp_work_start makes */
    const char *model_key; /* "score.model" */
    const char *results;   /* what RUN/NAME holds, for the log: "scores" */
    /* What the merges leave in RUN/NAME, NULL-ended. Where a file of a finished run is gone, all
     * are made again. */
    const char *const *files;
    /** Is `file` one of them this time? NULL: all are. */
    bool (*writes)(const void *self, const char *file);
    /** Of other files of a finished run, whose names depend on its results, one that is gone; NULL:
     * all are there. Valid until `close`. On the coordinator. NULL: there are none. */
    const char *(*missing)(void *self, const char *folder);
    bool shares_experts; /* mesh.expert may be more than 1: its passes go forward, in units */
    /* The template of index.html (bp_work_write_page), one of the files where it is installed;
     * NULL: there is none. */
    const char *page;
    const char *const *other_bits; /* bp_run_spec's, besides mesh.* and math.threads; NULL: none */

    /** What is applied, and what a rank takes of memory for it: fills in all but config and plan.
     * Collective over world, before there is a mesh. Errors: the same on all ranks. */
    bp_err (*describe)(void *self, MPI_Comm world, bp_work_memory *out);
    /** On the computing ranks, together. *out is freed by the job, after an error too. */
    bp_err (*open_model)(void *self, bp_model **out);
    /** Inputs and units, once job->info is known. Collective over world, but errors may differ
     * between ranks. */
    bp_err (*open)(void *self);
    /** The inputs that identify the run besides the model, by content (bp_run_spec.identities): at
     * most BP_WORK_IDENTITIES - 2. */
    void (*identify)(const void *self, bp_run_identity *out);
    /** Log a line: what is about to be done. On the coordinator. */
    void (*say)(const void *self);
    /** Members of the event "started" or "resumed". On the coordinator. */
    json_t *(*started)(const void *self);
    /** Its units, if there are several sets: set `index`, from 0 on; NULL: no more. Sets are done
     * one after another, then each is merged, in the same order. On all ranks. */
    const bp_work_units *(*units)(void *self, int index);
    /** Log figures; a line says afterwards where the files are. On the coordinator. */
    void (*report)(const void *self);
    /** What --plan measures; the figures of the last rank count. Collective over compute: errors
     * may differ between ranks, but are agreed on before a later collective. NULL: figures[0] is
     * bp_work_time_unit's. */
    bp_err (*measure)(void *self, double figures[BP_WORK_FIGURES]);
    /** Print it; bytes: the most that a rank took. On the coordinator. NULL: the bytes, and
     * bp_work_print_time. */
    void (*print)(const void *self, const double figures[BP_WORK_FIGURES], int64_t bytes);
    /** Free what `open` took, while model and mesh are still there. After an error too. */
    void (*close)(void *self);
};

/** Do the job, and continue where an earlier start was stopped. `plan`: only print memory and time
 * estimated, of that job to come, which one rank may represent; NULL: do it. job->mesh and the rest
 * are freed afterwards.
 *
 * Collective: over `world`; config and plan are equal on all ranks.
 * Errors:     the same on all ranks. BP_ERR_CONFIG a mesh that does not fit, another run's folder;
 *             BP_ERR_BUSY another job holds the folder; BP_ERR_SYSTEM memory; BP_ERR_STOPPED
 *             stopped in time: the same command goes on; those of the work. */
bp_err bp_work_run(bp_work_job *job, MPI_Comm world, const bp_planned_world *plan);
/** The same of a work whose state is all zeros before `open`, and begins with the pointer `job`. */
bp_err bp_work_start(const bp_work *work, MPI_Comm world, bp_config *config,
                     const bp_planned_world *plan);

/** The SHA-256 of a text, for bp_work_units.key. Local. */
void bp_work_key(char key[BP_SHA256_HEX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** bp_run_spec.keeps_bits: a change of mesh.data or mesh.coordinator changes no result. Local. */
bool bp_work_keeps_bits(const bp_config *config, const char *key, const char *before,
                        const char *now);
/** RUN/NAME/index.html from a template (job/report/report.h) and `page`, whose reference is taken;
 * err: a fault of what made it. A page that can't be written is a warning. Local, in
 * bp_work_units.merge. */
void bp_work_write_page(bp_work_job *job, const char *name, json_t *page, bp_err err);
/** The same of another file, RUN/NAME/`file`. False: it was not written. */
bool bp_work_write_page_at(const bp_work_job *job, const char *file, const char *name, json_t *page,
                           bp_err err);

/** Do a unit of the first set, for --plan. Collective over the computing ranks. Errors: the unit's,
 * BP_ERR_STOPPED; may differ between ranks. */
bp_err bp_work_time_unit(bp_work_job *job, int64_t unit, double *seconds);
/** Print the time of all units of the first set, from that of one. On the coordinator. */
void bp_work_print_time(const bp_work_job *job, double seconds);

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
