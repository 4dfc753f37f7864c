/* Opening a datastore: its contents are checked and divided over ranks. Called by neighbours.c and
 * by bagpipe-data cite. */
#include "infer/neighbours/datastore_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "mesh/collective.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define KIND    "score-states"
#define VERSION 1
#define REMEDY  "write it again, with bagpipe score and score.states=yes"

static bp_err wrong(const bp_datastore *store, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "datastore.wrong",
                   "this is not a datastore, %s: at %s; " REMEDY " of a Transformer", what,
                   store->path);
}

/* ---- the file ---- */

static bp_err check_columns(bp_datastore *store)
{
    static const char *const NAMES[] = {"scored", "tokens"};
    bp_h5_shape shape;
    bp_err err = BP_OK;

    if (!bp_h5_has(store->file, "layer_0") ||
        !bp_h5_has_attribute(store->file, "/", "model_digest"))
        return wrong(store, "it does not say of which model its keys are");
    err = bp_h5_shape_of(store->file, "layer_0", &shape);
    if (err != BP_OK)
        return err;
    if (shape.dims != 2 || !shape.is_real || shape.columns < 1)
        return wrong(store, "/layer_0 is not a matrix of keys");
    store->info.columns = shape.columns;
    store->info.rows = shape.count / shape.columns;
    for (int k = 0; k < 2 && err == BP_OK; k++) {
        if (!bp_h5_has(store->file, NAMES[k]))
            return wrong(store, "/scored or /tokens is missing");
        err = bp_h5_shape_of(store->file, NAMES[k], &shape);
        if (err == BP_OK && (shape.count != store->info.rows || shape.is_real || shape.is_text))
            return wrong(store, "/scored or /tokens is not a number a key");
    }
    return err;
}

static bp_err check_model(const bp_datastore *store, const bp_model_info *model)
{
    char digest[sizeof model->digest], hash[BP_SHA256_HEX] = "";
    bp_err err = bp_h5_get_text(store->file, "/", "model_digest", digest, sizeof digest);

    if (err == BP_OK && bp_h5_has_attribute(store->file, "/", "tokenizer_hash"))
        err = bp_h5_get_text(store->file, "/", "tokenizer_hash", hash, sizeof hash);
    if (err != BP_OK)
        return err;
    if (hash[0] && model->tokenizer_hash[0] && !bp_tokenizer_same_hash(hash, model->tokenizer_hash))
        return BP_FAIL(BP_ERR_FORMAT, "datastore.other_tokenizer",
                       "the tokens of the datastore are of another tokenizer than the model's, "
                       "%.16s... and %.16s...: at %s; " REMEDY " of this model",
                       hash, model->tokenizer_hash, store->path);
    if (strcmp(digest, model->digest) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "datastore.other_model",
                       "the keys of the datastore are of another model, %.16s... and not %.16s...: "
                       "at %s; " REMEDY " of this model",
                       digest, model->digest, store->path);
    return store->info.columns == model->states.columns
               ? BP_OK
               : wrong(store, "its keys have not the model's width");
}

/* Older files do not have it. */
static bp_err check_precision(bp_datastore *store, const char *wanted)
{
    char *found = store->info.precision;
    bp_err err = BP_OK;

    if (bp_h5_has_attribute(store->file, "/", "precision"))
        err = bp_h5_get_text(store->file, "/", "precision", found, sizeof store->info.precision);
    if (err != BP_OK || !wanted || !found[0] || strcmp(found, wanted) == 0)
        return err;
    return BP_FAIL(BP_ERR_CONFIG, "datastore.other_precision",
                   "the keys of the datastore were computed in %s, and those of this job are in "
                   "%s: at %s; set math.precision=%s, or " REMEDY,
                   found, wanted, store->path, found);
}

static bp_err open_file(bp_datastore *store, const bp_datastore_spec *spec)
{
    bp_err err = bp_h5_open(&store->file, store->path);

    if (err == BP_OK)
        err = check_columns(store);
    if (err == BP_OK)
        err = check_model(store, spec->model);
    if (err == BP_OK)
        err = check_precision(store, spec->precision);
    return err == BP_OK ? bp_gemm_new_forward(&store->gemm, BP_F32) : err;
}

/* ---- this rank's rows ---- */

/* A block's keys as in the file, zeros if there is no entry. */
static bp_err read_block(bp_datastore *store, int64_t first, int64_t count, float *to)
{
    int64_t C = store->info.columns;
    bp_err err =
        bp_h5_read(store->file, "layer_0", BP_H5_F32, (store->first + first) * C, to, count * C);

    for (int64_t i = 0; err == BP_OK && i < count; i++)
        if (store->tokens[first + i] < 0)
            memset(to + i * C, 0, (size_t)C * sizeof *to);
    return err;
}

bp_err datastore_keys(bp_datastore *store, int64_t first, int64_t count, const float **keys)
{
    if (first + count <= store->held) {
        *keys = store->keys + first * store->info.columns;
        return BP_OK;
    }
    *keys = store->block;
    return read_block(store, first, count, store->block);
}

