/* A GGUF file in the form of a Hugging Face folder, for import. */
#pragma once

#include "io/gguf/gguf.h"
#include "io/huggingface/hf_model.h"

/** Open the model of a GGUF file, like bp_hf_open for a folder. `file` must outlive it.
 *
 * Owns:   *out is the caller's, bp_hf_close(); NULL on failure.
 * Errors: those of bp_hf_open; BP_ERR_FORMAT another architecture, an unknown key or tensor. */
bp_err bp_gguf_model_open(bp_hf_model **out, const bp_gguf *file, const bp_hf_table *const *tables);
