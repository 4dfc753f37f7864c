/* Lists of words that a user names, and which of them are in a text. Local: no MPI. */
#ifndef BP_DATA_TOOLS_WORD_LISTS_H
#define BP_DATA_TOOLS_WORD_LISTS_H

#include "base/buffer.h"
#include "base/err.h"
#include "text/unicode/strmap.h"

#include <stdbool.h>
#include <stdint.h>

#define WORD_LISTS_MOST   16
#define WORD_LISTS_PHRASE 8 /* words of an entry */

/** A word, or several in a row. Counts are of the texts so far. */
typedef struct word_entry {
    char *shown; /* as in its file */
    int list;
    int64_t occurrences, texts;
    int64_t last_text; /* the one that was counted last, + 1 */
    int64_t next;      /* the same of another list, + 1; 0: none has it */
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

/** Entries are lines; what begins with '#' and what is empty is none; an entry of
 * several lists counts in each. Words are those of bp_plain_word. Owns: word_lists_clear(), after
 * an error too. Errors: those of bp_file_read; BP_ERR_FORMAT a file without entries, an entry of
 * too many words. */
bp_err word_lists_load(word_lists *lists, const char *const *paths, int count);
void word_lists_clear(word_lists *lists);

/** A text begins, and has[] is false. */
void word_lists_begin(word_lists *lists);
/** A part of it, cut where a word ends. */
void word_lists_read(word_lists *lists, const char *text, size_t bytes);

/** The entry as a report shows it: its first letter, and '*' for the others. Free with bp_free().
 */
char *word_entry_masked(const word_entry *entry);

#endif
