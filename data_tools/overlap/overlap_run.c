/* Overlap of texts, in as many passes over the training texts as the table needs. */
#include "overlap_run.h"

#include "base/mem.h"
#include "base/sort.h"
#include "file_tool.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <stdlib.h>
#include <string.h>

#define TAG_IDS 1

/* The id of a training document that is the first one of an n-gram. */
typedef struct seen_document {
    int64_t document, id_at;
} seen_document;

typedef struct pass {
    overlap *self;
    overlap_reader reader;
    overlap_table table;
    int part;
    overlap_document *at; /* of the test, the one being read */
    seen_document *seen;  /* [seen_count], ascending: of this rank's share */
    int64_t seen_count, seen_capacity;
    bp_buffer seen_ids;
} pass;

static bp_err fail_changed(const document_texts *texts, int file)
{
    return BP_FAIL(BP_ERR_FORMAT, "overlap.changed",
                   "the file changed while it was read: at %s; start again when nothing writes to "
                   "it",
                   shown_path(bp_text_source_shown(texts->paths[file])));
}

/* Each reading, of each rank, has as many documents as the first one of rank 0, which is kept. */
static bp_err check_counts(const document_texts *texts, int64_t **kept, const int64_t *first,
                           MPI_Comm comm)
{
    int64_t bytes = (texts->path_count + 1) * (int64_t)sizeof *first;

    if (!*kept) {
        *kept = bp_alloc("tool.overlap", texts->path_count + 1, sizeof **kept);
        memcpy(*kept, first, (size_t)bytes);
        bp_bcast_bytes(*kept, bytes, 0, comm);
    }
    for (int k = 0; k < texts->path_count; k++)
        if (first[k + 1] != (*kept)[k + 1])
            return fail_changed(texts, k);
    return BP_OK;
}

/* ---- the test's documents ---- */

static bp_err count_piece(void *context, const document_piece *piece)
{
    pass *p = context;
    overlap *self = p->self;
    overlap_gram gram;
    bool whole;

    if (piece->first) {
        self->documents = bp_grow("tool.overlap", self->documents, &self->document_capacity,
                                  self->document_count + 1, sizeof *self->documents);
        p->at = &self->documents[self->document_count++];
        *p->at = (overlap_document){.id_at = (int64_t)self->ids.bytes};
        bp_buffer_add(&self->ids, piece->id, strlen(piece->id) + 1);
        overlap_reader_begin(&p->reader);
    }
    for (size_t at = 0;
         overlap_reader_next(&p->reader, piece->text, piece->bytes, &at, &whole, &gram);) {
        p->at->words++;
        p->at->grams += whole;
    }
    return BP_OK;
}

static bp_err add_piece(void *context, const document_piece *piece)
{
    pass *p = context;
    overlap_gram gram;
    bool whole;

    if (piece->first)
        overlap_reader_begin(&p->reader);
    for (size_t at = 0;
         overlap_reader_next(&p->reader, piece->text, piece->bytes, &at, &whole, &gram);) {
        if (!whole || overlap_part(gram, p->self->parts) != p->part)
            continue;
        if (p->table.count == p->table.mask) /* it was made for more than were counted */
            return fail_changed(&p->self->test, piece->file);
        overlap_table_add(&p->table, gram);
    }
    return BP_OK;
}

/* ---- the training's ---- */

static void see(pass *p, const document_piece *piece, int64_t slot)
{
    overlap_table *table = &p->table;

    if (table->first[slot] != OVERLAP_NOWHERE)
        return; /* documents come in order */
    table->first[slot] = piece->document;
    if (p->seen_count > 0 && p->seen[p->seen_count - 1].document == piece->document)
        return;
    p->seen =
        bp_grow("tool.overlap", p->seen, &p->seen_capacity, p->seen_count + 1, sizeof *p->seen);
    p->seen[p->seen_count++] = (seen_document){piece->document, (int64_t)p->seen_ids.bytes};
    bp_buffer_add(&p->seen_ids, piece->id, strlen(piece->id) + 1);
}

static bp_err look_up_piece(void *context, const document_piece *piece)
{
    pass *p = context;
    overlap_gram gram;
    bool whole;

    if (piece->first)
        overlap_reader_begin(&p->reader);
    for (size_t at = 0;
         overlap_reader_next(&p->reader, piece->text, piece->bytes, &at, &whole, &gram);) {
        int64_t slot = whole && overlap_part(gram, p->self->parts) == p->part
                           ? overlap_table_find(&p->table, gram)
                           : -1;
        if (slot >= 0)
            see(p, piece, slot);
    }
    return BP_OK;
}

/* Tables of all ranks become one: they have the same slots, for they were filled in one order. */
static void merge_tables(overlap_table *table, MPI_Comm comm)
{
    const int64_t block = (int64_t)1 << 24;

    for (int64_t at = 0; at <= table->mask; at += block) {
        int count = (int)(table->mask + 1 - at < block ? table->mask + 1 - at : block);

        BP_MPI(MPI_Allreduce(MPI_IN_PLACE, table->first + at, count, MPI_INT64_T, MPI_MIN, comm));
    }
}

