/* Files of answers: lines, labels, numbers, tags. */
#include "metrics_files.h"

#include "base/buffer.h"
#include "base/config/decimal.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "job/report/outputs.h"
#include "text/documents/conll.h"
#include "text/unicode/characters.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((int64_t)1 << 32)

void answer_file_clear(answer_file *file)
{
    bp_free(file->inside);
    bp_free(file->text);
    bp_free(file->lines);
    bp_free(file->numbers);
    for (int k = 0; k < BP_CERTAINTIES; k++)
        bp_free(file->certainty[k]);
    *file = (answer_file){0};
}

static bp_err split_lines(answer_file *file, char *text, size_t bytes, bool texts)
{
    char *end = text + bytes;
    int64_t count = 0;

    for (char *at = text; at < end; at++)
        count += *at == '\n';
    file->lines = bp_try_alloc("tool.lines", count + 1, sizeof *file->lines);
    if (!file->lines)
        return bp_fail_memory("lines", count + 1, sizeof *file->lines);
    for (char *at = text; at < end;) {
        char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        size_t length = (size_t)(stop - at);

        if (length > 0 && at[length - 1] == '\r')
            length--;
        at[length] = '\0';
        bool valid = bp_text_is_utf8(at, length);

        if (!valid || (!texts && strlen(at) != length))
            return BP_FAIL(BP_ERR_FORMAT, "metrics.not_utf8",
                           "a line %s: at %s, line %" PRId64 "; convert the file",
                           valid ? "has U+0000, which only texts may have" : "is not valid UTF-8",
                           file->path, file->count + 1);
        if (!texts && memchr(at, '\r', length))
            return BP_FAIL(BP_ERR_FORMAT, "metrics.carriage_return",
                           "a line has a carriage return, which ends lines only before a newline: "
                           "at %s, line %" PRId64 "; convert the file",
                           file->path, file->count + 1);
        file->lines[file->count++] = (bp_line){at, length};
        at = stop + 1;
    }
    return BP_OK;
}

/* How sure the model is of text `number`. */
static void take_certainty(answer_file *file, const json_t *line, int64_t number)
{
    for (int k = 0; k < BP_CERTAINTIES; k++) {
        double value = bp_output_certainty(line, k);

        if (number == 0 ? isnan(value) : !file->certainty[k])
            continue;
        if ((number & (number - 1)) == 0)
            file->certainty[k] =
                bp_realloc("tool.metrics", file->certainty[k], 2 * number + 1, sizeof(double));
        file->certainty[k][number] = isnan(value) ? -INFINITY : value;
    }
}

/* Lines of outputs.jsonl that become lines of text. */
typedef struct taken_outputs {
    answer_file *file;
    bp_buffer lines;
    int64_t next, left_out; /* the index of the next prompt; prompts without a text */
} taken_outputs;

/* The first text of each prompt. */
static bp_err take_output(void *context, const json_t *line, int64_t number)
{
    taken_outputs *to = context;
    const char *path = to->file->path;
    bp_output one;
    bp_err err = bp_output_read(&one, line, to->next - 1, path, number);

    if (err != BP_OK || one.index < to->next)
        return err;
    if (!one.text && !one.left_out)
        return bp_output_fail(path, number, "text");
    to->left_out += one.left_out;
    for (size_t k = 0; k < (one.left_out ? 0 : json_string_length(one.text)); k++) {
        const char *at = json_string_value(one.text) + k;

        bp_buffer_add(&to->lines, *at == '\n' || *at == '\r' ? " " : at, 1);
    }
    bp_buffer_add(&to->lines, "\n", 1);
    take_certainty(to->file, line, to->next);
    to->next++;
    return BP_OK;
}

/* Does the first line say that it is one of generate's? */
static bool is_output(const char *text, size_t bytes)
{
    const char *end = memchr(text, '\n', bytes);
    json_t *line = json_loadb(text, end ? (size_t)(end - text) : bytes, JSON_ALLOW_NUL, NULL);
    bool is = json_object_get(line, "index") && json_object_get(line, "text");

    json_decref(line);
    return is;
}

static bp_err take_outputs(answer_file *file, size_t *bytes)
{
    taken_outputs to = {.file = file};
    bp_err err = bp_json_lines(file->text, *bytes, file->path, take_output, &to);

    if (err == BP_OK && to.left_out > 0)
        BP_WARN("metrics.left_out",
                "%" PRId64 " of %" PRId64 " sources were too long to write for, and count as empty "
                "texts: at %s",
                to.left_out, to.next, file->path);
    bp_free(file->text);
    *bytes = to.lines.bytes;
    file->text = bp_buffer_take(&to.lines);
    return err;
}

