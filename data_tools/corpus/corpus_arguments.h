/* What the command line of bagpipe-data corpus asks for, checked. */
#ifndef BP_DATA_TOOLS_CORPUS_ARGUMENTS_H
#define BP_DATA_TOOLS_CORPUS_ARGUMENTS_H

#include "arguments.h"

typedef struct corpus_arguments {
    const char *tokenizer, *target_tokenizer, *out, *format, *text_field, *field_list, *sentences;
    const char *separator;
    const char *fields[2]; /* [field_count] of field_list */
    int field_count;
    char *field_copy;
    bool no_tags, specials, bos;
    bool is_one_of_many; /* files, of which each becomes a corpus */
    const char *skip_bad;
    int64_t skip_count; /* of skip_bad; -1: skip_percent decides */
    double skip_percent;
    char *skip_list; /* OUT.skipped.jsonl */
    const char *only, *without;
    int64_t vocab_size, eod, token_bytes; /* of other programs' tokens: 0, -1, 0 not given */
    tool_texts labels, values;
    tool_files files;
} corpus_arguments;

/** Is this the --format? */
bool corpus_format_is(const corpus_arguments *arguments, const char *name);
/** Does a file hold tokens that another program made, and no text? */
bool corpus_is_foreign(const corpus_arguments *arguments);

/** The k-th file that an input is of; NULL: it is of no more. Owns: the caller's. */
char *corpus_input_path(const corpus_arguments *arguments, int file, int k);

/** Read what options hold besides numbers, and check that all go together. Local.
 * Owns:   corpus_arguments_clear(), after an error too.
 * Errors: BP_ERR_USAGE. */
bp_err corpus_arguments_check(corpus_arguments *arguments);
void corpus_arguments_clear(corpus_arguments *arguments);

/** Make the corpus of tokens that another program made. Local: one process does it. */
bp_err corpus_convert_foreign(const corpus_arguments *arguments);

/** Does --out name a folder (FOLDER/), for a corpus of each file? */
bool corpus_is_folder(const corpus_arguments *arguments);
/** Errors: BP_ERR_USAGE two files would be one corpus, or a format that has none of each file. */
bp_err corpus_folder_check(const corpus_arguments *arguments);

/** Make FOLDER/FILE.h5 of each file by `build`, but of those that are there already and are not
 * older than their file. FOLDER/corpus.json keeps the options.
 *
 * Collective: over MPI_COMM_WORLD.
 * Errors:     those of `build`, after which the corpora of the files before stay; BP_ERR_FORMAT the
 * folder's corpora were made with other options; BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO. */
bp_err corpus_build_folder(const corpus_arguments *arguments,
                           bp_err (*build)(const corpus_arguments *arguments));

#endif
