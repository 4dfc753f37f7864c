/* bagpipe-data: tokenizers, corpora, and files to look at or to exchange. This file picks the tool.
 */
#include "base/log.h"
#include "base/signals.h"
#include "mesh/mesh.h"
#include "tools.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    bp_err (*run)(int argc, char **argv);
    const char *help;
} TOOLS[] = {
    {"tokenizer", bp_tool_tokenizer, "train a tokenizer on text, or convert one"},
    {"corpus", bp_tool_corpus, "text to a compressed corpus (also under mpirun)"},
    {"inspect", bp_tool_inspect, "what a file holds"},
    {"verify", bp_tool_verify, "every checksum of a file or a checkpoint"},
    {"table", bp_tool_table, "rows of a file as CSV"},
    {"import", bp_tool_import, "a Hugging Face model to a checkpoint"},
    {"export", bp_tool_export, "a checkpoint to a Hugging Face model"},
    {"compare", bp_tool_compare, "two score folders: is one model better than the other?"},
};
#define TOOL_COUNT (sizeof TOOLS / sizeof TOOLS[0])

static void print_help(FILE *out)
{
    fprintf(out, "Usage: bagpipe-data TOOL [OPTION...]     (bagpipe-data TOOL --help)\n\n");
    for (size_t k = 0; k < TOOL_COUNT; k++)
        fprintf(out, "  %-10s %s\n", TOOLS[k].name, TOOLS[k].help);
}

static bp_err run_tool(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return BP_FAIL(BP_ERR_USAGE,
                       "no tool was named: at the command line; name one of those above");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(stdout);
        return BP_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("bagpipe-data %s\n", BAGPIPE_VERSION);
        return BP_OK;
    }
    for (size_t k = 0; k < TOOL_COUNT; k++)
        if (strcmp(argv[1], TOOLS[k].name) == 0)
            return TOOLS[k].run(argc - 1, argv + 1);
    return BP_FAIL(BP_ERR_USAGE,
                   "there is no tool '%s': at the command line; see bagpipe-data --help", argv[1]);
}

/* Did all get out? A reader that had enough (head) is no failure. */
static bp_err flush_output(void)
{
    errno = 0;
    if ((fflush(stdout) == 0 && !ferror(stdout)) || errno == EPIPE)
        return BP_OK;
    if (errno == 0)
        errno = EIO;
    return bp_fail_errno(BP_ERR_IO, "can't write", "standard output");
}

int main(int argc, char **argv)
{
    bp_err err = bp_mpi_start(&argc, &argv);

    bp_signals_init();
    if (err == BP_OK)
        err = run_tool(argc, argv);
    if (err == BP_OK)
        err = flush_output();
    if (err != BP_OK && bp_log_speaks()) /* all ranks have it: one says it */
        bp_err_print("bagpipe", err);
    bp_mpi_finish();
    return (int)err;
}
