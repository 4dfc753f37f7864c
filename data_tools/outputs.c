/* outputs.jsonl of generate. */
#include "outputs.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"

#include <inttypes.h>
#include <string.h>

#define LIMIT_BYTES ((int64_t)1 << 36)

bp_err json_lines_each(const char *path,
                       bp_err (*take)(void *context, json_t *line, int64_t number), void *context)
{
    char *data = NULL, *at, *name = NULL;
    size_t bytes = 0;
    int64_t number = 0;
    bp_err err = bp_file_read(path, LIMIT_BYTES, &data, &bytes);

    for (at = data; err == BP_OK && at < data + bytes;) {
        char *end = memchr(at, '\n', (size_t)(data + bytes - at));
        size_t length = (end ? end : data + bytes) - at;
        json_t *line = NULL;

        number++;
        name = bp_sprintf("%s:%" PRId64, shown_path(path), number);
        if (length > 0)
            err = bp_json_parse_texts(&line, at, length, name);
        if (err == BP_OK && line)
            err = take(context, line, number);
        json_decref(line);
        bp_free(name);
        at += length + 1;
    }
    bp_free(data);
    return err;
}

bp_err json_lines_fail(const char *path, int64_t number, const char *key)
{
    return BP_FAIL(BP_ERR_FORMAT, "outputs.bad_line",
                   "'%s' is missing, or is not what bagpipe writes there: at %s:%" PRId64
                   "; make the file again",
                   key, shown_path(path), number);
}

typedef struct loading {
    outputs *out;
    const char *path;
} loading;

static int64_t add_text(outputs *out, const json_t *value)
{
    int64_t at = (int64_t)out->text.bytes;

    if (!json_is_string(value))
        return -1;
    bp_buffer_add(&out->text, json_string_value(value), strlen(json_string_value(value)) + 1);
    return at;
}

static bp_err add_line(void *context, json_t *line, int64_t number)
{
    loading *self = context;
    outputs *out = self->out;
    const json_t *index = json_object_get(line, "index"), *tokens = json_object_get(line, "tokens");
    output_line *to;

    if (!json_is_integer(index) || json_integer_value(index) < 0 ||
        json_integer_value(index) < out->prompts - 1)
        return json_lines_fail(self->path, number, "index");
    if (!json_is_array(tokens))
        return json_lines_fail(self->path, number, "tokens");
    out->lines =
        bp_grow("tool.outputs", out->lines, &out->capacity, out->count + 1, sizeof *out->lines);
    to = &out->lines[out->count++];
    *to = (output_line){.index = json_integer_value(index),
                        .first_token = out->token_count,
                        .count = (int64_t)json_array_size(tokens),
                        .prompt_at = add_text(out, json_object_get(line, "prompt")),
                        .text_at = add_text(out, json_object_get(line, "text"))};
    out->prompts = to->index + 1;
    out->tokens = bp_grow("tool.outputs", out->tokens, &out->token_capacity,
                          out->token_count + to->count + 1, sizeof *out->tokens);
    for (int64_t k = 0; k < to->count; k++) {
        const json_t *token = json_array_get(tokens, (size_t)k);

        if (!json_is_integer(token) || json_integer_value(token) < 0 ||
            json_integer_value(token) > INT32_MAX)
            return json_lines_fail(self->path, number, "tokens");
        out->tokens[out->token_count++] = (int32_t)json_integer_value(token);
    }
    return BP_OK;
}

bp_err outputs_load(outputs *out, const char *run)
{
    const bp_path lines = bp_path_in(run, "generate/outputs.jsonl"),
                  summary_path = bp_path_in(run, "generate/summary.json");
    loading self = {out, lines.text};
    json_t *summary = NULL;
    bp_err err;

    *out = (outputs){.run = run};
    if (!bp_path_exists(lines.text))
        return BP_FAIL(BP_ERR_INPUT, "outputs.missing",
                       "there are no outputs of bagpipe generate: at %s; name the run folder of a "
                       "finished one",
                       run);
    err = bp_json_load(&summary, summary_path.text, LIMIT_BYTES);
    if (err == BP_OK) {
        out->model = json_incref(json_object_get(summary, "model"));
        err = json_lines_each(lines.text, add_line, &self);
    }
    json_decref(summary);
    if (err == BP_OK && out->count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "outputs.none", "the file has no lines: at %s; generate again",
                      lines.text);
    return err;
}

void outputs_clear(outputs *self)
{
    json_decref(self->model);
    bp_free(self->lines);
    bp_free(self->tokens);
    bp_buffer_clear(&self->text);
    *self = (outputs){0};
}
