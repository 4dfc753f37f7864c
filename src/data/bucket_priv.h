/* Batches of documents of similar lengths (corpus.bucket). Local: no MPI. */
#pragma once

#include "data/document_table.h"
#include "order_priv.h"

/** A pool has the entries of the next `batches` batches: without a pool, slot b of step s would
 * take entry b steps + s of the epoch's list. The last pool of an epoch may be smaller. Entries are
 * sorted by length (bp_document_table_length), cut into batches, and the batches are permuted. The
 * result is a function of (seed, member, epoch). */
typedef struct bp_bucket_spec {
    bp_order *order;                /* borrowed, like the table */
    const bp_document_table *table; /* whose entries are the order's windows */
    bool apart;                     /* each text of a document is in a stream of its own, */
    int64_t capacity;               /* the number of its places */
    int64_t steps;                  /* of an epoch */
    int64_t batches, batch;         /* of a pool, and slots of a batch */
    int64_t first_slot, slots;      /* this rank's */
    /** Tokens of an entry of the epoch's list; valid until the next call. */
    bp_err (*find)(void *context, int64_t epoch, int64_t entry, const int32_t **tokens);
    void *context;
} bp_bucket_spec;

typedef struct bp_bucket bp_bucket;
void bp_bucket_new(bp_bucket **out, const bp_bucket_spec *spec);
void bp_bucket_free(bp_bucket **bucket);
/** Estimated bytes of one, if a document has this many tokens on average. */
size_t bp_bucket_bytes(int64_t batches, int64_t batch, int64_t slots, int64_t tokens);

/** The document of this rank's slot `slot` in a step, and its tokens, valid until a step of another
 * pool is requested. Errors: those of `find`; BP_ERR_SYSTEM memory. */
bp_err bp_bucket_take(bp_bucket *bucket, int64_t step, int64_t slot, int64_t *document,
                      const int32_t **tokens);
