/* A rank's share of the input, encoded, as records: corpus_build.c joins them in order. */
#include "corpus_build_priv.h"

#include "base/mem.h"
#include "mesh/mesh.h"
#include "text/unicode/characters.h"

#include <string.h>

_Static_assert(BP_TEXT_FIELD_BYTES <= BP_CORPUS_ID_BYTES &&
                   BP_TEXT_FIELD_BYTES <= BP_CORPUS_LABEL_BYTES,
               "what the text allows, a corpus holds");
_Static_assert(sizeof(bp_record) % 8 == 0, "records stay aligned one after another");

static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

void bp_batch_clear(bp_batch *batch)
{
    bp_free(batch->data);
    memset(batch, 0, sizeof *batch);
}

/* Append an empty record, with `words` of 4 bytes after its texts; fills in its head; the caller
 * writes the rest. */
static bp_record *add_record(bp_batch *batch, bp_record_kind kind, size_t text_bytes, int64_t words)
{
    size_t bytes =
        sizeof(bp_record) + padded(text_bytes) + padded((size_t)words * sizeof(uint32_t));
    bp_record *record;

    if (bytes > batch->capacity - batch->bytes) {
        batch->capacity =
            2 * batch->capacity > batch->bytes + bytes ? 2 * batch->capacity : batch->bytes + bytes;
        batch->data = bp_realloc("io.batch", batch->data, (int64_t)batch->capacity, 1);
    }
    record = (bp_record *)(void *)(batch->data + batch->bytes);
    memset(record, 0, sizeof *record);
    record->bytes = bytes;
    record->text_bytes = text_bytes;
    record->kind = (int32_t)kind;
    batch->bytes += bytes;
    return record;
}

/* A word without tokens becomes the unknown token, which carries its tag. */
static bp_err add_unknown(bp_share *share, const bp_piece *piece)
{
    if (share->unknown_id < 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "conll.no_token",
            "the tokenizer makes no token of a word: at %s; use one that has a token for "
            "unknown words",
            piece->id);
    bp_ids_reserve(&share->ids, 1);
    share->ids.data[share->ids.count++] = (uint32_t)share->unknown_id;
    return BP_OK;
}

/* Encodes texts, sentences and words one by one. Omits sentences without a token. */
static bp_err encode(bp_share *share, const bp_piece *piece)
{
    bool asks = piece->spans != NULL;
    const size_t whole[] = {0}, *starts = piece->starts ? piece->starts : whole;
    int64_t count = piece->starts ? piece->start_count : 1;
    bp_err err = BP_OK;

    share->ids.count = share->starts.count = 0;
    share->answer[0] = share->answer[1] = 0;
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        size_t end = k + 1 < count ? starts[k + 1] : piece->bytes;
        int64_t before = share->ids.count;

        err =
            bp_encode_piece(k > 0 && share->target_encoder ? share->target_encoder : share->encoder,
                            piece->text + starts[k], end - starts[k],
                            piece->apart || (piece->first && k <= asks), &share->ids);
        if (asks && k > 0 && starts[k] < piece->answer[1] && end > piece->answer[0] &&
            share->ids.count > before) {
            share->answer[0] = share->answer[1] == 0 ? before : share->answer[0];
            share->answer[1] = share->ids.count;
        }
        if (err == BP_OK && piece->tags && share->ids.count == before)
            err = add_unknown(share, piece);
        if (piece->starts && (asks ? k <= 1 : piece->apart || share->ids.count > before)) {
            bp_ids_reserve(&share->starts, 1);
            share->starts.data[share->starts.count++] = (uint32_t)before;
        }
    }
    if (err == BP_OK && asks && piece->answer[1] > 0 && share->answer[1] == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "squad.no_token",
                      "the tokenizer makes no token of an answer: at question %s; use one that "
                      "has a token for unknown words, or leave the question out",
                      piece->id);
    return err;
}

/* As if a newline were between texts, those of a question and its context too. */
static void tally(bp_text_tally *out, const bp_piece *piece)
{
    bool asks = piece->spans && piece->start_count > 1;
    int64_t count = piece->apart ? piece->start_count : asks ? 2 : 1;

    for (int64_t k = 0; k < count; k++) {
        size_t begin = count > 1 ? piece->starts[k] : 0;
        size_t end = k + 1 < count ? piece->starts[k + 1] : piece->bytes;

        if (k > 0)
            bp_text_tally_add(out, "\n", 1);
        bp_text_tally_add(out, piece->text + begin, end - begin);
    }
    out->bytes = (int64_t)piece->bytes;
}