bp_err answer_file_read(answer_file *file, const char *path, bool texts)
{
    size_t bytes, mark;
    bp_err err;

    *file = (answer_file){.path = path, .inside = bp_path_join(path, "generate/outputs.jsonl")};
    if (bp_path_exists(file->inside))
        file->path = path = file->inside;
    err = bp_file_read(path, FILE_BYTES, &file->text, &bytes);
    if (err != BP_OK)
        return err;
    file->is_written = is_output(file->text, bytes);
    if (file->is_written)
        err = take_outputs(file, &bytes);
    if (err != BP_OK)
        return err;
    mark = bp_mark_bytes(file->text, bytes);
    err = split_lines(file, file->text + mark, bytes - mark, texts);
    if (err == BP_OK && file->count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "metrics.no_lines",
                      "there are no lines: at %s; give a file with a document a line", path);
    return err;
}

static int64_t number_of(const answer_file *file, int64_t line)
{
    return line < file->count || line == 0 ? file->numbers[line] : file->numbers[line - 1] + 1;
}

static bool is_blank(bp_line line)
{
    return strspn(line.text, " \t") == line.bytes;
}

/* Are all lines from `count` on blank? */
static bool ends_at(const answer_file *file, int64_t count)
{
    for (int64_t k = count; k < file->count; k++)
        if (!is_blank(file->lines[k]))
            return false;
    return true;
}

bp_err answer_files_match(answer_file *one, answer_file *other)
{
    if (one->count > other->count && other->count > 0 && ends_at(one, other->count))
        one->count = other->count;
    if (other->count > one->count && one->count > 0 && ends_at(other, one->count))
        other->count = one->count;
    if (one->count == other->count)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "metrics.other_lines",
                   "%" PRId64 " and %" PRId64 " lines: at %s and %s; line n of each has to be of "
                   "the same document",
                   one->count, other->count, one->path, other->path);
}

/* How the next word from line `from` on is cut into fields; 0: a gap comes before it. */
static int next_columns(const answer_file *file, int64_t from)
{
    for (int64_t k = from; k < file->count; k++) {
        const bp_line *line = &file->lines[k];

        if (bp_conll_is_gap(line->text, line->bytes))
            return 0;
        if (line->text[0] != '#')
            return bp_conll_columns(line->text, line->bytes);
    }
    return 0;
}

void answer_file_keep_words(answer_file *file)
{
    int64_t kept = 0;
    int columns = 0;
    bool inside = false;

    file->numbers = bp_alloc("tool.lines", file->count + 1, sizeof *file->numbers);
    for (int64_t k = 0; k < file->count; k++) {
        bp_line line = file->lines[k];
        bool is_gap = bp_conll_is_gap(line.text, line.bytes);

        if (!is_gap && !inside) { /* perhaps a comment */
            int words = columns != 0 ? columns : next_columns(file, k);
            if (bp_conll_is_comment(line.text, line.bytes, words))
                continue;
        }
        if (!is_gap)
            columns = bp_conll_columns(line.text, line.bytes);
        if (is_gap && !inside)
            continue;
        inside = !is_gap;
        file->lines[kept] = is_gap ? (bp_line){"", 0} : line;
        file->numbers[kept++] = k + 1;
    }
    file->count = kept > 0 && file->lines[kept - 1].bytes == 0 ? kept - 1 : kept;
}

/* ---- classes ---- */

static int compare_labels(const void *a, const void *b)
{
    return strcmp((*(const bp_line *const *)a)->text, (*(const bp_line *const *)b)->text);
}

/* Two files of which one has other columns, or other names: no line can be right. */
static void warn_of_other_labels(const bp_class_answers *of, const answer_file *const files[2])
{
    bool *known = bp_alloc("tool.labels", of->classes, sizeof *known), common = false;

    for (int64_t k = 0; k < of->documents; k++)
        known[of->label[k]] = true;
    for (int64_t k = 0; k < of->documents; k++)
        common = common || known[of->predicted[k]];
    if (!common && of->documents > 0)
        BP_WARN("metrics.other_labels",
                "no label of the one is a label of the other%s: at %s and %s; give files with one "
                "label a line, of one set",
                strchr(files[0]->lines[0].text, '\t') || strchr(files[1]->lines[0].text, '\t')
                    ? ", and lines have several columns"
                    : "",
                files[0]->path, files[1]->path);
    bp_free(known);
}

bp_err read_classes(bp_class_answers *out, int32_t **codes, const answer_file *reference,
                    const answer_file *hypothesis)
{
    const answer_file *files[2] = {reference, hypothesis};
    int64_t n = reference->count;
    const bp_line **sorted = bp_alloc("tool.labels", 2 * n, sizeof *sorted);
    bp_err err = BP_OK;

    *codes = bp_alloc("tool.labels", 2 * n, sizeof **codes);
    *out = (bp_class_answers){n, 0, *codes, *codes + n};
    for (int64_t k = 0; k < 2 * n && err == BP_OK; k++) {
        sorted[k] = &files[k / n]->lines[k % n];
        if (sorted[k]->bytes == 0)
            err = BP_FAIL(BP_ERR_FORMAT, "metrics.no_label",
                          "a line has no label: at %s, line %" PRId64 "; give one a line",
                          files[k / n]->path, k % n + 1);
    }
    if (err == BP_OK)
        qsort(sorted, (size_t)(2 * n), sizeof *sorted, compare_labels);
    for (int64_t k = 0; k < 2 * n && err == BP_OK; k++) {
        bool of_reference = sorted[k] >= reference->lines && sorted[k] < reference->lines + n;
        int64_t at =
            of_reference ? sorted[k] - reference->lines : n + (sorted[k] - hypothesis->lines);

        out->classes += k == 0 || strcmp(sorted[k]->text, sorted[k - 1]->text) != 0;
        (*codes)[at] = (int32_t)(out->classes - 1);
    }
    if (err == BP_OK)
        warn_of_other_labels(out, files);
    bp_free(sorted);
    return err;
}

