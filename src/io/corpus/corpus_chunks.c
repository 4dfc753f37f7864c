/* Decoding chunks ahead of use.
 *
 * A slot holds one decoded chunk. The caller assigns slots (WANTED); a helper or the caller takes
 * a wanted slot (WORKING) and sets it READY or FAILED. Only the caller reads and reassigns ready
 * slots, so a ready slot needs no lock. */
#include "corpus_chunks.h"

#include "base/mem.h"
#include "base/process/thread.h"
#include "io/corpus/corpus_writer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

#define SLOTS   12 /* the chunk in use, those ahead, and a few after for lanes that meet */
#define AHEAD   6
#define HELPERS 2

typedef enum slot_state {
    SLOT_EMPTY,
    SLOT_WANTED,
    SLOT_WORKING,
    SLOT_READY,
    SLOT_FAILED
} slot_state;

typedef struct slot {
    int64_t chunk;
    slot_state state;
    void *data;    /* decoded; NULL until first used */
    int64_t used;  /* when the caller last touched it */
    bp_err err;    /* FAILED: the error, */
    char *message; /* with its message */
} slot;

typedef struct decoder { /* of one thread */
    ZSTD_DCtx *context;
    void *packed; /* a chunk as it is in the file */
} decoder;

struct bp_chunks {
    bp_chunks_spec spec;
    int64_t chunk_count;
    size_t chunk_bytes, packed_bytes; /* decoded; the largest as stored */
    slot slots[SLOTS];
    int64_t clock, last_chunk;
    decoder mine;
    pthread_t helpers[HELPERS];
    decoder theirs[HELPERS];
    int helper_count;
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wanted, done;
};

/* ---- one chunk ---- */

static void decoder_init(decoder *d, size_t packed_bytes)
{
    d->context = ZSTD_createDCtx();
    d->packed = bp_alloc("io.packed", (int64_t)packed_bytes, 1);
    if (!d->context)
        bp_memory_ended("a decompressor", 1, packed_bytes);
}

static void decoder_clear(decoder *d)
{
    ZSTD_freeDCtx(d->context);
    bp_free(d->packed);
    memset(d, 0, sizeof *d);
}

static bp_err decode(const bp_chunks *chunks, decoder *d, int64_t chunk, void *data)
{
    const bp_extent *extent = &chunks->spec.extents[chunk];
    char what[80];
    size_t got;
    bp_err err;

    snprintf(what, sizeof what, "chunk %" PRId64 " of /tokens", chunk);
    err = bp_extent_read(extent, chunks->spec.fd, d->packed, what, chunks->spec.path);
    if (err != BP_OK)
        return err;
    got = ZSTD_decompressDCtx(d->context, data, chunks->chunk_bytes, d->packed, extent->bytes);
    if (ZSTD_isError(got) || got != chunks->chunk_bytes)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.damaged",
                       "damaged: at %s, in %s, which zstd can't decompress (%s); make it anew",
                       chunks->spec.path, what,
                       ZSTD_isError(got) ? ZSTD_getErrorName(got) : "too short");
    return BP_OK;
}

/* Decode into a slot that is WORKING, the lock not held. */
static void work(bp_chunks *chunks, decoder *d, slot *s)
{
    bp_err err = decode(chunks, d, s->chunk, s->data);
    char *message = err != BP_OK ? bp_strdup(bp_err_message()) : NULL;

    pthread_mutex_lock(&chunks->lock);
    s->err = err;
    s->message = message;
    s->state = err == BP_OK ? SLOT_READY : SLOT_FAILED;
    pthread_cond_signal(&chunks->done);
    pthread_mutex_unlock(&chunks->lock);
}

/* ---- helpers ---- */

/* The wanted slot of the lowest chunk, marked WORKING; the lock is held. */
static slot *take_wanted(bp_chunks *chunks)
{
    slot *best = NULL;

    for (int k = 0; k < SLOTS; k++) {
        slot *s = &chunks->slots[k];
        if (s->state == SLOT_WANTED && (!best || s->chunk < best->chunk))
            best = s;
    }
    if (best)
        best->state = SLOT_WORKING;
    return best;
}

typedef struct helper_start {
    bp_chunks *chunks;
    int number;
} helper_start;

static void *help(void *argument)
{
    helper_start *start = argument;
    bp_chunks *chunks = start->chunks;
    decoder *d = &chunks->theirs[start->number];

    bp_free(start);
    pthread_mutex_lock(&chunks->lock);
    while (!chunks->stop) {
        slot *s = take_wanted(chunks);
        if (!s) {
            pthread_cond_wait(&chunks->wanted, &chunks->lock);
            continue;
        }
        pthread_mutex_unlock(&chunks->lock);
        work(chunks, d, s);
        pthread_mutex_lock(&chunks->lock);
    }
    pthread_mutex_unlock(&chunks->lock);
    return NULL;
}

