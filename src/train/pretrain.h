/* Pretraining a language model on a corpus, over a mesh, in a run folder that resumes by itself. */
#ifndef BP_TRAIN_PRETRAIN_H
#define BP_TRAIN_PRETRAIN_H

#include "base/config.h"
#include "mesh/mesh.h"

extern const bp_option bp_checkpoint_options[]; /* checkpoint.* */

/** Faults of the configuration that need neither files nor ranks: added to the configuration's.
 * Local. */
void bp_pretrain_check(bp_config *config);

/** Print memory by kind and time foreseen of the mesh that the configuration asks for. Collective
 * over `world`; one rank plans for any mesh. Errors: those of bp_pretrain before its first step. */
bp_err bp_pretrain_plan(MPI_Comm world, bp_config *config);

/** Train until train.steps, or until stopped. Collective over `world`; the error is the same on all
 * ranks.
 *
 * Errors: BP_ERR_CONFIG a shape, a mesh or a batch that does not fit, another run's folder;
 * BP_ERR_INPUT, BP_ERR_FORMAT the corpus or all checkpoints; BP_ERR_BUSY another job holds the
 * folder; BP_ERR_SOFTWARE ten steps in a row without a finite gradient; BP_ERR_STOPPED stopped in
 * time: the same command goes on.
 */
bp_err bp_pretrain(MPI_Comm world, bp_config *config);

#endif
