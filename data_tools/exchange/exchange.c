/* Shared by import and export: the command line, checks of the output, progress. */
#include "exchange.h"

#include "arguments.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "io/gguf/gguf.h"
#include "mesh/mesh.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PROGRESS_SECONDS 5.0

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

/* --form and --type. */
static bp_err take_form(exchange_arguments *arguments, const char *form, const char *type,
                        bool of_folder)
{
    static const struct {
        const char *name;
        int type;
    } TYPES[] = {
        {"f32", BP_GGUF_F32}, {"f16", BP_GGUF_F16}, {"bf16", BP_GGUF_BF16}, {"q8_0", BP_GGUF_Q8_0}};

    arguments->gguf = form && strcmp(form, "gguf") == 0;
    arguments->type = type ? -1 : BP_GGUF_F16;
    if (form && !arguments->gguf && strcmp(form, "huggingface") != 0)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_form",
                       "--form takes huggingface or gguf, not '%.40s': at the command line", form);
    for (size_t k = 0; type && k < sizeof TYPES / sizeof TYPES[0]; k++)
        if (strcmp(type, TYPES[k].name) == 0)
            arguments->type = TYPES[k].type;
    if (arguments->type < 0)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_dtype",
                       "--type takes f32, f16, bf16 or q8_0, not '%.40s': at the command line",
                       type);
    if (arguments->gguf ? of_folder : type != NULL)
        return BP_FAIL(BP_ERR_USAGE, "command.exclusive",
                       "--type is of --form gguf, --dtype and --shard-size are of folders: at the "
                       "command line; leave one out");
    return BP_OK;
}

static bp_err check(const bp_tool *tool, const tool_files *files, exchange_arguments *arguments,
                    const char *out)
{
    struct stat status;
    size_t length;

    if (files->count != 1 || !out || out[0] == '\0')
        return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                       "it takes %s: at the command line; see %s --help", tool->help.usage,
                       tool->help.name);
    if (arguments->tokenizer && arguments->no_tokenizer)
        return BP_FAIL(
            BP_ERR_USAGE, "command.exclusive",
            "--tokenizer and --no-tokenizer exclude each other: at the command line; choose one");
    arguments->from = files->list[0];
    for (length = strlen(out); length > 1 && out[length - 1] == '/';)
        length--;
    arguments->out = bp_sprintf("%.*s", (int)length, out);
    if (lstat(arguments->out, &status) == 0)
        return BP_FAIL(BP_ERR_CREATE, "file.in_the_way",
                       "something is there already: at %s; move it away, or give another --out",
                       arguments->out);
    return BP_OK;
}

bp_err exchange_run(const exchange_tool *tool, int argc, char **argv)
{
    exchange_arguments arguments = {.dtype = "F32"};
    const char *out = NULL, *dtype = NULL, *size = NULL, *form = NULL, *type = NULL;
    const tool_value values[] = {{.option = "out", .text = &out},
                                 {.option = "tokenizer", .text = &arguments.tokenizer},
                                 {.option = "no-tokenizer", .flag = &arguments.no_tokenizer},
                                 {.option = "list", .flag = &arguments.list},
                                 {.option = "dtype", .text = &dtype},
                                 {.option = "shard-size", .text = &size},
                                 {.option = "form", .text = &form},
                                 {.option = "type", .text = &type},
                                 {0}};
    tool_files files;
    bp_err err = tool_parse(tool->tool, values, &files, argc, argv);

    if (err == BP_OK && dtype && !parse_dtype(dtype, &arguments.dtype))
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_dtype",
                      "--dtype takes f32, f16 or bf16, not '%.40s': at the command line", dtype);
    if (err == BP_OK && size && !parse_size(size, &arguments.shard_bytes))
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_size",
                      "--shard-size takes a size such as 2GB, not '%.40s': at the command line; "
                      "give a whole number with KB, MB, GB, KiB, MiB or GiB",
                      size);
    if (err == BP_OK)
        err = take_form(&arguments, form, type, dtype || size);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        err = check(tool->tool, &files, &arguments, out);
        if (err == BP_OK)
            err = tool->run(&arguments);
    }
    bp_free(arguments.out);
    return bp_agree(MPI_COMM_WORLD, err);
}
