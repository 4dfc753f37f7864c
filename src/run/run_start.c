/* A start before it holds the run folder: whether there is work, and the record of a failure (say,
 * a damaged corpus). */
#include "base/buffer.h"
#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "mesh/collective.h"
#include "run/lock/run_lock.h"
#include "run/run_compare.h"
#include "run/run_fields.h"
#include "run/run_folder.h"
#include "run/run_journal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_LIMIT ((int64_t)16 << 20)
#define LINE_LIMIT   4096

static bool has_opened;
static char request[BP_SHA256_HEX]; /* of bp_run_note_request; "" without a request */
static char request_dir[PATH_MAX];  /* the run folder of the request */

void run_start_opened(void)
{
    has_opened = true;
}

const char *run_start_request(const char *run_dir)
{
    return has_opened || strcmp(run_dir, request_dir) != 0 ? "" : request;
}

/* run.json; NULL if it is not a run folder of bagpipe. */
static json_t *read_record(const char *run_dir)
{
    const bp_path path = bp_path_in(run_dir, "run.json");
    json_t *record = NULL;

    if (bp_path_exists(path.text) &&
        bp_json_load_plain(&record, path.text, RECORD_LIMIT) == BP_OK &&
        !json_is_string(json_object_get(record, "job"))) {
        json_decref(record);
        record = NULL;
    }
    return record;
}

/* Checked without taking the lock: a start that is about to fail must not block one that works, nor
 * replace the dead owner that `bagpipe status` reports. */
static bool is_free(const char *run_dir)
{
    char *heartbeat = NULL;
    run_owner owner, self;
    bool is = false;

    bp_dir_refresh(bp_path_in(run_dir, "lock").text);
    if (run_lock_read(run_dir, &owner, &heartbeat) == BP_OK) {
        run_owner_self(&self);
        is = run_owner_check(&owner, &self) == OWNER_DEAD; /* released ones, too */
    }
    bp_free(heartbeat);
    return is;
}

/* The next owner removes half a line; until then nothing can be appended. */
static bool ends_whole(int fd)
{
    off_t end = lseek(fd, 0, SEEK_END);
    char last;

    return end == 0 || (end > 0 && pread(fd, &last, 1, end - 1) == 1 && last == '\n');
}

/* In one short write, which others' lines can't split: a job may take the folder meanwhile. */
static void add_line(const char *run_dir, bp_err code, const char *message)
{
    char *text;
    json_t *line;
    int fd;

    line = json_pack("{s:s, s:s, s:i, s:o}", "time", bp_clock_stamp().text, "event", "start_failed",
                     "code", (int)code, "message", bp_json_string(message));
    text = bp_json_line(line);
    if (strlen(text) < LINE_LIMIT && bp_plain_open(bp_path_in(run_dir, "events.jsonl").text,
                                                   O_RDWR | O_CREAT | O_APPEND, &fd) == BP_OK) {
        if (ends_whole(fd) && write(fd, text, strlen(text)) > 0)
            (void)fsync(fd); /* the failure is printed on the terminal, too */
        (void)close(fd);
    }
    json_decref(line);
    bp_free(text);
}

bool bp_run_has_work(MPI_Comm comm, const char *run_dir)
{
    bool has = bp_comm_is_root(comm);

    if (has) {
        json_t *record = read_record(run_dir);

        has = !record || (strcmp(end_state_of(record), "finished") != 0 && is_free(run_dir));
        json_decref(record);
    }
    return bp_all_max_int(has, comm) != 0;
}

/* ---- a finished run whose inputs are gone ---- */

static void add_given(void *context, const bp_option *option, const char *value)
{
    const struct asked {
        const bp_config *config;
        bp_buffer *text;
    } *asked = context;

    if (value && bp_config_is_given(asked->config, option->key) && !run_key_is_free(option->key))
        bp_buffer_printf(asked->text, "%s %s\n", option->key, value);
}

void bp_run_note_request(const char *job, const bp_config *config)
{
    bp_buffer text = {0};
    struct asked {
        const bp_config *config;
        bp_buffer *text;
    } asked = {config, &text};

    (void)snprintf(request_dir, sizeof request_dir, "%s", bp_run_keys_of(config)->dir);
    bp_buffer_printf(&text, "%s\n", job);
    bp_config_each(config, add_given, &asked);
    bp_sha256_of(text.data, text.bytes, request);
    bp_buffer_clear(&text);
}

const char *run_missing_result(const char *run_dir, const json_t *record)
{
    const json_t *name, *results = json_object_get(record, "results");
    size_t k;

    json_array_foreach((json_t *)results, k, name)
    {
        const char *path = json_string_value(name);

        if (path && !bp_path_exists(bp_path_in(run_dir, path).text))
            return path;
    }
    return NULL;
}

static bool is_whole(const char *run_dir, const json_t *record)
{
    return json_array_size(json_object_get(record, "results")) > 0 &&
           !run_missing_result(run_dir, record);
}

bool bp_run_needs_no_input(MPI_Comm comm, const char *run_dir)
{
    bool whole = false;

    if (bp_comm_is_root(comm)) {
        json_t *record = read_record(run_dir);

        whole = strcmp(end_state_of(record), "finished") == 0 && request[0] != '\0' &&
                says(record, "request", request) && is_whole(run_dir, record);
        json_decref(record);
    }
    return bp_all_max_int(whole, comm) != 0;
}

void bp_run_start_failed(const char *run_dir, bp_err code)
{
    char message[BP_ERR_MESSAGE_BYTES];
    json_t *record = NULL;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (!has_opened && code != BP_OK && code != BP_ERR_STOPPED && code != BP_ERR_BUSY)
        record = read_record(run_dir);
    if (record && is_free(run_dir))
        add_line(run_dir, code, message);
    json_decref(record);
    bp_err_set_message(message);
}

/* ---- folders that are obviously not a run's ---- */

/* A superuser could write there, under any path to them. */
static const char *const SYSTEM[] = {
    "/",      "/bin", "/boot",    "/dev",     "/etc",       "/home", "/lib",
    "/lib64", "/opt", "/proc",    "/root",    "/run",       "/sbin", "/sys",
    "/tmp",   "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/var",  "/var/tmp"};
/* Names that identify other kinds of folders. */
static const char *const OTHERS[] = {"manifest.json", "model.safetensors", ".git"};

static bool is_same(const char *one, const struct stat *other)
{
    struct stat status;

    return one && stat(one, &status) == 0 && status.st_dev == other->st_dev &&
           status.st_ino == other->st_ino;
}

static bool has_file(const char *folder, const char *name)
{
    return bp_path_exists(bp_path_in(folder, name).text);
}

void bp_run_check_place(bp_config *config)
{
    const char *run_dir = bp_run_keys_of(config)->dir, *what = NULL;
    struct stat status;

    if (!run_dir || stat(run_dir, &status) != 0)
        return;
    for (size_t k = 0; !what && k < sizeof SYSTEM / sizeof SYSTEM[0]; k++)
        if (is_same(SYSTEM[k], &status))
            what = k == 0 ? "the root of the file system" : "a folder of the system";
    if (!what && is_same(getenv("HOME"), &status))
        what = "your home folder";
    for (size_t k = 0; !what && k < sizeof OTHERS / sizeof OTHERS[0]; k++)
        if (has_file(run_dir, OTHERS[k]) && !has_file(run_dir, "run.json"))
            what = k == 0 ? "a checkpoint" : k == 1 ? "a model" : "a checkout of sources";
    if (what)
        bp_config_fault(config, "run.bad_folder",
                        "run.dir = %s is %s: at run.dir; name a folder of the run's own", run_dir,
                        what);
}
