/* Lists of words given by the user, and a search for them in texts. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/err.h"
#include "text/unicode/strmap.h"

#include <stdbool.h>
#include <stdint.h>

#define WORD_LISTS_MOST   16
#define WORD_LISTS_PHRASE 8 /* words of an entry */

/** A word, or several consecutive words. Counts are over the texts so far. */
typedef struct word_entry {
    char *shown; /* as in its file */
    int list;
    int64_t occurrences, texts;
    int64_t last_text; /* the text counted last, + 1 */
    int64_t next;      /* the same entry in another list, + 1; 0 if there is none */
} word_entry;

typedef struct word_lists {
    int count;           /* of files */
    word_entry *entries; /* [entry_count] */
    int64_t entry_count, entry_capacity;
    bp_strmap map; /* words without case and punctuation, with blanks between them: entry + 1 */
    int longest;   /* words of an entry */
    /* the text being read */
    bp_buffer word, last[WORD_LISTS_PHRASE], phrase;
    int64_t seen, text;
    bool has[WORD_LISTS_MOST]; /* a word of the list */
} word_lists;

/** Entries are lines; empty lines and lines that begin with '#' are ignored. An entry in several
 * lists counts in each. Words are those of bp_plain_word. Owns: word_lists_clear(), after an error
 * too. Errors: those of bp_file_read; BP_ERR_FORMAT a file without entries, an entry of too many
 * words. */
bp_err word_lists_load(word_lists *lists, const char *const *paths, int count);
void word_lists_clear(word_lists *lists);

/** Begin a text, and clear has[]. */
void word_lists_begin(word_lists *lists);
/** Add a part of the text, cut at the end of a word. */
void word_lists_read(word_lists *lists, const char *text, size_t bytes);

/** The entry as shown in reports: its first letter, and '*' for the others. Free with bp_free().
 */
char *word_entry_masked(const word_entry *entry);
