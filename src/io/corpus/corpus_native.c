/* Native corpus files: what is checked before HDF5 may look at one, and what is kept of it. */
#include "corpus_file_priv.h"

#include "base/mem.h"
#include "io/corpus/corpus_writer.h"
#include "io/h5/user_block.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int64_t bp_corpus_hash_whole_bytes = (int64_t)256 << 20;

static bp_err damaged(const bp_corpus_file *file, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "damaged: at %s, in %s; make it anew", file->path, what);
}

/* The user block, the table of checksums, and all that the table does not cover. */
static bp_err check_bytes(bp_corpus_file *file)
{
    bp_user_block block;
    int64_t offset, rows;
    char outside[BP_USER_BLOCK_HASH], found[BP_USER_BLOCK_HASH];
    char again[BP_USER_BLOCK_DETAIL];
    bp_err err = bp_user_block_read_fd(&block, file->fd, file->path);

    if (err == BP_OK)
        err = bp_user_block_expect(&block, BP_CORPUS_KIND, BP_CORPUS_VERSION, file->path);
    if (err != BP_OK)
        return err;
    if (sscanf(block.detail, "checksums %18" SCNd64 " %18" SCNd64 " outside %32[0-9a-f]", &offset,
               &rows, outside) != 3)
        return damaged(file, "the user block (bytes 0 to 511)");
    snprintf(again, sizeof again, "checksums %" PRId64 " %" PRId64 " outside %s", offset, rows,
             outside);
    if (strcmp(again, block.detail) != 0)
        return damaged(file, "the user block (bytes 0 to 511)");
    snprintf(file->info.content_hash, sizeof file->info.content_hash, "%s", block.hash);
    if (block.bytes <= bp_corpus_hash_whole_bytes) {
        err = bp_user_block_verify_fd(&block, file->fd, file->path);
        if (err != BP_OK)
            return err;
    }
    err = bp_extents_read(&file->extents, file->fd, offset, rows, block.bytes, file->path);
    if (err == BP_OK)
        err = bp_extents_outside(&file->extents, file->fd, block.bytes, file->path, found);
    if (err == BP_OK && strcmp(found, outside) != 0)
        err = damaged(file, "HDF5's structures (the bytes that /checksums does not cover)");
    return err;
}

static bp_err look(bp_corpus_file *file, bp_h5 *h5, bp_h5_shape *tokens)
{
    int64_t version = 0;
    bp_err err = bp_h5_get_int(h5, "/", "format_version", &version);

    if (err == BP_OK && version != BP_CORPUS_VERSION)
        err = BP_FAIL(BP_ERR_FORMAT,
                      "format_version %" PRId64
                      " is not %d, which this bagpipe reads: at %s; use a newer bagpipe",
                      version, BP_CORPUS_VERSION, file->path);
    if (err == BP_OK)
        err = bp_corpus_read_attributes(file, h5);
    if (err == BP_OK)
        err = bp_h5_shape_of(h5, "tokens", tokens);
    if (err == BP_OK)
        err = bp_corpus_find_columns(file, h5, false);
    return err;
}

static bp_err start_chunks(bp_corpus_file *file, const bp_h5_shape *tokens)
{
    int64_t chunks = (tokens->count + BP_CORPUS_CHUNK_TOKENS - 1) / BP_CORPUS_CHUNK_TOKENS;
    bp_chunks_spec spec = {.fd = file->fd,
                           .path = file->path,
                           .extents = file->extents.rows,
                           .tokens = tokens->count,
                           .vocab_size = file->info.vocab_size,
                           .token_bytes = tokens->width};

    if (tokens->dims != 1 || tokens->is_text || tokens->is_real || tokens->is_signed ||
        tokens->width * BP_CORPUS_CHUNK_TOKENS != bp_corpus_chunk_bytes(file->info.vocab_size) ||
        chunks > file->extents.count)
        return damaged(
            file, "/tokens, which has another type or length than its vocabulary and checksums");
    file->info.tokens = tokens->count;
    return bp_chunks_new(&file->chunks, &spec);
}

bp_err bp_corpus_open_native(bp_corpus_file *file)
{
    bp_h5 *h5 = NULL;
    bp_h5_shape tokens;
    bp_err err = check_bytes(file);

    if (err == BP_OK)
        err = bp_h5_open_fd(&h5, file->fd, file->path);
    if (err != BP_OK)
        return err;
    err = look(file, h5, &tokens);
    bp_h5_drop(&h5); /* from here on all is read from its known place */
    return err == BP_OK ? start_chunks(file, &tokens) : err;
}
