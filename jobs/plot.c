/* bagpipe plot: trainings as a page or a picture; on a login node too: no MPI. */
#include "job/report/training.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "base/suffix.h"
#include "help.h"
#include "job.h"

#include <stdio.h>
#include <string.h>

#define HERE "plot.html"

enum { KEY_X = 256 };

static const struct argp_option OPTIONS[] = {
    {"out", 'o', "FILE", 0,
     "write FILE: a page (.html) with plots over steps, tokens and hours, figures, and the keys "
     "that differ; or only the plots (.svg, .png). Default: RUN/index.html of one run, " HERE
     " of several",
     0},
    {"x", KEY_X, "AXIS", 0, "the axis of a picture: steps|tokens|hours (default steps)", 0},
    {0}};

static const bp_help_row STATUSES[] = {{"0", "done"},
                                       {"64", "wrong command line"},
                                       {"65", "a RUN is not a training, or no step is logged yet"},
                                       {"66", "a RUN is missing, or gnuplot for a picture"},
                                       {"73, 74, 77", "FILE cannot be written"},
                                       {0}};

const bp_help bp_plot_help = {
    .name = "bagpipe plot",
    .usage = "RUN... [--out FILE] [--x AXIS]",
    .summary = "draws trainings over one another, as a page or a picture",
    .text = "RUN is the run folder of pretrain or ensemble; its job may be running. The plots show "
            "loss, validation loss, learning rate, gradient norm and tokens a second. The command "
            "needs no MPI, takes no lock and writes only FILE. Plots need gnuplot; a page without "
            "it has only the tables.",
    .options = OPTIONS,
    .examples = "  bagpipe plot runs/small\n"
                "  bagpipe plot runs/small runs/large --out both.html\n"
                "  bagpipe plot runs/small --out loss.png --x hours\n",
    .statuses = STATUSES};

typedef struct plot_call {
    const char *out, *x;
    char **runs;
    int run_count;
} plot_call;

static error_t take_option(int key, char *value, struct argp_state *state)
{
    plot_call *call = state->input;

    switch (key) {
    case 'o':
        call->out = value;
        return 0;
    case KEY_X:
        call->x = value;
        return 0;
    case ARGP_KEY_ARGS:
        call->runs = state->argv + state->next;
        call->run_count = state->argc - state->next;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bp_err check(const plot_call *call)
{
    if (call->run_count == 0) {
        (void)bp_help_print(stderr, &bp_plot_help);
        return BP_FAIL(BP_ERR_USAGE, "command.no_run",
                       "no run was named: at the command line; use bagpipe plot RUN");
    }
    if (call->out && !bp_has_suffix(call->out, ".html") && !bp_has_suffix(call->out, ".svg") &&
        !bp_has_suffix(call->out, ".png"))
        return BP_FAIL(BP_ERR_USAGE, "command.bad_ending",
                       "--out %s has another ending than .html, .svg and .png: at the command "
                       "line; the ending names the kind of file",
                       call->out);
    if (call->x && strcmp(call->x, "steps") != 0 && strcmp(call->x, "tokens") != 0 &&
        strcmp(call->x, "hours") != 0)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_axis",
                       "--x %s is not an axis: at the command line; use steps, tokens or hours",
                       call->x);
    if (call->x && (!call->out || bp_has_suffix(call->out, ".html")))
        return BP_FAIL(BP_ERR_USAGE, "command.bad_axis",
                       "--x is for a picture, and a page has all three axes: at the command line; "
                       "leave it out, or use --out FILE.svg");
    return BP_OK;
}

static bp_err plot(const plot_call *call)
{
    const char *const *runs = (const char *const *)call->runs;
    char *page = call->out              ? bp_strdup(call->out)
                 : call->run_count == 1 ? bp_path_join(runs[0], "index.html")
                                        : bp_strdup(HERE);
    char *notice = NULL;
    bp_err err;

    if (bp_has_suffix(page, ".html"))
        err = bp_training_page(page, runs, call->run_count, &notice);
    else
        err = bp_training_picture(page, runs, call->run_count, call->x ? call->x : "steps",
                                  bp_has_suffix(page, ".png"));
    if (err == BP_OK && notice)
        fprintf(stderr, "bagpipe: the page has tables and no plots: %s\n", notice);
    if (err == BP_OK) {
        char *shown = bp_printable(page);

        printf("wrote %s\n", shown);
        bp_free(shown);
    }
    bp_free(notice);
    bp_free(page);
    return err;
}

int bp_plot_command(int argc, char **argv)
{
    const struct argp parser = {OPTIONS, take_option, NULL, NULL, NULL, NULL, NULL};
    plot_call call = {.out = NULL};
    bp_err err = BP_OK;

    if (argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &call) !=
        0)
        err = BP_FAIL(BP_ERR_USAGE, "command.not_understood",
                      "the command line is not understood: at bagpipe plot; see bagpipe plot "
                      "--help");
    else
        err = check(&call);
    if (err == BP_OK)
        err = plot(&call);
    if (err != BP_OK)
        bp_err_print(err);
    return (int)err;
}
