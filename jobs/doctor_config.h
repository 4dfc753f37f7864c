/* bagpipe doctor's checks of a configuration. */
#pragma once

#include "base/config/config.h"
#include "base/config/json.h"
#include "base/err.h"

/* CONFIG.ini and section.key=value. */
typedef struct bp_doctor_config {
    const char *path;
    char **keys;
    int key_count;
    int ranks;
    const bp_option *const *tables; /* all keys of a configuration, NULL-ended */
} bp_doctor_config;

/** Can the job of this configuration start on this number of ranks? Adds rows for the job's own
 * check (the job whose keys are set), the mesh, and the files named, which must exist and be
 * readable; none is opened. Local.
 *
 * read: the configuration, read without a job.
 * Errors: BP_ERR_CONFIG, BP_ERR_INPUT, BP_ERR_DENIED of the first row that fails; BP_ERR_SYSTEM. */
bp_err bp_doctor_check_config(json_t *rows, const bp_config *read, const bp_doctor_config *what);
