/* Chunks of tokens to zstd frames. */
#include "io/corpus/corpus_writer.h"

#include "base/hash.h"
#include "base/mem.h"
#include "io/h5/zstd_filter.h"

#include <zstd.h>

struct bp_packer {
    ZSTD_CCtx *context;
    void *out;
    size_t raw_bytes, room;
};

size_t bp_corpus_chunk_bytes(int64_t vocab_size)
{
    return (size_t)BP_CORPUS_CHUNK_TOKENS *
           (vocab_size <= 65535 ? sizeof(uint16_t) : sizeof(uint32_t));
}

bp_err bp_packer_new(bp_packer **out, int64_t vocab_size)
{
    bp_packer *packer = bp_alloc("io.packer", 1, sizeof *packer);

    *out = NULL;
    packer->raw_bytes = bp_corpus_chunk_bytes(vocab_size);
    packer->room = ZSTD_compressBound(packer->raw_bytes);
    packer->out = bp_alloc("io.packer", (int64_t)packer->room, 1);
    packer->context = ZSTD_createCCtx();
    if (packer->out == NULL || packer->context == NULL) {
        bp_packer_free(&packer);
        return bp_fail_memory("a compressor", 1, sizeof *packer);
    }
    *out = packer;
    return BP_OK;
}

void bp_packer_free(bp_packer **packer)
{
    if (*packer != NULL) {
        ZSTD_freeCCtx((*packer)->context);
        bp_free((*packer)->out);
    }
    bp_free(*packer);
    *packer = NULL;
}

bp_err bp_packer_pack(bp_packer *packer, const void *raw, bp_packed *out)
{
    size_t got = ZSTD_compressCCtx(packer->context, packer->out, packer->room, raw,
                                   packer->raw_bytes, BP_ZSTD_LEVEL);

    if (ZSTD_isError(got))
        return BP_FAIL(BP_ERR_SYSTEM, "zstd failed (%s): at a chunk of tokens",
                       ZSTD_getErrorName(got));
    *out = (bp_packed){packer->out, got, bp_xxh3(packer->out, got)};
    return BP_OK;
}
