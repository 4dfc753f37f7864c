/* An opened GGUF file. */
#pragma once

#include "io/gguf/gguf.h"

#define GGUF_BLOCK_BYTES 34 /* of Q8_0: a half, and a signed byte a value */

struct bp_gguf {
    int fd;
    char *path;
    int64_t bytes;
    json_t *keys;
    bp_gguf_tensor *tensors; /* by place */
    int64_t count;
    const bp_gguf_tensor **by_name;
};
