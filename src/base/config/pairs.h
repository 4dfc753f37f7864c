/* Lists of pairs in keys and files: "1:32,2:64", or "tanh:0,relu:1" where first halves are words.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A pair in one number, which is not 0. */
static inline int64_t bp_pair_of(int64_t first, int64_t second)
{
    return first << 32 | second;
}
static inline int64_t bp_pair_first(int64_t pair)
{
    return pair >> 32;
}
static inline int64_t bp_pair_second(int64_t pair)
{
    return pair & 0x7FFFFFFF;
}

/** pairs[most], 0 after the last one. Without words both numbers are from 1 to 2^20, and [[1, 32],
 * [2, 64]] is read too. With words ("tanh|relu") the first half is the number of a word, from 1
 * on, and the second is from 0 to 2^20. False if the text is not such a list, is empty, or has
 * more than `most` pairs. Local. */
bool bp_pairs_read(int64_t *pairs, int most, const char *text, const char *words);
/** Their text, cut to `bytes`. */
void bp_pairs_write(char *text, size_t bytes, const int64_t *pairs, int most, const char *words);

/** The index, from 0 on, of the word of `bytes` bytes in "tanh|relu"; -1 if it is not in the list.
 */
int bp_word_number(const char *words, const char *word, size_t bytes);
/** The word with that index; its length goes to *bytes. Not NUL-terminated. Borrowed. */
const char *bp_word_at(const char *words, int number, size_t *bytes);
