/* The update rules, on this data rank's shards of the parameters: optimizer state is sharded over
 * data ranks (ZeRO stage 1, Rajbhandari et al. 2020). */
#pragma once

#include "math/kernels/kernels.h"
#include "mesh/async.h"
#include "mesh/mesh.h"
#include "models/network/network.h"
#include "train/optimizers/list.h"

typedef struct bp_optimizer_rule {
    bp_optimizer_kind kind;
    double beta1, beta2, epsilon, weight_decay, clip, momentum, rho, alpha;
    double layer_decay; /* factor of the rate from a layer to the one below it; 0, 1: no decay */
    /* sgld, vogn: samples of exp(-data (loss + weight_decay |w|^2 / 2) / temperature); for sgld the
     * norm is over weights that decay. The caller sets seed, member and data */
    double temperature;
    uint64_t seed;
    int64_t member, data; /* data: number of targets of the posterior */
} bp_optimizer_rule;

/** This rank's shard of one parameter. */
typedef struct bp_own_run {
    const bp_param *param;
    bool replicated;       /* as in its group, */
    int64_t depth;         /* also from its group */
    int64_t value;         /* in the network's flat memory */
    int64_t moment;        /* in a moment's shards */
    int64_t within;        /* elements of the slice before it */
    int64_t total, factor; /* index of its parameter in bp_optimizer.totals and .factors */
    int64_t count;
} bp_own_run;

/** Moments for one shard of every group that trains, one after another in group order. */
typedef struct bp_optimizer {
    bp_optimizer_rule rule;
    const struct bp_optimizer_row *row; /* the row of its kind */
    const bp_mesh *mesh;                /* borrowed */
    bp_async *async;                    /* of mesh->data, and of mesh->expert_data; borrowed */
    bp_network *network;                /* borrowed */
    int moments;                        /* 2 for AdamW (m, v), 1 for SGD (m), 0 for Adafactor */
    int64_t floats;                     /* of one moment's shards */
    float *moment[2];
    const float *squares;      /* vogn: sums over micro-batches of squared gradients, laid out like
                                  gradients; the caller sets it before each update */
    int64_t scored;            /* targets of the batch; borrowed */
    bool checksummed;          /* bp_optimizer_checksum was called: sums are kept and checked */
    uint32_t (*sums)[BP_SUMS]; /* [runs], as the last update left the bits */
    bp_own_run *runs;          /* [run_count] in memory's order */
    int run_count;
    int *first_run;     /* [groups + 1] the first run of each group */
    int64_t *gathering; /* [groups] the async job that gathers the others' shards; -1 without one */
    int changed; /* the run whose bits had changed before an update or a check; -1 if no run has */
    int changed_part; /* BP_SUM_ */
    /* for rules that need whole parameters: LAMB, Adafactor. Equal on all data ranks */
    double *totals;  /* [runs' totals]: totals.c */
    double *scratch; /* scratch of sums over blocks */
    float *factors;  /* Adafactor: moving sums of each row and each column, and this step's factors
                        made from them */
} bp_optimizer;

typedef struct bp_update {
    double rate, scale;
    int64_t number; /* from 1 */
} bp_update;

/** An optimizer: its names, its defaults of some keys, and what it computes. */
typedef struct bp_optimizer_row {
    const char *name, *prefix[2]; /* of moments in checkpoints, "adamw.m/"; or NULL */
    const char *epsilon, *momentum, *clip, *decay, *beta2; /* NULL: the keys' own */
    bool samples; /* the weights that it leaves are samples of a posterior */
    bool squares; /* it needs squares of each micro-batch's gradients: bp_optimizer.squares */
    /* How many moments it keeps; NULL: as many as have a prefix. */
    int (*moments)(const bp_optimizer_rule *rule);
    /* One of the two is set, and updates one run. Local. `update` also returns the sums of bits
     * before and after, at no extra cost; for `apply` they are computed separately. */
    bp_update_sums (*update)(const bp_optimizer *optimizer, const bp_own_run *run,
                             const bp_updated *at, const bp_update *with);
    void (*apply)(const bp_optimizer *optimizer, const bp_own_run *run, const bp_updated *at,
                  const bp_update *with);
    /* For rules whose steps need sums over whole parameters (totals.h), else NULL. totals: doubles
     * of sums of a parameter. factors: floats kept from step to step; may be NULL; the first half
     * is in checkpoints. prepare: computes them before all runs; collective over mesh->data and
     * mesh->tensor. */
    int64_t (*totals)(const bp_param *param);
    int64_t (*factors)(const bp_param *param);
    void (*prepare)(bp_optimizer *optimizer, float *values, const float *gradients,
                    const bp_update *with);
    /* bp_optimizer_factor_slices, with the row's factors. */
    void (*slices)(const bp_optimizer *optimizer, int g, bool to_save, bp_slice *slices,
                   int64_t *used, int64_t capacity);
} bp_optimizer_row;
/** Never NULL. */
const bp_optimizer_row *bp_optimizer_row_of(bp_optimizer_kind kind);

