/* Hashes of documents' tokens. */
#include "infer/score/tables/token_hash.h"

#include "base/mem.h"

#include <endian.h>
#include <inttypes.h>
#include <xxhash.h>

#define BLOCK_TOKENS 16384

struct bp_token_hasher {
    XXH3_state_t *state;
    int32_t *tokens; /* [BLOCK_TOKENS] */
};

bp_err bp_token_hasher_new(bp_token_hasher **out)
{
    bp_token_hasher *hasher = bp_alloc("score.token_hash", 1, sizeof(*hasher));

    *out = NULL;
    hasher->state = XXH3_createState();
    hasher->tokens = bp_alloc("score.token_hash", BLOCK_TOKENS, sizeof(*hasher->tokens));
    if (!hasher->state || !hasher->tokens) {
        bp_token_hasher_free(&hasher);
        return bp_fail_memory("a hash", BLOCK_TOKENS, sizeof(int32_t));
    }
    *out = hasher;
    return BP_OK;
}

void bp_token_hasher_free(bp_token_hasher **hasher)
{
    if (!*hasher)
        return;
    bp_free((*hasher)->tokens);
    XXH3_freeState((*hasher)->state); /* NULL is accepted */
    bp_free(*hasher);
    *hasher = NULL;
}

bp_err bp_token_hash_of(bp_token_hasher *hasher, const bp_score_plan *plan, int64_t document,
                        uint64_t *hash)
{
    bp_score_document text;
    bp_err err = bp_score_plan_document(plan, document, &text);

    if (err == BP_OK && XXH3_64bits_reset(hasher->state) != XXH_OK)
        err = BP_FAIL(BP_ERR_SYSTEM, "the hash of document %" PRId64 " failed", document);
    for (int64_t at = 0; err == BP_OK && at < text.text; at += BLOCK_TOKENS) {
        int64_t now = text.text - at < BLOCK_TOKENS ? text.text - at : BLOCK_TOKENS;

        err = bp_corpus_file_read(bp_corpus_file_at(plan->corpus, text.file), text.start + at, now,
                                  hasher->tokens);
        for (int64_t k = 0; err == BP_OK && k < now; k++)
            hasher->tokens[k] = (int32_t)htole32((uint32_t)hasher->tokens[k]);
        if (err == BP_OK && XXH3_64bits_update(hasher->state, hasher->tokens,
                                               (size_t)now * sizeof(*hasher->tokens)) != XXH_OK)
            err = BP_FAIL(BP_ERR_SYSTEM, "the hash of document %" PRId64 " failed", document);
    }
    if (err == BP_OK)
        *hash = XXH3_64bits_digest(hasher->state);
    return err;
}
