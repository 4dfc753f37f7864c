/* Opening a model in two steps: what its checkpoint tells, and then its weights. */
#ifndef BP_MODELS_OPEN_PRIV_H
#define BP_MODELS_OPEN_PRIV_H

#include "io/checkpoint/checkpoint.h"
#include "models/open.h"

/** step, eod_id, tokenizer_hash, digest, width, context and vocab_size, without any weight. Local.
 * Errors: BP_ERR_FORMAT a kind that this version does not know, or a key that is missing. */
bp_err bp_model_read_info(bp_model_info *info, const bp_checkpoint *checkpoint);

/** As bp_model_open, or bp_model_open_with_head, of a checkpoint opened over
 * mesh->member; it may be closed afterwards. */
bp_err bp_model_of_checkpoint(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                              bp_checkpoint *checkpoint, bool keeps_head);

#endif
