/* Documents are scanned piece by piece. A file that is one document is shared out by pieces: all
 * ranks cut it into the same blocks, which end where lines do. */
#include "pii_run.h"

#include "base/sort.h"
#include "pii_mask.h"

#include "base/mem.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <stdlib.h>
#include <string.h>

#define TAG_ROWS 1
/* Full-width forms have three bytes a character. */
#define REACH (3 * PII_REACH)
/* A block ends at the last line's end within this many bytes before REACH from the end of what is
 * read, else there. */
#define LINE_BYTES ((size_t)65536)

typedef struct scanning {
    pii *self;
    bp_buffer held;    /* of a document of several pieces: text from held_at on */
    size_t held_at;    /* in the document */
    size_t scanned_to; /* candidates before it were looked at, on some rank */
} scanning;

/* ---- what is kept of a find ---- */

/* A find in a text that is at `text_at` in its document. */
static void keep(scanning *s, const document_piece *piece, const pii_find *find,
                 const pii_folded *text, size_t text_at)
{
    pii *self = s->self;
    pii_row *row;

    self->rows = bp_grow("tool.pii", self->rows, &self->row_capacity, self->row_count + 1,
                         sizeof *self->rows);
    row = &self->rows[self->row_count++];
    memset(row, 0, sizeof *row); /* rows travel as bytes */
    row->document = piece->document;
    row->start = (int64_t)(text_at + pii_unfolded(text, find->start));
    row->end = (int64_t)(text_at + pii_unfolded(text, find->end));
    row->file = piece->file;
    row->kind = (int8_t)find->kind;
    row->country = (int8_t)find->country;
    row->reserved = find->reserved;
    pii_shape(row->shape, sizeof row->shape, text->text + find->start, find->end - find->start);
    if (self->found_count > 0 && self->found[self->found_count - 1].document == piece->document)
        return;
    self->found = bp_grow("tool.pii", self->found, &self->found_capacity, self->found_count + 1,
                          sizeof *self->found);
    self->found[self->found_count++] = (pii_document){piece->document, (int64_t)self->ids.bytes};
    bp_buffer_add(&self->ids, piece->id, strlen(piece->id) + 1);
}

/* ---- pieces ---- */

/* Candidates [at, end) of text[bytes), which is at `text_at` in its document. */
static void scan(scanning *s, const document_piece *piece, const char *text, size_t bytes,
                 size_t text_at, size_t at, size_t end)
{
    pii_folded folded;
    pii_find find;

    pii_fold(&folded, text, bytes);
    at = pii_folded_at(&folded, at);
    pii_scan state = {.text = folded.text,
                      .bytes = folded.bytes,
                      .at = at,
                      .end = pii_folded_at(&folded, end),
                      .floor = at > PII_REACH ? at - PII_REACH : 0,
                      .countries = s->self->countries};
    while (pii_scan_next(&state, &find))
        keep(s, piece, &find, &folded, text_at);
    pii_folded_clear(&folded);
}

/* The end of a block: the bytes after it are decided with the next piece. */
static size_t block_end(const char *text, size_t bytes, size_t least)
{
    size_t limit = bytes > REACH ? bytes - REACH : 0, end = limit;

    while (end > least && limit - end < LINE_BYTES && text[end - 1] != '\n')
        end--;
    return end > least && text[end - 1] == '\n' ? end : limit > least ? limit : least;
}

static bp_err take_piece(void *context, const document_piece *piece)
{
    scanning *s = context;
    const char *text = piece->text;
    size_t bytes = piece->bytes, at, end, kept;

    if (piece->is_mine)
        s->self->bytes += (int64_t)bytes;
    if (piece->first && piece->last) {
        if (piece->is_mine)
            scan(s, piece, text, bytes, 0, 0, bytes);
        return BP_OK;
    }
    if (piece->first) {
        s->held.bytes = 0;
        s->held_at = s->scanned_to = 0;
    }
    bp_buffer_add(&s->held, text, bytes);
    text = s->held.data ? s->held.data : "";
    bytes = s->held.bytes;
    at = s->scanned_to - s->held_at;
    end = piece->last ? bytes : block_end(text, bytes, at);
    if (piece->is_mine)
        scan(s, piece, text, bytes, s->held_at, at, end);
    kept = end > REACH ? end - REACH : 0;
    s->scanned_to = s->held_at + end;
    s->held_at += kept;
    s->held.bytes -= kept;
    if (kept > 0)
        memmove(s->held.data, s->held.data + kept, s->held.bytes);
    return BP_OK;
}

