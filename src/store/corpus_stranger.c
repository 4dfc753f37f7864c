/* Corpus files of strangers: any integer type, any layout that can be trusted, read through HDF5,
 * after a sandboxed process has walked and read the whole file. */
#include "corpus_priv.h"

#include "h5_priv.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/sandbox.h"
#include "base/xxh.h"
#include "store/corpus_writer.h"
#include "store/h5_inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_TOKENS  ((int64_t)1 << 16)
#define RATIO_LIMIT   1000                  /* bytes of tokens for a byte of the file ... */
#define FREE_BYTES    ((uint64_t)256 << 20) /* ... beyond these */
#define BLOCK_BYTES   ((int64_t)128 << 20)  /* of a column in the sandbox: at least half a chunk */
#define SANDBOX_SPEED 2e5 /* bytes of the file in a second: each may stand for a thousand */

double bp_corpus_sandbox_seconds = 5;
int64_t bp_corpus_sandbox_bytes = (int64_t)2 << 30; /* the largest chunk several times, and the
                                                       cache; nothing grows with the file */
int64_t bp_corpus_told_bytes = 1000000000;

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

static bp_err check_unchanged(const bp_corpus_file *file)
{
    return bp_file_is_unchanged(file->fd, &file->identity)
               ? BP_OK
               : BP_FAIL(BP_ERR_FORMAT,
                         "the file was changed while it was read: at %s; start again when nobody "
                         "writes to it",
                         file->path);
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
        err = check_unchanged(file); /* HDF5 reads zeros beyond the end of a file */
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

/* What is done with each run of a column in turn. */
typedef struct column_visit {
    XXH3_state_t *state; /* of doc_start, which is checked, too; NULL: it is only read */
    int64_t before;
} column_visit;

static bp_err visit_numbers(bp_corpus_file *file, const bp_column *column, int64_t first,
                            int64_t count, void *block, column_visit *visit)
{
    int64_t *values = block;
    bp_err err = bp_column_read_numbers(file, column, first, count, values);

    if (err == BP_OK && visit->state != NULL)
        err = bp_corpus_check_starts(file, first, count, values, &visit->before);
    if (err == BP_OK && visit->state != NULL)
        err = update(visit->state, values, (size_t)count * sizeof *values, file->path);
    return err;
}

/* A column once, in runs: a good file may have more documents than a sandbox has memory. */
static bp_err read_column(bp_corpus_file *file, const bp_column *column, XXH3_state_t *state)
{
    size_t width = column->shape.is_text ? column->shape.width : sizeof(int64_t);
    int64_t all = column->shape.count, most = BLOCK_BYTES / (int64_t)(width > 0 ? width : 1);
    int64_t run = all < most ? all : most > 0 ? most : 1;
    column_visit visit = {.state = state};
    void *block;
    bp_err err = BP_OK;

    if (column->name == NULL || all == 0)
        return BP_OK;
    block = bp_alloc("store.block", run, width);
    if (block == NULL)
        return bp_fail_memory(column->name, run, width);
    for (int64_t first = 0; first < all && err == BP_OK; first += run) {
        int64_t count = all - first < run ? all - first : run;
        err = column->shape.is_text ? bp_column_read_text(file, column, first, count, block)
                                    : visit_numbers(file, column, first, count, block, &visit);
    }
    bp_free(block);
    return err;
}

/* XXH3-128 of the tokens as int32 and doc_start as int64, little-endian, whatever the types in the
 * file. On the way every id is compared with the vocabulary. */
static bp_err hash_content(bp_corpus_file *file, XXH3_state_t *state)
{
    int32_t *tokens = bp_alloc("store.block", BLOCK_TOKENS, sizeof *tokens);
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
        err = read_column(file, &file->columns[BP_COLUMN_START], state);
    if (err == BP_OK)
        bp_xxh128_hex(file->info.content_hash, XXH3_128bits_digest(state));
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

/* A little file is not to stand for hours of decoding. */
static bp_err check_ratio(const bp_corpus_file *file, const bp_h5_shape *tokens)
{
    uint64_t bytes = (uint64_t)tokens->count * tokens->width;

    if (bytes > FREE_BYTES && bytes / RATIO_LIMIT > (uint64_t)file->identity.bytes)
        return BP_FAIL(BP_ERR_FORMAT,
                       "/tokens claims %" PRIu64 " bytes in a file of %" PRId64
                       ", more than %d for one: at %s",
                       bytes, file->identity.bytes, RATIO_LIMIT, file->path);
    return BP_OK;
}

/* All but the reading of the tokens. */
static bp_err open_walked(bp_corpus_file *file)
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
        err = check_ratio(file, &tokens);
    if (err == BP_OK)
        err = bp_corpus_read_attributes(file, file->h5);
    if (err == BP_OK)
        err = bp_corpus_find_columns(file, file->h5, true);
    if (err != BP_OK)
        return err;
    file->info.tokens = tokens.count;
    file->block = bp_alloc("store.block", BLOCK_TOKENS, sizeof *file->block);
    return file->block == NULL ? bp_fail_memory("tokens", BLOCK_TOKENS, sizeof *file->block)
                               : open_tokens(file);
}

static bp_err read_columns(bp_corpus_file *file)
{
    bp_err err = BP_OK;

    for (int k = BP_COLUMN_START + 1; k < BP_COLUMN_KINDS && err == BP_OK; k++)
        err = read_column(file, &file->columns[k], NULL);
    for (int k = 0; k < file->info.labels && err == BP_OK; k++) {
        err = read_column(file, &file->labels[k].codes, NULL);
        if (err == BP_OK)
            err = read_column(file, &file->labels[k].names, NULL);
    }
    return err;
}

/* In the sandbox: the whole walk, every value that the job may ask for, and the closing, so that
 * what the library does with this file has happened once before the job does it. A column that is
 * wrong in itself is told by who asks for it. */
static bp_err inspect(void *context, int fd, void *reply)
{
    bp_corpus_file *file = context;
    bp_err err;

    bp_h5_lock_init();
    file->fd = fd;
    err = open_walked(file);
    if (err == BP_OK)
        err = bp_h5_inspect(file->h5);
    if (err == BP_OK)
        err = read_through(file);
    if (err != BP_OK)
        return err;
    (void)read_columns(file);
    memcpy(reply, file->info.content_hash, sizeof file->info.content_hash);
    bp_corpus_close_stranger(file);
    return BP_OK;
}

/* Of what a sandbox says, a hash is taken over, which is compared and nothing else. */
static bool is_hash(const char *text)
{
    return strnlen(text, 33) == 32 && strspn(text, "0123456789abcdef") == 32;
}

static bp_err inspect_apart(bp_corpus_file *file)
{
    char hash[sizeof file->info.content_hash] = "";
    bp_sandbox sandbox = {.fd = file->fd,
                          .path = file->path,
                          .memory_bytes = bp_corpus_sandbox_bytes,
                          .seconds = bp_corpus_sandbox_seconds +
                                     (double)file->identity.bytes / SANDBOX_SPEED,
                          .work = inspect,
                          .context = file,
                          .reply_bytes = sizeof hash};
    bp_err err;

    if (file->identity.bytes >= bp_corpus_told_bytes)
        bp_log("inspecting %s (%.1f GB), which another program wrote", file->path,
               1e-9 * (double)file->identity.bytes);
    bp_h5_lock(); /* so that the child has the library to itself */
    err = bp_sandbox_run(&sandbox, hash, NULL);
    bp_h5_unlock();
    if (err != BP_OK)
        return err;
    if (!is_hash(hash))
        return BP_FAIL(BP_ERR_FORMAT, "its inspection gave no hash: at %s", file->path);
    memcpy(file->info.content_hash, hash, sizeof hash);
    bp_corpus_admit(&file->identity, hash);
    return BP_OK;
}

/* What HDF5 has opened is what was inspected: it was opened by its descriptor where there is /proc.
 */
static bp_err check_opened(const bp_corpus_file *file)
{
    int *fd = NULL;
    bp_err err = BP_OK;

    bp_h5_lock();
    if (H5Fget_vfd_handle(file->h5->id, H5P_DEFAULT, (void **)&fd) < 0)
        err = bp_h5_fail(file->h5, "can't look at", NULL);
    else if (!bp_file_is_unchanged(*fd, &file->identity))
        err = check_unchanged(file);
    bp_h5_unlock();
    return err;
}

bp_err bp_corpus_open_stranger(bp_corpus_file *file)
{
    bp_err err = bp_file_identify(file->fd, file->path, &file->identity);

    if (err == BP_OK && !bp_corpus_is_admitted(&file->identity, file->info.content_hash))
        err = inspect_apart(file);
    if (err == BP_OK)
        err = open_walked(file);
    return err == BP_OK ? check_opened(file) : err;
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
