/* Compares this run with its earlier starts: config.ini and run.json. Local. */
#pragma once

#include "base/files/hash.h"
#include "run/run_spec.h"

/* The pairs of a config.ini that bagpipe wrote: key, value, key, value... */
typedef struct run_pairs {
    char **texts;
    int64_t count;              /* of pairs */
    char sha256[BP_SHA256_HEX]; /* of the file; "" without a file */
} run_pairs;

/** Read RUN/config.ini; no pairs if there is no such file.
 *
 * Errors: BP_ERR_FORMAT it is not a plain file; BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM. */
bp_err bp_run_pairs_read(run_pairs *out, const char *run_dir);
void bp_run_pairs_clear(run_pairs *pairs);
/** NULL if the key is missing. Borrowed. */
const char *bp_run_pairs_find(const run_pairs *pairs, const char *key);

/** Checks that config.ini is the one that the run wrote last: a changed file would hide
 * differences. Runs of older programs have no record to check.
 *
 * Errors: BP_ERR_FORMAT it is not. */
bp_err run_pairs_check(const run_pairs *pairs, const json_t *record, const char *run_dir);

/** The steps of a training, or of each member: run.json has them resolved, also from train.epochs;
 * for older programs config.ini is read. 0: unknown. */
int64_t run_steps(const json_t *record, const run_pairs *pairs);

/** Are results independent of this key, in every job? */
bool run_key_is_free(const char *key);

/** Compare kind of job, identities and keys with those of earlier starts.
 *
 * finished: the run was finished, and only keys of other_bits differ.
 * changes:  of other_bits the keys that change bits, "mesh.tensor is 2 and was 1, ..."; or NULL.
 * Owns:     *changes is the caller's, bp_free().
 * Errors:   BP_ERR_CONFIG, all faults together, 20 at most; BP_ERR_SYSTEM. */
bp_err run_compare(const json_t *before, const run_pairs *pairs, const bp_config *config,
                   const bp_run_spec *spec, const char *run_dir, bool *finished, char **changes);
