/* Inside the building of corpora: messages between ranks.
 *
 * A rank's share of the input becomes records, one per piece, in batches. Ranks other than 0 send
 * their batches to rank 0, at most BP_BATCHES_AHEAD before rank 0 has used them up, and compress
 * the chunks that rank 0 sends. Rank 0 hands out ranges of files of lines, and encodes some itself
 * instead of waiting for others. So all ranks end together, though only rank 0 joins. */
#pragma once

#include "base/buffer.h"
#include "io/corpus/corpus_build.h"
#include "io/corpus/corpus_writer.h"
#include "io/corpus/dictionary.h"
#include "io/corpus/document_list.h"
#include "text/unicode/tally.h"

/* ---- records ---- */

typedef enum bp_record_kind {
    BP_RECORD_PIECE,
    BP_RECORD_END,
    BP_RECORD_FAILURE,
    BP_RECORD_BAD,
    BP_RECORD_LEFT_OUT, /* omitted by the list: nothing follows */
    BP_RECORD_RANGE     /* the range ends: `line` lines began in it, 0 where lines are known */
} bp_record_kind;

typedef struct bp_record {
    uint64_t bytes;      /* of the record with its data, a multiple of 8 */
    uint64_t text_bytes; /* of the texts after it: id, labels, each after its bp_label_type, and
                            tags of words, context and answers, or a failure's message; for a bad
                            document its id and the fault */
    int64_t number;      /* of the piece */
    int64_t id_count;    /* of token ids after the texts */
    int64_t start_count; /* of segments after the ids: where they begin among them, uint32 */
    int64_t value_count; /* of float32 after those */
    bp_text_tally tally;
    int32_t kind;       /* bp_record_kind */
    int32_t last;       /* the piece ends its document */
    int64_t is_tagged;  /* segments are words, with tags after the labels */
    int64_t answer[2];  /* tokens of the piece: begin and end */
    int32_t err;        /* of a failure */
    int32_t file;       /* of its line ... */
    int64_t line;       /* ... as bp_piece has them */
    int64_t lacks_id;   /* it is "FILE:LINE", and lines are not known */
    int64_t newlines;   /* for a piece of a whole file */
    int64_t invalid_at; /* of these, those before its first invalid byte; for a line, the number of
                           the invalid text */
} bp_record;

typedef struct bp_batch { /* {0} is an empty one */
    char *data;
    size_t bytes, capacity;
} bp_batch;

/** Texts and ids follow a record. */
static inline const char *bp_record_text(const bp_record *record)
{
    return (const char *)(record + 1);
}
static inline const uint32_t *bp_record_ids(const bp_record *record)
{
    return (const uint32_t *)(const void *)(bp_record_text(record) +
                                            (record->text_bytes + 7) / 8 * 8);
}
static inline const uint32_t *bp_record_starts(const bp_record *record)
{
    return bp_record_ids(record) + record->id_count;
}
static inline const float *bp_record_values(const bp_record *record)
{
    return (const float *)(const void *)(bp_record_starts(record) + record->start_count);
}
void bp_batch_clear(bp_batch *batch);

/* ---- a rank's share of the input: every n-th piece, or ranges of bytes ---- */

/** The ranges of files of lines that are not compressed. */
typedef struct bp_ranges {
    bool are_used;  /* else ranks take pieces in turn */
    int64_t *sizes; /* of the files, in bytes, on rank 0, like everything below */
    int64_t each;   /* bytes of a range */
    int64_t left;   /* ranges not handed out yet; the next one: */
    int64_t file, first;
} bp_ranges;
/** Ranges of `build`, if it has some and there are several ranks. Collective over comm. Owns:
 * bp_free() of sizes. Errors: those of opening the files: the same on all ranks. */
bp_err bp_ranges_find(bp_ranges *out, MPI_Comm comm, const bp_corpus_build *build);
/** The next remaining range, in the order of the input. On rank 0. */
void bp_ranges_next(bp_ranges *ranges, bp_text_range *out);

