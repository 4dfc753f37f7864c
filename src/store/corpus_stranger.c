/* Corpus files of strangers: any integer type, any layout that can be trusted, read through HDF5.
 */
#include "corpus_priv.h"

#include "h5_priv.h"

#include "base/mem.h"
#include "base/xxh.h"
#include "store/corpus_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_TOKENS ((int64_t)1 << 16)

/* /tokens stays open with a cache that holds its largest chunk: else every block would be
 * decompressed anew. */
static bp_err open_tokens(bp_corpus_file *file)
{
    hid_t access;
    bp_err err = BP_OK;

    bp_h5_lock();
    access = H5Pcreate(H5P_DATASET_ACCESS);
    if (access >= 0 && H5Pset_chunk_cache(access, 521, (size_t)512 << 20, 1.0) >= 0)
        file->dataset = H5Dopen2(file->h5->id, "tokens", access);
    if (file->dataset < 0)
        err = bp_h5_fail(file->h5, "can't open dataset", "tokens");
    if (access >= 0)
        H5Pclose(access);
    bp_h5_unlock();
    return err;
}

static bp_err check_ids(const bp_corpus_file *file, int64_t first, int64_t count,
                        const int64_t *ids)
{
    for (int64_t k = 0; k < count; k++)
        if (ids[k] < 0 || ids[k] >= file->info.vocab_size)
            return BP_FAIL(BP_ERR_FORMAT,
                           "token id %" PRId64 " is beyond the vocabulary of %" PRId64
                           ": at %s, /tokens[%" PRId64 "]; correct vocab_size or the tokens",
                           ids[k], file->info.vocab_size, file->path, first + k);
    return BP_OK;
}

/* The block of tokens that `first` lies in. */
static bp_err load_block(bp_corpus_file *file, int64_t first)
{
    hsize_t start = (hsize_t)(first - first % BLOCK_TOKENS);
    hsize_t left = (hsize_t)file->info.tokens - start;
    hsize_t count = left < (hsize_t)BLOCK_TOKENS ? left : (hsize_t)BLOCK_TOKENS;
    hid_t in_file, in_memory;
    bp_err err = BP_OK;

    file->block_count = 0;
    bp_h5_lock();
    in_file = H5Dget_space(file->dataset);
    in_memory = H5Screate_simple(1, &count, NULL);
    if (in_file < 0 || in_memory < 0 ||
        H5Sselect_hyperslab(in_file, H5S_SELECT_SET, &start, NULL, &count, NULL) < 0 ||
        H5Dread(file->dataset, H5T_NATIVE_INT64, in_memory, in_file, H5P_DEFAULT, file->block) < 0)
        err = bp_h5_fail(file->h5, "can't read dataset", "tokens");
    if (in_memory >= 0)
        H5Sclose(in_memory);
    if (in_file >= 0)
        H5Sclose(in_file);
    bp_h5_unlock();
    if (err == BP_OK)
        err = check_ids(file, (int64_t)start, (int64_t)count, file->block);
    if (err == BP_OK) {
        file->block_first = (int64_t)start;
        file->block_count = (int64_t)count;
    }
    return err;
}

bp_err bp_corpus_read_stranger(bp_corpus_file *file, int64_t first, int64_t count, int32_t *tokens)
{
    while (count > 0) {
        if (first < file->block_first || first >= file->block_first + file->block_count) {
            bp_err err = load_block(file, first);
            if (err != BP_OK)
                return err;
        }
        int64_t within = first - file->block_first;
        int64_t now = file->block_count - within < count ? file->block_count - within : count;
        for (int64_t k = 0; k < now; k++)
            tokens[k] = (int32_t)file->block[within + k];
        tokens += now;
        first += now;
        count -= now;
    }
    return BP_OK;
}

static bp_err update(XXH3_state_t *state, const void *data, size_t bytes, const char *path)
{
    return XXH3_128bits_update(state, data, bytes) == XXH_OK
               ? BP_OK
               : BP_FAIL(BP_ERR_SYSTEM, "the hash failed: at %s", path);
}

/* XXH3-128 of the tokens as int32 and doc_start as int64, little-endian, whatever the types in the
 * file. On the way every id is compared with the vocabulary. */
static bp_err hash_content(bp_corpus_file *file, XXH3_state_t *state)
{
    int32_t *tokens = bp_alloc("store.block", BLOCK_TOKENS, sizeof *tokens);
    const int64_t *doc_start;
    bp_err err = tokens == NULL ? bp_fail_memory("tokens", BLOCK_TOKENS, sizeof *tokens) : BP_OK;

    for (int64_t first = 0; first < file->info.tokens && err == BP_OK; first += BLOCK_TOKENS) {
        int64_t left = file->info.tokens - first;
        int64_t now = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
        err = bp_corpus_read_stranger(file, first, now, tokens);
        if (err == BP_OK)
            err = update(state, tokens, (size_t)now * sizeof *tokens, file->path);
    }
    bp_free(tokens);
    if (err == BP_OK)
        err = bp_corpus_file_doc_start(file, &doc_start);
    if (err == BP_OK)
        err = update(state, doc_start, (size_t)(file->info.documents + 1) * sizeof *doc_start,
                     file->path);
    if (err == BP_OK) {
        XXH128_hash_t value = XXH3_128bits_digest(state);
        snprintf(file->info.content_hash, sizeof file->info.content_hash,
                 "%016" PRIx64 "%016" PRIx64, (uint64_t)value.high64, (uint64_t)value.low64);
    }
    return err;
}

static bp_err read_through(bp_corpus_file *file)
{
    XXH3_state_t *state = XXH3_createState();
    bp_err err;

    if (state == NULL || XXH3_128bits_reset(state) != XXH_OK)
        err = bp_fail_memory("a hash", 1, 1);
    else
        err = hash_content(file, state);
    XXH3_freeState(state);
    return err;
}

bp_err bp_corpus_open_stranger(bp_corpus_file *file)
{
    bp_h5_shape tokens;
    bp_err err = bp_h5_open_fd(&file->h5, file->fd, file->path);

    if (err == BP_OK)
        err = bp_h5_walk(file->h5, "tokens");
    if (err == BP_OK)
        err = bp_h5_shape_of(file->h5, "tokens", &tokens);
    if (err == BP_OK && (tokens.is_text || tokens.is_real))
        err = BP_FAIL(BP_ERR_FORMAT, "/tokens does not hold integers: at %s", file->path);
    if (err == BP_OK)
        err = bp_corpus_read_attributes(file, file->h5);
    if (err == BP_OK)
        err = bp_corpus_find_columns(file, file->h5, true);
    if (err != BP_OK)
        return err;
    file->info.tokens = tokens.count;
    file->block = bp_alloc("store.block", BLOCK_TOKENS, sizeof *file->block);
    if (file->block == NULL)
        return bp_fail_memory("tokens", BLOCK_TOKENS, sizeof *file->block);
    err = open_tokens(file);
    return err == BP_OK ? read_through(file) : err;
}

void bp_corpus_close_stranger(bp_corpus_file *file)
{
    if (file->dataset >= 0 && file->h5 != NULL) {
        bp_h5_lock();
        (void)H5Dclose(file->dataset); /* only read from */
        bp_h5_unlock();
    }
    bp_free(file->block);
    bp_h5_drop(&file->h5);
}
