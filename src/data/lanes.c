/* Lanes: the windows of each step, made ahead of use by a helper thread. */
#include "data/lanes.h"
#include "base/trace.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "mixture_priv.h"
#include "order_priv.h"
#include "span_cache_priv.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define DEPTH 3 /* steps of windows made ahead */

/* Windows that have an order of their own: the stream's, or with weights a file's. */
typedef struct source {
    int64_t windows; /* W; 0: its weight is 0 */
    bp_order order;
    bp_span_cache cache;
    bp_order_pool *pools; /* those that are read from: of each lane, or with weights one for all,
                             since they go through an epoch side by side; the helper's alone */
} source;

struct bp_lanes {
    bp_lanes_spec spec;
    int64_t length; /* of a lane: floor(W / B); 0 where windows repeat. Without weights */
    int64_t source_count;
    source *sources;    /* 1, or with weights one a file */
    bp_mixture mixture; /* with weights */
    int32_t *ring;      /* [DEPTH][slots][T+1]; step s lies at s mod DEPTH */
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

/* Which entry of which epoch slot b of step s takes, without weights. */
static void find_entry(const bp_lanes *lanes, int64_t step, int64_t slot, int64_t *epoch,
                       int64_t *entry)
{
    if (lanes->length > 0) {
        *epoch = (step - 1) / lanes->length;
        *entry = slot * lanes->length + (step - 1) % lanes->length;
    } else {
        int64_t index = (step - 1) * lanes->spec.batch + slot;

        *epoch = index / lanes->sources->windows;
        *entry = index % lanes->sources->windows;
    }
}

/* ... and with weights, of which file. */
static source *find_weighted(const bp_lanes *lanes, int64_t step, int64_t slot, int64_t *epoch,
                             int64_t *entry)
{
    int64_t file, use;

    bp_mixture_find(&lanes->mixture, (step - 1) * lanes->spec.batch + slot, &file, &use);
    *epoch = use / lanes->sources[file].windows;
    *entry = use % lanes->sources[file].windows;
    return &lanes->sources[file];
}

static bool is_weighted(const bp_lanes *lanes)
{
    return bp_stream_weights(lanes->spec.stream) != NULL;
}

static bool pool_has(const bp_order_pool *pool, int64_t epoch, int64_t entry)
{
    return pool->epoch == epoch && entry >= pool->first && entry < pool->first + pool->windows;
}

static bp_err make_window(bp_lanes *lanes, int64_t step, int64_t lane, int32_t *tokens)
{
    int64_t epoch, entry, span, slot = lanes->spec.first_slot + lane;
    source *from = lanes->sources;
    bp_order_pool *pool;

    if (is_weighted(lanes))
        from = find_weighted(lanes, step, slot, &epoch, &entry);
    else
        find_entry(lanes, step, slot, &epoch, &entry);
    pool = &from->pools[is_weighted(lanes) ? 0 : lane];
    if (!pool_has(pool, epoch, entry)) {
        if (pool->epoch >= 0)
            bp_span_cache_leave(&from->cache, pool);
        bp_order_find(&from->order, epoch, entry, pool);
        bp_span_cache_hold(&from->cache, pool);
    }
    int64_t window = bp_order_window(&from->order, pool, entry, &span);
    return bp_span_cache_window(&from->cache, span, window, tokens);
}

static int64_t spans_read(const bp_lanes *lanes)
{
    int64_t reads = 0;

    for (int64_t k = 0; k < lanes->source_count; k++)
        reads += lanes->sources[k].cache.reads;
    return reads;
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
        lanes->reads = spans_read(lanes);
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
        BP_CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    }
    if (status != 0)
        return BP_FAIL(BP_ERR_SYSTEM, "no thread for the reader of the corpus: %s",
                       strerror(status));
    return BP_OK;
}

/* Source k: `tokens` of the stream from `first` on, of which so many pools are read at a time. */
static bp_err open_source(bp_lanes *lanes, int64_t k, int64_t first, int64_t tokens, int64_t pools)
{
    const bp_lanes_spec *spec = &lanes->spec;
    source *out = &lanes->sources[k];
    bp_err err;

    out->windows = (tokens - 1) / spec->context;
    bp_order_init(&out->order, out->windows, spec->context, spec->seed, spec->member + k);
    err = bp_span_cache_init(&out->cache, spec->stream, first, &out->order, pools);
    if (err != BP_OK)
        return err;
    out->pools = bp_try_alloc("data.lanes", pools, sizeof(*out->pools));
    if (!out->pools)
        return bp_fail_memory("the pools of lanes", pools, sizeof(*out->pools));
    for (int64_t i = 0; i < pools; i++)
        out->pools[i].epoch = -1;
    return BP_OK;
}

