/* Copying values that the copier does not look at again: two files stand behind this, one for CPUs
 * that write past their caches. Private to src/store. */
#ifndef BP_IO_CHECKPOINT_COPY_H
#define BP_IO_CHECKPOINT_COPY_H

#include <stdbool.h>
#include <stdint.h>

/** to[count] = from[count]; false where one of them is not finite. Other threads see the copy after
 * whatever they wait for this one by. */
bool bp_copy_finite(float *to, const float *from, int64_t count);

#endif
