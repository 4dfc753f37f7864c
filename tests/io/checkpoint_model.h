/* A synthetic model and its optimizer state, cut as a mesh cuts them, for tests of checkpoints. The
 * value of an element is a function of the tensor's name and the element's place in the whole
 * tensor, so that what was loaded is checked to the bit. */
#pragma once

#include "io/checkpoint/checkpoint.h"

typedef struct model_mesh {
    int data, tensor, pipeline;
} model_mesh;

#define MODEL_BOXES 256

typedef struct model_slices {
    bp_slice list[MODEL_BOXES];
    int64_t count;
} model_slices;

/** The slices of `rank`, which has none beyond data * tensor * pipeline ranks. Without `filled`,
 * zeros. Release with model_clear. */
void model_build(model_slices *out, model_mesh mesh, int rank, bool filled);
void model_clear(model_slices *slices);

/** One slice of a tensor, filled. */
bp_slice model_slice(const char *name, int dims, const int64_t *shape, const int64_t *offset,
                     const int64_t *extent, bool filled);
/** All of a tensor. */
bp_slice model_whole(const char *name, int dims, const int64_t *shape, bool filled);

/** Every value is what it should be. */
bool model_is_right(const bp_slice *slices, int64_t count);
