/* Opening and closing a run folder: the order of lock, record and journals at a start and at an
 * end. */
#include "run/run_folder.h"

#include "run/run_priv.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/fault.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "mesh/collective.h"
#include "run/restart.h"
#include "run/run_compare.h"
#include "run/run_fields.h"
#include "run/run_record_priv.h"
#include "run/run_shared.h"
#include "run/watchdog/watchdog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- opening ---- */

static bp_err write_config(const bp_run *run)
{
    return bp_file_write(bp_path_in(run->folder, "config.ini").text, run->config_text,
                         strlen(run->config_text));
}

/* run.json has the hashes of the new and of the previous config.ini: the files are written one
 * after the other, and a job may be killed in between. A finished run keeps its config.ini. */
static bp_err begin_record(bp_run *run, const bp_config *config, const bp_run_spec *spec,
                           const json_t *before, const char *hosts, const run_pairs *pairs)
{
    json_t *hashes = json_array();
    char now[BP_SHA256_HEX];
    bp_err err = BP_OK;

    run->record = run_record_new(run->folder, run->mesh, config, spec, before, hosts);
    if (run_start_request(run->folder)[0] != '\0')
        set(run->record, "request", json_string(run_start_request(run->folder)));
    if (run->finished && json_object_get(before, "results"))
        set(run->record, "results", json_incref(json_object_get(before, "results")));
    run->config_text = bp_config_text(config);
    bp_sha256_of(run->config_text, strlen(run->config_text), now);
    if (!run->finished)
        (void)json_array_append_new(hashes, bp_json_string(now));
    if (pairs->sha256[0] != '\0')
        (void)json_array_append_new(hashes, bp_json_string(pairs->sha256));
    set(run->record, "config_sha256", hashes);
    if (!before) /* once run.json exists, so does the run */
        err = write_config(run);
    if (err == BP_OK)
        err = run_record_write(run->folder, run->record);
    /* config.ini has the keys with which results were computed: keys that change bits are written
     * to it once there is something to compute (bp_run_take_changes) */
    if (err == BP_OK && before && !run->finished && !run->changes)
        err = write_config(run);
    return err;
}

static void warn_if_empty(const bp_run *run, const char *path)
{
    if (run->resumed && bp_file_size(path) == 0)
        BP_WARN(
            "run.file_empty",
            "missing or empty, though the run has started before: at %s; what it recorded is lost, "
            "and the run goes on",
            path);
}

static bp_err open_journals(bp_run *run, const bp_run_spec *spec)
{
    const bp_path log = bp_path_in(run->folder, "log.txt"),
                  samples = bp_path_in(run->folder, "samples.jsonl");
    bp_err err;

    err = bp_log_open(log.text);
    if (err == BP_OK)
        warn_if_empty(run, log.text);
    if (err == BP_OK && run->missing)
        bp_run_say_missing(run->folder, run->missing);
    if (err == BP_OK && spec->trains)
        err = run_journal_open(&run->metrics, run->folder, "metrics.jsonl");
    if (err == BP_OK && spec->trains && run->finished) /* otherwise missing lines are counted */
        warn_if_empty(run, run->metrics.path);
    if (err == BP_OK && spec->trains && (spec->samples || bp_path_exists(samples.text)))
        err = run_journal_open(&run->samples, run->folder, "samples.jsonl");
    if (err == BP_OK && run->samples.is_new && run->finished)
        warn_if_empty(run, run->samples.path);
    if (err == BP_OK)
        err = run_journal_open(&run->events, run->folder, "events.jsonl");
    if (err == BP_OK)
        warn_if_empty(run, run->events.path);
    return err;
}

/* Each start and each orderly end leave a line: the gaps between them are the cost of restarts. */
static bp_err note_opened(bp_run *run)
{
    const json_t *mesh = json_object_get(run->record, "mesh");
    const char *job = getenv("SLURM_JOB_ID"), *after = text_of(last_start_of(run->record), "after");
    json_t *members =
        json_pack("{s:O, s:O, s:O}", "start", json_object_get(run->record, "starts"), "ranks",
                  json_object_get(mesh, "ranks"), "hosts", json_object_get(run->record, "hosts"));
    bp_err err;

    if (job) {
        set(members, "slurm_job", bp_json_string(job));
        set(members, "slurm_restart", json_integer(bp_restart_count()));
        bp_log_file_only("start %lld of this run: Slurm job %s, restart %lld",
                         (long long)bp_run_start_number(run), job, (long long)bp_restart_count());
    }
    if (after[0] != '\0') {
        set(members, "after", bp_json_string(after));
        bp_log("the previous start %s", after);
    }
    err = bp_run_event(run, "opened", members);
    json_decref(members);
    return err;
}

