/* The batches of some of the scored tokens of corpora, one after another: for quantities fitted on
 * text (temperatures, factors of a curvature) and not kept token by token. */
#pragma once

#include "models/model.h"

/** Documents of a unit of a task, at most. */
#define BP_SCORE_EACH_GROUP 32

typedef struct bp_score_each {
    const bp_mesh *mesh;        /* of the model's ranks */
    const bp_model_info *model; /* the model of the tokens and context; equal on all ranks */
    const char *corpus;         /* corpora: a file, a list with commas, or a glob */
    /* score.convention, context, stride, prefix and end are read from it (a key that is not set as
     * `bagpipe score` resolves it); NULL: the default convention and the model's whole context */
    const bp_config *config;
    const char *path; /* for a task's model, whose checkpoint has its classes; else NULL */
    int64_t tokens;   /* at most this many scored tokens, or documents of a task; 0: all */

    /** Called once on all ranks of mesh->compute before the first batch, with the totals over all
     * data ranks. May be NULL. It may fail on this rank only. */
    bp_err (*begin)(void *context, int64_t units);
    /** Called for each batch on all ranks of one mesh->replica, with equal arguments; the batch
     * may be passed to bp_model_score and the like, and is valid until the callback returns. `unit`
     * in [0, units) is the work unit of the batch: sums per unit, added up in the order of units,
     * do not depend on the number of data ranks. Errors: the same on all ranks of mesh->replica,
     * which then stop; other data ranks finish their current unit. */
    bp_err (*batch)(void *context, int64_t unit, const bp_model_batch *batch);
    /** Called on the ranks that lead a mesh->replica after each of their units; an error on one
     * ends all. May be NULL. */
    bp_err (*poll)(void *context);
    void *context;
} bp_score_each;

/** Call each->batch for all batches.
 *
 * The batches are those of `bagpipe score`: a function of the corpora, the rule and `tokens`, at
 * any mesh. If fewer tokens are requested than exist, whole work units are taken, spread evenly
 * over the corpora, and the last one is cut short: later targets are -1. Unit u goes to data rank u
 * mod mesh->data_ranks; a data rank takes its units in order. For a task a unit is a group of
 * documents, with the targets of task_documents_group.
 *
 * Collective: over each->mesh->compute; `each` is equal on all ranks, except for `context`.
 * Shapes:     *tokens: scored over all data ranks; may be NULL.
 * Errors:     those of bp_score for its keys and corpora, and of the callbacks; the same on all
 *             ranks. */
bp_err bp_score_each_batch(const bp_score_each *each, int64_t *tokens);
