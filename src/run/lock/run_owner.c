/* The owner of a run folder: its identity, and whether it is certainly alive or certainly dead. */
#include "base/process/clock.h"
#include "run/lock/process.h"
#include "run/lock/run_lock.h"
#include "run/run_fields.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SQUEUE_SECONDS 10.0

extern char **environ;

/* ---- this process ---- */

static void copy_env(char *out, size_t out_bytes, const char *name)
{
    const char *value = getenv(name);

    (void)snprintf(out, out_bytes, "%s", !value ? "" : value);
}

void run_owner_self(run_owner *out)
{
    const char *restart = getenv("SLURM_RESTART_COUNT");
    uint64_t bits[2];
    struct stat status;
    char state;

    *out = (run_owner){.pid = getpid()};
    BP_ASSERT(getrandom(bits, sizeof bits, 0) == (ssize_t)sizeof bits);
    (void)snprintf(out->token, sizeof out->token, "%016llx%016llx", (unsigned long long)bits[0],
                   (unsigned long long)bits[1]);
    if (gethostname(out->host, sizeof out->host - 1) != 0)
        out->host[0] = '\0';
    (void)process_read_stat(out->pid, &state, &out->start_ticks); /* or -1 */
    process_read(out->boot_id, sizeof out->boot_id, "/proc/sys/kernel/random/boot_id");
    out->boot_id[strcspn(out->boot_id, "\n")] = '\0';
    if (stat("/proc/self/ns/pid", &status) == 0)
        out->pid_namespace = (int64_t)status.st_ino;
    copy_env(out->slurm_job, sizeof out->slurm_job, "SLURM_JOB_ID");
    copy_env(out->slurm_cluster, sizeof out->slurm_cluster, "SLURM_CLUSTER_NAME");
    out->slurm_restart = !restart ? 0 : strtoll(restart, NULL, 10);
}

/* ---- as text ---- */

json_t *run_owner_json(const run_owner *h)
{
    return json_pack("{s:i, s:I, s:s, s:s, s:I, s:I, s:s, s:I, s:s, s:s, s:I, s:b}",
                     "format_version", 1, "epoch", (json_int_t)h->epoch, "token", h->token, "host",
                     h->host, "pid", (json_int_t)h->pid, "start_ticks", (json_int_t)h->start_ticks,
                     "boot_id", h->boot_id, "pid_namespace", (json_int_t)h->pid_namespace,
                     "slurm_job", h->slurm_job, "slurm_cluster", h->slurm_cluster, "slurm_restart",
                     (json_int_t)h->slurm_restart, "released", (int)h->released);
}

bp_err run_owner_parse(run_owner *out, const json_t *value, const char *path)
{
    const struct {
        const char *key;
        int64_t *to;
    } integers[] = {{"epoch", &out->epoch},
                    {"pid", &out->pid},
                    {"start_ticks", &out->start_ticks},
                    {"pid_namespace", &out->pid_namespace},
                    {"slurm_restart", &out->slurm_restart}};
    const struct {
        const char *key;
        char *to;
        size_t bytes;
    } texts[] = {{"token", out->token, sizeof out->token},
                 {"host", out->host, sizeof out->host},
                 {"boot_id", out->boot_id, sizeof out->boot_id},
                 {"slurm_job", out->slurm_job, sizeof out->slurm_job},
                 {"slurm_cluster", out->slurm_cluster, sizeof out->slurm_cluster}};
    const char *text;
    int64_t version;
    bp_err err = bp_json_get_int(value, "format_version", &version, path);

    *out = (run_owner){.epoch = 0};
    if (err == BP_OK && version != 1)
        err = BP_FAIL(BP_ERR_FORMAT, "lock.unknown_version",
                      "format_version %lld of a lock is unknown, this program knows 1: at %s",
                      (long long)version, path);
    for (size_t k = 0; k < sizeof integers / sizeof integers[0] && err == BP_OK; k++)
        err = bp_json_get_int(value, integers[k].key, integers[k].to, path);
    for (size_t k = 0; k < sizeof texts / sizeof texts[0] && err == BP_OK; k++) {
        err = bp_json_get_string(value, texts[k].key, &text, path);
        if (err == BP_OK)
            (void)snprintf(texts[k].to, texts[k].bytes, "%s", text);
    }
    if (err == BP_OK)
        err = bp_json_get_bool(value, "released", &out->released, path);
    return err;
}

void run_owner_text(char *out, size_t out_bytes, const run_owner *owner)
{
    (void)snprintf(out, out_bytes, "host %s, process %lld%s%s", owner->host, (long long)owner->pid,
                   owner->slurm_job[0] ? ", Slurm job " : "", owner->slurm_job);
}

/* ---- is an owner alive? ---- */

/* With the same running kernel and process numbers, /proc decides. A zombie no longer holds the
 * lock. */
