/* Last words: a rank that detects a bug or an MPI failure ends the whole job at once. Then ranks
 * agree on nothing and run.json is not written; the rank's last line goes into the run folder. So
 * does the end as the batch script knows it, unlike the ranks: a failed node, the time limit. */
#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "run/lock/run_lock.h"
#include "run/status/run_progress.h"
#include "run/status/run_status_priv.h"
#include "run/watchdog/backtraces.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME          "last_words.txt"
#define RANK          "status"   /* who has left a line: a rank, before its own exit status, */
#define LAUNCHER      "launcher" /* or the batch script, before the launcher's */
#define SLURM_SECONDS 5.0
#define LIMIT         ((int64_t)1 << 20)
#define PATH_BYTES    4096

static char kept_path[PATH_BYTES];
static int kept_start;
static atomic_bool keeps; /* set after both: the watchdog's thread, or a helper, may have a line */

/* Allocates nothing and never waits, since the program may be ending. One write, which others'
 * writes can't split. */
static void append(const char *path, int64_t start, const char *who, int status, const char *line)
{
    char text[BP_ERR_LINE_BYTES + 96];
    struct stat kind;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    int bytes;

    bytes = snprintf(text, sizeof text, "%s start %lld %s %d: %s\n", bp_clock_stamp().text,
                     (long long)start, who, status, line);
    if (fd >= 0 && fstat(fd, &kind) == 0 && S_ISREG(kind.st_mode) && bytes > 0 &&
        (size_t)bytes < sizeof text && write(fd, text, (size_t)bytes) != (ssize_t)bytes)
        (void)dprintf(STDERR_FILENO,
                      "bagpipe: warning: no space for this line: at %s [file.no_space]\n", path);
    if (fd >= 0)
        (void)close(fd);
}

void run_words_keep(int status, const char *line)
{
    if (atomic_load(&keeps))
        append(kept_path, kept_start, RANK, status, line);
}

bool run_words_begin(const char *folder, int start)
{
    int bytes;

    if (atomic_load(&keeps))
        return false;
    bytes = snprintf(kept_path, sizeof kept_path, "%s/" NAME, folder);
    kept_start = start;
    if (bytes < 0 || (size_t)bytes >= sizeof kept_path)
        return false; /* too long to be of use */
    atomic_store(&keeps, true);
    bp_err_set_witness(run_words_keep);
    return true;
}

void run_words_end(void)
{
    bp_err_set_witness(NULL);
    atomic_store(&keeps, false);
}

void run_words_add(const char *folder, int64_t start, int status, const char *cause)
{
    append(bp_path_in(folder, NAME).text, start, LAUNCHER, status, cause);
}

/* The files that fatal signals have left; bp_names_free(). */
static int64_t list_signals(const char *folder, char ***paths)
{
    const bp_path backtraces = bp_path_in(folder, BP_BACKTRACES_FOLDER);
    int64_t count = 0, found = 0;

    *paths = NULL;
    if (bp_path_is_dir(backtraces.text))
        (void)bp_dir_list(backtraces.text, paths, &count);
    for (int64_t k = 0; k < count; k++) {
        char *name = (*paths)[k];

        if (bp_backtraces_is_signal_file(name))
            (*paths)[found++] = bp_path_join(backtraces.text, name);
        bp_free(name);
    }
    return found;
}

/* Lines have the number of their start: old lines are ignored. The backtrace of a fatal signal is
 * kept, renamed like any other. */
void run_words_clear(const char *folder)
{
    char **signals;
    int64_t count = list_signals(folder, &signals);

    (void)unlink(bp_path_in(folder, NAME).text);
    for (int64_t k = 0; k < count; k++) {
        const char *name = bp_path_base(signals[k]) + strlen("signal-");
        char *to = bp_sprintf("%s/" BP_BACKTRACES_FOLDER "/%s", folder, name);

        (void)rename(signals[k], to);
        bp_free(to);
    }
    bp_names_free(&signals, count);
}

/* ---- for readers ---- */

json_t *run_words_of(int code, const char *message)
{
    const char *state = code > 128 ? "dead" : code == BP_ERR_STOPPED ? "stopped" : "failed";
    json_t *end = json_pack("{s:s, s:i}", "state", state, "code", code);

    if (message[0] != '\0')
        set(end, "message", bp_json_string(message));
    else if (code > 128)
        set(end, "message",
            json_sprintf("a rank was killed by signal %d (%s)", code - 128, strsignal(code - 128)));
    return end;
}

typedef struct last_word {
    int code;
    char message[BP_ERR_LINE_BYTES], time[32];
} last_word;

/* The first line that `who` has left of the start. */
static bool find_word(last_word *out, const char *text, int64_t start, const char *who)
{
    for (const char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        char its_who[16];
        long long of = 0;
        int at = 0;

        if (sscanf(line, "%31s start %lld %15s %d:%n", out->time, &of, its_who, &out->code, &at) ==
                4 &&
            at > 0 && line + at <= end && of == start && strcmp(its_who, who) == 0) {
            at += line[at] == ' ';
            (void)snprintf(out->message, sizeof out->message, "%.*s", (int)(end - line) - at,
                           line + at);
            return true;
        }
    }
    return false;
}

static char *read_text(const char *path)
{
    char *text = NULL;
    size_t bytes;

    if (bp_path_exists(path))
        (void)bp_file_read(path, LIMIT, &text, &bytes); /* NULL where it can't be read */
    return text;
}

/* By "bagpipe: error[139]: killed by signal 11 ...", the head of the file that a fatal signal
 * leaves, until the next start renames it. */
