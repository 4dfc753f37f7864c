/* Rows of --help, wrapped to a terminal: help.c and config_text.c build pages from them. */
#include "base/config/help.h"

#include <string.h>

void bp_help_add_text(bp_buffer *out, const char *text, int indent, int column)
{
    while (*text != 0) {
        int bytes = (int)strcspn(text, " ");
        if (column > indent && column + 1 + bytes > BP_HELP_COLUMNS) {
            bp_buffer_printf(out, "\n%*s", indent, "");
            column = indent;
        }
        bp_buffer_printf(out, "%s%.*s", column > indent ? " " : "", bytes, text);
        column += bytes + (column > indent);
        text += bytes;
        text += strspn(text, " ");
    }
    bp_buffer_printf(out, "\n");
}

void bp_help_add_row(bp_buffer *out, const char *tag, const char *text, int indent)
{
    int bytes = (int)strlen(tag);

    if (bytes + 4 > indent) /* two blanks on either side */
        bp_buffer_printf(out, "  %s\n%*s", tag, indent, "");
    else
        bp_buffer_printf(out, "  %-*s", indent - 2, tag);
    bp_help_add_text(out, text, indent, indent);
}
