/* Names of tensors, in GGUF files and in Hugging Face's folders. */
#pragma once

#include "io/gguf/gguf_family.h"

#define GGUF_NAME_BYTES 160

/** The other name, and the row that has it; NULL if no row has it. */
const bp_gguf_row *gguf_to_huggingface(char out[GGUF_NAME_BYTES], const bp_gguf_family *family,
                                       const char *name);
const bp_gguf_row *gguf_of_huggingface(char out[GGUF_NAME_BYTES], const bp_gguf_family *family,
                                       const char *name);
