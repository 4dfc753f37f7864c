/* A synthetic model and its optimizer state, cut as a mesh cuts them, for tests of checkpoints. The
 * value of an element is a function of the tensor's name and the element's place in the whole
 * tensor, so that what was loaded is checked to the bit. */
#ifndef BP_TESTS_CHECKPOINT_MODEL_H
#define BP_TESTS_CHECKPOINT_MODEL_H

#include "store/checkpoint.h"

typedef struct model_mesh {
    int data, tensor, pipeline;
} model_mesh;

#define MODEL_BOXES 256

typedef struct model_boxes {
    bp_box list[MODEL_BOXES];
    int64_t count;
} model_boxes;

/** The boxes of `rank`, which has none beyond data * tensor * pipeline ranks. Without `filled`,
 * zeros. Release with model_clear. */
void model_build(model_boxes *out, model_mesh mesh, int rank, bool filled);
void model_clear(model_boxes *boxes);

/** One box of a tensor, filled. */
bp_box model_box(const char *name, int dims, const int64_t *shape, const int64_t *offset,
                 const int64_t *extent, bool filled);
/** All of a tensor. */
bp_box model_whole(const char *name, int dims, const int64_t *shape, bool filled);

/** Every value is what it should be. */
bool model_is_right(const bp_box *boxes, int64_t count);

#endif
