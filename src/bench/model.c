/* Training and scoring models of three sizes on the mesh, with the engine and the language model
 * that the jobs use. */
#include "bench/bench_priv.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/rng.h"
#include "bench/bench.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"
#include "models/open.h"

#include <string.h>

#define MICRO_BATCH_TOKENS 1024 /* if mesh.micro_batch is not given */
#define PIPELINE_BATCHES   4    /* micro-batches for each stage */
#define DIGEST_EVERY       100  /* as train.digest_every */

/* The engine's settings for a model on this mesh. */
static bp_engine_spec engine_spec(const bench *self, const bp_model_shape *shape)
{
    const bp_config *config = self->config;
    int64_t batches = bp_bench_keys_of(config)->micro_batches;
    int stages = self->mesh_shape.pipeline;
    bp_engine_spec spec = {.seed = (uint64_t)bp_run_keys_of(config)->seed,
                           .tree = true, /* as train.reduction */
                           .optimizer = {.kind = BP_ADAMW,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .epsilon = 1e-8,
                                         .weight_decay = 0.1,
                                         .clip = 1},
                           .rate = {.peak = 3e-4, .steps = 1, .decay = BP_DECAY_CONSTANT},
                           .precision = self->precision,
                           .digest_every = DIGEST_EVERY};

    bp_engine_spec_read_mesh(&spec, config);
    if (!bp_config_is_given(config, "mesh.micro_batch"))
        spec.micro_batch =
            shape->context < MICRO_BATCH_TOKENS ? MICRO_BATCH_TOKENS / shape->context : 1;
    if (batches == 0)
        batches = stages > 1 ? (int64_t)PIPELINE_BATCHES * stages : 1;
    spec.batch = self->mesh_shape.data * batches * spec.micro_batch;
    return spec;
}

/* Words of a synthetic text: few are frequent, as in real text. */
static void fill_tokens(int32_t *tokens, int64_t n, int64_t vocab_size, int64_t stream)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_BENCH, 0, 0, stream);

    for (int64_t i = 0; i < n; i++)
        tokens[i] = bp_bench_token(bp_rng_uniform(&key, (uint64_t)i), vocab_size);
}

/* ---- training ---- */

typedef struct training {
    bp_engine *engine;
    int32_t *tokens; /* [2][slots * T]: inputs, and as many targets */
    bp_batch batch;
    int64_t step;
} training;

static void run_step(void *context)
{
    training *t = context;
    bp_step_result result;

    t->step++;
    bp_heartbeat_step(t->step);
    bp_engine_step(t->engine, t->step, t->step, &t->batch, &result);
}

static bp_err train(const bench *self, const bp_engine_spec *spec, const bp_model_shape *shape,
                    bp_spread *seconds)
{
    int64_t slots = spec->batch / self->mesh->data_ranks, n = slots * shape->context;
    training t = {.tokens = bp_alloc("bench.windows", 2 * n, sizeof *t.tokens)};
    bp_err err = bp_engine_new(&t.engine, self->mesh, spec, shape);

    if (err == BP_OK) {
        bench_task task = {run_step, &t, 1};

        t.batch = bp_batch_of_positions(slots, shape->context, t.tokens, t.tokens + n);
        fill_tokens(t.tokens, 2 * n, shape->vocab_size, self->mesh->data_rank);
        bp_engine_initialise(t.engine);
        *seconds = bench_together(&task, self->seconds, false, self->mesh->compute);
    }
    bp_engine_free(&t.engine);
    bp_free(t.tokens);
    return err;
}

/* ---- scoring ---- */

typedef struct scoring {
    bp_model *model;
    bp_model_batch batch;
    int32_t *tokens; /* [windows][length] of inputs, and as many targets */
    float *values;
    int64_t batches;
    bp_err err;
} scoring;

static void run_batch(void *context)
{
    scoring *s = context;
    bp_err err;

    bp_heartbeat_step(++s->batches);
    err = bp_model_score(s->model, &s->batch, s->values);
    s->err = s->err != BP_OK ? s->err : err;
}

