/* A checkpoint as a GGUF file. */
#ifndef BP_IO_GGUF_GGUF_EXPORT_H
#define BP_IO_GGUF_GGUF_EXPORT_H

#include "io/gguf/gguf.h"
#include "io/huggingface/hf_model.h"
#include "text/tokenizer/tokenizer.h"

typedef struct bp_gguf_options {
    bp_gguf_type type;             /* of matrices; rows of no whole number of blocks are F16 */
    const bp_tokenizer *tokenizer; /* NULL: none */
    const char *name;              /* general.name */
    bp_gguf_pooling pooling;       /* of an encoder */
    int64_t *left;                 /* how many tensors (of heads) GGUF files have no place for */
} bp_gguf_options;

/** Write the file `out`, in the form that llama.cpp's converter writes. It has a hidden name until
 * it is whole. Vectors and tables of positions are F32. Memory: two copies of the largest tensor.
 *
 * Collective: as bp_hf_export_to.
 * Errors:     those of bp_hf_export_to; BP_ERR_FORMAT the model, or its tokenizer, has no
 *             counterpart; BP_ERR_CREATE `out` is there already, or can't be made. */
bp_err bp_gguf_export(bp_checkpoint *checkpoint, const char *out, const bp_gguf_options *options,
                      const bp_hf_export_options *huggingface, const bp_hf_table *const *tables);

#endif
