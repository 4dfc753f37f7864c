/* Which models search.limit admits. Called by methods. */
#include "search/nas.h"

#include "mesh/collective.h"

/* Measured once, by the first rank that computes: all ranks use its figure. */
static bp_err find_speed(nas *self, const char *settings, const bp_model_shape *shape,
                         double *speed)
{
    const json_t *known = json_object_get(self->speeds, settings);
    int root = self->mesh->dedicated ? 1 : 0;
    bp_err err = BP_OK;

    if (known) {
        *speed = json_number_value(known);
        return BP_OK;
    }
    *speed = 0;
    if (self->mesh->rank == root)
        err = nas_measure(self, settings, shape, speed);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(speed, sizeof *speed, root, self->mesh->world);
    (void)json_object_set_new(self->speeds, settings, json_real(*speed));
    return nas_keep(self); /* the next start decides alike */
}

bp_err nas_admit(nas *self, const char *settings, bool *admitted)
{
    bp_model_shape shape;
    double speed;
    bp_err err = BP_OK;

    *admitted = nas_shape(self, settings, &shape) == BP_OK &&
                nas_limit_takes(&self->limit, bp_model_parameters(&shape));
    if (!*admitted || self->limit.tokens_per_second == 0)
        return BP_OK;
    err = find_speed(self, settings, &shape, &speed);
    *admitted = speed >= self->limit.tokens_per_second;
    return err;
}
