/* Rotary positions, between GGUF files and config.json. */
#pragma once

#include "io/gguf/gguf_config_priv.h"
#include "io/gguf/gguf_priv.h"

#define GGUF_ROTARY_TENSORS 3
#define GGUF_ROTARY_PAIRS   128 /* of a head, at most, if scaled by factors */

typedef struct gguf_llama3 {
    double theta, low, high, original, factor;
    int64_t rotated;
} gguf_llama3;

/** A tensor of factors. */
typedef struct gguf_factors {
    int64_t count; /* 0 if absent */
    float values[GGUF_ROTARY_PAIRS];
} gguf_factors;
typedef struct gguf_rotary {
    gguf_factors factors[GGUF_ROTARY_TENSORS];
} gguf_rotary;

/** The name in files of factors' tensor `number`. */
const char *gguf_rotary_name(int number);
/** Is it a tensor of factors, and "ARCHITECTURE.key" a key of positions? */
bool gguf_is_rotary(const bp_gguf_family *family, const char *tensor);
bool gguf_is_rotary_key(const char *key);

/** head_dim, partial_rotary_factor and rope_scaling of config.json, which already has the sizes.
 *
 * Errors: BP_ERR_FORMAT an unknown scaling, or factors that do not match the heads; BP_ERR_IO. */
bp_err gguf_take_rotary(json_t *config, const bp_gguf *file, const bp_gguf_family *family);
/** Put the same into a file's keys, and its additional tensors. Errors: BP_ERR_FORMAT if llama.cpp
 * computes it differently. */
bp_err gguf_put_rotary(gguf_rotary *out, json_t *keys, const json_t *config,
                       const bp_gguf_family *family);
