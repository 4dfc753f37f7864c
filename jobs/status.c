/* bagpipe status: what runs are doing, for people and scripts; on a login node too: no MPI. */
#include "run/status/run_status.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/process/standard_output.h"
#include "help.h"
#include "job.h"

#include <stdio.h>
#include <string.h>

#define STATUS_INDENT 13 /* of its texts */

static const struct argp_option OPTIONS[] = {
    {"json", 0, NULL, 0, "print an object with all that is known; an array for several runs", 0},
    {0}};

static const bp_help_row STATUSES[] = {{"0", "done, whatever the state"},
                                       {"64", "wrong command line"},
                                       {"65", "run.json is damaged"},
                                       {"66", "no run is there"},
                                       {0}};

const bp_help bp_status_help = {
    .name = "bagpipe status",
    .usage = "RUN... [--json]",
    .summary = "prints what runs are doing, and what to do next",
    .text = "RUN is a run folder. For each one it prints the state, progress, time left, the last "
            "checkpoint, and restarts with the time they cost. It needs no MPI, takes no lock and "
            "writes nothing: it may be called at any time, on any machine that sees the folder; "
            "under Slurm it asks squeue. Among several names, those that are not runs are ignored "
            "and counted.\n"
            "States: running; starting; finished; stopped, and by what (the same command resumes); "
            "failed; queued, Slurm starts its job again; dead, its job is gone; silent, its host "
            "cannot be asked from here, and its counter, which rises every 10 s, stands still.",
    .options = OPTIONS,
    .examples = "  bagpipe status runs/*\n"
                "  bagpipe status runs/small --json\n",
    .statuses = STATUSES};

static bp_err print(char *text)
{
    (void)fputs(text, stdout);
    bp_free(text);
    return bp_stdout_flush();
}

static bp_err print_lines(const json_t *status, bool first)
{
    bp_buffer text = {0}, shown = {0};

    if (!first)
        bp_buffer_printf(&text, "\n");
    bp_run_status_text(&text, status);
    text.data[text.bytes - 1] = '\0'; /* it ends with a line break */
    bp_printable_add(&shown, text.data, text.bytes - 1, "\n");
    bp_print_lines(shown.data, STATUS_INDENT);
    bp_buffer_clear(&shown);
    bp_buffer_clear(&text);
    return bp_stdout_flush();
}

/* The requested runs, and those found. */
typedef struct asked {
    bool json;
    int runs, missing; /* names; those that are not runs */
    json_t *found;
    bp_run_status_job *jobs;
} asked;

static bp_err show(asked *self, const char *folder)
{
    json_t *status;
    bp_err err = bp_run_status_read(&status, folder, BP_RUN_STATUS_WATCH_SECONDS, self->jobs);

    if (err == BP_OK) {
        if (!self->json)
            err = print_lines(status, json_array_size(self->found) == 0);
        (void)json_array_append_new(self->found, status);
    }
    return err;
}

/* Each run is reported, even if another one fails; the first failure is the command's. Among
 * several names, as a shell's * gives them, some may not be runs. */
static bp_err show_all(asked *self, int count, char **names)
{
    bp_err first = BP_OK;

    for (int k = 0; k < count; k++) {
        bp_err err = names[k][0] == '-' ? BP_OK : show(self, names[k]);

        if (err == BP_ERR_INPUT && self->runs > 1) {
            self->missing++;
            continue;
        }
        if (err != BP_OK)
            bp_err_print(err);
        first = first == BP_OK ? err : first;
    }
    if (self->json && json_array_size(self->found) > 0) {
        bp_err err =
            print(bp_json_text(self->runs > 1 ? self->found : json_array_get(self->found, 0)));

        if (err != BP_OK)
            bp_err_print(err);
        first = first == BP_OK ? err : first;
    }
    if (self->missing > 0 && self->missing == self->runs) {
        first = BP_FAIL(BP_ERR_INPUT, "run.missing",
                        "none of the %d names is a run: at the command line; name the run.dir of "
                        "a job",
                        self->runs);
        bp_err_print(first);
    } else if (self->missing > 0) {
        fprintf(stderr, "bagpipe: %d of the names %s\n", self->missing,
                self->missing == 1 ? "is not a run" : "are not runs");
    }
    return first;
}

static bp_run_status_job *list_jobs(void)
{
    int64_t count = 0;

    while (bp_jobs[count])
        count++;
    bp_run_status_job *rows = bp_alloc("status.jobs", count + 1, sizeof *rows);
    for (int64_t k = 0; k < count; k++) {
        rows[k] = bp_jobs[k]->status;
        rows[k].job = bp_jobs[k]->name;
    }
    return rows;
}

int bp_status_command(int argc, char **argv)
{
    asked self = {.json = false};
    bp_err err = BP_OK;

    for (int k = 0; k < argc && err == BP_OK; k++) {
        if (strcmp(argv[k], "--json") == 0)
            self.json = true;
        else if (argv[k][0] == '-')
            err = BP_FAIL(BP_ERR_USAGE, "command.unknown_option",
                          "there is no option '%s': at the command line; see bagpipe status --help",
                          argv[k]);
        else
            self.runs++;
    }
    if (err == BP_OK && self.runs == 0) {
        (void)bp_help_print(stderr, &bp_status_help);
        err = BP_FAIL(BP_ERR_USAGE, "command.no_run",
                      "no run was named: at the command line; use bagpipe status RUN");
    }
    if (err == BP_OK && !(self.found = json_array()))
        err = bp_fail_memory("the status of runs", 1, 1);
    if (err != BP_OK) {
        bp_err_print(err);
        return (int)err;
    }
    self.jobs = list_jobs();
    err = show_all(&self, argc, argv);
    bp_free(self.jobs);
    json_decref(self.found);
    return (int)err;
}
