/* Lanes: the windows of each step, made ahead of use by a helper thread. */
#include "corpus/lanes.h"
#include "base/trace.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "order_priv.h"
#include "span_cache_priv.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define DEPTH 3 /* steps of windows made ahead */

struct bp_lanes {
    bp_lanes_spec spec;
    int64_t windows; /* W */
    int64_t length;  /* of a lane: floor(W / B); 0 where windows repeat */
    bp_order order;
    bp_span_cache cache;
    bp_order_pool *pools; /* [slots]: the pool each lane is in; the helper's alone */
    int32_t *ring;        /* [DEPTH][slots][T+1]; step s lies at s mod DEPTH */
    double waited;

    pthread_t helper;
    bool running;
    bool has_mutex, has_changed;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    bool quit;
    int64_t wanted; /* the step that is read next, 0: none yet; steps [wanted, made) are ready */
    int64_t made;
    int64_t seeks; /* counts jumps, so that work begun before one is dropped */
    int64_t reads; /* spans decoded */
    bp_err err;    /* of step `made` */
    char message[BP_ERR_MESSAGE_BYTES];
};

/* Which entry of which epoch slot b of step s takes. */
static void find_entry(const bp_lanes *lanes, int64_t step, int64_t slot, int64_t *epoch,
                       int64_t *entry)
{
    if (lanes->length > 0) {
        *epoch = (step - 1) / lanes->length;
        *entry = slot * lanes->length + (step - 1) % lanes->length;
    } else {
        int64_t index = (step - 1) * lanes->spec.batch + slot;

        *epoch = index / lanes->windows;
        *entry = index % lanes->windows;
    }
}

static bool pool_has(const bp_order_pool *pool, int64_t epoch, int64_t entry)
{
    return pool->epoch == epoch && entry >= pool->first && entry < pool->first + pool->windows;
}

static bp_err make_window(bp_lanes *lanes, int64_t step, int64_t lane, int32_t *tokens)
{
    bp_order_pool *pool = &lanes->pools[lane];
    int64_t epoch, entry, span;

    find_entry(lanes, step, lanes->spec.first_slot + lane, &epoch, &entry);
    if (!pool_has(pool, epoch, entry)) {
        if (pool->epoch >= 0)
            bp_span_cache_leave(&lanes->cache, pool);
        bp_order_find(&lanes->order, epoch, entry, pool);
        bp_span_cache_hold(&lanes->cache, pool);
    }
    int64_t window = bp_order_window(&lanes->order, pool, entry, &span);
    return bp_span_cache_window(&lanes->cache, span, window, tokens);
}

static int32_t *ring_at(const bp_lanes *lanes, int64_t step)
{
    return lanes->ring + (step % DEPTH) * lanes->spec.slots * (lanes->spec.context + 1);
}

static bp_err make_step(bp_lanes *lanes, int64_t step)
{
    int64_t count = lanes->spec.slots * (lanes->spec.context + 1);
    int32_t *to = ring_at(lanes, step);
    bp_err err = BP_OK;

    BP_TRACE(BP_TRACE_INPUT, 0, 4.0 * (double)count);
    bp_trace_number(step);
    for (int64_t lane = 0; err == BP_OK && lane < lanes->spec.slots; lane++)
        err = make_window(lanes, step, lane, to + lane * (lanes->spec.context + 1));
    return err;
}

static void *run_helper(void *argument)
{
    bp_lanes *lanes = argument;

    bp_cores_widen();
    bp_trace_thread(BP_TRACE_READER);
    pthread_mutex_lock(&lanes->mutex);
    while (!lanes->quit) {
        if (lanes->wanted == 0 || lanes->made >= lanes->wanted + DEPTH || lanes->err != BP_OK) {
            pthread_cond_wait(&lanes->changed, &lanes->mutex);
            continue;
        }
        int64_t step = lanes->made, seeks = lanes->seeks;

        pthread_mutex_unlock(&lanes->mutex);
        bp_err err = make_step(lanes, step);
        pthread_mutex_lock(&lanes->mutex);
        lanes->reads = lanes->cache.reads;
        if (seeks != lanes->seeks)
            continue;
        if (err == BP_OK) {
            lanes->made++;
        } else {
            lanes->err = err;
            strncpy(lanes->message, bp_err_message(), sizeof(lanes->message) - 1);
        }
        pthread_cond_broadcast(&lanes->changed);
    }
    pthread_mutex_unlock(&lanes->mutex);
    bp_trace_thread_end();
    return NULL;
}

/* Signals are the main thread's: the helper starts with all of them blocked. */
static bp_err start_helper(bp_lanes *lanes)
{
    sigset_t all, before;
    int status;

    lanes->has_mutex = pthread_mutex_init(&lanes->mutex, NULL) == 0;
    lanes->has_changed = pthread_cond_init(&lanes->changed, NULL) == 0;
    if (!lanes->has_mutex || !lanes->has_changed)
        return BP_FAIL(BP_ERR_SYSTEM, "no mutex for the reader of the corpus");
    sigfillset(&all);
    status = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (status == 0) {
        status = pthread_create(&lanes->helper, NULL, run_helper, lanes);
        lanes->running = status == 0;
        BP_ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    }
    if (status != 0)
        return BP_FAIL(BP_ERR_SYSTEM, "no thread for the reader of the corpus: %s",
                       strerror(status));
    return BP_OK;
}

