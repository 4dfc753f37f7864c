/* RUN/suspects.json: {"n2": {"count": 2, "last": TIME, "reasons": [...]}} of hosts. */
#include "coordinator/watchdog_priv.h"

#include "base/buffer.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "coordinator/stacks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FORMAT       "bagpipe suspects"
#define FILE_LIMIT   ((int64_t)1 << 20)
#define REASONS_KEPT 10
#define STRIKES      2
#define PATH_BYTES   4096

static char home[PATH_BYTES]; /* the run folder; "": none, or its name is too long */

static char *path_of(const char *run_dir)
{
    return bp_path_join(run_dir, "suspects.json");
}

/* A file that is damaged is begun anew: it only counts. */
static json_t *load(const char *path)
{
    json_t *value = NULL;

    if (bp_path_exists(path) && bp_json_load(&value, path, FILE_LIMIT) == BP_OK &&
        json_is_object(json_object_get(value, "hosts")))
        return value;
    json_decref(value);
    return json_pack("{s:s, s:i, s:{}}", "format", FORMAT, "format_version", 1, "hosts");
}

static void add_strike(json_t *hosts, const char *host, const char *reason)
{
    json_t *entry = json_object_get(hosts, host), *reasons = json_object_get(entry, "reasons");
    json_int_t count = json_integer_value(json_object_get(entry, "count"));
    char now[32];

    bp_clock_stamp(now, sizeof now);
    reasons = json_is_array(reasons) ? json_incref(reasons) : json_array();
    (void)json_array_append_new(reasons, json_string(reason));
    while (json_array_size(reasons) > REASONS_KEPT)
        (void)json_array_remove(reasons, 0);
    (void)json_object_set_new(
        hosts, host,
        json_pack("{s:I, s:s, s:o}", "count", count + 1, "last", now, "reasons", reasons));
}

void bp_watchdog_suspect(const char *host, const char *reason)
{
    static pthread_mutex_t one_at_a_time =
        PTHREAD_MUTEX_INITIALIZER; /* the main thread, a reporter */
    char *path;
    json_t *value;
    bp_err err;

    if (home[0] == '\0')
        return;
    (void)pthread_mutex_lock(&one_at_a_time);
    path = path_of(home);
    value = path == NULL ? NULL : load(path);
    err = value == NULL ? bp_fail_memory("suspects.json", 1, 1) : BP_OK;
    if (err == BP_OK) {
        add_strike(json_object_get(value, "hosts"), host, reason);
        err = bp_json_save(path, value);
    }
    if (err != BP_OK)
        bp_warn("%s", bp_err_message());
    json_decref(value);
    bp_free(path);
    (void)pthread_mutex_unlock(&one_at_a_time);
}

/* A stack that a fatal signal left counts once: then it gets the name of any other. */
static void count_signal(const char *folder, const char *name)
{
    char host[WIRE_HOST_BYTES], *from = bp_path_join(folder, name), *text = NULL;
    char *to = bp_path_join(folder, name + strlen("signal-"));
    size_t bytes;

    if (from != NULL && to != NULL && bp_file_read(from, FILE_LIMIT, &text, &bytes) == BP_OK &&
        rename(from, to) == 0 && bp_stacks_signal_host(text, host, sizeof host))
        bp_watchdog_suspect(host, "killed by a fatal signal");
    bp_free(text);
    bp_free(to);
    bp_free(from);
}

static void count_signals(const char *run_dir)
{
    char *folder = bp_path_join(run_dir, BP_STACKS_FOLDER), **names = NULL;
    int64_t count = 0;

    if (folder != NULL && bp_path_is_dir(folder) && bp_dir_list(folder, &names, &count) == BP_OK)
        for (int64_t k = 0; k < count; k++)
            if (bp_stacks_is_signal_file(names[k]))
                count_signal(folder, names[k]);
    bp_names_free(&names, count);
    bp_free(folder);
}

static void say(const char *path, json_t *hosts)
{
    bp_buffer list = {0}, counts = {0};
    const char *host;
    json_t *entry;

    json_object_foreach(hosts, host, entry)
    {
        json_int_t strikes = json_integer_value(json_object_get(entry, "count"));

        if (strikes < STRIKES)
            continue;
        bp_buffer_printf(&counts, "%s%s %lld times", counts.bytes > 0 ? ", " : "", host,
                         (long long)strikes);
        bp_buffer_printf(&list, "%s%s", list.bytes > 0 ? "," : "", host);
    }
    if (list.bytes > 0 && !list.failed && !counts.failed)
        bp_warn("ranks of this run stood still or were killed on %s: at %s; sbatch takes "
                "--exclude=%s",
                counts.data, path, list.data);
    bp_buffer_clear(&list);
    bp_buffer_clear(&counts);
}

void watchdog_suspects_begin(const char *run_dir, bool counts)
{
    int bytes = snprintf(home, sizeof home, "%s", run_dir);

    if (bytes < 0 || (size_t)bytes >= sizeof home)
        home[0] = '\0';
    if (counts)
        count_signals(run_dir);
}

void watchdog_suspects_say(void)
{
    char *path = home[0] == '\0' ? NULL : path_of(home);

    if (path != NULL && bp_path_exists(path)) {
        json_t *value = load(path);

        say(path, json_object_get(value, "hosts"));
        json_decref(value);
    }
    bp_free(path);
}
