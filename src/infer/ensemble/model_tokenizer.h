/* The tokenizer of a model or of an ensemble. */
#ifndef BP_INFER_ENSEMBLE_MODEL_TOKENIZER_H
#define BP_INFER_ENSEMBLE_MODEL_TOKENIZER_H

#include "models/model.h"
#include "text/tokenizer/tokenizer.h"

/** That of tokenizer.path, else the one that the checkpoint keeps, of an ensemble its first member
 * that has one; NULL: neither is there.
 *
 * Collective: over `world`, with equal arguments.
 * Owns:       *out is the caller's, bp_tokenizer_free(), after an error too.
 * Errors:     those of bp_tokenizer_load; BP_ERR_FORMAT it is not the model's: the same on all
 *             ranks. */
bp_err bp_model_tokenizer_open(bp_tokenizer **out, const bp_config *config, const char *checkpoint,
                               const bp_model_info *model, MPI_Comm world);

#endif
