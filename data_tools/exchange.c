#include "exchange.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/mesh.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PROGRESS_SECONDS 5.0

typedef struct parsing {
    const exchange_tool *tool;
    exchange_arguments arguments;
    const char *out;
    int count; /* of things named */
    bp_err err;
} parsing;

/* ---- progress ---- */

void exchange_show_progress(exchange_progress *progress, int64_t done_bytes, int64_t total_bytes)
{
    double now = bp_clock_now(), share = (double)done_bytes / (double)total_bytes;
    char left[32];

    if (progress->began == 0)
        progress->began = progress->shown = now;
    if (now - progress->shown < PROGRESS_SECONDS || share <= 0)
        return;
    progress->shown = now;
    bp_clock_duration(left, sizeof left, (now - progress->began) * (1 - share) / share);
    bp_log_progress("%s: %.0f %% of %.1f GB  %s left", progress->what, 100 * share,
                    1e-9 * (double)total_bytes, left);
}

/* ---- the command line ---- */

/* "2GB": a number above 0 and a unit, decimal as Hugging Face has them, or binary. */
static bool parse_size(const char *text, int64_t *bytes)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } UNITS[] = {{"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"KiB", (int64_t)1 << 10},
                 {"MiB", (int64_t)1 << 20},
                 {"GiB", (int64_t)1 << 30}};
    char *end;

    errno = 0;
    *bytes = strtoll(text, &end, 10);
    if (end == text || text[0] < '0' || text[0] > '9' || errno != 0 || *bytes <= 0)
        return false;
    for (size_t k = 0; k < sizeof UNITS / sizeof UNITS[0]; k++)
        if (strcmp(end, UNITS[k].name) == 0)
            return !__builtin_mul_overflow(*bytes, UNITS[k].bytes, bytes);
    return false;
}

static bool parse_dtype(const char *text, const char **dtype)
{
    static const char *const NAMES[][2] = {{"f32", "F32"}, {"f16", "F16"}, {"bf16", "BF16"}};

    for (int k = 0; k < 3; k++)
        if (strcmp(text, NAMES[k][0]) == 0) {
            *dtype = NAMES[k][1];
            return true;
        }
    return false;
}

/* The first fault stays. */
static error_t parse_write(parsing *p, int key, const char *value)
{
    bool good = key == EXCHANGE_DTYPE ? parse_dtype(value, &p->arguments.dtype)
                                      : parse_size(value, &p->arguments.shard_bytes);

    if (!good && p->err == BP_OK)
        p->err =
            key == EXCHANGE_DTYPE
                ? BP_FAIL(BP_ERR_USAGE,
                          "--dtype takes f32, f16 or bf16, not '%.40s': at the command line", value)
                : BP_FAIL(BP_ERR_USAGE,
                          "--shard-size takes a size such as 2GB, not '%.40s': at the command "
                          "line; give a whole number with KB, MB, GB, KiB, MiB or GiB",
                          value);
    return 0;
}

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
    case EXCHANGE_DTYPE:
    case EXCHANGE_SHARD_SIZE:
        return parse_write(p, key, value);
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
    parsing p = {.tool = tool, .arguments.dtype = "F32"};
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
