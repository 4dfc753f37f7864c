/* run.json. Local. */
#pragma once

#include "mesh/mesh.h"
#include "run/run_spec.h"

#define RUN_HOST_BYTES 64 /* for a host's name */

/** Read run.json; *out is NULL if there is no such file.
 *  Errors: BP_ERR_FORMAT damaged, or of an unknown version; BP_ERR_IO, BP_ERR_DENIED,
 *  BP_ERR_SYSTEM. */
bp_err run_record_read(const char *folder, json_t **out);
/** Errors: BP_ERR_IO, BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_SYSTEM. */
bp_err run_record_write(const char *folder, const json_t *record);

/** A new run.json for the start that follows `before` (NULL: the first).
 * hosts[mesh->size][RUN_HOST_BYTES]. The caller's, json_decref(). */
json_t *run_record_new(const char *folder, const bp_mesh *mesh, const bp_config *config,
                       const bp_run_spec *spec, const json_t *before, const char *hosts);
