/* Keys that a job was given and does not have. Local: no MPI. */
#pragma once

#include <stdint.h>

typedef struct bp_config bp_config;

/** The next key of the command line, from entry *at on (0 first), that only other jobs have; NULL
 * at the end. Keys of a file are skipped, since a file may serve several jobs. Borrowed. */
const char *bp_config_next_unused(const bp_config *config, int64_t *at);