/* ---- numbers ---- */

bp_err read_numbers(double **out, const answer_file *file)
{
    *out = bp_alloc("tool.numbers", file->count, sizeof **out);
    for (int64_t k = 0; k < file->count; k++) {
        const char *text = file->lines[k].text;
        size_t bytes = file->lines[k].bytes, first = 0;

        while (first < bytes && strchr(" \t", text[first]) && text[first])
            first++;
        while (bytes > first && strchr(" \t", text[bytes - 1]) && text[bytes - 1])
            bytes--;
        if (!bp_decimal(&(*out)[k], text + first, bytes - first))
            return BP_FAIL(BP_ERR_FORMAT, "metrics.bad_number",
                           "'%.40s' is not a finite number: at %s, line %" PRId64
                           "; give one a line",
                           file->lines[k].text, file->path, k + 1);
    }
    return BP_OK;
}

/* ---- tags ---- */

/* The last word of a line, NULL: it has none; *token is its first (cut off by a zero byte). */
static const char *tag_of(bp_line line)
{
    char *text = (char *)line.text, *end = text + line.bytes;

    while (end > text && strchr(" \t", end[-1]))
        *--end = '\0';
    while (end > text && !strchr(" \t", end[-1]))
        end--;
    return *end != '\0' ? end : NULL;
}

static bp_err fail_tokens(const answer_file *files[2], int64_t line)
{
    return BP_FAIL(BP_ERR_FORMAT, "metrics.other_tokens",
                   "the tokens differ: at %s, line %" PRId64 ", and %s, line %" PRId64
                   "; tag the same sentences",
                   files[0]->path, number_of(files[0], line), files[1]->path,
                   number_of(files[1], line));
}

static bp_err same_tokens(const answer_file *files[2], const char *tags[2], int64_t line)
{
    size_t bytes[2];
    const char *texts[2] = {files[0]->lines[line].text, files[1]->lines[line].text};

    for (int k = 0; k < 2 && tags[0] && tags[1]; k++)
        bytes[k] = strcspn(texts[k], " \t");
    if ((!tags[0]) != (!tags[1]) ||
        (tags[0] && tags[0] != texts[0] && tags[1] != texts[1] &&
         (bytes[0] != bytes[1] || memcmp(texts[0], texts[1], bytes[0]) != 0)))
        return fail_tokens(files, line);
    return BP_OK;
}

/* tags[2][count]; NULL at an empty line. */
static bp_err find_tags(const char **tags, const answer_file *files[2], int64_t n,
                        int64_t *sentences)
{
    bool entities = false;
    bp_err err = BP_OK;

    *sentences = 0;
    for (int64_t k = 0; k < n && err == BP_OK; k++) {
        const char *pair[2];

        for (int side = 0; side < 2; side++)
            pair[side] = tags[side * n + k] = tag_of(files[side]->lines[k]);
        err = same_tokens(files, pair, k);
        *sentences += pair[0] != NULL && (k == 0 || !tags[k - 1]);
        entities = entities || (err == BP_OK && pair[0] && bp_tags_have_entities(pair, 2));
    }
    if (err == BP_OK && files[0]->count != files[1]->count)
        err = fail_tokens(files, n);
    if (err == BP_OK && !entities)
        err = BP_FAIL(BP_ERR_FORMAT, "metrics.no_entities",
                      "no tag begins with B, I, E or S, and a dash: at %s and %s; for other tags "
                      "use --kind classes",
                      files[0]->path, files[1]->path);
    return err;
}

bp_err read_tags(bp_tag_answers *out, bp_entity_counts **counts, const answer_file *reference,
                 const answer_file *hypothesis)
{
    const answer_file *files[2] = {reference, hypothesis};
    int64_t n = reference->count < hypothesis->count ? reference->count : hypothesis->count;
    const char **tags = bp_alloc("tool.tags", 2 * n, sizeof *tags);
    int64_t sentences;
    bp_err err = find_tags(tags, files, n, &sentences);

    *counts = bp_alloc("tool.tags", sentences, sizeof **counts);
    *out = (bp_tag_answers){0, *counts};
    for (int64_t first = 0, end; first < n && err == BP_OK; first = end + 1) {
        for (end = first; end < n && tags[end]; end++)
            ;
        if (end > first)
            (*counts)[out->documents++] =
                bp_entities_compare(tags + first, tags + n + first, end - first);
    }
    bp_free(tags);
    return err;
}
