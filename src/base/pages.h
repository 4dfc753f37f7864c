/* Large blocks of memory, straight from the system, in huge pages where available. Two files
 * implement this: pages_huge.c, and pages_plain.c for builds whose sanitizer must see every block.
 */
#pragma once

#include <stddef.h>

/** Blocks of at least this many bytes are taken here. */
#define BP_PAGES_LEAST ((size_t)4 << 20)

/** `bytes` zeroed bytes, untouched: a page costs memory when it is first written to, and is near
 * the thread that does. `before` bytes (at most 64) precede them and are the caller's too. NULL:
 * out of memory, or this implementation provides no blocks. *raw and *raw_bytes are for
 * bp_pages_free. */
void *bp_pages_take(size_t bytes, size_t before, void **raw, size_t *raw_bytes);
void bp_pages_free(void *raw, size_t raw_bytes);