static int64_t count_newlines(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    int64_t count = 0;

    for (; (text = memchr(text, '\n', (size_t)(end - text))); text++)
        count++;
    return count;
}

/* The id and the labels, each ended by a zero byte, a label's type before it. */
static bp_err add_piece(bp_share *share, bp_batch *batch, const bp_piece *piece)
{
    const char *id = piece->id ? piece->id : "";
    size_t text_bytes = strlen(id) + 1;
    bp_record *record;
    uint32_t *words;
    char *to;
    bp_err err = encode(share, piece);

    if (err != BP_OK)
        return err;
    for (int k = 0; k < share->label_count; k++)
        text_bytes += 1 + strlen(piece->labels[k]) + 1;
    text_bytes += piece->tags_bytes + piece->spans_bytes;
    record = add_record(batch, BP_RECORD_PIECE, text_bytes,
                        share->ids.count + share->starts.count + share->value_count);
    record->id_count = share->ids.count;
    record->start_count = share->starts.count;
    record->value_count = share->value_count;
    record->number = piece->number;
    record->file = piece->file;
    record->line = piece->line;
    record->lacks_id = piece->id == NULL;
    record->last = piece->last ? 1 : 0;
    tally(&record->tally, piece);
    if (piece->line == 0)
        record->newlines = count_newlines(piece->text, piece->bytes);
    if (piece->line == 0 && record->tally.invalid_bytes > 0)
        record->invalid_at =
            count_newlines(piece->text, bp_text_invalid_at(piece->text, piece->bytes));
    if (piece->line > 0 && record->tally.invalid_bytes > 0 && piece->start_count == 2)
        record->invalid_at = bp_text_invalid_at(piece->text, piece->bytes) >= piece->starts[1];
    to = stpcpy((char *)(record + 1), id) + 1;
    for (int k = 0; k < share->label_count; k++) {
        *to = piece->label_types[k];
        to = stpcpy(to + 1, piece->labels[k]) + 1;
    }
    record->is_tagged = piece->tags != NULL;
    if (piece->tags)
        memcpy(to, piece->tags, piece->tags_bytes);
    if (piece->spans)
        memcpy(to, piece->spans, piece->spans_bytes);
    memcpy(record->answer, share->answer, sizeof record->answer);
    words = (uint32_t *)(void *)((char *)(record + 1) + padded(text_bytes));
    if (share->ids.count > 0)
        memcpy(words, share->ids.data, (size_t)share->ids.count * sizeof *words);
    if (share->starts.count > 0)
        memcpy(words + share->ids.count, share->starts.data,
               (size_t)share->starts.count * sizeof *words);
    if (share->value_count > 0)
        memcpy(words + share->ids.count + share->starts.count, piece->values,
               (size_t)share->value_count * sizeof *words);
    return BP_OK;
}

static void add_bad(bp_batch *batch, const bp_piece *piece, const char *fault)
{
    const char *id = piece->id ? piece->id : "";
    size_t id_bytes = strlen(id) + 1, fault_bytes = strlen(fault) + 1;
    bp_record *record = add_record(batch, BP_RECORD_BAD, id_bytes + fault_bytes, 0);

    record->number = piece->number;
    record->file = piece->file;
    record->line = piece->line;
    record->lacks_id = piece->id == NULL;
    record->last = 1;
    memcpy(record + 1, id, id_bytes);
    memcpy((char *)(record + 1) + id_bytes, fault, fault_bytes);
}

static void add_failure(bp_share *share, bp_batch *batch, bp_err err)
{
    const char *message = bp_err_message();
    bp_record *record = add_record(batch, BP_RECORD_FAILURE, strlen(message) + 1, 0);

    record->err = (int32_t)err;
    memcpy(record + 1, message, strlen(message) + 1);
    share->ended = true;
    share->in_range = false;
}

static void add_range_end(bp_share *share, bp_batch *batch, const bp_piece *piece)
{
    bp_record *record = add_record(batch, BP_RECORD_RANGE, 0, 0);

    record->file = piece->file;
    record->line = share->has_list ? 0 : piece->line;
    share->in_range = false;
}

static void add_left_out(bp_batch *batch, const bp_piece *piece)
{
    bp_record *record = add_record(batch, BP_RECORD_LEFT_OUT, 0, 0);

    record->number = piece->number;
    record->file = piece->file;
    record->last = piece->last ? 1 : 0;
}

