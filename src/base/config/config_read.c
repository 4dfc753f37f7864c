/* INI files through inih. Its own reader would silently cut lines at 199 bytes and section names
 * at 49, and reports only the first line that it can't parse. The reader here checks the lines
 * before inih sees them. */
#include "base/config/config.h"
#include "base/config/config_priv.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include <ini.h>
#include <stdio.h>
#include <string.h>

#define FILE_LIMIT_BYTES (1 << 20)
#define SECTION_BYTES    49 /* MAX_SECTION of ini.c, less its zero */
#define SPACES           " \t\r\f\v"
#define BOM              "\xEF\xBB\xBF"

typedef struct reader {
    bp_config *config;
    const char *path;
    const char *at, *end; /* what of the text is left */
    int line;
    bool continues;    /* the line before ended with a backslash */
    bool continued;    /* this line goes on with the value of the line before */
    bool needs_pair;   /* this line must give a pair, or is a fault */
    int pairs, others; /* lines that gave one, and that did not */
    char *key;         /* of the pair whose value may go on; NULL if there is no such pair */
    int key_line;
    bp_buffer value;
} reader;

static void add_unknown(bp_config *config, const char *key, const char *where)
{
    bp_buffer advice = {0};

    config_advise(&advice, config, key);
    bp_config_fault(config, "config.unknown_key", "unknown key %s: at %s; %s", key, where,
                    advice.data);
    bp_buffer_clear(&advice);
}

/* Give a complete pair to the configuration. */
static void finish_pair(reader *r)
{
    char where[2 * BP_ERR_LINE_BYTES];

    if (!r->key)
        return;
    config_entry *entry = config_find(r->config, r->key);
    char *value = bp_buffer_take(&r->value);
    (void)snprintf(where, sizeof where, "%s:%d", r->path, r->key_line);
    if (!entry) {
        add_unknown(r->config, r->key, where);
    } else if (entry->line != 0) {
        bp_config_fault(r->config, "config.key_twice",
                        "%s is given twice: at %s, and before in line %d; keep one", r->key, where,
                        entry->line);
    } else {
        entry->line = r->key_line;
        if (config_assign(entry, value, SOURCE_FILE, where) != BP_OK)
            bp_config_fault_err(r->config);
    }
    bp_free(value);
    bp_free(r->key);
    r->key = NULL;
}

/* inih's handler: one call a line that holds (a part of) a pair. */
static int take_pair(void *context, const char *section, const char *name, const char *value)
{
    reader *r = context;

    r->needs_pair = false;
    r->pairs++;
    if (!r->continued) {
        finish_pair(r);
        r->key = section[0] == 0 ? bp_strdup(name) : bp_sprintf("%s.%s", section, name);
        r->key_line = r->line;
    }
    if (r->key)
        bp_buffer_add(&r->value, value, strlen(value));
    return 1;
}

static bool is_space(char c)
{
    return c != 0 && strchr(SPACES, c);
}

/* "[name]" with nothing but a comment after it, and a name that inih keeps whole. */
static bool is_section(const char *line, size_t bytes)
{
    const char *close = memchr(line, ']', bytes);

    if (!close || close - line - 1 > SECTION_BYTES)
        return false;
    const char *p = close + 1, *end = line + bytes;
    while (p < end && is_space(*p))
        p++;
    return p == end || *p == ';' || *p == '#';
}

/* The next line, [*line, *line + *bytes), without its break; false at the end of the text. */
static bool next_line(reader *r, const char **line, size_t *bytes)
{
    if (r->at == r->end)
        return false;
    if (r->line == 0 && r->end - r->at >= 3 && memcmp(r->at, BOM, 3) == 0)
        r->at += 3;
    const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    *line = r->at;
    *bytes = (size_t)((!stop ? r->end : stop) - r->at);
    r->at = !stop ? r->end : stop + 1;
    r->line++;
    if (*bytes > 0 && (*line)[*bytes - 1] == '\r')
        (*bytes)--;
    return true;
}

/* Take off space at both ends. */
static void strip(const char **line, size_t *bytes)
{
    while (*bytes > 0 && is_space((*line)[*bytes - 1]))
        (*bytes)--;
    while (*bytes > 0 && is_space(**line)) {
        (*line)++;
        (*bytes)--;
    }
}

/* What is wrong with a single line, or NULL. It has `whole` bytes; inih gets `fed` bytes, at most
 * `capacity`. */
static const char *line_fault(const char *line, size_t whole, size_t fed, size_t capacity)
{
    if (memchr(line, 0, whole))
        return "a zero byte in the configuration, which is read as UTF-8 text; the rest was not "
               "read";
    if (whole > CONFIG_LINE_BYTES || fed > capacity)
        return "a line longer than 199 bytes; end it with '\\' and go on in the next, or give "
               "the key on the command line";
    return NULL;
}

/* inih's source of lines, as fgets. Leading space is taken off (inih would read an indented line
 * as a continuation), and put before the lines that do continue one. NULL ends the reading, at the
 * end or where the rest can't be parsed. */
