/* Training a model on a mesh: one step, validation, and what a checkpoint holds of it. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "mesh/mesh.h"
#include "train/engine/corruption.h"
#include "train/engine/options.h"
#include "train/engine/stage.h"

/** Memory by kind, in bytes, of one rank. */
typedef struct bp_plan {
    size_t program; /* of the program and its libraries, before the model */
    size_t parameters, copies, gradients, optimizer, activations, scratch, input;
    size_t parts;    /* of the parts of a training; set by the caller */
    size_t snapshot; /* a copy of bp_engine_slices_to_save's slices; 0: no copy */
    size_t writer;   /* workspace for writing a checkpoint; set by the caller */
} bp_plan;
size_t bp_plan_total(const bp_plan *plan);

/** What a rank of stage `stage` (tensor rank 0) of a mesh of this shape will take. Local. Errors:
 * BP_ERR_SYSTEM. */
bp_err bp_engine_plan(bp_plan *plan, const bp_mesh_shape *mesh, const bp_engine_spec *spec,
                      const bp_model_shape *shape, int stage);

/** A rank of stage `stage` (data and tensor rank 0) of a planned mesh, which has no
 * communicators. */
bp_mesh bp_engine_planned_mesh(const bp_mesh_shape *shape, int stage);
/** The stage's blocks and groups of parameters as the engine lays them out, without memory for
 * them. Local. Owns: *out and *gemm are the caller's, bp_network_free and bp_gemm_free, also after
 * a failure; both must be NULL before the call. Errors: those of bp_engine_plan. */
bp_err bp_engine_planned_network(bp_network **out, bp_gemm **gemm, const bp_mesh_shape *mesh,
                                 const bp_engine_spec *spec, const bp_model_shape *shape,
                                 int stage);

typedef struct bp_engine bp_engine;

/** Whether this rank has the whole gradients of each micro-batch, if the optimizer squares them.
 * Errors: BP_ERR_CONFIG. Local. */
bp_err bp_engine_check_squares(const bp_network *network, const bp_engine_spec *spec);

/** An engine whose parameters have no values yet: bp_engine_initialise, or load and
 * bp_engine_loaded.
 *
 * Collective: over mesh->compute.
 * Owns:       *out is the caller's, bp_engine_free(); mesh is borrowed until then.
 * Errors:     BP_ERR_SYSTEM out of memory: the same on all ranks. */
bp_err bp_engine_new(bp_engine **out, const bp_mesh *mesh, const bp_engine_spec *spec,
                     const bp_model_shape *shape);
/** Collective over mesh->data (the queue of sums ends). NULL in *engine is accepted. */
void bp_engine_free(bp_engine **engine);

/** Which part of a checkpoint is loaded. */
typedef enum bp_load {
    BP_LOAD_STATE, /* parameters, moments, what blocks carry */
    BP_LOAD_MODEL, /* parameters, except those that only training has, */
    BP_LOAD_BASE   /* and except for those of an adapter */
} bp_load;

/** Initial values of an adapter, and of what only training has. Local. */
void bp_engine_initialise_added(bp_engine *engine);

/** Initial values, a function of (seed, tensor, place): the same on every mesh. Local. */
void bp_engine_initialise(bp_engine *engine);

/** What is frozen and in `base` (all parameters of a group) is left out of what is saved. Local. */
void bp_engine_save_beside(bp_engine *engine, const bp_checkpoint *base);

/** Later steps learn from a teacher too (nn/heads/distill.h): spec.distills was set. Borrowed; NULL
 * if there is no teacher. Local. */
void bp_engine_teach(bp_engine *engine, const struct bp_teacher *teacher);

/** Slots of the batch that this data rank has: [*first, *first + *count). */
void bp_engine_slots(const bp_engine *engine, int64_t *first, int64_t *count);

/** How rows are distributed among experts: the rows of the busiest expert over the mean, and the
 * normalised entropy of the experts' shares (1: equal shares). */
typedef struct bp_expert_load {
    double largest, entropy;
} bp_expert_load;

typedef struct bp_step_result {
    double loss;            /* the batch's loss before the update: the sum of weight x mean over the
                               objective's terms, in nats (nats a token for a single causal term) */
    double term[BP_TERMS];  /* the means of the objective's named terms, */
    bool asked[BP_TERMS];   /* where the batch has targets of the term */
    double states;          /* the mean difference of compared states (distill.layers), */
    bool states_asked;      /* where some are compared */
    double balance;         /* the mean balance loss of experts, unweighted, */
    bool balance_asked;     /* where it counts */
    bp_expert_load experts; /* over all layers; NaN for models without experts, */
    const bp_expert_load *layer_experts; /* [layers], until the next step; NaN for layers without
                                            experts. NULL if the model has none */
    double grad_norm;                    /* before clipping */
    double rate;                         /* the step's learning rate */
    bool skipped;                        /* the gradient was not finite: nothing was updated */
} bp_step_result;