static bp_err plan_lanes(bp_lanes *lanes)
{
    const bp_lanes_spec *spec = &lanes->spec;
    bool wide = bp_stream_vocab_size(spec->stream) > 65536;
    bp_err err =
        bp_order_init(&lanes->order, lanes->windows, spec->context, spec->seed, spec->member);

    if (err == BP_OK)
        err = bp_span_cache_init(&lanes->cache, spec->stream, &lanes->order, wide, spec->slots);
    if (err != BP_OK)
        return err;
    lanes->pools = bp_alloc("corpus.lanes", spec->slots, sizeof(*lanes->pools));
    lanes->ring =
        bp_alloc("corpus.lanes", DEPTH * spec->slots * (spec->context + 1), sizeof(*lanes->ring));
    if (!lanes->pools || !lanes->ring)
        return BP_FAIL(BP_ERR_SYSTEM, "no memory for %" PRId64 " lanes", spec->slots);
    for (int64_t lane = 0; lane < spec->slots; lane++)
        lanes->pools[lane].epoch = -1;
    return BP_OK;
}

bp_err bp_lanes_new(bp_lanes **out, const bp_lanes_spec *spec)
{
    int64_t tokens = bp_stream_tokens(spec->stream);

    BP_ASSERT(spec->context > 0 && spec->slots > 0 && spec->first_slot >= 0);
    BP_ASSERT(spec->first_slot + spec->slots <= spec->batch);
    *out = NULL;
    if (tokens < spec->context + 1)
        return BP_FAIL(BP_ERR_FORMAT,
                       "the corpus has too few tokens, %" PRId64 ", for a window of %" PRId64
                       " and its targets: at %s; use a smaller model.context or more text",
                       tokens, spec->context, bp_stream_name(spec->stream));

    bp_lanes *lanes = bp_alloc("corpus.lanes", 1, sizeof(*lanes));
    if (!lanes)
        return BP_FAIL(BP_ERR_SYSTEM, "no memory for lanes");
    lanes->spec = *spec;
    lanes->windows = (tokens - 1) / spec->context;
    lanes->length = lanes->windows / spec->batch;
    bp_err err = plan_lanes(lanes);
    if (err == BP_OK)
        err = start_helper(lanes);
    if (err != BP_OK)
        bp_lanes_free(&lanes);
    *out = lanes;
    return err;
}

size_t bp_lanes_bytes(int64_t tokens, int64_t slots, int64_t context, int64_t vocab_size)
{
    size_t ring = (size_t)(DEPTH * slots * (context + 1)) * sizeof(int32_t);

    return ring + bp_span_cache_bytes(tokens, slots, context, vocab_size > 65536);
}

void bp_lanes_free(bp_lanes **lanes)
{
    bp_lanes *old = *lanes;

    if (!old)
        return;
    if (old->running) {
        pthread_mutex_lock(&old->mutex);
        old->quit = true;
        pthread_cond_broadcast(&old->changed);
        pthread_mutex_unlock(&old->mutex);
        pthread_join(old->helper, NULL);
    }
    if (old->has_changed)
        pthread_cond_destroy(&old->changed);
    if (old->has_mutex)
        pthread_mutex_destroy(&old->mutex);
    bp_free(old->ring);
    bp_free(old->pools);
    bp_span_cache_clear(&old->cache);
    bp_order_clear(&old->order);
    bp_free(old);
    *lanes = NULL;
}

int64_t bp_lanes_windows(const bp_lanes *lanes)
{
    return lanes->windows;
}

bool bp_lanes_repeat(const bp_lanes *lanes)
{
    return lanes->length == 0;
}

double bp_lanes_waited(const bp_lanes *lanes)
{
    return lanes->waited;
}

int64_t bp_lanes_spans_read(bp_lanes *lanes)
{
    pthread_mutex_lock(&lanes->mutex);
    int64_t reads = lanes->reads;
    pthread_mutex_unlock(&lanes->mutex);
    return reads;
}

/* Called with the mutex held. */
static void wait_for(bp_lanes *lanes, int64_t step)
{
    if (step != lanes->wanted) {
        lanes->wanted = lanes->made = step;
        lanes->seeks++;
        lanes->err = BP_OK;
        pthread_cond_broadcast(&lanes->changed);
    }
    if (lanes->made > step)
        return;

    double start = bp_clock_now();
    while (lanes->made <= step && lanes->err == BP_OK)
        pthread_cond_wait(&lanes->changed, &lanes->mutex);
    lanes->waited += bp_clock_now() - start;
}

bp_err bp_lanes_read(bp_lanes *lanes, int64_t step, int32_t *windows)
{
    int64_t count = lanes->spec.slots * (lanes->spec.context + 1);

    BP_TRACE(BP_TRACE_INPUT, 0, 4.0 * (double)count);
    BP_ASSERT(step >= 1);
    pthread_mutex_lock(&lanes->mutex);
    wait_for(lanes, step);
    if (lanes->made <= step) {
        bp_err_set_message(lanes->message);
        bp_err err = lanes->err;
        pthread_mutex_unlock(&lanes->mutex);
        return err;
    }
    pthread_mutex_unlock(&lanes->mutex);

    /* The helper writes no further than step + DEPTH - 1 until `wanted` moves on: this one is ours.
     */
    memcpy(windows, ring_at(lanes, step), (size_t)count * sizeof(*windows));
    pthread_mutex_lock(&lanes->mutex);
    lanes->wanted = step + 1;
    pthread_cond_broadcast(&lanes->changed);
    pthread_mutex_unlock(&lanes->mutex);
    return BP_OK;
}