/* Helpers are optional: if one can't be started, the caller decodes everything. */
static void start_helpers(bp_chunks *chunks)
{
    while (chunks->helper_count < HELPERS) {
        int number = chunks->helper_count;
        helper_start *start = bp_alloc("io.helper", 1, sizeof *start);

        decoder_init(&chunks->theirs[number], chunks->packed_bytes);
        *start = (helper_start){chunks, number};
        if (bp_thread_start(&chunks->helpers[number], "chunks", help, start) != BP_OK) {
            bp_free(start);
            decoder_clear(&chunks->theirs[number]);
            return;
        }
        chunks->helper_count++;
    }
}

/* Ends the threads and frees the slots: a corpus of many files has only one file's slots in memory.
 */
static void rest(bp_chunks *chunks)
{
    pthread_mutex_lock(&chunks->lock);
    chunks->stop = true;
    pthread_cond_broadcast(&chunks->wanted);
    pthread_mutex_unlock(&chunks->lock);
    for (int k = 0; k < chunks->helper_count; k++) {
        BP_CHECK(pthread_join(chunks->helpers[k], NULL) == 0);
        decoder_clear(&chunks->theirs[k]);
    }
    chunks->helper_count = 0;
    chunks->stop = false;
    for (int k = 0; k < SLOTS; k++) {
        bp_free(chunks->slots[k].data);
        bp_free(chunks->slots[k].message);
        memset(&chunks->slots[k], 0, sizeof chunks->slots[k]);
    }
    chunks->last_chunk = -2;
}

/* ---- the caller's side ---- */

bp_err bp_chunks_new(bp_chunks **out, const bp_chunks_spec *spec)
{
    bp_chunks *chunks = bp_alloc("io.chunks", 1, sizeof *chunks);
    bp_err err = BP_OK;

    *out = NULL;
    chunks->spec = *spec;
    chunks->chunk_count = (spec->tokens + BP_CORPUS_CHUNK_TOKENS - 1) / BP_CORPUS_CHUNK_TOKENS;
    chunks->chunk_bytes = (size_t)BP_CORPUS_CHUNK_TOKENS * spec->token_bytes;
    chunks->last_chunk = -2;
    BP_CHECK(pthread_mutex_init(&chunks->lock, NULL) == 0);
    BP_CHECK(pthread_cond_init(&chunks->wanted, NULL) == 0);
    BP_CHECK(pthread_cond_init(&chunks->done, NULL) == 0);
    for (int64_t k = 0; k < chunks->chunk_count && err == BP_OK; k++) {
        size_t bytes = spec->extents[k].bytes;
        chunks->packed_bytes = bytes > chunks->packed_bytes ? bytes : chunks->packed_bytes;
        if (bytes == 0 || bytes > ZSTD_compressBound(chunks->chunk_bytes))
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.damaged",
                          "damaged: at %s, chunk %" PRId64
                          " of /tokens, which claims %zu bytes; make it anew",
                          spec->path, k, bytes);
    }
    if (err == BP_OK)
        decoder_init(&chunks->mine, chunks->packed_bytes);
    else
        bp_chunks_free(&chunks);
    *out = chunks;
    return err;
}

void bp_chunks_free(bp_chunks **out)
{
    bp_chunks *chunks = *out;

    if (!chunks)
        return;
    rest(chunks);
    decoder_clear(&chunks->mine);
    BP_CHECK(pthread_mutex_destroy(&chunks->lock) == 0);
    BP_CHECK(pthread_cond_destroy(&chunks->wanted) == 0);
    BP_CHECK(pthread_cond_destroy(&chunks->done) == 0);
    bp_free(chunks);
    *out = NULL;
}

static slot *slot_of(bp_chunks *chunks, int64_t chunk)
{
    for (int k = 0; k < SLOTS; k++)
        if (chunks->slots[k].state != SLOT_EMPTY && chunks->slots[k].chunk == chunk)
            return &chunks->slots[k];
    return NULL;
}

/* The least recently used slot that is not WORKING; the lock is held. */
static slot *give_slot(bp_chunks *chunks, int64_t chunk)
{
    slot *oldest = NULL;

    for (int k = 0; k < SLOTS; k++) {
        slot *s = &chunks->slots[k];
        if (s->state != SLOT_WORKING && (!oldest || s->used < oldest->used))
            oldest = s;
    }
    BP_ASSERT(oldest != NULL); /* more slots than threads */
    if (!oldest->data)
        oldest->data = bp_alloc("io.chunk", (int64_t)chunks->chunk_bytes, 1);
    bp_free(oldest->message);
    oldest->message = NULL;
    oldest->chunk = chunk;
    oldest->state = SLOT_WANTED;
    oldest->used = ++chunks->clock;
    return oldest;
}

/* Requests `chunk` and, in order, those after it. Returns the slot of `chunk`, WORKING if the
 * caller must decode it. */
