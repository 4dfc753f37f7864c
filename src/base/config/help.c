/* The text of --help: usage, options, keys, examples, exit statuses, wrapped to a terminal. */
#include "base/config/help.h"
#include "base/mem.h"
#include "base/process/standard_output.h"

#include <ctype.h>
#include <string.h>

#define OPTION_INDENT 25 /* where the meaning of an option begins */

static void add_paragraphs(bp_buffer *out, const char *text)
{
    while (*text != 0) {
        size_t bytes = strcspn(text, "\n");
        char *paragraph = bp_sprintf("%.*s", (int)bytes, text);

        bp_buffer_printf(out, "\n");
        bp_help_add_text(out, paragraph, 0, 0);
        bp_free(paragraph);
        text += bytes;
        text += strspn(text, "\n");
    }
}

/* ---- lists ---- */

static void add_list(bp_buffer *out, const char *head, const bp_help_row *rows)
{
    int indent = 0;

    for (const bp_help_row *row = rows; row->name; row++)
        if ((int)strlen(row->name) + 4 > indent)
            indent = (int)strlen(row->name) + 4;
    indent = indent < OPTION_INDENT ? indent : OPTION_INDENT;
    bp_buffer_printf(out, "\n%s\n", head);
    for (; rows->name; rows++)
        bp_help_add_row(out, rows->name, rows->text, indent);
}

/* "-o, --out=FILE", "    --csv=FILE"; the tag of an argument that is not an option is its name. */
static void add_option(bp_buffer *out, const struct argp_option *option)
{
    bool is_word = (option->flags & OPTION_DOC) != 0;
    bool optional = (option->flags & OPTION_ARG_OPTIONAL) != 0;
    bp_buffer tag = {0};

    if (!is_word && option->key < 256 && isgraph(option->key))
        bp_buffer_printf(&tag, "-%c, ", option->key);
    else if (!is_word)
        bp_buffer_printf(&tag, "    ");
    bp_buffer_printf(&tag, "%s%s", is_word ? "" : "--", option->name);
    if (option->arg)
        bp_buffer_printf(&tag, optional ? "[=%s]" : "=%s", option->arg);
    char *text = bp_buffer_take(&tag);
    bp_help_add_row(out, text, option->doc, OPTION_INDENT);
    bp_free(text);
}

/* --help is before the first group. */
static void add_options(bp_buffer *out, const struct argp_option *options)
{
    static const struct argp_option HELP = {"help", 'h', NULL, 0, "print this text", 0};
    bool grouped = false;

    bp_buffer_printf(out, "\nOptions:\n");
    for (; options && (options->name || options->doc); options++) {
        if (options->name) {
            add_option(out, options);
            continue;
        }
        if (!grouped)
            add_option(out, &HELP);
        grouped = true;
        bp_buffer_printf(out, "\n%s\n", options->doc);
    }
    if (!grouped)
        add_option(out, &HELP);
}

static void add_usage(bp_buffer *out, const bp_help *help)
{
    const char *usage = help->usage;

    for (bool first = true; first || *usage != 0; first = false) {
        int bytes = (int)strcspn(usage, "\n");

        bp_buffer_printf(out, "%s %s %.*s\n", first ? "Usage:" : "  or: ", help->name, bytes,
                         usage);
        usage += bytes + (usage[bytes] == '\n');
    }
}

char *bp_help_text(const bp_help *help)
{
    bp_buffer out = {0};
    char *summary = bp_sprintf("%s %s.", help->name, help->summary);

    add_usage(&out, help);
    add_paragraphs(&out, summary);
    bp_free(summary);
    if (help->text)
        add_paragraphs(&out, help->text);
    if (help->list)
        add_list(&out, help->list_head, help->list);
    add_options(&out, help->options);
    if (help->keys) {
        char *keys = bp_config_help(help->keys, help->groups);

        bp_buffer_printf(
            &out,
            "\n"
            "Keys:\n"
            "A key is set in CONFIG.ini, under its [section], or on the command line as\n"
            "section.key=value, which wins. Without CONFIG.ini all are on the command line.\n"
            "%s",
            keys);
        bp_free(keys);
    }
    if (help->examples)
        bp_buffer_printf(&out, "\nExamples:\n%s", help->examples);
    if (help->statuses)
        add_list(&out, "Exit status:", help->statuses);
    return bp_buffer_take(&out);
}

bp_err bp_help_print(FILE *out, const bp_help *help)
{
    char *text = bp_help_text(help);

    (void)fputs(text, out);
    bp_free(text);
    return out == stdout ? bp_stdout_flush() : BP_OK;
}

bool bp_help_is_asked(int argc, char *const *argv)
{
    for (int k = 0; k < argc && strcmp(argv[k], "--") != 0; k++)
        if (strcmp(argv[k], "--help") == 0 || strcmp(argv[k], "-h") == 0 ||
            strcmp(argv[k], "-?") == 0)
            return true;
    return false;
}
