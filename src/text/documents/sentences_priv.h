/* Where sentences begin. */
#pragma once

#include "text/documents/text_source.h"

/** The first place beyond `from`, where a sentence begins, at which another begins: before the
 * White_Space between them. `bytes` if there is none. */
size_t bp_sentence_next(bp_sentences rule, const char *text, size_t bytes, size_t from);

/** The last such place that does not depend on the text after text[bytes); 0 if there is none. */
size_t bp_sentence_cut(bp_sentences rule, const char *text, size_t bytes);