static slot *ask(bp_chunks *chunks, int64_t chunk, bool in_order, bool *is_mine)
{
    slot *s;

    if (in_order)
        start_helpers(chunks);
    pthread_mutex_lock(&chunks->lock);
    s = slot_of(chunks, chunk);
    if (!s)
        s = give_slot(chunks, chunk);
    s->used = ++chunks->clock;
    for (int64_t next = chunk + 1; in_order && chunks->helper_count > 0 && next <= chunk + AHEAD &&
                                   next < chunks->chunk_count;
         next++)
        if (!slot_of(chunks, next)) {
            (void)give_slot(chunks, next);
            pthread_cond_signal(&chunks->wanted);
        }
    *is_mine = s->state == SLOT_WANTED;
    if (*is_mine)
        s->state = SLOT_WORKING;
    pthread_mutex_unlock(&chunks->lock);
    return s;
}

/* Chunk `chunk`, decoded. */
static bp_err get(bp_chunks *chunks, int64_t chunk, bool in_order, const void **data)
{
    bool is_mine;
    slot *s = ask(chunks, chunk, in_order, &is_mine);
    bp_err err;

    if (is_mine)
        work(chunks, &chunks->mine, s);
    pthread_mutex_lock(&chunks->lock);
    while (s->state == SLOT_WORKING) { /* a helper has it: help with the next ones, or wait */
        slot *other = take_wanted(chunks);
        if (!other) {
            pthread_cond_wait(&chunks->done, &chunks->lock);
            continue;
        }
        pthread_mutex_unlock(&chunks->lock);
        work(chunks, &chunks->mine, other);
        pthread_mutex_lock(&chunks->lock);
    }
    err = s->state == SLOT_FAILED ? s->err : BP_OK;
    if (err != BP_OK) {
        bp_err_set_message(s->message);
        s->state = SLOT_EMPTY; /* a later call tries again */
    }
    pthread_mutex_unlock(&chunks->lock);
    *data = s->data;
    return err;
}

/* Compiled for wider registers too; the loader picks, before ThreadSanitizer (gcc's, clang's) has
 * started. */
#if defined(__SANITIZE_THREAD__)
#define PICKS_LATE 1
#elif defined(__has_feature)
#define PICKS_LATE __has_feature(thread_sanitizer)
#else
#define PICKS_LATE 0
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !PICKS_LATE
#define WIDE_TOO __attribute__((target_clones("avx2", "default")))
#else
#define WIDE_TOO
#endif

/* to[count] = from[count]; returns the largest of them. */
WIDE_TOO static uint32_t widen16(int32_t *restrict to, const uint16_t *restrict from, int64_t count)
{
    int32_t top = 0;

    for (int64_t k = 0; k < count; k++) {
        int32_t token = from[k];
        to[k] = token;
        top = token > top ? token : top;
    }
    return (uint32_t)top;
}

WIDE_TOO static uint32_t widen32(int32_t *restrict to, const uint32_t *restrict from, int64_t count)
{
    uint32_t top = 0;

    for (int64_t k = 0; k < count; k++) {
        uint32_t token = from[k];
        to[k] = (int32_t)token;
        top = token > top ? token : top;
    }
    return top;
}

static bp_err beyond(const bp_chunks *chunks, int64_t first, int64_t count, const int32_t *tokens)
{
    int64_t k = 0;

    while (k < count - 1 && (uint32_t)tokens[k] < (uint32_t)chunks->spec.vocab_size)
        k++;
    return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_token",
                   "token id %" PRIu32 " is beyond the vocabulary of %" PRId64
                   ": at %s, /tokens[%" PRId64 "]; make it anew",
                   (uint32_t)tokens[k], chunks->spec.vocab_size, chunks->spec.path, first + k);
}

static bp_err read_part(bp_chunks *chunks, int64_t first, int64_t count, bool in_order,
                        int32_t *tokens)
{
    int64_t chunk = first / BP_CORPUS_CHUNK_TOKENS;
    int64_t within = first % BP_CORPUS_CHUNK_TOKENS;
    const void *data = NULL;
    uint32_t top;
    bp_err err = get(chunks, chunk, in_order, &data);

    if (err != BP_OK)
        return err;
    if (chunks->spec.token_bytes == sizeof(uint16_t))
        top = widen16(tokens, (const uint16_t *)data + within, count);
    else
        top = widen32(tokens, (const uint32_t *)data + within, count);
    return (int64_t)top >= chunks->spec.vocab_size ? beyond(chunks, first, count, tokens) : BP_OK;
}

bp_err bp_chunks_read(bp_chunks *chunks, int64_t first, int64_t count, int32_t *tokens)
{
    int64_t end = first + count;
    bp_err err = BP_OK;

    while (err == BP_OK && first < end) {
        int64_t chunk = first / BP_CORPUS_CHUNK_TOKENS;
        int64_t chunk_end = (chunk + 1) * BP_CORPUS_CHUNK_TOKENS;
        int64_t now = (end < chunk_end ? end : chunk_end) - first;
        bool in_order = chunk == chunks->last_chunk + 1 || end > chunk_end ||
                        (chunk == 0 && chunks->last_chunk < 0);
        err = read_part(chunks, first, now, in_order, tokens);
        chunks->last_chunk = chunk;
        tokens += now;
        first += now;
    }
    if (err == BP_OK && first == chunks->spec.tokens && chunks->helper_count > 0)
        rest(chunks); /* read to the end */
    return err;
}
