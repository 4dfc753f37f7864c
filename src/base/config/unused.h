/* Keys that a job was given and does not have, or does not use. Local: no MPI. */
#ifndef BP_BASE_CONFIG_UNUSED_H
#define BP_BASE_CONFIG_UNUSED_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bp_config bp_config;

/** The next key of the command line, from entry *at on (0 first), that only other jobs have; NULL
 * at the end. Keys of a file are skipped, since a file may serve several jobs. Borrowed. */
const char *bp_config_next_unused(const bp_config *config, int64_t *at);

/** A key without effect, and why it is ignored. */
typedef struct bp_unused_key {
    const char *key; /* NULL ends a list */
    bool unused;
    const char *why;
} bp_unused_key;
/** Warns of each unused key that differs from its default: config.ini, which names every key, may
 * be the configuration. */
void bp_warn_of_unused(const bp_config *config, const bp_unused_key *rows);

#endif
