/* A training step as a sequence of operations of each pipeline stage: compute, messages, and sums
 * over data ranks by a progress thread. Made from the engine's network, cut, schedule and groups of
 * parameters, without allocating them. step_time.c estimates its time, step_json.c writes it for a
 * simulator. */
#pragma once

#include "train/engine/engine.h"

typedef enum bp_step_kind {
    BP_STEP_COMPUTE,  /* flops and passes */
    BP_STEP_RECEIVE,  /* from a pipeline neighbour: bytes */
    BP_STEP_SEND,     /* to it */
    BP_STEP_TENSOR,   /* tensor ranks sum or gather: each sends bytes */
    BP_STEP_EXPERTS,  /* ranks with the same layer's experts compute flops, while each sends rows of
                         bytes and returns results of `back` to the others, in equal parts */
    BP_STEP_REDUCE,   /* the sum of a group begins */
    BP_STEP_REDUCED,  /* wait for all sums */
    BP_STEP_TIED,     /* the first and the last stage exchange bytes */
    BP_STEP_AGREE,    /* all ranks meet, `rounds` messages after one another */
    BP_STEP_GATHER,   /* the gather of a group begins */
    BP_STEP_GATHERED, /* wait for that gather */
    BP_STEP_KINDS
} bp_step_kind;
extern const char *const bp_step_kind_names[BP_STEP_KINDS];

typedef struct bp_step_op {
    bp_step_kind kind;
    bool backward; /* a pipeline message of gradients, to the previous stage */
    int group;     /* of sums and gathers */
    int rounds;    /* of agreements, and of counts of experts' rows */
    double flops;  /* of the model */
    double passes; /* bytes read and written in passes over memory that are not the model's */
    double bytes;  /* of a message */
    double back;   /* of results */
} bp_step_op;

/** A group of parameters: units of `unit` floats, shared out over `holders` data ranks that are
 * `stride` apart. */
typedef struct bp_step_group {
    int64_t units, unit;
    int holders, stride;
} bp_step_group;

typedef struct bp_step_stage {
    bp_step_op *ops;
    int64_t count, capacity;
    bp_step_group *groups;
    int group_count;
} bp_step_stage;

typedef struct bp_step_program {
    bp_mesh_shape mesh;
    bool overlap;          /* sums and gathers go on beside compute */
    int value_bytes;       /* of a gradient in a message */
    int64_t messages;      /* of one direction that a stage sends or receives at most */
    double tokens;         /* of a step */
    bp_step_stage *stages; /* [mesh.pipeline] */
} bp_step_program;

/** The step of a mesh, which fits the model. Local. Owns: *out is the caller's,
 * bp_step_program_free(). Errors: BP_ERR_SYSTEM, BP_ERR_CONFIG: those of bp_engine_plan. */
bp_err bp_step_program_new(bp_step_program **out, const bp_mesh_shape *mesh,
                           const bp_engine_spec *spec, const bp_model_shape *shape);
void bp_step_program_free(bp_step_program **program);
