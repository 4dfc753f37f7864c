/* Settings of training: the keys of train.*, optimizer.*, mesh.*, and the settings that they
 * become. */
#pragma once

#include "base/config/config.h"
#include "mesh/mesh.h"
#include "models/family.h"
#include "train/engine/schedule.h"
#include "train/optimizers/optimizer.h"
#include "train/optimizers/rate.h"

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
    double rho;
    double alpha;
    double temperature;
    double layer_decay;
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
    double label_smoothing;
    double dropconnect;
    int64_t softmax_samples;
    bool recompute;
} bp_train_keys;

static inline const bp_train_keys *bp_train_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_train_options);
}

/** optimizer.kind. */
bp_optimizer_kind bp_optimizer_kind_of(const bp_config *config);
/** Set optimizer.epsilon, .momentum, .clip and .decay, where they were not given, to the defaults
 * of the kind's authors. */
void bp_optimizer_resolve(bp_config *config);

#define BP_STEPS_MAX 1e12 /* of train.steps */

/** mesh.sequence_parallel */
typedef enum bp_sequence_parallel {
    BP_SEQUENCE_PARALLEL_AUTO,
    BP_SEQUENCE_PARALLEL_YES,
    BP_SEQUENCE_PARALLEL_NO
} bp_sequence_parallel;

typedef struct bp_engine_spec {
    uint64_t seed;
    float dropout;
    float dropconnect; /* share of weights that are dropped (models/network/dropconnect.h) */
    float label_smoothing;
    int64_t softmax_samples;    /* samples of a larger vocabulary; 0: the whole softmax */
    int64_t batch, micro_batch; /* sequences of a step, and of a micro-batch */
    bp_schedule schedule;
    int chunks; /* chunks of a stage, if interleaved: bp_engine_chunks */
    bool tree, recompute;
    bool distills;                          /* from soft targets: bp_engine_teach sets it */
    bool overlap;                           /* mesh.overlap: messages overlap with compute */
    bool sums_bf16;                         /* mesh.sums: gradients are sent as bf16 */
    bp_sequence_parallel sequence_parallel; /* bp_engine_is_sequence_parallel */
    int64_t restart; /* 1 + the token that begins a document (bp_pass.restart); 0: a carried state
                        goes through all documents */
    bool shortens;   /* micro-batches may have fewer positions (bp_batch_shorten) */
    bp_optimizer_rule optimizer;
    bp_rate rate;
    bp_precision precision; /* set by the caller: bp_math_precision */
    int64_t digest_every;   /* steps between comparisons of copies; 0: no checks */
} bp_engine_spec;

/** Steps in `epochs` epochs of `windows` windows: epochs max(1, windows / batch), rounded to the
 * nearest, in [1, BP_STEPS_MAX]. */
int64_t bp_epoch_steps(double epochs, int64_t windows, int64_t batch);

/** From a checked configuration; `precision` is left f32. With train.epochs rate.steps is left 0:
 * it depends on the corpus (bp_epoch_steps). */
bp_engine_spec bp_engine_spec_of(const bp_config *config);
/** Only the part that depends on mesh.*. */
void bp_engine_spec_read_mesh(bp_engine_spec *spec, const bp_config *config);

/** Runs of blocks that each of this many stages has: 1, unless interleaved. */
int bp_engine_chunks(const bp_engine_spec *spec, int stages);

/** Do this many tensor ranks use sequence parallelism (bp_nn.sequence_parallel)? */
bool bp_engine_is_sequence_parallel(const bp_engine_spec *spec, const bp_model_shape *shape,
                                    int tensor_ranks);

/** batch is a multiple of data x micro_batch; if interleaved, there are blocks for all chunks
 * (where shape->layers is known), and whole rounds of micro-batches for all stages. With
 * mesh.sequence_parallel = yes the rows of a micro-batch are a multiple of mesh->tensor (where
 * shape->context is known). Otherwise adds a fault that names values that fit. mesh->data may be
 * open (0). */
void bp_engine_spec_check(const bp_engine_spec *spec, const bp_model_shape *shape,
                          const bp_mesh_shape *mesh, bp_config *config);

/** Only the part that depends on mesh.expert, also for models without an engine. */
void bp_engine_check_experts(const bp_engine_spec *spec, const bp_model_shape *shape,
                             const bp_mesh_shape *mesh, bp_config *config);

/** A warning for each key that differs from its default and changes nothing: adapter.*,
 * optimizer.temperature, mesh.chunks and mesh.schedule=interleaved without what they need, and
 * mesh.sequence_parallel=yes without tensor ranks. Local. */
void bp_engine_spec_warn(const bp_config *config);
