/* File names and other foreign text, made safe for a terminal, a page or JSON. Local: no MPI.
 */
#pragma once

#include "base/buffer.h"

/** Append text with each byte of a control character, and each invalid UTF-8 byte, as "\xNN" (two
 * hexadecimal digits). Characters in `kept` are unchanged. */
void bp_printable_add(bp_buffer *out, const char *text, size_t bytes, const char *kept);

/** The same as a new string. bp_free(). */
char *bp_printable(const char *text);
