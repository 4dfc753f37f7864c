/* What a run was before: its config.ini and run.json, and how this one differs. Local. */
#ifndef BP_RUN_RUN_COMPARE_H
#define BP_RUN_RUN_COMPARE_H

#include "base/files/hash.h"
#include "run/run_spec.h"

/* The pairs of a config.ini of ours: key, value, key, value... */
typedef struct run_pairs {
    char **texts;
    int64_t count;              /* of pairs */
    char sha256[BP_SHA256_HEX]; /* of the file; "": there is none */
} run_pairs;

/** Read RUN/config.ini; none where there is no such file.
 *
 * Errors: BP_ERR_FORMAT it is not a plain file; BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM. */
bp_err bp_run_pairs_read(run_pairs *out, const char *run_dir);
void bp_run_pairs_clear(run_pairs *pairs);
/** NULL where the key is not there. Borrowed. */
const char *bp_run_pairs_find(const run_pairs *pairs, const char *key);

/** Is config.ini what the run wrote last? Else keys that differ from the run's would be compared
 * with nothing. Runs of older programs don't know.
 *
 * Errors: BP_ERR_FORMAT it is not. */
bp_err run_pairs_check(const run_pairs *pairs, const json_t *record, const char *run_dir);

/** The steps of a training, or of each member: run.json has them as resolved, from train.epochs
 * too; that of an older program does not, and config.ini is read. 0: unknown. */
int64_t run_steps(const json_t *record, const run_pairs *pairs);

/** Compare kind of job, identities and keys with what was.
 *
 * finished: it was, and no key differs but those of other_bits.
 * changes:  keys of other_bits by which bits change, "mesh.tensor is 2 and was 1, ..."; NULL: none.
 * Owns:     *changes is the caller's, bp_free().
 * Errors: BP_ERR_CONFIG, all faults together, 20 at most; BP_ERR_SYSTEM. */
/** Does no result depend on this key, in any job? */
bool run_key_is_free(const char *key);

bp_err run_compare(const json_t *before, const run_pairs *pairs, const bp_config *config,
                   const bp_run_spec *spec, const char *run_dir, bool *finished, char **changes);

#endif
