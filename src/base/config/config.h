/* Configuration: tables of keys, an INI file (inih), and section.key=value from the command line,
 * which wins.
 *
 * One table a module drives parsing, --help, checking and config.ini. All faults of a file are
 * reported at once (20 at most), as one BP_ERR_CONFIG whose message holds a line for each.
 */
#pragma once

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum bp_option_type {
    BP_OPTION_STRING,
    BP_OPTION_INT,
    BP_OPTION_REAL,
    BP_OPTION_BOOL,   /* yes, no (true, false, 1, 0 are read too) */
    BP_OPTION_CHOICE, /* one of `choices` */
    BP_OPTION_BYTES   /* an integer with KiB, MiB, GiB, k, M or G after it */
} bp_option_type;

typedef struct bp_option {
    const char *key; /* "train.steps" */
    bp_option_type type;
    const char *value;   /* default as text; NULL if there is no default */
    double min, max;     /* INT, REAL and BYTES; both 0: no bounds */
    const char *choices; /* CHOICE: "a|b|c" */
    const char *unit;    /* "tokens", "seconds", or NULL */
    const char *help;    /* one line */
    int required;        /* true: required where its table is among those the job asks for */
    const char *was;     /* its former name, which is still read; NULL if it has none */
    int at;              /* BP_AT of its value in the table's struct; 0 if it has no field */
    bool may_change;     /* a run that goes on may have another value: no result depends on it */
} bp_option;             /* a table ends with a row whose key is NULL */

/* How a row begins: {BP_INT_KEY("train.log_every", "10", 1, 1e12), .unit = "steps", .help = ...};
 * `text` is the default, NULL if there is none. */
#define BP_STRING_KEY(name, text) .key = name, .type = BP_OPTION_STRING, .value = text
#define BP_BOOL_KEY(name, text)   .key = name, .type = BP_OPTION_BOOL, .value = text
#define BP_CHOICE_KEY(name, text, words)                                                           \
    .key = name, .type = BP_OPTION_CHOICE, .value = text, .choices = words
#define BP_NUMBER_KEY(name, kind, text, least, most)                                               \
    .key = name, .type = kind, .value = text, .min = least, .max = most
#define BP_INT_KEY(name, text, least, most)  BP_NUMBER_KEY(name, BP_OPTION_INT, text, least, most)
#define BP_REAL_KEY(name, text, least, most) BP_NUMBER_KEY(name, BP_OPTION_REAL, text, least, most)
#define BP_BYTES_KEY(name, text, least, most)                                                      \
    BP_NUMBER_KEY(name, BP_OPTION_BYTES, text, least, most)

/** bp_option.required of rows that follow each other: exactly one of them must have a value. */
#define BP_REQUIRED_ONE 2
/** Required only where bp_config_require asks for it; may be combined with the others. */
#define BP_REQUIRED_ASKED 4

/** Where a row's value is in the struct of its table: int64_t (INT, BYTES), double, bool, or
 * const char * (STRING, CHOICE). */
#define BP_AT(keys, field) (1 + (int)offsetof(keys, field))

/** Is `key` its name or its former name? */
bool bp_option_is(const bp_option *option, const char *key);

typedef struct bp_config bp_config;

/** A configuration that knows the keys of `tables` (a NULL-ended list of all jobs' tables).
 *
 * `used` (NULL-ended) are the tables of this job: their required keys must be there, and config.ini
 * and --help show them. Keys of the other tables are accepted (and checked) and kept out of
 * config.ini. Tables are borrowed. Returns BP_OK.
 */
bp_err bp_config_new(bp_config **out, const bp_option *const *tables, const bp_option *const *used);
void bp_config_free(bp_config **config);

/** A configuration for a job within a job: the keys of `used` (and of `tables`, as bp_config_new
 * takes them), with the values that `from` has for them. A key given there counts as given here;
 * keys that `from` does not know keep their defaults.
 *
 * Errors: BP_ERR_CONFIG a value that is invalid here; *out is NULL.
 */
bp_err bp_config_derive(bp_config **out, const bp_config *from, const bp_option *const *tables,
                        const bp_option *const *used);

/** Read an INI file (NULL: none), then `count` arguments "section.key=value", which win; the last
 * of several wins.
 *
 * The file: [section], key = value, comments from a ';' or '#' at a line's start or a ' ;' after a
 * value; UTF-8 with or without a byte order mark; lines of at most 199 bytes (inih's limit), where
 * a value goes on in the next line after a backslash (what is at both ends is joined without a
 * space). "key =" leaves a key without a default unset. Before the first [section] keys are written
 * in full. Numbers are decimal, finite, and in range. Values hold no control characters, no ';' or
 * '#' after a space, and no backslash at the end, so that config.ini can hold them.
 *
 * Errors: BP_ERR_INPUT no such file, or a folder or pipe; BP_ERR_DENIED; BP_ERR_CONFIG unknown key
 * (names the nearest), a value of another type or out of range, a key twice in the file, a line
 * longer than the limit, a file over 1 MiB: 20 at most, each with file and line, and with them the
 * required keys that are missing; BP_ERR_USAGE an argument without '='; BP_ERR_SYSTEM no memory.
 */
