/* Files in which other programs list words, with numbers or without: ARPA files, word vectors,
 * vocabularies. Their readers share the mapping, the numbers, and the tokenizer of the words.
 * Local: no MPI. */
#ifndef BP_MODELS_WORDS_FILE_H
#define BP_MODELS_WORDS_FILE_H

#include "base/err.h"
#include "base/json.h"
#include "text/tokenizer.h"

/** A file in memory, read only; `text` has no zero byte at its end. */
typedef struct bp_words_file {
    const char *text;
    size_t bytes;
} bp_words_file;

/** Owns: bp_words_file_unmap(), after an error too. Errors: those of bp_file_open; BP_ERR_SYSTEM.
 */
bp_err bp_words_file_map(bp_words_file *out, const char *path);
void bp_words_file_unmap(bp_words_file *file);

/** text[bytes] as a number; false: it is none, or has something behind it. */
bool bp_words_file_number(const char *text, size_t bytes, float *value);

/** A tokenizer of words between white space. `vocab` (borrowed) has the id of each, those of
 * BP_UNK_TOKEN and BP_EOD_TOKEN among them. Owns: *out is the caller's, bp_tokenizer_free().
 * Errors: those of bp_tokenizer_parse, at `path`. */
bp_err bp_words_file_tokenizer(bp_tokenizer **out, json_t *vocab, const char *path);

#endif
