/* Prompts from a file: lines, or JSON Lines. Called by setup.c. */
#include "infer/generate/prompts/prompts.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/generate/prompts/text.h"
#include "text/documents/text_source.h"
#include "text/unicode/characters.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define READ_BYTES   ((size_t)1 << 16)
#define MANY         (INT64_MAX / 4)
#define FRAME_TOKENS 8 /* maximum before and after a prompt */

typedef struct reader {
    const bp_prompts_spec *spec;
    bp_prompts *prompts;
    bp_encoder *encoder; /* NULL if there is no tokenizer */
    char *template_text; /* NULL if there is none */
    char **names;        /* of its fields [name_count] */
    int64_t name_count;
    bool json;
    int64_t line;
    int64_t capacity; /* of starts */
} reader;

/* ---- the file ---- */

static bp_err read_all(bp_buffer *out, const char *path)
{
    char *block = bp_alloc("generate.prompts", (int64_t)READ_BYTES, 1);
    bp_text_source *source;
    size_t bytes = READ_BYTES;
    bp_err err = bp_text_source_open(&source, path);

    while (err == BP_OK && bytes == READ_BYTES) {
        err = bp_text_source_read(source, block, READ_BYTES, &bytes);
        if (err == BP_OK)
            bp_buffer_add(out, block, bytes);
        if (err == BP_OK && out->bytes > BP_PROMPTS_LIMIT_BYTES)
            err = BP_FAIL(BP_ERR_FORMAT, "prompt.too_many_bytes",
                          "the prompts have more than %zu bytes: at %s; share them out over files",
                          BP_PROMPTS_LIMIT_BYTES, path);
    }
    bp_text_source_close(&source);
    bp_free(block);
    return err;
}

/* A line without its end; *next begins the next one; NULL if this is the last. */
static size_t line_of(const char *at, const char *end, const char **next)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    size_t bytes = (size_t)((newline ? newline : end) - at);

    *next = newline && newline + 1 < end ? newline + 1 : NULL;
    return bytes > 0 && at[bytes - 1] == '\r' ? bytes - 1 : bytes;
}

/* ---- before they are encoded ---- */

/* Bytes of a template filled with an object, given the longest line: each place may get all of
 * it. */
static int64_t template_bytes(int64_t longest, const char *path)
{
    char *text = NULL;
    int64_t fields = 0, bytes;

    if (bp_prompt_template_read(&text, path) != BP_OK)
        return MANY;
    for (const char *at = text; *at; at++)
        fields += *at == '{';
    bytes = (int64_t)strlen(text) + fields * longest;
    bp_free(text);
    return bytes;
}

