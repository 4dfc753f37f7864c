/* The loader: the windows or documents of each step, made ahead of use by a helper thread. */
#include "data/loader.h"

#include "base/mem.h"
#include "base/process/thread.h"
#include "base/trace.h"
#include "bucket_priv.h"
#include "loader_priv.h"
#include "mixture_priv.h"
#include "order_priv.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

/* Decoded blocks of a source: blocks held by batch slots, and some released ones. */
typedef struct block_cache {
    int64_t capacity;     /* entries */
    int64_t entry_tokens; /* of an entry: windows of a block and the target of the last, or its
                             documents */
    int32_t *entries;     /* [capacity][entry_tokens] */
    int64_t *block_of;    /* [capacity], -1: empty */
    int32_t *entry_of;    /* [blocks], -1: not decoded */
    int32_t *holders;     /* [blocks]: batch slots in whose buffer a block is */
    int64_t hand;         /* where the search for an entry to replace continues */
    int64_t reads;
} block_cache;

/* Windows (or documents) with one order: those of the stream, or with weights of a file. */
typedef struct source {
    int64_t windows; /* W; 0: its weight is 0 */
    int64_t first;   /* token of the stream that the first window begins with; the first document,
                        of the table's entries */
    bp_order order;
    block_cache cache;
    bp_order_buffer
        *buffers; /* current buffers: one for each batch slot, or with weights one for all, since
                     slots go through an epoch side by side. Used only by the helper */
} source;

struct bp_loader {
    bp_loader_spec spec;
    int64_t length; /* of a batch slot: floor(W / B); 0 if windows repeat. Without weights */
    int64_t source_count;
    source *sources;          /* 1, or with weights one a file */
    bp_mixture mixture;       /* with weights */
    bp_document_table *table; /* of documents; NULL: of windows */
    bp_bucket *bucket;        /* NULL: documents come in the order's order */
    char *ring;               /* [BP_LOADER_DEPTH] batches; step s is at s mod BP_LOADER_DEPTH */
    size_t batch_bytes;

    pthread_t helper;
    bool running;
    pthread_mutex_t mutex; /* guards all members below */
    pthread_cond_t changed;
    bool quit;
    int64_t wanted; /* the step that is read next, 0 at first; steps [wanted, made) are ready */
    int64_t made;
    int64_t seeks; /* counts jumps, so that work begun before one is dropped */
    int64_t reads; /* blocks decoded */
    bp_err err;    /* of step `made` */
    char message[BP_ERR_MESSAGE_BYTES];
};

static bool is_weighted(const bp_loader *loader)
{
    return bp_stream_weights(loader->spec.stream) != NULL;
}

/* ---- blocks ---- */

/* Returns the number of tokens of block `block`, which begins at *first of the stream. */
static int64_t block_tokens(const bp_loader *loader, const source *from, int64_t block,
                            int64_t *first)
{
    int64_t begin = bp_order_block_first(&from->order, block);
    int64_t end = bp_order_block_first(&from->order, block + 1);

    if (loader->table && begin < end) {
        const int64_t *begins = bp_document_table_first(loader->table) + from->first;

        *first = begins[begin];
        return begins[end - 1] - begins[begin] +
               bp_document_table_tokens(loader->table, from->first + end - 1);
    }
    *first = from->first + begin * from->order.context;
    return loader->table ? 0 : (end - begin) * from->order.context + 1;
}

static int64_t most_tokens(const bp_loader *loader, const source *from)
{
    const bp_order *order = &from->order;
    int64_t per_block = (BP_SHUFFLE_BLOCK_TOKENS + order->context - 1) / order->context;
    int64_t most = per_block < order->windows ? per_block : order->windows;

    if (!loader->table)
        return most * order->context + 1;
    most = 1;
    for (int64_t block = 0; block < order->blocks; block++) {
        int64_t first, tokens = block_tokens(loader, from, block, &first);

        most = tokens > most ? tokens : most;
    }
    return most;
}