static bp_err open_files(bp_lanes *lanes, int64_t files)
{
    bp_stream *stream = lanes->spec.stream;
    const double *weights = bp_stream_weights(stream);
    bp_err err = BP_OK;

    bp_mixture_init(&lanes->mixture, weights, files);
    for (int64_t k = 0; k < files && err == BP_OK; k++) {
        int64_t first, tokens;

        bp_stream_file(stream, k, &first, &tokens);
        if (weights[k] > 0)
            err = open_source(lanes, k, first, tokens, 1);
    }
    return err;
}

static bp_err plan_lanes(bp_lanes *lanes)
{
    const bp_lanes_spec *spec = &lanes->spec;
    int64_t count = is_weighted(lanes) ? bp_stream_files(spec->stream) : 1;
    bp_err err;

    lanes->sources = bp_try_alloc("data.lanes", count, sizeof(*lanes->sources));
    lanes->ring =
        bp_try_alloc("data.lanes", DEPTH * spec->slots * (spec->context + 1), sizeof(*lanes->ring));
    if (!lanes->sources || !lanes->ring)
        return BP_FAIL(BP_ERR_SYSTEM, "no memory for %" PRId64 " lanes", spec->slots);
    lanes->source_count = count;
    if (is_weighted(lanes))
        return open_files(lanes, count);
    err = open_source(lanes, 0, 0, bp_stream_tokens(spec->stream), spec->slots);
    if (err == BP_OK)
        lanes->length = lanes->sources->windows / spec->batch;
    return err;
}

bp_err bp_lanes_new(bp_lanes **out, const bp_lanes_spec *spec)
{
    bp_err err = bp_stream_check(spec->stream, spec->context);

    BP_ASSERT(spec->context > 0 && spec->slots > 0 && spec->first_slot >= 0);
    BP_ASSERT(spec->first_slot + spec->slots <= spec->batch);
    *out = NULL;
    if (err != BP_OK)
        return err;

    bp_lanes *lanes = bp_alloc("data.lanes", 1, sizeof(*lanes));
    lanes->spec = *spec;
    err = plan_lanes(lanes);
    if (err == BP_OK)
        err = start_helper(lanes);
    if (err != BP_OK)
        bp_lanes_free(&lanes);
    *out = lanes;
    return err;
}

size_t bp_lanes_bytes(const bp_lanes_size *size)
{
    int64_t files = size->mixed_files > 0 ? size->mixed_files : 1;
    int64_t holders = size->mixed_files > 0 ? 1 : size->slots;
    int64_t of_file = size->tokens;
    size_t ring = (size_t)(DEPTH * size->slots * (size->context + 1)) * sizeof(int32_t);
    size_t cycle = size->mixed_files > 0 ? 2 * BP_MIXTURE_CYCLE * sizeof(int32_t) : 0;

    if (files > 1) /* files of equal size take most */
        of_file = size->tokens / files + 1;
    return ring + cycle +
           (size_t)files *
               bp_span_cache_bytes(of_file, holders, size->context, size->vocab_size > 65536);
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
    for (int64_t k = 0; k < old->source_count; k++) {
        bp_free(old->sources[k].pools);
        bp_span_cache_clear(&old->sources[k].cache);
        bp_order_clear(&old->sources[k].order);
    }
    bp_free(old->sources);
    bp_mixture_clear(&old->mixture);
    bp_free(old);
    *lanes = NULL;
}

int64_t bp_lanes_windows(const bp_lanes *lanes)
{
    int64_t windows = 0;

    for (int64_t k = 0; k < lanes->source_count; k++)
        windows += lanes->sources[k].windows;
    return windows;
}

double bp_lanes_share(const bp_lanes *lanes, int64_t k)
{
    return (double)lanes->mixture.count[k] / BP_MIXTURE_CYCLE * (double)lanes->spec.batch;
}

bool bp_lanes_repeat(const bp_lanes *lanes)
{
    bool repeat = false;

    if (!is_weighted(lanes))
        return lanes->length == 0;
    for (int64_t k = 0; k < lanes->source_count; k++)
        repeat = repeat || bp_lanes_share(lanes, k) > (double)lanes->sources[k].windows;
    return repeat;
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
