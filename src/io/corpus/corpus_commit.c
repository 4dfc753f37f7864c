/* From spills to the finished file: columns, attributes, checksums, the user block, the rename. */
#include "corpus_writer_priv.h"

#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- columns: written, hashed and recorded piece by piece ---- */

typedef struct column {
    bp_corpus_writer *writer;
    const char *name;
    int64_t count;
    size_t width; /* bytes of a value */
    bool is_text;
    bp_h5_type type; /* of numbers */
    /* values [first, first + count) to `out` */
    bp_err (*produce)(struct column *column, int64_t first, int64_t count, char *out);
    bp_spill *spill;             /* their source ... */
    int64_t spill_at;            /* ... for ids: the place of the next one */
    int64_t end;                 /* ... for starts: the end of the last */
    const bp_dictionary *values; /* ... or this array */
} column;

static bp_err write_column(column *c)
{
    bp_corpus_writer *writer = c->writer;
    int64_t width = (int64_t)c->width, at_once = BP_EXTENT_PIECE_BYTES / width;
    bp_h5_shape shape = {.offset = -1};
    char *piece;
    bp_err err = c->is_text ? bp_h5_make_text(writer->h5, c->name, c->width, c->count)
                            : bp_h5_make(writer->h5, c->name, c->type, c->count);

    if (err == BP_OK)
        err = bp_h5_shape_of(writer->h5, c->name, &shape);
    if (err != BP_OK)
        return err;
    BP_ASSERT(shape.offset >= BP_USER_BLOCK_BYTES);
    piece = bp_alloc("io.column", at_once, c->width);
    for (int64_t first = 0; first < c->count && err == BP_OK; first += at_once) {
        int64_t now = c->count - first < at_once ? c->count - first : at_once;

        err = c->produce(c, first, now, piece);
        if (c->spill) /* so that the piece takes the memory that its source had */
            bp_spill_forget(c->spill, c->spill_at > 0 ? c->spill_at : (first + now) * width);
        if (err == BP_OK)
            err = c->is_text
                      ? bp_h5_write_text_slab(writer->h5, c->name, c->width, first, piece, now)
                      : bp_h5_write_slab(writer->h5, c->name, c->type, first, piece, now);
        bp_corpus_writer_add_extent(
            writer, &(bp_extent){.offset = (uint64_t)shape.offset + (uint64_t)first * c->width,
                                 .bytes = (uint64_t)now * c->width,
                                 .xxh3 = bp_xxh3(piece, (size_t)now * c->width)});
        bp_corpus_writer_begin_sync(writer, shape.offset + (first + now) * width);
    }
    bp_free(piece);
    return err;
}

static bp_err from_spill(column *c, int64_t first, int64_t count, char *out)
{
    return bp_spill_read(c->spill, first * (int64_t)c->width, out, (size_t)count * c->width);
}

/* doc_start and doc_segments have one extra value: the end of the last document. */
static bp_err from_starts(column *c, int64_t first, int64_t count, char *out)
{
    int64_t spilled = c->count - 1;
    int64_t now = first + count <= spilled ? count : spilled - first;
    uint64_t end = (uint64_t)c->end;

    if (now < count)
        memcpy(out + (size_t)now * c->width, &end, sizeof end);
    return from_spill(c, first, now, out);
}

static bp_err from_ids(column *c, int64_t first, int64_t count, char *out)
{
    bp_err err = BP_OK;

    (void)first; /* requested in order */
    memset(out, 0, (size_t)count * c->width);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        uint16_t length = 0;
        err = bp_spill_read(c->spill, c->spill_at, &length, sizeof length);
        c->spill_at += (int64_t)sizeof length;
        if (err == BP_OK)
            err = bp_spill_read(c->spill, c->spill_at, out + (size_t)k * c->width, length);
        c->spill_at += length;
    }
    return err;
}

static bp_err from_dictionary(column *c, int64_t first, int64_t count, char *out)
{
    memset(out, 0, (size_t)count * c->width);
    for (int64_t k = 0; k < count; k++) {
        const char *text = c->values->texts[first + k];
        memcpy(out + (size_t)k * c->width, text, strlen(text));
    }
    return BP_OK;
}

