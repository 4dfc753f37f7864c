/* bagpipe-data: tokenizers, corpora, and files to look at or to exchange. This file picks the tool.
 */
#include "base/files/hidden.h"
#include "base/log.h"
#include "base/process/launcher.h"
#include "base/process/signals.h"
#include "base/process/standard_output.h"
#include "mesh/mesh.h"
#include "tools.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const bp_tool *const TOOLS[] = {
    &bp_tool_tokenizer, &bp_tool_corpus,  &bp_tool_inspect, &bp_tool_verify, &bp_tool_table,
    &bp_tool_import,    &bp_tool_export,  &bp_tool_compare, &bp_tool_mix,    &bp_tool_vectors,
    &bp_tool_metrics,   &bp_tool_average, &bp_tool_cite,    &bp_tool_encode, &bp_tool_questions,
    &bp_tool_surprisal, &bp_tool_filter,  &bp_tool_overlap, &bp_tool_pii,    &bp_tool_card,
    &bp_tool_leakage,   &bp_tool_toxicity};
#define TOOL_COUNT (sizeof TOOLS / sizeof TOOLS[0])

static bp_err print_help(FILE *out, const bp_tool *tool)
{
    static const struct argp_option OPTIONS[] = {{"version", 0, NULL, 0, "print the version", 0},
                                                 {0}};
    static const bp_help_row STATUSES[] = {
        {"0", "done"},
        {"64 to 78", "it failed, for the reason that the tool's own help lists"},
        {0}};
    bp_help_row list[TOOL_COUNT + 1] = {{0}};
    const bp_help help = {
        .name = "bagpipe-data",
        .usage = "TOOL [ARGUMENT...]\nhelp TOOL",
        .summary = "makes tokenizers and corpora, and reads, checks and converts bagpipe's files",
        .list_head = "Tools:",
        .list = list,
        .options = OPTIONS,
        .examples = "  bagpipe-data tokenizer --size 8000 --out tokenizer.json train.txt\n"
                    "  bagpipe-data corpus --tokenizer tokenizer.json --out train.h5 train.txt\n"
                    "  bagpipe-data inspect train.h5\n"
                    "  bagpipe-data help corpus\n",
        .statuses = STATUSES};

    if (tool)
        return bp_help_print(out, &tool->help);
    for (size_t k = 0; k < TOOL_COUNT; k++)
        list[k] = (bp_help_row){TOOLS[k]->name, TOOLS[k]->help.summary};
    return bp_help_print(out, &help);
}

static const bp_tool *find_tool(const char *name)
{
    for (size_t k = 0; k < TOOL_COUNT; k++)
        if (strcmp(name, TOOLS[k]->name) == 0)
            return TOOLS[k];
    return NULL;
}

static bp_err no_tool(const char *name)
{
    static const char *const JOBS[] = {"pretrain", "finetune", "ensemble", "score",
                                       "generate", "explain",  "search",   "uncertainty",
                                       "bench",    "plot",     "status",   "doctor"};
    const char *names[TOOL_COUNT + 1] = {NULL};

    for (size_t k = 0; k < sizeof JOBS / sizeof JOBS[0]; k++)
        if (strcmp(name, JOBS[k]) == 0)
            return BP_FAIL(BP_ERR_USAGE, "command.unknown_tool",
                           "'%s' is a job: at the command line; it is bagpipe %s", name, name);
    for (size_t k = 0; k < TOOL_COUNT; k++)
        names[k] = TOOLS[k]->name;
    return BP_FAIL(BP_ERR_USAGE, "command.unknown_tool",
                   "there is no tool '%s': at the command line; the nearest is %s, see "
                   "bagpipe-data --help",
                   name, bp_nearest_word(name, names));
}

/* Requests of a command line other than work. */
typedef enum asked_for { ASKED_WORK, ASKED_HELP, ASKED_VERSION } asked_for;

/* *tool is NULL where none is named, or none of that name is there (*name). */
static asked_for read_words(const bp_tool **tool, const char **name, int argc, char **argv)
{
    bool help = argc > 1 && strcmp(argv[1], "help") == 0;

    *name = help ? (argc > 2 ? argv[2] : NULL) : argc > 1 ? argv[1] : NULL;
    if (*name && bp_help_is_asked(1, (char *[]){(char *)*name})) {
        help = true;
        *name = NULL;
    }
    *tool = *name ? find_tool(*name) : NULL;
    if (*name && strcmp(*name, "--version") == 0)
        return ASKED_VERSION;
    return help || (*tool && bp_help_is_asked(argc - 2, argv + 2)) ? ASKED_HELP : ASKED_WORK;
}

static bp_err run_tool(const bp_tool *tool, const char *name, int argc, char **argv)
{
    if (name && !tool)
        return no_tool(name);
    if (tool && argc > 2)
        return tool->run(argc - 1, argv + 1);
    if (bp_log_speaks())
        (void)print_help(stderr, tool);
    return BP_FAIL(BP_ERR_USAGE, "command.no_tool",
                   "%s named: at the command line; see the help above",
                   !tool ? "no tool was" : "neither file nor option was");
}

/* Help needs no MPI: it is there on a login node, and where MPI can't start. */
static bp_err answer(asked_for what, const bp_tool *tool, const char *name)
{
    bp_err err = BP_OK;

    bp_log_set_speaker(bp_launcher_find().first);
    if (what == ASKED_VERSION)
        printf("bagpipe-data %s\n", BAGPIPE_VERSION);
    else if (name && !tool)
        err = no_tool(name);
    else if (bp_log_speaks())
        err = print_help(stdout, tool);
    return err == BP_OK ? bp_stdout_flush() : err;
}

/* What the libraries open must not become standard input where that is closed: what takes its place
 * can't be read. */
static void hold_stdin(void)
{
    if (fcntl(STDIN_FILENO, F_GETFD) < 0)
        (void)open("/dev/null", O_WRONLY);
}

int main(int argc, char **argv)
{
    const bp_tool *tool;
    const char *name;
    asked_for what = read_words(&tool, &name, argc, argv);
    bp_err err;

    bp_err_set_program("bagpipe-data");
    hold_stdin();
    bp_stdout_init();
    if (what != ASKED_WORK) {
        err = answer(what, tool, name);
        if (err != BP_OK && bp_log_speaks())
            bp_err_print(err);
        return (int)err;
    }
    err = bp_mpi_start(&argc, &argv);
    bp_signals_init();
    bp_hidden_drafts();
    if (err == BP_OK)
        err = run_tool(tool, name, argc, argv);
    if (err == BP_OK)
        err = bp_stdout_flush();
    if (err != BP_OK && bp_log_speaks()) /* all ranks have it: one says it */
        bp_err_print(err);
    bp_mpi_finish();
    return (int)err;
}