/* A piece, or a skipped bad document. */
static bp_err add_any(bp_share *share, bp_batch *batch, const bp_piece *piece)
{
    bp_err err;

    if (piece->fault) {
        add_bad(batch, piece, piece->fault);
        return BP_OK;
    }
    if (share->has_list && bp_document_list_has(&share->list, piece->id) != share->takes_listed) {
        add_left_out(batch, piece);
        return BP_OK;
    }
    err = add_piece(share, batch, piece);
    if (err == BP_ERR_FORMAT && share->skips_bad && piece->first && piece->last) {
        add_bad(batch, piece, bp_err_message());
        err = BP_OK;
    }
    return err;
}

void bp_share_next(bp_share *share, bp_batch *batch)
{
    bp_piece piece;
    bp_err err = bp_documents_next(share->documents, &piece);

    share->ended = err == BP_OK && !piece.text && !piece.range_ended;
    if (share->ended)
        (void)add_record(batch, BP_RECORD_END, 0, 0);
    else if (err == BP_OK && piece.range_ended)
        add_range_end(share, batch, &piece);
    else if (err == BP_OK)
        err = add_any(share, batch, &piece);
    if (err != BP_OK)
        add_failure(share, batch, err);
}

void bp_share_read_range(bp_share *share, const bp_text_range *range, bp_batch *batch)
{
    bp_err err = bp_documents_read_range(share->documents, range);

    share->in_range = true;
    if (err != BP_OK)
        add_failure(share, batch, err);
}

bp_err bp_share_open(bp_share *share, const bp_corpus_build *build, const bp_ranges *ranges,
                     int rank, int size)
{
    const bp_documents_options options = {.format = build->format,
                                          .separator = build->separator,
                                          .text_field = build->text_field,
                                          .cut = build->specials
                                                     ? bp_tokenizer_cut_specials(build->tokenizer)
                                                     : bp_tokenizer_cut(build->tokenizer),
                                          .fields = build->fields,
                                          .labels = build->labels,
                                          .values = build->values,
                                          .field_count = build->field_count,
                                          .label_count = build->label_count,
                                          .value_count = build->value_count,
                                          .no_tags = build->no_tags,
                                          .keep_bad = build->skips_bad,
                                          .sentences = build->sentences,
                                          .share_rank = ranges->are_used ? 0 : rank,
                                          .share_size = ranges->are_used ? 1 : size,
                                          .has_ranges = ranges->are_used,
                                          .counts_lines = build->list != NULL,
                                          .piece_bytes = build->piece_bytes};
    bp_err err;

    memset(share, 0, sizeof *share);
    share->label_count = build->label_count;
    share->value_count = build->value_count;
    share->skips_bad = build->skips_bad;
    share->unknown_id = bp_tokenizer_unk(build->tokenizer);
    share->has_list = build->list != NULL;
    share->takes_listed = build->takes_listed;
    if (build->list) {
        err = bp_document_list_load(&share->list, build->list);
        if (err != BP_OK)
            return err;
    }
    err = bp_documents_open(&share->documents, build->paths, build->path_count, &options);
    if (err == BP_OK)
        err = bp_encoder_new(&share->encoder, build->tokenizer);
    if (err == BP_OK)
        bp_encoder_find_specials(share->encoder, build->specials);
    if (err == BP_OK && build->target_tokenizer)
        err = bp_encoder_new(&share->target_encoder, build->target_tokenizer);
    if (share->target_encoder)
        bp_encoder_find_specials(share->target_encoder, build->specials);
    return err;
}

void bp_share_close(bp_share *share)
{
    bp_documents_close(&share->documents);
    bp_encoder_free(&share->encoder);
    bp_encoder_free(&share->target_encoder);
    bp_document_list_clear(&share->list);
    bp_ids_clear(&share->ids);
    bp_ids_clear(&share->starts);
}

void bp_share_count_found(bp_corpus_built *built, const bp_share *share, MPI_Comm comm)
{
    int64_t count = share->list.ids.count;
    unsigned char *found = bp_alloc("io.build", count, 1);

    for (int64_t k = 0; k < count; k++)
        found[k] = share->list.ids.entries[k].value != 0;
    if (count > 0)
        BP_MPI(MPI_Allreduce(MPI_IN_PLACE, found, bp_mpi_count(count), MPI_UNSIGNED_CHAR, MPI_MAX,
                             comm));
    built->listed = count;
    for (int64_t k = 0; k < count; k++)
        built->found += found[k];
    bp_free(found);
}
