/* Porter's stemmer. */
#pragma once

#include <stdint.h>

/** Stem a word of code points in lower case, in place; its new length, which is not larger.
 *
 * Source:     Porter 1980, An algorithm for suffix stripping, with the changes that nltk's
 * PorterStemmer makes by default (nltk/stem/porter.py, NLTK_EXTENSIONS). */
int64_t bp_porter_stem(uint32_t *word, int64_t length);
