/* Lines of CoNLL files that are not words, as conlleval and the readers of seqeval's files take
 * them. Local: no MPI. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** Does the line end a sentence: only white space, a mark of a new document ("-DOCSTART-" at its
 * start), or conlleval's boundary ("-X-" as its first field)? */
bool bp_conll_is_gap(const char *line, size_t bytes);

/** The line's layout of fields: equal for lines with equally many fields between equal separators
 * (tabs, or else spaces), never 0. */
int bp_conll_columns(const char *line, size_t bytes);

/** Is a line before a sentence's first word a comment: does it begin with "#", and does its layout
 * differ from that of words? `columns`: the layout of a word's line. */
bool bp_conll_is_comment(const char *line, size_t bytes, int columns);

/** Is it a word of CoNLL-U or CoNLL-X: ten columns between tabs, whose first numbers the word ("3",
 * "3-4", "3.1")? */
bool bp_conll_is_universal(const char *line, size_t bytes);
