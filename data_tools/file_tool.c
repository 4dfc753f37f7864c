/* The command line of inspect, verify and table, and what they look at. */
#include "file_tool.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/corpus/corpus_writer.h"
#include "mesh/mesh.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX    8
#define DATASETS_MAX 100000

/* ---- the command line ---- */

typedef struct file_arguments {
    const bp_tool *tool;
    file_options options;
    char **files;
    int file_count;
    bp_err err;
} file_arguments;

static error_t parse_head(file_arguments *arguments, const char *text)
{
    char *end;

    errno = 0;
    arguments->options.head = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || arguments->options.head < 0)
        arguments->err = BP_FAIL(BP_ERR_USAGE, "'%s' is not a number of rows: at --head", text);
    return 0;
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    file_arguments *arguments = state->input;

    switch (key) {
    case FILE_TOOL_HEAD:
        return parse_head(arguments, value);
    case FILE_TOOL_TOKENIZER:
        arguments->options.tokenizer = value;
        return 0;
    case ARGP_KEY_ARGS:
        arguments->files = state->argv + state->next;
        arguments->file_count = state->argc - state->next;
        return 0;
    case ARGP_KEY_ERROR:
        if (arguments->err == BP_OK)
            arguments->err =
                BP_FAIL(BP_ERR_USAGE,
                        "'%s' is not understood: at the command line; see bagpipe-data %s --help",
                        state->argv[state->next - 1], arguments->tool->name);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Each FILE in turn; what fails is told at once where others follow, and the first failure is the
 * verdict. */
static bp_err run_each(const file_tool *tool, const file_arguments *arguments)
{
    bp_err first = BP_OK;
    char *message = NULL;

    for (int k = 0; tool->run_folders && k < arguments->file_count; k++)
        if (bp_path_is_dir(arguments->files[k]))
            return tool->run_folders(arguments->files, arguments->file_count, &arguments->options);
    for (int k = 0; k < arguments->file_count; k++) {
        bp_err err = tool->run(arguments->files[k], &arguments->options);
        if (err == BP_OK)
            continue;
        if (first == BP_OK) {
            first = err;
            message = bp_strdup(bp_err_message());
        } else {
            bp_warn("%s", bp_err_message());
        }
    }
    if (message != NULL)
        bp_err_set_message(message);
    bp_free(message);
    return first;
}

bp_err file_tool_run(const file_tool *tool, int argc, char **argv)
{
    const struct argp parser = {
        tool->tool->help.options, parse_option, NULL, NULL, NULL, NULL, NULL};
    file_arguments arguments = {.tool = tool->tool, .options = {.head = -1}};

    if (argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL,
                   &arguments) != 0 &&
        arguments.err == BP_OK)
        arguments.err =
            BP_FAIL(BP_ERR_USAGE, "the command line is not understood: at %s; see %s --help",
                    tool->tool->name, tool->tool->help.name);
    if (arguments.err == BP_OK && arguments.file_count == 0)
        arguments.err =
            BP_FAIL(BP_ERR_USAGE, "there is nothing to look at: at the command line; name a file");
    if (arguments.err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        arguments.err = run_each(tool, &arguments);
    return bp_agree(MPI_COMM_WORLD, arguments.err);
}

/* ---- what a path names ---- */

static bool is_json(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot != NULL && strcmp(dot, ".json") == 0;
}

bp_err path_kind_of(path_kind *kind, bp_user_block *block, const char *path)
{
    bp_err err;

    memset(block, 0, sizeof *block);
    if (bp_path_is_dir(path)) {
        *kind = bp_checkpoint_is_folder(path) ? PATH_CHECKPOINT : PATH_FOLDER;
        return BP_OK;
    }
    if (is_json(path)) {
        *kind = PATH_JSON;
        return bp_path_exists(path)
                   ? BP_OK
                   : BP_FAIL(BP_ERR_INPUT, "there is no such file: at %s; check the path", path);
    }
    err = bp_user_block_read(block, path);
    if (err == BP_OK)
        *kind = block->kind[0] == '\0'                     ? PATH_FOREIGN
                : strcmp(block->kind, BP_CORPUS_KIND) == 0 ? PATH_CORPUS
                                                           : PATH_TABLE;
    return err;
}

/* ---- datasets ---- */

typedef struct dataset_list {
    char **names;
    int64_t count, room;
} dataset_list;

static bp_err add_dataset(dataset_list *list, const char *name)
{
    if (list->count == DATASETS_MAX)
        return BP_FAIL(BP_ERR_FORMAT, "more than %d datasets: at %s", DATASETS_MAX, name);
    if (list->count == list->room) {
        int64_t room = list->room == 0 ? 16 : 2 * list->room;
        char **names = bp_realloc("tool.datasets", list->names, room, sizeof *names);
        list->names = names;
        list->room = room;
    }
    list->names[list->count] = bp_strdup(name);
    list->count++;
    return BP_OK;
}

static bp_err walk_group(bp_h5 *h5, const char *group, int depth, dataset_list *list)
{
    char **names;
    int64_t count;
    bp_err err = bp_h5_names(h5, group, &names, &count);

    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        char *path = depth == 0 ? bp_strdup(names[k]) : bp_sprintf("%s/%s", group, names[k]);
        if (!bp_h5_is_group(h5, path))
            err = add_dataset(list, path);
        else if (depth + 1 < DEPTH_MAX)
            err = walk_group(h5, path, depth + 1, list);
        bp_free(path);
    }
    bp_names_free(&names, count);
    return err;
}

