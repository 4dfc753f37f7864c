/* Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
 * SC11, section 3.3 and table 2; the constants are those of their Random123 library. */
#include "base/rng.h"
#include "base/err.h"
#include <math.h>

#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0       0x9E3779B9u
#define WEYL_1       0xBB67AE85u
#define ROUNDS       10
#define LANES        8

void bp_rng_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Mix a number into a 128-bit state. For a given state different numbers give different states. */
static void absorb(uint32_t state[4], uint64_t number, uint32_t place)
{
    static const uint32_t key[2] = {0x62616770u, 0x69706500u}; /* "bagpipe" */

    state[0] ^= (uint32_t)number;
    state[1] ^= (uint32_t)(number >> 32);
    state[2] ^= place;
    bp_rng_philox(state, state, key);
}

bp_rng_key bp_rng_key_of(uint64_t seed, bp_rng_purpose purpose, int64_t member, int64_t step,
                         int64_t stream)
{
    uint32_t state[4] = {0, 0, 0, 0};

    absorb(state, seed, 1);
    absorb(state, (uint64_t)purpose, 2);
    absorb(state, (uint64_t)member, 3);
    absorb(state, (uint64_t)step, 4);
    absorb(state, (uint64_t)stream, 5);
    return (bp_rng_key){{state[0], state[1]}, {state[2], state[3]}};
}

void bp_rng_block(uint32_t out[4], const bp_rng_key *key, uint64_t index)
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), key->stream[0],
                           key->stream[1]};

    bp_rng_philox(out, counter, key->key);
}

/* bp_rng_philox of consecutive counters, in lanes that compilers vectorize. */
static void philox_lanes(uint64_t words[2 * LANES], const bp_rng_key *key, uint64_t index)
{
    uint32_t c0[LANES], c1[LANES], c2[LANES], c3[LANES];
    uint32_t k0 = key->key[0], k1 = key->key[1];

    for (uint64_t i = 0; i < LANES; i++) {
        c0[i] = (uint32_t)(index + i);
        c1[i] = (uint32_t)((index + i) >> 32);
        c2[i] = key->stream[0];
        c3[i] = key->stream[1];
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LANES; i++) {
            uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0[i];
            uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2[i];

            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
        }
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    for (int i = 0; i < LANES; i++) {
        words[2 * i] = (uint64_t)c1[i] << 32 | c0[i];
        words[2 * i + 1] = (uint64_t)c3[i] << 32 | c2[i];
    }
}

/* The two 64-bit numbers of a block. */
static void draw_pair(uint64_t out[2], const bp_rng_key *key, uint64_t index)
{
    uint32_t words[4];

    bp_rng_block(words, key, index);
    out[0] = (uint64_t)words[1] << 32 | words[0];
    out[1] = (uint64_t)words[3] << 32 | words[2];
}

void bp_rng_blocks(uint64_t *words, const bp_rng_key *key, uint64_t index, int64_t count)
{
    int64_t done = 0;

    for (; done + LANES <= count; done += LANES)
        philox_lanes(words + 2 * done, key, index + (uint64_t)done);
    for (; done < count; done++)
        draw_pair(words + 2 * done, key, index + (uint64_t)done);
}

uint64_t bp_rng_u64(const bp_rng_key *key, uint64_t index)
{
    uint64_t pair[2];

    draw_pair(pair, key, index);
    return pair[0];
}

double bp_rng_uniform(const bp_rng_key *key, uint64_t index)
{
    return (double)(bp_rng_u64(key, index) >> 11) * 0x1p-53;
}

/* Lemire, "Fast random integer generation in an interval", 2019, algorithm 5. A refused draw, which
 * has a chance below n / 2^64, is replaced from a stream of its own: further blocks of the key are
 * other elements' numbers. */
int64_t bp_rng_below(const bp_rng_key *key, uint64_t index, int64_t n)
{
    BP_ASSERT(n > 0);
    uint64_t range = (uint64_t)n, refused = (0 - range) % range;
    bp_rng_key again = *key;

    for (;;) {
        uint64_t pair[2];
        draw_pair(pair, &again, index);
        for (int i = 0; i < 2; i++) {
            unsigned __int128 product = (unsigned __int128)pair[i] * range;
            if ((uint64_t)product >= refused)
                return (int64_t)(uint64_t)(product >> 64);
        }
        again.key[0] += WEYL_1;
        again.key[1] ^= WEYL_0;
    }
}

/* Slice and Muller, "A note on the generation of random normal deviates", 1958. */
double bp_rng_normal(const bp_rng_key *key, uint64_t index)
{
    uint64_t pair[2];

    draw_pair(pair, key, index);
    double u = (double)((pair[0] >> 11) + 1) * 0x1p-53; /* in (0, 1] */
    double angle = 2 * M_PI * ((double)(pair[1] >> 11) * 0x1p-53);
    return sqrt(-2 * log(u)) * cos(angle);
}

#define FEISTEL_ROUNDS 8

/* The finalizer of MurmurHash3 (Appleby), good enough inside eight keyed rounds. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

/* Black and Rogaway, "Ciphers with arbitrary finite domains", 2002: a Feistel network on the next
 * even number of bits, walked along its cycle until it falls into [0, n): fewer than four steps on
 * average. */
int64_t bp_rng_permute(const bp_rng_key *key, int64_t index, int64_t n)
{
    BP_ASSERT(n > 0 && index >= 0 && index < n);
    uint64_t round_keys[FEISTEL_ROUNDS];
    int half_bits = 1;

    while (half_bits < 32 && (UINT64_C(1) << 2 * half_bits) < (uint64_t)n)
        half_bits++;
    for (int i = 0; i < FEISTEL_ROUNDS; i += 2)
        draw_pair(&round_keys[i], key,
                  UINT64_MAX - (uint64_t)i); /* far from the elements' blocks */
    uint64_t mask = (UINT64_C(1) << half_bits) - 1, at = (uint64_t)index;
    do {
        uint64_t left = at >> half_bits, right = at & mask;
        for (int i = 0; i < FEISTEL_ROUNDS; i++) {
            uint64_t next = left ^ (mix(right + round_keys[i]) & mask);
            left = right;
            right = next;
        }
        at = left << half_bits | right;
    } while (at >= (uint64_t)n);
    return (int64_t)at;
}
