/* What a corpus file of ours holds besides tokens, read without HDF5. The first byte picks: the
 * user block with some bytes changed, the table of checksums against a plain loop, or columns
 * (doc_start, counts, segments, values, ids, labels) laid over the input. */
#include "base/files/hash.h"
#include "base/mem.h"
#include "fuzz.h"
#include "io/corpus/corpus_file_priv.h"
#include "io/corpus/corpus_writer.h"
#include "io/h5/user_block.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAPACITY 8192

static uint8_t
    image[BP_USER_BLOCK_BYTES + CAPACITY]; /* of the file: a user block, then the input */
static int64_t image_bytes;

static void make_image(const fuzz_bytes *in)
{
    size_t bytes = in->left < CAPACITY ? in->left : CAPACITY;

    memset(image, ' ', BP_USER_BLOCK_BYTES);
    memcpy(image + BP_USER_BLOCK_BYTES, in->data, bytes);
    image_bytes = BP_USER_BLOCK_BYTES + (int64_t)bytes;
}

static int open_image(const char **path)
{
    int fd;

    *path = fuzz_file(image, (size_t)image_bytes);
    fd = open(*path, O_RDWR | O_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    return fd;
}

/* ---- the user block ---- */

/* A sealed block verifies; with any byte changed, or the file cut, it does not. */
static void try_block(fuzz_bytes *in)
{
    static const char *const kinds[] = {"corpus", "checkpoint", "score-documents", "a"};
    bp_user_block block = {.version = 1}, found;
    int changes = fuzz_below(in, 4), cut = fuzz_below(in, 3) == 2;
    uint8_t sealed[sizeof image];
    const char *path;
    bp_err err;
    int fd;

    strcpy(block.kind, kinds[fuzz_below(in, 4)]);
    for (int k = fuzz_below(in, BP_USER_BLOCK_DETAIL) - 1; k >= 0; k--)
        block.detail[k] = (char)(0x20 + fuzz_below(in, 0x5f));
    make_image(in);
    fd = open_image(&path);
    FUZZ_CHECK(bp_user_block_seal_fd(&block, fd, path) == BP_OK);
    FUZZ_CHECK(pread(fd, image, (size_t)image_bytes, 0) == image_bytes);
    memcpy(sealed, image, (size_t)image_bytes);
    for (int k = 0; k < changes; k++) {
        int64_t at = fuzz_u16(in) % image_bytes;
        uint8_t value = fuzz_u8(in);

        image[at] = value;
        FUZZ_CHECK(pwrite(fd, &value, 1, at) == 1);
    }
    if (cut)
        FUZZ_CHECK(ftruncate(fd, fuzz_u16(in) % image_bytes) == 0);
    err = bp_user_block_verify_fd(&found, fd, path);
    fuzz_check_error(err);
    if (!cut && memcmp(sealed, image, (size_t)image_bytes) == 0)
        FUZZ_CHECK(err == BP_OK && memcmp(&block, &found, sizeof block) == 0);
    else
        FUZZ_CHECK(err == BP_ERR_FORMAT);
    FUZZ_CHECK(close(fd) == 0);
}

/* Any bytes: what is read as a block of ours is spelled as it would be written. */
static void try_raw_block(fuzz_bytes *in)
{
    char again[BP_USER_BLOCK_BYTES];
    const char *path = fuzz_file(in->data, in->left);
    bp_user_block found;
    bp_err err = bp_user_block_read(&found, path), verified;

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK && found.kind[0] != 0) {
        FUZZ_CHECK(in->left >= sizeof again);
        bp_user_block_text(&found, again);
        FUZZ_CHECK(memcmp(again, in->data, sizeof again) == 0);
        FUZZ_CHECK(found.bytes == (int64_t)in->left);
        err = bp_user_block_expect(&found, "corpus", 1, path);
        fuzz_check_error(err);
        FUZZ_CHECK((err == BP_OK) == (strcmp(found.kind, "corpus") == 0 && found.version == 1));
    }
    verified = bp_user_block_verify(&found, path);
    FUZZ_CHECK(verified == BP_OK || verified == BP_ERR_FORMAT);
}

