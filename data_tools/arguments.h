/* Command lines of tools, parsed by the rows of their help. */
#ifndef BP_DATA_TOOLS_ARGUMENTS_H
#define BP_DATA_TOOLS_ARGUMENTS_H

#include "tools.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct tool_texts {
    const char **list; /* bp_free() */
    int count;
} tool_texts;

/** The destination of an option's value: one of the pointers; the others are NULL. */
typedef struct tool_value {
    int key; /* of its row in tool->help.options; 0 ends a list */
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

/** Parse argv, whose first word is the tool's name. Local.
 *
 * Owns:   *files and texts point into argv.
 * Errors: BP_ERR_USAGE. */
bp_err tool_parse(const bp_tool *tool, const tool_value *values, tool_files *files, int argc,
                  char **argv);

/** Warn where a separator has the characters "\\n" or "\\t", which shells leave as they are. */
void tool_warn_of_escapes(const char *separator);

/** Refuse an argument that argp does not understand: an option that the tool has lacks its value,
 * or has one that it does not take; of another one the nearest is named, as it is perhaps another
 * tool's word. Errors: BP_ERR_USAGE. */
bp_err tool_refuse(const bp_tool *tool, const char *argument);

#endif