static char *read_line(char *out, int size, void *stream)
{
    reader *r = stream;
    const char *line;
    size_t bytes;

    if (r->needs_pair) {
        bp_config_fault(r->config, "config.not_a_pair",
                        "neither [section] nor key = value: at %s:%d", r->path, r->line);
        r->others++;
    }
    r->needs_pair = false;
    if (!next_line(r, &line, &bytes))
        return NULL;
    r->continued = r->continues;
    const char *whole = line;
    size_t whole_bytes = bytes;
    strip(&line, &bytes);
    bool comment = bytes > 0 && (*line == ';' || *line == '#');
    if (!comment) {
        r->continues = bytes > 0 && line[bytes - 1] == '\\';
        bytes -= r->continues;
    }
    const char *fault = line_fault(whole, whole_bytes, bytes + r->continued, (size_t)size - 1);
    if (!fault && bytes > 0 && *line == '[' && !r->continued && !is_section(line, bytes)) {
        bp_config_fault(r->config, "config.bad_section",
                        "not a [section] of at most %d bytes: at %s:%d; the rest was not read",
                        SECTION_BYTES, r->path, r->line);
        r->config->cut = true;
        return NULL;
    }
    if (fault)
        bp_config_fault(r->config, "config.bad_line", "%s: at %s:%d", fault, r->path, r->line);
    if (fault && memchr(whole, 0, whole_bytes)) { /* as in every line of UTF-16 */
        r->config->cut = true;
        return NULL;
    }
    if (fault || comment)
        bytes = 0;
    r->needs_pair = bytes > 0 && *line != '[' && !r->continued;
    (void)snprintf(out, (size_t)size, "%s%.*s", r->continued ? " " : "", (int)bytes, line);
    return out;
}

static bp_err read_file(bp_config *config, const char *path)
{
    char *text;
    size_t bytes;
    bp_err err = bp_file_read(path, FILE_LIMIT_BYTES, &text, &bytes);

    if (err == BP_ERR_FORMAT)
        return BP_ERR_CONFIG;
    if (err != BP_OK)
        return err;
    reader r = {.config = config, .path = path, .at = text, .end = text + bytes};
    /* Its status repeats what the reader found (the first line that is not a pair), or reports out
     * of memory. */
    if (ini_parse_stream(read_line, &r, take_pair, &r) == -2)
        bp_memory_ended("the configuration's text", (int64_t)bytes, 1);
    finish_pair(&r);
    if (r.others > CONFIG_MAX_FAULTS && r.pairs < r.others / 10)
        err = BP_FAIL(BP_ERR_CONFIG, "config.not_ini",
                      "a text and no configuration, whose lines are [section] or key = value: at "
                      "%s; give a configuration, and make a corpus of a text (bagpipe-data corpus)",
                      path);
    bp_buffer_clear(&r.value);
    bp_free(text);
    return err;
}

bool bp_config_is_pair(const char *argument)
{
    const char *equals = strchr(argument, '=');
    size_t bytes = !equals ? 0 : (size_t)(equals - argument);

    if (!equals || memchr(argument, '/', bytes))
        return false;
    return memchr(argument, '.', bytes) || !bp_path_exists(argument);
}

static bp_err read_argument(bp_config *config, const char *argument)
{
    const char *equals = strchr(argument, '=');

    if (!equals)
        return bp_fail(BP_ERR_USAGE, "command.not_a_pair",
                       "\"%s\" is not section.key=value: at the command line", argument);
    char *key = bp_sprintf("%.*s", (int)(equals - argument), argument);
    char *value = bp_strdup(equals + 1 + strspn(equals + 1, SPACES "\n"));
    config_entry *entry = config_find(config, key);

    for (size_t n = strlen(value); n > 0 && strchr(SPACES "\n", value[n - 1]); n--)
        value[n - 1] = 0;
    if (!entry)
        add_unknown(config, key, "the command line");
    else if (config_assign(entry, value, SOURCE_ARGUMENT, "the command line") != BP_OK)
        bp_config_fault_err(config);
    bp_free(key);
    bp_free(value);
    return BP_OK;
}

/* The last one counts, as a batch script's user expects, who adds keys after its own. */
static void warn_of_twice(int count, char *const *arguments)
{
    for (int i = 1; i < count; i++) {
        size_t bytes = strcspn(arguments[i], "=");
        bool differs = false, is_last = true;

        for (int k = 0; k < count; k++) {
            if (strncmp(arguments[k], arguments[i], bytes + 1) != 0)
                continue;
            differs = differs || strcmp(arguments[k], arguments[i]) != 0;
            is_last = is_last && k <= i;
        }
        if (differs && is_last)
            BP_WARN("config.given_twice",
                    "%.*s is given twice: at the command line; the last one, %s, counts",
                    (int)bytes, arguments[i], arguments[i] + bytes + 1);
    }
}

bp_err bp_config_read(bp_config *config, const char *path, int count, char *const *arguments)
{
    bp_err err = BP_OK;

    for (int64_t i = 0; i < config->count; i++)
        config->entries[i].line = 0; /* a key of an earlier file may come again */
    if (path)
        err = read_file(config, path);
    for (int i = 0; err == BP_OK && i < count; i++)
        err = read_argument(config, arguments[i]);
    config_refresh(config);
    if (err != BP_OK)
        return err;
    warn_of_twice(count, arguments);
    if (config->fault_count > 0 && !config->cut)
        config_add_missing(config); /* all faults at once, the missing keys too */
    return bp_config_faults(config);
}
