/* The job of score.vectors (job/work.h runs it): a unit is some documents of similar length, and
 * its part has their vectors. The merge writes score/vectors.h5. */
#include "infer/score/vectors/vectors_priv.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "infer/score/keys.h"
#include "infer/score/scorer.h"
#include "infer/score/tables/tables.h"
#include "io/h5/h5.h"
#include "job/work.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/open.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define VERSION 1

typedef struct vectors {
    bp_work_job *job;
    const bp_vectors_wish *wish;
    bp_corpus *corpus; /* on leads and the coordinator, as `texts` */
    vector_texts texts;
    int64_t sorted; /* documents that are sorted together, and written at once: on the root */
    char corpus_hash[BP_SHA256_HEX]; /* on all ranks */
    char key[BP_SHA256_HEX];
    int32_t *inputs, *targets; /* of a batch */
    float *rows;               /* [VECTORS_BATCH][width] */
} vectors;

static int64_t width_of(const vectors *self)
{
    return self->job->info.vocab_size;
}

/* ---- before there is a mesh ---- */

static int64_t most_positions(const bp_config *config, const bp_vectors_wish *wish, int64_t context)
{
    int64_t asked = bp_score_rule_keys_of(config)->context, most = asked > 0 ? asked : wish->most;

    return most > 0 && (most < context || asked > 0) ? most : context;
}

static int64_t batch_windows(int64_t most)
{
    int64_t windows = VECTORS_TOKENS / most;

    return windows < 1 ? 1 : windows < VECTORS_BATCH ? windows : VECTORS_BATCH;
}

/* For vectors, a model that continues texts of any length reads them up to its context. */
static int64_t context_of(const json_t *state)
{
    int64_t context = bp_model_state_context(state);
    const json_t *shape = json_object_get(state, "model");

    return context < BP_MODEL_UNLIMITED
               ? context
               : (int64_t)json_integer_value(json_object_get(shape, "context"));
}

/* bp_work_memory.rank */
static bp_err estimate_rank(const void *context, const bp_work_models *models,
                            const bp_work_place *place, bp_rank_memory *out)
{
    const vectors *self = context;
    int64_t most = most_positions(models->config, self->wish, context_of(models->states[0]));
    bp_model_task task = {
        .mesh = place->mesh, .stage = place->stage, .length = most, .vectors = self->wish->pool};
    bp_work_model_bytes bytes;

    if (most <= 0)
        return BP_ERR_CONFIG;
    task.windows = batch_windows(most);
    if (!place->computes)
        return BP_OK;
    bp_err err = bp_work_model_bytes_of(&bytes, models, &task, place->member);
    if (err != BP_OK)
        return err;
    out->node_bytes += bytes.node;
    out->own_bytes +=
        bytes.weights + bytes.work +
        (int64_t)sizeof(float) * (self->sorted + VECTORS_UNIT) * bytes.widest.vocab_size;
    return BP_OK;
}

static int64_t sorted_of(int64_t documents)
{
    return documents < VECTORS_SORTED ? documents : VECTORS_SORTED;
}

/* What is wrong with the corpus is said when the job opens it. */
static void count_sorted(vectors *self)
{
    bp_corpus *corpus = NULL;

    self->sorted = VECTORS_SORTED;
    if (bp_corpus_open(&corpus, bp_score_keys_of(self->job->config)->corpus) == BP_OK)
        self->sorted = sorted_of(bp_corpus_documents(corpus));
    bp_corpus_close(&corpus);
}

static bp_err describe(void *context, MPI_Comm world, bp_work_memory *out)
{
    vectors *self = context;

    out->model = bp_score_keys_of(self->job->config)->model;
    if (bp_comm_is_root(world))
        count_sorted(self);
    out->remedy = "use a smaller model";
    out->rank = estimate_rank;
    out->context = self;
    return BP_OK;
}

static bp_err open_model(void *context, bp_model **out)
{
    vectors *self = context;
    const bp_config *config = self->job->config;

    if (self->job->ensemble)
        return BP_FAIL(BP_ERR_CONFIG, "score.vectors_of_one",
                       "score.vectors = %s is of one model, and score.model is an ensemble: at "
                       "score.model; name one of its members",
                       self->wish->pool);
    return bp_model_open_vectors(out, self->job->mesh, config, bp_score_keys_of(config)->model,
                                 bp_score_rule_keys_of(config)->context, self->wish->pool);
}

/* ---- inputs ---- */

/* Encoders of BERT's kind read [CLS] A [SEP]; others read a text with the tokens that their
 * tokenizer puts around it. */