/* ---- checksums ---- */

/* Is [from, to) of the file covered by rows of right hashes? */
static bool is_covered(const bp_extents *extents, int64_t from, int64_t to)
{
    for (int64_t at = from; at < to; at++) {
        bool found = false;

        for (int64_t k = 0; k < extents->count && !found; k++) {
            const bp_extent *row = &extents->rows[k];

            found = (uint64_t)at >= row->offset && (uint64_t)at < row->offset + row->bytes &&
                    bp_xxh3(image + row->offset, row->bytes) == row->xxh3;
        }
        if (!found)
            return false;
    }
    return true;
}

/* Rows as the input says; true where a plain loop finds them in the file and apart. */
static bool take_rows(bp_extents *extents, fuzz_bytes *in, bool make_hashes)
{
    bool sound = true;

    for (int64_t k = 0; k < extents->count; k++) {
        bp_extent *row = &extents->rows[k];
        int far = fuzz_u8(in);

        row->offset = far == 255 ? (uint64_t)fuzz_i64(in) : fuzz_u16(in);
        row->bytes = far == 254 ? (uint64_t)fuzz_i64(in) : fuzz_u8(in);
        row->xxh3 = 7;
        if (row->offset < BP_USER_BLOCK_BYTES || row->offset > (uint64_t)image_bytes ||
            row->bytes > (uint64_t)image_bytes - row->offset) {
            sound = false;
            continue;
        }
        if (make_hashes)
            row->xxh3 = bp_xxh3(image + row->offset, row->bytes);
    }
    for (int64_t a = 0; sound && a < extents->count; a++)
        for (int64_t b = 0; b < extents->count; b++) {
            const bp_extent *p = &extents->rows[a], *q = &extents->rows[b];

            if (a != b && p->bytes > 0 && q->bytes > 0 && p->offset < q->offset + q->bytes &&
                q->offset < p->offset + p->bytes)
                sound = false;
        }
    return sound;
}

static void load_some(const bp_extents *extents, int fd, const char *path, fuzz_bytes *in)
{
    char hash[BP_USER_BLOCK_HASH];
    uint8_t data[512];

    FUZZ_CHECK(bp_extents_outside(extents, fd, image_bytes, path, hash) == BP_OK);
    FUZZ_CHECK(strlen(hash) == 32);
    for (int k = 0; k < 4; k++) {
        int64_t offset = fuzz_u16(in), bytes = fuzz_u8(in);
        bp_err err = bp_extents_load(extents, fd, offset, data, bytes, "a column", path);

        fuzz_check_error(err);
        FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
        if (err == BP_OK && bytes > 0) {
            FUZZ_CHECK(is_covered(extents, offset, offset + bytes));
            FUZZ_CHECK(memcmp(data, image + offset, (size_t)bytes) == 0);
        }
    }
}

static void try_checksums(fuzz_bytes *in)
{
    bool make_hashes = fuzz_below(in, 4) != 3, sound;
    bp_extents extents = {.count = fuzz_below(in, 12)};
    const char *path;
    bp_err err;
    int fd;

    extents.rows = bp_alloc("fuzz.rows", extents.count, sizeof *extents.rows);
    FUZZ_CHECK(extents.rows != NULL);
    make_image(in);
    fd = open_image(&path);
    sound = take_rows(&extents, in, make_hashes);
    err = bp_extents_sort(&extents, image_bytes, path);
    fuzz_check_error(err);
    if (!sound)
        FUZZ_CHECK(err == BP_ERR_FORMAT);
    if (err == BP_OK)
        load_some(&extents, fd, path, in);
    bp_extents_clear(&extents);
    err = bp_extents_read(&extents, fd, fuzz_i64(in), fuzz_i64(in), image_bytes, path);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT || err == BP_ERR_SYSTEM);
    bp_extents_clear(&extents);
    FUZZ_CHECK(close(fd) == 0);
}

/* ---- columns ---- */

