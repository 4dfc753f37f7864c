/* A job that applies models to units of work. A table (bp_work) defines the job: its inputs, its
 * units, its files. This module does the rest for all jobs: mesh, precision, the memory check, the
 * run folder, units from the queue to part files, resumption, progress, stop requests, merge,
 * --plan.
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
#pragma once

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
    const char *key;   /* names the work in part files (bp_work_key): all on which a result's bits
                          depend except the machine. On leads and the coordinator, like `count` */
    int64_t count;
    const char *mesh_keys; /* mesh keys on which `key` depends, for a warning; NULL if on none */
    const char *again;     /* what happens to units that are missing: "scored"; NULL: "computed" */

    /* Progress, on the coordinator: the total of all units, for example in inputs; noun NULL: in
     * units. */
    double amount;
    const char *noun, *speed; /* "inputs", "tokens/s"; speed NULL: the noun's */
    int speed_digits;

    /** Allocate, on the computing ranks; may be NULL. Collective over mesh->replica, but errors may
     * differ between ranks. */
    bp_err (*prepare)(void *self);
    /** Do one unit: the ranks of mesh->replica together, or, with `answer`, only the lead, which
     * has the others compute by bp_request(&job->requests, ...). The lead's result goes to `out`
     * (empty before, NULL on the others). It updates the heartbeat (bp_heartbeat_step,
     * bp_heartbeat_progress) at least once a batch: otherwise the watchdog ends the job. A unit of
     * several batches or steps calls bp_work_between between them; where that is true, it ends the
     * unit on all ranks, with *stopped set on the lead. Errors: may differ between the ranks of
     * mesh->replica, all of which return. */
    bp_err (*run)(void *self, int64_t unit, bp_buffer *out, bool *stopped);
    /** bp_requests.answer: on the ranks of mesh->replica, together. NULL if `run` makes no
     * requests. */
    bp_err (*answer)(void *self, const void *what);
    /** The amount of the unit that this lead has just done; NULL: 1, as amount and noun. */
    int64_t (*amount_of)(const void *self, int64_t unit);
    /** Free what `prepare` allocated, also after an error of it; may be NULL. */
    void (*release)(void *self);
    /** Make files and figures from the parts (bp_parts_next). On the coordinator; with `help`, it
     * may have all ranks compute by bp_request(&job->requests, ...). May be NULL. */
    bp_err (*merge)(void *self, bp_parts *parts);
    /** bp_requests.answer: on all ranks, together. NULL if `merge` makes no requests. */
    bp_err (*help)(void *self, const void *what);
} bp_work_units;

/** A running job. The caller fills in the first three members; the others are read-only. */
typedef struct bp_work_job {
    const bp_work *work;
    void *self;        /* of the work, for its functions */
    bp_config *config; /* borrowed; gets its resolved values */

    bool ensemble; /* an ensemble is applied; on all ranks */
    bp_mesh_shape mesh_shape;
    bp_mesh *mesh;
    bool leads;          /* this rank leads a mesh->replica: it writes parts */
    bp_model *model;     /* NULL on a dedicated coordinator */
    bp_model_info info;  /* on all ranks (`kind` on the computing ones) */
    bp_work_units units; /* of a work with one set: bp_work.open fills it in */
    bp_run *run;         /* NULL until bp_work.open has been called */
    char *folder;        /* RUN/NAME */

    bp_requests requests; /* of the current unit, if its units have `answer`; of the merge, if they
                             have `help` */
    bp_work_queue *queue; /* of the units that are done now; NULL if none are, or for --plan */
    bool asked;           /* the next unit was asked for; on leads */
    int64_t unreported;   /* amount since the next unit was last asked for; on leads */
    int64_t sets_done;    /* units of earlier sets, for status.json; on the coordinator */
    bool no_page;         /* the page could not be written; on the coordinator */
} bp_work_job;

/** The definition of a job. Functions are local unless documented as collective. Only `name`,
 * `self_bytes`, `results`, `open` and `close` are needed; a job without a model leaves out
 * `model_key`, `describe` and `open_model`. */
struct bp_work {
    const char *name;      /* of the run, and of the folder of its files: "score" */
    size_t self_bytes;     /* of the state that bp_work_start makes */
    const char *model_key; /* "score.model" */
    const char *results;   /* what RUN/NAME holds, for the log: "scores" */
    /* Files that the merges leave in RUN/NAME, NULL-ended. If a file of a finished run is missing,
     * all are made again. */
    const char *const *files;
    /** Does this job write `file`? NULL: it writes all. */
    bool (*writes)(const void *self, const char *file);
    /** Returns a missing one of the other files of a finished run, whose names depend on its
     * results; NULL if all are there. Valid until `close`. On the coordinator. May be NULL. */
    const char *(*missing)(void *self, const char *folder);
    bool shares_experts; /* mesh.expert may be more than 1: passes are forward only, in units */
    /* The template of index.html (bp_work_write_page), which is one of the files if the template is
     * installed; may be NULL. */
    const char *page;
    const char *const
        *other_bits; /* bp_run_spec's, in addition to mesh.* and math.threads; may be NULL */