static bp_err find_frame(vectors *self)
{
    const bp_model_info *info = &self->job->info;
    const int64_t *roles = bp_corpus_roles(self->corpus);
    vector_texts *texts = &self->texts;

    texts->begin = bp_model_first(info);
    texts->end = self->wish->end;
    texts->once = !info->frames;
    if (!info->frames)
        return BP_OK;
    texts->begin = roles[BP_ROLE_CLS];
    texts->end = roles[BP_ROLE_SEP];
    if (texts->begin >= 0 && texts->end >= 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                   "the corpus's tokenizer has no token for '%s', which an encoder's texts need: "
                   "at %s; make the corpus with the model's tokenizer",
                   bp_role_name(texts->begin < 0 ? BP_ROLE_CLS : BP_ROLE_SEP),
                   bp_corpus_file_path(bp_corpus_file_at(self->corpus, 0)));
}

static void make_key(vectors *self)
{
    const bp_model_info *info = &self->job->info;
    const vector_texts *texts = &self->texts;
    bp_buffer text = {0};

    bp_buffer_printf(
        &text, "vectors 1 %s %s %s %d %" PRId64 " %" PRId64 " %" PRId64 " %s %d %d %d %d %d",
        self->corpus_hash, info->digest, self->wish->pool, self->wish->norm, texts->most,
        texts->begin, texts->end, bp_math_keys_of(self->job->config)->precision,
        self->job->mesh->tensor_ranks, VECTORS_SORTED, VECTORS_UNIT, VECTORS_BATCH, VECTORS_TOKENS);
    for (int64_t k = 0; k < self->wish->prompt_count; k++)
        bp_buffer_printf(&text, " %d", self->wish->prompt[k]);
    bp_sha256_of(text.data, text.bytes, self->key);
    bp_buffer_clear(&text);
}

static bp_err load(vectors *self)
{
    bp_err err = bp_corpus_open(&self->corpus, bp_score_keys_of(self->job->config)->corpus);

    if (err == BP_OK)
        err = bp_score_check_corpus(self->corpus, &self->job->info);
    if (err == BP_OK)
        err = find_frame(self);
    if (err == BP_OK)
        err = vector_texts_open(&self->texts, self->corpus);
    if (err != BP_OK)
        return err;
    memcpy(self->corpus_hash, bp_corpus_hash(self->corpus), BP_SHA256_HEX);
    make_key(self);
    if (self->job->mesh->coordinates && self->texts.cut > 0)
        BP_WARN("score.cut_documents",
                "%" PRId64 " of %" PRId64 " documents have more than the %" PRId64
                " positions that are read, and only their beginning counts: at score.corpus; cut "
                "them before",
                self->texts.cut, self->texts.plan.documents, self->texts.most);
    return BP_OK;
}

static bool prompt_fits(const vectors *self)
{
    for (int64_t k = 0; k < self->wish->prompt_count; k++)
        if (self->wish->prompt[k] < 0 || self->wish->prompt[k] >= self->job->info.words)
            return false;
    return true;
}

static bp_err open(void *context)
{
    vectors *self = context;
    bp_work_job *job = self->job;
    int64_t asked = bp_score_rule_keys_of(job->config)->context;
    bp_err err = BP_OK;

    self->texts.wish = self->wish;
    self->texts.most = most_positions(job->config, self->wish, job->info.context);
    if (asked > job->info.context)
        err = BP_FAIL(BP_ERR_CONFIG, "score.context_too_long",
                      "score.context = %" PRId64 " is more than the model's %" PRId64
                      ": at score.context; use %" PRId64 " or less",
                      asked, job->info.context, job->info.context);
    else if (!prompt_fits(self))
        err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.bad_prompt",
                      "the prompt of the checkpoint's vectors has tokens beyond its vocabulary, or "
                      "more than %d: at %s; import the model again",
                      BP_VECTORS_PROMPT, bp_score_keys_of(job->config)->model);
    else if (self->texts.most < 3 + self->wish->prompt_count)
        err = BP_FAIL(BP_ERR_CONFIG, "score.context_too_short",
                      "of %" PRId64 " positions a text has none, beside the prompt and the tokens "
                      "around it: at score.context; use more",
                      self->texts.most);
    if (err == BP_OK && (job->leads || job->mesh->coordinates))
        err = load(self);
    err = bp_agree(job->mesh->world, err);
    bp_bcast_bytes(self->corpus_hash, BP_SHA256_HEX, 0, job->mesh->world);
    return err;
}

static void close(void *context)
{
    vectors *self = context;

    vector_texts_clear(&self->texts);
    bp_corpus_close(&self->corpus);
}

static void identify(const void *context, bp_run_identity *out)
{
    const vectors *self = context;

    *out = (bp_run_identity){"score.corpus", self->corpus_hash};
}

/* ---- a unit ---- */

