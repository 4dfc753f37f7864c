/* --help of programs, jobs and tools, all in one form: usage, what it does, options, keys,
 * examples, exit status. Prose is wrapped to 79 columns; examples are printed as they were
 * written, so that they can be copied. help/pages.sh makes the man pages from it, and bash
 * completion reads it.
 */
#pragma once

#include "base/buffer.h"
#include "base/config/config.h"

#include <argp.h> /* its rows of options: tools parse with the rows that their help shows */
#include <stdio.h>

#define BP_HELP_COLUMNS 79

/* A name and its meaning: an exit status, a job. A list ends with a row whose name is NULL. */
typedef struct bp_help_row {
    const char *name, *text;
} bp_help_row;

typedef struct bp_help {
    const char *name;    /* "bagpipe-data corpus" */
    const char *usage;   /* what follows the name; "\n" separates alternatives */
    const char *summary; /* what it does, with the name as subject and no period */
    const char *text; /* paragraphs separated by "\n"; may be NULL, like all fields that follow */
    const char *list_head;
    const bp_help_row *list;           /* under list_head: "Jobs:" */
    const struct argp_option *options; /* ends with a row of zeros; --help is added, and a row
                                          without a name begins a group */
    const bp_option *const *keys;      /* tables of section.key, NULL-ended, */
    const bp_key_group *groups;        /* and the groups after them; may be NULL */
    const char *examples;              /* lines */
    const bp_help_row *statuses;
} bp_help;

/** The whole text. Free with bp_free(); NULL: no memory. */
char *bp_help_text(const bp_help *help);

/** Print it, and flush. Errors: BP_ERR_IO (disk full); BP_ERR_SYSTEM out of memory. */
bp_err bp_help_print(FILE *out, const bp_help *help);

/** Does the command line ask for help: --help, -h or -? before a "--"? */
bool bp_help_is_asked(int argc, char *const *argv);

/** Append words of `text` from column `indent` on, and a newline; `column` is the current column
 * of the line. */
void bp_help_add_text(bp_buffer *out, const char *text, int indent, int column);
/** Append a row: `tag`, and `text` wrapped from column `indent` on. */
void bp_help_add_row(bp_buffer *out, const char *tag, const char *text, int indent);
