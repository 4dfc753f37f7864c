/* Taking in tokens and documents. */
#include "corpus_temporary.h"
#include "corpus_writer_priv.h"

#include "base/fs.h"
#include "base/mem.h"
#include "io/h5/zstd_filter.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SPILL_BYTES ((size_t)256 << 10)

/* ---- beginning ---- */

static bp_err name_files(bp_corpus_writer *writer, const char *path)
{
    const char *base = bp_path_base(path);
    int folder_bytes = (int)(base - path);
    struct stat status;

    if (*base == '\0' || (stat(path, &status) == 0 && !S_ISREG(status.st_mode)))
        return BP_FAIL(BP_ERR_CREATE, "not a regular file: at %s; give another output", path);
    writer->path = bp_strdup(path);
    writer->folder = folder_bytes > 0 ? bp_sprintf("%.*s", folder_bytes, path) : bp_strdup(".");
    return BP_OK;
}

static bp_err check_label_name(const bp_corpus_spec *spec, int k)
{
    const char *name = spec->labels[k];
    size_t bytes = strlen(name);

    if (bytes == 0 || bytes > 100 || strchr(name, '/') != NULL || strcmp(name, ".") == 0)
        return BP_FAIL(
            BP_ERR_USAGE,
            "'%s' can't be the name of a label: at --label; use 1 to 100 bytes without '/'", name);
    for (int other = 0; other < k; other++)
        if (strcmp(spec->labels[other], name) == 0)
            return BP_FAIL(BP_ERR_USAGE, "label '%s' is given twice: at --label; give it once",
                           name);
    return BP_OK;
}

static bp_err copy_labels(bp_corpus_writer *writer, const bp_corpus_spec *spec)
{
    bp_err err = BP_OK;

    writer->labels = bp_alloc("io.labels", spec->label_count, sizeof *writer->labels);
    for (int k = 0; k < spec->label_count && err == BP_OK; k++) {
        err = check_label_name(spec, k);
        if (err != BP_OK)
            break;
        writer->label_count = k + 1;
        writer->labels[k].name = bp_strdup(spec->labels[k]);
        bp_spill_new(&writer->labels[k].codes, writer->folder, SPILL_BYTES);
    }
    return err;
}

static void copy_source(text_list *to, const bp_corpus_source *from)
{
    to->name = bp_strdup(from->name);
    to->values = bp_alloc("io.sources", from->count, sizeof *to->values);
    for (int64_t k = 0; k < from->count; k++) {
        to->values[k] = bp_strdup(from->values[k]);
        to->count = k + 1;
    }
}

static bp_err copy_spec(bp_corpus_writer *writer, const bp_corpus_spec *spec)
{
    bp_err err = copy_labels(writer, spec);

    if (err != BP_OK)
        return err;
    writer->vocab_size = spec->vocab_size;
    writer->eod_id = spec->eod_id;
    writer->has_ids = spec->has_ids;
    writer->ends_as_given = spec->ends_as_given;
    writer->without_bytes = spec->without_bytes;
    writer->without_words = spec->without_words;
    writer->without_words_split = spec->without_words_split;
    writer->pack = spec->pack;
    writer->context = spec->context;
    writer->id_width = 1;
    writer->token_bytes = bp_corpus_chunk_bytes(spec->vocab_size) / BP_CORPUS_CHUNK_TOKENS;
    writer->raw = bp_alloc("io.chunk", BP_CORPUS_CHUNK_TOKENS, writer->token_bytes);
    writer->tokenizer_hash = bp_strdup(spec->tokenizer_hash);
    writer->sources = bp_alloc("io.sources", spec->source_count, sizeof *writer->sources);
    if (spec->tokenizer != NULL)
        writer->tokenizer = bp_strdup(spec->tokenizer);
    for (int k = 0; k < spec->source_count && err == BP_OK; k++) {
        writer->source_count = k + 1;
        copy_source(&writer->sources[k], &spec->sources[k]);
    }
    return err;
}

