/* The parts of a training: its features beyond the steps, each a table of hooks.
 *
 * The loop knows no part by its name: the job that starts a training hands over a list of them
 * (train/parts/list.h). Hooks are called in the order of that list; where one fails the later ones
 * are not called. A missing hook is NULL. `own` is the object that the part's open made. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include "run/run_folder.h"
#include "tensor/batch.h"
#include "train/engine/options.h"

#include <stddef.h>

#define TRAINING_PARTS_MAX 16

struct trainer;

/* When hooks of one form are called. Collective over world unless another is named; an error is the
 * same on all of these ranks. Errors of NEXT, STEPPED and COMMITTED are ignored. */
typedef enum part_time {
    PART_SHAPE,   /* the model's shape is found, and takes what the part adds */
    PART_READY,   /* shape, mesh and keys are known, and fit together */
    PART_RULES,   /* the rules of examples are found */
    PART_COUNTED, /* the documents and the steps are found */
    /* Only where there are steps to do, with the run folder held: */
    PART_START,  /* before memory is taken */
    PART_BUILD,  /* the engine is made, without values */
    PART_LOADED, /* parameters have their values */
    PART_BEGIN,  /* all is ready for the first step */
    /* In a step: */
    PART_NEXT,      /* before its batch is read. Local */
    PART_STEPPED,   /* after it, its validation and metrics line. Over mesh->model */
    PART_COMMITTED, /* after before_commit, once the checkpoint is written, or its writing in the
                       background has begun, or failed. Local, on ranks that compute */
    /* At the end: */
    PART_STOP,     /* no step follows, however the training ended */
    PART_FINISH,   /* it ended well */
    PART_FINISHED, /* instead of START to FINISH: the run was finished before, but its last start
                      may have been killed since */
    PART_TIMES
} part_time;

typedef struct bp_training_part {
    const char *name;              /* also the name of its row in the memory plan, */
    const char *memory;            /* and a description of its memory */
    const char *const *may_change; /* its keys that a later start may change ("train.trace",
                                      "train.sample_*"), NULL-ended; NULL if no key may change */
    /** What its keys ask of the engine. Local. */
    void (*ask)(const bp_config *config, bp_engine_spec *spec);
    /** Warnings of keys without effect (bp_warn_of_unused). Local. */
    void (*warn)(const bp_config *config);
    /** Corpora are open, the model is not known. Collective over world. */
    bp_err (*open)(struct trainer *self, void **own);
    /** Faults of what is now known, for bp_config_fault. Local. */
    void (*check)(const struct trainer *self, const void *own);
    /** What it asks of the run folder. Local. */
    void (*describe_run)(const struct trainer *self, const void *own, bp_run_spec *spec);
    /** Bytes of a rank of a stage. Local: the mesh may be only planned, and `own` is NULL if
     * nothing was opened. */
    bp_err (*bytes)(const struct trainer *self, const void *own, const bp_mesh_shape *mesh,
                    int stage, size_t *bytes);
    bp_err (*at[PART_TIMES])(struct trainer *self, void *own);
    /** Before the engine sees a batch. Collective over mesh->compute. */
    bp_err (*before_step)(struct trainer *self, void *own, const bp_batch *batch);
    /** Before parameters are saved. Collective over mesh->compute. */
    bp_err (*before_commit)(struct trainer *self, void *own, bool best);
    /** Adds its part of a checkpoint's state. Local. */
    void (*put_state)(const struct trainer *self, const void *own, bool best, json_t *state);
    /** On the coordinator: what bp_part_report sent. */
    bp_err (*receive)(struct trainer *self, void *own, const json_t *value);
    void (*close)(void *own);
} bp_training_part;
