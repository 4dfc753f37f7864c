/* Building a corpus file: rank 0 receives the shares of all ranks in order, joins them
 * (corpus_join.c), has the ranks compress full chunks, and writes. */
#include "corpus_build_priv.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/signals.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNKS_A_RANK 4  /* being compressed: ... */
#define PIECES_A_LOOK 64 /* at the clock */
#define CHUNKS_OF_ONE 2  /* ... of one rank, before rank 0 compresses some itself */

/* Received batches of one rank that are not used up. */
typedef struct inbox {
    bp_batch batches[BP_OWN_AHEAD]; /* [ahead] */
    int ahead;
    int64_t received, used; /* batches */
    size_t at;              /* the next record of the batch in use */
    int chunks;             /* that the rank compresses */
} inbox;

/* A full chunk that is not written yet. */
typedef struct chunk_slot {
    char *raw; /* its number and its tokens, as sent */
    MPI_Request sent;
    bp_packed packed; /* bytes 0: not received yet; data is the slot's own */
    bool is_back;
} chunk_slot;

typedef struct master {
    MPI_Comm comm;
    int size;
    const bp_corpus_build *build;
    bp_ranges ranges;
    int *readers; /* the rank of range k, at index k modulo their number [reader_count] */
    int64_t reader_count, dealt; /* ranges that are handed out */
    int64_t joined;
    bp_share share; /* rank 0's own */
    inbox *inboxes; /* [size]; this rank's has one batch at a time, or one per range */
    bp_packer *packer;
    chunk_slot *slots; /* [slot_count]: chunk number modulo slot_count */
    int64_t slot_count, chunks_sent, chunks_written;
    size_t chunk_bytes;
    char *incoming;          /* a received packed chunk */
    int64_t roles[BP_ROLES]; /* of the writer's spec, as the next ones are */
    char *tokenizer;
    const char **names, *kind;
    bp_corpus_source sources[13];
    bp_corpus_source *skipped, *left_out; /* of these: count 1 once there was such a document */
    const char *skipped_text, *left_out_text, *list_name, *target_hash;
    char skipped_number[24], left_out_number[24];
    int byes;
    bool dismissed; /* the others are leaving: later messages are ignored */

    bp_corpus_join join;
    double started, reported, report_every;
} master;

/* ---- messages ---- */

static void receive_batch(master *m, int from)
{
    inbox *in = &m->inboxes[from];
    bp_batch *batch = &in->batches[in->received % in->ahead];
    int64_t bytes;

    BP_MPI(MPI_Recv(&bytes, 1, MPI_INT64_T, from, BP_TAG_BATCH, m->comm, MPI_STATUS_IGNORE));
    if ((size_t)bytes > batch->capacity) {
        bp_batch_clear(batch);
        batch->data = bp_alloc("io.batch", bytes, 1);
        batch->capacity = (size_t)bytes;
    }
    batch->bytes = (size_t)bytes;
    bp_recv(batch->data, bytes, from, BP_TAG_RECORDS, m->comm);
    in->received++;
}

/* Chunk `number` was received; writes all chunks received in order. */
static bp_err write_packed(master *m, int64_t number, const bp_packed *packed)
{
    chunk_slot *back = &m->slots[number % m->slot_count];
    bp_err err = BP_OK;

    memcpy(back->packed.data, packed->data, packed->bytes);
    back->packed.bytes = packed->bytes;
    back->packed.xxh3 = packed->xxh3;
    back->is_back = true;
    while (err == BP_OK && !m->dismissed && m->chunks_written < m->chunks_sent) {
        chunk_slot *slot = &m->slots[m->chunks_written % m->slot_count];
        if (!slot->is_back)
            break;
        slot->is_back = false;
        err = bp_corpus_writer_put(m->join.writer, m->chunks_written++, &slot->packed);
    }
    return err;
}

