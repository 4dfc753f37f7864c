/* A configuration: its entries, typed values, faults. config_read.c fills it from the file and
 * the command line. */
#include "base/config/config.h"
#include "base/config/config_priv.h"
#include "base/config/unused.h"
#include "base/mem.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int64_t count_rows(const bp_option *const *tables)
{
    int64_t count = 0;

    for (; *tables; tables++)
        for (const bp_option *row = *tables; row->key; row++)
            count++;
    return count;
}

/* Tables of several jobs may share rows: a key has one entry, used if any of the job's own tables
 * has it. */
static void add_tables(bp_config *config, const bp_option *const *tables, bool used)
{
    for (; *tables; tables++)
        for (const bp_option *row = *tables; row->key; row++) {
            if (config_find(config, row->key))
                continue;
            config_entry *entry = &config->entries[config->count++];
            entry->option = row;
            entry->used = used;
            if (row->value) /* a default that its own table refuses is a bug */
                BP_CHECK(config_assign(entry, row->value, SOURCE_DEFAULT, "the default") == BP_OK);
        }
}

bp_err bp_config_new(bp_config **out, const bp_option *const *tables, const bp_option *const *used)
{
    int64_t rows = count_rows(tables) + count_rows(used);
    bp_config *config = bp_alloc("base.config", 1, sizeof *config);

    config->entries = bp_alloc("base.config", rows, sizeof *config->entries);
    add_tables(config, used, true);
    add_tables(config, tables, false);
    *out = config;
    return BP_OK;
}

bp_err bp_config_derive(bp_config **out, const bp_config *from, const bp_option *const *tables,
                        const bp_option *const *used)
{
    bp_err err = bp_config_new(out, tables, used);

    for (int64_t i = 0; err == BP_OK && i < (*out)->count; i++) {
        config_entry *entry = &(*out)->entries[i];
        const config_entry *known = config_find(from, entry->option->key);

        if (known && known->text && known->source != SOURCE_DEFAULT)
            err = config_assign(entry, known->text, known->source, "another job");
    }
    if (err != BP_OK)
        bp_config_free(out);
    return err;
}

void bp_config_free(bp_config **config)
{
    if (!*config)
        return;
    for (int64_t i = 0; i < (*config)->count; i++)
        bp_free((*config)->entries[i].text);
    for (int k = 0; k < (*config)->bound_count; k++)
        bp_free((*config)->bound[k].keys);
    bp_free((*config)->bound);
    bp_buffer_clear(&(*config)->faults);
    bp_free((*config)->entries);
    bp_free(*config);
    *config = NULL;
}

bool bp_option_is(const bp_option *option, const char *key)
{
    return strcmp(option->key, key) == 0 || (option->was && strcmp(option->was, key) == 0);
}

config_entry *config_find(const bp_config *config, const char *key)
{
    for (int64_t i = 0; i < config->count; i++)
        if (bp_option_is(config->entries[i].option, key))
            return &config->entries[i];
    return NULL;
}

const char *bp_config_next_unused(const bp_config *config, int64_t *at)
{
    while (*at < config->count) {
        const config_entry *entry = &config->entries[(*at)++];

        if (!entry->used && entry->source == SOURCE_ARGUMENT)
            return entry->option->key;
    }
    return NULL;
}

static const char *after_section(const char *key)
{
    const char *dot = strchr(key, '.');

    return !dot ? key : dot + 1;
}

/* How many letters a word without a dot lacks to be the section of `known`, which it begins;
 * CONFIG_COMPARED_BYTES if it does not begin it. */
static int section_distance(const char *word, const char *known)
{
    size_t bytes = strlen(word), section = strcspn(known, ".");

    if (bytes == 0 || bytes > section || strncmp(word, known, bytes) != 0)
        return CONFIG_COMPARED_BYTES;
    return (int)(section - bytes);
}

/* A right name in a wrong section (or without a section) is nearer than any misspelling of more
 * than one letter. A key of other jobs is one only if a letter of it is wrong.
 */