/** Moments that have as many elements as the parameters. */
int bp_optimizer_moments(const bp_optimizer_rule *rule);
/** more_bytes: bytes that a rank keeps in addition to moments, for sums over whole parameters and
 * Adafactor's factors. factor_floats: floats of these in this rank's checkpoints. */
size_t bp_optimizer_more_bytes(const bp_optimizer_rule *rule, const bp_network *network);
int64_t bp_optimizer_factor_floats(const bp_optimizer_rule *rule, const bp_network *network);

/** Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_optimizer_init(bp_optimizer *optimizer, const bp_mesh *mesh, bp_async *async,
                         bp_network *network, const bp_optimizer_rule *rule);
void bp_optimizer_clear(bp_optimizer *optimizer);

/** The number of data ranks that hold the values of a group: all, or those with the same
 * experts. */
static inline int bp_optimizer_holders(const bp_mesh *mesh, const bp_group *group)
{
    return mesh->data_ranks / (group->sources > 1 ? group->sources : 1);
}
/** The shard of group `group` that this data rank updates: floats [*first, *first + *count) of the
 * group. */
void bp_optimizer_shard(const bp_mesh *mesh, const bp_group *group, int64_t *first, int64_t *count);

/** Floats of all shards of a rank. */
int64_t bp_optimizer_floats(const bp_mesh *mesh, const bp_network *network);

/** From now on every update checks that the bits of weights and moments are those that the previous
 * update left (for the first update: the current bits). The first change found is recorded in
 * `changed`. Local. */
void bp_optimizer_checksum(bp_optimizer *optimizer, float *values);
/** The same check without an update. Returns true if nothing has changed so far, or if checks are
 * off. Local. */
bool bp_optimizer_check(bp_optimizer *optimizer, float *values);

/** Update the shards of `values` by the shards of `gradients` times `scale`, and start to gather
 * all shards on all data ranks, in the order in which blocks will read them. `number` counts
 * updates from 1 (bias correction). Collective over mesh->data; with LAMB and Adafactor, whose
 * rules need sums over whole tensors, over mesh->tensor too. */
void bp_optimizer_update(bp_optimizer *optimizer, float *values, const float *gradients,
                         double rate, double scale, int64_t number);

/** Start to gather the shards of group `g` of `values` on all data ranks that hold it. Collective
 * over mesh->data. */
void bp_optimizer_gather(bp_optimizer *optimizer, float *values, int g);
/** Wait until all of group `g` has arrived. Collective over mesh->data. */
void bp_optimizer_gathered(bp_optimizer *optimizer, int g);

/** Checkpoint name of moment k: "adamw.m/", "adamw.v/", "sgd.m/"... */
const char *bp_optimizer_prefix(const bp_optimizer *optimizer, int k);
/** Slices of Adafactor's factors of group `g`, "adafactor.r/NAME" [rows], "adafactor.c/NAME"
 * [columns], only of vectors "adafactor.v/NAME"; other rules have none. to_save: leaves out those
 * that another rank saves. Appends to slices[] from *used on; capacity is asserted. */
void bp_optimizer_factor_slices(const bp_optimizer *optimizer, int g, bool to_save,
                                bp_slice *slices, int64_t *used, int64_t capacity);

/* ---- injected faults of memory and of arithmetic, for tests (base/fault.h): one flipped bit of a
 * value, or a NaN as a computation would leave it ---- */

/** train.flip_weight, train.flip_moment: in this rank's own shard; train.flip_copy: in its copy of
 * another data rank's. Local. */
void bp_inject_flips(const bp_optimizer *optimizer, float *values);
/** train.flip_loaded: one weight, the same on all ranks where the fault is armed on all. Local. */
void bp_inject_loaded(const bp_network *network, float *values);
/** train.nan_gradient: in the gradients of this rank's micro-batches, before they are summed over
 * ranks. Local. */
void bp_inject_gradient(float *gradients);
/** train.flip_gradient: in the sum that only this rank has; in a replicated parameter if there is
 * one. Local. */
void bp_inject_sum(const bp_optimizer *optimizer, float *gradients);
/** train.nan_weight, train.nan_moment: as if the update of group `g` had left it, if it is the
 * group of this rank's longest run. Local. */
void bp_inject_update(bp_optimizer *optimizer, float *values, int g);
