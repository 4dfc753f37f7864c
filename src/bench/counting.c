/* Counting n-grams of synthetic tokens on all ranks together, and scoring with the resulting model,
 * in a temporary folder of the run. */
#include "bench/bench_priv.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "models/counting.h"
#include "models/family.h"

#include <string.h>

#define VOCABULARY  33278              /* of WikiText-2 */
#define RANK_TOKENS ((int64_t)1 << 17) /* counted by each rank in a run, and scored in turns */
#define DOCUMENT    64
#define PHRASE      8
#define PHRASES     50000 /* distinct phrases */
#define WINDOWS     16    /* of a batch that is scored */
#define LENGTH      256

typedef struct counted {
    const bench *bench;
    bp_config *config;
    bp_model_shape shape;
    char *folder, *file;
    bp_mesh *alone; /* each rank scores by itself */
    bp_model *model;
    int32_t *inputs; /* [RANK_TOKENS + 1]; the target of one is the next */
    int64_t at;
    float *values; /* [WINDOWS][LENGTH] */
    bp_err err;
} counted;

/* ---- synthetic tokens: phrases of words, both by Zipf's law, so that n-grams recur ---- */

static int32_t token_at(int64_t place)
{
    bp_rng_key phrases = bp_rng_key_of(1, BP_RNG_BENCH, 0, 0, 4);
    bp_rng_key words = bp_rng_key_of(1, BP_RNG_BENCH, 0, 0, 5);
    double random = bp_rng_uniform(&phrases, (uint64_t)(place / PHRASE));
    int64_t phrase = bp_bench_token(random, PHRASES);

    if (place % DOCUMENT == DOCUMENT - 1)
        return VOCABULARY - 1;
    return (int32_t)bp_bench_token(
        bp_rng_uniform(&words, (uint64_t)(phrase * PHRASE + place % PHRASE)), VOCABULARY - 1);
}

static bp_err read_tokens(void *context, int64_t first, int64_t count, int32_t *tokens)
{
    (void)context;
    for (int64_t k = 0; k < count; k++)
        tokens[k] = token_at(first + k);
    return BP_OK;
}

static void show_nothing(void *context, const char *what, int64_t done, int64_t of)
{
    (void)context, (void)what, (void)done, (void)of;
}

/* ---- counting ---- */

static bp_err find_shape(counted *self)
{
    static const bp_option *const TABLES[] = {bp_model_options, NULL};
    bp_err err = bp_config_new(&self->config, TABLES, TABLES);

    if (err == BP_OK)
        err = bp_config_set(self->config, "model.kind", bp_model_family_benched(true)->name);
    if (err != BP_OK)
        return err;
    self->shape = bp_model_shape_of(self->config, NULL);
    self->shape.vocab_size = VOCABULARY;
    bp_model_shape_resolve(&self->shape, self->config);
    return BP_OK;
}

/* Makes the folder anew, so that no earlier run is resumed. */
static bp_err clear_folder(const counted *self)
{
    bool root = bp_comm_is_root(self->bench->mesh->compute);
    bp_err err = root ? bp_dir_remove(self->folder) : BP_OK;

    if (err == BP_OK && root)
        err = bp_dir_make(self->folder);
    return bp_agree(self->bench->mesh->compute, err);
}

static void count(void *context)
{
    counted *self = context;
    MPI_Comm comm = self->bench->mesh->compute;
    bp_counting counting = {.comm = comm,
                            .config = self->config,
                            .shape = &self->shape,
                            .tokens = RANK_TOKENS * bp_comm_size(comm),
                            .eod_id = VOCABULARY - 1,
                            .read = read_tokens,
                            .progress = show_nothing,
                            .folder = self->folder,
                            .work = "bench"};

    if (self->err == BP_OK)
        self->err = clear_folder(self);
    if (self->err == BP_OK)
        self->err = self->shape.family->counting->count(&counting);
}

/* ---- scoring ---- */

static void score(void *context)
{
    counted *self = context;
    bp_model_batch batch = {.windows = WINDOWS,
                            .length = LENGTH,
                            .inputs = self->inputs + self->at,
                            .targets = self->inputs + self->at + 1};

    if (self->err == BP_OK)
        self->err = bp_model_score(self->model, &batch, self->values);
    self->at = (self->at + WINDOWS * LENGTH) % RANK_TOKENS; /* other places of memory */
}

static bp_err open_model(counted *self)
{
    static const bp_mesh_shape ONE = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_err err = bp_mesh_new(&self->alone, MPI_COMM_SELF, &ONE);

    if (err == BP_OK)
        err = self->shape.family->counting->open_file(&self->model, self->alone, self->file);
    if (err != BP_OK)
        return err;
    self->model->info.eod_id = VOCABULARY - 1;
    self->inputs = bp_alloc("bench.ngram", RANK_TOKENS + 1, sizeof *self->inputs);
    self->values = bp_alloc("bench.ngram", WINDOWS * LENGTH, sizeof *self->values);
    return read_tokens(NULL, 0, RANK_TOKENS + 1, self->inputs);
}

/* ---- both ---- */

static bp_err measure(bench *self, counted *with, json_t *into)
{
    double share = (double)RANK_TOKENS;
    bench_task counting = {count, with, share}, scoring = {score, with, WINDOWS * LENGTH};
    bp_spread rate = {0};
    bp_err err = BP_OK;

    if (self->mesh->computes) {
        bp_spread seconds = bench_together(&counting, self->seconds, true, self->mesh->compute);

        rate = bp_spread_rate(&seconds, share);
        err = with->err == BP_OK ? open_model(with) : with->err;
    }
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    bench_put(into, "count", bench_gather(self, &rate, "tokens/s", NULL));
    bench_put(into, "score", bench_everywhere(self, bench_task_meter, &scoring, "tokens/s", NULL));
    return bp_agree(self->mesh->world, with->err);
}

bp_err bench_counting(bench *self)
{
    counted with = {.bench = self};
    json_t *object = self->result ? json_object() : NULL;
    bp_err err;

    with.folder = bp_path_join(bp_run_keys_of(self->config)->dir, "bench-counts");
    with.file = bp_path_join(with.folder, BP_COUNTING_FILE);
    bench_put(self->result, "ngram", object);
    err = bp_agree(self->mesh->world, find_shape(&with));
    if (err == BP_OK)
        err = measure(self, &with, object);
    if (object)
        bench_put(object, "reason",
                  err == BP_ERR_IO ? bp_json_string(bp_err_message()) : json_null());
    bp_model_free(&with.model);
    bp_mesh_free(&with.alone);
    if (self->mesh->coordinates)
        (void)bp_dir_remove(with.folder);
    bp_config_free(&with.config);
    bp_free(with.inputs);
    bp_free(with.values);
    bp_free(with.file);
    bp_free(with.folder);
    return err == BP_ERR_IO ? BP_OK : err; /* "reason" names ranks that don't see the folder */
}
