/* config.json of a GPT-2. Private to src/store. */
#ifndef BP_IO_HUGGINGFACE_HF_CONFIG_PRIV_H
#define BP_IO_HUGGINGFACE_HF_CONFIG_PRIV_H

#include "io/huggingface/hf_gpt2.h"

#define HF_MAX_LAYERS 10000

/** Errors: BP_ERR_FORMAT what this program's GPT does not have; `path` is for messages. */
bp_err hf_config_read(bp_hf_shape *out, const json_t *config, const char *path);
/** New reference; NULL when memory is short. */
json_t *hf_config_json(const bp_hf_shape *shape);

#endif
