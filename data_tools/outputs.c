/* outputs.jsonl of generate. */
#include "outputs.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"
#include "job/report/outputs.h"

#include <string.h>

#define LIMIT_BYTES ((int64_t)1 << 36)

bp_err json_lines_each(const char *path,
                       bp_err (*each)(void *context, const json_t *line, int64_t number),
                       void *context)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_file_read(path, LIMIT_BYTES, &text, &bytes);

    if (err == BP_OK)
        err = bp_json_lines(text, bytes, shown_path(path), each, context);
    bp_free(text);
    return err;
}

typedef struct loading {
    outputs *out;
    const char *path;
} loading;

static int64_t add_text(outputs *out, const json_t *value)
{
    int64_t at = (int64_t)out->text.bytes;

    if (!value)
        return -1;
    bp_buffer_add(&out->text, json_string_value(value), strlen(json_string_value(value)) + 1);
    return at;
}

static bp_err add_line(void *context, const json_t *line, int64_t number)
{
    loading *self = context;
    outputs *out = self->out;
    bp_output one;
    bp_err err = bp_output_read(&one, line, out->prompts - 1, shown_path(self->path), number);

    if (err != BP_OK)
        return err;
    out->lines =
        bp_grow("tool.outputs", out->lines, &out->capacity, out->count + 1, sizeof *out->lines);
    output_line *to = &out->lines[out->count++];
    *to = (output_line){.index = one.index,
                        .first_token = out->token_count,
                        .count = (int64_t)json_array_size(one.tokens),
                        .prompt_at = add_text(out, one.prompt),
                        .text_at = add_text(out, one.text)};
    out->prompts = to->index + 1;
    out->tokens = bp_grow("tool.outputs", out->tokens, &out->token_capacity,
                          out->token_count + to->count + 1, sizeof *out->tokens);
    for (int64_t k = 0; k < to->count; k++)
        out->tokens[out->token_count++] =
            (int32_t)json_integer_value(json_array_get(one.tokens, (size_t)k));
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
