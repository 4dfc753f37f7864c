/* Where time goes: spans of work, counted by kind, and kept as events of a timeline.
 *
 * A thread that takes part (bp_trace_start's caller, and helpers that call bp_trace_thread) begins
 * and ends spans, nested; a span's time is its own, without that of the spans inside it. All other
 * threads' calls do nothing. Hooks are one line at the top of a function:
 *
 *     BP_TRACE(BP_TRACE_NORM, 0, 8.0 * (double)(rows * C));
 *
 * and cost one predictable branch where nothing is traced. They are in functions that the thread
 * of control calls, never within a parallel region.
 */
#pragma once

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum bp_trace_kind {
    BP_TRACE_OTHER,           /* what is in no span */
    BP_TRACE_STEP,            /* a step: its own time counts as OTHER */
    BP_TRACE_PASS_FORWARD,    /* a micro-batch through a stage: its own time counts as OTHER */
    BP_TRACE_PASS_BACKWARD,   /* as OTHER */
    BP_TRACE_PRODUCT_FORWARD, /* matrix products */
    BP_TRACE_PRODUCT_INPUT,   /* gradients of their inputs */
    BP_TRACE_PRODUCT_WEIGHT,  /* gradients of their weights */
    BP_TRACE_ATTENTION_FORWARD,
    BP_TRACE_ATTENTION_BACKWARD,
    BP_TRACE_NORM,
    BP_TRACE_ELEMENTWISE, /* activations, dropout, residuals */
    BP_TRACE_SOFTMAX,
    BP_TRACE_EMBEDDING,
    BP_TRACE_GRADIENT, /* gradients zeroed, added up, and their norm */
    BP_TRACE_OPTIMIZER,
    BP_TRACE_OPERANDS, /* activations rounded for products */
    BP_TRACE_COPIES,   /* weights packed into the layouts of matrix products */
    BP_TRACE_REDUCE,   /* sums over ranks: waiting and adding */
    BP_TRACE_GATHER,
    BP_TRACE_SEND,        /* waiting until something has left */
    BP_TRACE_RECEIVE,     /* waiting until something has come */
    BP_TRACE_AGREE,       /* waiting for others: broadcasts, agreements */
    BP_TRACE_INPUT,       /* waiting for the corpus; on its helper thread: reading it */
    BP_TRACE_CHECKPOINT,  /* from here on: outside steps */
    BP_TRACE_SNAPSHOT,    /* the copy that one is written from */
    BP_TRACE_WRITER_WAIT, /* waiting until one is written */
    BP_TRACE_VALIDATION,
    BP_TRACE_KINDS
} bp_trace_kind;

/** "products forward"; borrowed. */
const char *bp_trace_name(bp_trace_kind kind);

typedef enum bp_trace_track {
    BP_TRACE_COMPUTE,       /* the thread of control */
    BP_TRACE_COMMUNICATION, /* messages in flight between ranks: bp_trace_flight */
    BP_TRACE_READER,        /* the helper that reads the corpus */
    BP_TRACE_WRITER,        /* the helper that writes checkpoints */
    BP_TRACE_TRACKS
} bp_trace_track;
/** "compute"; borrowed. */
const char *bp_trace_track_name(bp_trace_track track);

/** Begin a trace: the caller becomes the thread of control, and counting starts. Allocates
 * `events` events of a timeline (0: no timeline). Not while a trace is active (BP_ASSERT).
 */
void bp_trace_start(int64_t events);
/** End the trace, on the same thread, after all helpers have left; the recorded data is freed.
 * Does nothing if no trace was started. */
void bp_trace_stop(void);
bool bp_trace_is_on(void);
/** Bytes that bp_trace_start takes. */
size_t bp_trace_bytes(int64_t events);

/** The calling helper thread joins as `track`; one thread per track at a time. */
void bp_trace_thread(bp_trace_track track);
/** The helper thread leaves; called before it ends. */
void bp_trace_thread_end(void);