/* For `holders` buffers at once. */
static bp_err cache_init(const bp_loader *loader, source *from, int64_t holders)
{
    block_cache *cache = &from->cache;
    const bp_order *order = &from->order;
    int64_t wanted = holders * BP_BUFFER_BLOCKS;

    cache->capacity = wanted < order->blocks ? wanted : order->blocks;
    cache->entry_tokens = most_tokens(loader, from);
    cache->entries =
        bp_try_alloc("data.blocks", cache->capacity * cache->entry_tokens, sizeof *cache->entries);
    cache->block_of = bp_try_alloc("data.blocks", cache->capacity, sizeof *cache->block_of);
    cache->entry_of = bp_try_alloc("data.blocks", order->blocks, sizeof *cache->entry_of);
    cache->holders = bp_try_alloc("data.blocks", order->blocks, sizeof *cache->holders);
    if (!cache->entries || !cache->block_of || !cache->entry_of || !cache->holders)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "no memory for the shuffle blocks; use a smaller train.batch "
                       "or more data ranks");
    for (int64_t i = 0; i < cache->capacity; i++)
        cache->block_of[i] = -1;
    for (int64_t i = 0; i < order->blocks; i++)
        cache->entry_of[i] = -1;
    return BP_OK;
}

/* An empty entry, or one whose block no batch slot holds. It exists: the buffers of all batch slots
 * together have no more blocks than the cache has entries. */
static int64_t free_entry(block_cache *cache)
{
    for (int64_t tries = 0; tries < cache->capacity; tries++) {
        int64_t entry = cache->hand;

        cache->hand = (cache->hand + 1) % cache->capacity;
        if (cache->block_of[entry] < 0)
            return entry;
        if (cache->holders[cache->block_of[entry]] == 0) {
            cache->entry_of[cache->block_of[entry]] = -1;
            cache->block_of[entry] = -1;
            return entry;
        }
    }
    BP_ASSERT(false && "a block that no batch slot holds");
    return -1;
}

/* The tokens of a window (or document) of a held block, which is decoded if need be. */
static bp_err find_window(const bp_loader *loader, source *from, int64_t block, int64_t window,
                          const int32_t **tokens)
{
    block_cache *cache = &from->cache;
    int64_t begin = bp_order_block_first(&from->order, block), inside;

    if (cache->entry_of[block] < 0) {
        int64_t entry = free_entry(cache), first;
        int64_t count = block_tokens(loader, from, block, &first);
        bp_err err = bp_stream_read(loader->spec.stream, first, count,
                                    cache->entries + entry * cache->entry_tokens);

        if (err != BP_OK)
            return err;
        cache->block_of[entry] = block;
        cache->entry_of[block] = (int32_t)entry;
        cache->reads++;
    }
    inside = (window - begin) * from->order.context;
    if (loader->table) {
        const int64_t *begins = bp_document_table_first(loader->table) + from->first;

        inside = begins[window] - begins[begin];
    }
    *tokens = cache->entries + cache->entry_of[block] * cache->entry_tokens + inside;
    return BP_OK;
}

/* A batch slot enters (1) or leaves (-1) a buffer: its blocks are held or released. */
static void hold_blocks(block_cache *cache, const bp_order_buffer *buffer, int32_t by)
{
    for (int i = 0; i < buffer->blocks; i++)
        cache->holders[buffer->block[i]] += by;
}

/* ---- steps ---- */

/* Which entry of which epoch slot b of step s takes, and of which source. */
static source *find_entry(const bp_loader *loader, int64_t step, int64_t slot, int64_t *epoch,
                          int64_t *entry)
{
    int64_t index = (step - 1) * loader->spec.batch + slot, file = 0;

    if (is_weighted(loader)) {
        bp_mixture_find(&loader->mixture, index, &file, &index);
    } else if (loader->length > 0) {
        *epoch = (step - 1) / loader->length;
        *entry = slot * loader->length + (step - 1) % loader->length;
        return loader->sources;
    }
    *epoch = index / loader->sources[file].windows;
    *entry = index % loader->sources[file].windows;
    return &loader->sources[file];
}

/* The shuffle buffer that an entry is in, which its slot holds from now on. */
static bp_order_buffer *enter_buffer(const bp_loader *loader, source *from, int64_t slot,
                                     int64_t epoch, int64_t entry)
{
    bp_order_buffer *buffer = &from->buffers[is_weighted(loader) ? 0 : slot];

    if (buffer->epoch != epoch || entry < buffer->first ||
        entry >= buffer->first + buffer->windows) {
        if (buffer->epoch >= 0)
            hold_blocks(&from->cache, buffer, -1);
        bp_order_find(&from->order, epoch, entry, buffer);
        hold_blocks(&from->cache, buffer, 1);
    }
    return buffer;
}

static char *ring_at(const bp_loader *loader, int64_t step)
{
    return loader->ring + (size_t)(step % BP_LOADER_DEPTH) * loader->batch_bytes;
}

/* A run of another document: from the decoded shuffle buffer, or if one document fills it, from the
 * whole source. NULL if there is no other document, or if others have few tokens. */