static run_owner_state ask_kernel(const run_owner *owner)
{
    int64_t start_ticks;
    char state;

    if (process_read_stat(owner->pid, &state, &start_ticks)) {
        if (start_ticks != owner->start_ticks || state == 'Z' || state == 'X')
            return OWNER_DEAD;
        return OWNER_ALIVE;
    }
    return kill((pid_t)owner->pid, 0) != 0 && errno == ESRCH ? OWNER_DEAD : OWNER_UNKNOWN;
}

bool run_command(char *const argv[], char *out, size_t out_bytes, int *status, double seconds)
{
    posix_spawn_file_actions_t actions;
    double end = bp_clock_now() + seconds;
    size_t used = 0;
    int pipes[2];
    pid_t child;
    bool ended = false;

    if (pipe(pipes) != 0)
        return false;
    BP_CHECK(posix_spawn_file_actions_init(&actions) == 0);
    BP_CHECK(posix_spawn_file_actions_adddup2(&actions, pipes[1], 1) == 0);
    BP_CHECK(posix_spawn_file_actions_adddup2(&actions, pipes[1], 2) == 0);
    BP_CHECK(posix_spawn_file_actions_addclose(&actions, pipes[0]) == 0);
    int failed = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pipes[1]);
    while (failed == 0 && !ended && bp_clock_now() < end) {
        struct pollfd ready = {.fd = pipes[0], .events = POLLIN};
        char dropped[256];
        ssize_t got;

        if (poll(&ready, 1, 100) <= 0)
            continue;
        got = used < out_bytes - 1 ? read(pipes[0], out + used, out_bytes - 1 - used)
                                   : read(pipes[0], dropped, sizeof dropped);
        ended = got == 0 || (got < 0 && errno != EINTR);
        if (got > 0 && used < out_bytes - 1)
            used += (size_t)got;
    }
    out[used] = '\0';
    (void)close(pipes[0]);
    if (failed == 0 && !ended)
        (void)kill(child, SIGKILL);
    if (failed == 0 && waitpid(child, status, 0) != child)
        failed = 1;
    return failed == 0 && ended;
}

static bool has_ended(const char *state)
{
    static const char *const ended[] = {"COMPLETED", "CANCELLED", "FAILED",    "TIMEOUT",
                                        "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY",
                                        "DEADLINE",  "PENDING",   NULL};

    return is_among(state, ended);
}

/* Lines "JOB STATE REASON". A task of an array may have the array's number. Then squeue lists all
 * tasks, each with its own number. If the job has several lines, any live one counts. */
static run_queue find_job(run_queue_state *out, char *text, const char *job)
{
    size_t bytes = strlen(job);
    run_queue found = text[0] == '\0' ? RUN_QUEUE_GONE : RUN_QUEUE_UNKNOWN;

    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, job, bytes) != 0 || line[bytes] != ' ' ||
            (found == RUN_QUEUE_LISTED && !has_ended(out->state)))
            continue;
        found = RUN_QUEUE_LISTED;
        *out = (run_queue_state){.state = ""};
        (void)sscanf(line + bytes, " %31s %95[^\n]", out->state, out->reason);
    }
    return found;
}

run_queue run_slurm_ask(run_queue_state *out, const char *job, double seconds)
{
    char number[64], text[65536];
    char *argv[] = {"squeue", "-h", "-j", number, "-o", "%A %T %r", "-t", "all", NULL};
    int status;

    *out = (run_queue_state){.state = ""};
    if (job[0] == '\0' || job[strspn(job, "0123456789")] != '\0')
        return RUN_QUEUE_UNKNOWN;
    (void)snprintf(number, sizeof number, "%s", job);
    if (!run_command(argv, text, sizeof text, &status, seconds) || !WIFEXITED(status))
        return RUN_QUEUE_UNKNOWN;
    if (WEXITSTATUS(status) != 0)
        return strstr(text, "Invalid job id") ? RUN_QUEUE_GONE : RUN_QUEUE_UNKNOWN;
    return find_job(out, text, job);
}

/* squeue lists a job that is pending, running or ending, and for some minutes one that has ended. A
 * running job may have lost this process: its heartbeat decides. */
run_owner_state run_owner_check(const run_owner *owner, const run_owner *self)
{
    run_queue_state state;
    run_queue found;

    if (owner->released)
        return OWNER_DEAD;
    if (owner->boot_id[0] != '\0' && strcmp(owner->boot_id, self->boot_id) == 0 &&
        owner->pid_namespace == self->pid_namespace && owner->start_ticks >= 0)
        return ask_kernel(owner);
    if (strcmp(owner->slurm_cluster, self->slurm_cluster) != 0)
        return OWNER_UNKNOWN;
    if (owner->slurm_job[0] != '\0' && strcmp(owner->slurm_job, self->slurm_job) == 0)
        return self->slurm_restart > owner->slurm_restart
                   ? OWNER_DEAD /* requeued: Slurm first ended all its processes */
                   : OWNER_UNKNOWN;
    found = run_slurm_ask(&state, owner->slurm_job, SQUEUE_SECONDS);
    return found == RUN_QUEUE_GONE || (found == RUN_QUEUE_LISTED && has_ended(state.state))
               ? OWNER_DEAD
               : OWNER_UNKNOWN;
}
