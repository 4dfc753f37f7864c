/* The division of a vector among ranks, level by level. Called by collective.c, by plans of jobs
 * (train/scale), and by tests/bench/scale. */
#include "mesh/shard.h"

#include <stdbool.h>

/* One level of the division of a vector among `members` ranks, which are `stride` apart: those with
 * an even index keep the first `low` items, the others the rest. */
typedef struct level {
    int64_t first, count, low; /* items that the members have together */
    int member, members, stride;
} level;

/* A share for each even member: no rank has more than ceil(n / size). */
static int64_t low_part(int64_t n, int members)
{
    int64_t even = (members + 1) / 2;

    return n / members * even + (n % members * even + members - 1) / members;
}

static level first_level(int64_t n, int rank, int size)
{
    return (level){0, n, low_part(n, size), rank, size, 1};
}

static level next_level(const level *at)
{
    bool odd = at->member % 2 != 0;
    level next = {.first = odd ? at->first + at->low : at->first,
                  .count = odd ? at->count - at->low : at->low,
                  .member = at->member / 2,
                  .members = odd ? at->members / 2 : (at->members + 1) / 2,
                  .stride = 2 * at->stride};

    next.low = low_part(next.count, next.members);
    return next;
}

static level last_level(int64_t n, int rank, int size)
{
    level at = first_level(n, rank, size);

    while (at.members > 1)
        at = next_level(&at);
    return at;
}

int64_t bp_shard_first(int64_t n, int rank, int size)
{
    return last_level(n, rank, size).first;
}

int64_t bp_shard_count(int64_t n, int rank, int size)
{
    return last_level(n, rank, size).count;
}

int64_t bp_reduce_scatter_scratch(int64_t n, int size)
{
    return size == 1 ? 0 : low_part(n, size);
}

/* With an odd number of members the last one has no partner: it gives its part of the odd members'
 * items to the one before it, and later takes their sum from there. */
static bool is_alone(const level *at)
{
    return at->members % 2 == 1 && at->member == at->members - 1;
}

static bool has_three(const level *at)
{
    return at->members % 2 == 1 && at->member == at->members - 2;
}

int bp_shard_rounds(bp_shard_round *rounds, int64_t n, int rank, int size)
{
    int count = 0;

    for (level at = first_level(n, rank, size); at.members > 1; at = next_level(&at)) {
        bool odd = at.member % 2 != 0;
        int64_t high = at.first + at.low, highs = at.count - at.low;
        int before = rank - at.stride, after = rank + at.stride;

        if (is_alone(&at))
            rounds[count++] = (bp_shard_round){before, high, highs, high, 0};
        else if (odd)
            rounds[count++] = (bp_shard_round){before, at.first, at.low, high, highs};
        else
            rounds[count++] = (bp_shard_round){after, high, highs, at.first, at.low};
        if (has_three(&at))
            rounds[count++] = (bp_shard_round){after, high, 0, high, highs};
    }
    return count;
}