typedef struct bp_share {
    bp_documents *documents;
    bp_encoder *encoder, *target_encoder; /* for second texts; NULL: the same */
    bp_ids ids, starts;                   /* of the piece at hand */
    int64_t answer[2];                    /* its tokens; 0, 0 if there is none */
    int64_t unknown_id;
    int label_count, value_count;
    bool skips_bad;
    bp_document_list list;
    bool has_list, takes_listed;
    bool in_range; /* a range is being read */
    bool ended;    /* the end or a failure was reported */
} bp_share;

bp_err bp_share_open(bp_share *share, const bp_corpus_build *build, const bp_ranges *ranges,
                     int rank, int size);
void bp_share_close(bp_share *share);
/** built->listed and built->found: ids of the list, and those that some rank found. Collective:
 * over `comm`. */
void bp_share_count_found(bp_corpus_built *built, const bp_share *share, MPI_Comm comm);

/** Append the record of the next piece, of the end, or of a failure. */
void bp_share_next(bp_share *share, bp_batch *batch);
/** The range whose pieces are next, until in_range is false. A failure is appended. */
void bp_share_read_range(bp_share *share, const bp_text_range *range, bp_batch *batch);

/* ---- messages ---- */

enum {                   /* tags; to rank 0, and from it */
       BP_TAG_BATCH = 1, /* int64: bytes of the batch, which follows as BP_TAG_RECORDS */
       BP_TAG_RECORDS,
       BP_TAG_PACKED, /* bp_packed_head and the frame */
       BP_TAG_BYE,    /* the last message of a rank */
       BP_TAG_CREDIT, /* a batch is used up */
       BP_TAG_CHUNK,  /* int64: number; and the chunk's tokens */
       BP_TAG_RANGE,  /* bp_text_range: read it after the earlier ones */
       BP_TAG_STOP    /* the last message to a rank */
};

typedef struct bp_packed_head {
    int64_t number;
    uint64_t bytes; /* 0: it failed */
    uint64_t xxh3;
} bp_packed_head;

#define BP_BATCHES_AHEAD 6                   /* unused batches of a rank; a range is one batch */
#define BP_BATCHES_FEW   3                   /* ... with many ranks, since rank 0 holds them */
#define BP_BATCH_BYTES   ((size_t)512 << 10) /* bytes of a batch of pieces taken in turn */

#define BP_OWN_AHEAD     16 /* ranges of rank 0's own, which compresses less and so reads more */

static inline int bp_batches_ahead(int ranks)
{
    return ranks <= 8 ? BP_BATCHES_AHEAD : BP_BATCHES_FEW;
}

/** The work of ranks other than 0, until rank 0 sends stop. */
void bp_corpus_work(MPI_Comm comm, bp_share *share, int64_t vocab_size, bool has_ranges);

/* ---- documents in progress, on rank 0 (corpus_join.c) ---- */

typedef struct bp_corpus_join {
    const bp_corpus_build *build;
    bp_corpus_writer *writer; /* made by the thread that joins the parts */
    bp_buffer skip_list;      /* a line of JSON for each bad document */
    char *first_bad;          /* for a message */

    char *id; /* made here [id_capacity] */
    int64_t id_capacity;
    int64_t line_base;   /* lines of the file that begin before the range, if not known otherwise */
    int32_t file;        /* the file of those lines */
    bp_text_tally tally; /* of the document in progress */
    int64_t newlines;    /* of its pieces, if it is a whole file */
    int64_t document_tokens; /* of its text */
    int64_t unknown_id;
    const char **labels;                /* [label_count], of the record at hand */
    struct bp_label_types *label_types; /* [label_count] */
    bp_corpus_built built;
} bp_corpus_join;

/** Owns: bp_corpus_join_clear(), which frees the writer too. Local, like everything below. */
void bp_corpus_join_init(bp_corpus_join *join, const bp_corpus_build *build);
void bp_corpus_join_clear(bp_corpus_join *join);

/** The next record: a piece of a document, a skipped document, or the end of a range. Errors:
 * BP_ERR_FORMAT a label of two types, more bad documents than are allowed; those of the writer. */
bp_err bp_corpus_join_take(bp_corpus_join *join, const bp_record *record);

/** At the end of the input: check that this many documents may be skipped. Errors: BP_ERR_FORMAT.
 */
bp_err bp_corpus_join_check_skipped(const bp_corpus_join *join);
