/* ensemble.json: the models of an ensemble. Written by `bagpipe ensemble`, or by hand;
 * docs/formats.md has the layout. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_ENSEMBLE_MEMBERS_MAX 100000

typedef struct bp_ensemble_member {
    char *name;            /* "m00" */
    char *path;            /* CHECKPOINT: a path valid from here */
    double oob_perplexity; /* on the documents outside its bag; NaN: not known */
} bp_ensemble_member;

typedef struct bp_ensemble_list {
    bp_ensemble_member *members; /* in the file's order */
    int64_t count;
} bp_ensemble_list;

/** Does `path` name an ensemble: an ensemble.json, or a folder that holds one? */
bool bp_ensemble_is(const char *path);

/** Is `path` the run folder of an ensemble that has members, but no ensemble.json (yet)? */
bool bp_ensemble_is_unfinished(const char *path);

/** Read ensemble.json at `path` (the file, or the folder that holds it). Paths in it are relative
 * to its folder.
 *
 * Owns:       *list is the caller's, bp_ensemble_list_clear(), after an error too.
 * Errors:     BP_ERR_INPUT no such file; BP_ERR_FORMAT no JSON, no members, a member without a
 * path, two with the same name, an unknown key, format_version beyond 1; BP_ERR_IO, BP_ERR_DENIED,
 * BP_ERR_SYSTEM.
 */
bp_err bp_ensemble_list_load(bp_ensemble_list *list, const char *path);
void bp_ensemble_list_clear(bp_ensemble_list *list);

/** Write `folder`/ensemble.json, whole and by rename; members' paths are in it as they are given
 * (relative to `folder`).
 *
 * Errors: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM.
 */
bp_err bp_ensemble_list_save(const bp_ensemble_list *list, const char *folder);

/** Remove `folder`/ensemble.json, if there is one: what it lists may change. Errors: BP_ERR_DENIED,
 * BP_ERR_IO, those of the fence (base/files/fence.h). */
bp_err bp_ensemble_list_remove(const char *folder);

/** Above the lowest validation loss of members: those that learned the same differ by less. */
#define BP_MEMBER_FAR_NATS 0.3

/** Warn of members whose validation loss is far above the lowest one of a member of their kind, on
 * the same corpus (`[ensemble.far_member]`). Other kinds, such as an n-gram model beside a GPT, are
 * mixed on purpose. Local: it reads the manifest of each. `path` names the ensemble. */
void bp_ensemble_warn_of_losses(const bp_ensemble_list *list, const char *path);

/** The state in the manifest of a checkpoint, or of an ensemble's first member; no tensor is read.
 *
 * Local. Owns: *state is a new reference; NULL after an error, or if there is none.
 * Errors:     those of bp_ensemble_list_load and bp_checkpoint_read_metadata. */
bp_err bp_ensemble_read_state(json_t **state, const char *path);
