/* Pretraining a language model on a corpus, over a mesh, in a run folder that resumes by itself. */
#ifndef BP_TRAIN_LOOP_PRETRAIN_H
#define BP_TRAIN_LOOP_PRETRAIN_H

#include "base/config.h"
#include "base/json.h"
#include "mesh/mesh.h"

extern const bp_option bp_checkpoint_options[]; /* checkpoint.* */

/** Values of bp_checkpoint_options (docs: --help). */
typedef struct bp_checkpoint_keys {
    int64_t every;
    int64_t keep;
    bool async;
} bp_checkpoint_keys;

static inline const bp_checkpoint_keys *bp_checkpoint_keys_of(const bp_config *config)
{
    return bp_config_bound(config, bp_checkpoint_options);
}

/** Faults of the configuration that need neither files nor ranks: added to the configuration's.
 * Local. */
void bp_pretrain_check(bp_config *config);
/** The same but for mesh.members, of which an ensemble has more. */
void bp_pretrain_check_model(bp_config *config);

/** Print memory by kind and time estimated of the mesh that the configuration asks for. Collective
 * over `world`; one rank plans for any mesh, of the job `asked`. Errors: those of bp_pretrain
 * before its first step; BP_ERR_SYSTEM the ranks of a node do not fit into its memory, with what
 * would. */
bp_err bp_pretrain_plan(MPI_Comm world, bp_config *config, const bp_planned_world *asked);

/** What a job around a training hears of it, on the training's coordinator alone. */
typedef struct bp_pretrain_hooks {
    void *context;
    /** Training goes on from `step`, and metrics.jsonl is cut back to it. Not called where nothing
     * is left to do. An error ends the training: all its ranks have it. */
    bp_err (*started)(void *context, int64_t step);
    /** A line went to metrics.jsonl; borrowed. */
    void (*metric)(void *context, const json_t *line);
} bp_pretrain_hooks;

/** Train until train.steps, or until stopped. Collective over `world`; the error is the same on all
 * ranks. `hooks` may be NULL.
 *
 * Errors: BP_ERR_CONFIG a shape, a mesh or a batch that does not fit, another run's folder;
 * BP_ERR_INPUT, BP_ERR_FORMAT the corpus or all checkpoints; BP_ERR_BUSY another job holds the
 * folder; BP_ERR_SOFTWARE ten steps in a row without a finite gradient; BP_ERR_STOPPED stopped in
 * time: the same command goes on.
 */
bp_err bp_pretrain(MPI_Comm world, bp_config *config, const bp_pretrain_hooks *hooks);

#endif
