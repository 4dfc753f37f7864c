/* The memory of a loader, for the plan; loader.c takes it. */
#include "bucket_priv.h"
#include "data/loader.h"
#include "loader_priv.h"
#include "mixture_priv.h"
#include "order_priv.h"

/* Estimated bytes of a source over a stream of this many tokens; `more`: the most tokens beyond a
 * block. */
static size_t cache_bytes(int64_t tokens, int64_t holders, int64_t more)
{
    int64_t blocks = tokens / BP_SHUFFLE_BLOCK_TOKENS + 1, wanted = holders * BP_BUFFER_BLOCKS;
    int64_t entry_tokens =
        (BP_SHUFFLE_BLOCK_TOKENS < tokens ? BP_SHUFFLE_BLOCK_TOKENS : tokens) + more + 1;

    return (size_t)((wanted < blocks ? wanted : blocks) * entry_tokens) * sizeof(int32_t);
}

size_t bp_loader_bytes(const bp_loader_size *size)
{
    int64_t files = size->mixed_files > 0 ? size->mixed_files : 1;
    int64_t holders = size->mixed_files > 0 ? 1 : size->slots;
    int64_t of_file = size->tokens, more;
    size_t ring = BP_LOADER_DEPTH * bp_batch_bytes(&size->maker->form, size->slots);
    size_t cycle = size->mixed_files > 0 ? 2 * BP_MIXTURE_CYCLE * sizeof(int32_t) : 0;

    if (files > 1) /* files of equal size take the most memory */
        of_file = size->tokens / files + 1;
    more = size->maker->feed == BP_FEED_WINDOWS ? size->maker->window - 1 : BP_DOCUMENT_MOST;
    if (size->bucket > 0 && size->documents > 0) {
        int64_t steps = size->documents / size->batch;

        ring += bp_bucket_bytes(size->bucket < steps ? size->bucket : steps, size->batch,
                                size->slots, size->tokens / size->documents + 1);
    }
    return ring + cycle + bp_document_table_bytes(size->documents) +
           (size_t)files * cache_bytes(of_file, holders, more < of_file ? more : of_file);
}