/* How and why it ended: "USR1", "halt" and so on; why it is finished; the message of a failure. */
static json_t *end_of(const bp_run *run, bp_err state)
{
    bool stopped = state == BP_ERR_STOPPED;
    const char *reason = stopped          ? bp_stop_name(bp_signals_stop_reason())
                         : state == BP_OK ? run->end_reason
                                          : NULL;
    json_t *end = json_pack("{s:s, s:i}", "state",
                            state == BP_OK ? "finished"
                            : stopped      ? "stopped"
                                           : "failed",
                            "code", (int)state);

    if (state != BP_OK && !stopped)
        set(end, "message", bp_json_string(bp_err_message()));
    if (reason)
        set(end, "reason", bp_json_string(reason));
    return end;
}

static void note_closed(bp_run *run, bp_err state)
{
    json_t *members = end_of(run, state);

    if (bp_run_event(run, "closed", members) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    json_decref(members);
}

static bp_err write_exit(bp_run *run, bp_err state)
{
    json_t *end = end_of(run, state);
    bp_err err;

    set(end, "time", bp_json_string(bp_clock_stamp().text));
    set(run->record, "exit", end);
    err = run_record_write(run->folder, run->record);
    run_progress_end(run->progress, end);
    return err;
}

/* Warns if there are fewer results than at the previous start: some were removed. */
static void warn_of_loss(const bp_run *run, const json_t *before)
{
    const json_t *last = last_start_of(before);
    int64_t had = json_integer_value(json_object_get(last, "progress")), missing = 0;

    if (run_journal_missing(&run->events, run->folder, &missing) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    if (last && (missing > 0 || bp_restart_progress(run->folder) < had))
        BP_WARN("run.lost_progress",
                "there is less in the run folder than when the last start began: at %s; what is "
                "missing is computed again",
                run->folder);
}

static bp_err check_record(const bp_run *run, const json_t *before, const run_pairs *pairs)
{
    bool lost = !before && bp_file_size(bp_path_in(run->folder, "events.jsonl").text) > 0;

    if (lost)
        return BP_FAIL(BP_ERR_FORMAT, "run.record_missing",
                       "run.json is missing, and with it what the run was made with: in %s; put it "
                       "back from a copy, or use another run.dir",
                       run->folder);
    return run_pairs_check(pairs, before, run->folder);
}

/* Compares with earlier starts before anything is written. */
static bp_err take_folder(bp_run *run, const bp_config *config, const bp_run_spec *spec,
                          json_t **before, run_pairs *pairs)
{
    const char *log_every;
    bp_err err = bp_dir_make(run->folder);

    if (err == BP_OK)
        err = run_lock_take(&run->lock, run->folder, spec->watch_seconds);
    bp_fence_add(bp_run_check_owner, run);
    if (err == BP_OK)
        err = run_record_read(run->folder, before);
    if (err == BP_OK)
        err = bp_run_pairs_read(pairs, run->folder);
    if (err == BP_OK)
        err = check_record(run, *before, pairs);
    if (err == BP_OK)
        err = run_compare(*before, pairs, config, spec, run->folder, &run->finished, &run->changes);
    if (err == BP_OK && !run->finished)
        err = bp_restart_check(*before, run->folder);
    if (err == BP_OK && !run->finished)
        err = bp_stop_request_check(run->folder);
    if (err == BP_OK)
        err = bp_run_check_owner(run);
    if (err == BP_OK && run->finished && spec->missing) {
        run->missing = spec->missing(spec->context);
        if (!run->missing)
            run->missing = run_missing_result(run->folder, *before);
    }
    run->finished = run->finished && !run->missing;
    run->resumed = *before != NULL;
    run->steps_before = run_steps(*before, pairs);
    log_every = bp_run_pairs_find(pairs, "train.log_every");
    run->log_every = !log_every ? 0 : strtoll(log_every, NULL, 10);
    return err;
}

/* The coordinator's part. */
static bp_err open_folder(bp_run *run, const bp_config *config, const bp_run_spec *spec,
                          const char *hosts)
{
    run_pairs pairs = {0};
    json_t *before = NULL;
    bp_err err;

    run->folder = bp_strdup(bp_run_keys_of(config)->dir);
    err = take_folder(run, config, spec, &before, &pairs);
    if (err == BP_OK)
        err = open_journals(run, spec);
    run->missing = NULL; /* may be of `before` */
    if (err == BP_OK && !run->finished)
        warn_of_loss(run, before);
    if (err == BP_OK)
        err = begin_record(run, config, spec, before, hosts, &pairs);
    if (err == BP_OK && run->finished)
        run_words_clear(run->folder); /* of a rank that was killed after the run's end */
    if (err == BP_OK && !run->finished) {
        run->progress = run_progress_open(run->folder, run->lock, run->record, before);
        err = note_opened(run);
    }
    if (err == BP_OK && !run->finished) {
        run->stop_request = bp_stop_request_new(run->folder, config);
        bp_stop_request_owner(run->stop_request, run_poll_owner, run);
    }
    bp_run_pairs_clear(&pairs);
    json_decref(before);
    return err;
}

static void run_free(bp_run **out)
{
    bp_run *run = *out;

    bp_stop_request_free(&run->stop_request);
    run_journal_close(&run->metrics);
    run_journal_close(&run->samples);
    run_journal_close(&run->events);
    run_journal_close(&run->tensorboard);
    json_decref(run->record);
    bp_free(run->changes);
    bp_free(run->config_text);
    bp_free(run->folder);
    bp_free(run);
    *out = NULL;
}

static void own(bp_run *run, const bp_config *config, int64_t lock_number)
{
    bp_watchdog_own(run->mesh, &(bp_watchdog_spec){.run_dir = bp_run_keys_of(config)->dir,
                                                   .lock_number = lock_number,
                                                   .still_owner = bp_run_still_owner,
                                                   .context = run});
    run->watched = true;
}

/* Facts of rank 0. */
typedef struct run_facts {
    int resumed, finished, start;
    int64_t lock_number;
    char token[BP_TOKEN_BYTES]; /* names the file that all ranks look for */
} run_facts;

static bp_err open_and_mark(bp_run *run, const bp_config *config, const bp_run_spec *spec,
                            const char *hosts, run_facts *facts)
{
    bp_err err = open_folder(run, config, spec, hosts);

    if (err != BP_OK)
        return err;
    facts->resumed = run->resumed;
    facts->finished = run->finished;
    facts->start = (int)bp_run_start_number(run);
    facts->lock_number = bp_watchdog_lock_number(bp_run_keys_of(config)->dir);
    own(run, config, facts->lock_number); /* hangs from now on are reported in the folder */
    return run_shared_mark(run->folder, facts->token);
}

/* Without this check, a folder that a node does not see would be found only at the first commit,
 * hundreds of steps later. */
static bp_err share_facts(bp_run *run, const bp_config *config, run_facts *facts)
{
    const bp_mesh *mesh = run->mesh;
    bp_err err;

    bp_bcast_bytes(facts, sizeof *facts, 0, mesh->world);
    run->resumed = facts->resumed != 0;
    run->finished = facts->finished != 0;
    if (!mesh->coordinates)
        own(run, config, facts->lock_number);
    err = run_shared_check(mesh->world, bp_run_keys_of(config)->dir, facts->token);
    if (err != BP_OK && mesh->coordinates && !run->finished) {
        note_closed(run, err);
        (void)write_exit(run, err);
    }
    return err;
}

bp_err bp_run_open(bp_run **out, const bp_mesh *mesh, const bp_config *config,
                   const bp_run_spec *spec)
{
    bp_run *run = bp_alloc("run", 1, sizeof *run);
    char host[RUN_HOST_BYTES] = "", message[BP_ERR_MESSAGE_BYTES];
    char *hosts = mesh->coordinates ? bp_alloc("run.hosts", mesh->size, RUN_HOST_BYTES) : NULL;
    run_facts facts = {0};
    bp_err err = BP_OK;

    bp_watchdog_start(mesh->world, bp_watchdog_seconds(config));
    run->mesh = mesh;
    run->metrics.fd = run->samples.fd = run->events.fd = run->tensorboard.fd = -1;
    run->for_tensorboard = spec->tensorboard;
    bp_host_name(host, sizeof host);
    BP_MPI_WAIT("gather", MPI_Gather(host, RUN_HOST_BYTES, MPI_CHAR, hosts, RUN_HOST_BYTES,
                                     MPI_CHAR, 0, mesh->world));
    if (mesh->coordinates)
        err = open_and_mark(run, config, spec, hosts, &facts);
    bp_free(hosts);
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        err = share_facts(run, config, &facts);
    if (err == BP_OK) {
        run->witnesses = run_words_begin(bp_run_keys_of(config)->dir, facts.start);
        run_start_opened();
        *out = run;
        return BP_OK;
    }
    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    run_progress_free(&run->progress);
    bp_watchdog_end(run->watched);
    if (mesh->coordinates)
        bp_log_close();
    if (run_lock_release(&run->lock) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_fence_remove(run);
    run_free(&run);
    bp_err_set_message(message);
    *out = NULL;
    return err;
}

/* ---- closing ---- */

/* A run that is no longer this job's is not written to. Journals are synced first: "finished" means
 * that all files are complete. */
static bp_err write_end(bp_run *run, bp_err state, const char *message)
{
    bp_err err = bp_run_check_owner(run), synced;

    if (err != BP_OK)
        return err;
    run_lock_free_space(run->lock);
    bp_err_set_message(message);
    if (!run->finished)
        note_closed(run, state);
    synced = bp_run_sync(run);
    if (synced == BP_OK)
        bp_err_set_message(message);
    err = write_exit(run, synced == BP_OK ? state : synced);
    return synced == BP_OK ? err : synced;
}

/* The failure that ended the job is reported; later failures to write are warnings. But if another
 * job has the run, that is the error: it explains missing files. */
static bp_err end_folder(bp_run *run, bp_err state)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    bp_fault_point("exit.agree");
    err = write_end(run, state, message);
    if (err != BP_OK && (state == BP_OK || run_lock_is_lost(run->lock)))
        return err;
    if (err != BP_OK)
        bp_warn_failure("the end of the job is not in its run folder: %s", bp_err_text());
    bp_err_set_message(message);
    return BP_OK;
}

bp_err bp_run_end(bp_run *run, bp_err exit_state)
{
    run->ended = true;
    run->phase = bp_heartbeat_phase(BP_PHASE_END);
    bp_err err =
        bp_agree(run->mesh->world, run->mesh->coordinates ? end_folder(run, exit_state) : BP_OK);
    return err != BP_OK ? err : exit_state;
}

static bp_err release_folder(bp_run *run, bp_err state)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    run_progress_free(&run->progress); /* it looks at the lock */
    bp_log_close();
    bp_watchdog_disown();
    err = run_lock_release(&run->lock);
    bp_fence_remove(run);
    if (err != BP_OK && state == BP_OK)
        return err;
    bp_err_set_message(message);
    return BP_OK;
}

bp_err bp_run_close(bp_run **run, bp_err exit_state)
{
    const bp_mesh *mesh = (*run)->mesh;
    bp_err err = (*run)->ended ? exit_state : bp_run_end(*run, exit_state);
    bp_err released = bp_agree(mesh->world, mesh->coordinates ? release_folder(*run, err) : BP_OK);

    bp_watchdog_end(true);
    if ((*run)->witnesses)
        run_words_end();
    (void)bp_heartbeat_phase((*run)->phase);
    run_free(run);
    return err != BP_OK ? err : released;
}

/* ---- questions and lines ---- */

void bp_run_end_reason(bp_run *run, const char *reason)
{
    run->end_reason = reason;
}

void bp_run_take_changes(const bp_run *run)
{
    if (run->changes)
        BP_WARN("run.other_bits", "the results have other bits from here on: %s", run->changes);
    if (run->changes && write_config(run) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
}

const char *bp_run_first_missing(const char *folder, const char *const *names, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        struct stat facts;

        if (names[k] &&
            (lstat(bp_path_in(folder, names[k]).text, &facts) != 0 || !S_ISREG(facts.st_mode)))
            return names[k];
    }
    return NULL;
}

void bp_run_add_result(bp_run *run, const char *path)
{
    json_t *results = json_object_get(run->record, "results"), *known;
    size_t k;

    if (!run->mesh->coordinates)
        return;
    if (!results)
        set(run->record, "results", results = json_array());
    json_array_foreach(results, k, known)
    {
        if (strcmp(json_string_value(known), path) == 0)
            return;
    }
    (void)json_array_append_new(results, bp_json_string(path));
}

void bp_run_say_missing(const char *folder, const char *name)
{
    bp_log("the run was finished, but this is gone and is made again: %s, in %s", name, folder);
}

bool bp_run_is_finished(const bp_run *run)
{
    return run->finished;
}

int64_t bp_run_start_number(const bp_run *run)
{
    return json_integer_value(json_object_get(run->record, "starts"));
}

int64_t bp_run_steps_before(const bp_run *run)
{
    return run->steps_before;
}

bool bp_run_is_resumed(const bp_run *run)
{
    return run->resumed;
}

bp_err bp_run_previous(MPI_Comm comm, const char *run_dir, const char *key, char **value)
{
    run_pairs pairs = {0};
    bp_err err = BP_OK;

    *value = NULL;
    if (bp_comm_is_root(comm)) {
        const char *found;

        err = bp_run_pairs_read(&pairs, run_dir);
        found = bp_run_pairs_find(&pairs, key);
        if (found)
            *value = bp_strdup(found);
        bp_run_pairs_clear(&pairs);
    }
    err = bp_agree(comm, err);
    if (err == BP_OK)
        bp_bcast_text(value, 0, comm);
    return err;
}
