/* The checked command line of bagpipe-data corpus. */
#pragma once

#include "arguments.h"

typedef struct corpus_arguments {
    const char *tokenizer, *target_tokenizer, *out, *format, *text_field, *field_list, *sentences;
    const char *separator;
    const char *fields[2]; /* [field_count] of field_list */
    int field_count;
    char *field_copy;
    bool no_tags, specials, bos;
    bool is_one_of_many; /* files, each of which becomes a corpus */
    const char *skip_bad;
    int64_t skip_count; /* of skip_bad; -1: use skip_percent */
    double skip_percent;
    char *skip_list; /* OUT.skipped.jsonl */
    const char *only, *without;
    int64_t vocab_size, eod, token_bytes; /* for other programs' tokens; 0, -1, 0 if not given */
    tool_texts labels, values;
    tool_files files;
} corpus_arguments;

/** Is this the --format? */
bool corpus_format_is(const corpus_arguments *arguments, const char *name);
/** Does a file contain tokens made by another program, and no text? */
bool corpus_is_foreign(const corpus_arguments *arguments);

/** The k-th file of an input; NULL if there are no more. Owns: the caller's. */
char *corpus_input_path(const corpus_arguments *arguments, int file, int k);

/** Read the options that are not numbers, and check that all are compatible. Local.
 * Owns:   corpus_arguments_clear(), after an error too.
 * Errors: BP_ERR_USAGE. */
bp_err corpus_arguments_check(corpus_arguments *arguments);
void corpus_arguments_clear(corpus_arguments *arguments);

/** Make the corpus of tokens that another program made. Local: one process does it. */
bp_err corpus_convert_foreign(const corpus_arguments *arguments);

/** Does --out name a folder (FOLDER/), for a corpus of each file? */
bool corpus_is_folder(const corpus_arguments *arguments);
/** Errors: BP_ERR_USAGE two files would make the same corpus, or a format without one corpus per
 * file. */
bp_err corpus_folder_check(const corpus_arguments *arguments);

/** Make FOLDER/FILE.h5 of each file by `build`, unless it exists and is not older than its file.
 * FOLDER/corpus.json records the options.
 *
 * Collective: over MPI_COMM_WORLD.
 * Errors:     those of `build` (the corpora of earlier files are kept); BP_ERR_FORMAT the folder's
 *             corpora were made with other options; BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO. */
bp_err corpus_build_folder(const corpus_arguments *arguments,
                           bp_err (*build)(const corpus_arguments *arguments));
