/* Numbers as Python's module random draws them. Local: no MPI. */
#pragma once

#include <stdint.h>

typedef struct python_random {
    uint32_t state[624];
    int used; /* used words of state; 624: all */
} python_random;

/** random.Random(seed), of seed >= 0.
 * Source: Matsumoto and Nishimura 1998, and their init_by_array of 2002 with the seed's 32-bit
 *         digits, the lowest first. */
void python_random_init(python_random *self, uint64_t seed);

/** random.sample(range(population), count), of count <= population < 2^31, to out[count].
 * Source: Python's documentation of random.sample and its getrandbits: for a small population a
 *         shrinking pool, for a large one a set of the numbers drawn. */
void python_random_sample(python_random *self, int64_t *out, int64_t population, int64_t count);
