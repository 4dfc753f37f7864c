/* Opening models: of checkpoints, or with initial values. */
#pragma once

#include "models/family.h"
#include "models/model.h"

/** Estimate the memory for bp_model_open and bp_model_score of a checkpoint, only from its
 * manifest's "state" (bp_checkpoint_read_metadata). `config`: math.precision is resolved. Local.
 *
 * Errors: BP_ERR_FORMAT not a model of a known kind; BP_ERR_CONFIG heads or layers that the mesh
 *         does not divide; BP_ERR_SYSTEM. */
bp_err bp_model_estimate(bp_model_memory *out, const json_t *state, const bp_config *config,
                         const bp_model_task *task);

/** The most inputs of a window of the model in a manifest's "state", or BP_MODEL_UNLIMITED; 0 if it
 * has no model of a known kind. Local. */
int64_t bp_model_state_context(const json_t *state);

/** The states that scoring can keep of each token, for the model in a manifest's "state"; {0} if
 * none. Local. */
bp_state_form bp_model_state_form_of(const json_t *state);

/** Open a CHECKPOINT of any kind: every model group (mesh->model) of this member holds one copy,
 * split over its ranks.
 *
 * Collective: over mesh->member; `path` is equal on all its ranks (members may open different
 *             ones).
 * Owns:       *out is the caller's, bp_model_free(); mesh is borrowed until then.
 * Errors:     those of bp_checkpoint_open_any; BP_ERR_FORMAT a kind that this version does not
 *             know; BP_ERR_CONFIG heads or layers that the mesh does not divide: the same on all
 *             ranks of mesh->member.
 */
bp_err bp_model_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                     const char *path);

/** The same, but windows may have this many inputs if the model's positions allow more than in
 * training (rotary ones); else info.context stays the model's. */
bp_err bp_model_open_wide(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                          const char *path, int64_t context);

/** As bp_model_open_wide, without the head, which the model may lack: a row of
 * bp_model_distribution is the state of the last layer, after the final norm, pooled over the text
 * ("first", "mean", "last"). Errors: also BP_ERR_CONFIG a model without such states. */
bp_err bp_model_open_vectors(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                             const char *path, int64_t context, const char *pool);

/** As bp_model_open, and bp_model_ops.head_weights returns its output map, which takes memory if
 * matrix products read another form of it. */
bp_err bp_model_open_with_head(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                               const char *path);

/** As bp_model_open_wide, and bp_model_ops.differentiate goes backward through it: it holds its
 * weights as in training, without gradients. Errors: also BP_ERR_CONFIG model.weights=q8. */
bp_err bp_model_open_differentiable(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                                    const char *path, int64_t context);

/** A model with initial values of bp_param_initialise, not from a checkpoint: for measurements.
 * `info` has no step, hash or digest. math.precision is resolved.
 *
 * Collective: over mesh->member. Owns and Errors: as bp_model_open. */
bp_err bp_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                    const bp_model_shape *shape, uint64_t seed);