static bp_err find_other(bp_loader *loader, source *from, const bp_order_buffer *buffer,
                         int64_t window, int64_t step, int64_t slot, const bp_document **out)
{
    const bp_loader_spec *spec = &loader->spec;
    bp_rng_key key = bp_rng_key_of(spec->seed, BP_RNG_PAIR, spec->member, step, slot);
    int64_t own = from->first + window, document = bp_document_table_document(loader->table, own);
    int64_t entry;

    *out = NULL;
    for (int draw = 0; draw < BP_OTHER_DRAWS; draw++) {
        int64_t block, other;
        const int32_t *tokens;
        bp_err err;

        entry = buffer->first + bp_rng_below(&key, (uint64_t)draw, buffer->windows);
        other = bp_order_window(&from->order, buffer, entry, &block);
        if (bp_document_table_document(loader->table, from->first + other) == document)
            continue;
        err = find_window(loader, from, block, other, &tokens);
        if (err == BP_OK)
            *out = bp_document_table_describe(loader->table, from->first + other, tokens, NULL);
        return err;
    }
    entry = bp_document_table_other(loader->table, own, from->first, from->windows, &key);
    return entry >= 0 ? bp_document_table_read(loader->table, entry, NULL, out) : BP_OK;
}

/* For the bucket: from the one source, whose entries are read in order. */
static bp_err find_in_list(void *context, int64_t epoch, int64_t entry, const int32_t **tokens)
{
    bp_loader *loader = context;
    source *from = loader->sources;
    const bp_order_buffer *buffer = enter_buffer(loader, from, 0, epoch, entry);
    int64_t block, window = bp_order_window(&from->order, buffer, entry, &block);

    return find_window(loader, from, block, window, tokens);
}

static bp_err make_of_bucket(bp_loader *loader, int64_t step, int64_t slot)
{
    const bp_loader_spec *spec = &loader->spec;
    const int32_t *tokens;
    int64_t document;
    bp_err err = bp_bucket_take(loader->bucket, step, slot, &document, &tokens);

    if (err == BP_OK)
        bp_example_make_document(
            &spec->maker, bp_document_table_describe(loader->table, document, tokens, NULL), step,
            spec->first_slot + slot, ring_at(loader, step), spec->slots, slot);
    return err;
}

static bp_err make_example(bp_loader *loader, int64_t step, int64_t slot)
{
    const bp_loader_spec *spec = &loader->spec;
    int64_t of_all = spec->first_slot + slot, epoch, entry, block;
    source *from = find_entry(loader, step, of_all, &epoch, &entry);
    const bp_order_buffer *buffer = enter_buffer(loader, from, slot, epoch, entry);
    int64_t window = bp_order_window(&from->order, buffer, entry, &block);
    const int32_t *tokens;
    const bp_document *other = NULL;
    bp_err err = find_window(loader, from, block, window, &tokens);

    if (err != BP_OK)
        return err;
    if (!loader->table) {
        bp_example_make(&spec->maker, tokens, step, of_all, ring_at(loader, step), spec->slots,
                        slot);
        return BP_OK;
    }
    if (spec->maker.feed == BP_FEED_RUNS)
        err = find_other(loader, from, buffer, window, step, of_all, &other);
    if (err == BP_OK)
        bp_example_make_document(
            &spec->maker,
            bp_document_table_describe(loader->table, from->first + window, tokens, other), step,
            of_all, ring_at(loader, step), spec->slots, slot);
    return err;
}

static bp_err make_step(bp_loader *loader, int64_t step)
{
    bp_err err = BP_OK;

    BP_TRACE(BP_TRACE_INPUT, 0, (double)loader->batch_bytes);
    bp_trace_number(step);
    for (int64_t slot = 0; err == BP_OK && slot < loader->spec.slots; slot++)
        err =
            loader->bucket ? make_of_bucket(loader, step, slot) : make_example(loader, step, slot);
    return err;
}

