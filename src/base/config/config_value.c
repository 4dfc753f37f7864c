/* One value of a key: parsed, compared with its bounds, described in messages. */
#include "base/config/config_priv.h"
#include "base/config/decimal.h"
#include "base/mem.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int64_t bytes;
} byte_units[] = {/* first the form that is written, then forms that are only read */
                  {"GiB", INT64_C(1) << 30},
                  {"MiB", INT64_C(1) << 20},
                  {"KiB", INT64_C(1) << 10},
                  {"G", 1000000000},
                  {"M", 1000000},
                  {"k", 1000},
                  {"", 1}};
#define BYTE_UNITS         (sizeof byte_units / sizeof byte_units[0])
#define BINARY_UNITS       3
#define DIGITS             "0123456789"
#define SHOWN_BYTES        80  /* of a wrong value in a message */
#define MOST_CHOICES_BYTES 200 /* of choices that a message lists */
#define SHOWN_BOUND        1e4 /* greater ones do not help */

typedef struct parsed {
    int64_t integer;
    double real;
    char text[64]; /* canonical form of values that are not text */
} parsed;

/* [+-]digits at the start of `text`; *end is what follows. */
static bool parse_digits(const char *text, int64_t *out, const char **end)
{
    const char *digits = text + (*text == '-' || *text == '+');
    char *stop;

    if (strspn(digits, DIGITS) == 0)
        return false;
    errno = 0;
    long long number = strtoll(text, &stop, 10);
    *end = stop;
    *out = number;
    return errno == 0;
}

static bool parse_int(const char *text, parsed *out)
{
    const char *end;

    if (!parse_digits(text, &out->integer, &end) || *end != 0)
        return false;
    (void)snprintf(out->text, sizeof out->text, "%lld", (long long)out->integer);
    return true;
}

static bool parse_bytes(const char *text, parsed *out)
{
    const char *end;
    size_t unit = 0;

    if (!parse_digits(text, &out->integer, &end))
        return false;
    end += strspn(end, " ");
    while (unit < BYTE_UNITS && strcmp(end, byte_units[unit].name) != 0)
        unit++;
    if (unit == BYTE_UNITS ||
        __builtin_mul_overflow(out->integer, byte_units[unit].bytes, &out->integer))
        return false;
    for (unit = 0; unit < BINARY_UNITS; unit++)
        if (out->integer != 0 && out->integer % byte_units[unit].bytes == 0)
            break;
    if (unit == BINARY_UNITS)
        unit = BYTE_UNITS - 1;
    (void)snprintf(out->text, sizeof out->text, "%lld%s%s",
                   (long long)(out->integer / byte_units[unit].bytes),
                   byte_units[unit].name[0] == 0 ? "" : " ", byte_units[unit].name);
    return true;
}

static bool parse_real(const char *text, parsed *out)
{
    if (!bp_decimal(&out->real, text, strlen(text)) ||
        (out->real == 0 && text[strcspn(text, "123456789")] != 0 &&
         strcspn(text, "123456789") < strcspn(text, "eE"))) /* it is too small for a double */
        return false;
    for (int digits = 1; digits <= 17; digits++) { /* the shortest form that reads back the same */
        (void)snprintf(out->text, sizeof out->text, "%.*g", digits, out->real);
        if (strtod(out->text, NULL) == out->real)
            break;
    }
    return true;
}

static bool parse_bool(const char *text, parsed *out)
{
    static const char *const words[] = {"no", "yes", "false", "true", "0", "1"};

    for (int i = 0; i < 6; i++) {
        if (strcmp(text, words[i]) != 0)
            continue;
        out->integer = i % 2;
        (void)snprintf(out->text, sizeof out->text, "%s", words[i % 2]);
        return true;
    }
    return false;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t bytes = strlen(text);

    for (const char *p = choices; bytes > 0 && *p != 0; p += *p == '|') {
        size_t length = strcspn(p, "|");
        if (length == bytes && memcmp(p, text, bytes) == 0)
            return true;
        p += length;
    }
    return false;
}

/* Text that an INI file can't hold would read back differently from config.ini. */
static const char *unwritable(const char *text)
{
    char before = ' ';

    for (const char *p = text; *p != 0; before = *p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return "holds a control character";
        if (*p == ';' && before == ' ')
            return "holds ';' after a space, where a comment would begin";
        if (*p == '#' && before == ' ')
            return "holds '#' after a space; comments after a value begin with ' ;'";
    }
    return before == '\\' ? "ends with '\\', which continues a line" : NULL;
}

static bool parse(const bp_option *option, const char *value, parsed *out)
{
    switch (option->type) {
    case BP_OPTION_INT:
        return parse_int(value, out);
    case BP_OPTION_BYTES:
        return parse_bytes(value, out);
    case BP_OPTION_REAL:
        return parse_real(value, out);
    case BP_OPTION_BOOL:
        return parse_bool(value, out);
    case BP_OPTION_CHOICE:
        return is_choice(option->choices, value);
    case BP_OPTION_STRING:
        return true;
    }
    return false;
}

static bool has_bounds(const bp_option *option)
{
    return option->min != 0 || option->max != 0;
}

/* As integers: a double can't represent all of them. A bound beyond 2^63 does not limit. */
static bool is_between(int64_t value, double min, double max)
{
    return (min < -0x1p63 || value >= (int64_t)ceil(min)) &&
           (max >= 0x1p63 || value <= (int64_t)floor(max));
}

static bool in_range(const bp_option *option, const parsed *value)
{
    if (!has_bounds(option) || option->type == BP_OPTION_STRING || option->type == BP_OPTION_BOOL ||
        option->type == BP_OPTION_CHOICE)
        return true;
    return option->type == BP_OPTION_REAL ? value->real >= option->min && value->real <= option->max
                                          : is_between(value->integer, option->min, option->max);
}