static const char *nearest_key(const bp_config *config, const char *key)
{
    const char *nearest = "";
    int least = 2 * CONFIG_COMPARED_BYTES + 1;

    for (int64_t i = 0; i < config->count; i++) {
        const char *known = config->entries[i].option->key;
        int distance = 2 * config_edit_distance(key, known);
        int inside = 3 + 2 * config_edit_distance(after_section(key), after_section(known));
        int of_section = 3 + 2 * section_distance(key, known);
        if (inside < distance)
            distance = inside;
        if (of_section < distance)
            distance = of_section;
        if (distance < least && (config->entries[i].used || distance <= 2)) {
            least = distance;
            nearest = known;
        }
    }
    return nearest;
}

/* The next word of a list separated by spaces: its length in bytes, 0 at the end. */
static int next_word(const char **list, const char **word)
{
    int bytes;

    if (!*list)
        return 0;
    *list += strspn(*list, " ");
    *word = *list;
    bytes = (int)strcspn(*list, " ");
    *list += bytes;
    return bytes;
}

/* Are all of "train.batch mesh.micro_batch" known? Keys come in versions. */
static bool are_known(const bp_config *config, const char *keys)
{
    char key[CONFIG_COMPARED_BYTES + 1];
    const char *at;

    for (int bytes; (bytes = next_word(&keys, &at)) > 0;) {
        (void)snprintf(key, sizeof key, "%.*s", bytes, at);
        if (!config_find(config, key))
            return false;
    }
    return true;
}

/* Is it among the words of the list? Case does not count, nor does '-' for '_'. */
static bool is_among(const char *given, const char *words)
{
    const char *word;

    for (int bytes; (bytes = next_word(&words, &word)) > 0;) {
        int same = 0;

        while (same < bytes &&
               (given[same] == '-' ? '_' : tolower((unsigned char)given[same])) == word[same])
            same++;
        if (same == bytes && given[same] == 0)
            return true;
    }
    return false;
}

/* A word with its section before one without. */
static const config_word *find_word(const bp_config *config, const char *key)
{
    for (int whole = 1; whole >= 0; whole--)
        for (const config_word *row = config_words; row->words; row++)
            if (is_among(whole ? key : after_section(key), row->words) &&
                are_known(config, row->keys))
                return row;
    return NULL;
}

void config_advise(bp_buffer *out, const bp_config *config, const char *key)
{
    const config_word *row = find_word(config, key);

    if (!row) {
        bp_buffer_printf(out, "the nearest is %s", nearest_key(config, key));
        return;
    }
    const char *keys = row->keys, *one;
    for (int bytes; (bytes = next_word(&keys, &one)) > 0;)
        bp_buffer_printf(out, "%s%.*s", one == row->keys ? "use " : " and ", bytes, one);
    if (row->note)
        bp_buffer_printf(out, row->keys ? " (%s)" : "%s", row->note);
}

/* The entry for a getter. A key that no table has, another type, or a number that is not set is
 * our bug. */
static const config_entry *typed(const bp_config *config, const char *key, bp_option_type type,
                                 bp_option_type or_type)
{
    const config_entry *entry = config_find(config, key);

    BP_ASSERT(entry && (entry->option->type == type || entry->option->type == or_type));
    BP_ASSERT(type == BP_OPTION_STRING || entry->text);
    return entry;
}

bool bp_config_is_set(const bp_config *config, const char *key)
{
    const config_entry *entry = config_find(config, key);

    BP_ASSERT(entry != NULL);
    return entry->text != NULL;
}

bool bp_config_is_given(const bp_config *config, const char *key)
{
    const config_entry *entry = config_find(config, key);

    BP_ASSERT(entry != NULL);
    return entry->source == SOURCE_FILE || entry->source == SOURCE_ARGUMENT;
}

char *bp_config_default(const bp_option *option)
{
    config_entry usual = {.option = option};

    if (option->value && config_assign(&usual, option->value, SOURCE_DEFAULT, "") != BP_OK)
        return bp_strdup(option->value);
    return usual.text;
}

bool bp_config_departs(const bp_config *config, const char *key)
{
    const config_entry *entry = config_find(config, key);
    char *usual;
    bool departs;

    if (!entry || !bp_config_is_given(config, key) || !entry->text)
        return false;
    usual = bp_config_default(entry->option);
    departs = !usual || strcmp(usual, entry->text) != 0;
    bp_free(usual);
    return departs;
}

