/* What the parts of the configuration share: config.c (keys and values), config_value.c (one
 * value), config_read.c (INI and arguments), config_text.c (config.ini and --help). */
#pragma once

#include "base/buffer.h"
#include "base/config/config.h"

#define CONFIG_MAX_FAULTS 20

typedef enum config_source {
    SOURCE_DEFAULT,
    SOURCE_RESOLVED,
    SOURCE_FILE,
    SOURCE_ARGUMENT
} config_source;

typedef struct config_entry {
    const bp_option *option;
    bool used;       /* in a table of this job */
    char *text;      /* in canonical form; NULL: not set */
    int64_t integer; /* INT, BYTES, BOOL */
    double real;     /* REAL */
    config_source source;
    bool refused; /* a value was given, and was wrong */
    int line;     /* in the file; 0 if not given there */
} config_entry;

/* A table's struct, filled. */
typedef struct config_bound {
    const bp_option *table;
    char *keys;
} config_bound;

struct bp_config {
    config_bound *bound;
    int bound_count;
    config_entry *entries;
    int64_t count;
    bp_buffer faults; /* lines */
    int fault_count;
    void (*require)(bp_config *config); /* bp_config_require_by; NULL: no table asks */
    bool cut;                           /* the rest of the file could not be parsed */
};

config_entry *config_find(const bp_config *config, const char *key);
/** Update the structs of bp_config_bound after values have changed. */
void config_refresh(const bp_config *config);

/** Words of other programs, and our keys for them (config_words.c). */
typedef struct config_word {
    const char *words; /* in lower case, separated by spaces; "score.data" only in that section */
    const char *keys;  /* "train.batch mesh.micro_batch"; NULL if there is no such key */
    const char *note;  /* what these keys mean, or what to use instead of a key; may be NULL */
} config_word;
extern const config_word config_words[]; /* ends with a row whose words are NULL */

/** Add what to use instead of an unknown key: "use train.steps" if other programs use that word,
 * else "the nearest is train.steps" by edit distance. */
void config_advise(bp_buffer *out, const bp_config *config, const char *key);

#define CONFIG_COMPARED_BYTES 63

/** The number of letters to insert, to delete or to change; case does not count. Only the first
 * CONFIG_COMPARED_BYTES are compared. */
int config_edit_distance(const char *a, const char *b);

/** Check `value` and put it into the entry, in canonical form.
 *
 * `where` is in the message: "run.ini:12". An empty value unsets a key without a default.
 * Errors: BP_ERR_CONFIG, BP_ERR_SYSTEM.
 */
bp_err config_assign(config_entry *entry, const char *value, config_source source,
                     const char *where);

/** ", 1 to 64", ", 1 or more", or nothing, for --help: a bound from 10,000 up only guards the
 * arithmetic, and is shown in the message about a value that exceeds it. */
void config_describe_bounds(bp_buffer *out, const bp_option *option);

/** Add a fault for each required key of the job that is not set, and for keys that exclude each
 * other. */
void config_add_missing(bp_config *config);

/** The longest line of an INI file, without its line break: inih's default, which Debian's build
 * can't exceed. A value goes on in the next line after a backslash at the line's end. */
#define CONFIG_LINE_BYTES 199
