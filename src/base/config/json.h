/* JSON through jansson: reading with limits and clear messages, writing in one canonical form. */
#pragma once

#include "base/err.h"
#include "base/files/fs.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/** Parse text (duplicate keys and bytes after the end are refused); `name` is the file for
 * messages. Release with json_decref(). */
bp_err bp_json_parse(json_t **out, const char *text, size_t bytes, const char *name);
/** The same, for texts that may hold U+0000: strings have json_string_length() bytes. */
bp_err bp_json_parse_texts(json_t **out, const char *text, size_t bytes, const char *name);
/** json_loadb(), but a null byte after a number is an error, as JSON requires; jansson skips it. */
json_t *bp_json_loadb(const char *text, size_t bytes, size_t flags, json_error_t *where);
/** bp_json_loadb() that reads, in objects at any depth, only the members with one of `keys`. The
 * others need only be values with matching brackets and quotes. NULL as bp_json_loadb(). */
json_t *bp_json_members(const char *text, size_t bytes, size_t flags, const char *const *keys,
                        int key_count, json_error_t *where);
/** Parse each line of JSON by bp_json_parse_texts, named "`path`:NUMBER", and pass it to `each`
 * with its number from 1. Empty lines are skipped. Errors: those of both. */
bp_err bp_json_lines(const char *text, size_t bytes, const char *path,
                     bp_err (*each)(void *context, const json_t *line, int64_t number),
                     void *context);
bp_err bp_json_load(json_t **out, const char *path, int64_t limit_bytes);
/** The same for a file that Python wrote: Infinity and NaN, which are not JSON, become strings. */
bp_err bp_json_load_python(json_t **out, const char *path, int64_t limit_bytes);
/** The same for a file where only some members are read (bp_json_members): a tokenizer_config.json
 * of transformers has numbers beyond 64 bits ("model_max_length": 1e30 as an integer). */
bp_err bp_json_load_members(json_t **out, const char *path, int64_t limit_bytes,
                            const char *const *keys, int key_count);
/** bp_json_load for a file that a job keeps for itself (bp_plain_open). */
bp_err bp_json_load_plain(json_t **out, const char *path, int64_t limit_bytes);

/** Canonical text: keys in insertion order, two-space indent, reals with 17 digits, a newline at
 * the end. Free with bp_free(). */
char *bp_json_text(const json_t *value);
/** The same on one line (for .jsonl), newline at the end. */
char *bp_json_line(const json_t *value);
/** Write bp_json_line(line) to a draft; takes the reference, after an error too. */
bp_err bp_json_write_line(bp_draft *draft, json_t *line);
bp_err bp_json_save(const char *path, const json_t *value); /* bp_file_write of the text */

/** Members of an object with their type checked: BP_ERR_FORMAT names the key and the file. Strings
 * are borrowed. */
bp_err bp_json_get_int(const json_t *object, const char *key, int64_t *out, const char *name);
bp_err bp_json_get_real(const json_t *object, const char *key, double *out, const char *name);
bp_err bp_json_get_string(const json_t *object, const char *key, const char **out,
                          const char *name);

bp_err bp_json_get_bool(const json_t *object, const char *key, bool *out, const char *name);

/** The number `key` of an object; NaN if it has none. */
double bp_json_number(const json_t *object, const char *key);

/** A string of any bytes: each invalid UTF-8 byte becomes "\\xNN", two digits. NULL only for NULL;
 * json_string() would return NULL for such bytes too. New reference. */
json_t *bp_json_string(const char *text);

/** A real, or null where it is not finite. New reference. */
json_t *bp_json_real(double value);
