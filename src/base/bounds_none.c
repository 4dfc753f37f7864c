/* Without AddressSanitizer. */
#include "base/bounds.h"

void bp_bounds_set(void *p, size_t bytes, size_t padding_bytes)
{
    (void)p, (void)bytes, (void)padding_bytes;
}