static void *run_helper(void *argument)
{
    bp_loader *loader = argument;

    bp_trace_thread(BP_TRACE_READER);
    pthread_mutex_lock(&loader->mutex);
    while (!loader->quit) {
        if (loader->wanted == 0 || loader->made >= loader->wanted + BP_LOADER_DEPTH ||
            loader->err != BP_OK) {
            pthread_cond_wait(&loader->changed, &loader->mutex);
            continue;
        }
        int64_t step = loader->made, seeks = loader->seeks;

        pthread_mutex_unlock(&loader->mutex);
        bp_err err = make_step(loader, step);
        pthread_mutex_lock(&loader->mutex);
        loader->reads = 0;
        for (int64_t k = 0; k < loader->source_count; k++)
            loader->reads += loader->sources[k].cache.reads;
        if (seeks != loader->seeks)
            continue;
        if (err == BP_OK) {
            loader->made++;
        } else {
            loader->err = err;
            strncpy(loader->message, bp_err_message(), sizeof loader->message - 1);
        }
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    bp_trace_thread_end();
    return NULL;
}

/* Source k: `count` tokens of the stream from `first` on (or documents), of which this many buffers
 * are read at a time. */
static bp_err open_source(bp_loader *loader, int64_t k, int64_t first, int64_t count,
                          int64_t buffers)
{
    const bp_loader_spec *spec = &loader->spec;
    source *out = &loader->sources[k];
    bp_err err;

    out->first = first;
    out->windows = loader->table ? count : (count - 1) / (spec->maker.window - 1);
    if (loader->table)
        bp_order_init_documents(&out->order, bp_document_table_first(loader->table) + first, count,
                                spec->seed, spec->member + k);
    else
        bp_order_init(&out->order, out->windows, spec->maker.window - 1, spec->seed,
                      spec->member + k);
    out->order.in_sequence = spec->in_sequence;
    err = cache_init(loader, out, buffers);
    if (err != BP_OK)
        return err;
    out->buffers = bp_try_alloc("data.loader", buffers, sizeof *out->buffers);
    if (!out->buffers)
        return bp_fail_memory("the shuffle buffers", buffers, sizeof *out->buffers);
    for (int64_t i = 0; i < buffers; i++)
        out->buffers[i].epoch = -1;
    return BP_OK;
}

static bp_err open_files(bp_loader *loader, int64_t files)
{
    bp_stream *stream = loader->spec.stream;
    const double *weights = bp_stream_weights(stream);
    bp_err err = BP_OK;

    bp_mixture_init(&loader->mixture, weights, files);
    for (int64_t k = 0; k < files && err == BP_OK; k++) {
        int64_t first, count;

        if (weights[k] <= 0)
            continue;
        if (loader->table)
            bp_document_table_file(loader->table, k, &first, &count);
        else
            bp_stream_file(stream, k, &first, &count);
        if (count == 0)
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.too_few_documents",
                          "the corpus has no document: at %s; give one with text, or the weight 0",
                          bp_stream_path(stream, k));
        if (err == BP_OK)
            err = open_source(loader, k, first, count, 1);
    }
    return err;
}

static bp_err open_sources(bp_loader *loader)
{
    const bp_loader_spec *spec = &loader->spec;
    int64_t count = is_weighted(loader) ? bp_stream_files(spec->stream) : 1;
    bp_err err;

    loader->sources = bp_try_alloc("data.loader", count, sizeof *loader->sources);
    loader->batch_bytes = bp_batch_bytes(&spec->maker.form, spec->slots);
    loader->ring = bp_try_alloc("data.loader", BP_LOADER_DEPTH * (int64_t)loader->batch_bytes, 1);
    if (!loader->sources || !loader->ring)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short", "no memory for %" PRId64 " batch slots",
                       spec->slots);
    loader->source_count = count;
    if (spec->maker.feed != BP_FEED_WINDOWS) {
        bp_document_table_spec table = {
            .stream = spec->stream, .columns = spec->columns, .run_tokens = spec->maker.window};

        err = bp_document_table_new(&loader->table, &table);
        if (err != BP_OK)
            return err;
    }
    if (is_weighted(loader))
        return open_files(loader, count);
    count = loader->table ? bp_document_table_count(loader->table) : bp_stream_tokens(spec->stream);
    bool sorts = loader->table && spec->bucket > 0 && count >= spec->batch;
    err = open_source(loader, 0, 0, count, sorts ? 1 : spec->slots);
    if (err == BP_OK)
        loader->length = loader->sources->windows / spec->batch;
    if (err == BP_OK && sorts)
        bp_bucket_new(&loader->bucket,
                      &(bp_bucket_spec){.order = &loader->sources->order,
                                        .table = loader->table,
                                        .apart = spec->maker.feed == BP_FEED_DOCUMENTS &&
                                                 spec->maker.form.stream[1].T > 0,
                                        .capacity = spec->maker.form.stream[0].T,
                                        .steps = loader->length,
                                        .batches = spec->bucket < loader->length ? spec->bucket
                                                                                 : loader->length,
                                        .batch = spec->batch,
                                        .first_slot = spec->first_slot,
                                        .slots = spec->slots,
                                        .find = find_in_list,
                                        .context = loader});
    return err;
}

