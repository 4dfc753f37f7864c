/* Finds another mesh that would fit into the memory of its nodes. */
#pragma once

#include "base/buffer.h"
#include "mesh/mesh.h"
#include <stdbool.h>

typedef struct bp_mesh_search {
    bp_mesh_shape mesh; /* fitted: the one that does not fit */
    int nodes;          /* nodes in the job */
    int node_ranks;     /* ranks on the fullest node */
    int members_most; /* members that may run concurrently in the chosen mesh; 0: as many as now */
    const bp_config *config; /* which of mesh.* did the user give? */
    /** Would the job take this mesh, and would it fit? Ranks fill the nodes one after another. */
    bool (*fits)(void *context, const bp_mesh_shape *mesh, int nodes);
    void *context;
} bp_mesh_search;

/** Ranks of a fitted mesh, including a dedicated coordinator. */
int bp_mesh_shape_ranks(const bp_mesh_shape *shape);

/** Add "use mesh.pipeline=2" (another mesh of as many ranks, with as few parts of a model as
 * suffice; tensor ranks stay on one node), else "start 2 ranks" (fewer of them). False: neither
 * fits, and nothing is added. Local. */
bool bp_mesh_search_near(bp_buffer *out, const bp_mesh_search *search);

/** Where that finds nothing: add the number of nodes that would suffice, "start 8 ranks on 4 nodes
 * with mesh.pipeline=4". False: not even a thousand nodes suffice, and nothing is added. Local. */
bool bp_mesh_search_nodes(bp_buffer *out, const bp_mesh_search *search);
