/* xxHash, by the widest registers of the CPU at hand where the library was built with that. */
#ifndef BP_BASE_XXH_H
#define BP_BASE_XXH_H

#ifdef BP_HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#define BP_XXH128_HEX 33 /* 32 digits and the end */

/** A hash as hexadecimal digits, high half first. */
static inline void bp_xxh128_hex(char out[BP_XXH128_HEX], XXH128_hash_t value)
{
    (void)snprintf(out, BP_XXH128_HEX, "%016" PRIx64 "%016" PRIx64, (uint64_t)value.high64,
                   (uint64_t)value.low64);
}

#endif