static bp_err receive_packed(master *m, int from, int bytes)
{
    bp_packed_head head;

    BP_MPI(MPI_Recv(m->incoming, bytes, MPI_BYTE, from, BP_TAG_PACKED, m->comm, MPI_STATUS_IGNORE));
    memcpy(&head, m->incoming, sizeof head);
    BP_MPI(MPI_Wait(&m->slots[head.number % m->slot_count].sent, MPI_STATUS_IGNORE));
    m->inboxes[from].chunks--;
    if (head.bytes == 0)
        return BP_FAIL(BP_ERR_SYSTEM, "corpus.not_compressed",
                       "rank %d could not compress a chunk: at %s", from, m->build->out);
    return write_packed(m, head.number,
                        &(bp_packed){m->incoming + sizeof head, head.bytes, head.xxh3});
}

/* Waits for one message of any rank. */
static bp_err receive(master *m)
{
    MPI_Status status;
    int bytes;

    BP_MPI(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, m->comm, &status));
    switch (status.MPI_TAG) {
    case BP_TAG_BATCH:
        receive_batch(m, status.MPI_SOURCE);
        return BP_OK;
    case BP_TAG_PACKED:
        BP_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
        return receive_packed(m, status.MPI_SOURCE, bytes);
    default: /* the data after a head is received with it, so only heads are first in the queue */
        BP_ASSERT(status.MPI_TAG == BP_TAG_BYE);
        BP_MPI(
            MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, BP_TAG_BYE, m->comm, MPI_STATUS_IGNORE));
        m->byes++;
        return BP_OK;
    }
}

/* ---- chunks ---- */

/* The rank that compresses a chunk: the one with the fewest, or rank 0. */
static int packer_of(const master *m)
{
    int to = 0;

    for (int rank = 1; rank < m->size; rank++)
        if (m->inboxes[rank].chunks < (to == 0 ? CHUNKS_OF_ONE : m->inboxes[to].chunks))
            to = rank;
    return to;
}

/* Sends a full chunk to the least busy rank (bp_corpus_spec.pack). */
static bp_err send_chunk(void *context, int64_t number, const void *raw)
{
    master *m = context;
    chunk_slot *slot = &m->slots[number % m->slot_count];
    bp_packed packed;
    bp_err err = BP_OK;
    int to;

    while (err == BP_OK && number - m->chunks_written >= m->slot_count)
        err = receive(m);
    if (err != BP_OK)
        return err;
    m->chunks_sent = number + 1;
    to = packer_of(m);
    if (to != 0) {
        m->inboxes[to].chunks++;
        memcpy(slot->raw, &number, sizeof number);
        memcpy(slot->raw + sizeof number, raw, m->chunk_bytes);
        BP_MPI(MPI_Isend(slot->raw, bp_mpi_count((int64_t)(sizeof number + m->chunk_bytes)),
                         MPI_BYTE, to, BP_TAG_CHUNK, m->comm, &slot->sent));
        return BP_OK;
    }
    err = bp_packer_pack(m->packer, raw, &packed);
    return err == BP_OK ? write_packed(m, number, &packed) : err;
}

/* ---- ranges ---- */

/* The next range is read by `rank`, if one is left. */
static bool deal(master *m, int rank, bp_text_range *range)
{
    if (m->ranges.left == 0)
        return false;
    bp_ranges_next(&m->ranges, range);
    BP_ASSERT(m->dealt - m->joined < m->reader_count);
    m->readers[m->dealt++ % m->reader_count] = rank;
    return true;
}

static void hand_out(master *m, int rank)
{
    bp_text_range range;

    if (deal(m, rank, &range))
        BP_MPI(MPI_Send(&range, (int)sizeof range, MPI_BYTE, rank, BP_TAG_RANGE, m->comm));
}

static bool may_read_range(const master *m)
{
    const inbox *own = &m->inboxes[0];

    return m->ranges.left > 0 && !m->share.ended && own->received - own->used < own->ahead;
}