static bp_err score(const bench *self, const bp_model_shape *shape, bp_spread *seconds,
                    int64_t *tokens)
{
    int64_t T = shape->context, windows = bp_score_batch_windows(T), n = windows * T;
    scoring s = {.tokens = bp_alloc("bench.windows", 2 * n, sizeof *s.tokens),
                 .values = bp_alloc("bench.windows", n, sizeof *s.values)};
    bp_err err = bp_model_new(&s.model, self->mesh, self->config, shape, 1);

    if (err == BP_OK) {
        bench_task task = {run_batch, &s, 1};

        fill_tokens(s.tokens, 2 * n, shape->vocab_size, self->mesh->data_rank);
        s.batch = (bp_model_batch){
            .windows = windows, .length = T, .inputs = s.tokens, .targets = s.tokens + n};
        *seconds = bench_together(&task, self->seconds, false, self->mesh->compute);
        *tokens = s.batch.windows * s.batch.length * self->mesh->data_ranks;
        err = bp_agree(self->mesh->compute, s.err);
    }
    bp_model_free(&s.model);
    bp_free(s.tokens);
    bp_free(s.values);
    return err;
}

/* ---- a model ---- */

/* The first computing rank's measurement, as a figure of the whole mesh. */
static json_t *whole_figure(const bench *self, const bp_spread *seconds, int64_t tokens,
                            double flops)
{
    bp_spread mine = *seconds, rate;
    double peak_flops = self->peak_flops[self->precision];

    bp_bcast_bytes(&mine, sizeof mine, self->mesh->dedicated ? 1 : 0, self->mesh->world);
    rate = bp_spread_rate(&mine, (double)tokens);
    if (!self->result)
        return NULL;
    json_t *figure = bench_spread_json(&rate);
    bench_put(figure, "unit", json_string("tokens/s"));
    bench_put(figure, "seconds", bp_json_real(mine.median));
    bench_put(figure, "mfu",
              peak_flops > 0 ? bp_json_real(rate.median * flops / peak_flops) : json_null());
    return figure;
}

void bench_check_fit(const bench *self, const bp_engine_spec *spec, const bp_model_shape *shape,
                     double bytes, char *why, size_t why_bytes)
{
    const bp_mesh_shape *mesh = &self->mesh_shape;
    int chunks = bp_engine_chunks(spec, mesh->pipeline);
    int64_t batches = spec->batch / (mesh->data * spec->micro_batch);

    why[0] = '\0';
    if (shape->heads % mesh->tensor != 0)
        (void)snprintf(why, why_bytes, "%lld heads do not divide among mesh.tensor = %d",
                       (long long)shape->heads, mesh->tensor);
    else if (spec->sequence_parallel == BP_SEQUENCE_PARALLEL_YES && mesh->tensor > 1 &&
             !bp_engine_is_sequence_parallel(spec, shape, mesh->tensor))
        (void)snprintf(why, why_bytes,
                       "%lld x %lld rows do not divide among mesh.tensor = %d, which "
                       "mesh.sequence_parallel = yes needs",
                       (long long)spec->micro_batch, (long long)shape->context, mesh->tensor);
    else if (bp_model_blocks(shape) < mesh->pipeline)
        (void)snprintf(why, why_bytes, "%d blocks are fewer than mesh.pipeline = %d",
                       bp_model_blocks(shape), mesh->pipeline);
    else if (bp_model_blocks(shape) < (int64_t)chunks * mesh->pipeline)
        (void)snprintf(why, why_bytes,
                       "%d blocks are fewer than mesh.pipeline = %d x mesh.chunks = %d",
                       bp_model_blocks(shape), mesh->pipeline, chunks);
    else if (chunks > 1 && batches % mesh->pipeline != 0)
        (void)snprintf(why, why_bytes,
                       "bench.micro_batches = %lld is not a multiple of mesh.pipeline = %d, which "
                       "mesh.schedule = interleaved needs",
                       (long long)batches, mesh->pipeline);
    else if (self->rank_bytes > 0 && bytes > self->rank_bytes)
        (void)snprintf(why, why_bytes, "it takes %.1f GiB on each rank, and there are %.1f GiB",
                       bytes / 1073741824, self->rank_bytes / 1073741824);
}

/* The plan of the stage that needs most memory. Local. */
static bp_err plan_model(const bench *self, const bp_engine_spec *spec, const bp_model_shape *shape,
                         double *bytes)
{
    bp_err err = BP_OK;

    *bytes = 0;
    for (int s = 0; s < self->mesh_shape.pipeline && err == BP_OK; s++) {
        bp_plan plan;
        err = bp_engine_plan(&plan, &self->mesh_shape, spec, shape, s);
        plan.snapshot = 0; /* nothing is saved */
        if (err == BP_OK && (double)bp_plan_total(&plan) > *bytes)
            *bytes = (double)bp_plan_total(&plan);
    }
    return err;
}

