/* The corpus writer collects tokens and documents; corpus_commit.c makes the file from them. */
#include "corpus_writer_priv.h"

#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/files/hidden.h"
#include "base/mem.h"
#include "io/h5/zstd_filter.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define SPILL_MEMORY ((size_t)256 << 10)
#define SYNC_BYTES   ((int64_t)8 << 20) /* of the file, before the system is told to write them */

/* ---- chunks of tokens to zstd frames ---- */

struct bp_packer {
    ZSTD_CCtx *context;
    void *out;
    size_t raw_bytes, capacity;
};

size_t bp_corpus_chunk_bytes(int64_t vocab_size)
{
    return (size_t)BP_CORPUS_CHUNK_TOKENS *
           (vocab_size <= 65535 ? sizeof(uint16_t) : sizeof(uint32_t));
}

bp_packer *bp_packer_new(int64_t vocab_size)
{
    bp_packer *packer = bp_alloc("io.packer", 1, sizeof *packer);

    packer->raw_bytes = bp_corpus_chunk_bytes(vocab_size);
    packer->capacity = ZSTD_compressBound(packer->raw_bytes);
    packer->out = bp_alloc("io.packer", (int64_t)packer->capacity, 1);
    packer->context = ZSTD_createCCtx();
    if (!packer->context)
        bp_memory_ended("a compressor", 1, packer->capacity);
    return packer;
}

void bp_packer_free(bp_packer **packer)
{
    if (*packer) {
        ZSTD_freeCCtx((*packer)->context);
        bp_free((*packer)->out);
    }
    bp_free(*packer);
    *packer = NULL;
}

bp_err bp_packer_pack(bp_packer *packer, const void *raw, bp_packed *out)
{
    size_t got = ZSTD_compressCCtx(packer->context, packer->out, packer->capacity, raw,
                                   packer->raw_bytes, BP_ZSTD_LEVEL);

    if (ZSTD_isError(got))
        return BP_FAIL(BP_ERR_SYSTEM, "corpus.not_compressed",
                       "zstd failed (%s): at a chunk of tokens", ZSTD_getErrorName(got));
    *out = (bp_packed){packer->out, got, bp_xxh3(packer->out, got)};
    return BP_OK;
}

/* ---- beginning ---- */

static bp_err check_names(const char *const *names, int count, const char *option)
{
    for (int k = 0; k < count; k++) {
        const char *name = names[k];
        size_t bytes = strlen(name);

        if (bytes == 0 || bytes > 100 || strchr(name, '/') || strcmp(name, ".") == 0)
            return BP_FAIL(BP_ERR_USAGE, "label.bad_name",
                           "'%s' can't be the name of a label: at %s; use 1 to 100 bytes "
                           "without '/'",
                           name, option);
        for (int other = 0; other < k; other++)
            if (strcmp(names[other], name) == 0)
                return BP_FAIL(BP_ERR_USAGE, "label.twice",
                               "label '%s' is given twice: at %s; give it once", name, option);
    }
    return BP_OK;
}

