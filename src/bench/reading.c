/* Reading a corpus: writes synthetic tokens into the run folder, which all ranks read in order at
 * once, and removes them. */
#include "bench/bench_priv.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "io/corpus/corpus_file.h"
#include "io/corpus/corpus_writer.h"
#include "mesh/collective.h"

#include <string.h>
#include <unistd.h>

#define VOCABULARY  50257
#define TOKEN_BYTES 2    /* as stored */
#define DOCUMENT    1024 /* tokens */
#define BLOCK       8192 /* tokens a call: they stay in the first cache */
#define RUN_TOKENS  ((int64_t)16 * BP_CORPUS_CHUNK_TOKENS) /* timed at once: helpers read ahead */

/* ---- writing, on the coordinator ---- */

static bp_err write_documents(bp_corpus_writer *writer, int64_t tokens)
{
    static const bp_corpus_row ROW = {.bytes = 4 * DOCUMENT, .words = DOCUMENT};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_BENCH, 0, 0, 1);
    uint32_t ids[DOCUMENT];
    bp_err err = BP_OK;

    for (int64_t at = 0; at < tokens && err == BP_OK; at += DOCUMENT) {
        for (int64_t i = 0; i < DOCUMENT; i++)
            ids[i] = (uint32_t)bp_bench_token(bp_rng_uniform(&key, (uint64_t)(at + i)), VOCABULARY);
        err = bp_corpus_writer_tokens(writer, ids, DOCUMENT);
        if (err == BP_OK)
            err = bp_corpus_writer_end(writer, &ROW);
        bp_heartbeat_progress();
    }
    return err;
}

static bp_err write_corpus(const char *path, int64_t tokens)
{
    char hash[BP_SHA256_HEX];
    bp_corpus_spec spec = {.vocab_size = VOCABULARY, .eod_id = -1, .tokenizer_hash = hash};
    bp_corpus_writer *writer = NULL;
    bp_err err;

    memset(hash, '0', sizeof hash - 1);
    hash[sizeof hash - 1] = '\0';
    err = bp_corpus_writer_new(&writer, path, &spec);
    if (err == BP_OK)
        err = write_documents(writer, tokens);
    if (err == BP_OK)
        err = bp_corpus_writer_commit(writer);
    bp_corpus_writer_free(&writer);
    return err;
}

/* ---- reading ---- */

typedef struct reading {
    bp_corpus_file *file;
    int32_t *tokens; /* [BLOCK] */
    int64_t at, count;
    bp_err err;
} reading;

/* Starts again at the end of the corpus. */
static void read_on(void *context)
{
    reading *r = context;

    for (int64_t done = 0; done < RUN_TOKENS && r->err == BP_OK; done += BLOCK) {
        if (r->at + BLOCK > r->count)
            r->at = 0;
        r->err = bp_corpus_file_read(r->file, r->at, BLOCK, r->tokens);
        r->at += BLOCK;
    }
}

/* A file that other ranks do not see is reported, and is not an error. */
static bp_err measure(bench *self, const char *path, json_t *into)
{
    reading r = {0};
    bench_task task = {read_on, &r, (double)RUN_TOKENS * TOKEN_BYTES};
    bp_err err = self->mesh->computes ? bp_corpus_file_open(&r.file, path) : BP_OK;

    if (err == BP_OK && r.file) {
        r.count = bp_corpus_file_info(r.file)->tokens;
        r.tokens = bp_alloc("bench.corpus", BLOCK, sizeof *r.tokens);
    }
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK) {
        json_t *figure = bench_everywhere(self, bench_task_meter, &task, "B/s", NULL);
        err = bp_agree(self->mesh->world, r.err);
        bench_put(into, "read", figure);
        bench_put(into, "reason", into ? json_null() : NULL);
    } else if (err != BP_ERR_SYSTEM) {
        bench_put(into, "read", into ? json_null() : NULL);
        bench_put(into, "reason", into ? bp_json_string(bp_err_message()) : NULL);
        err = BP_OK;
    }
    bp_corpus_file_close(&r.file);
    bp_free(r.tokens);
    return err;
}

bp_err bench_reading(bench *self)
{
    const bp_mesh *mesh = self->mesh;
    int64_t tokens = bp_bench_keys_of(self->config)->corpus / TOKEN_BYTES;
    char *path = bp_path_join(bp_run_keys_of(self->config)->dir, "bench-corpus.h5");
    json_t *object = self->result ? json_object() : NULL;
    bp_err err = BP_OK;
    if (mesh->coordinates)
        err = write_corpus(path, tokens > BLOCK ? tokens : BLOCK);
    err = bp_agree(mesh->world, err);
    bench_put(self->result, "corpus", object);
    if (object) {
        bench_put(object, "bytes", json_integer(tokens * TOKEN_BYTES));
        bench_put(object, "token_bytes", json_integer(TOKEN_BYTES));
        bench_put(object, "file_bytes", json_integer(bp_file_size(path)));
    }
    if (err == BP_OK)
        err = measure(self, path, object);
    if (mesh->coordinates)
        (void)unlink(path); /* the next start removes what is left */
    bp_free(path);
    return err;
}