bp_err bench_plan_models(bench *self)
{
    bp_err err = BP_OK;

    for (int k = 0; k < BP_BENCH_MODELS && err == BP_OK; k++) {
        const bp_model_shape *shape = &bp_bench_model_at(k)->shape;
        bp_engine_spec spec = engine_spec(self, shape);
        double bytes = 0;
        char why[160];

        bench_check_fit(self, &spec, shape, 0, why, sizeof why);
        if (self->named[k] && why[0] == '\0')
            err = plan_model(self, &spec, shape, &bytes);
        err = bp_agree(self->mesh->world, err);
        self->plan_bytes[k] = (double)bp_all_max_int((int64_t)bytes, self->mesh->world);
    }
    return err;
}

static json_t *model_json(const bp_bench_model *model, const bp_engine_spec *spec, double bytes)
{
    const bp_model_shape *shape = &model->shape;

    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", model->name,
                     "layers", (json_int_t)shape->layers, "width", (json_int_t)shape->width,
                     "heads", (json_int_t)shape->heads, "context", (json_int_t)shape->context,
                     "vocab_size", (json_int_t)shape->vocab_size, "parameters",
                     (json_int_t)bp_model_parameters(shape), "batch", (json_int_t)spec->batch,
                     "micro_batch", (json_int_t)spec->micro_batch, "plan_bytes", (json_int_t)bytes);
}

static bp_err run_model(bench *self, const bp_bench_model *model, const bp_engine_spec *spec,
                        json_t *into)
{
    const bp_mesh *mesh = self->mesh;
    const bp_model_shape *shape = &model->shape;
    bp_spread seconds = {0};
    int64_t tokens = 0, peak;
    char what[64];
    bp_err err = BP_OK;

    if (mesh->computes)
        err = train(self, spec, shape, &seconds);
    err = bp_agree(mesh->world, err);
    if (err != BP_OK)
        return err;
    peak = bp_all_max_int(mesh->computes ? (int64_t)bp_mem_resident_peak_bytes() : 0, mesh->world);
    bench_put(into, "peak_bytes", json_integer(peak));
    bench_put(
        into, "train",
        whole_figure(self, &seconds, spec->batch * shape->context, bp_model_train_flops(shape)));
    if (self->result)
        bench_fit_flops(
            self, spec, shape,
            json_number_value(json_object_get(json_object_get(into, "train"), "seconds")));
    (void)snprintf(what, sizeof what, "scoring with %s", model->name);
    err = bench_next(self, what);
    if (err == BP_OK && mesh->computes)
        err = score(self, shape, &seconds, &tokens);
    err = bp_agree(mesh->world, err);
    tokens = bp_all_max_int(tokens, mesh->world);
    if (err == BP_OK)
        bench_put(into, "score", whole_figure(self, &seconds, tokens, bp_bench_score_flops(shape)));
    return err;
}

static bp_err bench_model(bench *self, int number, json_t *list)
{
    const bp_bench_model *model = bp_bench_model_at(number);
    bp_engine_spec spec = engine_spec(self, &model->shape);
    double bytes = self->plan_bytes[number];
    char why[160], what[64];
    json_t *object;
    bp_err err;

    (void)snprintf(what, sizeof what, "training of %s", model->name);
    err = bench_next(self, what);
    if (err != BP_OK)
        return err;
    bp_mem_resident_peak_reset();
    bench_check_fit(self, &spec, &model->shape, bytes, why, sizeof why);
    object = self->result ? model_json(model, &spec, bytes) : NULL;
    if (list)
        (void)json_array_append_new(list, object);
    bench_put(object, "skipped", why[0] ? bp_json_string(why) : json_null());
    return why[0] ? BP_OK : run_model(self, model, &spec, object);
}

bp_err bench_models(bench *self)
{
    json_t *list = self->result ? json_array() : NULL;
    bp_err err = BP_OK;

    bench_put(self->result, "models", list);
    bench_read_rates(self);
    for (int k = 0; k < BP_BENCH_MODELS && err == BP_OK; k++)
        if (self->named[k])
            err = bench_model(self, k, list);
    return err;
}

void bench_log_model(const bench *self, int number)
{
    const bp_bench_model *model = bp_bench_model_at(number);
    bp_engine_spec spec = engine_spec(self, &model->shape);
    char why[160];

    bench_check_fit(self, &spec, &model->shape, self->plan_bytes[number], why, sizeof why);
    if (why[0] != '\0')
        bp_log("%-7s left out: %s", model->name, why);
    else
        bp_log("%-7s about %.0f MiB on a rank in training, %lld sequence%s of %lld tokens a step",
               model->name, self->plan_bytes[number] / 1048576, (long long)spec.batch,
               spec.batch == 1 ? "" : "s", (long long)model->shape.context);
}