static bp_err check_block(bp_datastore *store, int64_t first, int64_t count, const float *keys)
{
    int64_t C = store->info.columns;

    for (int64_t i = 0; i < count; i++) {
        double sum = 0;

        for (int64_t c = 0; c < C; c++)
            sum += (double)keys[i * C + c] * (double)keys[i * C + c];
        if (!isfinite(sum))
            return BP_FAIL(BP_ERR_FORMAT, "datastore.not_finite",
                           "a key of the datastore is not finite: at row %" PRId64
                           " of /layer_0 in %s; " REMEDY,
                           store->first + first + i, store->path);
        store->squares[first + i] = sum;
    }
    return BP_OK;
}

static bp_err read_tokens(bp_datastore *store, int64_t first, int64_t count, int64_t *values)
{
    bp_err err = bp_h5_read(store->file, "tokens", BP_H5_I64, store->first + first, values, count);

    for (int64_t i = 0; err == BP_OK && i < count; i++) {
        if (values[i] < 0 || values[i] > INT32_MAX)
            return wrong(store, "/tokens has what is not a token");
        store->tokens[first + i] = (int32_t)values[i];
    }
    if (err == BP_OK)
        err = bp_h5_read(store->file, "scored", BP_H5_I64, store->first + first, values, count);
    for (int64_t i = 0; err == BP_OK && i < count; i++) {
        if (values[i] == 0)
            store->tokens[first + i] = -1;
        store->info.entries += values[i] != 0;
    }
    return err;
}

static bp_err alloc_share(bp_datastore *store, int64_t memory_bytes)
{
    int64_t C = store->info.columns, rank = bp_comm_rank(store->group),
            size = bp_comm_size(store->group);
    int64_t key = C * (int64_t)sizeof *store->keys;

    store->first = store->info.rows * rank / size;
    store->count = store->info.rows * (rank + 1) / size - store->first;
    store->held = memory_bytes / key < store->count
                      ? memory_bytes / key / DATASTORE_BLOCK * DATASTORE_BLOCK
                      : store->count;
    store->keys = bp_try_alloc("datastore", store->held * C, sizeof *store->keys);
    store->block = bp_try_alloc("datastore", store->held < store->count ? DATASTORE_BLOCK * C : 0,
                                sizeof *store->block);
    store->squares = bp_try_alloc("datastore", store->count, sizeof *store->squares);
    store->tokens = bp_try_alloc("datastore", store->count, sizeof *store->tokens);
    if (store->keys && store->block && store->squares && store->tokens)
        return BP_OK;
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                   "memory is short: at %" PRId64
                   " keys of a datastore; use a smaller neighbours.memory",
                   store->count);
}

static bp_err load_share(bp_datastore *store)
{
    int64_t *values = bp_alloc("datastore", DATASTORE_BLOCK, sizeof *values);
    bp_err err = BP_OK;

    for (int64_t first = 0; first < store->count && err == BP_OK; first += DATASTORE_BLOCK) {
        int64_t left = store->count - first,
                count = left < DATASTORE_BLOCK ? left : DATASTORE_BLOCK;
        float *to =
            first + count <= store->held ? store->keys + first * store->info.columns : store->block;

        bp_heartbeat_progress();
        err = read_tokens(store, first, count, values);
        if (err == BP_OK)
            err = read_block(store, first, count, to);
        if (err == BP_OK)
            err = check_block(store, first, count, to);
    }
    bp_free(values);
    return err;
}

/* ---- all of it ---- */

static bp_err verify(bp_user_block *block, const char *path)
{
    bp_err err = bp_user_block_verify(block, path);

    return err == BP_OK ? bp_user_block_expect(block, KIND, VERSION, path) : err;
}

bp_err bp_datastore_open(bp_datastore **out, MPI_Comm everyone, MPI_Comm group,
                         const bp_datastore_spec *spec)
{
    bp_datastore *store = bp_alloc("datastore", 1, sizeof *store);
    bp_user_block block = {0};
    bp_err err = bp_comm_is_root(everyone) ? verify(&block, spec->path) : BP_OK;

    *out = NULL;
    store->path = bp_strdup(spec->path);
    store->group = group;
    err = bp_agree(everyone, err);
    bp_bcast_bytes(block.hash, sizeof block.hash, 0, everyone);
    memcpy(store->info.hash, block.hash, sizeof block.hash);
    if (err == BP_OK)
        err = bp_agree(everyone, open_file(store, spec));
    if (err == BP_OK)
        err = bp_agree(everyone, alloc_share(store, spec->memory_bytes));
    if (err == BP_OK)
        err = bp_agree(everyone, load_share(store));
    if (err == BP_OK)
        store->info.entries = bp_all_sum_int(store->info.entries, group);
    if (err == BP_OK)
        *out = store;
    else
        bp_datastore_close(&store);
    return err;
}

void bp_datastore_close(bp_datastore **store)
{
    bp_datastore *self = *store;

    if (!self)
        return;
    bp_h5_drop(&self->file);
    bp_gemm_free(&self->gemm);
    bp_free(self->tokens);
    bp_free(self->squares);
    bp_free(self->block);
    bp_free(self->keys);
    bp_free(self->path);
    bp_free(self);
    *store = NULL;
}

const bp_datastore_info *bp_datastore_info_of(const bp_datastore *store)
{
    return &store->info;
}

bp_h5 *bp_datastore_file(const bp_datastore *store)
{
    return store->file;
}
