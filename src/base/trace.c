/* Spans of time: what each thread did when, for profiles and timelines. */
#include "base/trace.h"

#include "base/mem.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#define DEPTH 32 /* spans within one another */

typedef struct frame {
    int64_t begin, own; /* nanoseconds; `own` up to the thread's mark */
    double flops, bytes;
    int32_t number;
    int chunk;
    bp_trace_kind kind;
    bp_trace_kind counts_as;
} frame;

struct bp_trace_thread_state {
    bp_trace_track track;
    int depth;    /* open spans; frame 0 is for time outside all spans */
    int64_t mark; /* up to which time is counted */
    frame frames[DEPTH];
    bp_trace_count counts[BP_TRACE_KINDS];
};

_Thread_local bp_trace_thread_state *bp_trace_here;

static bool is_on;
static int64_t since; /* counts begin here */
static bp_trace_thread_state threads[BP_TRACE_TRACKS];

/* Guards everything below, and `counts` of helpers. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool keeps;
static bp_trace_event *events;
static int64_t capacity, used, dropped;

static const struct {
    const char *name;
    bp_trace_kind counts_as;
    bool whole; /* spans within count as its own time, unless they are of such a kind too */
} KINDS[BP_TRACE_KINDS] = {
    [BP_TRACE_OTHER] = {"other", BP_TRACE_OTHER, false},
    [BP_TRACE_STEP] = {"step", BP_TRACE_OTHER, false},
    [BP_TRACE_PASS_FORWARD] = {"forward pass", BP_TRACE_OTHER, false},
    [BP_TRACE_PASS_BACKWARD] = {"backward pass", BP_TRACE_OTHER, false},
    [BP_TRACE_PRODUCT_FORWARD] = {"products forward", BP_TRACE_PRODUCT_FORWARD, false},
    [BP_TRACE_PRODUCT_INPUT] = {"products, input gradient", BP_TRACE_PRODUCT_INPUT, false},
    [BP_TRACE_PRODUCT_WEIGHT] = {"products, weight gradient", BP_TRACE_PRODUCT_WEIGHT, false},
    [BP_TRACE_ATTENTION_FORWARD] = {"attention forward", BP_TRACE_ATTENTION_FORWARD, false},
    [BP_TRACE_ATTENTION_BACKWARD] = {"attention backward", BP_TRACE_ATTENTION_BACKWARD, false},
    [BP_TRACE_NORM] = {"norms", BP_TRACE_NORM, false},
    [BP_TRACE_ELEMENTWISE] = {"activations and residuals", BP_TRACE_ELEMENTWISE, false},
    [BP_TRACE_SOFTMAX] = {"softmax", BP_TRACE_SOFTMAX, false},
    [BP_TRACE_EMBEDDING] = {"embedding", BP_TRACE_EMBEDDING, false},
    [BP_TRACE_GRADIENT] = {"gradient sums and norm", BP_TRACE_GRADIENT, false},
    [BP_TRACE_OPTIMIZER] = {"optimizer", BP_TRACE_OPTIMIZER, false},
    [BP_TRACE_OPERANDS] = {"operands rounded", BP_TRACE_OPERANDS, false},
    [BP_TRACE_COPIES] = {"weight copies", BP_TRACE_COPIES, false},
    [BP_TRACE_REDUCE] = {"reduction", BP_TRACE_REDUCE, false},
    [BP_TRACE_GATHER] = {"gather", BP_TRACE_GATHER, false},
    [BP_TRACE_SEND] = {"send", BP_TRACE_SEND, false},
    [BP_TRACE_RECEIVE] = {"receive", BP_TRACE_RECEIVE, false},
    [BP_TRACE_AGREE] = {"agreement", BP_TRACE_AGREE, false},
    [BP_TRACE_INPUT] = {"input", BP_TRACE_INPUT, false},
    [BP_TRACE_CHECKPOINT] = {"checkpoint", BP_TRACE_CHECKPOINT, true},
    [BP_TRACE_SNAPSHOT] = {"checkpoint, copy", BP_TRACE_SNAPSHOT, true},
    [BP_TRACE_WRITER_WAIT] = {"checkpoint, wait", BP_TRACE_WRITER_WAIT, true},
    [BP_TRACE_VALIDATION] = {"validation", BP_TRACE_VALIDATION, true},
};

static const char *const TRACKS[BP_TRACE_TRACKS] = {"compute", "communication", "input",
                                                    "checkpoint"};

const char *bp_trace_name(bp_trace_kind kind)
{
    BP_ASSERT(kind >= 0 && kind < BP_TRACE_KINDS);
    return KINDS[kind].name;
}

const char *bp_trace_track_name(bp_trace_track track)
{
    BP_ASSERT(track >= 0 && track < BP_TRACE_TRACKS);
    return TRACKS[track];
}