bp_err bp_loader_new(bp_loader **out, const bp_loader_spec *spec)
{
    bool of_windows = spec->maker.feed == BP_FEED_WINDOWS;
    bp_err err = of_windows ? bp_stream_check(spec->stream, spec->maker.window - 1) : BP_OK;

    BP_ASSERT(!of_windows || spec->maker.window > 1);
    BP_ASSERT(spec->slots > 0 && spec->first_slot >= 0);
    BP_ASSERT(spec->first_slot + spec->slots <= spec->batch);
    *out = NULL;
    if (err != BP_OK)
        return err;

    bp_loader *loader = bp_alloc("data.loader", 1, sizeof *loader);
    loader->spec = *spec;
    BP_CHECK(pthread_mutex_init(&loader->mutex, NULL) == 0);
    BP_CHECK(pthread_cond_init(&loader->changed, NULL) == 0);
    err = open_sources(loader);
    if (err == BP_OK)
        err = bp_thread_start(&loader->helper, "data loader", run_helper, loader);
    loader->running = err == BP_OK;
    if (err != BP_OK)
        bp_loader_free(&loader);
    *out = loader;
    return err;
}

void bp_loader_free(bp_loader **loader)
{
    bp_loader *old = *loader;

    if (!old)
        return;
    if (old->running) {
        pthread_mutex_lock(&old->mutex);
        old->quit = true;
        pthread_cond_broadcast(&old->changed);
        pthread_mutex_unlock(&old->mutex);
        pthread_join(old->helper, NULL);
    }
    pthread_cond_destroy(&old->changed);
    pthread_mutex_destroy(&old->mutex);
    bp_free(old->ring);
    for (int64_t k = 0; k < old->source_count; k++) {
        source *one = &old->sources[k];

        bp_free(one->buffers);
        bp_free(one->cache.holders);
        bp_free(one->cache.entry_of);
        bp_free(one->cache.block_of);
        bp_free(one->cache.entries);
        bp_order_clear(&one->order);
    }
    bp_free(old->sources);
    bp_bucket_free(&old->bucket);
    bp_document_table_free(&old->table);
    bp_mixture_clear(&old->mixture);
    bp_free(old);
    *loader = NULL;
}

int64_t bp_loader_windows(const bp_loader *loader)
{
    int64_t windows = 0;

    for (int64_t k = 0; k < loader->source_count; k++)
        windows += loader->sources[k].windows;
    return windows;
}

double bp_loader_share(const bp_loader *loader, int64_t k)
{
    return (double)loader->mixture.count[k] / BP_MIXTURE_CYCLE * (double)loader->spec.batch;
}

bool bp_loader_repeat(const bp_loader *loader)
{
    bool repeat = false;

    if (!is_weighted(loader))
        return loader->length == 0;
    for (int64_t k = 0; k < loader->source_count; k++)
        repeat = repeat || bp_loader_share(loader, k) > (double)loader->sources[k].windows;
    return repeat;
}

int64_t bp_loader_blocks_read(bp_loader *loader)
{
    pthread_mutex_lock(&loader->mutex);
    int64_t reads = loader->reads;
    pthread_mutex_unlock(&loader->mutex);
    return reads;
}

/* Called with the mutex held. */
static void wait_for(bp_loader *loader, int64_t step)
{
    if (step == loader->wanted + 1 && loader->made > loader->wanted && loader->err == BP_OK) {
        loader->wanted = step; /* the one before is the helper's again */
        pthread_cond_broadcast(&loader->changed);
    } else if (step != loader->wanted) {
        loader->wanted = loader->made = step;
        loader->seeks++;
        loader->err = BP_OK;
        pthread_cond_broadcast(&loader->changed);
    }
    while (loader->made <= step && loader->err == BP_OK)
        pthread_cond_wait(&loader->changed, &loader->mutex);
}

bp_err bp_loader_read(bp_loader *loader, int64_t step, const void **batch)
{
    bp_err err = BP_OK;

    BP_TRACE(BP_TRACE_INPUT, 0, 0);
    BP_ASSERT(step >= 1);
    *batch = NULL;
    pthread_mutex_lock(&loader->mutex);
    wait_for(loader, step);
    if (loader->made > step) { /* until `wanted` moves on, the helper writes no further than step +
                                  BP_LOADER_DEPTH - 1: this one is the caller's */
        *batch = ring_at(loader, step);
    } else {
        bp_err_set_message(loader->message);
        err = loader->err;
    }
    pthread_mutex_unlock(&loader->mutex);
    return err;
}