static void open_spills(bp_corpus_writer *writer)
{
    bp_spill **const spills[] = {&writer->starts, &writer->bytes, &writer->words,
                                 &writer->words_split, &writer->ids};

    for (size_t k = 0; k < sizeof spills / sizeof spills[0]; k++)
        bp_spill_new(spills[k], writer->folder, SPILL_BYTES);
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

    if (space >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0 &&
        H5Pset_chunk(creation, 1, &chunk) >= 0 &&
        H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0 &&
        H5Pset_filter(creation, BP_FILTER_ZSTD, H5Z_FLAG_MANDATORY, 1, &level) >= 0)
        dataset = H5Dcreate2(file, "tokens", type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (creation >= 0)
        H5Pclose(creation);
    if (space >= 0)
        H5Sclose(space);
    return dataset;
}

/* The temporary file is made by open(2) first: its errno tells exactly what is wrong with the
 * place, and the lock on it that others don't take it for what a killed run left. */
static bp_err create_file(bp_corpus_writer *writer)
{
    bp_err err;

    bp_corpus_temporary_sweep(writer->path);
    err = bp_corpus_temporary_create(writer->path, &writer->temporary, &writer->lock);
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
    bp_corpus_writer *writer = bp_alloc("io.corpus_writer", 1, sizeof *writer);
    bp_err err;

    *out = NULL;
    BP_ASSERT(spec->vocab_size >= 1 && spec->vocab_size <= INT32_MAX &&
              spec->eod_id < spec->vocab_size);
    writer->tokens = writer->lock = -1;
    err = name_files(writer, path);
    if (err == BP_OK)
        err = copy_spec(writer, spec);
    if (err == BP_OK)
        open_spills(writer);
    if (err == BP_OK && spec->pack == NULL)
        err = bp_packer_new(&writer->packer, spec->vocab_size);
    if (err == BP_OK)
        err = create_file(writer);
    if (err != BP_OK)
        bp_corpus_writer_free(&writer);
    *out = writer;
    return err;
}

static void free_lists(bp_corpus_writer *writer)
{
    for (int k = 0; k < writer->label_count; k++) {
        bp_free(writer->labels[k].name);
        bp_dictionary_clear(&writer->labels[k].values);
        bp_spill_free(&writer->labels[k].codes);
    }
    bp_free(writer->labels);
    for (int k = 0; k < writer->source_count; k++) {
        for (int64_t v = 0; v < writer->sources[k].count; v++)
            bp_free(writer->sources[k].values[v]);
        bp_free(writer->sources[k].values);
        bp_free(writer->sources[k].name);
    }
    bp_free(writer->sources);
}

void bp_corpus_writer_free(bp_corpus_writer **out)
{
    bp_corpus_writer *writer = *out;

    if (writer == NULL)
        return;
    bp_h5_drop(&writer->h5); /* and /tokens with it */
    if (!writer->committed && writer->temporary != NULL)
        (void)unlink(writer->temporary); /* what is left of a failure: there may be none */
    if (writer->lock >= 0)
        (void)close(writer->lock); /* nothing was written through it */
    free_lists(writer);
    bp_spill_free(&writer->starts);
    bp_spill_free(&writer->bytes);
    bp_spill_free(&writer->words);
    bp_spill_free(&writer->words_split);
    bp_spill_free(&writer->ids);
    bp_packer_free(&writer->packer);
    bp_free(writer->raw);
    bp_free(writer->extents);
    bp_free(writer->tokenizer_hash);
    bp_free(writer->tokenizer);
    bp_free(writer->temporary);
    bp_free(writer->folder);
    bp_free(writer->path);
    bp_free(writer);
    *out = NULL;
}

/* ---- tokens ---- */

void bp_corpus_writer_add_extent(bp_corpus_writer *writer, const bp_extent *extent)
{
    if (writer->extent_count == writer->extent_room) {
        int64_t room = writer->extent_room == 0 ? 64 : 2 * writer->extent_room;
        bp_extent *grown = bp_realloc("io.extents", writer->extents, room, sizeof *grown);
        writer->extents = grown;
        writer->extent_room = room;
    }
    writer->extents[writer->extent_count++] = *extent;
}

/* The chunk that was filled (the last one with zeros behind) goes to be compressed. */
static bp_err hand_out(bp_corpus_writer *writer)
{
    size_t filled = (size_t)writer->raw_tokens * writer->token_bytes;
    size_t all = (size_t)BP_CORPUS_CHUNK_TOKENS * writer->token_bytes;
    int64_t number = writer->chunks_out++;
    bp_packed packed;
    bp_err err;

    memset((char *)writer->raw + filled, 0, all - filled);
    writer->raw_tokens = 0;
    if (writer->pack != NULL)
        return writer->pack(writer->context, number, writer->raw);
    err = bp_packer_pack(writer->packer, writer->raw, &packed);
    if (err == BP_OK)
        err = bp_corpus_writer_put(writer, number, &packed);
    return err;
}

bp_err bp_corpus_writer_put(bp_corpus_writer *writer, int64_t number, const bp_packed *packed)
{
    const bp_extent extent = {0, packed->bytes,
                              packed->xxh3}; /* its place is asked for at the end */
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
    writer->chunks_in++;
    return err;
}

/* ids to the width of the file, up to the end of the chunk; the number of those that fit the
 * vocabulary. */
static int64_t fill(bp_corpus_writer *writer, const uint32_t *ids, int64_t count)
{
    uint32_t vocab_size = (uint32_t)writer->vocab_size;
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

bp_err bp_corpus_writer_tokens(bp_corpus_writer *writer, const uint32_t *ids, int64_t count)
{
    bp_err err = BP_OK;

    BP_ASSERT(!writer->finished);
    while (err == BP_OK && count > 0) {
        int64_t room = BP_CORPUS_CHUNK_TOKENS - writer->raw_tokens;
        int64_t now = count < room ? count : room;
        int64_t good = fill(writer, ids, now);
        if (good < now)
            return BP_FAIL(BP_ERR_FORMAT,
                           "token id %" PRIu32 " is beyond the vocabulary of %" PRId64
                           ": at token %" PRId64 " of %s; use the tokenizer of that vocabulary",
                           ids[good], writer->vocab_size, writer->token_count + good, writer->path);
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

/* ---- documents ---- */

static bp_err add_label(label_column *column, const char *value, int64_t document)
{
    size_t bytes = strlen(value);
    int64_t code = 0;
    uint32_t stored;
    bp_err err;

    if (bytes > BP_CORPUS_LABEL_BYTES)
        return BP_FAIL(BP_ERR_FORMAT,
                       "label %s of document %" PRId64
                       " has %zu bytes, more than %d: at the input; shorten it",
                       column->name, document, bytes, BP_CORPUS_LABEL_BYTES);
    err = bp_dictionary_code(&column->values, value, &code);
    if (err != BP_OK)
        return err;
    if (code >= BP_CORPUS_LABEL_VALUES)
        return BP_FAIL(BP_ERR_FORMAT,
                       "label %s has more than %" PRId64 " values: at document %" PRId64
                       "; a label is for groups of documents: leave it out",
                       column->name, BP_CORPUS_LABEL_VALUES, document);
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
        return BP_FAIL(BP_ERR_FORMAT,
                       "the id of document %" PRId64
                       " has %zu bytes, more than %d: at the input; shorten it",
                       writer->document_count, bytes, BP_CORPUS_ID_BYTES);
    writer->id_width = bytes > writer->id_width ? bytes : writer->id_width;
    err = bp_spill_add(writer->ids, &length, sizeof length);
    if (err == BP_OK)
        err = bp_spill_add(writer->ids, id, bytes);
    return err;
}

static bp_err add_number(bp_spill *spill, int64_t value)
{
    uint64_t stored = (uint64_t)value;

    return bp_spill_add(spill, &stored, sizeof stored);
}

bp_err bp_corpus_writer_end(bp_corpus_writer *writer, const bp_corpus_row *row)
{
    bp_err err = BP_OK;

    if (writer->eod_id >= 0 && !writer->ends_as_given) {
        uint32_t eod = (uint32_t)writer->eod_id;
        err = bp_corpus_writer_tokens(writer, &eod, 1);
    } else if (writer->eod_id >= 0 && (writer->token_count == writer->document_start ||
                                       writer->last_id != (uint32_t)writer->eod_id)) {
        writer->open_ends++;
    }
    if (err == BP_OK)
        err = add_number(writer->starts, writer->document_start);
    if (err == BP_OK)
        err = add_number(writer->bytes, row->bytes);
    if (err == BP_OK)
        err = add_number(writer->words, row->words);
    if (err == BP_OK)
        err = add_number(writer->words_split, row->words_split);
    if (err == BP_OK && writer->has_ids)
        err = add_id(writer, row->id);
    for (int k = 0; k < writer->label_count && err == BP_OK; k++)
        err = add_label(&writer->labels[k], row->labels[k], writer->document_count);
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