/* Bounds of integers are written as integers: "1000000", not "1e+06". */
static void add_number(bp_buffer *out, const bp_option *option, double number)
{
    parsed value;
    char text[32];

    if (option->type == BP_OPTION_REAL || fabs(number) >= 0x1p63) {
        bp_buffer_printf(out, "%.10g", number);
        return;
    }
    (void)snprintf(text, sizeof text, "%.0f", number);
    bool parsed_well =
        option->type == BP_OPTION_BYTES ? parse_bytes(text, &value) : parse_int(text, &value);
    bp_buffer_printf(out, "%s", parsed_well ? value.text : text);
}

/* "from 1 to 8", "gpipe, 1f1b", or nothing: what the type leaves open. */
static void describe_range(bp_buffer *out, const bp_option *option)
{
    bool below = isfinite(option->min), above = isfinite(option->max) && option->max < 0x1p62;

    if (option->type == BP_OPTION_CHOICE) {
        for (const char *p = option->choices; *p != 0; p++)
            bp_buffer_printf(out, *p == '|' ? ", " : "%c", *p);
    } else if (has_bounds(option) && (below || above)) {
        bp_buffer_printf(out, below && above ? "from " : below ? "at least " : "at most ");
        if (below)
            add_number(out, option, option->min);
        if (above) {
            bp_buffer_printf(out, below ? " to " : "");
            add_number(out, option, option->max);
        }
    }
}

void config_describe_bounds(bp_buffer *out, const bp_option *option)
{
    bool above = option->max < SHOWN_BOUND;

    if (option->type == BP_OPTION_CHOICE || !has_bounds(option) || !isfinite(option->min) ||
        (!above && option->min == 0))
        return;
    bp_buffer_printf(out, ", ");
    add_number(out, option, option->min);
    bp_buffer_printf(out, above ? " to " : " or more");
    if (above)
        add_number(out, option, option->max);
}

/* By type: the message for a wrong value, and what to give instead. */
static const struct {
    const char *is_not, *give;
} TYPES[] = {[BP_OPTION_STRING] = {"is not text", "text"},
             [BP_OPTION_INT] = {"is not an integer", "an integer"},
             [BP_OPTION_REAL] = {"is not a number", "a number"},
             [BP_OPTION_BOOL] = {"is not yes or no", "yes or no"},
             [BP_OPTION_CHOICE] = {"is not a choice", "one of"},
             [BP_OPTION_BYTES] = {"is not a number of bytes", "bytes (KiB, MiB, GiB, k, M, G)"}};

/* The nearest of very many choices, if it may be meant: half of its letters are right. */
static bp_err fail_choice(const bp_option *option, const char *value, const char *where)
{
    char *choices = bp_strdup(option->choices), *rest = choices;
    const char **words = bp_alloc("config.choices", (int64_t)strlen(choices) + 2, sizeof *words);
    const char *nearest;
    bool is_near;
    int count = 0;
    bp_err err;

    for (char *word; (word = strsep(&rest, "|"));)
        words[count++] = word;
    nearest = bp_nearest_word(value, words);
    is_near = 2 * config_edit_distance(value, nearest) <= (int)strlen(nearest);
    err = bp_fail(BP_ERR_CONFIG, "config.bad_value",
                  "%s = %.*s%s is not a choice: at %s; %s%s%s--help lists all %d", option->key,
                  SHOWN_BYTES, value, strlen(value) > SHOWN_BYTES ? "..." : "", where,
                  is_near ? "the nearest is " : "", is_near ? nearest : "", is_near ? ", and " : "",
                  count);
    bp_free(words);
    bp_free(choices);
    return err;
}

/* "; give an integer from 1 to 8", "; give one of gpipe, 1f1b". */
static bp_err fail_value(const bp_option *option, const char *value, const char *what,
                         const char *where)
{
    bp_buffer range = {0};
    bp_err err;

    if (option->type == BP_OPTION_CHOICE && strlen(option->choices) > MOST_CHOICES_BYTES)
        return fail_choice(option, value, where);
    describe_range(&range, option);
    err = bp_fail(BP_ERR_CONFIG, "config.bad_value", "%s = %.*s%s %s: at %s; give %s%s%s",
                  option->key, SHOWN_BYTES, value, strlen(value) > SHOWN_BYTES ? "..." : "", what,
                  where, TYPES[option->type].give, range.bytes > 0 ? " " : "",
                  range.bytes > 0 ? range.data : "");
    bp_buffer_clear(&range);
    return err;
}

static bp_err assign_empty(config_entry *entry, config_source source, const char *where)
{
    if (entry->option->value)
        return bp_fail(BP_ERR_CONFIG, "config.empty_value",
                       "%s has no value: at %s; leave the key out for its default, %s",
                       entry->option->key, where, entry->option->value);
    bp_free(entry->text);
    entry->text = NULL;
    entry->source = source;
    return BP_OK;
}

bp_err config_assign(config_entry *entry, const char *value, config_source source,
                     const char *where)
{
    const bp_option *option = entry->option;
    parsed out = {0, 0, ""};

    if (value[0] == 0)
        return assign_empty(entry, source, where);
    const char *fault = unwritable(value);
    if (!fault && !parse(option, value, &out))
        fault = TYPES[option->type].is_not;
    if (!fault && !in_range(option, &out))
        fault = "is out of range";
    entry->refused = fault != NULL;
    if (fault)
        return fail_value(option, value, fault, where);
    char *text = bp_strdup(out.text[0] == 0 ? value : out.text);
    bp_free(entry->text);
    entry->text = text;
    entry->integer = out.integer;
    entry->real = out.real;
    entry->source = source;
    return BP_OK;
}
