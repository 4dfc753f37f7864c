/* Provides no blocks: sanitizers check malloc's blocks to the byte. */
#include "base/pages.h"

void *bp_pages_take(size_t bytes, size_t before, void **raw, size_t *raw_bytes)
{
    (void)bytes, (void)before, (void)raw, (void)raw_bytes;
    return NULL;
}

void bp_pages_free(void *raw, size_t raw_bytes)
{
    (void)raw, (void)raw_bytes;
}
