/* The hooks of a training's parts, called in the order of its list. */
#include "train/loop/parts.h"

#include "train/loop/reports/report.h"

bp_err parts_open(trainer *self)
{
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && self->parts[k]; k++) {
        BP_ASSERT(k < TRAINING_PARTS_MAX);
        if (self->parts[k]->open)
            err = self->parts[k]->open(self, &self->own[k]);
    }
    return err;
}

bp_err parts_at(trainer *self, part_time when)
{
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && self->parts[k]; k++)
        if (self->parts[k]->at[when])
            err = self->parts[k]->at[when](self, self->own[k]);
    return err;
}

void parts_check(const trainer *self)
{
    for (int k = 0; self->parts[k]; k++)
        if (self->parts[k]->check)
            self->parts[k]->check(self, self->own[k]);
}

void parts_describe_run(const trainer *self, bp_run_spec *spec)
{
    for (int k = 0; self->parts[k]; k++)
        if (self->parts[k]->describe_run)
            self->parts[k]->describe_run(self, self->own[k], spec);
}

bp_err parts_bytes(const trainer *self, const bp_mesh_shape *mesh, int stage, size_t *bytes)
{
    bp_err err = BP_OK;

    *bytes = 0;
    for (int k = 0; err == BP_OK && self->parts[k]; k++) {
        size_t one = 0;

        if (self->parts[k]->bytes)
            err = self->parts[k]->bytes(self, self->own[k], mesh, stage, &one);
        *bytes += one;
    }
    return err;
}

bp_err parts_before_step(trainer *self, const bp_batch *batch)
{
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && self->parts[k]; k++)
        if (self->parts[k]->before_step)
            err = self->parts[k]->before_step(self, self->own[k], batch);
    return err;
}

bp_err parts_before_commit(trainer *self, bool best)
{
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && self->parts[k]; k++)
        if (self->parts[k]->before_commit)
            err = self->parts[k]->before_commit(self, self->own[k], best);
    return err;
}

void parts_put_state(const trainer *self, bool best, json_t *state)
{
    for (int k = 0; self->parts[k]; k++)
        if (self->parts[k]->put_state)
            self->parts[k]->put_state(self, self->own[k], best, state);
}

void parts_close(trainer *self)
{
    for (int k = 0; self->parts && self->parts[k]; k++)
        if (self->own[k])
            self->parts[k]->close(self->own[k]);
}

void bp_part_report(trainer *self, const bp_training_part *part, json_t *value)
{
    int k = 0;

    while (self->parts[k] != part)
        k++;
    report_send(self, (report_kind)(REPORT_PART + k), value);
}
