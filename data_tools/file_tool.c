/* The command line of inspect, verify and table, and the kinds of their files. */
#include "file_tool.h"

#include "arguments.h"
#include "base/buffer.h"
#include "base/config/csv.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include "io/checkpoint/checkpoint.h"
#include "io/corpus/corpus_writer.h"
#include "mesh/mesh.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX    8
#define DATASETS_MAX 100000

/* ---- the command line ---- */

/* Each FILE in turn. A failure is reported at once if other files follow; the first failure is the
 * result. */
static bp_err run_each(const file_tool *tool, const tool_files *files, const file_options *options)
{
    bp_err first = BP_OK;
    char *message = NULL;

    for (int k = 0; tool->run_folders && k < files->count; k++)
        if (bp_path_is_dir(named_folder(files->list[k])))
            return tool->run_folders(files->list, files->count, options);
    if ((options->form || options->out) && !bp_path_exists(named_folder(files->list[0])))
        return BP_FAIL(BP_ERR_INPUT, "file.missing",
                       "there is no such file or folder: at %s; check the path", files->list[0]);
    if (options->form || options->out)
        return tool->run_form(files->list, files->count, options);
    for (int k = 0; k < files->count; k++) {
        bp_err err = tool->run(files->list[k], options);

        if (err == BP_OK)
            continue;
        if (first == BP_OK) {
            first = err;
            message = bp_strdup(bp_err_message());
        } else {
            bp_warn_failure("%s", bp_err_text());
        }
    }
    if (message)
        bp_err_set_message(message);
    bp_free(message);
    return first;
}

bp_err file_tool_run(const file_tool *tool, int argc, char **argv)
{
    file_options options = {.head = -1};
    const tool_value values[] = {{.option = "head", .number = &options.head, .high = INT64_MAX},
                                 {.option = "tokenizer", .text = &options.tokenizer},
                                 {.option = "form", .text = &options.form},
                                 {.option = "out", .text = &options.out},
                                 {.option = "figure", .text = &options.figure},
                                 {.option = "clean", .text = &options.clean},
                                 {0}};
    tool_files files;
    bp_err err = tool_parse(tool->tool, values, &files, argc, argv);

    if (err == BP_OK && files.count == 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.no_input",
                      "there is nothing to look at: at the command line; name a file");
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = run_each(tool, &files, &options);
    return bp_agree(MPI_COMM_WORLD, err);
}

/* ---- the kind of a path ---- */

const char *named_folder(const char *given)
{
    const char *equals = bp_path_exists(given) ? NULL : strchr(given, '=');

    while (equals && (equals == given || !bp_path_exists(equals + 1)))
        equals = strchr(equals + 1, '=');
    return equals ? equals + 1 : given;
}

bp_err check_names(const char *const *names, char *const *given, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        for (int64_t other = 0; other < k; other++)
            if (strcmp(names[k], names[other]) == 0)
                return BP_FAIL(BP_ERR_USAGE, "command.same_names",
                               "two columns would be called '%.100s': at %s and %s; give each a "
                               "name of its own, as NAME=RUN",
                               names[k], given[other], given[k]);
    return BP_OK;
}

bp_err path_kind_of(path_kind *kind, bp_user_block *block, const char *path)
{
    bp_err err;

    memset(block, 0, sizeof *block);
    if (bp_path_is_dir(path)) {
        *kind = bp_checkpoint_is_folder(path) ? PATH_CHECKPOINT : PATH_FOLDER;
        return BP_OK;
    }
    if (bp_has_suffix(path, ".json")) {
        *kind = PATH_JSON;
        return bp_path_exists(path) ? BP_OK
                                    : BP_FAIL(BP_ERR_INPUT, "file.missing",
                                              "there is no such file: at %s; check the path", path);
    }
    err = bp_user_block_read(block, path);
    if (err == BP_OK)
        *kind = block->kind[0] == '\0'                     ? PATH_FOREIGN
                : strcmp(block->kind, BP_CORPUS_KIND) == 0 ? PATH_CORPUS
                                                           : PATH_TABLE;
    return err;
}