/* Rank 0 encodes a range as its next batch. */
static void read_range(master *m)
{
    inbox *own = &m->inboxes[0];
    bp_batch *batch = &own->batches[own->received % own->ahead];
    bp_text_range range;

    if (!deal(m, 0, &range))
        return;
    bp_share_read_range(&m->share, &range, batch);
    while (m->share.in_range)
        bp_share_next(&m->share, batch);
    own->received++;
}

/* Takes what others sent; else rank 0 does a part itself instead of waiting. */
static bp_err receive_or_read(master *m)
{
    int there = 0;

    BP_MPI(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, m->comm, &there, MPI_STATUS_IGNORE));
    if (there)
        return receive(m);
    read_range(m);
    return BP_OK;
}

static void hand_out_first(master *m)
{
    if (m->ranges.are_used)
        for (int k = 0; k < bp_batches_ahead(m->size); k++)
            for (int rank = 1; rank < m->size; rank++)
                hand_out(m, rank);
}

/* ---- joining ---- */

/* The next record of a rank's share; it stays until the next call for that rank. */
static bp_err next_record(master *m, int rank, const bp_record **record)
{
    inbox *in = &m->inboxes[rank];
    bp_batch *batch = &in->batches[in->used % in->ahead];
    bp_err err = BP_OK;

    if (in->received > in->used && in->at == batch->bytes) { /* used up */
        in->used++;
        in->at = 0;
        batch->bytes = 0;
        if (rank != 0)
            BP_MPI(MPI_Send(NULL, 0, MPI_BYTE, rank, BP_TAG_CREDIT, m->comm));
        batch = &in->batches[in->used % in->ahead];
    }
    if (rank == 0 && in->received == in->used) {
        bp_share_next(&m->share, batch);
        in->received++;
    }
    while (err == BP_OK && in->received == in->used)
        err = may_read_range(m) ? receive_or_read(m) : receive(m);
    if (err != BP_OK)
        return err;
    *record = (const bp_record *)(const void *)(batch->data + in->at);
    in->at += (*record)->bytes;
    return BP_OK;
}

/* Approximate bytes of the joined files. */
static int64_t joined_bytes(const master *m, const bp_documents_stats *stats)
{
    int64_t bytes = m->joined * m->ranges.each;

    if (!m->ranges.are_used)
        return stats->consumed_bytes;
    return bytes < stats->total_bytes ? bytes : stats->total_bytes;
}

/* Looks at the clock only once in some pieces: a piece may be short. */
static void log_progress(master *m, int64_t number)
{
    double now = number % PIECES_A_LOOK == 0 ? bp_clock_now() : m->reported;
    double seconds = now - m->started;
    bp_documents_stats stats;
    char left[32];

    if (now - m->reported < m->report_every)
        return;
    m->reported = now;
    stats = bp_documents_stats_of(m->share.documents);
    stats.consumed_bytes = joined_bytes(m, &stats);
    if (stats.total_bytes == 0) { /* unknown for standard input */
        bp_log_progress("%.1f MB, %" PRId64 " documents, %.1f MB of text a second",
                        1e-6 * (double)stats.consumed_bytes, m->join.built.documents,
                        1e-6 * (double)(m->join.built.bytes + m->join.tally.bytes) / seconds);
        return;
    }
    if (stats.consumed_bytes <= 0)
        return;
    bp_clock_duration(left, sizeof left,
                      seconds * (double)(stats.total_bytes - stats.consumed_bytes) /
                          (double)stats.consumed_bytes);
    bp_log_progress("%.1f of %.1f MB, %" PRId64 " documents, %.1f MB of text a second, %s left",
                    1e-6 * (double)stats.consumed_bytes, 1e-6 * (double)stats.total_bytes,
                    m->join.built.documents,
                    1e-6 * (double)(m->join.built.bytes + m->join.tally.bytes) / seconds, left);
}

