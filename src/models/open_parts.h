/* Opening a model in two steps: its checkpoint's metadata, and then its weights. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "models/network/network_model.h"
#include "models/open.h"

/** step, eod_id, tokenizer_hash, digest, width, vocab_size, and the context for a requested
 * `context`, without any weights. Local. Errors: BP_ERR_FORMAT a kind that this version does not
 * know, or a key that is missing. */
bp_err bp_model_read_info(bp_model_info *info, const bp_checkpoint *checkpoint, int64_t context);

/** As bp_model_open of a checkpoint opened over mesh->member, which may be closed afterwards. */
bp_err bp_model_of_checkpoint(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                              bp_checkpoint *checkpoint, bp_model_wish wish);
