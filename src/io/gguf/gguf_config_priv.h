/* Between the keys of GGUF files and config.json: what is more than one number under two names. */
#ifndef BP_IO_GGUF_GGUF_CONFIG_PRIV_H
#define BP_IO_GGUF_GGUF_CONFIG_PRIV_H

#include "base/config/json.h"
#include "base/err.h"
#include "io/gguf/gguf_family.h"

#define GGUF_KEY_BYTES 128

/** The value of "ARCHITECTURE.key"; NULL: it is missing. Borrowed. */
const json_t *gguf_key_of(const json_t *keys, const bp_gguf_family *family, const char *key);
/** Takes the reference of `value`. */
void gguf_set_key(json_t *keys, const bp_gguf_family *family, const char *key, json_t *value);
/** A real that has its shortest decimals: 1e-6, where a float32 has 9.99999997e-07. New reference.
 */
json_t *gguf_short_real(double value);
/** BP_ERR_FORMAT: such files have no place for `what` with `value` after it. */
bp_err gguf_no_counterpart(const char *what, const char *value);

/** Is `name` "[PADn]" of this id? Then no token has it: the table of tokens is longer. */
bool gguf_is_padding(const char *name, size_t id);

/** Which layers differ from the rest, and by what width scores are scaled: into config.json, where
 * head_dim is already.
 *
 * Errors: BP_ERR_FORMAT a list that is not one of layers. */
bp_err gguf_take_layers(json_t *config, const json_t *keys, const bp_gguf_family *family,
                        const char *path);
/** The same into a file's keys. Errors: BP_ERR_FORMAT what llama.cpp computes in another way. */
bp_err gguf_put_layers(json_t *keys, const json_t *config, const bp_gguf_family *family);

#endif
