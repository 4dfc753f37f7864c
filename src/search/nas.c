/* Accessors of a search's state. */
#include "search/nas.h"

#include "base/config/run_options.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bp_config *nas_config(const nas *self)
{
    return self->config;
}

const bp_mesh *nas_mesh(const nas *self)
{
    return self->mesh;
}

int64_t nas_wanted(const nas *self)
{
    return bp_nas_keys_of(self->config)->trials;
}

int64_t nas_count(const nas *self)
{
    return self->count;
}

nas_trial *nas_trial_at(nas *self, int64_t k)
{
    BP_ASSERT(k >= 0 && k < self->count);
    return &self->trials[k];
}

int64_t nas_find(const nas *self, const char *settings)
{
    for (int64_t k = 0; k < self->count; k++)
        if (strcmp(self->trials[k].settings, settings) == 0)
            return k;
    return -1;
}

double nas_models(const nas *self)
{
    return self->method->models ? self->method->models(self) : nas_space_points(&self->space);
}

char *nas_path(const nas *self, const char *name)
{
    return bp_sprintf("%s/search/%s", bp_run_keys_of(self->config)->dir, name);
}

void nas_trial_name(int64_t k, char out[NAS_NAME_BYTES])
{
    snprintf(out, NAS_NAME_BYTES, "t%04" PRId64, k);
}
