/* JSON through jansson: parsing with limits, printing with 17 digits, typed members. Out of memory
 * in jansson ends the job. */
#include "base/config/json.h"
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/printable.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Before main: out of memory ends the job inside jansson too, so its functions return NULL only
 * for wrong values. */
static void *take(size_t bytes)
{
    void *p = malloc(bytes);

    if (!p)
        bp_memory_ended("base.json", (int64_t)bytes, 1);
    return p;
}

__attribute__((constructor)) static void set_allocator(void)
{
    json_set_alloc_funcs(take, free);
}

#define CONTROLS                                                                                   \
    "\1\2\3\4\5\6\7\b\t\n\v\f\r\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37\177"
#define DUMP_FLAGS (JSON_ENCODE_ANY | JSON_REAL_PRECISION(17))

static bp_err fail_invalid(const json_error_t *where, const char *text, size_t bytes,
                           const char *name)
{
    if (bp_is_lfs_pointer(text, bytes))
        return bp_fail_lfs_pointer(name);
    return bp_fail(BP_ERR_FORMAT, "json.invalid", "not valid JSON (%s): at %s:%d, column %d",
                   where->text, name, where->line, where->column);
}

static bp_err parse(json_t **out, const char *text, size_t bytes, const char *name, size_t flags)
{
    json_error_t where;

    *out = bp_json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &where);
    return *out ? BP_OK : fail_invalid(&where, text, bytes, name);
}

bp_err bp_json_parse(json_t **out, const char *text, size_t bytes, const char *name)
{
    return parse(out, text, bytes, name, 0);
}

bp_err bp_json_parse_texts(json_t **out, const char *text, size_t bytes, const char *name)
{
    return parse(out, text, bytes, name, JSON_ALLOW_NUL);
}

bp_err bp_json_lines(const char *text, size_t bytes, const char *path,
                     bp_err (*each)(void *context, const json_t *line, int64_t number),
                     void *context)
{
    const char *end = text + bytes, *stop;
    int64_t number = 1;
    bp_err err = BP_OK;

    for (const char *at = text; at < end && err == BP_OK; at = stop + 1, number++) {
        char *name = bp_sprintf("%s:%" PRId64, path, number);
        json_t *line = NULL;

        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if (stop > at)
            err = bp_json_parse_texts(&line, at, (size_t)(stop - at), name);
        if (line && err == BP_OK)
            err = each(context, line, number);
        json_decref(line);
        bp_free(name);
    }
    return err;
}

static bp_err parse_file(bp_err read, json_t **out, char *text, size_t bytes, const char *path)
{
    size_t mark = read == BP_OK ? bp_mark_bytes(text, bytes) : 0;
    bp_err err = read;

    *out = NULL;
    if (err == BP_OK)
        err = bp_json_parse(out, text + mark, bytes - mark, path);
    bp_free(text);
    return err;
}

bp_err bp_json_load(json_t **out, const char *path, int64_t limit_bytes)
{
    char *text;
    size_t bytes;
    bp_err err = bp_file_read(path, limit_bytes, &text, &bytes);

    return parse_file(err, out, text, bytes, path);
}

/* Python writes Infinity and NaN, which are not JSON: outside of strings they become strings. */
static void quote_words(bp_buffer *to, const char *text, size_t bytes)
{
    static const char *const WORDS[] = {"Infinity", "NaN"};
    bool in_string = false;

    for (size_t i = 0; i < bytes; i++) {
        const char *word = NULL;

        for (int k = 0; k < 2 && !in_string; k++)
            if (bytes - i >= strlen(WORDS[k]) && memcmp(text + i, WORDS[k], strlen(WORDS[k])) == 0)
                word = WORDS[k];
        if (word) {
            bp_buffer_printf(to, "\"%s\"", word);
            i += strlen(word) - 1;
            continue;
        }
        if (in_string && text[i] == '\\' && i + 1 < bytes)
            bp_buffer_add(to, text + i++, 1);
        else if (text[i] == '"')
            in_string = !in_string;
        bp_buffer_add(to, text + i, 1);
    }
}

bp_err bp_json_load_python(json_t **out, const char *path, int64_t limit_bytes)
{
    char *text = NULL;
    size_t bytes, mark;
    bp_buffer quoted = {0};
    bp_err err = bp_file_read(path, limit_bytes, &text, &bytes);

    *out = NULL;
    if (err == BP_OK) {
        mark = bp_mark_bytes(text, bytes);
        quote_words(&quoted, text + mark, bytes - mark);
        err = bp_json_parse(out, quoted.data ? quoted.data : "", quoted.bytes, path);
    }
    bp_free(text);
    bp_buffer_clear(&quoted);
    return err;
}

