/* bagpipe status: what runs are doing, for people and scripts; on a login node too: no MPI. */
#include "coordinator/run_status.h"

#include "base/fs.h"
#include "base/mem.h"
#include "job.h"
#include "score/parts.h"

#include <stdio.h>
#include <string.h>

static void print_help(void)
{
    printf("Usage: bagpipe status RUN [RUN ...] [--json]\n"
           "Tells what the jobs of run folders are doing: state, progress, time left, the last\n"
           "commit, restarts and the time they cost, and what to do next. It needs no MPI, takes\n"
           "no lock and writes nothing, so it may be asked at any time and from any machine that\n"
           "sees the folder.\n\n"
           "  --json   one object a run, with everything that is known\n\n"
           "States: running, starting, finished, stopped (in time: the same command goes on),\n"
           "failed, dead (its job is gone), silent (its host can't be asked from here, and its\n"
           "counter, raised every 10 s, stands still).\n"
           "Exit status: 0 whatever the state, 66 no run there, 65 a damaged run.json, 64 the\n"
           "command line.\n");
}

/* Units that are done while a job scores; all of them where it has finished. */
static void add_units(json_t *status, const char *folder)
{
    const char *state = json_string_value(json_object_get(status, "state"));
    int64_t units = json_integer_value(json_object_get(status, "units")), done = 0;
    char *parts = bp_path_join(folder, "score/parts");

    if (units > 0) {
        if (strcmp(state, "finished") == 0)
            done = units;
        else if (parts && bp_path_is_dir(parts) && bp_parts_survey(parts, units, &done) != BP_OK)
            done = 0; /* it was just removed, or can't be read from here */
        (void)json_object_set_new(status, "units_done", json_integer(done));
        (void)json_object_set_new(status, "progress", json_real((double)done / (double)units));
    }
    bp_free(parts);
}

static bp_err print(const json_t *status, bool json)
{
    bp_buffer text = {0};
    char *whole;

    if (json) {
        whole = bp_json_text(status);
    } else {
        bp_run_status_text(&text, status);
        whole = bp_buffer_take(&text);
    }
    if (!whole)
        return bp_fail_memory("a status", 1, 1);
    bool printed = fputs(whole, stdout) >= 0 && fflush(stdout) == 0;
    bp_free(whole);
    return printed ? BP_OK : bp_fail_errno(BP_ERR_IO, "can't write", "standard output");
}

static bp_err show(const char *folder, bool json)
{
    json_t *status;
    bp_err err = bp_run_status_read(&status, folder, BP_RUN_STATUS_WATCH_SECONDS);

    if (err == BP_OK) {
        if (json_object_get(status, "units"))
            add_units(status, folder);
        err = print(status, json);
    }
    json_decref(status);
    return err;
}

/* Each run is told, whatever another one is like; the first failure is the command's. */
static bp_err show_all(int count, char **runs, bool json)
{
    bp_err first = BP_OK;
    int shown = 0;

    for (int k = 0; k < count; k++) {
        bp_err err;

        if (runs[k][0] == '-')
            continue;
        if (shown++ > 0 && !json)
            printf("\n");
        err = show(runs[k], json);
        if (err != BP_OK)
            bp_err_print("bagpipe", err);
        first = first == BP_OK ? err : first;
    }
    return first;
}

int bp_status_command(int argc, char **argv)
{
    bool json = false;
    int runs = 0;
    bp_err err = BP_OK;

    for (int k = 0; k < argc && err == BP_OK; k++) {
        if (strcmp(argv[k], "--help") == 0 || strcmp(argv[k], "-h") == 0) {
            print_help();
            return 0;
        }
        if (strcmp(argv[k], "--json") == 0)
            json = true;
        else if (argv[k][0] == '-')
            err = BP_FAIL(BP_ERR_USAGE,
                          "there is no option '%s': at the command line; see bagpipe status --help",
                          argv[k]);
        else
            runs++;
    }
    if (err == BP_OK && runs == 0)
        err =
            BP_FAIL(BP_ERR_USAGE, "no run was named: at the command line; use bagpipe status RUN");
    if (err != BP_OK) {
        bp_err_print("bagpipe", err);
        return (int)err;
    }
    return (int)show_all(argc, argv, json);
}