int64_t bp_trace_clock(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* there is one on Linux */
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void take(bool takes)
{
    int status = takes ? pthread_mutex_lock(&lock) : pthread_mutex_unlock(&lock);

    BP_ASSERT(status == 0);
}

size_t bp_trace_bytes(int64_t count)
{
    return (size_t)count * sizeof(bp_trace_event);
}

void bp_trace_start(int64_t count)
{
    BP_ASSERT(!is_on);
    if (count > 0)
        events = bp_alloc("trace", count, sizeof *events);
    capacity = count;
    used = dropped = 0;
    keeps = false;
    is_on = true;
    memset(threads, 0, sizeof threads); /* there is no helper yet */
    bp_trace_thread(BP_TRACE_COMPUTE);
    since = bp_trace_here->mark;
}

void bp_trace_stop(void)
{
    if (!is_on)
        return;
    is_on = false;
    bp_trace_here = NULL;
    bp_free(events);
    events = NULL;
}

bool bp_trace_is_on(void)
{
    return is_on;
}

void bp_trace_thread(bp_trace_track track)
{
    if (!is_on)
        return;
    bp_trace_here = &threads[track];
    bp_trace_here->track = track;
    bp_trace_here->depth = 0;
    memset(bp_trace_here->frames, 0, sizeof bp_trace_here->frames);
    bp_trace_here->mark = bp_trace_here->frames[0].begin = bp_trace_clock();
}

void bp_trace_thread_end(void)
{
    bp_trace_here = NULL;
}

void bp_trace_reset(void)
{
    BP_ASSERT(is_on && bp_trace_here == &threads[BP_TRACE_COMPUTE] && bp_trace_here->depth == 0);
    take(true);
    for (int k = 0; k < BP_TRACE_TRACKS; k++)
        memset(threads[k].counts, 0, sizeof threads[k].counts);
    take(false);
    since = bp_trace_here->mark = bp_trace_clock();
    bp_trace_here->frames[0].own = 0;
}

void bp_trace_record(bool on)
{
    take(true);
    keeps = on && capacity > 0;
    take(false);
}

/* Add the time since the mark to the innermost span's own. */
static int64_t charge_time(bp_trace_thread_state *self)
{
    int64_t now = bp_trace_clock();

    self->frames[self->depth].own += now - self->mark;
    self->mark = now;
    return now;
}

void bp_trace_enter(bp_trace_kind kind, double flops, double bytes)
{
    bp_trace_thread_state *self = bp_trace_here;
    int64_t now = charge_time(self);
    const frame *outer = &self->frames[self->depth];
    bool inside = self->depth > 0 && KINDS[outer->counts_as].whole && !KINDS[kind].whole;
    bp_trace_kind within = inside ? outer->counts_as : KINDS[kind].counts_as;

    BP_ASSERT(self->depth + 1 < DEPTH);
    self->frames[++self->depth] = (frame){.begin = now,
                                          .flops = flops,
                                          .bytes = bytes,
                                          .number = -1,
                                          .chunk = -1,
                                          .kind = kind,
                                          .counts_as = within};
}

/* Called with the lock held. */
static void keep(bp_trace_kind kind, bp_trace_track track, const frame *span, int64_t end)
{
    if (!keeps)
        return;
    if (used == capacity) {
        dropped++;
        return;
    }
    events[used++] = (bp_trace_event){.begin = span->begin,
                                      .end = end,
                                      .flops = (float)span->flops,
                                      .bytes = (float)span->bytes,
                                      .number = span->number,
                                      .kind = (uint8_t)kind,
                                      .track = (uint8_t)track,
                                      .chunk = (int16_t)span->chunk};
}

void bp_trace_leave(void)
{
    bp_trace_thread_state *self = bp_trace_here;
    int64_t now = charge_time(self);
    const frame *span = &self->frames[self->depth];
    bp_trace_count *count = &self->counts[span->counts_as];

    BP_ASSERT(self->depth > 0);
    take(true);
    count->calls += span->counts_as == span->kind;
    count->nanoseconds += span->own;
    count->flops += span->flops;
    count->bytes += span->bytes;
    keep(span->kind, self->track, span, now);
    take(false);
    self->depth--;
}

void bp_trace_more(double flops, double bytes)
{
    frame *span = &bp_trace_here->frames[bp_trace_here->depth];

    span->flops += flops;
    span->bytes += bytes;
}

void bp_trace_name_it(int64_t number)
{
    bp_trace_here->frames[bp_trace_here->depth].number = (int32_t)(number & INT32_MAX);
}

void bp_trace_name_chunk(int chunk)
{
    bp_trace_here->frames[bp_trace_here->depth].chunk = chunk;
}

void bp_trace_flight(bp_trace_kind kind, int64_t began, double bytes)
{
    if (!bp_trace_here || began == 0)
        return;
    frame flight = {.begin = began, .bytes = bytes, .number = -1, .chunk = -1};
    int64_t now = bp_trace_clock();
    take(true);
    keep(kind, BP_TRACE_COMMUNICATION, &flight, now);
    take(false);
}

void bp_trace_counts(bp_trace_track track, bp_trace_count counts[BP_TRACE_KINDS],
                     int64_t *nanoseconds)
{
    const bp_trace_thread_state *self = &threads[track];

    BP_ASSERT(is_on && bp_trace_here == &threads[BP_TRACE_COMPUTE]);
    (void)charge_time(bp_trace_here);
    take(true);
    memcpy(counts, self->counts, sizeof self->counts);
    take(false);
    for (int k = 0; self == bp_trace_here && k <= self->depth; k++)
        counts[self->frames[k].counts_as].nanoseconds += self->frames[k].own;
    *nanoseconds = bp_trace_here->mark - since;
}

const bp_trace_event *bp_trace_events(int64_t *count, int64_t *lost)
{
    *count = used;
    *lost = dropped;
    return events;
}
