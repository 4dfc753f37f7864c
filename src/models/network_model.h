/* Networks as bp_models, without a checkpoint. */
#ifndef BP_MODELS_NETWORK_MODEL_H
#define BP_MODELS_NETWORK_MODEL_H

#include "models/dropconnect.h"
#include "models/family.h"
#include "models/model.h"

/** Options of a model beside its weights. */
typedef struct bp_model_wish {
    bool keeps_head;            /* as bp_model_open_with_head */
    bool differentiates;        /* as bp_model_open_differentiable */
    int64_t context;            /* as bp_model_open_wide; 0: its own */
    const char *vectors;        /* a pool: as bp_model_open_vectors; NULL: the model as it is */
    bp_dropconnect dropconnect; /* of its weights, once for all */
} bp_model_wish;

/** As bp_model_estimate (models/open.h), of a network of this shape. decode_bytes 0: it can't
 * continue sequences. */
bp_err bp_model_estimate_shape(bp_model_memory *out, const bp_model_shape *shape,
                               const bp_config *config, const bp_model_task *task);

/** A network that other code holds and changes (a training's), as a model: its values are read at
 * each call, and not copied. It decodes with any runs of blocks a stage; `info` has no step, hash
 * or digest.
 *
 * Local. Owns: the caller's, bp_model_free(), which leaves the network; mesh and network are
 * borrowed. */
bp_model *bp_model_view(const bp_mesh *mesh, bp_network *network, const bp_model_shape *shape);

#endif