const char *bp_config_string(const bp_config *config, const char *key)
{
    return typed(config, key, BP_OPTION_STRING, BP_OPTION_CHOICE)->text;
}

int64_t bp_config_int(const bp_config *config, const char *key)
{
    return typed(config, key, BP_OPTION_INT, BP_OPTION_BYTES)->integer;
}

double bp_config_real(const bp_config *config, const char *key)
{
    return typed(config, key, BP_OPTION_REAL, BP_OPTION_REAL)->real;
}

bool bp_config_bool(const bp_config *config, const char *key)
{
    return typed(config, key, BP_OPTION_BOOL, BP_OPTION_BOOL)->integer != 0;
}

/* What a row's field holds of the entry, and its size in bytes. */
static const void *field_of(const config_entry *entry, const bp_option *row, bool *flag,
                            size_t *bytes)
{
    switch (row->type) {
    case BP_OPTION_INT:
    case BP_OPTION_BYTES:
        *bytes = sizeof(int64_t);
        return &entry->integer;
    case BP_OPTION_REAL:
        *bytes = sizeof(double);
        return &entry->real;
    case BP_OPTION_BOOL:
        *bytes = sizeof(bool);
        *flag = entry->integer != 0;
        return flag;
    default:
        *bytes = sizeof(const char *);
        return &entry->text;
    }
}

static void fill_bound(const bp_config *config, const config_bound *bound)
{
    for (const bp_option *row = bound->table; row->key; row++) {
        const config_entry *entry = config_find(config, row->key);
        char *to = bound->keys + row->at - 1;
        size_t bytes;
        bool flag;

        if (row->at == 0 || !entry)
            continue;
        const void *from = field_of(entry, row, &flag, &bytes);
        if (entry->text)
            memcpy(to, from, bytes);
        else
            memset(to, 0, bytes);
    }
}

const void *bp_config_bound(const bp_config *config, const bp_option *table)
{
    bp_config *own =
        (bp_config *)config; /* what is bound once stays, and is not a change to a reader */
    int last = 0;

    for (int k = 0; k < own->bound_count; k++)
        if (own->bound[k].table == table)
            return own->bound[k].keys;
    for (const bp_option *row = table; row->key; row++)
        last = row->at > last ? row->at : last;
    own->bound = bp_realloc("base.config", own->bound, own->bound_count + 1, sizeof *own->bound);
    own->bound[own->bound_count] =
        (config_bound){table, bp_alloc("base.config", last + (int)sizeof(int64_t), 1)};
    fill_bound(own, &own->bound[own->bound_count]);
    return own->bound[own->bound_count++].keys;
}

void config_refresh(const bp_config *config)
{
    for (int k = 0; k < config->bound_count; k++)
        fill_bound(config, &config->bound[k]);
}

bp_err bp_config_set_from(bp_config *config, const char *key, const char *value, const char *where)
{
    config_entry *entry = config_find(config, key);

    BP_ASSERT(entry != NULL);
    config_source source = bp_config_is_given(config, key) ? entry->source : SOURCE_RESOLVED;
    bp_err err = config_assign(entry, value, source, where);
    config_refresh(config);
    return err;
}

bp_err bp_config_set(bp_config *config, const char *key, const char *value)
{
    return bp_config_set_from(config, key, value, "a value resolved by the program");
}

bp_err bp_config_set_int(bp_config *config, const char *key, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, value);
    return bp_config_set(config, key, text);
}

/* Each line is one fault: line breaks within it become spaces. */
static void add_fault(bp_config *config, const char *line, const char *id)
{
    bp_buffer *out = &config->faults;

    if (++config->fault_count > CONFIG_MAX_FAULTS)
        return;
    if (config->fault_count > 1)
        bp_buffer_add(out, "\n", 1);
    for (; *line != 0; line++)
        bp_buffer_add(out, *line == '\n' ? " " : line, 1);
    if (id)
        bp_buffer_printf(out, " [%s]", id);
}