static bp_err prepare(void *context)
{
    vectors *self = context;
    int64_t positions = self->texts.most > VECTORS_TOKENS ? self->texts.most : VECTORS_TOKENS;

    self->inputs = bp_alloc("score.vectors", positions, sizeof *self->inputs);
    self->targets = bp_alloc("score.vectors", positions, sizeof *self->targets);
    self->rows = bp_alloc("score.vectors", VECTORS_BATCH * width_of(self), sizeof *self->rows);
    return BP_OK;
}

static void release(void *context)
{
    vectors *self = context;

    bp_free(self->rows);
    bp_free(self->targets);
    bp_free(self->inputs);
}

typedef struct texts_asked {
    int64_t windows, length;
} texts_asked;

/* A batch through the model. */
static bp_err answer(void *context, const void *what)
{
    vectors *self = context;
    const texts_asked *it = what;
    int64_t positions = it->windows * it->length;

    bp_heartbeat_progress();
    bp_bcast_bytes(self->inputs, positions * (int64_t)sizeof *self->inputs, 0,
                   self->job->mesh->replica);
    for (int64_t k = 0; k < positions; k++)
        self->targets[k] = k % it->length == 0 ? 0 : -1;
    return bp_model_distribution(self->job->model,
                                 &(bp_model_batch){.windows = it->windows,
                                                   .length = it->length,
                                                   .inputs = self->inputs,
                                                   .targets = self->targets},
                                 self->rows, NULL);
}

void bp_vectors_normalise(float *row, int64_t width)
{
    double sum = 0;

    for (int64_t c = 0; c < width; c++)
        sum += (double)row[c] * (double)row[c];
    sum = fmax(sqrt(sum), 1e-12);
    for (int64_t c = 0; c < width; c++)
        row[c] = (float)((double)row[c] / sum);
}

static void pack(const vectors *self, int64_t windows, bp_buffer *out)
{
    int64_t width = width_of(self);

    for (int64_t w = 0; w < windows && self->wish->norm; w++)
        bp_vectors_normalise(self->rows + w * width, width);
    bp_buffer_add(out, self->rows, (size_t)(windows * width) * sizeof(float));
}

static int64_t first_of(const vectors *self, int64_t unit)
{
    int64_t first = unit * VECTORS_UNIT, all = self->texts.plan.documents;

    return first < all ? first : all;
}

static bp_err run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    vectors *self = context;
    int64_t end = first_of(self, unit + 1), last;
    bp_err err = BP_OK;

    for (int64_t first = first_of(self, unit); err == BP_OK && first < end; first = last) {
        last = vector_texts_batch(&self->texts, first, end);
        *stopped = bp_work_between(self->job);
        if (*stopped)
            break;
        if (last == end)
            bp_work_ask_next(self->job);
        texts_asked it = {last - first, self->texts.order[last - 1].positions};

        err = vector_texts_read(&self->texts, first, last, it.length, self->inputs);
        if (err == BP_OK)
            err = bp_request(&self->job->requests, &it, sizeof it);
        if (err == BP_OK)
            pack(self, it.windows, out);
    }
    return err;
}

static int64_t count_documents(const void *context, int64_t unit)
{
    const vectors *self = context;

    return first_of(self, unit + 1) - first_of(self, unit);
}

/* ---- the file ---- */

static bp_err begin_file(const vectors *self, bp_h5 *h5)
{
    const int64_t extent[] = {self->texts.plan.documents, width_of(self)};
    bp_err err = bp_h5_make_array(h5, "vector", BP_H5_F32, 2, extent, NULL);

    if (err == BP_OK)
        err = bp_score_text_write(h5, &self->texts.plan);
    if (err == BP_OK)
        err = bp_h5_put_text(h5, "/", "model_digest", self->job->info.digest);
    if (err == BP_OK)
        err = bp_h5_put_text(h5, "/", "pool", self->wish->pool);
    if (err == BP_OK)
        err = bp_h5_put_int(h5, "/", "norm", self->wish->norm);
    return err == BP_OK ? bp_h5_put_int(h5, "/", "cut_documents", self->texts.cut) : err;
}

/* Documents of a run that is sorted together are stored in `run` in document order; the last unit
 * writes them. */
static bp_err put_unit(const vectors *self, const bp_part_result *part, bp_h5 *h5, float *run)
{
    int64_t width = width_of(self), all = self->texts.plan.documents,
            at = part->unit * VECTORS_UNIT, rows = count_documents(self, part->unit),
            first = at / VECTORS_SORTED * VECTORS_SORTED,
            count = all - first < VECTORS_SORTED ? all - first : VECTORS_SORTED;
    bp_err err = bp_part_result_expect(part, (size_t)(rows * width) * sizeof *run);

    if (err != BP_OK)
        return err;
    for (int64_t r = 0; r < rows; r++)
        memcpy(run + (self->texts.order[at + r].document - first) * width,
               part->data + (size_t)(r * width) * sizeof *run, (size_t)width * sizeof *run);
    if (at + rows < first + count)
        return BP_OK;
    return bp_h5_write_slab(h5, "vector", BP_H5_F32, first * width, run, count * width);
}

