/* The run folder: who holds it, what it is a run of, and its journals. Only the coordinator touches
 * its files.
 *
 *     config.ini      every key as resolved            metrics.jsonl   step lines
 *     run.json        job, versions, mesh, exit state   events.jsonl    everything else
 *     samples.jsonl   texts of a training               log.txt         plain lines
 *     status.json     how far it is
 *     lock/           who holds it
 *
 * Nothing in it names its own place: it may be copied or moved.
 */
#ifndef BP_RUN_RUN_FOLDER_H
#define BP_RUN_RUN_FOLDER_H

#include "base/config/config.h"
#include "base/config/json.h"
#include "base/err.h"
#include "mesh/mesh.h"
#include "run/run_spec.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_run bp_run;

/** Make or re-open the folder `run.dir` of the configuration, take its lock, compare, and write
 * config.ini and run.json. From then on a file RUN/halt and the end of the Slurm job's time ask to
 * stop (run/stop_request.h).
 *
 * From now on bp_log() also writes log.txt. A key that both runs have and that may not change must
 * be equal; one that only one of them has is compared with its default. A finished run keeps its
 * config.ini.
 *
 * Collective: over mesh->world; config, and spec but `extra`, are equal on all ranks.
 * Owns:       *out is the caller's, bp_run_close(); NULL on failure (nothing is held then). mesh
 *             is borrowed until then.
 * Errors:     BP_ERR_CREATE, BP_ERR_DENIED the folder can't be made or written;
 *             BP_ERR_BUSY another job holds it (named with host, process and Slurm job);
 *             BP_ERR_CONFIG another kind of job, other identities or keys (each with both values);
 *             BP_ERR_FORMAT a run.json or lock that is damaged or of an unknown version, a
 *             config.ini that is not what the run wrote, a file that is not one (bp_plain_open);
 *             BP_ERR_STOPPED there is a file RUN/halt, and the run is not finished;
 *             BP_ERR_IO, BP_ERR_SYSTEM: the same on all ranks.
 */
bp_err bp_run_open(bp_run **out, const bp_mesh *mesh, const bp_config *config,
                   const bp_run_spec *spec);

/** Why the run is finished, where it is not that all steps are done: `reason` of the exit state, if
 * that is "finished". Borrowed until bp_run_close. On the coordinator; elsewhere nothing. */
void bp_run_end_reason(bp_run *run, const char *reason);

/** Write the exit state: BP_OK "finished" (bp_run_end_reason), BP_ERR_STOPPED "stopped" with the
 * reason (bp_stop_name), else "failed" with the message of the last failure. What has to wait for
 * it follows while the run is still this job's: parts that are merged are removed, a page is drawn.
 *
 * Collective: over mesh->world; exit_state is equal on all ranks.
 * Errors:     exit_state; or BP_ERR_BUSY and others of bp_run_check_owner, the run was not this
 *             job's any more; with BP_OK also BP_ERR_IO, BP_ERR_DENIED (else a warning). The
 *             message is that of what is returned. */
bp_err bp_run_end(bp_run *run, bp_err exit_state);
/** bp_run_end, unless it was called, and let the lock go, whatever happens.
 *
 * Collective, Errors: of bp_run_end; with BP_OK also those of letting the lock go. */
bp_err bp_run_close(bp_run **run, bp_err exit_state);

/** A job of the run `run_dir` has failed with `code` before it opened the folder, or while it did:
 * leave a line start_failed in events.jsonl, for `bagpipe status`. Nothing is written where there
 * is not a run yet, where another job holds it, or might, or where this process has opened a run,
 * which has written its end itself. What can't be written is left out; the last failure's message
 * stays. Local; only for one rank. */
void bp_run_start_failed(const char *run_dir, bp_err code);

/** The last job here ended with "finished", and no key differs from its but those of `other_bits`.
 * Equal on all ranks. */
bool bp_run_is_finished(const bp_run *run);
/** Warn of keys of `other_bits` by which results have other bits from here on, if there are any,
 * and let config.ini have them: of a job that has found that it has something left to do. On the
 * coordinator; elsewhere nothing. */
void bp_run_take_changes(const bp_run *run);
/** The first of these results in `folder` that is not a plain file; NULL: all are. A name that is
 * NULL is not one. Local. */
const char *bp_run_first_missing(const char *folder, const char *const *names, size_t count);
/** A line of the log: a result of a finished run is made again. On the coordinator. */
void bp_run_say_missing(const char *folder, const char *name);
/** The steps that the training had at the start before; 0: there was none, or it is not known. On
 * the coordinator; elsewhere 0. */
