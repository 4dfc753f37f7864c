/* train.trace and train.profile, as the files of this folder share them. */
#pragma once

#include "base/trace.h"
#include "train/loop/trainer.h"
#include "train/parts/list.h"

#define TRACE_WARM_STEPS   2       /* skipped: caches and buffers fill, kernels are generated */
#define TRACE_STEPS        10      /* whose events are kept */
#define TRACE_RANK_EVENTS  65536   /* capacity for events of a rank, at most, */
#define TRACE_LEAST_EVENTS 1024    /* at least, */
#define TRACE_ALL_EVENTS   2097152 /* and of all ranks together: 300 MB as text */

/* What a rank reports of itself at the end. Plain data: sent as bytes. */
typedef struct rank_trace {
    char host[64];
    bool computes;
    int pipeline_at, data_at, tensor_at;
    int64_t first_step, steps, nanoseconds; /* of the profile */
    double peak_flops, bandwidth;           /* FLOP/s, bytes/s; 0: not measured */
    bp_trace_count work[BP_TRACE_KINDS];    /* of the thread of control */
    double reader_seconds, writer_seconds;  /* of its helpers */
    int64_t clock_offset;                   /* nanoseconds to add, to have rank 0's clock */
    int64_t events, dropped;
} rank_trace;

/* What is recorded of this start. */
typedef struct tracing {
    char *path;                   /* of its timeline, on the coordinator; NULL without one */
    int64_t begin;                /* the step from which it resumes */
    int64_t first;                /* the first profiled step; 0: not yet known */
    int64_t origin;               /* nanoseconds of this rank's clock, when tracing began */
    int64_t clock_offset;         /* to be added, to have rank 0's */
    double peak_flops, bandwidth; /* FLOP/s and bytes/s of this rank; 0: not measured */
} tracing;

/* profile.c: on the coordinator; ranks[mesh->size] */
/** The table, and RUN/profile.json. Errors: BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM. */
bp_err profile_report(const trainer *self, const rank_trace *ranks);

/* timeline.c */
/** Events of all ranks, at most `capacity` of each, go to train.trace, in rank order. Collective
 * over world; ranks[] is the coordinator's. Errors: BP_ERR_IO, BP_ERR_CREATE, BP_ERR_DENIED,
 * BP_ERR_SYSTEM: the same on all ranks. */
bp_err timeline_write(const trainer *self, const tracing *own, int64_t capacity,
                      const rank_trace *mine, const rank_trace *ranks);