/* A column somewhere in the file, maybe beyond it. */
static bp_column take_column(fuzz_bytes *in, int64_t count, bool is_text)
{
    static const size_t widths[] = {8, 4, 8, 2, 1, 16};
    bp_column column = {.name = bp_strdup("a_column")};

    FUZZ_CHECK(column.name != NULL);
    column.shape = (bp_h5_shape){.dims = 1,
                                 .count = count,
                                 .columns = 1,
                                 .is_text = is_text,
                                 .is_signed = fuzz_below(in, 16) == 15,
                                 .offset = BP_USER_BLOCK_BYTES + fuzz_below(in, 256),
                                 .width = is_text ? 1 + (size_t)fuzz_below(in, 20)
                                                  : widths[fuzz_below(in, 6)]};
    return column;
}

static void take_columns(bp_corpus_file *file, fuzz_bytes *in)
{
    bp_corpus_info *info = &file->info;

    info->documents = fuzz_below(in, 12);
    info->tokens = fuzz_below(in, 64);
    info->has_bytes = info->has_words = info->has_words_split = info->has_ids = true;
    for (int k = 0; k < BP_COLUMN_KINDS; k++)
        file->columns[k] =
            take_column(in,
                        k == BP_COLUMN_START || k == BP_COLUMN_DOC_SEGMENTS ? info->documents + 1
                        : k == BP_COLUMN_TOKENIZER                          ? fuzz_below(in, 200)
                        : k == BP_COLUMN_SEGMENTS                           ? fuzz_below(in, 20)
                        : k == BP_COLUMN_SPAN_TEXTS                         ? fuzz_below(in, 60)
                        : k == BP_COLUMN_SPANS ? info->documents * BP_CORPUS_SPAN
                                               : info->documents,
                        k == BP_COLUMN_IDS);
    info->has_segments = info->has_spans = true;
    info->segments = file->columns[BP_COLUMN_SEGMENTS].shape.count;
    file->values = bp_alloc("fuzz.labels", 1, sizeof *file->values);
    info->values = 1;
    file->values[0].name = bp_strdup("level");
    file->values[0].column = take_column(in, info->documents, false);
    file->labels = bp_alloc("fuzz.labels", 1, sizeof *file->labels);
    FUZZ_CHECK(file->labels != NULL);
    info->labels = 1;
    file->labels[0].name = bp_strdup("genre");
    file->labels[0].codes = take_column(in, info->documents, false);
    file->labels[0].names = take_column(in, fuzz_below(in, 4), true);
}

/* The file in rows of a few bytes, with right hashes unless the input says otherwise. */
static void cover(bp_corpus_file *file, fuzz_bytes *in)
{
    int64_t step = 1 + fuzz_below(in, 100), wrong = fuzz_below(in, 64), at = BP_USER_BLOCK_BYTES;
    int64_t rows = (image_bytes - at + step - 1) / step;

    file->extents.rows = bp_alloc("fuzz.rows", rows, sizeof *file->extents.rows);
    FUZZ_CHECK(file->extents.rows != NULL);
    for (; at < image_bytes; at += step) {
        int64_t bytes = image_bytes - at < step ? image_bytes - at : step;
        bool is_wrong = wrong > 0 && file->extents.count == wrong;

        file->extents.rows[file->extents.count++] = (bp_extent){
            (uint64_t)at, (uint64_t)bytes, bp_xxh3(image + at, (size_t)bytes) + is_wrong};
    }
    FUZZ_CHECK(bp_extents_sort(&file->extents, image_bytes, file->path) == BP_OK);
}

static void read_starts(bp_corpus_file *file)
{
    const int64_t *starts, *counts[3];
    int64_t part[8], left = file->info.documents + 1;
    bp_err parts = BP_OK, err;

    for (int64_t first = 0; left > 0 && parts == BP_OK; first += 7, left -= 7)
        parts = bp_corpus_file_read_doc_start(file, first, left < 8 ? left : 8, part);
    fuzz_check_error(parts);
    err = bp_corpus_file_doc_start(file, &starts);
    fuzz_check_error(err);
    FUZZ_CHECK((parts == BP_OK) == (err == BP_OK));
    FUZZ_CHECK((starts != NULL) == (err == BP_OK));
    if (err == BP_OK) {
        FUZZ_CHECK(starts[0] == 0 && starts[file->info.documents] == file->info.tokens);
        for (int64_t d = 0; d < file->info.documents; d++)
            FUZZ_CHECK(starts[d] <= starts[d + 1]);
    }
    err = bp_corpus_file_doc_counts(file, &counts[0], &counts[1], &counts[2]);
    fuzz_check_error(err);
    for (int k = 0; k < 3 && err == BP_OK; k++)
        for (int64_t d = 0; d < file->info.documents; d++)
            FUZZ_CHECK(counts[k][d] >= 0);
}

