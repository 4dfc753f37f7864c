/* The space of a search: keys with the values that they may have. Pure functions: no MPI, no files.
 */
#pragma once

#include "base/config/config.h"
#include "base/err.h"
#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define NAS_AXES        24
#define NAS_VALUES      32
#define NAS_VALUE_BYTES 40
#define NAS_KEY_BYTES   48

typedef struct nas_axis {
    char key[NAS_KEY_BYTES];
    int count;
    char values[NAS_VALUES][NAS_VALUE_BYTES];
    double numbers[NAS_VALUES]; /* of values that are numbers; else their index */
} nas_axis;

typedef struct nas_space {
    int count; /* of axes */
    nas_axis axes[NAS_AXES];
} nas_space;

/** A point of the space: the index of a value on each axis. */
typedef struct nas_point {
    uint8_t at[NAS_AXES];
} nas_point;

/** Read "model.layers=2,4,6; model.inner=256,512"; NULL is an empty space.
 * Errors: BP_ERR_CONFIG, with what is wrong with the text. */
bp_err nas_space_read(nas_space *out, const char *text);

/** The number of points, at most 2^53. */
double nas_space_points(const nas_space *space);
/** Point number k, in an order in which the last axis changes fastest. */
nas_point nas_space_point(const nas_space *space, int64_t k);
/** A point drawn uniformly: a function of the key, of draws [first, first + space->count). */
nas_point nas_space_draw(const nas_space *space, const bp_rng_key *key, uint64_t first);
/** The point with the largest, or the smallest, number on each axis. */
nas_point nas_space_largest(const nas_space *space);
nas_point nas_space_smallest(const nas_space *space);

/** "model.layers=4 model.inner=256". text[bytes]. Returns false if it is too long. */
bool nas_space_text(char *text, size_t bytes, const nas_space *space, const nas_point *point);
/** The point of such a text. Returns false if there is none. */
bool nas_space_find(const nas_space *space, const char *settings, nas_point *out);

/** Set the keys of settings ("KEY=VALUE KEY=VALUE") in `config`. Errors: BP_ERR_CONFIG. */
bp_err nas_settings_set(bp_config *config, const char *settings);