/** Reset all counts. By the thread of control, outside all spans. */
void bp_trace_reset(void);
/** Start or stop keeping events. By the thread of control. */
void bp_trace_record(bool on);

/* ---- spans ---- */

typedef struct bp_trace_thread_state bp_trace_thread_state;
extern _Thread_local bp_trace_thread_state *bp_trace_here; /* NULL: this thread takes no part */
void bp_trace_enter(bp_trace_kind kind, double flops, double bytes);
void bp_trace_leave(void);
void bp_trace_more(double flops, double bytes);
void bp_trace_name_it(int64_t number);
void bp_trace_name_chunk(int chunk);
int64_t bp_trace_clock(void);

/** Begin a span of `kind` that computes `flops` and moves `bytes`, where known. */
static inline void bp_trace_begin(bp_trace_kind kind, double flops, double bytes)
{
    if (bp_trace_here)
        bp_trace_enter(kind, flops, bytes);
}

/** The innermost span ends. */
static inline void bp_trace_end(void)
{
    if (bp_trace_here)
        bp_trace_leave();
}

/** Add to the innermost span's flops and bytes. */
static inline void bp_trace_add(double flops, double bytes)
{
    if (bp_trace_here)
        bp_trace_more(flops, bytes);
}

/** Set the number of the innermost span's step or micro-batch. */
static inline void bp_trace_number(int64_t number)
{
    if (bp_trace_here)
        bp_trace_name_it(number);
}

/** Set the chunk of a stage for the innermost span. */
static inline void bp_trace_chunk(int chunk)
{
    if (bp_trace_here)
        bp_trace_name_chunk(chunk);
}

/** A span from here to the end of the block. */
#define BP_TRACE(kind, flops, bytes)          BP_TRACE_AT(__LINE__, kind, flops, bytes)
#define BP_TRACE_AT(line, kind, flops, bytes) BP_TRACE_SCOPE(line, kind, flops, bytes)
#define BP_TRACE_SCOPE(line, kind, flops, bytes)                                                   \
    __attribute__((cleanup(bp_trace_close), unused)) const int bp_trace_scope_##line =             \
        bp_trace_open(kind, flops, bytes)

static inline int bp_trace_open(bp_trace_kind kind, double flops, double bytes)
{
    bp_trace_begin(kind, flops, bytes);
    return 0;
}

static inline void bp_trace_close(const int *scope)
{
    (void)scope;
    bp_trace_end();
}

/** For communication that overlaps other work: returns its start time (0 when not tracing); when
 * it has completed, records an event of BP_TRACE_COMMUNICATION from then to now.
 */
static inline int64_t bp_trace_now(void)
{
    return bp_trace_here ? bp_trace_clock() : 0;
}
void bp_trace_flight(bp_trace_kind kind, int64_t began, double bytes);

/* ---- what was recorded ---- */

typedef struct bp_trace_count {
    int64_t calls;
    int64_t nanoseconds; /* own time */
    double flops, bytes;
} bp_trace_count;

/** Counts since bp_trace_start or bp_trace_reset, of one thread, by kind; open spans count up to
 * now. The counts of the thread of control add up to *nanoseconds, the time since then. Time
 * within a CHECKPOINT, SNAPSHOT, WRITER_WAIT or VALIDATION counts as that kind. By the thread of
 * control. */
void bp_trace_counts(bp_trace_track track, bp_trace_count counts[BP_TRACE_KINDS],
                     int64_t *nanoseconds);

typedef struct bp_trace_event {
    int64_t begin, end; /* nanoseconds of CLOCK_MONOTONIC */
    float flops, bytes;
    int32_t number;      /* step or micro-batch, or -1 */
    uint8_t kind, track; /* bp_trace_kind, bp_trace_track */
    int16_t chunk;       /* chunk of a stage, or -1 */
} bp_trace_event;

/** The events kept, in the order in which they ended; borrowed, until the next span ends.
 * *dropped: the number that did not fit. By the thread of control, with recording off. */
const bp_trace_event *bp_trace_events(int64_t *count, int64_t *dropped);