/* The rank that has the next piece: in turn, or the one that reads the range; -1 if there is none.
 */
static int rank_of_next(master *m, int64_t number)
{
    if (!m->ranges.are_used)
        return (int)(number % m->size);
    if (m->joined == m->dealt && m->ranges.left == 0)
        return -1;
    if (m->joined == m->dealt)
        read_range(m);
    return m->readers[m->joined % m->reader_count];
}

/* Piece by piece, from the rank that has it. */
static bp_err join_all(master *m)
{
    for (int64_t number = 0;; number++) {
        int rank = rank_of_next(m, number);
        const bp_record *record;
        bp_err err = BP_OK;

        if (rank < 0)
            return BP_OK;
        err = next_record(m, rank, &record);
        if (err != BP_OK || record->kind == BP_RECORD_END)
            return err;
        if (record->kind == BP_RECORD_FAILURE) {
            bp_err_set_message(bp_record_text(record));
            return (bp_err)record->err;
        }
        m->joined += record->kind == BP_RECORD_RANGE;
        if (record->kind == BP_RECORD_RANGE && rank != 0)
            hand_out(m, rank);
        BP_ASSERT(m->ranges.are_used || record->number == number);
        err = bp_corpus_join_take(&m->join, record);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_fail_stopped("at %s, of which nothing was kept; run the command again",
                                  m->build->out);
        if (err != BP_OK)
            return err;
        log_progress(m, number);
    }
}

/* ---- rank 0 from beginning to end ---- */

static bp_err create_writer(master *m)
{
    const bp_corpus_build *build = m->build;

    for (int role = 0; role < BP_ROLES; role++)
        m->roles[role] = bp_tokenizer_role(build->tokenizer, (bp_role)role);
    m->tokenizer = bp_tokenizer_text(build->tokenizer);
    m->kind = bp_tokenizer_kind(build->tokenizer);
    m->names = bp_alloc("io.build", build->path_count, sizeof *m->names);
    for (int k = 0; k < build->path_count; k++)
        m->names[k] = bp_text_source_id(build->paths[k]);
    static const char *const yes = "yes";
    m->list_name = build->list ? bp_text_source_id(build->list) : NULL;
    if (build->target_tokenizer)
        m->target_hash = bp_tokenizer_hash(build->target_tokenizer);
    const bp_corpus_source sources[] = {
        {"tool", &build->tool, 1},
        {"tokenizer_kind", &m->kind, 1},
        {"target_tokenizer_hash", &m->target_hash, m->target_hash ? 1 : 0},
        {"format", &build->format_name, 1},
        {"files", m->names, build->path_count},
        {"separator", &build->separator, build->separator ? 1 : 0},
        {"text_field", &build->text_field, build->text_field ? 1 : 0},
        {"fields", build->fields, build->field_count},
        {"special", &yes, build->specials ? 1 : 0},
        {build->takes_listed ? "only" : "without", &m->list_name, build->list ? 1 : 0},
        {"sentences", &build->sentences_name, build->sentences != BP_SENTENCES_NONE ? 1 : 0}};
    int source_count = 0;
    for (size_t k = 0; k < sizeof sources / sizeof sources[0]; k++)
        if (sources[k].count > 0)
            m->sources[source_count++] = sources[k];
    m->skipped_text = m->skipped_number;
    m->skipped = &m->sources[source_count];
    m->sources[source_count++] = (bp_corpus_source){"skipped_bad", &m->skipped_text, 0};
    m->left_out_text = m->left_out_number;
    m->left_out = &m->sources[source_count];
    m->sources[source_count++] = (bp_corpus_source){"left_out", &m->left_out_text, 0};
    const bp_corpus_spec spec = {
        .vocab_size = bp_tokenizer_size(build->tokenizer),
        .eod_id = bp_tokenizer_eod(build->tokenizer),
        .roles = m->roles,
        .has_bos = build->has_bos,
        .tokenizer_hash = bp_tokenizer_hash(build->tokenizer),
        .tokenizer = m->tokenizer,
        .labels = build->labels,
        .label_count = build->label_count,
        .values = build->values,
        .value_count = build->value_count,
        .has_segments = build->sentences != BP_SENTENCES_NONE || build->format == BP_TEXT_PAIRS ||
                        build->format == BP_TEXT_TSV || build->format == BP_TEXT_SQUAD,
        .has_spans = build->format == BP_TEXT_SQUAD,
        .has_tags = build->format == BP_TEXT_CONLL,
        .has_ids = true,
        .sources = m->sources,
        .source_count = source_count,
        .pack = m->size > 1 ? send_chunk : NULL,
        .context = m};
    return bp_corpus_writer_new(&m->join.writer, build->out, &spec);
}

