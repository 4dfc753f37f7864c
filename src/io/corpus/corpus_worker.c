/* The work of ranks other than 0 when building a corpus: encode their share, compress rank 0's
 * chunks. */
#include "corpus_build_priv.h"

#include "base/mem.h"
#include "mesh/collective.h"

#include <string.h>

#define SOME_BYTES ((size_t)64 << 10) /* of records, between polls for messages */

typedef struct sent_batch { /* until rank 0 says that it is used up */
    bp_batch batch;
    int64_t bytes; /* as sent ahead of it */
    bp_transfer transfer;
    MPI_Request head;
} sent_batch;

typedef struct worker {
    MPI_Comm comm;
    bp_packer *packer;
    sent_batch sent[BP_BATCHES_AHEAD];
    int64_t sent_count, used_count;
    int ahead;       /* bp_batches_ahead */
    char *chunk;     /* as received: number and tokens */
    char *packed[2]; /* two, so that one is sent while the next is made */
    MPI_Request packed_sent[2];
    int64_t packed_count;
    bp_text_range ranges[BP_BATCHES_AHEAD]; /* assigned and not begun */
    int64_t range_count, ranges_begun;
    bool stop;
} worker;

/* ---- chunks ---- */

static void compress_chunk(worker *w, int bytes)
{
    int at = (int)(w->packed_count++ % 2);
    bp_packed_head head = {0, 0, 0};
    bp_packed packed = {NULL, 0, 0};

    BP_MPI(MPI_Recv(w->chunk, bytes, MPI_BYTE, 0, BP_TAG_CHUNK, w->comm, MPI_STATUS_IGNORE));
    memcpy(&head.number, w->chunk, sizeof head.number);
    BP_MPI(MPI_Wait(&w->packed_sent[at], MPI_STATUS_IGNORE));
    if (bp_packer_pack(w->packer, w->chunk + sizeof head.number, &packed) == BP_OK) {
        head.bytes = packed.bytes;
        head.xxh3 = packed.xxh3;
        memcpy(w->packed[at] + sizeof head, packed.data, packed.bytes);
    }
    memcpy(w->packed[at], &head, sizeof head);
    BP_MPI(MPI_Isend(w->packed[at], bp_mpi_count((int64_t)(sizeof head + packed.bytes)), MPI_BYTE,
                     0, BP_TAG_PACKED, w->comm, &w->packed_sent[at]));
}

/* ---- batches ---- */

static void send_batch(worker *w)
{
    sent_batch *s = &w->sent[w->sent_count++ % w->ahead];

    s->bytes = (int64_t)s->batch.bytes;
    BP_MPI(MPI_Isend(&s->bytes, 1, MPI_INT64_T, 0, BP_TAG_BATCH, w->comm, &s->head));
    bp_send_start(&s->transfer, s->batch.data, s->bytes, 0, BP_TAG_RECORDS, w->comm);
}

/* Waits until the oldest batch has reached rank 0, which frees its memory. */
static void batch_is_used(worker *w)
{
    sent_batch *s = &w->sent[w->used_count++ % w->ahead];

    BP_MPI(MPI_Wait(&s->head, MPI_STATUS_IGNORE));
    bp_wait(&s->transfer);
    s->batch.bytes = 0;
}

/* ---- messages from rank 0 ---- */

/* Receives rank 0's messages; with `wait`, at least one message. */
static void listen(worker *w, bool wait)
{
    MPI_Status status;
    int there = 1, bytes;

    if (wait)
        BP_MPI(MPI_Probe(0, MPI_ANY_TAG, w->comm, &status));
    else
        BP_MPI(MPI_Iprobe(0, MPI_ANY_TAG, w->comm, &there, &status));
    while (there && !w->stop) {
        BP_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
        if (status.MPI_TAG == BP_TAG_CHUNK) {
            compress_chunk(w, bytes);
        } else if (status.MPI_TAG == BP_TAG_RANGE) {
            BP_MPI(MPI_Recv(&w->ranges[w->range_count++ % w->ahead], (int)sizeof *w->ranges,
                            MPI_BYTE, 0, BP_TAG_RANGE, w->comm, MPI_STATUS_IGNORE));
        } else {
            BP_MPI(MPI_Recv(NULL, 0, MPI_BYTE, 0, status.MPI_TAG, w->comm, MPI_STATUS_IGNORE));
            if (status.MPI_TAG == BP_TAG_CREDIT)
                batch_is_used(w);
            w->stop = status.MPI_TAG == BP_TAG_STOP;
        }
        if (!w->stop)
            BP_MPI(MPI_Iprobe(0, MPI_ANY_TAG, w->comm, &there, &status));
    }
}

/* Is there something to encode, and has rank 0 used up enough batches? */
static bool may_encode(const worker *w, const bp_share *share, bool has_ranges)
{
    return !share->ended && w->sent_count - w->used_count < w->ahead &&
           (!has_ranges || share->in_range || w->ranges_begun < w->range_count);
}

/* Pieces until there are many bytes of records: polling for messages may yield the core. */
static void encode_some(worker *w, bp_share *share, bool has_ranges)
{
    bp_batch *batch = &w->sent[w->sent_count % w->ahead].batch;
    size_t enough = batch->bytes + SOME_BYTES;

    if (has_ranges && !share->in_range)
        bp_share_read_range(share, &w->ranges[w->ranges_begun++ % w->ahead], batch);
    while (!share->ended && (!has_ranges || share->in_range) && batch->bytes < enough)
        bp_share_next(share, batch);
    if (share->ended || (has_ranges ? !share->in_range : batch->bytes >= BP_BATCH_BYTES))
        send_batch(w);
}

void bp_corpus_work(MPI_Comm comm, bp_share *share, int64_t vocab_size, bool has_ranges)
{
    size_t chunk_bytes = bp_corpus_chunk_bytes(vocab_size);
    worker w = {.comm = comm,
                .packer = bp_packer_new(vocab_size),
                .ahead = bp_batches_ahead(bp_comm_size(comm))};

    w.chunk = bp_alloc("io.worker", (int64_t)(chunk_bytes + sizeof(int64_t)), 1);
    for (int k = 0; k < 2; k++) {
        size_t capacity = sizeof(bp_packed_head) + 2 * chunk_bytes; /* more than zstd ever takes */

        w.packed[k] = bp_alloc("io.worker", (int64_t)capacity, 1);
        w.packed_sent[k] = MPI_REQUEST_NULL;
    }
    while (!w.stop) {
        bool encodes = may_encode(&w, share, has_ranges);

        listen(&w, !encodes);
        if (encodes && !w.stop)
            encode_some(&w, share, has_ranges);
    }
    /* rank 0 receives all that was sent before this, used or not */
    BP_MPI(MPI_Send(NULL, 0, MPI_BYTE, 0, BP_TAG_BYE, comm));
    while (w.used_count < w.sent_count)
        batch_is_used(&w);
    BP_MPI(MPI_Waitall(2, w.packed_sent, MPI_STATUSES_IGNORE));
    for (int k = 0; k < BP_BATCHES_AHEAD; k++)
        bp_batch_clear(&w.sent[k].batch);
    bp_free(w.packed[0]);
    bp_free(w.packed[1]);
    bp_free(w.chunk);
    bp_packer_free(&w.packer);
}