bp_prompts_most bp_prompts_most_of(const char *path, const char *template_path)
{
    bp_prompts_most most = {.count = MANY, .length = MANY};
    struct stat status;
    bp_buffer all = {0};
    const char *next;

    if (strcmp(path, BP_TEXT_STDIN) == 0 || stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return most;
    if (read_all(&all, path) == BP_OK && all.bytes > 0) {
        most = (bp_prompts_most){0};
        for (const char *at = all.data; at; at = next) {
            int64_t bytes = (int64_t)line_of(at, all.data + all.bytes, &next);

            most.count++;
            most.length = bytes > most.length ? bytes : most.length;
        }
        if (template_path)
            most.length = template_bytes(most.length, template_path);
        most.length += FRAME_TOKENS;
    }
    bp_buffer_clear(&all);
    return most;
}

/* Decides by its name, or by its first line. */
static bool is_json(const bp_prompts_spec *spec, const char *line, size_t bytes)
{
    static const char *const keys[] = {"prompt", "tokens"};
    json_t *value;
    bool is;

    if (spec->template_path || strstr(bp_path_base(spec->path), ".jsonl"))
        return true;
    value = bp_json_members(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, keys, 2, NULL);
    is = json_object_get(value, "prompt") || json_object_get(value, "tokens");
    json_decref(value);
    return is;
}

/* ---- a prompt ---- */

/* The place of a line's faults, for messages. */
static bp_err at_line(const reader *self, bp_err err, const char *remedy)
{
    if (err != BP_ERR_FORMAT)
        return err;
    return bp_err_wrap(err, "%s: at %s:%" PRId64 "; %s", bp_err_text(), self->spec->path,
                       self->line, remedy);
}

/* A token that is not allowed. */
static void add_one(bp_ids *ids, int64_t id)
{
    if (id < 0)
        return;
    bp_ids_reserve(ids, 1);
    ids->data[ids->count++] = (uint32_t)id;
}

/* Append the tokens before a prompt; returns their number. */
static int64_t begin_prompt(reader *self, bool wanted)
{
    bp_ids *ids = &self->prompts->ids;

    if (wanted)
        add_one(ids, self->spec->first);
    return ids->count;
}

/* A prompt that already begins with it needs no second one. */
static void end_prompt(reader *self, int64_t begin, bool wanted)
{
    bp_ids *ids = &self->prompts->ids;

    if (wanted && self->spec->first >= 0 && ids->count > begin &&
        (int64_t)ids->data[begin] == self->spec->first)
        memmove(ids->data + begin, ids->data + begin + 1,
                (size_t)(--ids->count - begin) * sizeof *ids->data);
}

static bp_err add_text(reader *self, const char *text, size_t bytes)
{
    if (bytes == 0)
        return BP_FAIL(BP_ERR_FORMAT, "prompt.empty", "the prompt is empty");
    if (!self->json && memchr(text, 0, bytes)) /* written in JSON */
        return BP_FAIL(BP_ERR_FORMAT, "prompt.no_text_file",
                       "the prompt has a NUL byte, which is in no text");
    if (!self->encoder)
        return BP_FAIL(BP_ERR_CONFIG, "prompt.no_tokenizer",
                       "the prompts are texts, but no tokenizer is known: the model brings none, "
                       "and tokenizer.path is not set; set it, or give prompts as \"tokens\"");
    if (!bp_text_is_utf8(text, bytes) && self->prompts->not_utf8++ == 0)
        self->prompts->invalid_line = self->line;
    bp_buffer_add(&self->prompts->text, text, bytes);
    int64_t begin = begin_prompt(self, true);
    bp_err err = bp_encode(self->encoder, text, bytes, &self->prompts->ids);

    if (err == BP_OK && !self->spec->before_ids)
        err = bp_tokenizer_check_first(self->spec->tokenizer, self->spec->first, "generate.prefix");
    end_prompt(self, begin, true);
    if (err == BP_OK && self->spec->are_sources) {
        add_one(&self->prompts->ids, self->spec->end);
        add_one(&self->prompts->ids, self->spec->after);
    }
    return err;
}

static bp_err add_ids(reader *self, const json_t *list)
{
    bp_ids *ids = &self->prompts->ids;

    if (!json_is_array(list))
        return BP_FAIL(BP_ERR_FORMAT, "prompt.bad_tokens", "\"tokens\" is not a list of ids");
    int64_t begin = begin_prompt(self, self->spec->before_ids && json_array_size(list) > 0);
    bp_ids_reserve(ids, (int64_t)json_array_size(list));
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *id = json_array_get(list, k);
        int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;

        if (value < 0 || value >= self->spec->vocab_size)
            return BP_FAIL(BP_ERR_FORMAT, "prompt.unknown_token",
                           "entry %zu of \"tokens\" is not an id from 0 to %" PRId64
                           ", those of the model's vocabulary",
                           k, self->spec->vocab_size - 1);
        ids->data[ids->count++] = (uint32_t)value;
    }
    end_prompt(self, begin, self->spec->before_ids);
    return BP_OK;
}

static bp_err add_filled(reader *self, const json_t *object)
{
    bp_buffer text = {0};
    bp_err err = bp_prompt_template_fill(&text, self->template_text, object);

    if (err == BP_OK)
        err = add_text(self, text.data, text.bytes);
    bp_buffer_clear(&text);
    return err;
}