bp_err bp_config_read(bp_config *config, const char *path, int count, char *const *arguments);

/** Is this argument a pair, as bp_config_read takes it? Else it may be the name of a file: what
 * precedes its first '=' has a '/', or no '.' and a file is called so. */
bool bp_config_is_pair(const char *argument);

/** The one of `words` (NULL-ended) that `word` most likely misspells; "" if the list is empty.
 * Borrowed. */
const char *bp_nearest_word(const char *word, const char *const *words);

/** BP_ERR_CONFIG unless all required keys are set, and only one of those that exclude each other.
 */
bp_err bp_config_check(bp_config *config);

/** Have `require` called whenever required keys are checked: it calls bp_config_require for keys
 * that depend on other keys. NULL if no key does. */
void bp_config_require_by(bp_config *config, void (*require)(bp_config *config));
/** A fault unless the key, of a row with BP_REQUIRED_ASKED, is set. For rows that exclude each
 * other, pass the key of the first. */
void bp_config_require(bp_config *config, const char *key);

/** The values of a table, as its struct: parsed once, borrowed, and kept up to date by
 * bp_config_set. A value that is not set, or belongs to no job here, is 0 or NULL. Each table's
 * header wraps this in its own function: bp_train_keys_of(config)->steps. */
const void *bp_config_bound(const bp_config *config, const bp_option *table);

/** Values. The key must be of that type and, except for _is_set, have a value or a default
 * (BP_ASSERT). Strings are borrowed. */
bool bp_config_is_set(const bp_config *config,
                      const char *key); /* given by the user or bp_config_set, or has a default */
bool bp_config_is_given(const bp_config *config, const char *key); /* given by the user */
/** Given by the user, with another value than its default: config.ini names every key, and is a
 * configuration too. Also false for a key that the job's tables lack. */
bool bp_config_departs(const bp_config *config, const char *key);
/** An option's default in canonical form (0.003 for "3e-3"); NULL if it has none. Free with
 * bp_free(). */
char *bp_config_default(const bp_option *option);
const char *bp_config_string(const bp_config *config,
                             const char *key); /* STRING or CHOICE; NULL when not set */
int64_t bp_config_int(const bp_config *config, const char *key); /* INT or BYTES */
double bp_config_real(const bp_config *config, const char *key);
bool bp_config_bool(const bp_config *config, const char *key);

/** Resolve a key (model.width from a checkpoint): checked as the user's values are, but not
 * counted as given.
 *
 * Errors: BP_ERR_CONFIG (the old value is kept); BP_ERR_SYSTEM out of memory.
 */
bp_err bp_config_set(bp_config *config, const char *key, const char *value);
bp_err bp_config_set_from(bp_config *config, const char *key, const char *value,
                          const char *where); /* where the user gave it, for messages */
bp_err bp_config_set_int(bp_config *config, const char *key,
                         int64_t value); /* only for an INT key */

/** Add one fault, with its identifier (as BP_FAIL's), or the thread's last failure, to those
 * reported together, and turn what was collected into an error (BP_OK when none). */
void bp_config_fault(bp_config *config, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void bp_config_fault_err(bp_config *config);
bp_err bp_config_faults(bp_config *config);

/** Call `visit` for each key of the job's tables, in table order, with its value as text (NULL when
 * not set). */
void bp_config_each(const bp_config *config,
                    void (*visit)(void *context, const bp_option *option, const char *value),
                    void *context);

/** Rows that --help shows under their own heading. A list ends with a row whose rows are NULL. */
typedef struct bp_key_group {
    char head[128]; /* "model.kind = lstm, gru" */
    const bp_option *rows;
} bp_key_group;

/** The INI text of every key as resolved (config.ini), and the keys' part of --help (help.h): by
 * sections, then `groups` (may be NULL). Free with bp_free(); NULL: no memory.
 *
 * Values are in one canonical form, as in the getters and bp_config_each: the shortest number that
 * reads back the same, bytes in their largest whole unit, yes and no. bp_config_read of the text
 * reproduces the text. A key that is not set is a comment.
 */
char *bp_config_text(const bp_config *config);
char *bp_config_help(const bp_option *const *used, const bp_key_group *groups);