/* ---- datasets ---- */

static bp_err walk_group(bp_h5 *h5, const char *group, int depth, char ***all, int64_t *found)
{
    char **names;
    int64_t count;
    bp_err err = bp_h5_names(h5, group, &names, &count);

    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        char *path = depth == 0 ? bp_strdup(names[k]) : bp_sprintf("%s/%s", group, names[k]);
        bool is_group = bp_h5_is_group(h5, path);

        if (is_group && depth + 1 < DEPTH_MAX)
            err = walk_group(h5, path, depth + 1, all, found);
        if (!is_group && *found == DATASETS_MAX)
            err = BP_FAIL(BP_ERR_FORMAT, "h5.too_many_datasets", "more than %d datasets: at %s",
                          DATASETS_MAX, path);
        if (is_group || err != BP_OK) {
            bp_free(path);
            continue;
        }
        if (*found % 16 == 0)
            *all = bp_realloc("tool.datasets", *all, *found + 16, sizeof **all);
        (*all)[(*found)++] = path;
    }
    bp_names_free(&names, count);
    return err;
}

bp_err list_datasets(bp_h5 *h5, char ***names, int64_t *count)
{
    bp_err err;

    *names = NULL;
    *count = 0;
    err = walk_group(h5, "/", 0, names, count);
    if (err != BP_OK) {
        bp_names_free(names, *count);
        *count = 0;
    }
    return err;
}

/* Would a terminal act on it? Control bytes, and U+0080..U+009F as UTF-8 has them. */
static void put_clean_to(FILE *out, const char *text, size_t limit, const char *kept)
{
    bp_buffer clean = {0};

    bp_printable_add(&clean, text, strnlen(text, limit), kept);
    (void)fwrite(clean.data ? clean.data : "", 1, clean.bytes, out);
    bp_buffer_clear(&clean);
}

void put_clean(const char *text, size_t limit, const char *kept)
{
    put_clean_to(stdout, text, limit, kept);
}

void put_csv(FILE *out, const char *text, size_t limit)
{
    size_t bytes = strnlen(text, limit);
    const char *guard = bp_csv_is_formula(text, bytes) ? "'" : "";

    if (!memchr(text, ',', bytes) && !memchr(text, '"', bytes) && !memchr(text, '\n', bytes) &&
        !memchr(text, '\r', bytes)) {
        fputs(guard, out);
        put_clean_to(out, text, bytes, "\t");
        return;
    }
    fprintf(out, "\"%s", guard);
    while (bytes > 0) {
        const char *quote = memchr(text, '"', bytes);
        size_t now = !quote ? bytes : (size_t)(quote - text) + 1;

        put_clean_to(out, text, now, "\t\r\n");
        if (quote)
            putc('"', out);
        text += now;
        bytes -= now;
    }
    putc('"', out);
}

void put_csv_real(FILE *out, double value)
{
    putc(',', out);
    if (isfinite(value))
        fprintf(out, "%.17g", value);
}

bp_err table_file_begin(table_file *file)
{
    *file = (table_file){.text = NULL};
    file->out = open_memstream(&file->text, &file->bytes);
    return file->out ? BP_OK : bp_fail_memory("a table", 1, 1);
}

bp_err table_file_save(table_file *file, const char *path)
{
    bp_err err = fclose(file->out) != 0 ? bp_fail_memory("a table", (int64_t)file->bytes, 1)
                                        : bp_file_write(path, file->text, file->bytes);

    free(file->text); /* open_memstream's */
    return err;
}

const char *shown_path(const char *path)
{
    static char places[4][4 * PATH_MAX + 1];
    static int next;
    char *out = places[next++ % 4], *clean = bp_printable(path);

    (void)snprintf(out, sizeof places[0], "%s", clean);
    bp_free(clean);
    return out;
}

/* UTF-8's continuation bytes have no width. */
int text_width(const char *text)
{
    int width = 0;

    for (const char *at = text; *at != '\0'; at++)
        width += ((unsigned char)*at & 0xc0) != 0x80;
    return width;
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
