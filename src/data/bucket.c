/* Pools of documents, sorted by length: a pool's tokens that this rank needs are copied when its
 * first step is asked for, in the order in which blocks are decoded. */
#include "bucket_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* An entry of the pool. */
typedef struct member {
    int64_t length; /* by which it is sorted, then by place */
    int64_t place;  /* in the pool, see entry_at */
    int64_t document;
} member;

struct bp_bucket {
    bp_bucket_spec spec;
    int64_t first,
        steps; /* steps of the current pool: [first, first + steps), from 0; steps 0: no pool */
    member *members; /* [batches * batch], sorted */
    int64_t *at;     /* [batches * batch]: where the tokens of a place begin; -1 for other ranks' */
    int32_t *tokens;
    int64_t capacity;
};

void bp_bucket_new(bp_bucket **out, const bp_bucket_spec *spec)
{
    int64_t most = spec->batches * spec->batch;
    bp_bucket *bucket = bp_alloc("data.bucket", 1, sizeof *bucket);

    bucket->spec = *spec;
    bucket->members = bp_alloc("data.bucket", most, sizeof *bucket->members);
    bucket->at = bp_alloc("data.bucket", most, sizeof *bucket->at);
    *out = bucket;
}

void bp_bucket_free(bp_bucket **bucket)
{
    if (!*bucket)
        return;
    bp_free((*bucket)->tokens);
    bp_free((*bucket)->at);
    bp_free((*bucket)->members);
    bp_free(*bucket);
    *bucket = NULL;
}

size_t bp_bucket_bytes(int64_t batches, int64_t batch, int64_t slots, int64_t tokens)
{
    return (size_t)(batches * batch) * (sizeof(member) + sizeof(int64_t)) +
           (size_t)(batches * slots * tokens) * sizeof(int32_t);
}

/* ---- the order of a pool ---- */

static int by_length(const void *a, const void *b)
{
    const member *x = a, *y = b;

    return x->length != y->length ? (x->length > y->length) - (x->length < y->length)
                                  : (x->place > y->place) - (x->place < y->place);
}

/* Place i of the pool in the epoch's list. A batch slot reads its own part of the list, so that a
 * batch has documents of the whole corpus, even if the corpus is sorted. Places go slot by slot, so
 * few shuffle buffers are read at a time. */
static int64_t entry_at(const bp_bucket *bucket, int64_t i)
{
    const bp_bucket_spec *spec = &bucket->spec;

    return i / bucket->steps * spec->steps + bucket->first % spec->steps + i % bucket->steps;
}

static void list_members(bp_bucket *bucket, int64_t epoch, int64_t count)
{
    const bp_bucket_spec *spec = &bucket->spec;
    bp_order_buffer buffer = {.epoch = -1};

    for (int64_t i = 0; i < count; i++) {
        int64_t block, entry = entry_at(bucket, i);

        if (buffer.epoch < 0 || entry < buffer.first || entry >= buffer.first + buffer.windows)
            bp_order_find(spec->order, epoch, entry, &buffer);
        int64_t document = bp_order_window(spec->order, &buffer, entry, &block);
        bucket->members[i] = (member){
            .length = bp_document_table_length(spec->table, document, spec->apart, spec->capacity),
            .place = i,
            .document = document};
    }
    qsort(bucket->members, (size_t)count, sizeof *bucket->members, by_length);
}

/* The batch of the sorted list that step s of the pool takes. */
static const member *batch_of(const bp_bucket *bucket, int64_t epoch, int64_t s)
{
    const bp_order *order = bucket->spec.order;
    bp_rng_key key = bp_rng_key_of(order->seed, BP_RNG_BUCKET, order->member, epoch, bucket->first);

    return bucket->members + bp_rng_permute(&key, s, bucket->steps) * bucket->spec.batch;
}

/* ---- its tokens ---- */

/* Sets at[place] for this rank's documents; returns their total of tokens. */
static int64_t lay_out(bp_bucket *bucket, int64_t epoch, int64_t count)
{
    const bp_bucket_spec *spec = &bucket->spec;
    int64_t tokens = 0;

    for (int64_t i = 0; i < count; i++)
        bucket->at[i] = -1;
    for (int64_t s = 0; s < bucket->steps; s++)
        for (int64_t slot = 0; slot < spec->slots; slot++) {
            const member *one = &batch_of(bucket, epoch, s)[spec->first_slot + slot];

            bucket->at[one->place] = tokens;
            tokens += bp_document_table_tokens(spec->table, one->document);
        }
    return tokens;
}

static bp_err reserve(bp_bucket *bucket, int64_t tokens)
{
    int32_t *more;

    if (tokens <= bucket->capacity)
        return BP_OK;
    more = bp_try_realloc("data.bucket", bucket->tokens, tokens, sizeof *more);
    if (!more)
        return bp_fail_memory("the tokens of a bucket (corpus.bucket)", tokens, sizeof *more);
    bucket->tokens = more;
    bucket->capacity = tokens;
    return BP_OK;
}

/* The documents of the pool in the order of the list. */
static bp_err copy_tokens(bp_bucket *bucket, int64_t epoch, int64_t count)
{
    const bp_bucket_spec *spec = &bucket->spec;
    int64_t *document = bp_alloc("data.bucket", count, sizeof *document);
    bp_err err = BP_OK;

    for (int64_t i = 0; i < count; i++)
        document[bucket->members[i].place] = bucket->members[i].document;
    for (int64_t i = 0; i < count && err == BP_OK; i++) {
        const int32_t *tokens;

        if (bucket->at[i] < 0)
            continue;
        err = spec->find(spec->context, epoch, entry_at(bucket, i), &tokens);
        if (err == BP_OK)
            memcpy(bucket->tokens + bucket->at[i], tokens,
                   (size_t)bp_document_table_tokens(spec->table, document[i]) * sizeof *tokens);
    }
    bp_free(document);
    return err;
}

static bp_err load(bp_bucket *bucket, int64_t step)
{
    const bp_bucket_spec *spec = &bucket->spec;
    int64_t epoch = step / spec->steps, inside = step % spec->steps, left,
            pool = inside / spec->batches * spec->batches, count;
    bp_err err;

    left = spec->steps - pool;
    bucket->first = epoch * spec->steps + pool;
    bucket->steps = left < spec->batches ? left : spec->batches;
    count = bucket->steps * spec->batch;
    list_members(bucket, epoch, count);
    err = reserve(bucket, lay_out(bucket, epoch, count));
    if (err == BP_OK)
        err = copy_tokens(bucket, epoch, count);
    if (err != BP_OK)
        bucket->steps = 0;
    return err;
}

bp_err bp_bucket_take(bp_bucket *bucket, int64_t step, int64_t slot, int64_t *document,
                      const int32_t **tokens)
{
    const bp_bucket_spec *spec = &bucket->spec;
    bp_err err = BP_OK;

    step--; /* from 0 */
    if (step < bucket->first || step >= bucket->first + bucket->steps)
        err = load(bucket, step);
    if (err != BP_OK)
        return err;
    const member *one =
        &batch_of(bucket, step / spec->steps, step - bucket->first)[spec->first_slot + slot];
    *document = one->document;
    *tokens = bucket->tokens + bucket->at[one->place];
    return BP_OK;
}