static bp_err from_tokenizer(column *c, int64_t first, int64_t count, char *out)
{
    memcpy(out, c->writer->spec.tokenizer + first, (size_t)count);
    return BP_OK;
}

static bp_err write_document_columns(bp_corpus_writer *writer)
{
    const bp_corpus_spec *spec = &writer->spec;
    const struct {
        const char *name;
        bool is_known, is_start;
        int64_t end;
    } numbers[SPILLS] = {
        [SPILL_STARTS] = {"doc_start", true, true, writer->token_count},
        [SPILL_BYTES] = {"doc_bytes", !spec->without_bytes},
        [SPILL_WORDS] = {"doc_words", !spec->without_words},
        [SPILL_WORDS_SPLIT] = {"doc_words_split", !spec->without_words_split},
        [SPILL_DOC_SEGMENTS] = {"doc_segments", spec->has_segments, true, writer->segment_count}};
    bp_err err = BP_OK;

    for (int k = 0; k < SPILLS && err == BP_OK; k++) {
        bool is_start = numbers[k].is_start;
        column c = {.writer = writer,
                    .name = numbers[k].name,
                    .count = writer->document_count + (is_start ? 1 : 0),
                    .width = sizeof(uint64_t),
                    .type = BP_H5_U64,
                    .produce = is_start ? from_starts : from_spill,
                    .end = numbers[k].end,
                    .spill = writer->spills[k]};

        if (numbers[k].is_known)
            err = write_column(&c);
    }
    if (err == BP_OK && spec->has_segments) {
        column starts = {.writer = writer,
                         .name = "segment_start",
                         .count = writer->segment_count,
                         .width = sizeof(uint64_t),
                         .type = BP_H5_U64,
                         .produce = from_spill,
                         .spill = writer->segments};
        err = write_column(&starts);
    }
    if (err == BP_OK && spec->has_ids) {
        column ids = {.writer = writer,
                      .name = "doc_id",
                      .count = writer->document_count,
                      .width = writer->id_width,
                      .is_text = true,
                      .produce = from_ids,
                      .spill = writer->ids};
        err = write_column(&ids);
    }
    return err;
}

static bp_err write_names(bp_corpus_writer *writer, const char *name, const bp_dictionary *names)
{
    column values = {.writer = writer,
                     .name = name,
                     .count = names->count,
                     .width = 1,
                     .is_text = true,
                     .produce = from_dictionary,
                     .values = names};

    for (int64_t v = 0; v < names->count; v++) {
        size_t bytes = strlen(names->texts[v]);
        values.width = bytes > values.width ? bytes : values.width;
    }
    return write_column(&values);
}

static bp_err write_label(bp_corpus_writer *writer, int k)
{
    label_column *label = &writer->labels[k];
    char name[128];
    column codes = {.writer = writer,
                    .name = name,
                    .count = writer->document_count,
                    .width = sizeof(uint32_t),
                    .type = BP_H5_U32,
                    .produce = from_spill,
                    .spill = label->codes};
    bp_err err;

    snprintf(name, sizeof name, "labels/%s", writer->spec.labels[k]);
    err = write_column(&codes);
    snprintf(name, sizeof name, "label_names/%s", writer->spec.labels[k]);
    return err == BP_OK ? write_names(writer, name, &label->values) : err;
}

static bp_err write_value(bp_corpus_writer *writer, int k)
{
    char name[128];
    column values = {.writer = writer,
                     .name = name,
                     .count = writer->document_count,
                     .width = sizeof(float),
                     .type = BP_H5_F32,
                     .produce = from_spill,
                     .spill = writer->values[k]};

    snprintf(name, sizeof name, "values/%s", writer->spec.values[k]);
    return write_column(&values);
}

static bp_err write_tags(bp_corpus_writer *writer)
{
    column tags = {.writer = writer,
                   .name = "tags",
                   .count = writer->token_count,
                   .width = sizeof(uint32_t),
                   .type = BP_H5_U32,
                   .produce = from_spill,
                   .spill = writer->tags};
    bp_err err = bp_corpus_writer_pad_tags(writer, writer->token_count);

    if (err == BP_OK)
        err = write_column(&tags);
    return err == BP_OK ? write_names(writer, "tag_names", &writer->tag_names) : err;
}

