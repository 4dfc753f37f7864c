/* Training a model on a mesh: one step, validation, and what a checkpoint holds of it. */
#ifndef BP_TRAIN_ENGINE_ENGINE_H
#define BP_TRAIN_ENGINE_ENGINE_H

#include "io/checkpoint/checkpoint.h"
#include "mesh/mesh.h"
#include "models/gpt/gpt.h"
#include "train/engine/corruption.h"
#include "train/engine/optimizer.h"
#include "train/engine/schedule.h"

extern const bp_option bp_train_options[], bp_optimizer_options[]; /* train.*, optimizer.* */

/** Values of bp_optimizer_options (docs: --help). */
typedef struct bp_optimizer_keys {
    const char *kind;
    double lr;
    int64_t warmup;
    const char *decay;
    double min_lr;
    double beta1;
    double beta2;
    double epsilon;
    double weight_decay;
    double clip;
    double momentum;
} bp_optimizer_keys;

static inline const bp_optimizer_keys *bp_optimizer_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_optimizer_options);
}

/** Values of bp_train_options (docs: --help). */
typedef struct bp_train_keys {
    int64_t steps;
    double epochs;
    int64_t batch;
    int64_t log_every;
    int64_t valid_every;
    int64_t patience;
    int64_t digest_every;
    const char *reduction;
    bool recompute;
    bool profile;
    bool tensorboard;
    const char *trace;
} bp_train_keys;

static inline const bp_train_keys *bp_train_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_train_options);
}

#define BP_STEPS_MAX 1e12 /* of train.steps */

typedef enum bp_rate_decay { BP_DECAY_COSINE, BP_DECAY_LINEAR, BP_DECAY_CONSTANT } bp_rate_decay;

typedef struct bp_rate {
    double peak;
    double least; /* share of peak that decay ends at */
    int64_t warmup, steps;
    bp_rate_decay decay;
} bp_rate;

/** Learning rate of step s (from 1), w = warmup: peak s/w up to w; then with u = (s-1-w)/(steps-w):
 * peak (m + (1-m) f), m = least, f = (1 + cos pi u)/2 (cosine), 1-u (linear); constant: peak. */
double bp_rate_at(const bp_rate *rate, int64_t step);

/** mesh.sequence_parallel */
typedef enum bp_sequence_parallel {
    BP_SEQUENCE_PARALLEL_AUTO,
    BP_SEQUENCE_PARALLEL_YES,
    BP_SEQUENCE_PARALLEL_NO
} bp_sequence_parallel;

typedef struct bp_engine_spec {
    uint64_t seed;
    float dropout;
    int64_t batch, micro_batch; /* sequences of a step, and of a micro-batch */
    bp_schedule schedule;
    int chunks; /* of a stage, if interleaved: bp_engine_chunks */
    bool tree, recompute;
    bool overlap;                           /* messages travel beside compute: mesh.overlap */
    bp_sequence_parallel sequence_parallel; /* bp_engine_is_sequence_parallel */
    bp_optimizer_rule optimizer;
    bp_rate rate;
    bp_precision precision; /* the caller sets it: bp_math_precision */
    int64_t digest_every;   /* steps between comparisons of copies; 0: nothing is checked */
} bp_engine_spec;

/** Steps of so many passes over an epoch of so many windows: epochs max(1, windows / batch), to the
 * nearest, at least 1 and at most BP_STEPS_MAX. */
int64_t bp_epoch_steps(double epochs, int64_t windows, int64_t batch);

/** From a checked configuration; `precision` is left f32, and with train.epochs rate.steps 0: the
 * corpus tells (bp_epoch_steps). */
bp_engine_spec bp_engine_spec_of(const bp_config *config);
/** What of it mesh.* says alone. */
void bp_engine_spec_read_mesh(bp_engine_spec *spec, const bp_config *config);

/** Runs of blocks that each of so many stages has: 1, but if interleaved. */
int bp_engine_chunks(const bp_engine_spec *spec, int stages);

/** Do so many tensor ranks share out a micro-batch's rows (bp_nn.sequence_parallel)? */
bool bp_engine_is_sequence_parallel(const bp_engine_spec *spec, const bp_gpt_shape *shape,
                                    int tensors);

/** batch is a multiple of data x micro_batch; if interleaved, there are blocks for all chunks
 * (where shape->layers is known), and micro-batches for all stages; rows can be shared out if they
 * have to be (where shape->context is known): else a fault that says what fits. mesh->data may be
 * open (0). */
