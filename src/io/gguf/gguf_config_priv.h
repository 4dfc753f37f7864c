/* Conversions between the keys of GGUF files and config.json beyond single numbers. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "io/gguf/gguf_family.h"

#define GGUF_KEY_BYTES 128

/** The value of "ARCHITECTURE.key"; NULL if missing. Borrowed. */
const json_t *gguf_key_of(const json_t *keys, const bp_gguf_family *family, const char *key);
/** Takes the reference of `value`. */
void gguf_set_key(json_t *keys, const bp_gguf_family *family, const char *key, json_t *value);
/** A real with its shortest decimals: 1e-6 for the float32 9.99999997e-07. New reference. */
json_t *gguf_short_real(double value);
/** BP_ERR_FORMAT: such files can't hold `what` with `value` after it. */
bp_err gguf_no_counterpart(const char *what, const char *value);

/** Is `name` "[PADn]" of this id? Then it is padding: the table of tokens is longer. */
bool gguf_is_padding(const char *name, size_t id);

/** Put the layers that differ, and the width that scales scores, into config.json, which already
 * has head_dim.
 *
 * Errors: BP_ERR_FORMAT an invalid list of layers. */
bp_err gguf_take_layers(json_t *config, const json_t *keys, const bp_gguf_family *family,
                        const char *path);
/** Put the same into a file's keys. Errors: BP_ERR_FORMAT if llama.cpp computes it differently. */
bp_err gguf_put_layers(json_t *keys, const json_t *config, const bp_gguf_family *family);
