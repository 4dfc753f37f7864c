/* Names of files and other foreign text as a terminal, a page or JSON may have them. Local: no MPI.
 */
#ifndef BP_BASE_PRINTABLE_H
#define BP_BASE_PRINTABLE_H

#include "base/buffer.h"

/** Append text in which each byte of a control character, and each that is not UTF-8, is "\xNN"
 * (two hexadecimal digits); characters of `kept` stay as they are. */
void bp_printable_add(bp_buffer *out, const char *text, size_t bytes, const char *kept);

/** The same as a new string. bp_free(). */
char *bp_printable(const char *text);

#endif
