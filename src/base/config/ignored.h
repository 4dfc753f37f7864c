/* Keys that do nothing beside the values of others. Local: no MPI. */
#pragma once

#include "base/config/config.h"

/** A key without effect, and why it is ignored. */
typedef struct bp_unused_key {
    const char *key; /* NULL ends a list */
    bool unused;
    const char *why;
} bp_unused_key;
/** Warns of each unused key that differs from its default: config.ini, which names every key, may
 * be the configuration. */
void bp_warn_of_unused(const bp_config *config, const bp_unused_key *rows);