static bp_err add_object(reader *self, const json_t *object)
{
    const json_t *text = json_object_get(object, "prompt");
    const json_t *ids = json_object_get(object, "tokens");

    if (!json_is_object(object))
        return BP_FAIL(BP_ERR_FORMAT, "prompt.not_object", "not a JSON object");
    if (self->template_text)
        return add_filled(self, object);
    if (text && ids)
        return BP_FAIL(BP_ERR_FORMAT, "prompt.text_and_tokens",
                       "both \"prompt\" and \"tokens\" are there");
    if (ids)
        return add_ids(self, ids);
    if (!text && json_object_get(object, "messages"))
        return BP_FAIL(BP_ERR_FORMAT, "prompt.messages",
                       "\"messages\" need a chat template, which is not supported: "
                       "write \"prompt\" as the model saw it in training");
    if (!json_is_string(text))
        return BP_FAIL(BP_ERR_FORMAT, "prompt.no_text",
                       text ? "\"prompt\" is not a string"
                            : "neither \"prompt\" nor \"tokens\" is there");
    return add_text(self, json_string_value(text), json_string_length(text));
}

static bp_err add_json(reader *self, const char *line, size_t bytes)
{
    static const char *const plain[] = {"prompt", "tokens", "messages"};
    json_error_t where;
    json_t *object =
        bp_json_members(line, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL,
                        self->template_text ? (const char *const *)self->names : plain,
                        self->template_text ? (int)self->name_count : 3, &where);
    bp_err err = object
                     ? add_object(self, object)
                     : BP_FAIL(BP_ERR_FORMAT, "json.invalid",
                               "not valid JSON in UTF-8 (%s), column %d", where.text, where.column);

    json_decref(object);
    return err;
}

/* How many of a source's last tokens it keeps when cut: its end, and the token after that. Prompts
 * of ids may lack the latter. */
static int64_t last_tokens(const reader *self, int64_t length)
{
    const bp_prompts_spec *spec = self->spec;
    const bp_ids *ids = &self->prompts->ids;
    int64_t most = spec->after >= 0 && spec->context > 1 ? 2 : 1;

    for (int64_t kept = 1; kept <= most && kept <= length; kept++)
        if ((int64_t)ids->data[ids->count - kept] == spec->end)
            return kept;
    return 0;
}

/* Cut a source that is too long, or keep one token of it; *length becomes the remaining length. */
static int64_t shorten(const reader *self, int64_t *length)
{
    const bp_prompts_spec *spec = self->spec;
    bp_ids *ids = &self->prompts->ids;
    int64_t excess = *length - spec->context, first = ids->count - *length,
            kept = last_tokens(self, *length);

    if (!spec->are_sources || excess <= 0)
        return 0;
    if (spec->cut && kept > 0)
        memmove(ids->data + first + spec->context - kept, ids->data + ids->count - kept,
                (size_t)kept * sizeof *ids->data);
    *length = spec->cut ? spec->context : 1;
    ids->count = first + *length;
    self->prompts->too_long++;
    return excess;
}

/* Is a mask among the last `length` tokens? */
static bool has_mask(const reader *self, int64_t length)
{
    const bp_ids *ids = &self->prompts->ids;
    bool any = false;

    for (int64_t i = ids->count - length; i < ids->count; i++)
        any = any || (int64_t)ids->data[i] == self->spec->mask;
    return any;
}

/* Check that the tokens just added are a valid prompt of the model. */
static bp_err check_length(const reader *self, int64_t length)
{
    const bp_prompts_spec *spec = self->spec;
    const bp_prompts *prompts = self->prompts;

    if (length == 0)
        return BP_FAIL(BP_ERR_FORMAT, "prompt.empty", "the prompt has no tokens");
    if (length > spec->context - spec->reserved + has_mask(self, length))
        return BP_FAIL(
            BP_ERR_FORMAT, "prompt.too_long",
            "the prompt has %" PRId64 " tokens, more than the model's context of %" PRId64 "%s",
            length, spec->context,
            spec->reserved == 0      ? ""
            : has_mask(self, length) ? " less 2, which frame a text"
                                     : " less 3: two frame a text, and one is left to fill in");
    for (int64_t i = prompts->ids.count - length; i < prompts->ids.count; i++)
        if (prompts->ids.data[i] >= self->spec->vocab_size)
            return BP_FAIL(BP_ERR_FORMAT, "prompt.unknown_token",
                           "the tokenizer gives token %u, and the model has %" PRId64,
                           prompts->ids.data[i], self->spec->vocab_size);
    return BP_OK;
}