static bp_err check_spec(const bp_corpus_spec *spec, const char *path)
{
    struct stat status;
    bp_err err;

    BP_ASSERT(spec->vocab_size >= 1 && spec->vocab_size <= INT32_MAX &&
              spec->eod_id < spec->vocab_size);
    if (*bp_path_base(path) == '\0' || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
        return BP_FAIL(BP_ERR_CREATE, "file.not_replaced",
                       "not a regular file: at %s; give another output", path);
    err = check_names(spec->labels, spec->label_count, "--label");
    return err == BP_OK ? check_names(spec->values, spec->value_count, "--value") : err;
}

/* /tokens: chunks of 64 Ki, the zstd filter, growing as chunks come. */
static hid_t create_tokens(hid_t file, size_t token_bytes)
{
    const hsize_t none = 0, unlimited = H5S_UNLIMITED, chunk = BP_CORPUS_CHUNK_TOKENS;
    const unsigned level = BP_ZSTD_LEVEL;
    hid_t type = token_bytes == sizeof(uint16_t) ? H5T_STD_U16LE : H5T_STD_U32LE;
    hid_t space = H5Screate_simple(1, &none, &unlimited);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t dataset = -1;

    if (H5Pset_obj_track_times(creation, 0) >= 0 && H5Pset_chunk(creation, 1, &chunk) >= 0 &&
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_filter(creation, BP_FILTER_ZSTD, H5Z_FLAG_MANDATORY, 1, &level) >= 0)
        dataset = H5Dcreate2(file, "tokens", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    bp_h5_release(creation);
    bp_h5_release(space);
    return dataset;
}

/* The temporary file is made by open(2) first: its errno tells the exact fault, and its lock shows
 * other processes that it is no leftover of a killed run. */
static bp_err create_file(bp_corpus_writer *writer)
{
    bp_err err;

    bp_hidden_sweep(writer->path, BP_HIDDEN_FILE);
    err = bp_hidden_make(writer->path, BP_HIDDEN_FILE, &writer->temporary, &writer->lock);
    if (err == BP_OK)
        err = bp_h5_create_as(&writer->h5, writer->temporary, writer->path);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    writer->tokens = create_tokens(writer->h5->id, writer->token_bytes);
    if (writer->tokens < 0)
        err = bp_h5_fail(writer->h5, "can't create dataset", "tokens");
    bp_h5_unlock();
    return err;
}

bp_err bp_corpus_writer_new(bp_corpus_writer **out, const char *path, const bp_corpus_spec *spec)
{
    bp_corpus_writer *writer;
    bp_err err = check_spec(spec, path);

    *out = NULL;
    if (err != BP_OK)
        return err;
    writer = bp_alloc("io.corpus_writer", 1, sizeof *writer);
    writer->spec = *spec;
    writer->tokens = writer->lock = -1;
    writer->path = bp_strdup(path);
    writer->folder = bp_path_folder(path);
    writer->id_width = 1;
    writer->token_bytes = bp_corpus_chunk_bytes(spec->vocab_size) / BP_CORPUS_CHUNK_TOKENS;
    writer->raw = bp_alloc("io.chunk", BP_CORPUS_CHUNK_TOKENS, writer->token_bytes);
    writer->labels = bp_alloc("io.labels", spec->label_count, sizeof *writer->labels);
    for (int k = 0; k < spec->label_count; k++)
        writer->labels[k].codes = bp_spill_new(writer->folder, SPILL_MEMORY);
    writer->values = bp_alloc("io.labels", spec->value_count, sizeof *writer->values);
    for (int k = 0; k < spec->value_count; k++)
        writer->values[k] = bp_spill_new(writer->folder, SPILL_MEMORY);
    if (spec->has_tags)
        writer->tags = bp_spill_new(writer->folder, SPILL_MEMORY);
    if (spec->has_spans) {
        writer->spans = bp_spill_new(writer->folder, SPILL_MEMORY);
        writer->span_texts = bp_spill_new(writer->folder, SPILL_MEMORY);
    }
    if (spec->has_segments)
        writer->segments = bp_spill_new(writer->folder, SPILL_MEMORY);
    for (int k = 0; k < SPILLS; k++)
        writer->spills[k] = bp_spill_new(writer->folder, SPILL_MEMORY);
    writer->ids = bp_spill_new(writer->folder, SPILL_MEMORY);
    if (!spec->pack)
        writer->packer = bp_packer_new(spec->vocab_size);
    err = create_file(writer);
    if (err != BP_OK)
        bp_corpus_writer_free(&writer);
    *out = writer;
    return err;
}

void bp_corpus_writer_free(bp_corpus_writer **out)
{
    bp_corpus_writer *writer = *out;

    if (!writer)
        return;
    bp_h5_drop(&writer->h5); /* and /tokens with it */
    if (!writer->committed && writer->temporary)
        (void)unlink(writer->temporary); /* the remains of a failure, if any */
    if (writer->lock >= 0)
        (void)close(writer->lock); /* nothing was written through it */
    for (int k = 0; k < writer->spec.label_count; k++) {
        bp_dictionary_clear(&writer->labels[k].values);
        bp_spill_free(&writer->labels[k].codes);
    }
    for (int k = 0; k < SPILLS; k++)
        bp_spill_free(&writer->spills[k]);
    for (int k = 0; k < writer->spec.value_count; k++)
        bp_spill_free(&writer->values[k]);
    bp_free(writer->values);
    bp_spill_free(&writer->segments);
    bp_spill_free(&writer->tags);
    bp_spill_free(&writer->spans);
    bp_spill_free(&writer->span_texts);
    bp_free(writer->context);
    bp_dictionary_clear(&writer->tag_names);
    bp_spill_free(&writer->ids);
    bp_packer_free(&writer->packer);
    bp_free(writer->labels);
    bp_free(writer->raw);
    bp_free(writer->extents);
    bp_free(writer->temporary);
    bp_free(writer->folder);
    bp_free(writer->path);
    bp_free(writer);
    *out = NULL;
}

/* ---- tokens ---- */

void bp_corpus_writer_add_extent(bp_corpus_writer *writer, const bp_extent *extent)
{
    writer->extents = bp_grow("io.extents", writer->extents, &writer->extent_capacity,
                              writer->extent_count + 1, sizeof *extent);
    writer->extents[writer->extent_count++] = *extent;
}

/* Sends the filled chunk (the last one padded with zeros) to be compressed. */
static bp_err hand_out(bp_corpus_writer *writer)
{
    size_t filled = (size_t)writer->raw_tokens * writer->token_bytes;
    size_t all = (size_t)BP_CORPUS_CHUNK_TOKENS * writer->token_bytes;
    int64_t number = writer->chunks_out++;
    bp_packed packed;
    bp_err err;

    memset((char *)writer->raw + filled, 0, all - filled);
    writer->raw_tokens = 0;
    if (writer->spec.pack)
        return writer->spec.pack(writer->spec.context, number, writer->raw);
    err = bp_packer_pack(writer->packer, writer->raw, &packed);
    return err == BP_OK ? bp_corpus_writer_put(writer, number, &packed) : err;
}

void bp_corpus_writer_begin_sync(bp_corpus_writer *writer, int64_t end)
{
    if (end - writer->sync_begun < SYNC_BYTES)
        return;
    bp_file_begin_sync(writer->lock, writer->sync_begun, end - writer->sync_begun);
    writer->sync_begun = end;
}

bp_err bp_corpus_writer_put(bp_corpus_writer *writer, int64_t number, const bp_packed *packed)
{
    const bp_extent extent = {0, packed->bytes, packed->xxh3}; /* its place is queried at the end */
    hsize_t first = (hsize_t)number * BP_CORPUS_CHUNK_TOKENS;
    hsize_t end = first + BP_CORPUS_CHUNK_TOKENS;
    bp_err err = bp_h5_sound(writer->h5);

    BP_ASSERT(number == writer->chunks_in && number < writer->chunks_out);
    if (err != BP_OK)
        return err;
    if (end > (hsize_t)writer->token_count)
        end = (hsize_t)writer->token_count; /* the last chunk: the dataset ends inside it */
    bp_h5_lock();
    if (H5Dset_extent(writer->tokens, &end) < 0 ||
        H5Dwrite_chunk(writer->tokens, H5P_DEFAULT, 0, &first, packed->bytes, packed->data) < 0)
        err = bp_h5_fail(writer->h5, "can't write dataset", "tokens");
    bp_h5_unlock();
    if (err == BP_OK)
        bp_corpus_writer_add_extent(writer, &extent);
    writer->chunk_bytes += (int64_t)packed->bytes;
    bp_corpus_writer_begin_sync(writer, writer->chunk_bytes);
    writer->chunks_in++;
    return err;
}

/* Converts ids to the file's width, up to the end of the chunk; returns the number that fit the
 * vocabulary. */
static int64_t fill(bp_corpus_writer *writer, const uint32_t *ids, int64_t count)
{
    uint32_t vocab_size = (uint32_t)writer->spec.vocab_size;
    int64_t k = 0;

    if (writer->token_bytes == sizeof(uint16_t)) {
        uint16_t *to = (uint16_t *)writer->raw + writer->raw_tokens;
        for (; k < count && ids[k] < vocab_size; k++)
            to[k] = (uint16_t)ids[k];
    } else {
        uint32_t *to = (uint32_t *)writer->raw + writer->raw_tokens;
        for (; k < count && ids[k] < vocab_size; k++)
            to[k] = ids[k];
    }
    return k;
}

static bp_err add_tokens(bp_corpus_writer *writer, const uint32_t *ids, int64_t count)
{
    bp_err err = BP_OK;

    while (err == BP_OK && count > 0) {
        int64_t capacity = BP_CORPUS_CHUNK_TOKENS - writer->raw_tokens;
        int64_t now = count < capacity ? count : capacity;
        int64_t good = fill(writer, ids, now);
        if (good < now)
            return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_token",
                           "token id %" PRIu32 " is beyond the vocabulary of %" PRId64
                           ": at token %" PRId64 " of %s; use the tokenizer of that vocabulary",
                           ids[good], writer->spec.vocab_size, writer->token_count + good,
                           writer->path);
        writer->raw_tokens += now;
        writer->token_count += now;
        writer->last_id = ids[now - 1];
        ids += now;
        count -= now;
        if (writer->raw_tokens == BP_CORPUS_CHUNK_TOKENS)
            err = hand_out(writer);
    }
    return err;
}

/* Adds the first token of a new document. */
static bp_err begin_document(bp_corpus_writer *writer)
{
    const bp_corpus_spec *spec = &writer->spec;
    const uint32_t bos = spec->has_bos ? (uint32_t)spec->roles[BP_ROLE_BOS] : 0;

    if (!spec->has_bos || spec->ends_as_given || writer->token_count > writer->document_start)
        return BP_OK;
    return add_tokens(writer, &bos, 1);
}

bp_err bp_corpus_writer_tokens(bp_corpus_writer *writer, const uint32_t *ids, int64_t count)
{
    bp_err err = begin_document(writer);

    BP_ASSERT(!writer->finished);
    return err == BP_OK ? add_tokens(writer, ids, count) : err;
}

/* ---- documents ---- */

bp_err bp_corpus_writer_segment(bp_corpus_writer *writer)
{
    const uint64_t start = (uint64_t)writer->token_count;

    writer->segment_count++;
    return bp_spill_add(writer->segments, &start, sizeof start);
}

bp_err bp_corpus_writer_pad_tags(bp_corpus_writer *writer, int64_t end)
{
    const uint32_t none = BP_CORPUS_NO_TAG;
    bp_err err = BP_OK;

    for (; writer->tag_count < end && err == BP_OK; writer->tag_count++)
        err = bp_spill_add(writer->tags, &none, sizeof none);
    return err;
}

bp_err bp_corpus_writer_tag(bp_corpus_writer *writer, const char *tag)
{
    int64_t code = bp_dictionary_code(&writer->tag_names, tag);
    uint32_t stored = (uint32_t)code;
    bp_err err;

    if (code >= BP_CORPUS_TAG_NAMES)
        return BP_FAIL(BP_ERR_FORMAT, "conll.too_many_tags",
                       "there are more than %d tags: at document %" PRId64
                       " of %s; the last field of a line is its tag",
                       BP_CORPUS_TAG_NAMES, writer->document_count, writer->path);
    err = bp_corpus_writer_pad_tags(writer, writer->token_count);
    writer->tag_count++;
    return err == BP_OK ? bp_spill_add(writer->tags, &stored, sizeof stored) : err;
}

static bp_err add_label(bp_corpus_writer *writer, int k, const char *value)
{
    label_column *column = &writer->labels[k];
    size_t bytes = strlen(value);
    int64_t code;
    uint32_t stored;

    if (bytes > BP_CORPUS_LABEL_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "label.too_long",
                       "label %s of document %" PRId64
                       " has %zu bytes, more than %d: at the input; shorten it",
                       writer->spec.labels[k], writer->document_count, bytes,
                       BP_CORPUS_LABEL_BYTES);
    code = bp_dictionary_code(&column->values, value);
    if (code >= BP_CORPUS_LABEL_VALUES)
        return BP_FAIL(BP_ERR_FORMAT, "label.too_many_values",
                       "label %s has more than %" PRId64 " values: at document %" PRId64
                       "; a label is for groups of documents: leave it out",
                       writer->spec.labels[k], BP_CORPUS_LABEL_VALUES, writer->document_count);
    column->seen = column->seen || bytes > 0;
    stored = (uint32_t)code;
    return bp_spill_add(column->codes, &stored, sizeof stored);
}

static bp_err add_id(bp_corpus_writer *writer, const char *id)
{
    size_t bytes = strlen(id);
    uint16_t length = (uint16_t)bytes;
    bp_err err;

    if (bytes > BP_CORPUS_ID_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.id_too_long",
                       "the id of document %" PRId64
                       " has %zu bytes, more than %d: at the input; shorten it",
                       writer->document_count, bytes, BP_CORPUS_ID_BYTES);
    writer->id_width = bytes > writer->id_width ? bytes : writer->id_width;
    err = bp_spill_add(writer->ids, &length, sizeof length);
    if (err == BP_OK)
        err = bp_spill_add(writer->ids, id, bytes);
    return err;
}

static bp_err add_text(bp_corpus_writer *writer, const char *text, uint64_t *at)
{
    size_t bytes = strlen(text) + 1;

    *at = (uint64_t)writer->span_bytes;
    writer->span_bytes += (int64_t)bytes;
    return bp_spill_add(writer->span_texts, text, bytes);
}

/* Consecutive questions share their context. */
static bp_err add_span(bp_corpus_writer *writer, const bp_corpus_row *row)
{
    uint64_t numbers[BP_CORPUS_SPAN] = {(uint64_t)row->answer[0], (uint64_t)row->answer[1]};
    bp_err err = BP_OK;

    if (!writer->context || strcmp(writer->context, row->context) != 0) {
        err = add_text(writer, row->context, &numbers[BP_SPAN_CONTEXT]);
        writer->context_at = (int64_t)numbers[BP_SPAN_CONTEXT];
        bp_free(writer->context);
        writer->context = bp_strdup(row->context);
    }
    numbers[BP_SPAN_CONTEXT] = (uint64_t)writer->context_at;
    if (err == BP_OK)
        err = add_text(writer, row->answers, &numbers[BP_SPAN_ANSWERS]);
    return err == BP_OK ? bp_spill_add(writer->spans, numbers, sizeof numbers) : err;
}

bp_err bp_corpus_writer_end(bp_corpus_writer *writer, const bp_corpus_row *row)
{
    const uint64_t numbers[SPILLS] = {(uint64_t)writer->document_start, (uint64_t)row->bytes,
                                      (uint64_t)row->words, (uint64_t)row->words_split,
                                      (uint64_t)writer->document_segments};
    uint32_t eod = (uint32_t)writer->spec.eod_id;
    bool has_eod = writer->spec.eod_id >= 0;
    bp_err err = BP_OK;

    if (writer->spec.has_segments && writer->segment_count == writer->document_segments) {
        BP_ASSERT(writer->token_count == writer->document_start);
        err = bp_corpus_writer_segment(writer);
    }
    if (err == BP_OK && has_eod && !writer->spec.ends_as_given)
        err = bp_corpus_writer_tokens(writer, &eod, 1);
    else if (has_eod && (writer->token_count == writer->document_start || writer->last_id != eod))
        writer->open_ends++;
    for (int k = 0; k < SPILLS && err == BP_OK; k++)
        err = bp_spill_add(writer->spills[k], &numbers[k], sizeof numbers[k]);
    if (err == BP_OK && writer->spec.has_ids)
        err = add_id(writer, row->id);
    for (int k = 0; k < writer->spec.label_count && err == BP_OK; k++)
        err = add_label(writer, k, row->labels[k]);
    for (int k = 0; k < writer->spec.value_count && err == BP_OK; k++)
        err = bp_spill_add(writer->values[k], &row->values[k], sizeof row->values[k]);
    if (err == BP_OK && writer->spec.has_spans)
        err = add_span(writer, row);
    writer->document_segments = writer->segment_count;
    writer->document_count++;
    writer->document_start = writer->token_count;
    return err;
}

bp_err bp_corpus_writer_finish(bp_corpus_writer *writer)
{
    bp_err err = BP_OK;

    if (writer->finished)
        return BP_OK;
    if (writer->raw_tokens > 0)
        err = hand_out(writer);
    writer->finished = true;
    return err;
}

int64_t bp_corpus_writer_open_ends(const bp_corpus_writer *writer)
{
    return writer->open_ends;
}

int64_t bp_corpus_writer_token_count(const bp_corpus_writer *writer)
{
    return writer->token_count;
}
