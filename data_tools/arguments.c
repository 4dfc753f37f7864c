/* Command lines of tools: argp, with values that go where a table says. */
#include "arguments.h"

#include "base/config/config.h"
#include "base/log.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS_MOST 64 /* rows of a tool's options */

typedef struct parsing {
    const bp_tool *tool;
    struct argp_option rows[OPTIONS_MOST + 1]; /* tool->help.options, each with a key */
    const tool_value *values;
    tool_files *files;
    bool given[OPTIONS_MOST]; /* by the index of its value */
    bp_err err;
} parsing;

/* argp tells options apart by their keys. */
static void number_rows(parsing *self)
{
    const struct argp_option *given = self->tool->help.options;

    for (int k = 0; given && (given[k].name || given[k].doc); k++) {
        BP_ASSERT(k < OPTIONS_MOST);
        self->rows[k] = given[k];
        if (given[k].name && given[k].key == 0)
            self->rows[k].key = 256 + k;
    }
}

static const char *name_of(const parsing *self, int key)
{
    for (const struct argp_option *row = self->rows; row->name || row->doc; row++)
        if (row->name && row->key == key)
            return row->name;
    return "";
}

static bp_err take_number(const tool_value *value, const char *text)
{
    char *end;

    errno = 0;
    *value->number = strtoll(text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && *value->number >= value->low &&
        *value->number <= value->high)
        return BP_OK;
    if (value->high == INT64_MAX)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_number",
                       "'%s' is not a number from %" PRId64 " on: at --%s", text, value->low,
                       value->option);
    return BP_FAIL(BP_ERR_USAGE, "command.bad_number",
                   "'%s' is not a number from %" PRId64 " to %" PRId64 ": at --%s", text,
                   value->low, value->high, value->option);
}

/* Refuse an argument that argp does not understand: an option that the tool has lacks its value, or
 * has one that it does not take; of another one the nearest is named, as it is perhaps another
 * tool's word. */
static bp_err refuse(const bp_tool *tool, const char *argument)
{
    const struct argp_option *row = tool->help.options;
    const char *names[OPTIONS_MOST + 1] = {NULL}, *nearest = "";
    char *word = bp_sprintf("%.*s", (int)strcspn(argument, "="), argument);
    bool is_long = strncmp(word, "--", 2) == 0, has_value = strchr(argument, '=') != NULL;
    int count = 0;

    for (; row && (row->name || row->doc); row++)
        if (row->name) /* else it is the title of a group */
            names[count++] = row->name;
    if (is_long)
        nearest = bp_nearest_word(word + 2, names);
    is_long = is_long && strcmp(word + 2, nearest) == 0;
    bp_free(word);
    if (is_long && has_value)
        return BP_FAIL(BP_ERR_USAGE, "command.no_value",
                       "'--%s' takes no value: at the command line; see %s --help", nearest,
                       tool->help.name);
    if (is_long)
        return BP_FAIL(BP_ERR_USAGE, "command.no_value",
                       "'--%s' lacks its value: at the command line; see %s --help", nearest,
                       tool->help.name);
    return BP_FAIL(BP_ERR_USAGE, "command.not_understood",
                   "'%s' is not understood%s%s: at the command line; see %s --help", argument,
                   nearest[0] ? ", the nearest option is --" : "", nearest, tool->help.name);
}

/* An option of one value: the last one counts. */
static void warn_of_twice(parsing *self, const tool_value *value, const char *text)
{
    int64_t at = value - self->values;

    if (at >= OPTIONS_MOST)
        return;
    if (self->given[at] && strcmp(*value->text, text) != 0)
        BP_WARN("command.given_twice",
                "--%s is given twice: at the command line; the last one, %s, counts", value->option,
                text);
    self->given[at] = true;
}

static error_t take(int key, char *text, struct argp_state *state)
{
    parsing *self = state->input;
    const tool_value *value = self->values;
    const char *name = name_of(self, key);

    if (key == ARGP_KEY_ARGS) {
        *self->files = (tool_files){state->argv + state->next, state->argc - state->next};
        return 0;
    }
    if (key == ARGP_KEY_ERROR && self->err == BP_OK)
        self->err = refuse(self->tool, state->argv[state->next - 1]);
    while (value->option && strcmp(value->option, name) != 0)
        value++;
    if (!value->option)
        return key == ARGP_KEY_ERROR ? 0 : ARGP_ERR_UNKNOWN;
    if (value->flag) {
        *value->flag = true;
    } else if (value->text) {
        warn_of_twice(self, value, text);
        *value->text = text;
    } else if (value->texts) {
        tool_texts *texts = value->texts;

        texts->list = bp_realloc("tool.texts", texts->list, texts->count + 1, sizeof text);
        texts->list[texts->count++] = text;
    } else if (self->err == BP_OK) {
        self->err = take_number(value, text);
    }
    return 0;
}

void tool_warn_of_escapes(const char *separator)
{
    if (separator && (strstr(separator, "\\n") || strstr(separator, "\\t")))
        BP_WARN("command.escapes",
                "it has a backslash and a letter, no line break or tab: at --separator = %.60s; in "
                "bash $'\\n\\n' is an empty line",
                separator);
}

void tool_warn_of_roles(const bp_tokenizer *tokenizer, const char *where)
{
    static const char *const what[BP_DISAGREEMENTS] = {"begins", "ends"};

    if (bp_tokenizer_unread(tokenizer))
        BP_WARN("tokenizer.roles_unread", "%s, and says nothing of special tokens: at %s; mend it",
                bp_tokenizer_unread(tokenizer), where);
    for (int k = 0; k < BP_DISAGREEMENTS; k++)
        if (bp_tokenizer_disagreement(tokenizer, k))
            BP_WARN("tokenizer.roles_disagree",
                    "files disagree on the token that %s a text, %s: at %s; the first one counts, "
                    "mend the others",
                    what[k], bp_tokenizer_disagreement(tokenizer, k), where);
}

bp_err tool_parse(const bp_tool *tool, const tool_value *values, tool_files *files, int argc,
                  char **argv)
{
    parsing self = {.tool = tool, .values = values, .files = files};
    const struct argp parser = {self.rows, take, NULL, NULL, NULL, NULL, NULL};

    number_rows(&self);
    *files = (tool_files){NULL, 0};
    if (argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &self) !=
            0 &&
        self.err == BP_OK)
        self.err = BP_FAIL(BP_ERR_USAGE, "command.not_understood",
                           "the command line is not understood: at %s; see %s --help", tool->name,
                           tool->help.name);
    return self.err;
}
