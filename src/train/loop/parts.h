/* The hooks of all parts of a training, called in the order of its list until one fails. */
#pragma once

#include "train/loop/trainer.h"

/* Each calls that hook of all parts; communicator and errors are those of the hook (part.h). */
bp_err parts_open(trainer *self);
void parts_check(const trainer *self);
void parts_describe_run(const trainer *self, bp_run_spec *spec);
bp_err parts_at(trainer *self, part_time when);
bp_err parts_before_step(trainer *self, const bp_batch *batch);
bp_err parts_before_commit(trainer *self, bool best);
void parts_put_state(const trainer *self, bool best, json_t *state);
void parts_close(trainer *self);
/** *bytes: of all parts together, on a rank of that stage. */
bp_err parts_bytes(const trainer *self, const bp_mesh_shape *mesh, int stage, size_t *bytes);

/** To the part's `receive`, from compute's root. Local. Owns: the reference of `value` is taken. */
void bp_part_report(trainer *self, const bp_training_part *part, json_t *value);
