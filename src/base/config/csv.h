/* Text as a cell of a CSV file. Local: no MPI. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>

/** Would a spreadsheet take the text for a formula: does it begin with = + - @, a tab or a carriage
 * return, and is it longer than that and no decimal number? */
bool bp_csv_is_formula(const char *text, size_t bytes);

/** Append a text as a cell: in quotation marks where needed, and after an apostrophe where a
 * spreadsheet would take it for a formula. */
void bp_csv_add(bp_buffer *out, const char *text, size_t bytes);
