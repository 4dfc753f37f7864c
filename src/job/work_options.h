/* The tables of keys that every job of job/work.h has, after its own: mesh.*, memory, math.*,
 * weights.*, slurm.*, watchdog.*. */
#pragma once

#include "math/math.h"
#include "mesh/node_memory.h"
#include "models/network/weights.h"
#include "run/stop_request.h"
#include "run/watchdog/watchdog.h"

#define BP_WORK_OPTIONS                                                                            \
    bp_mesh_options, bp_memory_options, bp_math_options, bp_weights_options, bp_slurm_options,     \
        bp_watchdog_options