/* ---- where a test document's n-grams are ---- */

static int by_grams(const void *a, const void *b)
{
    const overlap_place *one = a, *other = b;

    return one->grams != other->grams ? BP_ORDER(other->grams, one->grams)
                                      : BP_ORDER(one->document, other->document);
}

typedef struct places {
    pass *p;
    int64_t document; /* the one being read; -1: there was none yet */
    int64_t *found;   /* [count]: the first training document of each n-gram that has one */
    int64_t count, capacity;
} places;

static const char *id_of(const pass *p, int64_t document)
{
    const seen_document *seen =
        bsearch(&document, p->seen, (size_t)p->seen_count, sizeof *seen, bp_by_int64);

    BP_ASSERT(seen);
    return p->seen_ids.data + seen->id_at;
}

/* What this pass found of the document beside what others did: *out, by training documents. Owns:
 * *out is the caller's. */
static int64_t merge_places(places *q, const overlap_document *document, overlap_place **out)
{
    overlap_place *all = bp_alloc("tool.overlap", q->count + document->place_count, sizeof *all);
    int64_t distinct = 0;
    int before = 0;

    if (q->count > 0)
        qsort(q->found, (size_t)q->count, sizeof *q->found, bp_by_int64);
    for (int64_t k = 0, end; k < q->count; k = end) {
        for (end = k; end < q->count && q->found[end] == q->found[k];)
            end++;
        while (before < document->place_count && document->places[before].document < q->found[k])
            all[distinct++] = document->places[before++];
        if (before < document->place_count && document->places[before].document == q->found[k])
            all[distinct] = document->places[before++];
        else
            all[distinct] = (overlap_place){q->found[k], 0, bp_strdup(id_of(q->p, q->found[k]))};
        all[distinct++].grams += end - k;
    }
    while (before < document->place_count)
        all[distinct++] = document->places[before++];
    *out = all;
    return distinct;
}

/* All stay until the last pass, and then those with the most n-grams: files do not depend on the
 * number of passes. */
static void keep_places(places *q)
{
    overlap_document *document = q->document >= 0 ? &q->p->self->documents[q->document] : NULL;
    bool is_last = q->p->part + 1 == q->p->self->parts;
    overlap_place *all;

    if (!document || (q->count == 0 && (!is_last || document->place_count == 0)))
        return;
    int64_t distinct = merge_places(q, document, &all);
    if (is_last) {
        qsort(all, (size_t)distinct, sizeof *all, by_grams);
        while (distinct > OVERLAP_PLACES)
            bp_free(all[--distinct].id);
    }
    bp_free(document->places);
    document->places = bp_realloc("tool.overlap", all, distinct, sizeof *all);
    document->place_count = (int)distinct;
    q->count = 0;
}

static bp_err place_piece(void *context, const document_piece *piece)
{
    places *q = context;
    pass *p = q->p;
    overlap_gram gram;
    bool whole;

    if (piece->first) {
        keep_places(q);
        if (piece->document >= p->self->document_count)
            return fail_changed(&p->self->test, piece->file);
        q->document = piece->document;
        overlap_reader_begin(&p->reader);
    }
    for (size_t at = 0;
         overlap_reader_next(&p->reader, piece->text, piece->bytes, &at, &whole, &gram);) {
        if (!whole || overlap_part(gram, p->self->parts) != p->part)
            continue;
        int64_t slot = overlap_table_find(&p->table, gram);
        if (slot < 0)
            return fail_changed(&p->self->test, piece->file);
        if (p->table.first[slot] == OVERLAP_NOWHERE)
            continue;
        p->self->documents[piece->document].matched++;
        q->found = bp_grow("tool.overlap", q->found, &q->capacity, q->count + 1, sizeof *q->found);
        q->found[q->count++] = p->table.first[slot];
    }
    return BP_OK;
}

/* ---- ids of training documents to rank 0 ---- */

static void gather_ids(pass *p, MPI_Comm comm)
{
    int64_t sizes[2] = {p->seen_count, (int64_t)p->seen_ids.bytes};

    if (!bp_comm_is_root(comm)) {
        bp_send(sizes, sizeof sizes, 0, TAG_IDS, comm);
        bp_send(p->seen, sizes[0] * (int64_t)sizeof *p->seen, 0, TAG_IDS, comm);
        bp_send(p->seen_ids.data, sizes[1], 0, TAG_IDS, comm);
        return;
    }
    for (int rank = 1; rank < bp_comm_size(comm); rank++) {
        int64_t shift = (int64_t)p->seen_ids.bytes;

        bp_recv(sizes, sizeof sizes, rank, TAG_IDS, comm);
        seen_document *seen = bp_alloc("tool.overlap", sizes[0], sizeof *seen);
        char *ids = bp_alloc("tool.overlap", sizes[1], 1);
        bp_recv(seen, sizes[0] * (int64_t)sizeof *seen, rank, TAG_IDS, comm);
        bp_recv(ids, sizes[1], rank, TAG_IDS, comm);
        p->seen = bp_grow("tool.overlap", p->seen, &p->seen_capacity, p->seen_count + sizes[0],
                          sizeof *p->seen);
        for (int64_t k = 0; k < sizes[0]; k++)
            p->seen[p->seen_count++] = (seen_document){seen[k].document, seen[k].id_at + shift};
        bp_buffer_add(&p->seen_ids, ids, (size_t)sizes[1]);
        bp_free(seen);
        bp_free(ids);
    }
    if (p->seen_count > 0)
        qsort(p->seen, (size_t)p->seen_count, sizeof *p->seen, bp_by_int64);
}