bp_err list_datasets(bp_h5 *h5, char ***names, int64_t *count)
{
    dataset_list list = {NULL, 0, 0};
    bp_err err = walk_group(h5, "/", 0, &list);

    if (err != BP_OK) {
        bp_names_free(&list.names, list.count);
        list.count = 0;
    }
    *names = list.names;
    *count = list.count;
    return err;
}

/* Would a terminal act on it? Control bytes, and U+0080..U+009F as UTF-8 has them. */
static bool is_control(const unsigned char *text, size_t bytes, size_t k)
{
    if (text[k] < 0x20 || text[k] == 0x7f)
        return true;
    if (text[k] == 0xc2)
        return k + 1 < bytes && text[k + 1] >= 0x80 && text[k + 1] < 0xa0;
    return k > 0 && text[k - 1] == 0xc2 && text[k] >= 0x80 && text[k] < 0xa0;
}

static void put_clean_to(FILE *out, const char *text, size_t limit, const char *kept)
{
    const unsigned char *data = (const unsigned char *)text;
    size_t bytes = strnlen(text, limit);

    for (size_t k = 0; k < bytes; k++) {
        if (is_control(data, bytes, k) && strchr(kept, text[k]) == NULL)
            fprintf(out, "\\x%02X", data[k]);
        else
            putc(text[k], out);
    }
}

void put_clean(const char *text, size_t limit, const char *kept)
{
    put_clean_to(stdout, text, limit, kept);
}

void put_csv(FILE *out, const char *text, size_t limit)
{
    size_t bytes = strnlen(text, limit);

    if (memchr(text, ',', bytes) == NULL && memchr(text, '"', bytes) == NULL &&
        memchr(text, '\n', bytes) == NULL && memchr(text, '\r', bytes) == NULL) {
        put_clean_to(out, text, bytes, "\t");
        return;
    }
    putc('"', out);
    while (bytes > 0) {
        const char *quote = memchr(text, '"', bytes);
        size_t now = quote == NULL ? bytes : (size_t)(quote - text) + 1;

        put_clean_to(out, text, now, "\t\r\n");
        if (quote != NULL)
            putc('"', out);
        text += now;
        bytes -= now;
    }
    putc('"', out);
}

const char *grouped(int64_t value)
{
    static char places[8][32];
    static int next;
    char digits[24];
    char *out = places[next++ % 8];
    int count = snprintf(digits, sizeof digits, "%" PRId64, value), at = 0;

    for (int k = 0; k < count; k++) {
        out[at++] = digits[k];
        if ((count - 1 - k) % 3 == 0 && k < count - 1 && digits[k] != '-')
            out[at++] = ',';
    }
    out[at] = '\0';
    return out;
}
