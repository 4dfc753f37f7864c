/* The linear map after pooling of sentence-transformers' folders: its module Dense. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "io/checkpoint/checkpoint.h"

#define SENTENCE_MAP_TENSORS 2

typedef struct sentence_map {
    int64_t columns, width; /* 0: there is none */
    float *weight, *bias;   /* [columns][width], [columns]; NULL if there is none */
} sentence_map;

/** Read config.json and model.safetensors of the module's folder; "map" of `vectors` is set
 * (models/task/vectors.h). Local.
 *
 * Owns:   *out is the caller's, sentence_map_clear(), also after an error.
 * Errors: BP_ERR_INPUT no model.safetensors; BP_ERR_FORMAT an activation that score.vectors lacks,
 *         or tensors that do not fit config.json. */
bp_err sentence_map_read(sentence_map *out, json_t *vectors, const char *folder);
void sentence_map_clear(sentence_map *map);

/** Its tensors, with their values, borrowed; the number of them. */
int sentence_map_slices(const sentence_map *map, bp_slice slices[SENTENCE_MAP_TENSORS]);

/** config.json of the module, of "map" of `vectors`. New reference. */
json_t *sentence_map_config(const json_t *vectors, int64_t width);
/** Write model.safetensors of the module to its folder, from the checkpoint. Local. Errors: those
 * of bp_checkpoint_load and bp_safetensors_write. */
bp_err sentence_map_write(bp_checkpoint *checkpoint, const char *dtype, const char *folder);
