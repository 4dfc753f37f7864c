/* Token files that other programs train on (Megatron-LM, llm.c, nanoGPT, datatrove) to a native
 * corpus: the ids as they are, documents by the file's index or by the end-of-document token.
 * docs/formats.md has the layouts. Local: no MPI. */
#ifndef BP_IO_CORPUS_TOKEN_FILES_H
#define BP_IO_CORPUS_TOKEN_FILES_H

#include "base/err.h"
#include "io/corpus/corpus_convert.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_token_files {
    const char *const *paths; /* in the order of their tokens [path_count] */
    int path_count;
    const char *layout;    /* "megatron" and so on; kept in the corpus */
    int64_t vocab_size;    /* 0: not given, which llm.c's files of GPT-2 may leave out */
    int64_t eod_id;        /* -1: none */
    int64_t token_bytes;   /* of nanogpt, 2 or 4; 0: by the vocabulary */
    const int64_t *roles;  /* ids of other roles [BP_ROLES], NULL: not known */
    const char *tokenizer; /* tokenizer.json to keep in the corpus, and its hash; NULL: none */
    const char *tokenizer_hash;
    const char *tool; /* for /source/tool */
    const char *out;
} bp_token_files;

/** Is this the name of such a layout? */
bool bp_token_layout_is(const char *name);

/** The k-th file of an input as the command line gives it, which for megatron may be PREFIX, with
 * those that may be missing last; NULL: it has no more. Owns: the caller's. */
char *bp_token_layout_path(const char *name, const char *given, int k);

/** Write the corpus; it appears whole or not at all. Without an index a document ends with the
 * end-of-document token, beyond the end of a file too. Where the first token is that one, it
 * precedes documents, as llm.c has it: the first is left out, and the last document gets one.
 *
 * Errors: BP_ERR_FORMAT, with file and byte: another layout or version, truncated, an index of
 * other tokens, an id beyond the vocabulary, no tokens; BP_ERR_USAGE vocab_size is needed, or
 * eod_id is beyond it; BP_ERR_INPUT, BP_ERR_DENIED, BP_ERR_CREATE, BP_ERR_IO; BP_ERR_STOPPED. */
bp_err bp_token_files_convert(const bp_token_files *files, bp_corpus_converted *out);

#endif
