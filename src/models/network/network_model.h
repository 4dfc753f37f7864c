/* A network with the interface of models: forward only, over the pipeline and tensor ranks of one
 * model group. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "models/family.h"
#include "models/model.h"
#include "models/network/dropconnect.h"

/** Options of a model, in addition to its weights. */
typedef struct bp_model_wish {
    bool keeps_head;            /* as bp_model_open_with_head */
    bool differentiates;        /* as bp_model_open_differentiable */
    int64_t context;            /* as bp_model_open_wide; 0: its own */
    const char *vectors;        /* a pool: as bp_model_open_vectors; NULL: the whole model */
    bp_dropconnect dropconnect; /* of its weights, fixed for all passes */
} bp_model_wish;

/** As bp_model_estimate (models/open.h), for a network of this shape. decode_bytes 0: it can't
 * continue sequences. */
bp_err bp_model_estimate_shape(bp_model_memory *out, const bp_model_shape *shape,
                               const bp_config *config, const bp_model_task *task);

/** Collective over mesh->member. info: kind, statistics, width, context and the
 * vocabulary are filled. */
bp_err bp_network_model_open(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                             bp_checkpoint *checkpoint, bp_model_wish wish);

/** Inputs that a window may have if `wish` are wanted (0: no wish): more than the shape's only
 * where no parameter depends on a position. */
int64_t network_model_context(const bp_model_shape *shape, int64_t wish);

/** As bp_model_new. */
bp_err bp_network_model_new(bp_model **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model_shape *shape, uint64_t seed);

/** A network that other code holds and changes (a training's), as a model: its values are read at
 * each call, and not copied. It decodes with any runs of blocks per stage; `info` has no step,
 * hash or digest.
 *
 * Local. Owns: the caller's, bp_model_free(), which leaves the network; mesh and network are
 * borrowed. */
bp_model *bp_model_view(const bp_mesh *mesh, bp_network *network, const bp_model_shape *shape);
