/* The update rules, on this data rank's shards of the parameters: optimizer state is sharded over
 * data ranks (ZeRO stage 1, Rajbhandari et al. 2020). */
#ifndef BP_TRAIN_ENGINE_OPTIMIZER_H
#define BP_TRAIN_ENGINE_OPTIMIZER_H

#include "math/kernels/kernels.h"
#include "mesh/async.h"
#include "mesh/mesh.h"
#include "models/network.h"

typedef enum bp_optimizer_kind { BP_ADAMW, BP_SGD } bp_optimizer_kind;

typedef struct bp_optimizer_rule {
    bp_optimizer_kind kind;
    double beta1, beta2, epsilon, weight_decay, clip, momentum;
} bp_optimizer_rule;

/** This rank's shard of one parameter. */
typedef struct bp_own_run {
    const bp_param *param;
    bool replicated; /* its group's */
    int64_t value;   /* in the network's flat memory */
    int64_t moment;  /* in a moment's shards */
    int64_t count;
} bp_own_run;

/** Moments for one shard of every group that trains, one after another in group order. */
typedef struct bp_optimizer {
    bp_optimizer_rule rule;
    const bp_mesh *mesh; /* borrowed */
    bp_async *async;     /* of mesh->data, borrowed */
    bp_network *network; /* borrowed */
    int moments;         /* 2 for AdamW (m, v), 1 for SGD (m) */
    int64_t floats;      /* of one moment's shards */
    float *moment[2];
    bool guarded;              /* sums are kept and checked: bp_optimizer_checksum was called */
    uint32_t (*sums)[BP_SUMS]; /* [runs], as the last update left the bits */
    bp_own_run *runs;          /* [run_count] in memory's order */
    int run_count;
    int *first_run;     /* [groups + 1] of each group */
    int64_t *gathering; /* [groups] the async's job that brings the others' shards; -1: none */
    int changed;        /* the run whose bits had changed before an update or a check; -1: none */
    int changed_part;   /* BP_SUM_ */
} bp_optimizer;

/** Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_optimizer_init(bp_optimizer *optimizer, const bp_mesh *mesh, bp_async *async,
                         bp_network *network, const bp_optimizer_rule *rule);
void bp_optimizer_clear(bp_optimizer *optimizer);

/** The shard of group `group` that this data rank updates: floats [*first, *first + *count) of the
 * group. */
void bp_optimizer_shard(const bp_mesh *mesh, const bp_group *group, int64_t *first, int64_t *count);

/** From now on every update checks that the bits of weights and moments are still those that the
 * update before left, or that are there now: what a memory fault changes in between is noted in
 * `changed` (the first one stays). Local. */
void bp_optimizer_checksum(bp_optimizer *optimizer, float *values);
/** The same check without an update; true where nothing has changed so far, or where nobody
 * guards. Local. */
bool bp_optimizer_check(bp_optimizer *optimizer, float *values);

/** Update the shards of `values` by the shards of `gradients` times `scale`, and start to gather
 * all shards on all data ranks, in the order in which blocks will read them. `number` counts
 * updates from 1 (bias correction). Collective over mesh->data.
 */
void bp_optimizer_update(bp_optimizer *optimizer, float *values, const float *gradients,
                         double rate, double scale, int64_t number);

/** Until all of group `g` is there. Collective over mesh->data. */
void bp_optimizer_gathered(bp_optimizer *optimizer, int g);

/** Checkpoint name of moment k: "adamw.m/", "adamw.v/", "sgd.m/". */
const char *bp_optimizer_prefix(const bp_optimizer *optimizer, int k);

/* ---- faults of memory and of arithmetic, as tests ask for them (base/fault.h): one bit of a value
 * flipped behind the engine's back, or a NaN as a computation would leave it ---- */

/** train.flip_weight, train.flip_moment: in this rank's own shard; train.flip_copy: in its copy of
 * another data rank's. Local. */
void bp_inject_flips(const bp_optimizer *optimizer, float *values);
/** train.flip_loaded: one weight, the same on all ranks where the fault is armed on all. Local. */
void bp_inject_loaded(const bp_network *network, float *values);
/** train.nan_gradient: of this rank's micro-batches, before they are summed over ranks. Local. */
void bp_inject_gradient(const bp_optimizer *optimizer, float *gradients);
/** train.flip_gradient: of the sum that only this rank has; in what tensor ranks hold in common,
 * where there is such. Local. */
void bp_inject_sum(const bp_optimizer *optimizer, float *gradients);
/** train.nan_weight, train.nan_moment: as if the update of group `g` had left it, if it is the
 * group of this rank's longest run. Local. */
void bp_inject_update(bp_optimizer *optimizer, float *values, int g);

#endif
