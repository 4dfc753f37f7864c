/* Command lines of tools, parsed by the rows of their help. */
#pragma once

#include "tools.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tool_texts {
    const char **list; /* bp_free() */
    int count;
} tool_texts;

/** The destination of an option's value: one of the pointers; the others are NULL. */
typedef struct tool_value {
    const char *option; /* the name in its row of tool->help.options; NULL ends a list */
    const char **text;
    tool_texts *texts; /* of an option that may be given several times */
    bool *flag;
    int64_t *number, low, high; /* and the accepted values */
} tool_value;

/** Arguments that are not options. */
typedef struct tool_files {
    char **list;
    int count;
} tool_files;

/** Parse argv, whose first word is the tool's name. The key of a row of tool->help.options is its
 * short option, or 0. Local.
 *
 * Owns:   *files and texts point into argv.
 * Errors: BP_ERR_USAGE. */
bp_err tool_parse(const bp_tool *tool, const tool_value *values, tool_files *files, int argc,
                  char **argv);

/** Warn where a separator has the characters "\\n" or "\\t", which shells leave as they are. */
void tool_warn_of_escapes(const char *separator);