static bp_err add_line(reader *self, const char *line, size_t bytes)
{
    bp_prompts *prompts = self->prompts;
    int64_t before = prompts->ids.count;
    bp_err err = self->json ? add_json(self, line, bytes) : add_text(self, line, bytes);
    int64_t length = prompts->ids.count - before, excess = shorten(self, &length);

    if (err == BP_OK)
        err = check_length(self, length);
    if (err != BP_OK)
        return at_line(self, err, "correct the line, or take it out");
    if (prompts->count + 1 >= self->capacity) {
        self->capacity = 2 * self->capacity + 64;
        prompts->starts = bp_realloc("generate.prompts", prompts->starts, self->capacity,
                                     sizeof *prompts->starts);
        prompts->text_starts = bp_realloc("generate.prompts", prompts->text_starts, self->capacity,
                                          sizeof *prompts->text_starts);
        if (self->spec->are_sources)
            prompts->excess = bp_realloc("generate.prompts", prompts->excess, self->capacity,
                                         sizeof *prompts->excess);
    }
    if (self->spec->are_sources)
        prompts->excess[prompts->count] = excess;
    prompts->count++;
    prompts->starts[prompts->count] = prompts->ids.count;
    prompts->text_starts[prompts->count] = (int64_t)prompts->text.bytes;
    prompts->longest = length > prompts->longest ? length : prompts->longest;
    return BP_OK;
}

static bp_err add_lines(reader *self, const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes, *next;
    bp_err err = BP_OK;

    if (bytes == 0)
        return BP_FAIL(BP_ERR_FORMAT, "prompt.none",
                       "there is no prompt, the file is empty: at %s; write a line "
                       "for each",
                       self->spec->path);
    self->json = is_json(self->spec, at, line_of(at, end, &next));
    for (; at && err == BP_OK; at = next) {
        size_t line_bytes = line_of(at, end, &next);

        self->line++;
        err = add_line(self, at, line_bytes);
    }
    return err;
}

bp_err bp_prompts_read(bp_prompts *prompts, const bp_prompts_spec *spec)
{
    reader self = {.spec = spec, .prompts = prompts};
    bp_buffer text = {0};
    bp_err err = BP_OK;

    *prompts = (bp_prompts){.cut = spec->cut};
    if (spec->tokenizer)
        err = bp_encoder_new(&self.encoder, spec->tokenizer);
    if (self.encoder) /* a mask by its name */
        bp_encoder_find_specials(self.encoder, spec->mask >= 0 || spec->are_sources);
    if (err == BP_OK && spec->template_path)
        err = bp_prompt_template_read(&self.template_text, spec->template_path);
    if (err == BP_OK && self.template_text)
        bp_prompt_template_names(self.template_text, &self.names, &self.name_count);
    if (err == BP_OK) {
        err = read_all(&text, spec->path);
        if (err == BP_ERR_INPUT)
            err = bp_err_wrap(err, "%s; generate.prompts names a file with a prompt a line",
                              bp_err_text());
    }
    if (err == BP_OK) {
        const char *data = text.data ? text.data : "";
        size_t mark = bp_mark_bytes(data, text.bytes);

        err = add_lines(&self, data + mark, text.bytes - mark);
    }
    bp_buffer_clear(&text);
    bp_encoder_free(&self.encoder);
    bp_free(self.template_text);
    bp_names_free(&self.names, self.name_count);
    return err;
}

void bp_prompts_clear(bp_prompts *prompts)
{
    bp_free(prompts->starts);
    bp_free(prompts->excess);
    bp_free(prompts->text_starts);
    bp_ids_clear(&prompts->ids);
    bp_buffer_clear(&prompts->text);
    *prompts = (bp_prompts){0};
}
