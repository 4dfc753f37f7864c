/* The run folder: its lock, its identity, and its journals. Only the coordinator accesses it.
 *
 *     config.ini      every key as resolved            metrics.jsonl   step lines
 *     run.json        job, versions, mesh, exit state   events.jsonl    everything else
 *     samples.jsonl   texts of a training               log.txt         plain lines
 *     status.json     progress
 *     lock/           its owner
 *
 * No file in it contains the folder's path: it may be copied or moved.
 */
#pragma once

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
 * From now on bp_log() also writes log.txt. A key of both runs that may not change must be equal; a
 * key of only one of them is compared with its default. A finished run keeps its config.ini.
 *
 * Collective: over mesh->world; config, and spec but `extra`, are equal on all ranks.
 * Owns:       *out is the caller's, bp_run_close(); NULL on failure (nothing is held then). mesh is
 *             borrowed until then.
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

/** Sets the `reason` of a "finished" exit state, for runs that finish before their last step.
 * Borrowed until bp_run_close. On the coordinator; a no-op elsewhere. */
void bp_run_end_reason(bp_run *run, const char *reason);

/** Write the exit state: BP_OK "finished" (bp_run_end_reason), BP_ERR_STOPPED "stopped" with the
 * reason (bp_stop_name), else "failed" with the message of the last failure. Then, while the run is
 * still this job's, removes merged parts and draws the page.
 *
 * Collective: over mesh->world; exit_state is equal on all ranks.
 * Errors:     exit_state; or BP_ERR_BUSY and others of bp_run_check_owner, the run was no longer
 *             this job's; with BP_OK also BP_ERR_IO, BP_ERR_DENIED (else a warning). The message is
 *             that of the returned error. */
bp_err bp_run_end(bp_run *run, bp_err exit_state);
/** Calls bp_run_end unless it was called, and always releases the lock.
 *
 * Collective, Errors: of bp_run_end; with BP_OK also those of releasing the lock. */
bp_err bp_run_close(bp_run **run, bp_err exit_state);

/** Append a line start_failed to events.jsonl, for `bagpipe status`: a job of the run `run_dir`
 * failed with `code` before or while it opened the folder. Writes nothing if there is no run yet,
 * if another job holds or may hold it, or if this process has opened a run. Write failures are
 * ignored; the last failure's message is kept. Local; only for one rank. */
void bp_run_start_failed(const char *run_dir, bp_err code);

/** Did the last job here end as "finished", with no changed keys except those of `other_bits`?
 * Equal on all ranks. */
bool bp_run_is_finished(const bp_run *run);
/** Warn of changed keys of `other_bits`, after which results have other bits, and write them to
 * config.ini: for a job that has work left to do. On the coordinator; a no-op elsewhere. */
void bp_run_take_changes(const bp_run *run);
/** The first of these results in `folder` that is not a plain file; NULL if all are. NULL names are
 * ignored. Local. */
const char *bp_run_first_missing(const char *folder, const char *const *names, size_t count);
/** Logs that a missing result of a finished run is made again. On the coordinator. */
void bp_run_say_missing(const char *folder, const char *name);
/** The number of steps of the training at the previous start; 0 if there was no start or it is
 * unknown. On the coordinator; 0 elsewhere. */
int64_t bp_run_steps_before(const bp_run *run);
/** Was there a run here before this start? Equal on all ranks. */
bool bp_run_is_resumed(const bp_run *run);

/** The value to which the last start of the run in `run_dir` resolved `key`; *value is NULL without
 * a run or a value.
 *
 * For keys that are resolved once and kept (math.precision). The lock is not needed.
 *
 * Collective: over `comm`; run_dir and key are equal on all ranks.
 * Owns:       *value is the caller's, bp_free().
 * Errors:     BP_ERR_INPUT config.ini is not a file; BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM.
 */
bp_err bp_run_previous(MPI_Comm comm, const char *run_dir, const char *key, char **value);

/** Would a start of this run find work, as far as is known without the lock? False if it is
 * finished, or if another job may hold it: then bp_run_open decides. Collective over `comm`. */
bool bp_run_has_work(MPI_Comm comm, const char *run_dir);

/** Record the user's request, before any key is resolved. run.json of the first run folder that
 * this process opens keeps its digest, `request`. Local. */
void bp_run_note_request(const char *job, const bp_config *config);
/** Adds a file of the finished run, by its path in the folder, to `results` of run.json. On the
 * coordinator; a no-op elsewhere. */
void bp_run_add_result(bp_run *run, const char *path);
/** Is run_dir a finished run of the same request, with all its results? Then its inputs are not
 * needed. False for a run without `results`. Collective over `comm`. */
bool bp_run_needs_no_input(MPI_Comm comm, const char *run_dir);

/* ---- on the coordinator. Local; functions that write are no-ops on other ranks ---- */

/** Which start of the run this is: 1, 2 ... 0 on other ranks. */
int64_t bp_run_start_number(const bp_run *run);

/** Does this job still hold the folder? Every commit of a file checks this (base/files/fence.h)
 * while the run is open. `run` is a bp_run; an unreadable disk is retried for a second.
 *
 * Errors: BP_ERR_BUSY another job has taken the run over, or its lock was removed; BP_ERR_IO the
 *         folder was removed or renamed, or the lock can't be read; BP_ERR_FORMAT the lock is
 *         damaged. Always BP_OK on ranks other than the coordinator. */
bp_err bp_run_check_owner(void *run);
/** The same as a bool; false on other ranks. */
bool bp_run_still_owner(void *run);

/** Adds a fault if run.dir obviously is not a run's folder: the root, a system folder, the user's
 * home, a checkpoint. Local. */
void bp_run_check_place(bp_config *config);

/** Sync metrics and events to disk before a commit, so that no checkpoint outlives the lines before
 * it.
 *
 * Errors: BP_ERR_IO. */
bp_err bp_run_sync(bp_run *run);

/** One line for metrics.jsonl, and its figures for TensorBoard; `line` is borrowed.
 *
 * Errors: BP_ERR_IO (disk full), and the file is unchanged; BP_ERR_BUSY another job has taken the
 *         run over; BP_ERR_SYSTEM. */
bp_err bp_run_metric(bp_run *run, const json_t *line);

/** One line for samples.jsonl, of a run that has one (bp_run_spec.samples); borrowed. Errors: as
 * bp_run_metric. */
bp_err bp_run_sample(bp_run *run, const json_t *line);

/** One line for events.jsonl: {"time", "event": name, ...members of `members`} (borrowed; may be
 * NULL). Errors: as bp_run_metric. */
bp_err bp_run_event(bp_run *run, const char *name, const json_t *members);

/** Progress of the job for `bagpipe status`: members of status.json ("units_done": 7), until the
 * next call replaces them; borrowed. A failure to write is warned of once. A no-op if run is
 * NULL. */
void bp_run_progress(bp_run *run, const json_t *members);

/** The time that a stop takes, as far as known: bp_stop_request_needs. */
void bp_run_needs(bp_run *run, double seconds);

/** Cut metrics.jsonl, and samples.jsonl if present, after the last line with a step <= `step` (-1:
 * cut all). Earlier unreadable lines stay, with a warning. Also warns of missing lines and commits
 * (-1: of a missing file). An event makes TensorBoard drop the lines that were cut.
 *
 * Errors: BP_ERR_IO; BP_ERR_BUSY another job has taken the run over; BP_ERR_CREATE, BP_ERR_DENIED,
 *         BP_ERR_SYSTEM TensorBoard's file. */
bp_err bp_run_cut_metrics(bp_run *run, int64_t step);