static bp_err write_spans(bp_corpus_writer *writer)
{
    column spans = {.writer = writer,
                    .name = "spans",
                    .count = writer->document_count * BP_CORPUS_SPAN,
                    .width = sizeof(uint64_t),
                    .type = BP_H5_U64,
                    .produce = from_spill,
                    .spill = writer->spans};
    column texts = {.writer = writer,
                    .name = "span_texts",
                    .count = writer->span_bytes,
                    .width = 1,
                    .type = BP_H5_U8,
                    .produce = from_spill,
                    .spill = writer->span_texts};
    bp_err err = write_column(&spans);

    return err == BP_OK ? write_column(&texts) : err;
}

/* ---- metadata in the rest of the file ---- */

static bp_err write_sources(bp_corpus_writer *writer)
{
    char name[128];
    bp_err err = BP_OK;

    if (writer->spec.tokenizer) {
        column text = {.writer = writer,
                       .name = "source/tokenizer",
                       .count = (int64_t)strlen(writer->spec.tokenizer),
                       .width = 1,
                       .type = BP_H5_U8,
                       .produce = from_tokenizer};
        err = write_column(&text);
    }
    for (int k = 0; k < writer->spec.source_count && err == BP_OK; k++) {
        const bp_corpus_source *source = &writer->spec.sources[k];

        snprintf(name, sizeof name, "source/%s", source->name);
        if (source->count > 0)
            err = bp_h5_write_texts(writer->h5, name, source->values, source->count);
    }
    return err;
}

static bp_err write_attributes(bp_corpus_writer *writer)
{
    const bp_corpus_spec *spec = &writer->spec;
    const struct {
        const char *name;
        int64_t value;
        bool is_there;
    } numbers[] = {{"format_version", BP_CORPUS_VERSION, true},
                   {"vocab_size", spec->vocab_size, true},
                   {"eod_id", spec->eod_id, spec->eod_id >= 0},
                   {"begins_with_bos", 1, spec->has_bos},
                   {"open_ends", writer->open_ends, writer->open_ends > 0}};
    bp_err err = BP_OK;

    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0] && err == BP_OK; k++)
        if (numbers[k].is_there)
            err = bp_h5_put_int(writer->h5, "/", numbers[k].name, numbers[k].value);
    for (int role = 0; role < BP_ROLES && err == BP_OK && spec->roles; role++) {
        char name[16];

        snprintf(name, sizeof name, "%s_id", bp_role_name((bp_role)role));
        if (role != BP_ROLE_END && spec->roles[role] >= 0)
            err = bp_h5_put_int(writer->h5, "/", name, spec->roles[role]);
    }
    if (err == BP_OK && spec->tokenizer_hash[0] != '\0')
        err = bp_h5_put_text(writer->h5, "/", "tokenizer_hash", spec->tokenizer_hash);
    return err;
}

/* ---- checksums ---- */

/* HDF5 1.10 returns the address of a chunk without the user block, later versions with it (their
 * issue 3003): check which of the two places holds the chunk that we wrote. */
static bp_err base_of_chunks(const bp_corpus_writer *writer, const bp_extent *first, int64_t *base)
{
    const int64_t bases[2] = {0, BP_USER_BLOCK_BYTES};
    char *chunk = bp_alloc("io.chunk", (int64_t)first->bytes, 1);
    bool found = false;

    for (int k = 0; k < 2 && !found; k++) {
        found = bp_pread_all(writer->lock, chunk, first->bytes,
                             (int64_t)first->offset + bases[k]) == 0 &&
                bp_xxh3(chunk, first->bytes) == first->xxh3;
        *base = bases[k];
    }
    bp_free(chunk);
    return found ? BP_OK
                 : BP_FAIL(BP_ERR_IO, "corpus.not_written",
                           "a chunk does not read back as it was written: at %s; look at the disk",
                           writer->path);
}

