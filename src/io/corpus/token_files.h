/* Token files that other programs train on (Megatron-LM, llm.c, nanoGPT, datatrove) to a native
 * corpus: ids unchanged, documents by the file's index or by the end-of-document token.
 * docs/formats.md has the layouts. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "io/corpus/corpus_convert.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct bp_token_files {
    const char *const *paths; /* in the order of their tokens [path_count] */
    int path_count;
    const char *layout;    /* "megatron" and so on; kept in the corpus */
    int64_t vocab_size;    /* 0: not given, allowed for llm.c's GPT-2 files */
    int64_t eod_id;        /* -1 if none */
    int64_t token_bytes;   /* for nanogpt, 2 or 4; 0: by the vocabulary */
    const int64_t *roles;  /* ids of other roles [BP_ROLES], NULL: not known */
    const char *tokenizer; /* tokenizer.json to keep in the corpus, and its hash; NULL: none */
    const char *tokenizer_hash;
    const char *tool; /* for /source/tool */
    const char *out;
} bp_token_files;

/** Is this the name of a layout? */
bool bp_token_layout_is(const char *name);

/** The k-th file of a command line's input, which may be PREFIX for megatron; optional files come
 * last. NULL if there are no more. Owns: the caller's. */
char *bp_token_layout_path(const char *name, const char *given, int k);

/** Write the corpus; it appears whole or not at all. Without an index a document ends with the
 * end-of-document token, also across files. If the first token is that one, it precedes documents,
 * as in llm.c: the first is omitted, and the last document gets one.
 *
 * Errors: BP_ERR_FORMAT, with file and byte: another layout or version, truncated, an index of
 * other tokens, an id beyond the vocabulary, no tokens; BP_ERR_USAGE vocab_size is required, or
 * eod_id is beyond it; BP_ERR_INPUT, BP_ERR_DENIED, BP_ERR_CREATE, BP_ERR_IO; BP_ERR_STOPPED. */
bp_err bp_token_files_convert(const bp_token_files *files, bp_corpus_converted *out);
