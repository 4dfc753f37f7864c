/* Blocks aligned to huge pages. Only whole huge pages are requested (madvise: the kernel may
 * refuse or have none), and the space after the block is unmapped, so that no more than the block
 * becomes resident. */
#include "base/pages.h"

#include "base/err.h"

#include <stdint.h>
#include <sys/mman.h>

#define HUGE ((size_t)2 << 20)
#define PAGE ((size_t)65536) /* a multiple of every system's small pages */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

void *bp_pages_take(size_t bytes, size_t before, void **raw, size_t *raw_bytes)
{
    size_t whole = round_up(bytes, PAGE), taken = PAGE + HUGE + whole;

    BP_ASSERT(before <= PAGE);
    if (taken < bytes)
        return NULL;
    char *all = mmap(NULL, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    char *data = all + (round_up((uintptr_t)all + PAGE, HUGE) - (uintptr_t)all);
    char *first = data - PAGE;
    /* A failed munmap only wastes address space. */
    if (first > all)
        (void)munmap(all, (size_t)(first - all));
    if (all + taken > data + whole)
        (void)munmap(data + whole, (size_t)(all + taken - (data + whole)));
    (void)madvise(data, bytes / HUGE * HUGE, MADV_HUGEPAGE);
    *raw = first;
    *raw_bytes = PAGE + whole;
    return data;
}

void bp_pages_free(void *raw, size_t raw_bytes)
{
    int status = munmap(raw, raw_bytes);

    BP_ASSERT(status == 0);
}
