/* A foreign corpus (an HDF5 file that another program wrote) to a native one, once. A separate
 * process, with time limits, reads the foreign file: if a file makes the HDF5 library crash or
 * decode for hours, that process ends and the caller reports it. Local: no MPI. */
#pragma once

#include "base/err.h"
#include <stdint.h>

typedef struct bp_corpus_conversion {
    const char *source, *out;
    const char *tool;                       /* for /source/tool */
    const char *tokenizer, *tokenizer_hash; /* tokenizer.json to keep in the corpus; NULL: the
                                               foreign file's, if it has one */
    int64_t tokenizer_size;                 /* entries of `tokenizer` */
} bp_corpus_conversion;

typedef struct bp_corpus_converted {
    int64_t tokens, documents, open_ends; /* documents without the end-of-document token */
    char
        left_out[64]; /* "/values, /tags": datasets of the foreign file beyond those listed below */
} bp_corpus_converted;

/** Convert; `out` appears whole or not at all. The calling process must have one thread.
 *
 * The foreign file has /tokens (any integer type; contiguous or chunked; gzip, lzf, shuffle,
 * Fletcher32 or zstd), /doc_start and the attribute vocab_size, and may have eod_id,
 * tokenizer_hash, /doc_bytes, /doc_words, /doc_words_split, /doc_id, /labels and /label_names.
 *
 * Errors: BP_ERR_FORMAT a fault of the foreign file, or reading it crashed or took too long;
 * BP_ERR_INPUT, BP_ERR_DENIED, BP_ERR_CREATE, BP_ERR_IO, BP_ERR_SYSTEM; BP_ERR_STOPPED. */
bp_err bp_corpus_convert(const bp_corpus_conversion *conversion, bp_corpus_converted *out);

/** Processor time allowed for reading, in addition to the time for the file's size: 30 s; tests set
 * it. */
extern double bp_corpus_convert_seconds;
