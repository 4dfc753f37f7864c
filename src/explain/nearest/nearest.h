/* The contents of explain.datastore: for models that predict words, contexts of tokens as
 * score.states writes them; for classifiers, vectors of documents as score.vectors writes them. */
#pragma once

#include "explain/method.h"

/** An entry close to a prediction. */
typedef struct explain_near {
    int64_t document, place; /* in the datastore; place 0 if it has whole documents */
    double distance;         /* squared, Euclidean */
} explain_near;

typedef struct explain_nearest explain_nearest;

typedef struct explain_nearest_spec {
    const char *path;  /* explain.datastore; stays valid */
    const char *model; /* explain.model */
    int64_t context;   /* explain.context */
    int64_t k;
} explain_nearest_spec;

/** Opens the file and, for vectors of documents, the model again without its head.
 *
 * Collective: over mesh->compute; `model` is the model that is explained.
 * Owns:       *out is the caller's, explain_nearest_close(); NULL after an error.
 * Errors:     those of bp_datastore_open and of bp_model_open_vectors; BP_ERR_FORMAT not vectors of
 *             this model; BP_ERR_CONFIG fewer entries than k: the same on all ranks. */
bp_err explain_nearest_open(explain_nearest **out, const bp_mesh *mesh, const bp_config *config,
                            const bp_model *model, const explain_nearest_spec *spec);
void explain_nearest_close(explain_nearest **nearest);
/** The k entries nearest to each target of a document: out[K][k]. Collective over mesh->model.
 * Errors: BP_ERR_SYSTEM, BP_ERR_IO, BP_ERR_STOPPED: the same on all its ranks. */
bp_err explain_nearest_find(explain_nearest *nearest, bp_model *model,
                            const bp_explain_settings *settings, const bp_explained *document,
                            explain_near *out);
/** Does the model compare vectors of whole documents? Local. */
bool explain_nearest_of_documents(const bp_model_info *info);

#define EXPLAIN_NEAREST_BYTES ((int64_t)1 << 30) /* of a rank, for entries in memory */
