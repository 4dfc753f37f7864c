/* A checkpoint as a GGUF file. */
#pragma once

#include "io/gguf/gguf.h"
#include "io/huggingface/hf_model.h"
#include "text/tokenizer/tokenizer.h"

typedef struct bp_gguf_options {
    bp_gguf_type type;             /* of matrices; F16 for rows that are not whole blocks */
    const bp_tokenizer *tokenizer; /* NULL if none */
    const char *name;              /* general.name */
    bp_gguf_pooling pooling;       /* of an encoder */
    int64_t *left; /* number of tensors (of heads) omitted, without counterpart in GGUF files */
} bp_gguf_options;

/** Write the file `out` in the form of llama.cpp's converter. It has a hidden name until complete.
 * Vectors and tables of positions are F32. Memory: two copies of the largest tensor.
 *
 * Collective: as bp_hf_export_to.
 * Errors:     those of bp_hf_export_to; BP_ERR_FORMAT the model, or its tokenizer, has no
 *             counterpart; BP_ERR_CREATE `out` exists, or can't be created. */
bp_err bp_gguf_export(bp_checkpoint *checkpoint, const char *out, const bp_gguf_options *options,
                      const bp_hf_export_options *huggingface, const bp_hf_table *const *tables);
