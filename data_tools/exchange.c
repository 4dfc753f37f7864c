#include "exchange.h"

#include "base/mem.h"
#include "mesh/mesh.h"

#include <argp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct parsing {
    const exchange_tool *tool;
    exchange_arguments arguments;
    const char *out;
    int count; /* of things named */
    bp_err err;
} parsing;

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    parsing *p = state->input;

    switch (key) {
    case 'o':
        p->out = value;
        return 0;
    case EXCHANGE_TOKENIZER:
        p->arguments.tokenizer = value;
        return 0;
    case EXCHANGE_NO_TOKENIZER:
        p->arguments.no_tokenizer = true;
        return 0;
    case ARGP_KEY_ARG:
        p->arguments.from = value;
        p->count++;
        return 0;
    case ARGP_KEY_ERROR:
        if (p->err == BP_OK)
            p->err =
                BP_FAIL(BP_ERR_USAGE, "'%s' is not understood: at the command line; see %s --help",
                        state->argv[state->next - 1], p->tool->tool->help.name);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static bp_err check(parsing *p)
{
    struct stat status;
    size_t length;

    if (p->err != BP_OK)
        return p->err;
    if (p->count != 1 || p->out == NULL || p->out[0] == '\0')
        return BP_FAIL(BP_ERR_USAGE, "it takes %s: at the command line; see %s --help",
                       p->tool->tool->help.usage, p->tool->tool->help.name);
    if (p->arguments.tokenizer != NULL && p->arguments.no_tokenizer)
        return BP_FAIL(
            BP_ERR_USAGE,
            "--tokenizer and --no-tokenizer exclude each other: at the command line; choose one");
    for (length = strlen(p->out); length > 1 && p->out[length - 1] == '/';)
        length--;
    p->arguments.out = bp_sprintf("%.*s", (int)length, p->out);
    if (lstat(p->arguments.out, &status) == 0)
        return BP_FAIL(BP_ERR_CREATE,
                       "something is there already: at %s; move it away, or give another --out",
                       p->arguments.out);
    return BP_OK;
}

bp_err exchange_run(const exchange_tool *tool, int argc, char **argv)
{
    const struct argp parser = {
        tool->tool->help.options, parse_option, NULL, NULL, NULL, NULL, NULL};
    parsing p = {.tool = tool};
    bp_err err = BP_OK;

    if (argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &p) !=
            0 &&
        p.err == BP_OK)
        p.err = BP_FAIL(BP_ERR_USAGE, "the command line is not understood: at %s; see %s --help",
                        tool->tool->name, tool->tool->help.name);
    if (bp_comm_is_root(MPI_COMM_WORLD)) {
        err = check(&p);
        if (err == BP_OK)
            err = tool->run(&p.arguments);
    }
    bp_free(p.arguments.out);
    return bp_agree(MPI_COMM_WORLD, err);
}