void bp_config_fault(bp_config *config, const char *id, const char *format, ...)
{
    char line[2 * BP_ERR_LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    add_fault(config, line, id);
}

void bp_config_fault_err(bp_config *config)
{
    add_fault(config, bp_err_message(), NULL);
}

bp_err bp_config_faults(bp_config *config)
{
    int count = config->fault_count;

    if (count == 0)
        return BP_OK;
    if (count > CONFIG_MAX_FAULTS)
        bp_buffer_printf(&config->faults, "\n... and %d faults more [config.more_faults]",
                         count - CONFIG_MAX_FAULTS);
    config->fault_count = 0;
    char *text = bp_buffer_take(&config->faults);
    bp_err_set_message(text);
    bp_free(text);
    return BP_ERR_CONFIG;
}

static bool is_one_of(const config_entry *entry)
{
    return entry->used && (entry->option->required & BP_REQUIRED_ONE);
}

/* Among entries [first, end) at most one has a value; one has, if it is `needed`. */
static void check_one(bp_config *config, int64_t first, int64_t end, bool needed)
{
    bp_buffer all = {0}, given = {0};
    int set = 0, refused = 0;

    for (int64_t i = first; i < end; i++) {
        const config_entry *entry = &config->entries[i];

        bp_buffer_printf(&all, "%s%s", i > first ? ", " : "", entry->option->key);
        refused += entry->refused;
        if (!entry->text)
            continue;
        bp_buffer_printf(&given, "%s%s = %s", set++ > 0 ? " and " : "", entry->option->key,
                         entry->text);
    }
    char *keys = bp_buffer_take(&all), *pairs = bp_buffer_take(&given);
    if (needed && set == 0 && refused == 0)
        bp_config_fault(config, "config.missing_key",
                        "none of %s is set, and the job needs one: %s; give %s=...", keys,
                        config->entries[first].option->help, config->entries[first].option->key);
    if (set > 1)
        bp_config_fault(config, "config.exclusive_keys",
                        "%s exclude each other: at %s; leave one out (an empty %s= on the command "
                        "line unsets it)",
                        pairs, config->entries[first].option->key,
                        config->entries[first].option->key);
    bp_free(keys);
    bp_free(pairs);
}

/* The first entry after those that exclude each other with entry `first`. */
static int64_t end_of_group(const bp_config *config, int64_t first)
{
    int64_t end = first + 1;

    while (end < config->count && is_one_of(&config->entries[end]))
        end++;
    return end;
}

static void check_set(bp_config *config, const config_entry *entry)
{
    if (entry->used && !entry->text && !entry->refused)
        bp_config_fault(config, "config.missing_key",
                        "%s is not set, and the job needs it: %s; give %s=...", entry->option->key,
                        entry->option->help, entry->option->key);
}

void config_add_missing(bp_config *config)
{
    for (int64_t i = 0; i < config->count; i++) {
        const config_entry *entry = &config->entries[i];
        bool asked = entry->option->required & BP_REQUIRED_ASKED;

        if (is_one_of(entry)) {
            int64_t end = end_of_group(config, i);

            check_one(config, i, end, !asked);
            i = end - 1;
        } else if (entry->option->required && !asked) {
            check_set(config, entry);
        }
    }
    if (config->require)
        config->require(config);
}

void bp_config_require_by(bp_config *config, void (*require)(bp_config *config))
{
    config->require = require;
}

void bp_config_require(bp_config *config, const char *key)
{
    const config_entry *entry = config_find(config, key);

    BP_ASSERT(entry && (entry->option->required & BP_REQUIRED_ASKED));
    int64_t first = entry - config->entries;

    if (!is_one_of(entry)) {
        check_set(config, entry);
        return;
    }
    for (int64_t i = first; i < end_of_group(config, first); i++)
        if (config->entries[i].text)
            return; /* two of them: already reported as a fault */
    check_one(config, first, end_of_group(config, first), true);
}

bp_err bp_config_check(bp_config *config)
{
    config_add_missing(config);
    return bp_config_faults(config);
}

void bp_config_each(const bp_config *config,
                    void (*visit)(void *context, const bp_option *option, const char *value),
                    void *context)
{
    for (int64_t i = 0; i < config->count; i++)
        if (config->entries[i].used)
            visit(context, config->entries[i].option, config->entries[i].text);
}
