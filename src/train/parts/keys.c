/* Keys of a part that has no place in a training. */
#include "train/parts/keys.h"

#include <string.h>

bp_err keys_refuse(const trainer *self, const bp_option *table, const char *section)
{
    for (const bp_option *row = table; row->key; row++)
        if (strncmp(row->key, section, strlen(section)) == 0 &&
            bp_config_departs(self->config, row->key))
            return BP_FAIL(BP_ERR_CONFIG, "model.unused_key",
                           "model.kind = %s has no %s here: at %s; leave the key out",
                           self->shape.family->name, row->key, row->key);
    return BP_OK;
}
