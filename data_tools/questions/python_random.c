/* The Mersenne Twister MT19937, and Python's sample() over it. */
#include "questions/python_random.h"

#include "base/err.h"
#include "base/mem.h"

#define WORDS 624
#define AHEAD 397

static void init_by_number(uint32_t *state, uint32_t seed)
{
    state[0] = seed;
    for (uint32_t k = 1; k < WORDS; k++)
        state[k] = UINT32_C(1812433253) * (state[k - 1] ^ (state[k - 1] >> 30)) + k;
}

/* state[at], and the first word again after the last. */
static int step(uint32_t *state, int at)
{
    if (++at < WORDS)
        return at;
    state[0] = state[WORDS - 1];
    return 1;
}

void python_random_init(python_random *self, uint64_t seed)
{
    const uint32_t key[] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t *s = self->state, length = key[1] ? 2 : 1;
    int at = 1;

    init_by_number(s, UINT32_C(19650218));
    for (uint32_t k = 0; k < WORDS; k++) {
        uint32_t j = k % length;

        s[at] = (s[at] ^ ((s[at - 1] ^ (s[at - 1] >> 30)) * UINT32_C(1664525))) + key[j] + j;
        at = step(s, at);
    }
    for (int k = 1; k < WORDS; k++) {
        s[at] = (s[at] ^ ((s[at - 1] ^ (s[at - 1] >> 30)) * UINT32_C(1566083941))) - (uint32_t)at;
        at = step(s, at);
    }
    s[0] = UINT32_C(0x80000000);
    self->used = WORDS;
}

static void make_words(uint32_t *s)
{
    for (int k = 0; k < WORDS; k++) {
        uint32_t y = (s[k] & UINT32_C(0x80000000)) | (s[(k + 1) % WORDS] & UINT32_C(0x7FFFFFFF));

        s[k] = s[(k + AHEAD) % WORDS] ^ (y >> 1) ^ (y & 1 ? UINT32_C(0x9908B0DF) : 0);
    }
}

static uint32_t next_word(python_random *self)
{
    uint32_t y;

    if (self->used == WORDS) {
        make_words(self->state);
        self->used = 0;
    }
    y = self->state[self->used++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9D2C5680);
    y ^= (y << 15) & UINT32_C(0xEFC60000);
    return y ^ (y >> 18);
}

/* One of 0 to limit - 1: as many bits as limit has, again while they are too many. */
static int64_t below(python_random *self, int64_t limit)
{
    int bits = 0;
    int64_t drawn;

    while (limit >> bits > 0)
        bits++;
    do
        drawn = next_word(self) >> (32 - bits);
    while (drawn >= limit);
    return drawn;
}

/* The population up to which a pool is taken: 21, and of more than 5 the power of 4 that 3 times as
 * many reach. */
static int64_t largest_pool(int64_t count)
{
    int64_t power = 1;

    if (count <= 5)
        return 21;
    while (power < 3 * count)
        power *= 4;
    return 21 + power;
}

static bool is_among(const int64_t *list, int64_t count, int64_t value)
{
    for (int64_t k = 0; k < count; k++)
        if (list[k] == value)
            return true;
    return false;
}

void python_random_sample(python_random *self, int64_t *out, int64_t population, int64_t count)
{
    int64_t *pool = NULL;

    BP_ASSERT(count <= population && population < INT64_C(1) << 31);
    if (population <= largest_pool(count)) {
        pool = bp_alloc("tool.questions", population, sizeof *pool);
        for (int64_t k = 0; k < population; k++)
            pool[k] = k;
    }
    for (int64_t k = 0; k < count; k++) {
        int64_t j = below(self, pool ? population - k : population);

        while (!pool && is_among(out, k, j))
            j = below(self, population);
        out[k] = pool ? pool[j] : j;
        if (pool)
            pool[j] = pool[population - k - 1];
    }
    bp_free(pool);
}
