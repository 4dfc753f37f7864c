/* Spectral normalisation: hidden weights whose largest singular value is bounded, so that the
 * states of two texts are not further apart than a known multiple of their inputs' distance. */
#pragma once

#include "mesh/mesh.h"
#include "models/family.h"
#include "models/network/network.h"

typedef struct bp_spectral bp_spectral;

/** The bound that shape->task asks for, on this rank's part of a network. *out is NULL if nothing
 * is bounded here.
 *
 * Owns:       *out is the caller's, bp_spectral_free(); mesh and network are borrowed until then.
 *             Local. */
void bp_spectral_new(bp_spectral **out, const bp_mesh *mesh, bp_network *network,
                     const bp_model_shape *shape, uint64_t seed);
void bp_spectral_free(bp_spectral **spectral); /* NULL is accepted */
/** Floats of the iteration's vectors that a checkpoint holds of the network. Local. */
int64_t bp_spectral_floats(const bp_network *network, const bp_model_shape *shape);

/** Each bounded matrix W becomes W bound / norm where its spectral norm is above the bound. The
 * norm is found by power iteration from the last call's vector, until it changes by less than 1e-4
 * of itself (20 times at most).
 *
 * Collective: over mesh->tensor, and called alike by all data ranks, whose values are equal before
 *             and after.
 * Source: Miyato et al. 2018, "Spectral normalization for generative adversarial networks", section
 * 2.1; Liu et al. 2020, section 3.2.
 */
void bp_spectral_apply(bp_spectral *spectral);

/** The iteration's vectors as slices "spectral.u/NAME" [rows]: to load, all of this rank; to save,
 * those that no other rank saves. Appends to slices[] from *used on; capacity is asserted. NULL is
 * accepted. Local. */
void bp_spectral_slices(const bp_spectral *spectral, bool to_save, bp_slice *slices, int64_t *used,
                        int64_t capacity);
int64_t bp_spectral_count(const bp_spectral *spectral); /* the most slices */
