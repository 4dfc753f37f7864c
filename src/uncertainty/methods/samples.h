/* Members that are samples of the last layer, from a file (io/checkpoint/head_samples.h). */
#pragma once

#include "infer/ensemble/member_sampler.h"
#include "io/checkpoint/head_samples.h"

typedef struct bp_sampled_heads {
    bp_member_sampler sampler;
    const char *path;      /* borrowed, or `copy` */
    char *copy;            /* of bp_sampled_heads_new; else NULL */
    bp_head_samples *file; /* while members are made */
} bp_sampled_heads;

extern const bp_member_sampler_ops bp_sampled_heads_sampler;

/** A sampler of `count` samples in a file that need not exist yet. Owns: the caller's,
 * bp_member_sampler_ops.free. */
bp_member_sampler *bp_sampled_heads_new(const char *path, int64_t count);