/** One optimizer step. batch: the slots of this data rank, as many as bp_engine_slots returns. A
 * gradient that is not finite is not an error: result->skipped, and nothing is updated. `number`
 * counts the updates made, this one included if it is not skipped. Collective over mesh->member;
 * equal results on all its ranks. */
void bp_engine_step(bp_engine *engine, int64_t step, int64_t number, const bp_batch *batch,
                    bp_step_result *result);

/** One step of an architecture's weights (groups that are searched), before the step of training
 * that follows. */
typedef struct bp_architecture_step {
    int64_t step;          /* that follows */
    const bp_batch *train; /* its batch, */
    const bp_batch *valid; /* and a batch of the same form from the text on which the architecture
                              is searched: the slots of this data rank */
    bool second_order;     /* through a step of the weights, unrolled; else at the weights as they
                              are */
    double rate, decay;    /* of Adam (0.9, 0.999, 1e-8), whose decay is added to the gradient */
    float *memory;         /* [bp_engine_search_floats]; read where second_order is set */
} bp_architecture_step;

/** DARTS' step. First order: the gradient of the validation loss L(w, a) with respect to the
 * architecture a. Second order: that of L(w', a) - rate (g(w+) - g(w-)) / (2 e), w' being w after a
 * plain step of training (the step's learning rate, clipping and weight decay, without moments), g
 * the training loss's gradient with respect to a, w+- = w +- e v, v the gradient of L with respect
 * to w', e = 0.01 / |v|. All weights are as before afterwards. A gradient that is not finite
 * changes nothing.
 *
 * Collective: over mesh->member; *loss, L, is equal on all its ranks.
 * Source:     Liu, Simonyan and Yang 2019, DARTS, equations 6 to 8. */
void bp_engine_search(bp_engine *engine, const bp_architecture_step *of, double *loss);
int64_t bp_engine_search_floats(const bp_engine *engine);
/** The architecture weights of this rank's stage. NULL if they are on another stage, or if nothing
 * is searched. Borrowed. Local. */
const bp_param *bp_engine_searched(const bp_engine *engine);

/** The corruption that this rank has found: its own weights and moments are checked in every
 * update, copies on other ranks every spec.digest_every steps (just before the update: a copy of
 * another's shard lasts until then). Once found it stays. Borrowed. Local. */
const bp_corruption *bp_engine_corruption(const bp_engine *engine);
/** Check both now, after `step`, unless spec.digest_every is 0. Collective over mesh->member. */
void bp_engine_check(bp_engine *engine, int64_t step);

/** Sum and count of each term's losses on at most micro_batch examples of T <= context positions,
 * without dropout; on the last pipeline stage, elsewhere 0. There are micro_batch kept rows. Stages
 * may be in different calls at the same time. Collective over mesh->model. */
void bp_engine_evaluate(bp_engine *engine, const bp_evaluation *of, double loss_sum[BP_TERMS],
                        int64_t loss_count[BP_TERMS]);

/** The next step, and evaluations until it ends, use a part of the model: the network of `shape`.
 * Each of its parameters is the first rows and columns of the engine's parameter of that name. The
 * other elements get a zero gradient in that step, and are updated with it. NULL selects the whole
 * model. Requires a mesh without tensor, pipeline and expert ranks, a model without carried states,
 * and no DropConnect. Allocates a network: only steps of parts allocate. Not collective: it waits
 * as bp_engine_slices_to_save does. Errors: BP_ERR_CONFIG the model has no such part; BP_ERR_SYSTEM
 * out of memory: the whole model stays selected. */
bp_err bp_engine_take_part(bp_engine *engine, const bp_model_shape *shape);

/** This rank's stage, for code that runs it in another way (bp_model_view). All parameters are
 * complete, as the last step left them, until the next step. Borrowed. Not collective: it waits as
 * bp_engine_slices_to_save does. */
bp_network *bp_engine_network(bp_engine *engine);

/** Slices of the state (parameters, moments, what blocks carry), for bp_checkpoint_save (they tile
 * every tensor over all ranks of mesh->member) or to load into (what this rank owns). Not
 * collective, but waits for pending messages of other ranks: all data ranks must have finished the
 * same steps. Owns: the list is the caller's (bp_free); its data belong to the engine and are valid
 * until the next step. */
bp_slice *bp_engine_slices_to_save(bp_engine *engine, int64_t *count);
bp_slice *bp_engine_slices_to_load(bp_engine *engine, bp_load what, int64_t *count);
bool bp_engine_loads(const bp_group *group, bp_load what); /* whether any of it is loaded. Local. */
/** Call after loading values into all of bp_engine_slices_to_load, this data rank's shards. Gathers
 * them, remakes copies, and checksums them from here on, like initial values. Collective over
 * mesh->data. */
void bp_engine_loaded(bp_engine *engine);
