/* config.json, by tables. Private to src/io/huggingface. */
#ifndef BP_IO_HUGGINGFACE_HF_CONFIG_PRIV_H
#define BP_IO_HUGGINGFACE_HF_CONFIG_PRIV_H

#include "io/huggingface/hf_model.h"

#define HF_MAX_LAYERS 10000

/** By the table of its model_type. Errors: BP_ERR_FORMAT what this program's models do not have;
 * `path` is for messages. */
bp_err hf_config_read(bp_hf_shape *out, const json_t *config, const bp_hf_table *const *tables,
                      const char *path);
/** A size as JSON has it. New reference. */
json_t *hf_size_json(const bp_hf_shape *shape, int k);
/** New reference. */
json_t *hf_config_json(const bp_hf_shape *shape);

#endif
