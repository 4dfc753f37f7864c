/* Tokenizing: text into tokens, one thread a rank, with tokenizer.path or a BPE trained on
 * synthetic text. */
#include "bench/bench_priv.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "mesh/collective.h"
#include "text/train/tokenizer_train.h"

#include <string.h>
#include <unistd.h>

#define WORDS       20000 /* distinct words */
#define TEXT_BYTES  ((int64_t)1 << 20)
#define BPE_SIZE    4000
#define LETTERS     12 /* of the longest word */
#define PIECE_BYTES 4096

/* ---- synthetic text: words by Zipf's law, the same everywhere ---- */

/* Adds word `number`, and the separator after it. */
static size_t put_word(char *out, int64_t number, uint64_t place)
{
    static const char LETTER[] = "etaoinshrdlcumwfgypbvkjxqz";
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_BENCH, 0, 0, 2);
    uint32_t random[4];
    size_t n = 0, length;

    bp_rng_block(random, &key, (uint64_t)number);
    length = 2 + (size_t)(random[3] % (LETTERS - 2));
    for (; n < length; n++)
        out[n] = LETTER[bp_bench_token((double)((random[n % 3] >> (n / 3 * 8)) & 255) / 256, 26)];
    out[n++] = place % 11 == 10 ? ',' : ' ';
    if (place % 17 == 16)
        out[n - 1] = '\n';
    return n;
}

static char *make_text(int64_t bytes)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_BENCH, 0, 0, 3);
    char *text = bp_alloc("bench.text", bytes + LETTERS + 2, 1);
    int64_t n = 0;

    for (uint64_t place = 0; n < bytes; place++)
        n += (int64_t)put_word(text + n, bp_bench_token(bp_rng_uniform(&key, place), WORDS), place);
    return text;
}

/* ---- the tokenizer ---- */

/* On the coordinator: the file's, or one trained on text in a temporary file of the run folder. */
static bp_err find_tokenizer(const bench *self, const char *text, bp_tokenizer **out)
{
    static const bp_trainer_options OPTIONS = {
        .kind = "bpe", .size = BPE_SIZE, .format = BP_TEXT_LINES};
    const char *given = bp_run_keys_of(self->config)->tokenizer_path;
    bp_trainer_report report;
    bp_err err;

    if (given)
        return bp_tokenizer_load(out, given);
    char *path = bp_path_join(bp_run_keys_of(self->config)->dir, "bench-text.txt");
    const char *const paths[] = {path};
    err = bp_file_write(path, text, (size_t)TEXT_BYTES);
    if (err == BP_OK)
        err = bp_tokenizer_train(out, MPI_COMM_SELF, paths, 1, &OPTIONS, &report);
    (void)unlink(path);
    bp_free(path);
    return err;
}

bp_err bench_check_tokenizer(const bench *self)
{
    const char *given = bp_run_keys_of(self->config)->tokenizer_path;
    bp_tokenizer *tokenizer = NULL;
    bp_err err = given ? bp_tokenizer_load(&tokenizer, given) : BP_OK;

    bp_tokenizer_free(&tokenizer);
    return err;
}

/* Broadcasts the coordinator's tokenizer to all ranks. */
static bp_err share_tokenizer(const bench *self, const char *text, bp_tokenizer **out)
{
    const bp_mesh *mesh = self->mesh;
    char *json = NULL;
    bp_err err = BP_OK;

    *out = NULL;
    if (mesh->coordinates)
        err = find_tokenizer(self, text, out);
    if (mesh->coordinates && err == BP_OK)
        json = bp_tokenizer_text(*out);
    err = bp_agree(mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_text(&json, 0, mesh->world);
    if (!mesh->coordinates)
        err = bp_tokenizer_parse(out, json, strlen(json), "the coordinator's tokenizer");
    bp_free(json);
    return bp_agree(mesh->world, err);
}

/* ---- encoding ---- */

typedef struct encoding {
    bp_encoder *encoder;
    const char *text;
    int64_t at;
    bp_ids ids;
    bp_err err;
} encoding;

static void encode(void *context)
{
    encoding *e = context;
    bp_err err;

    e->ids.count = 0;
    err = bp_encode(e->encoder, e->text + e->at, PIECE_BYTES, &e->ids);
    e->err = e->err != BP_OK ? e->err : err;
    e->at = (e->at + PIECE_BYTES) % TEXT_BYTES;
}

static bp_err measure(bench *self, const bp_tokenizer *tokenizer, const char *text, json_t *into)
{
    encoding e = {.text = text};
    bench_task task = {encode, &e, PIECE_BYTES};
    bp_err err = bp_agree(self->mesh->world, bp_encoder_new(&e.encoder, tokenizer));

    if (err == BP_OK) {
        bench_put(into, "encode", bench_everywhere(self, bench_task_meter, &task, "B/s", NULL));
        err = bp_agree(self->mesh->world, e.err);
    }
    bp_encoder_free(&e.encoder);
    bp_ids_clear(&e.ids);
    return err;
}

bp_err bench_tokenizing(bench *self)
{
    bp_tokenizer *tokenizer = NULL;
    char *text = make_text(TEXT_BYTES);
    bp_err err = share_tokenizer(self, text, &tokenizer);

    if (err == BP_OK) {
        json_t *object = self->result ? json_object() : NULL;
        bench_put(self->result, "tokenizer", object);
        bench_put(object, "kind", bp_json_string(bp_tokenizer_kind(tokenizer)));
        bench_put(object, "size", json_integer(bp_tokenizer_size(tokenizer)));
        bench_put(object, "made_up", json_boolean(!bp_run_keys_of(self->config)->tokenizer_path));
        err = measure(self, tokenizer, text, object);
    }
    bp_tokenizer_free(&tokenizer);
    bp_free(text);
    return err;
}