/* ---- passes ---- */

/* The passes that the table needs. Collective. */
static bp_err count_test(pass *p, MPI_Comm comm)
{
    overlap *self = p->self;
    int64_t *first = NULL;
    bp_err err = bp_agree(comm, document_texts_read(&self->test, 0, 1, &first, count_piece, p));

    if (err == BP_OK)
        err = bp_agree(comm, check_counts(&self->test, &self->test_first, first, comm));
    bp_free(first);
    for (int64_t d = 0; d < self->document_count; d++)
        self->grams += self->documents[d].grams;
    if (err == BP_OK) /* where it grew, tables would not be equal */
        err = bp_agree(comm, bp_all_max_int(self->grams, comm) == self->grams
                                 ? BP_OK
                                 : fail_changed(&self->test, 0));
    self->parts = 1;
    while ((self->grams / self->parts + 1) * 4 * OVERLAP_ENTRY_BYTES > self->memory_bytes &&
           self->parts < 65536)
        self->parts++;
    for (int k = 0; k < self->train.path_count && err == BP_OK && self->parts > 1; k++)
        if (strcmp(self->train.paths[k], BP_TEXT_STDIN) == 0)
            err = BP_FAIL(BP_ERR_USAGE, "overlap.stdin_passes",
                          "the n-grams of the test texts need %d passes over the training texts, "
                          "and standard input is read once: at '-'; give a larger --memory, or "
                          "write it to a file",
                          self->parts);
    return err;
}

/* Texts are read, and have the documents that they had before. Collective. */
static bp_err read_again(pass *p, const document_texts *texts, int64_t **kept, bool is_shared,
                         bp_err (*take)(void *context, const document_piece *piece), MPI_Comm comm)
{
    int64_t *first = NULL;
    bp_err err = document_texts_read(texts, is_shared ? bp_comm_rank(comm) : 0,
                                     is_shared ? bp_comm_size(comm) : 1, &first, take, p);

    err = bp_agree(comm, err);
    if (err == BP_OK)
        err = bp_agree(comm, check_counts(texts, kept, first, comm));
    bp_free(first);
    return err;
}

/* Collective. The test's n-grams of this part; the training texts; what came of it to rank 0. */
static bp_err run_part(pass *p, MPI_Comm comm)
{
    overlap *self = p->self;
    int64_t *first = NULL, grams = self->grams / self->parts;
    places q = {.p = p, .document = -1};
    bp_err err;

    grams += self->parts > 1 ? grams / 8 + 4096 : 0; /* parts are not quite equal */
    err = overlap_table_init(&p->table, grams < self->grams ? grams : self->grams);
    err = bp_agree(comm, err);
    if (err == BP_OK)
        err = read_again(p, &self->test, &self->test_first, false, add_piece, comm);
    if (err == BP_OK)
        err = read_again(p, &self->train, &self->train_first, true, look_up_piece, comm);
    if (err == BP_OK) {
        merge_tables(&p->table, comm);
        gather_ids(p, comm);
        if (bp_comm_is_root(comm))
            err = document_texts_read(&self->test, 0, 1, &first, place_piece, &q);
        if (err == BP_OK && first)
            err = check_counts(&self->test, &self->test_first, first, comm);
        if (err == BP_OK)
            keep_places(&q);
        err = bp_agree(comm, err);
    }
    bp_free(first);
    bp_free(q.found);
    overlap_table_clear(&p->table);
    p->seen_count = 0;
    p->seen_ids.bytes = 0;
    return err;
}

bp_err overlap_run(overlap *self, MPI_Comm comm)
{
    pass p = {.self = self};
    bp_err err;

    overlap_reader_init(&p.reader, self->words);
    err = count_test(&p, comm);
    for (p.part = 0; p.part < self->parts && err == BP_OK; p.part++)
        err = run_part(&p, comm);
    overlap_reader_clear(&p.reader);
    bp_free(p.seen);
    bp_buffer_clear(&p.seen_ids);
    return err;
}

void overlap_clear(overlap *self)
{
    for (int64_t d = 0; d < self->document_count; d++) {
        for (int k = 0; k < self->documents[d].place_count; k++)
            bp_free(self->documents[d].places[k].id);
        bp_free(self->documents[d].places);
    }
    bp_free(self->documents);
    bp_free(self->train_first);
    bp_free(self->test_first);
    bp_buffer_clear(&self->ids);
}
