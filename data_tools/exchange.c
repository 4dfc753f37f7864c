#include "exchange.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/mesh.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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
    if (p->arguments.out == NULL)
        return bp_fail_memory("a file name", (int64_t)length, 1);
    if (lstat(p->arguments.out, &status) == 0)
        return BP_FAIL(BP_ERR_CREATE,
                       "something is there already: at %s; move it away, or give another --out",
                       p->arguments.out);
    return BP_OK;
}

/* ---- what a killed import or export left ---- */

/* ".tmp-NAME-TOKEN", and nothing of another output, such as NAME-more. */
static bool is_leftover_of(const char *base, const char *name)
{
    size_t bytes = strlen(base);
    const char *token = name + strlen(".tmp-") + bytes + 1;

    return strncmp(name, ".tmp-", 5) == 0 && strncmp(name + 5, base, bytes) == 0 &&
           name[5 + bytes] == '-' && strlen(token) == BP_TOKEN_BYTES - 1 &&
           strspn(token, "0123456789abcdef") == BP_TOKEN_BYTES - 1;
}

static void remove_leftovers(const char *parent, const char *base)
{
    char **names;
    int64_t count;

    if (bp_dir_list(parent, &names, &count) != BP_OK)
        return;
    for (int64_t k = 0; k < count; k++) {
        char *path = is_leftover_of(base, names[k]) ? bp_path_join(parent, names[k]) : NULL;

        if (path == NULL)
            continue;
        if (bp_dir_remove(path) == BP_OK)
            bp_log("removed %s, which a killed command left", path);
        else
            bp_warn("what a killed command left stays: %s", bp_err_message());
        bp_free(path);
    }
    bp_names_free(&names, count);
}

/* 0: it is this process's until it closes *fd; else errno: EWOULDBLOCK another's, ESTALE the other
 * has just removed it, or why there can be none. */
static int lock(const char *path, int *fd)
{
    struct stat status;
    int why = 0;

    *fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (*fd < 0)
        return errno;
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0)
        why = errno;
    else if (fstat(*fd, &status) != 0 || status.st_nlink == 0)
        why = ESTALE;
    if (why != 0)
        (void)close(*fd);
    return why;
}

/* A checkpoint folder of a run has its own lock, and its job removes what is left there. */
static bool is_of_a_run(const char *parent)
{
    char *real = realpath(parent, NULL);
    bool is = real != NULL && strcmp(bp_path_base(real), "checkpoints") == 0;

    free(real); /* not ours */
    return is;
}

/* Run the tool, alone with this output: then what lies there under a hidden name is of the dead.
 * Without locks in this folder it runs as well, and nothing is removed. */
static bp_err run_alone(const exchange_tool *tool, const exchange_arguments *arguments)
{
    const char *base = bp_path_base(arguments->out);
    char *parent = base > arguments->out
                       ? bp_sprintf("%.*s", (int)(base - arguments->out), arguments->out)
                       : bp_strdup(".");
    char *path = parent == NULL ? NULL : bp_sprintf("%s/.tmp-%s.lock", parent, base);
    int fd = -1, why;
    bp_err err;

    if (path == NULL) {
        bp_free(parent);
        return bp_fail_memory("a file name", (int64_t)strlen(arguments->out), 1);
    }
    why = is_of_a_run(parent) ? ENOLCK : lock(path, &fd);
    if (why == EWOULDBLOCK || why == ESTALE) {
        err = BP_FAIL(BP_ERR_CREATE,
                      "another command is writing it: at %s; let that end, or give another --out",
                      arguments->out);
    } else {
        if (why == 0)
            remove_leftovers(parent, base);
        err = tool->run(arguments);
    }
    if (why == 0) {
        (void)unlink(path);
        (void)close(fd); /* nothing was written */
    }
    bp_free(path);
    bp_free(parent);
    return err;
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
            err = run_alone(tool, &p.arguments);
    }
    bp_free(p.arguments.out);
    return bp_agree(MPI_COMM_WORLD, err);
}