static json_t *read_signal(const char *folder)
{
    char **signals;
    int64_t count = list_signals(folder, &signals);
    json_t *out = NULL;

    for (int64_t k = 0; k < count && !out; k++) {
        char *text = read_text(signals[k]);
        int code, at = 0;

        if (text)
            text[strcspn(text, "\n")] = '\0';
        if (text && sscanf(text, "bagpipe: error[%d]: %n", &code, &at) == 1 && at > 0)
            out = run_words_of(code, text + at);
        bp_free(text);
    }
    bp_names_free(&signals, count);
    return out;
}

static json_t *end_in(const json_t *object)
{
    const char *state = end_state_of(object);

    return state[0] == '\0' || strcmp(state, "running") == 0
               ? NULL
               : json_copy(json_object_get(object, "exit"));
}

json_t *run_words_of_end(const char *folder, const json_t *record, const json_t *progress)
{
    int64_t start = json_integer_value(json_object_get(record, "starts"));
    char *text = read_text(bp_path_in(folder, NAME).text);
    last_word word = {.time = ""};
    json_t *end = end_in(record);

    if (!end && json_integer_value(json_object_get(progress, "start")) == start)
        end = end_in(progress);
    if (!end && find_word(&word, text, start, RANK))
        end = run_words_of(word.code, word.message);
    if (!end)
        end = read_signal(folder);
    if (find_word(&word, text, start, LAUNCHER)) {
        if (!end)
            end = run_words_of(word.code, word.message);
        set(end, "cause", bp_json_string(word.message));
    }
    if (word.time[0] != '\0' && !has(end, "time"))
        set(end, "time", bp_json_string(word.time));
    bp_free(text);
    return end;
}

/* "NODE_FAIL": the last state of the job that is not this start's. Without accounting squeue knows
 * it for some minutes, but of a job that was queued again. */
static void add_state(bp_buffer *out, char *job)
{
    const char *own = getenv("SLURM_JOB_ID");
    char *argv[] = {"sacct", "-n", "-X", "-P", "-D", "-j", job, "-o", "State", NULL};
    char text[4096], *found = NULL;
    run_queue_state queue;
    int status;

    if (run_command(argv, text, sizeof text, &status, SLURM_SECONDS) && status == 0)
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            if (strncmp(line, "RUNNING", 7) != 0 && strncmp(line, "PENDING", 7) != 0)
                found = line;
    if (found)
        bp_buffer_printf(out, "Slurm says %s", found);
    else if ((!own || strcmp(own, job) != 0) &&
             run_slurm_ask(&queue, job, SLURM_SECONDS) == RUN_QUEUE_LISTED)
        bp_buffer_printf(out, "Slurm says %s (%s)", queue.state, queue.reason);
}

/* "node n2 is down*" of those that it ran on, which sinfo prints once a partition. */
static void add_nodes(bp_buffer *out, const json_t *hosts)
{
    bp_buffer list = {0};
    char text[4096], node[128], state[64], last[128] = "";
    const char *host;
    json_t *ranks;
    int status;

    json_object_foreach((json_t *)hosts, host, ranks)
        bp_buffer_printf(&list, "%s%.*s", list.bytes > 0 ? "," : "", (int)strcspn(host, "."), host);
    char *argv[] = {"sinfo", "-h", "-N", "-n", list.data, "-o", "%N %T", NULL};

    if (list.bytes > 0 && run_command(argv, text, sizeof text, &status, SLURM_SECONDS) &&
        status == 0)
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            if (sscanf(line, "%127s %63s", node, state) == 2 && strcmp(node, last) != 0 &&
                (strstr(state, "down") || strstr(state, "fail") || strchr(state, '*'))) {
                bp_buffer_printf(out, "%snode %s is %s", out->bytes > 0 ? ", " : "", node, state);
                (void)snprintf(last, sizeof last, "%s", node);
            }
    bp_buffer_clear(&list);
}

json_t *run_words_ask_slurm(const json_t *record)
{
    const char *job = text_of(last_start_of(record), "slurm_job");
    char number[64];
    bp_buffer text = {0};
    json_t *out = json_pack("{s:s}", "state", "dead");

    if (job[0] != '\0' && job[strspn(job, "0123456789")] == '\0') {
        (void)snprintf(number, sizeof number, "%s", job);
        add_state(&text, number);
        add_nodes(&text, json_object_get(record, "hosts"));
    }
    if (text.bytes > 0)
        set(out, "message", bp_json_string(text.data));
    bp_buffer_clear(&text);
    return out;
}

void run_words_text(char *out, size_t out_bytes, const json_t *end)
{
    const char *state = text_of(end, "state"), *message = text_of(end, "message");
    const char *reason = text_of(end, "reason"), *cause = text_of(end, "cause");
    bool known = message[0] != '\0' || cause[0] != '\0';

    if (strcmp(message, cause) == 0)
        cause = "";
    if (strcmp(state, "failed") == 0)
        (void)snprintf(out, out_bytes, "failed with status %lld", integer_of(end, "code"));
    else if (strcmp(state, "dead") == 0)
        (void)snprintf(out, out_bytes, "died%s", known ? "" : " without a word, as by kill -9");
    else
        (void)snprintf(out, out_bytes, "%s%s%s%s",
                       strcmp(state, "stopped") == 0 ? "was stopped" : "was complete",
                       reason[0] != '\0' ? " (" : "", reason, reason[0] != '\0' ? ")" : "");
    (void)snprintf(out + strlen(out), out_bytes - strlen(out), "%s%s%s%s", known ? ": " : "",
                   message, message[0] != '\0' && cause[0] != '\0' ? "; " : "", cause);
}