static bp_err merge(void *context, bp_parts *parts)
{
    vectors *self = context;
    char *path = bp_path_join(self->job->folder, "vectors.h5");
    int64_t floats = sorted_of(self->texts.plan.documents) * width_of(self);
    float *run = bp_try_alloc("score.vectors", floats, sizeof *run);
    bp_h5_draft draft = {0};
    bp_part_result part = {0};
    bp_err err = run ? bp_h5_draft_begin(&draft, path, VERSION)
                     : bp_fail_memory("vectors", floats, sizeof *run);

    if (err == BP_OK)
        err = begin_file(self, draft.file);
    while (err == BP_OK && bp_parts_next(parts, &part, &err))
        err = put_unit(self, &part, draft.file, run);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, "score-vectors", VERSION);
    bp_h5_draft_end(&draft);
    if (err == BP_OK)
        vectors_page_write(self->job, &self->texts, width_of(self));
    bp_free(run);
    bp_free(path);
    return err;
}

static bp_err open_job(void *context)
{
    vectors *self = context;
    bp_err err = open(self);

    self->job->units =
        (bp_work_units){.key = self->key,
                        .count = (self->texts.plan.documents + VECTORS_UNIT - 1) / VECTORS_UNIT,
                        .mesh_keys = "mesh.tensor",
                        .amount = (double)self->texts.plan.documents,
                        .noun = "documents",
                        .speed_digits = 1,
                        .prepare = prepare,
                        .run = run_unit,
                        .answer = answer,
                        .amount_of = count_documents,
                        .release = release,
                        .merge = merge};
    return err;
}

/* ---- what is said ---- */

static void say(const void *context)
{
    const vectors *self = context;

    bp_log("vectors of %" PRId64 " documents, %s of %" PRId64
           " tokens in examples of up to %" PRId64 "%s",
           self->texts.plan.documents, self->wish->pool, self->texts.tokens, self->texts.most,
           self->wish->norm ? ", of length 1" : "");
}

static json_t *started(const void *context)
{
    const vectors *self = context;

    return json_pack("{sI sI}", "documents", (json_int_t)self->texts.plan.documents, "cut",
                     (json_int_t)self->texts.cut);
}

static void report(const void *context)
{
    const vectors *self = context;

    bp_log("%" PRId64 " vectors of %" PRId64 " numbers, %" PRId64 " of documents that were cut",
           self->texts.plan.documents, width_of(self), self->texts.cut);
}

/* ---- --plan ---- */

/* The middle unit, of the actual documents. */
static bp_err measure(void *context, double figures[BP_WORK_FIGURES])
{
    vectors *self = context;
    int64_t unit = self->texts.plan.documents / VECTORS_UNIT / 2;
    bp_err err = bp_work_time_unit(self->job, unit, &figures[0]);

    figures[1] = (double)bp_all_max_int(self->job->leads ? count_documents(self, unit) : 0,
                                        self->job->mesh->compute);
    return err;
}

static void print(const void *context, const double figures[BP_WORK_FIGURES], int64_t bytes)
{
    const vectors *self = context;
    double speed = figures[1] / figures[0];
    char duration[64];

    bp_log("memory: %.1f MiB on a rank, model and batch", (double)bytes / 1048576);
    bp_clock_duration(duration, sizeof duration,
                      (double)self->texts.plan.documents / (speed * self->job->mesh_shape.data));
    bp_log("time: about %s at %.1f documents/s from each of %d model copies", duration, speed,
           self->job->mesh_shape.data);
}

/* ---- the table ---- */

static const char *const FILES[] = {"vectors.h5", NULL};

static const bp_work VECTORS = {.name = "score",
                                .shares_experts = true,
                                .model_key = "score.model",
                                .results = "vectors",
                                .files = FILES,
                                .page = "vectors",
                                .describe = describe,
                                .open_model = open_model,
                                .open = open_job,
                                .identify = identify,
                                .say = say,
                                .started = started,
                                .report = report,
                                .measure = measure,
                                .print = print,
                                .close = close};

bp_err bp_vectors(MPI_Comm world, bp_config *config, const bp_vectors_wish *wish,
                  const bp_planned_world *plan)
{
    vectors self = {.wish = wish};
    bp_work_job job = {.work = &VECTORS, .self = &self, .config = config};

    self.job = &job;
    return bp_work_run(&job, world, plan);
}
