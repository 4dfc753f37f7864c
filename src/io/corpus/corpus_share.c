/* A rank's share of the input, as records. */
#include "corpus_build_priv.h"

#include "base/mem.h"

#include <string.h>

_Static_assert(BP_TEXT_FIELD_BYTES <= BP_CORPUS_ID_BYTES &&
                   BP_TEXT_FIELD_BYTES <= BP_CORPUS_LABEL_BYTES,
               "what the text allows, a corpus holds");
_Static_assert(sizeof(bp_record) % 8 == 0, "records stay aligned behind each other");

static size_t padded(size_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

void bp_batch_clear(bp_batch *batch)
{
    bp_free(batch->data);
    memset(batch, 0, sizeof *batch);
}

/* Room for a record at the end; its head is filled in, texts and ids are the caller's to write. */
static bp_record *add_record(bp_batch *batch, bp_record_kind kind, size_t text_bytes,
                             int64_t id_count)
{
    size_t bytes =
        sizeof(bp_record) + padded(text_bytes) + padded((size_t)id_count * sizeof(uint32_t));
    bp_record *record;

    if (bytes > batch->room - batch->bytes) {
        batch->room =
            2 * batch->room > batch->bytes + bytes ? 2 * batch->room : batch->bytes + bytes;
        batch->data = bp_realloc("io.batch", batch->data, (int64_t)batch->room, 1);
    }
    record = (bp_record *)(void *)(batch->data + batch->bytes);
    memset(record, 0, sizeof *record);
    record->bytes = bytes;
    record->text_bytes = text_bytes;
    record->id_count = id_count;
    record->kind = (int32_t)kind;
    batch->bytes += bytes;
    return record;
}

/* The id and the labels, each ended by a zero byte, a label's type before it. */
static bp_err add_piece(bp_share *share, bp_batch *batch, const bp_piece *piece)
{
    size_t text_bytes = strlen(piece->id) + 1;
    bp_record *record;
    char *to;
    bp_err err;

    share->ids.count = 0;
    err = bp_encode_piece(share->encoder, piece->text, piece->bytes, piece->first, &share->ids);
    if (err != BP_OK)
        return err;
    for (int k = 0; k < share->label_count; k++)
        text_bytes += 1 + strlen(piece->labels[k]) + 1;
    record = add_record(batch, BP_RECORD_PIECE, text_bytes, share->ids.count);
    record->number = piece->number;
    record->file = piece->file;
    record->line = piece->line;
    record->last = piece->last ? 1 : 0;
    bp_text_tally_add(&record->tally, piece->text, piece->bytes);
    to = stpcpy((char *)(record + 1), piece->id) + 1;
    for (int k = 0; k < share->label_count; k++) {
        *to = piece->label_types[k];
        to = stpcpy(to + 1, piece->labels[k]) + 1;
    }
    if (share->ids.count > 0)
        memcpy((char *)(record + 1) + padded(text_bytes), share->ids.data,
               (size_t)share->ids.count * sizeof(uint32_t));
    return BP_OK;
}

void bp_share_next(bp_share *share, bp_batch *batch)
{
    bp_piece piece;
    bp_err err = bp_documents_next(share->documents, &piece);

    share->ended = err == BP_OK && piece.text == NULL;
    if (share->ended)
        (void)add_record(batch, BP_RECORD_END, 0, 0);
    else if (err == BP_OK)
        err = add_piece(share, batch, &piece);
    if (err != BP_OK) {
        const char *message = bp_err_message();
        bp_record *record = add_record(batch, BP_RECORD_FAILURE, strlen(message) + 1, 0);

        record->err = (int32_t)err;
        memcpy(record + 1, message, strlen(message) + 1);
        share->ended = true;
    }
}

bp_err bp_share_open(bp_share *share, const bp_corpus_build *build, int rank, int size)
{
    const bp_documents_options options = {.format = build->format,
                                          .text_field = build->text_field,
                                          .cut = bp_tokenizer_cut(build->tokenizer),
                                          .labels = build->labels,
                                          .label_count = build->label_count,
                                          .share_rank = rank,
                                          .share_size = size,
                                          .piece_bytes = build->piece_bytes};
    bp_err err;

    memset(share, 0, sizeof *share);
    share->label_count = build->label_count;
    err = bp_documents_open(&share->documents, build->paths, build->path_count, &options);
    if (err == BP_OK)
        err = bp_encoder_new(&share->encoder, build->tokenizer);
    return err;
}

void bp_share_close(bp_share *share)
{
    bp_documents_close(&share->documents);
    bp_encoder_free(&share->encoder);
    bp_ids_clear(&share->ids);
}