static void make_slots(master *m)
{
    size_t packed_capacity = 2 * m->chunk_bytes; /* more than zstd ever takes */

    m->slot_count = (int64_t)CHUNKS_A_RANK * m->size;
    m->slots = bp_alloc("io.build", m->slot_count, sizeof *m->slots);
    m->incoming = bp_alloc("io.build", (int64_t)(sizeof(bp_packed_head) + packed_capacity), 1);
    for (int64_t k = 0; k < m->slot_count; k++) {
        m->slots[k].sent = MPI_REQUEST_NULL;
        m->slots[k].raw = bp_alloc("io.build", (int64_t)(sizeof(int64_t) + m->chunk_bytes), 1);
        m->slots[k].packed.data = bp_alloc("io.build", (int64_t)packed_capacity, 1);
    }
    m->packer = bp_packer_new(bp_tokenizer_size(m->build->tokenizer));
}

static bp_err master_init(master *m, MPI_Comm comm, const bp_corpus_build *build)
{
    m->comm = comm;
    m->size = bp_comm_size(comm);
    m->build = build;
    m->chunk_bytes = bp_corpus_chunk_bytes(bp_tokenizer_size(build->tokenizer));
    m->started = m->reported = bp_clock_now();
    m->report_every = isatty(STDOUT_FILENO) ? 1.0 : 10.0;
    m->inboxes = bp_alloc("io.build", m->size, sizeof *m->inboxes);
    for (int rank = 0; rank < m->size; rank++) {
        m->inboxes[rank].ahead = rank == 0 ? BP_OWN_AHEAD : bp_batches_ahead(m->size);
        m->reader_count += m->inboxes[rank].ahead;
    }
    m->readers = bp_alloc("io.build", m->reader_count, sizeof *m->readers);
    bp_corpus_join_init(&m->join, build);
    if (m->size > 1)
        make_slots(m);
    return create_writer(m);
}

static void master_clear(master *m)
{
    bp_corpus_join_clear(&m->join);
    for (int rank = 0; m->inboxes && rank < m->size; rank++)
        for (int k = 0; k < BP_OWN_AHEAD; k++)
            bp_batch_clear(&m->inboxes[rank].batches[k]);
    for (int64_t k = 0; m->slots && k < m->slot_count; k++) {
        bp_free(m->slots[k].raw);
        bp_free(m->slots[k].packed.data);
    }
    bp_packer_free(&m->packer);
    bp_free(m->incoming);
    bp_free(m->slots);
    bp_free(m->inboxes);
    bp_free(m->readers);
    bp_free(m->tokenizer);
    bp_free(m->names);
}

/* The others leave; receives and ignores their remaining messages. */
static void dismiss(master *m)
{
    m->dismissed = true;
    for (int rank = 1; rank < m->size; rank++)
        BP_MPI(MPI_Send(NULL, 0, MPI_BYTE, rank, BP_TAG_STOP, m->comm));
    while (m->byes < m->size - 1) {
        for (int rank = 1; rank < m->size; rank++) /* so that no inbox is full */
            m->inboxes[rank].used = m->inboxes[rank].received;
        (void)receive(m); /* the result is already decided */
    }
    for (int64_t k = 0; k < m->slot_count; k++)
        BP_MPI(MPI_Wait(&m->slots[k].sent, MPI_STATUS_IGNORE));
}

