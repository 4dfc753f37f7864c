/* Sums over whole parameters, across ranks, for rules whose steps depend on them (LAMB, Adafactor).
 * Used by the rules' files and update.c. */
#pragma once

#include "train/optimizers/optimizer_priv.h"

/** The first totals of each parameter: squares of weights, and of steps. */
enum { BP_TOTAL_WEIGHTS, BP_TOTAL_STEPS, BP_TOTALS_LEAST };

/** Where a parameter's numbers are in `totals` and `factors`, and how many there are. */
typedef struct bp_totals_place {
    int64_t total, totals, factor, factors;
} bp_totals_place;

/** The input of the sums of one update: the arguments of a row's `prepare`. */
typedef struct bp_summing {
    bp_optimizer *optimizer;
    float *values;
    const float *gradients;
    const bp_update *with;
} bp_summing;
/** Adds what this rank holds of a run to its totals. Local. */
typedef void (*bp_totals_add)(const bp_summing *s, const bp_own_run *run, const bp_updated *at);
typedef void (*bp_totals_visit)(bp_optimizer *optimizer, void *context, const bp_group *group,
                                const bp_param *param, const bp_totals_place *at);

/** Extents of this rank's part; a vector is one row. */
int64_t bp_totals_rows(const bp_param *param);
int64_t bp_totals_columns(const bp_param *param);
/** Is a parameter split over tensor ranks by columns? Equal on all ranks. */
bool bp_totals_by_columns(const bp_group *group, const bp_param *param);
/** The place of parameter k of group g; frozen groups are not counted. */
bp_totals_place bp_totals_find(const bp_optimizer_row *row, const bp_network *network, int g,
                               int k);

/** For all parameters that train, for a row with totals: bytes of its sums and factors, and the
 * number of factors. */
size_t bp_totals_bytes(const bp_optimizer_row *row, const bp_network *network);
int64_t bp_totals_factors(const bp_optimizer_row *row, const bp_network *network);

/** A no-op for rules without totals. Errors: BP_ERR_SYSTEM. Local. */
bp_err bp_totals_init(bp_optimizer *optimizer);
/** All totals become 0. Local. */
void bp_totals_clear(bp_optimizer *optimizer);
/** Sums are made in the order of the elements, on any mesh. Collective over mesh->data. */
void bp_totals_over_data(const bp_summing *s, bp_totals_add add);
/** Calls `visit` for each parameter that trains. */
void bp_totals_each(bp_optimizer *optimizer, void *context, bp_totals_visit visit);
/** A visit: tensor ranks add their squares of a parameter that is split over them. Collective over
 * mesh->tensor. */
void bp_totals_over_tensor(bp_optimizer *optimizer, void *context, const bp_group *group,
                           const bp_param *param, const bp_totals_place *at);