void bp_engine_spec_check(const bp_engine_spec *spec, const bp_gpt_shape *shape,
                          const bp_mesh_shape *mesh, bp_config *config);

/** A warning for mesh.chunks (other than its default) and mesh.schedule=interleaved without what
 * they need, and for mesh.sequence_parallel=yes without tensor ranks: they change nothing. Local.
 */
void bp_engine_spec_warn(const bp_config *config);

/** Memory by kind, in bytes, of one rank. */
typedef struct bp_plan {
    size_t program; /* resident before the model: the program and its libraries */
    size_t parameters, copies, gradients, optimizer, activations, scratch, input;
    size_t trace;    /* events of a timeline; the caller sets it */
    size_t snapshot; /* what bp_engine_slices_to_save gives, once more; 0: the caller has none */
    size_t writer;   /* what writing a checkpoint takes besides; the caller sets it */
} bp_plan;
size_t bp_plan_total(const bp_plan *plan);

/** What a rank of stage `stage` (tensor rank 0) of a mesh of this shape will take. Local. Errors:
 * BP_ERR_SYSTEM. */
bp_err bp_engine_plan(bp_plan *plan, const bp_mesh_shape *mesh, const bp_engine_spec *spec,
                      const bp_gpt_shape *shape, int stage);

typedef struct bp_engine bp_engine;

/** An engine whose parameters have no values yet: bp_engine_initialise, or load and
 * bp_engine_loaded.
 *
 * Collective: over mesh->compute.
 * Owns:       *out is the caller's, bp_engine_free(); mesh is borrowed until then.
 * Errors:     BP_ERR_SYSTEM memory is short: the same on all ranks.
 */
bp_err bp_engine_new(bp_engine **out, const bp_mesh *mesh, const bp_engine_spec *spec,
                     const bp_gpt_shape *shape);
void bp_engine_free(bp_engine **engine);

/** Initial values, a function of (seed, tensor, place): the same on every mesh. Local. */
void bp_engine_initialise(bp_engine *engine);

/** Slots of the batch that this data rank has: [*first, *first + *count). */
void bp_engine_slots(const bp_engine *engine, int64_t *first, int64_t *count);

typedef struct bp_step_result {
    double loss;      /* of the batch, before the update: nats a token */
    double grad_norm; /* before clipping */
    double rate;
    bool skipped; /* the gradient was not finite: nothing was updated */
} bp_step_result;

/** One optimizer step. windows[slots][T+1] of this data rank. `update` counts the updates made,
 * this one included if it is not skipped. Collective over mesh->member; equal results on all its
 * ranks. */
void bp_engine_step(bp_engine *engine, int64_t step, int64_t update, const int32_t *windows,
                    bp_step_result *result);

/** What this rank knows of bits that changed: its own weights and moments are checked in every
 * update, copies on other ranks every spec.digest_every steps (just before the update: a copy of
 * another's shard lasts until then). Once found it stays. Borrowed. Local. */
const bp_corruption *bp_engine_corruption(const bp_engine *engine);
/** Check both now, after `step`, unless spec.digest_every is 0. Collective over mesh->member. */
void bp_engine_check(bp_engine *engine, int64_t step);

/** Sum and count of losses of `count` <= micro_batch windows of T <= context tokens
 * (windows[count][T+1]), without dropout; on the last pipeline stage, elsewhere 0. Stages may be in
 * different calls at a time. Collective over mesh->model. */
void bp_engine_evaluate(bp_engine *engine, const int32_t *windows, int64_t count, int64_t T,
                        double *loss_sum, int64_t *loss_count);

/** Slices of the state, for bp_checkpoint_save (tiling every tensor over all ranks) or to load into
 * (all that this rank needs). model_only: parameters without the optimizer's moments. What other
 * ranks still send after a step has come first. *slices is the caller's (bp_free).
 * Errors: BP_ERR_SYSTEM. */
bp_err bp_engine_slices_to_save(bp_engine *engine, bp_slice **slices, int64_t *count);
bp_err bp_engine_slices_to_load(bp_engine *engine, bool model_only, bp_slice **slices,
                                int64_t *count);
/** Values were loaded: copies are made anew. Like initial values, they are guarded from here on. */
void bp_engine_loaded(bp_engine *engine);

#endif
