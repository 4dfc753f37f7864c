/* A step's program as JSON, for a simulator of the network (tests/bench/scale). */
#pragma once

#include "base/config/json.h"
#include "train/scale/step_time.h"

/** {"format": "bagpipe step", "ranks", "node_ranks", "mesh": {"pipeline", "data", "tensor",
 * "expert"}, "value_bytes", "overlap", "tokens", "rates": those of the network file,
 * "step_seconds": of step_time.h, "stages": [{"groups": [[units, unit, holders, stride]...], "ops":
 * [[name,
 * ...]...]}...]}. Operations in order: ["compute", seconds], ["receive" or "send", backward,
 * bytes], ["tensor", rounds, bytes], ["experts", seconds, bytes of rows, of results, rounds],
 * ["reduce" or "gather", group, seconds taken of compute],
 * ["gathered", group], ["reduced"], ["tied", bytes], ["agree", rounds]. Local. Owns: a new
 * reference. */
json_t *bp_step_json(const bp_step_program *program, const bp_network_rates *rates, int nodes);
