/* An n-gram model as a model of scoring. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "mesh/mesh.h"
#include "models/counting.h"
#include "models/model.h"

#define NGRAM_STATE_WIDTH 2 /* a state as floats, whose bits are its place and its lengths */

/** bp_counting_ops.open. */
bp_err ngram_model_open(bp_model **out, const bp_mesh *mesh, const bp_checkpoint *checkpoint);
/** bp_counting_ops.open_file. */
bp_err ngram_model_open_file(bp_model **out, const bp_mesh *mesh, const char *path);
