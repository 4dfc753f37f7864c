/* The tokenizer of a model or of an ensemble. */
#pragma once

#include "models/model.h"
#include "text/tokenizer/tokenizer.h"

/** Load the tokenizer of tokenizer.path, else the one in the checkpoint (for an ensemble, in the
 * first member that has one). *out is NULL if there is no tokenizer.
 *
 * Collective: over `world`, with equal arguments.
 * Owns:       *out is the caller's, bp_tokenizer_free(), after an error too.
 * Errors:     those of bp_tokenizer_load; BP_ERR_FORMAT the tokenizer does not match the model: the
 *             same on all ranks. */
bp_err bp_model_tokenizer_open(bp_tokenizer **out, const bp_config *config, const char *checkpoint,
                               const bp_model_info *model, MPI_Comm world);