static bp_err locate_chunks(bp_corpus_writer *writer)
{
    int64_t base = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < writer->chunks_in && err == BP_OK; k++) {
        hsize_t first = (hsize_t)k * BP_CORPUS_CHUNK_TOKENS, bytes = 0;
        haddr_t address = HADDR_UNDEF;
        unsigned mask = 0;
        bp_h5_lock();
        if (H5Dget_chunk_info_by_coord(writer->tokens, &first, &mask, &address, &bytes) < 0 ||
            address == HADDR_UNDEF || bytes != writer->extents[k].bytes)
            err = bp_h5_fail(writer->h5, "can't locate a chunk of", "tokens");
        bp_h5_unlock();
        if (err != BP_OK)
            break;
        writer->extents[k].offset = address;
        if (k == 0)
            err = base_of_chunks(writer, &writer->extents[0], &base);
        writer->extents[k].offset += (uint64_t)base;
    }
    return err;
}

/* Writes the closed file's hash of everything that no row covers, then the user block. */
static bp_err seal(bp_corpus_writer *writer, int64_t table_offset)
{
    bp_extents extents = {writer->extents, NULL, writer->extent_count};
    bp_user_block block = {.kind = BP_CORPUS_KIND, .version = BP_CORPUS_VERSION};
    char outside[BP_USER_BLOCK_HASH];
    struct stat status;
    bp_err err;

    if (fstat(writer->lock, &status) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't look at", writer->path);
    err = bp_extents_sort(&extents, status.st_size, writer->path);
    if (err == BP_OK)
        err = bp_extents_outside(&extents, writer->lock, status.st_size, writer->path, outside);
    bp_free(extents.order);
    if (err != BP_OK)
        return err;
    snprintf(block.detail, sizeof block.detail, "checksums %" PRId64 " %" PRId64 " outside %s",
             table_offset, extents.count, outside);
    return bp_user_block_seal_fd(&block, writer->lock, writer->path);
}

/* ---- commit ---- */

static bp_err check_content(const bp_corpus_writer *writer)
{
    if (writer->document_count == 0)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.no_documents",
                       "no document was found: at the input of %s; give text", writer->path);
    if (writer->token_count == 0)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.no_tokens",
                       "no token was found: at the input of %s; give text", writer->path);
    for (int k = 0; k < writer->spec.label_count; k++)
        if (!writer->labels[k].seen)
            return BP_FAIL(
                BP_ERR_FORMAT, "label.missing",
                "no document has a label '%s': at the input of %s; see --label, and leave it "
                "out where labels are not known",
                writer->spec.labels[k], writer->path);
    return BP_OK;
}

static bp_err write_all(bp_corpus_writer *writer, int64_t *table_offset)
{
    int64_t extent[2] = {0, 3};
    bp_err err = locate_chunks(writer);

    if (err == BP_OK)
        err = write_document_columns(writer);
    for (int k = 0; k < writer->spec.label_count && err == BP_OK; k++)
        err = write_label(writer, k);
    for (int k = 0; k < writer->spec.value_count && err == BP_OK; k++)
        err = write_value(writer, k);
    if (err == BP_OK && writer->spec.has_tags)
        err = write_tags(writer);
    if (err == BP_OK && writer->spec.has_spans)
        err = write_spans(writer);
    if (err == BP_OK)
        err = write_sources(writer);
    if (err == BP_OK)
        err = write_attributes(writer);
    extent[0] = writer->extent_count;
    if (err == BP_OK)
        err = bp_h5_make_array(writer->h5, "checksums", BP_H5_U64, 2, extent, table_offset);
    if (err == BP_OK)
        err = bp_h5_write_slab(writer->h5, "checksums", BP_H5_U64, 0, writer->extents,
                               extent[0] * extent[1]);
    return err;
}

bp_err bp_corpus_writer_commit(bp_corpus_writer *writer)
{
    int64_t table_offset = 0;
    bp_err err = bp_corpus_writer_finish(writer);

    BP_ASSERT(err != BP_OK || writer->chunks_in == writer->chunks_out);
    if (err == BP_OK)
        err = check_content(writer);
    if (err == BP_OK)
        err = write_all(writer, &table_offset);
    if (err == BP_OK)
        err = bp_h5_close(&writer->h5);
    if (err == BP_OK)
        err = seal(writer, table_offset);
    if (err == BP_OK && rename(writer->temporary, writer->path) != 0)
        err = bp_fail_create("can't rename to", writer->path);
    if (err != BP_OK)
        return err;
    writer->committed = true;
    return bp_path_sync(writer->folder);
}
