#include "base/config/ignored.h"

#include "base/log.h"

#include <string.h>

typedef struct unused_keys {
    const bp_config *config;
    const bp_unused_key *rows;
} unused_keys;

static void warn_of_key(void *context, const bp_option *option, const char *value)
{
    const unused_keys *self = context;

    for (const bp_unused_key *row = self->rows; row->key; row++)
        if (row->unused && strcmp(row->key, option->key) == 0 &&
            bp_config_departs(self->config, row->key))
            BP_WARN("config.unused_key", "%s = %s is ignored: %s", row->key, value, row->why);
}

void bp_warn_of_unused(const bp_config *config, const bp_unused_key *rows)
{
    bp_config_each(config, warn_of_key, &(unused_keys){config, rows});
}
