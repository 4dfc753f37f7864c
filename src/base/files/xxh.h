/* xxHash, by the widest registers of the CPU at hand where the library was built with that. */
#pragma once

#ifdef BP_HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "base/err.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#define BP_XXH128_HEX 33 /* 32 digits and the end */

/** The state of an XXH3-128 to come; XXH3_freeState(). Failures are our bugs or out of memory. */
static inline XXH3_state_t *bp_xxh128_new(void)
{
    XXH3_state_t *state = XXH3_createState();

    BP_CHECK(state && XXH3_128bits_reset(state) == XXH_OK);
    return state;
}

static inline void bp_xxh128_add(XXH3_state_t *state, const void *data, size_t bytes)
{
    BP_CHECK(XXH3_128bits_update(state, data, bytes) == XXH_OK);
}

/** Bytes [from, to) of the open file `fd`; `path` is for messages. Errors: BP_ERR_IO. */
bp_err bp_xxh128_add_file(XXH3_state_t *state, int fd, int64_t from, int64_t to, const char *path);

/** A hash as hexadecimal digits, high half first. */
static inline void bp_xxh128_hex(char out[BP_XXH128_HEX], XXH128_hash_t value)
{
    (void)snprintf(out, BP_XXH128_HEX, "%016" PRIx64 "%016" PRIx64, (uint64_t)value.high64,
                   (uint64_t)value.low64);
}
