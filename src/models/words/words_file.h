/* Files in which other programs list words, with numbers or without: ARPA files, word vectors,
 * vocabularies. Their readers share the mapping and the tokenizer of the words.
 * Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

/** A file in memory, read only, without its byte order mark; decompressed if gzip or zstd. `text`
 * has no zero byte at its end. */
typedef struct bp_words_file {
    const char *text;
    size_t bytes;
    void *map; /* private */
    size_t map_bytes;
    char *owned;
} bp_words_file;

/** The first bytes of its text, at most `most`; returns their number, 0 if it can't be read. */
size_t bp_words_file_read_head(char *text, size_t most, const char *path);
/** Owns: bp_words_file_unmap(), after an error too. Errors: those of bp_file_open;
 * BP_ERR_SYSTEM. */
bp_err bp_words_file_map(bp_words_file *out, const char *path);
void bp_words_file_unmap(bp_words_file *file);

/** A tokenizer of words between white space. `vocab` (borrowed) has the id of each, including
 * BP_UNK_TOKEN and BP_EOD_TOKEN. Owns: *out is the caller's, bp_tokenizer_free(). Errors: those of
 * bp_tokenizer_parse, at `path`. */
bp_err bp_words_file_tokenizer(bp_tokenizer **out, json_t *vocab, const char *path);