int64_t bp_run_steps_before(const bp_run *run);
/** There was a run here before this one. Equal on all ranks. */
bool bp_run_is_resumed(const bp_run *run);

/** What `key` was resolved to when a run in `run_dir` began last; *value is NULL where there was no
 * run or no such value.
 *
 * For keys that are resolved once and kept (math.precision). The lock is not needed.
 *
 * Collective: over `comm`; run_dir and key are equal on all ranks.
 * Owns:       *value is the caller's, bp_free().
 * Errors:     BP_ERR_INPUT config.ini is not a file; BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM.
 */
bp_err bp_run_previous(MPI_Comm comm, const char *run_dir, const char *key, char **value);

/** Would a start of this run find work, as far as is known without the lock? No where it is
 * finished, or another job may hold it: then opening it decides. Collective over `comm`. */
bool bp_run_has_work(MPI_Comm comm, const char *run_dir);

/** Note what the user asks for, before any key is resolved. run.json keeps its digest, `request`:
 * of the first run folder that this process opens. Local. */
void bp_run_note_request(const char *job, const bp_config *config);
/** A file of the finished run, by its path in the folder: run.json lists them in `results`. On the
 * coordinator; elsewhere nothing. */
void bp_run_add_result(bp_run *run, const char *path);
/** Is run_dir a finished run of the same request, with all its results? Then its inputs are not
 * needed. False of a run without `results`. Collective over `comm`. */
bool bp_run_needs_no_input(MPI_Comm comm, const char *run_dir);

/* ---- on the coordinator. Local; what writes does nothing on other ranks ---- */

/** Which start of the run this is: 1, 2 ... 0 on other ranks. */
int64_t bp_run_start_number(const bp_run *run);

/** Does this job still hold the folder? Every commit of a file asks this by itself
 * (base/files/fence.h) while the run is open. `run` is a bp_run; a disk that can't be read is given
 * a second.
 *
 * Errors: BP_ERR_BUSY another job has taken the run over, or its lock was removed; BP_ERR_IO the
 *         folder was removed or renamed, or the lock can't be read; BP_ERR_FORMAT the lock is
 *         damaged. On other ranks than the coordinator BP_OK, always. */
bp_err bp_run_check_owner(void *run);
/** The same in a word: false on other ranks. */
bool bp_run_still_owner(void *run);

/** A fault of the configuration where run.dir is a folder that is obviously no run's: the root, a
 * folder of the system, the user's home, a checkpoint. Local. */
void bp_run_check_place(bp_config *config);

/** Bring metrics and events to disk: before a commit, so that no checkpoint outlives the lines that
 * lead to it.
 *
 * Errors: BP_ERR_IO. */
bp_err bp_run_sync(bp_run *run);

/** One line for metrics.jsonl, and its figures for TensorBoard; `line` is borrowed.
 *
 * Errors: BP_ERR_IO (disk full), and the file ends where it did before; BP_ERR_BUSY another job has
 *         taken the run over; BP_ERR_SYSTEM. */
bp_err bp_run_metric(bp_run *run, const json_t *line);

/** One line for samples.jsonl, of a run that has one (bp_run_spec.samples); borrowed. Errors: as
 * bp_run_metric. */
bp_err bp_run_sample(bp_run *run, const json_t *line);

/** One line for events.jsonl: {"time", "event": name, ...members of `members`} (NULL: none;
 * borrowed). Errors: as bp_run_metric. */
bp_err bp_run_event(bp_run *run, const char *name, const json_t *members);

/** How far the job is, for `bagpipe status`: members of status.json ("units_done": 7), which stay
 * there until the next call replaces them; borrowed. What can't be written is warned of once. run:
 * NULL: does nothing. */
void bp_run_progress(bp_run *run, const json_t *members);

/** How long a stop takes, as far as is known: bp_stop_request_needs. */
void bp_run_needs(bp_run *run, double seconds);

/** Cut metrics.jsonl, and samples.jsonl where it is, back to what led to `step` (-1: nothing): what
 * comes after the last line with a `step` <= it goes. Lines before that can't be read stay, and
 * are warned of, as are lines and commits that are missing (-1: a file that is missing).
 * An event makes TensorBoard drop what was cut off.
 *
 * Errors: BP_ERR_IO; BP_ERR_BUSY another job has taken the run over; BP_ERR_CREATE, BP_ERR_DENIED,
 *         BP_ERR_SYSTEM TensorBoard's file. */
bp_err bp_run_cut_metrics(bp_run *run, int64_t step);

#endif