    /** Finds the models and the memory of a rank: fills in all but config and plan. Collective over
     * world, before there is a mesh. Errors: the same on all ranks. */
    bp_err (*describe)(void *self, MPI_Comm world, bp_work_memory *out);
    /** On the computing ranks, together. The job frees *out, also after an error. */
    bp_err (*open_model)(void *self, bp_model **out);
    /** Inputs and units, once job->info is known. Collective over world, but errors may differ
     * between ranks. */
    bp_err (*open)(void *self);
    /** The inputs, other than the model, that identify the run by content (bp_run_spec.identities):
     * at most BP_WORK_IDENTITIES - 2. */
    void (*identify)(const void *self, bp_run_identity *out);
    /** Log a line about what follows. On the coordinator. */
    void (*say)(const void *self);
    /** Members of the event "started" or "resumed". On the coordinator. */
    json_t *(*started)(const void *self);
    /** Its units, if there are several sets: set `index`, from 0 on; NULL after the last. All sets
     * are computed in turn, then all are merged in the same order. On all ranks. */
    const bp_work_units *(*units)(void *self, int index);
    /** Log figures; the job then logs where the files are. On the coordinator. */
    void (*report)(const void *self);
    /** What --plan measures; the figures of the last rank are used. Collective over compute: errors
     * may differ between ranks, but are agreed on before a later collective. NULL: figures[0] is
     * bp_work_time_unit's. */
    bp_err (*measure)(void *self, double figures[BP_WORK_FIGURES]);
    /** Print it; bytes: the most memory of a rank. On the coordinator. NULL: prints the bytes, and
     * bp_work_print_time. */
    void (*print)(const void *self, const double figures[BP_WORK_FIGURES], int64_t bytes);
    /** Free what `open` allocated, before model and mesh are freed. Also after an error. */
    void (*close)(void *self);
};

/** Do the job, and continue where an earlier start was stopped. `plan`: only print the estimated
 * memory and time of that planned job, which one rank may represent; NULL: do the job. job->mesh
 * and the other members are freed afterwards.
 *
 * Collective: over `world`; config and plan are equal on all ranks.
 * Errors:     the same on all ranks. BP_ERR_CONFIG a mesh that does not fit, another run's folder;
 *             BP_ERR_BUSY another job holds the folder; BP_ERR_SYSTEM memory; BP_ERR_STOPPED
 *             stopped in time: the same command goes on; those of the work. */
bp_err bp_work_run(bp_work_job *job, MPI_Comm world, const bp_planned_world *plan);
/** The same for a work whose state is all zeros before `open`, and begins with the pointer
 * `job`. */
bp_err bp_work_start(const bp_work *work, MPI_Comm world, bp_config *config,
                     const bp_planned_world *plan);

/** The SHA-256 of a text, for bp_work_units.key. Local. */
void bp_work_key(char key[BP_SHA256_HEX], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** bp_run_spec.keeps_bits: a change of mesh.data or mesh.coordinator changes no result. Local. */
bool bp_work_keeps_bits(const bp_config *config, const char *key, const char *before,
                        const char *now);
/** RUN/NAME/index.html from a template (job/report/report.h) and `page`, whose reference is taken;
 * err: an error in making it. A page that can't be written is a warning. Local, in
 * bp_work_units.merge. */
void bp_work_write_page(bp_work_job *job, const char *name, json_t *page, bp_err err);
/** The same for another file, RUN/NAME/`file`. Returns false if it was not written. */
bool bp_work_write_page_at(const bp_work_job *job, const char *file, const char *name, json_t *page,
                           bp_err err);

/** Do a unit of the first set, for --plan. Collective over the computing ranks. Errors: the unit's,
 * BP_ERR_STOPPED; may differ between ranks. */
bp_err bp_work_time_unit(bp_work_job *job, int64_t unit, double *seconds);
/** Print the time of all units of the first set, from that of one. On the coordinator. */
void bp_work_print_time(const bp_work_job *job, double seconds);

/** Call between two batches or steps of a unit: the coordinator answers requests for units. Returns
 * true if the unit must stop here. On leads. */
bool bp_work_between(bp_work_job *job);
/** Call when the last batch of a unit begins: requests the next unit, so that it arrives in time.
 * Without this call, the request follows the unit. On leads. */
void bp_work_ask_next(bp_work_job *job);

/** The steps of bp_work_run that work for any mesh and model (tests pass their own): units, and
 * their merge. Collective over world. Errors: the same on all ranks; BP_ERR_STOPPED if units are
 * still missing. */
bp_err bp_work_do_units(bp_work_job *job, const bp_work_units *units);
bp_err bp_work_merge(bp_work_job *job, const bp_work_units *units);
