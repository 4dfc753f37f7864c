/* A language model that uses its nearest neighbours: a mixture of a model's distribution and of one
 * over the tokens that followed the nearest contexts of a datastore.
 *
 * Source: Khandelwal et al. 2020, "Generalization through Memorization: Nearest Neighbor Language
 * Models", equations 2 and 3. */
#pragma once

#include "infer/neighbours/datastore.h"

typedef struct bp_neighbours_spec {
    const char *path; /* of the datastore */
    int64_t k;
    double temperature, weight;
    int64_t memory_bytes;  /* of a rank, for keys */
    const char *precision; /* of the model's products */
} bp_neighbours_spec;

/** p(w) = weight p_k(w) + (1 - weight) p_model(w), where p_k(w) is proportional to the sum of
 * exp(-d / temperature) over the k nearest entries that w follows, d their squared distances. The
 * mixture has two statistics: its own log p and the model's.
 *
 * Collective: over mesh->compute; spec is equal on all ranks. Ranks of mesh->model divide the
 *             datastore; data ranks search for their own tokens.
 * Owns:       *out is the caller's, bp_model_free(); it owns `model`, after an error too.
 * Errors:     those of bp_datastore_open; BP_ERR_CONFIG k exceeds the number of entries, a model
 *             that has no keys, or may return a probability of 0: the same on all ranks, *out NULL.
 */
bp_err bp_neighbours_new(bp_model **out, bp_model *model, const bp_mesh *mesh,
                         const bp_neighbours_spec *spec);
/** For a model that bp_neighbours_new has made. */
const bp_datastore_info *bp_neighbours_datastore(const bp_model *model);

/** Returns the natural logarithm of p(token), from the model's and neighbours[k], the nearest
 * first.
 * Local: no MPI. */
double bp_neighbours_mix(const bp_neighbours_spec *spec, double logprob,
                         const bp_neighbour *neighbours, int64_t token);