/* The writer's source fields about documents that are not in the corpus. */
static bp_err check_skipped(master *m)
{
    const bp_corpus_built *built = &m->join.built;

    m->skipped->count = built->skipped_bad > 0;
    (void)snprintf(m->skipped_number, sizeof m->skipped_number, "%" PRId64, built->skipped_bad);
    m->left_out->count = built->left_out > 0;
    (void)snprintf(m->left_out_number, sizeof m->left_out_number, "%" PRId64, built->left_out);
    return bp_corpus_join_check_skipped(&m->join);
}

/* The corpus and the list of omitted documents. */
static bp_err commit(master *m)
{
    const char *list = m->build->skip_list;
    bool is_listed = m->join.skip_list.bytes > 0;
    bp_err err =
        is_listed ? bp_file_write(list, m->join.skip_list.data, m->join.skip_list.bytes) : BP_OK;

    if (err == BP_OK)
        err = bp_corpus_writer_commit(m->join.writer);
    if (list && is_listed == (err != BP_OK))
        (void)unlink(list); /* usually there is none */
    return err;
}

static bp_err build_all(master *m, bp_corpus_built *built)
{
    bp_err err = join_all(m);
    char *message;

    if (err == BP_OK)
        err = check_skipped(m);
    if (err == BP_OK)
        err = bp_corpus_writer_finish(m->join.writer);
    while (err == BP_OK && m->chunks_written < m->chunks_sent)
        err = receive(m);
    if (err == BP_OK)
        err = commit(m);
    m->join.built.tokens = bp_corpus_writer_token_count(m->join.writer);
    message = err != BP_OK ? bp_strdup(bp_err_message()) : NULL;
    dismiss(m);
    if (message)
        bp_err_set_message(message);
    bp_free(message);
    *built = m->join.built;
    return err;
}

bp_err bp_corpus_build_file(MPI_Comm comm, const bp_corpus_build *build, bp_corpus_built *built)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    master m;
    bp_share share;
    bp_ranges ranges;
    MPI_Comm own;
    bp_err err;

    memset(&m, 0, sizeof m);
    memset(built, 0, sizeof *built);
    BP_MPI(MPI_Comm_dup(comm, &own));
    memset(&share, 0, sizeof share);
    err = bp_ranges_find(&ranges, own, build);
    if (err == BP_OK)
        err = bp_share_open(&share, build, &ranges, rank, size); /* local phase */
    if (err == BP_OK && rank == 0)
        err = master_init(&m, own, build);
    err = bp_agree(own, err);
    if (err == BP_OK && rank == 0) {
        m.share = share;
        m.ranges = ranges;
        hand_out_first(&m);
        err = build_all(&m, built);
        share = m.share;
    } else if (err == BP_OK) {
        bp_corpus_work(own, &share, bp_tokenizer_size(build->tokenizer), ranges.are_used);
    }
    err = bp_agree(own, err);
    BP_MPI(MPI_Bcast(built, (int)sizeof *built, MPI_BYTE, 0, own));
    if (err == BP_OK) {
        int64_t skipped = bp_documents_stats_of(share.documents).skipped_lines;

        /* without ranges each rank has seen all of them */
        built->skipped_lines = ranges.are_used ? bp_all_sum_int(skipped, own) : skipped;
        bp_share_count_found(built, &share, own);
    }
    if (rank == 0)
        master_clear(&m);
    bp_share_close(&share);
    bp_free(ranges.sizes);
    BP_MPI(MPI_Comm_free(&own));
    return err;
}
