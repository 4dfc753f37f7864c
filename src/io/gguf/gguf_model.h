/* A GGUF file as the Hugging Face folder that its model would be: what import reads. */
#ifndef BP_IO_GGUF_GGUF_MODEL_H
#define BP_IO_GGUF_GGUF_MODEL_H

#include "io/gguf/gguf.h"
#include "io/huggingface/hf_model.h"

/** Open the model of a GGUF file as bp_hf_open does a folder's. `file` must outlive it.
 *
 * Owns:   *out is the caller's, bp_hf_close(); NULL on failure.
 * Errors: those of bp_hf_open; BP_ERR_FORMAT another architecture, a key or tensor of it that this
 *         program does not know. */
bp_err bp_gguf_model_open(bp_hf_model **out, const bp_gguf *file, const bp_hf_table *const *tables);

#endif
