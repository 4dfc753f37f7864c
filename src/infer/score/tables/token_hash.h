/* What tells one text from another of as many tokens. Local: no MPI. */
#ifndef BP_INFER_SCORE_TABLES_TOKEN_HASH_H
#define BP_INFER_SCORE_TABLES_TOKEN_HASH_H

#include "infer/score/plan.h"

/** Hashes of documents, one after another. */
typedef struct bp_token_hasher bp_token_hasher;
/** Owns: *out is the caller's, bp_token_hasher_free(). Errors: BP_ERR_SYSTEM memory. */
bp_err bp_token_hasher_new(bp_token_hasher **out);
void bp_token_hasher_free(bp_token_hasher **hasher);

/** XXH3-64 of the text tokens of a document as little-endian uint32, without the end-of-document
 * token; whether the document is scored or not. A block of tokens is in memory at a time.
 *
 * Errors:     those of bp_corpus_file_read; BP_ERR_SYSTEM. */
bp_err bp_token_hash_of(bp_token_hasher *hasher, const bp_score_plan *plan, int64_t document,
                        uint64_t *hash);

#endif
