/* Reading the components of tokenizer.json. Every error is BP_ERR_FORMAT with the file's `name`. */
#pragma once

#include "base/config/json.h"
#include "text/unicode/regex.h"

/* A member of components for extensions of Hugging Face's format; other readers ignore it. */
#define BP_OURS "bagpipe"

/** The string member `key`, "" if it is missing. Borrowed. */
const char *bp_load_string(const json_t *object, const char *key);
/** The string member `key`, "" if it is missing or null; another value is an error that spells it.
 * Borrowed. */
bp_err bp_load_optional(const char **out, const json_t *object, const char *key, const char *name);
bool bp_load_absent(const json_t *value); /* missing, or null */
/** A copy of the string member `key`, which must exist. Free with bp_free(). */
bp_err bp_load_text(char **out, const json_t *object, const char *key, const char *name);
/** A boolean; `otherwise` if it is missing or null. */
bp_err bp_load_bool(bool *out, const json_t *object, const char *key, bool otherwise,
                    const char *name);
/** "pattern": {"String": s} sets *text (bp_free), {"Regex": r} sets *regex. */
bp_err bp_load_pattern(char **text, bp_regex **regex, const json_t *object, const char *name);
/** An unsupported feature: "the tokenizer has WHAT VALUE, ...". */
bp_err bp_load_refuse(const char *what, const char *value, const char *name);

/** Call `add` for each component in `json`: itself, or those of a "Sequence" (its list `key`),
 * which may hold others; null is ignored. */
typedef bp_err bp_load_add(void *context, const json_t *json, const char *type, const char *name);
bp_err bp_load_sequence(const json_t *json, const char *key, bp_load_add *add, void *context,
                        const char *name);
