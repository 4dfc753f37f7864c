/* AddressSanitizer's marks for memory that the program divides by itself. */
#include "base/bounds.h"

#include <sanitizer/asan_interface.h>

void bp_bounds_set(void *p, size_t bytes, size_t padding_bytes)
{
    __asan_unpoison_memory_region(p, bytes);
    __asan_poison_memory_region((char *)p + bytes, padding_bytes);
}
