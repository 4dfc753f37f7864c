/* A configuration as text: config.ini of a run, and the keys in --help. */
#include "base/config/config.h"
#include "base/config/config_priv.h"
#include "base/config/help.h"
#include <stdio.h>
#include <string.h>

static size_t section_bytes(const char *key)
{
    return strcspn(key, ".");
}

static bool same_section(const char *a, const char *b)
{
    size_t bytes = section_bytes(a);

    return bytes == section_bytes(b) && memcmp(a, b, bytes) == 0;
}

/* May a value be cut before value[at]? Spaces at an edge would be lost, and a ';' or '#' begin a
 * comment. */
static bool may_cut(const char *value, size_t at)
{
    return value[at - 1] != ' ' && !strchr(" ;#", value[at]);
}

/* "name = value", in lines that the reader accepts, broken after a comma where possible. */
static void add_pair(bp_buffer *out, const char *name, const char *value)
{
    size_t capacity = CONFIG_LINE_BYTES - 1; /* and the backslash */
    size_t used = strlen(name) + 3;

    bp_buffer_printf(out, "%s = ", name);
    for (size_t left = strlen(value); used + left > CONFIG_LINE_BYTES;) {
        size_t cut = 0;
        for (size_t at = capacity - used; at > 0 && cut == 0; at--)
            if (value[at - 1] == ',' && may_cut(value, at))
                cut = at;
        for (size_t at = capacity - used; at > 0 && cut == 0; at--)
            if (may_cut(value, at))
                cut = at;
        if (cut == 0)
            break; /* hundreds of spaces in a row: the reader will say so */
        bp_buffer_add(out, value, cut);
        bp_buffer_printf(out, "\\\n    ");
        value += cut;
        left -= cut;
        used = 4;
    }
    bp_buffer_printf(out, "%s\n", value);
}

char *bp_config_text(const bp_config *config)
{
    bp_buffer out = {0};

    for (int64_t i = 0; i < config->count; i++) {
        const config_entry *first = &config->entries[i];
        bool seen = !first->used;
        for (int64_t j = 0; j < i && !seen; j++)
            seen = config->entries[j].used &&
                   same_section(config->entries[j].option->key, first->option->key);
        if (seen)
            continue;
        size_t bytes = section_bytes(first->option->key);
        bp_buffer_printf(&out, "%s[%.*s]\n", out.bytes > 0 ? "\n" : "", (int)bytes,
                         first->option->key);
        for (int64_t j = i; j < config->count; j++) {
            const config_entry *entry = &config->entries[j];
            if (!entry->used || !same_section(entry->option->key, first->option->key))
                continue;
            if (!entry->text)
                bp_buffer_printf(&out, "; %s =\n", entry->option->key + bytes + 1);
            else
                add_pair(&out, entry->option->key + bytes + 1, entry->text);
        }
    }
    return bp_buffer_take(&out);
}

/* ---- help ---- */

#define CHOICES_BYTES 45 /* a longer list is broken into lines, at its spaces */

static void add_choices(bp_buffer *out, const char *choices)
{
    bool breaks = strlen(choices) > CHOICES_BYTES;

    for (const char *at = choices; *at; at++)
        bp_buffer_add(out, *at == '|' && breaks ? "| " : at, *at == '|' && breaks ? 2 : 1);
}

/* What a key means, and its type or choices: "integer, 1 to 64", "tree|running". */
static void add_row(bp_buffer *out, const bp_option *row, int indent)
{
    static const char *const names[] = {[BP_OPTION_STRING] = "text",
                                        [BP_OPTION_INT] = "integer",
                                        [BP_OPTION_REAL] = "number",
                                        [BP_OPTION_BOOL] = "yes|no",
                                        [BP_OPTION_BYTES] = "bytes"};
    bp_buffer meaning = {0};

    bp_buffer_printf(&meaning, "%s (", row->help);
    if (row->type == BP_OPTION_CHOICE)
        add_choices(&meaning, row->choices);
    else
        bp_buffer_printf(&meaning, "%s", row->unit ? row->unit : names[row->type]);
    config_describe_bounds(&meaning, row);
    if (row->value)
        bp_buffer_printf(&meaning, "; default %s", row->value);
    if (!row->value && row->required)
        bp_buffer_printf(&meaning, "; %srequired%s", row->required & BP_REQUIRED_ONE ? "one " : "",
                         row->required & BP_REQUIRED_ASKED ? " of most models" : "");
    bp_buffer_printf(&meaning, ")");
    bp_help_add_row(out, row->key, meaning.data, indent);
    bp_buffer_clear(&meaning);
}

/* Did a row of the same section come before `row` of `table`? */
static bool section_begun(const bp_option *const *tables, const bp_option *row)
{
    for (; *tables; tables++)
        for (const bp_option *before = *tables; before->key; before++) {
            if (before == row)
                return false;
            if (same_section(before->key, row->key))
                return true;
        }
    return false;
}

static void add_section(bp_buffer *out, const bp_option *const *tables, const char *key, int indent)
{
    bp_buffer_printf(out, "\n[%.*s]\n", (int)section_bytes(key), key);
    for (; *tables; tables++)
        for (const bp_option *row = *tables; row->key; row++)
            if (same_section(row->key, key))
                add_row(out, row, indent);
}

/* The width of the longest key, at least `least`. */
static int indent_of(const bp_option *rows, int least)
{
    for (; rows->key; rows++)
        if ((int)strlen(rows->key) + 4 > least)
            least = (int)strlen(rows->key) + 4;
    return least;
}

char *bp_config_help(const bp_option *const *used, const bp_key_group *groups)
{
    static const bp_key_group NONE = {.rows = NULL};
    int indent = 0;
    bp_buffer out = {0};

    groups = groups ? groups : &NONE;
    for (const bp_option *const *table = used; *table; table++)
        indent = indent_of(*table, indent);
    for (const bp_key_group *group = groups; group->rows; group++)
        indent = indent_of(group->rows, indent);
    for (const bp_option *const *table = used; *table; table++)
        for (const bp_option *row = *table; row->key; row++)
            if (!section_begun(used, row))
                add_section(&out, used, row->key, indent);
    for (; groups->rows; groups++) {
        bp_buffer_printf(&out, "\n%s:\n", groups->head);
        for (const bp_option *row = groups->rows; row->key; row++)
            add_row(&out, row, indent);
    }
    return bp_buffer_take(&out);
}