/* ---- to rank 0 ---- */

static int by_place(const void *a, const void *b)
{
    const pii_row *one = a, *other = b;

    return one->document != other->document ? BP_ORDER(one->document, other->document)
                                            : BP_ORDER(one->start, other->start);
}

static void gather(pii *self, MPI_Comm comm)
{
    int64_t sizes[3] = {self->row_count, self->found_count, (int64_t)self->ids.bytes};

    if (!bp_comm_is_root(comm)) {
        bp_send(sizes, sizeof sizes, 0, TAG_ROWS, comm);
        bp_send(self->rows, sizes[0] * (int64_t)sizeof *self->rows, 0, TAG_ROWS, comm);
        bp_send(self->found, sizes[1] * (int64_t)sizeof *self->found, 0, TAG_ROWS, comm);
        bp_send(self->ids.data, sizes[2], 0, TAG_ROWS, comm);
        return;
    }
    for (int rank = 1; rank < bp_comm_size(comm); rank++) {
        int64_t shift = (int64_t)self->ids.bytes;

        bp_recv(sizes, sizeof sizes, rank, TAG_ROWS, comm);
        char *ids = bp_alloc("tool.pii", sizes[2] + 1, 1);
        self->rows = bp_grow("tool.pii", self->rows, &self->row_capacity,
                             self->row_count + sizes[0] + 1, sizeof *self->rows);
        self->found = bp_grow("tool.pii", self->found, &self->found_capacity,
                              self->found_count + sizes[1] + 1, sizeof *self->found);
        bp_recv(self->rows + self->row_count, sizes[0] * (int64_t)sizeof *self->rows, rank,
                TAG_ROWS, comm);
        bp_recv(self->found + self->found_count, sizes[1] * (int64_t)sizeof *self->found, rank,
                TAG_ROWS, comm);
        bp_recv(ids, sizes[2], rank, TAG_ROWS, comm);
        for (int64_t k = 0; k < sizes[1]; k++)
            self->found[self->found_count + k].id_at += shift;
        self->row_count += sizes[0];
        self->found_count += sizes[1];
        bp_buffer_add(&self->ids, ids, (size_t)sizes[2]);
        bp_free(ids);
    }
    if (self->row_count > 0)
        qsort(self->rows, (size_t)self->row_count, sizeof *self->rows, by_place);
    if (self->found_count == 0)
        return;
    qsort(self->found, (size_t)self->found_count, sizeof *self->found, bp_by_int64);
    int64_t distinct = 1; /* several ranks may have pieces of one document */
    for (int64_t k = 1; k < self->found_count; k++)
        if (self->found[k].document != self->found[distinct - 1].document)
            self->found[distinct++] = self->found[k];
    self->found_count = distinct;
}

bp_err pii_run(pii *self, MPI_Comm comm)
{
    scanning s = {.self = self};
    int64_t *first = NULL;
    bp_err err;

    self->texts.every_piece = true;
    err = document_texts_read(&self->texts, bp_comm_rank(comm), bp_comm_size(comm), &first,
                              take_piece, &s);
    err = bp_agree(comm, err);
    if (err == BP_OK) {
        self->documents = first[self->texts.path_count];
        self->bytes = bp_all_sum_int(self->bytes, comm);
        gather(self, comm);
    }
    bp_free(first);
    bp_buffer_clear(&s.held);
    return err;
}

void pii_clear(pii *self)
{
    bp_free(self->rows);
    bp_free(self->found);
    bp_buffer_clear(&self->ids);
}
