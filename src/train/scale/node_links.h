/* How many messages share a node's link when all ranks of an axis exchange at once. */
#pragma once

#include "mesh/mesh.h"
#include "train/scale/network_file.h"

#include <stdint.h>

/** Ranks on their nodes, which they fill one after another: tensor fastest, then data, then
 * pipeline. */
typedef struct bp_node_layout {
    bp_mesh_shape mesh;           /* fitted */
    int ranks, nodes, node_ranks; /* that compute; of the fullest node */
    /* the most ranks of a node whose partner is on another one, when all ranks exchange at once;
     * may be 0 */
    int data[32];         /* along data ranks that are 1, 2, 4... apart */
    int pipeline, tensor; /* with the next stage; with the farthest tensor rank */
    /* turns in which ranks exchange experts' rows: within a node, between nodes, and the sum over
     * these */
    int turns_here, turns_away, experts;
} bp_node_layout;

bp_node_layout bp_node_layout_of(const bp_mesh_shape *mesh, int nodes);

/** As bp_node_layout.data, for data ranks that are `stride` apart. Pure. */
int bp_node_crossing(const bp_node_layout *layout, int stride);

/** Seconds of a message, of which `crossing` leave a node at once; 0: it stays on the node. */
double bp_message_seconds(const bp_network_rates *rates, int crossing, double bytes);