static void read_spans(bp_corpus_file *file)
{
    const int64_t *spans;
    const char *texts;
    bp_err err = bp_corpus_file_spans(file, &spans, &texts);

    fuzz_check_error(err);
    for (int64_t d = 0; d < file->info.documents && err == BP_OK; d++) {
        const int64_t *one = spans + d * BP_CORPUS_SPAN;
        int64_t bytes = file->columns[BP_COLUMN_SPAN_TEXTS].shape.count;

        FUZZ_CHECK(one[BP_SPAN_FIRST] <= one[BP_SPAN_END]);
        for (int k = BP_SPAN_CONTEXT; k <= BP_SPAN_ANSWERS; k++)
            FUZZ_CHECK(one[k] + (int64_t)strlen(texts + one[k]) < bytes);
    }
}

static void read_task(bp_corpus_file *file)
{
    const int64_t *segments, *starts, *documents;
    bp_corpus_value value;
    bp_err err = bp_corpus_file_segments(file, &segments, &starts);

    fuzz_check_error(err);
    FUZZ_CHECK((starts != NULL) == (err == BP_OK));
    if (err == BP_OK) {
        FUZZ_CHECK(bp_corpus_file_doc_start(file, &documents) == BP_OK);
        for (int64_t d = 0; d < file->info.documents; d++) {
            FUZZ_CHECK(segments[d] < segments[d + 1] && starts[segments[d]] == documents[d]);
            for (int64_t s = segments[d]; s < segments[d + 1]; s++)
                FUZZ_CHECK(starts[s] >= documents[d] && starts[s] <= documents[d + 1]);
        }
    }
    err = bp_corpus_file_value(file, 0, &value);
    fuzz_check_error(err);
    for (int64_t d = 0; d < file->info.documents && err == BP_OK; d++)
        FUZZ_CHECK(value.values[d] - value.values[d] == 0);
}

static void read_texts(bp_corpus_file *file)
{
    bp_corpus_label label;
    char id[32], *text;
    size_t bytes;
    bp_err err = BP_OK;

    for (int64_t d = 0; d < file->info.documents && err == BP_OK; d++) {
        err = bp_corpus_file_doc_id(file, d, id, sizeof id);
        FUZZ_CHECK(strlen(id) <= file->columns[BP_COLUMN_IDS].shape.width);
    }
    fuzz_check_error(err);
    err = bp_corpus_file_label(file, 0, &label);
    fuzz_check_error(err);
    for (int64_t d = 0; d < file->info.documents && err == BP_OK; d++)
        FUZZ_CHECK(strlen(label.values[label.codes[d]]) <= file->labels[0].names.shape.width);
    err = bp_corpus_file_tokenizer(file, &text, &bytes);
    fuzz_check_error(err);
    FUZZ_CHECK(err != BP_OK || text[bytes] == 0);
    bp_free(text);
}

static void try_columns(fuzz_bytes *in)
{
    bp_corpus_file *file = bp_alloc("fuzz.corpus", 1, sizeof *file);
    const char *path;

    FUZZ_CHECK(file != NULL);
    take_columns(file, in);
    make_image(in);
    file->fd = open_image(&path);
    file->path = bp_strdup(path);
    cover(file, in);
    read_starts(file);
    read_task(file);
    read_spans(file);
    read_texts(file);
    bp_corpus_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const tries[])(fuzz_bytes * in) = {try_block, try_raw_block, try_checksums,
                                                     try_columns};
    fuzz_bytes in = {data, bytes};
    int which = fuzz_below(&in, 4);

    fuzz_begin();
    tries[which](&in);
    fuzz_end();
    return 0;
}