bp_err bp_json_load_members(json_t **out, const char *path, int64_t limit_bytes,
                            const char *const *keys, int key_count)
{
    json_error_t where;
    char *text;
    size_t bytes, mark;
    bp_err err = bp_file_read(path, limit_bytes, &text, &bytes);

    *out = NULL;
    if (err != BP_OK)
        return err;
    mark = bp_mark_bytes(text, bytes);
    *out = bp_json_members(text + mark, bytes - mark, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY,
                           keys, key_count, &where);
    err = *out ? BP_OK : fail_invalid(&where, text, bytes, path);
    bp_free(text);
    return err;
}

bp_err bp_json_load_plain(json_t **out, const char *path, int64_t limit_bytes)
{
    char *text;
    size_t bytes;
    bp_err err = bp_plain_read(path, limit_bytes, &text, &bytes);

    return parse_file(err, out, text, bytes, path);
}

static int add_to_buffer(const char *data, size_t bytes, void *buffer)
{
    bp_buffer_add(buffer, data, bytes);
    return 0;
}

static char *dump(const json_t *value, size_t flags)
{
    bp_buffer buffer = {0};

    if (json_dump_callback(value, add_to_buffer, &buffer, flags) != 0) {
        bp_buffer_clear(&buffer);
        return NULL;
    }
    bp_buffer_add(&buffer, "\n", 1);
    return bp_buffer_take(&buffer);
}

char *bp_json_text(const json_t *value)
{
    return dump(value, DUMP_FLAGS | JSON_INDENT(2));
}

char *bp_json_line(const json_t *value)
{
    return dump(value, DUMP_FLAGS);
}

bp_err bp_json_write_line(bp_draft *draft, json_t *line)
{
    char *text = bp_json_line(line);
    bp_err err = bp_draft_write(draft, text, strlen(text));

    bp_free(text);
    json_decref(line);
    return err;
}

bp_err bp_json_save(const char *path, const json_t *value)
{
    char *text = bp_json_text(value);

    bp_err err = bp_file_write(path, text, strlen(text));
    bp_free(text);
    return err;
}

/* The member, if it is of one of the types (bits of json_type), or NULL with the failure set. */
static const json_t *member(const json_t *object, const char *key, const char *name, unsigned types,
                            const char *type)
{
    const json_t *value = json_object_get(object, key); /* NULL for what is not an object */

    if (value && (types >> json_typeof(value) & 1) != 0)
        return value;
    if (!value)
        (void)bp_fail(BP_ERR_FORMAT, "json.missing_key", "\"%s\" is missing: at %s", key, name);
    else
        (void)bp_fail(BP_ERR_FORMAT, "json.wrong_type", "\"%s\" is not %s: at %s", key, type, name);
    return NULL;
}

bp_err bp_json_get_int(const json_t *object, const char *key, int64_t *out, const char *name)
{
    const json_t *value = member(object, key, name, 1u << JSON_INTEGER, "an integer");

    *out = json_integer_value(value); /* NULL gives 0; the same below */
    return value ? BP_OK : BP_ERR_FORMAT;
}

bp_err bp_json_get_real(const json_t *object, const char *key, double *out, const char *name)
{
    const json_t *value =
        member(object, key, name, 1u << JSON_INTEGER | 1u << JSON_REAL, "a number");

    *out = json_number_value(value);
    return value ? BP_OK : BP_ERR_FORMAT;
}

bp_err bp_json_get_string(const json_t *object, const char *key, const char **out, const char *name)
{
    const json_t *value = member(object, key, name, 1u << JSON_STRING, "a string");

    *out = json_string_value(value);
    return value ? BP_OK : BP_ERR_FORMAT;
}

bp_err bp_json_get_bool(const json_t *object, const char *key, bool *out, const char *name)
{
    const json_t *value =
        member(object, key, name, 1u << JSON_TRUE | 1u << JSON_FALSE, "true or false");

    *out = json_is_true(value);
    return value ? BP_OK : BP_ERR_FORMAT;
}

json_t *bp_json_string(const char *text)
{
    json_t *value = text ? json_string(text) : NULL;
    bp_buffer spelled = {0};

    if (value || !text)
        return value;
    bp_printable_add(&spelled, text, strlen(text), CONTROLS);
    value = json_stringn(spelled.data, spelled.bytes);
    bp_buffer_clear(&spelled);
    BP_ASSERT(value != NULL);
    return value;
}

double bp_json_number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

json_t *bp_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}
