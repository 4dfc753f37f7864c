/* From a configuration to a training that is ready to run. */
#include "train/loop/parts.h"
#include "train/loop/trainer.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/run_options.h"
#include "base/trace.h"
#include "data/corpus.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/dropconnect.h"
#include "text/tokenizer/tokenizer.h"
#include "train/loop/pretrain.h"

#include <string.h>

#define PEAK_SECONDS  0.2 /* but not longer than the training takes at */
#define SLOW_FLOPS    1e10
#define BAG_DOCUMENTS 100 /* fewer are worth a warning */

static bp_err open_mesh(trainer *self, MPI_Comm world, const bp_planned_world *plan)
{
    bool alone = plan && bp_comm_size(world) == 1;
    int members = bp_mesh_shape_of(self->config).members;
    bp_err err;

    if (members != 1)
        return BP_FAIL(
            BP_ERR_CONFIG, "mesh.one_model",
            "mesh.members = %d, but pretrain trains one model: at mesh.members; leave it at 1",
            members);
    err = bp_mesh_open(&self->mesh, &self->mesh_shape, self->config, world, plan);
    if (err == BP_OK && !alone)
        bp_math_warn_of_threads(self->mesh->world, self->mesh->computes);
    return err;
}

/* The tokenizer of the run: the corpus's, or, where the corpus has none, tokenizer.path's. */
static bp_err find_tokenizer(trainer *self)
{
    const char *path = bp_run_keys_of(self->config)->tokenizer_path;
    corpus_facts *facts = &self->facts;
    bp_tokenizer *tokenizer = NULL;
    bp_err err;

    snprintf(facts->tokenizer_hash, sizeof facts->tokenizer_hash, "%s",
             bp_corpus_tokenizer_hash(self->corpus));
    if (bp_fault("tok.load"))
        return bp_fail_errno(BP_ERR_IO, "can't read the tokenizer", path ? path : "the corpus");
    if (!path) {
        size_t bytes;
        return bp_corpus_file_tokenizer(bp_corpus_file_at(self->corpus, 0), &self->tokenizer,
                                        &bytes);
    }
    err = bp_tokenizer_load(&tokenizer, path);
    if (err == BP_OK && facts->tokenizer_hash[0] &&
        !bp_tokenizer_same_hash(facts->tokenizer_hash, bp_tokenizer_hash(tokenizer)))
        err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                      "the tokenizer (%.12s...) is not the one that made the corpus (%.12s...): at "
                      "%s; give the corpus's tokenizer, or none",
                      bp_tokenizer_hash(tokenizer), facts->tokenizer_hash, path);
    if (err == BP_OK && bp_tokenizer_size(tokenizer) < facts->vocab_size)
        err = BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                      "the tokenizer has %lld tokens, fewer than vocab_size = %lld of the corpus: "
                      "at %s; give the "
                      "corpus's tokenizer, or none",
                      (long long)bp_tokenizer_size(tokenizer), (long long)facts->vocab_size, path);
    if (err == BP_OK) {
        if (!facts->tokenizer_hash[0]) /* a corpus's own stays: a run of an older version has it */
            snprintf(facts->tokenizer_hash, sizeof facts->tokenizer_hash, "%s",
                     bp_tokenizer_hash(tokenizer));
        self->tokenizer = bp_tokenizer_text(tokenizer);
    }
    bp_tokenizer_free(&tokenizer);
    return err;
}

bp_err trainer_weights(double **weights, const bp_config *config, const bp_corpus *corpus)
{
    const char *list = bp_corpus_keys_of(config)->weights;
    int64_t count, files = bp_corpus_files(corpus);
    bp_err err;

    *weights = NULL;
    if (!list)
        return BP_OK;
    err = bp_corpus_weights(weights, &count, list);
    if (err != BP_OK || count == files)
        return err;
    bp_free(*weights);
    *weights = NULL;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.weights_mismatch",
                   "corpus.weights has %lld number%s, but corpus.train has %lld file%s: at "
                   "corpus.weights; give one for each file, in their order (of a glob, by name)",
                   (long long)count, count == 1 ? "" : "s", (long long)files,
                   files == 1 ? "" : "s");
}

static bp_err open_streams(trainer *self)
{
    bp_config *config = self->config;
    const char *valid = bp_corpus_keys_of(config)->valid;
    bp_stream_spec spec = {.bag = trainer_bags(config),
                           .seed = (uint64_t)bp_run_keys_of(config)->seed,
                           .member = bp_corpus_keys_of(config)->member};
    double *weights = NULL;
    bp_err err = bp_corpus_open(&self->corpus, bp_corpus_keys_of(config)->train);

    spec.corpus = self->corpus;
    if (err == BP_OK)
        err = trainer_weights(&weights, config, self->corpus);
    spec.weights = weights;
    if (err == BP_OK)
        err = bp_stream_new(&self->stream, &spec);
    bp_free(weights);
    if (err == BP_OK && valid)
        err = bp_corpus_open(&self->valid_corpus, valid);
    if (err == BP_OK && valid)
        err = bp_stream_new(&self->valid_stream, &(bp_stream_spec){.corpus = self->valid_corpus});
    return err;
}

static bp_err check_valid_corpus(const trainer *self)
{
    const char *path = bp_corpus_keys_of(self->config)->valid;
    const char *train = bp_corpus_tokenizer_hash(self->corpus),
               *valid = bp_corpus_tokenizer_hash(self->valid_corpus);
    int64_t vocab_size = bp_corpus_vocab_size(self->valid_corpus);

    if (vocab_size != self->facts.vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "vocab_size is %lld, but that of corpus.train is %lld: at %s; make both "
                       "with one tokenizer",
                       (long long)vocab_size, (long long)self->facts.vocab_size, path);
    if (train[0] && valid[0] && !bp_tokenizer_same_hash(train, valid))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "the tokenizer is %.12s..., but that of corpus.train is %.12s...: at %s; "
                       "make both with one tokenizer",
                       valid, train, path);
    return BP_OK;
}

/* NULL: all files have segments. */
static const char *find_unsegmented(const bp_corpus *corpus)
{
    for (int64_t k = 0; k < bp_corpus_files(corpus); k++)
        if (!bp_corpus_file_info(bp_corpus_file_at(corpus, k))->has_segments)
            return bp_corpus_file_path(bp_corpus_file_at(corpus, k));
    return NULL;
}

static void find_segments(corpus_facts *facts, const trainer *self)
{
    const char *path = find_unsegmented(self->corpus);

    if (!path && self->valid_corpus)
        path = find_unsegmented(self->valid_corpus);
    facts->has_segments = !path;
    snprintf(facts->unsegmented, sizeof facts->unsegmented, "%s", path ? path : "");
}

/* Whether BERT's pairs of sentences can be made of a corpus. */
static void count_sentences(corpus_facts *facts, const bp_corpus *corpus)
{
    int64_t segments = 0, documents = 0;

    for (int64_t k = 0; k < bp_corpus_files(corpus); k++) {
        const bp_corpus_info *info = bp_corpus_file_info(bp_corpus_file_at(corpus, k));

        segments += info->segments;
        documents += info->documents;
    }
    facts->has_lone_sentences = segments <= documents;
    facts->has_lone_document = documents == 1;
}

/* What the coordinator finds in the corpora, for all ranks. */
static bp_err find_facts(trainer *self)
{
    corpus_facts *facts = &self->facts;
    bp_err err = BP_OK;

    facts->vocab_size = bp_corpus_vocab_size(self->corpus);
    facts->eod_id = bp_corpus_eod(self->corpus);
    memcpy(facts->roles, bp_corpus_roles(self->corpus), sizeof facts->roles);
    for (int64_t k = 0; k < bp_corpus_files(self->corpus); k++)
        if (!bp_corpus_file_info(bp_corpus_file_at(self->corpus, k))->has_bos)
            facts->roles[BP_ROLE_BOS] = -1; /* it is not trained */
    facts->roles[BP_ROLE_FIRST] = facts->roles[BP_ROLE_BOS];
    facts->tokens = bp_stream_tokens(self->stream);
    facts->mixed_files = bp_stream_weights(self->stream) ? bp_stream_files(self->stream) : 0;
    snprintf(facts->hash, sizeof facts->hash, "%s", bp_corpus_hash(self->corpus));
    facts->has_valid = self->valid_corpus != NULL;
    err = bp_corpus_has_pairs(&facts->has_pairs, self->corpus);
    find_segments(facts, self);
    count_sentences(facts, self->corpus);
    if (err == BP_OK && facts->has_valid) {
        facts->valid_tokens = bp_stream_tokens(self->valid_stream);
        snprintf(facts->valid_hash, sizeof facts->valid_hash, "%s",
                 bp_corpus_hash(self->valid_corpus));
        err = check_valid_corpus(self);
    }
    return err == BP_OK ? find_tokenizer(self) : err;
}

static bp_err open_corpora(trainer *self)
{
    const bp_mesh *mesh = self->mesh;
    bp_err err = BP_OK;

    self->leads = mesh->computes && bp_comm_is_root(mesh->model);
    if (self->leads || mesh->coordinates)
        err = open_streams(self);
    if (err == BP_OK && mesh->coordinates)
        err = find_facts(self);
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        bp_bcast_bytes(&self->facts, sizeof self->facts, 0, mesh->world);
    return err;
}

/* config.ini has every key as resolved: what a 0 or "auto" stood for. */
static void resolve_keys(trainer *self)
{
    bp_config *config = self->config;
    bool dedicated = self->mesh_shape.coordinator == BP_COORDINATOR_DEDICATED;

    bp_model_shape_resolve(&self->shape, config);
    bp_optimizer_resolve(config);
    if (bp_config_set_int(config, "mesh.data", self->mesh_shape.data) != BP_OK ||
        bp_config_set_int(config, "math.threads", bp_math_threads()) != BP_OK ||
        bp_config_set(config, "mesh.coordinator", dedicated ? "dedicated" : "shared") != BP_OK)
        bp_config_fault_err(config);
}

/* A run keeps the precision that its first start resolved; whether this CPU has it matters only
 * once there is something to compute (trainer_build). */
bp_err trainer_precision(MPI_Comm comm, bp_config *config, bp_precision *out)
{
    char *before = NULL;
    bp_err err = bp_run_previous(comm, bp_run_keys_of(config)->dir, "math.precision", &before);

    bool keeps = before && strcmp(bp_math_keys_of(config)->precision, "auto") == 0 &&
                 strcmp(before, "auto") != 0;

    if (err == BP_OK && keeps)
        *out = strcmp(before, "bf16") == 0 ? BP_BF16 : BP_F32;
    else if (err == BP_OK)
        err = bp_math_precision(config, out);
    bp_free(before);
    err = bp_agree(comm, err);
    if (err == BP_OK) /* ranks on other CPUs would compute with another precision: the least of all
                         counts */
        *out = bp_all_max_int(*out == BP_F32, comm) ? BP_F32 : BP_BF16;
    if (err == BP_OK)
        err = bp_config_set(config, "math.precision", *out == BP_BF16 ? "bf16" : "f32");
    return bp_agree(comm, err);
}

/* Everything that must fit together, as faults said at once. */
static bp_err check_shape(trainer *self)
{
    bp_config *config = self->config;
    bp_model_shape *shape = &self->shape;

    if (shape->vocab_size == 0)
        shape->vocab_size = self->facts.vocab_size;
    else if (shape->vocab_size < self->facts.vocab_size)
        bp_config_fault(config, "model.vocabulary_too_small",
                        "vocab_size of the corpus is %lld, more than the checkpoint's %lld: at "
                        "model.init; use its tokenizer",
                        (long long)self->facts.vocab_size, (long long)shape->vocab_size);
    bp_model_shape_check(shape, self->mesh_shape.tensor, self->mesh_shape.pipeline, config);
    if (!trainer_counts(self) && !trainer_learner(self))
        bp_engine_spec_check(&self->spec, shape, &self->mesh_shape, config);
    parts_check(self);
    if (bp_model_shape_is_whole(shape))
        resolve_keys(self);
    bp_err err = bp_config_faults(config);
    return err == BP_OK ? bp_dropconnect_check(shape, bp_train_keys_of(config)->dropconnect,
                                               "train.dropconnect")
                        : err;
}

/* What initial values need of the tokenizer, on all ranks; a checkpoint that the model starts from
 * has it. */
static bp_err share_constants(trainer *self)
{
    const bp_model_family *family = self->shape.family;
    bp_tokenizer *tokenizer = NULL;
    int64_t floats = 0;
    bp_err err = BP_OK;

    if (!family->constants || self->source)
        return BP_OK;
    if (self->mesh->coordinates && self->tokenizer)
        err = bp_tokenizer_parse(&tokenizer, self->tokenizer, strlen(self->tokenizer),
                                 "the corpus's tokenizer");
    if (err == BP_OK && self->mesh->coordinates)
        err = family->constants(&self->constants, &floats, &self->shape, tokenizer);
    bp_tokenizer_free(&tokenizer);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&floats, sizeof floats, 0, self->mesh->world);
    if (!self->mesh->coordinates)
        self->constants = bp_alloc("model.constants", floats, sizeof *self->constants);
    bp_bcast_bytes(self->constants, floats * (int64_t)sizeof *self->constants, 0,
                   self->mesh->world);
    self->shape.constants = self->constants;
    return BP_OK;
}

bp_err trainer_check_bag(const bp_corpus *corpus)
{
    int64_t documents = bp_corpus_documents(corpus);
    const char *path = bp_corpus_file_path(bp_corpus_file_at(corpus, 0));

    if (documents < 2)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.too_few_documents",
                       "a bag needs at least 2 documents to draw from, but there are %lld: at %s; "
                       "cut the corpus into documents, or train without bags",
                       (long long)documents, path);
    if (documents < BAG_DOCUMENTS)
        BP_WARN("ensemble.few_documents",
                "bags are drawn from %lld documents: at %s; with fewer than %d they differ by "
                "chance more than by what they hold",
                (long long)documents, path, BAG_DOCUMENTS);
    return BP_OK;
}

/* What examples are made by: parts add theirs. */
static bp_err find_rules(trainer *self)
{
    const int64_t *roles = self->facts.roles;
    bp_err err;

    self->rules = (bp_example_rules){.seed = self->spec.seed,
                                     .member = bp_corpus_keys_of(self->config)->member,
                                     .vocab_size = self->facts.vocab_size,
                                     .cls = roles[BP_ROLE_CLS],
                                     .sep = roles[BP_ROLE_SEP],
                                     .mask = roles[BP_ROLE_MASK],
                                     .pad = roles[BP_ROLE_PAD] >= 0 ? roles[BP_ROLE_PAD] : 0,
                                     .eod = self->facts.eod_id};
    err = parts_at(self, PART_RULES);
    if (err == BP_OK)
        self->maker = trainer_maker(self, self->shape.context);
    return err;
}

/* Precision, and what the engine is to do. */
static bp_err find_spec(trainer *self)
{
    bp_config *config = self->config;

    if (self->shape.family->resolve && bp_model_shape_is_whole(&self->shape))
        self->shape.family->resolve(&self->shape, config);
    self->spec = bp_engine_spec_of(config);
    self->spec.shortens = bp_corpus_keys_of(config)->bucket > 0;
    if (trainer_learner(self))
        self->spec.micro_batch = 1;
    return trainer_precision(self->mesh->world, config, &self->spec.precision);
}

/* What there is to train on, and for how many steps. */
static bp_err count_examples(trainer *self)
{
    bp_err err = BP_OK;

    if (self->mesh->coordinates)
        err = self->maker.feed == BP_FEED_WINDOWS
                  ? bp_stream_check(self->stream, trainer_stride(self))
                  : trainer_count_documents(self);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    trainer_find_steps(self);
    return parts_at(self, PART_COUNTED);
}

bp_err trainer_open(trainer *self, const bp_training_part *const *parts, MPI_Comm world,
                    bp_config *config, const bp_planned_world *plan)
{
    bp_err err;

    memset(self, 0, sizeof *self);
    self->config = config;
    self->parts = parts;
    bp_math_set_threads(
        bp_math_threads_planned(world, (int)bp_math_keys_of(config)->threads, plan));
    err = bp_agree(world, open_mesh(self, world, plan));
    if (err == BP_OK)
        err = open_corpora(self);
    if (err == BP_OK)
        err = parts_open(self);
    if (err == BP_OK)
        err = trainer_find_shape(self);
    if (err == BP_OK)
        err = parts_at(self, PART_SHAPE);
    if (err == BP_OK)
        err = find_spec(self);
    if (err == BP_OK)
        err = bp_agree(world, check_shape(self));
    if (err == BP_OK)
        err = parts_at(self, PART_READY);
    if (err == BP_OK)
        err = share_constants(self);
    if (err == BP_OK && trainer_counts(self)) {
        self->spec.rate.steps = 1;
        return BP_OK;
    }
    if (err == BP_OK)
        err = find_rules(self);
    return err == BP_OK ? count_examples(self) : err;
}

/* Batches of similar lengths are shortened, micro-batch by micro-batch. Runs of sentences are
 * sorted by their length without noise; a pair of runs, of next sentences, fills its places. */
static bp_err open_bucket(trainer *self, int64_t slots)
{
    const bp_objective *objective = bp_model_objective(&self->shape);
    bool of_documents = !self->columns.spans && !self->learner &&
                        (self->maker.feed == BP_FEED_DOCUMENTS ||
                         (self->maker.feed == BP_FEED_RUNS && objective->noises));

    if (bp_corpus_keys_of(self->config)->bucket == 0)
        return BP_OK;
    if (!of_documents || self->facts.mixed_files > 0)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.bucket_unused",
                       "corpus.bucket sorts examples by length, but %s: at corpus.bucket; leave it "
                       "out",
                       !of_documents ? "here all are of one length"
                                     : "corpus.weights takes them from several corpora in turns");
    self->fits =
        bp_alloc("input", (slots / self->spec.micro_batch + 1) * BP_STREAMS, sizeof *self->fits);
    return BP_OK;
}

static bp_err open_lanes(trainer *self)
{
    bp_loader_spec spec = {.stream = self->stream,
                           .maker = self->maker,
                           .columns = self->columns,
                           .batch = self->spec.batch,
                           .seed = self->spec.seed,
                           .bucket = bp_corpus_keys_of(self->config)->bucket};
    int64_t slots = trainer_slots(self, &self->spec, self->mesh->datas);
    const char *order = bp_corpus_keys_of(self->config)->order;

    spec.in_sequence = strcmp(order, "stream") == 0 ||
                       (strcmp(order, "auto") == 0 && self->shape.family->carries_state);
    self->examples = bp_try_alloc("input", (int64_t)bp_batch_bytes(&self->maker.form, slots), 1);
    if (!self->examples)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at the batch; use a smaller train.batch");
    bp_err err = open_bucket(self, slots);
    if (err != BP_OK || !self->leads)
        return err;
    if (spec.in_sequence && bp_stream_weights(self->stream))
        return BP_FAIL(BP_ERR_CONFIG, "corpus.weights_unused",
                       "corpus.weights takes windows of several corpora in turns, but "
                       "here each batch slot reads one text in order (corpus.order): "
                       "at corpus.weights; leave it out");
    self->window = bp_alloc("input", self->maker.window, sizeof *self->window);
    err = trainer_open_documents(self);
    if (err != BP_OK)
        return err;
    if (self->learner)
        spec.slots = slots;
    else
        bp_engine_slots(self->engine, &spec.first_slot, &spec.slots);
    return bp_loader_new(&self->loader, &spec);
}

void trainer_measure_peak(trainer *self, double seconds)
{
    double wall = bp_clock_now(), busy = bp_clock_process();

    self->gemm_peak = bp_math_gemm_peak(self->spec.precision, seconds);
    wall = bp_clock_now() - wall;
    self->gemm_cores = (bp_clock_process() - busy) / (wall * bp_math_threads());
}

/* Of all ranks; a dedicated coordinator receives it. */
static void measure_peaks(trainer *self)
{
    const bp_mesh *mesh = self->mesh;
    double both[2];

    if (mesh->computes) {
        double tokens = (double)(self->spec.rate.steps * self->spec.batch * self->shape.context),
               all = tokens * bp_model_train_flops(&self->shape) / SLOW_FLOPS;
        float lacks;

        trainer_measure_peak(self, all < PEAK_SECONDS ? all : PEAK_SECONDS);
        lacks = 1 - (float)self->gemm_cores;
        bp_all_max(&lacks, 1, mesh->compute);
        self->gemm_cores = 1 - lacks;
        bp_all_sum_double(&self->gemm_peak, 1, mesh->compute);
    }
    both[0] = self->gemm_peak;
    both[1] = self->gemm_cores;
    bp_bcast_bytes(both, sizeof both, bp_comm_size(mesh->world) - 1, mesh->world);
    self->gemm_peak = both[0];
    self->gemm_cores = both[1];
}

bp_err trainer_build(trainer *self)
{
    bp_precision precision;
    int stage = 0;
    bp_err err = bp_math_precision(self->config, &precision); /* a kept one: has this CPU it? */

    if (err == BP_OK)
        err = trainer_plan(self, &self->plan, &stage);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    if (!trainer_learner(self))
        measure_peaks(self);
    plan_print(self, &self->plan, stage);
    if (self->mesh->computes) {
        err = trainer_learner(self)
                  ? trainer_learner_open(self)
                  : bp_engine_new(&self->engine, self->mesh, &self->spec, &self->shape);
    }
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK)
        err = parts_at(self, PART_BUILD);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->computes ? open_lanes(self) : BP_OK);
    if (err == BP_OK)
        trainer_save_beside(self);
    if (err == BP_OK && bp_checkpoint_keys_of(self->config)->async) {
        int64_t count;
        bp_slice *slices = trainer_slices_to_save(self, &count); /* for the size of their copy */

        err = bp_snapshot_new(&self->snapshot, self->mesh->world, bp_slices_floats(slices, count));
        bp_free(slices);
    }
    if (err != BP_OK || !self->loader || !bp_loader_repeat(self->loader) || self->mesh->data_at > 0)
        return err;
    if (bp_stream_weights(self->stream))
        BP_WARN("corpus.few_windows",
                "a step takes more windows of a corpus than it has, by corpus.weights: windows "
                "repeat within a step; use a smaller batch or a shorter context");
    else
        BP_WARN("corpus.few_windows",
                "the corpus has %lld %s, fewer than train.batch = %lld: they repeat within a step; "
                "use a smaller batch or a shorter context",
                (long long)bp_loader_windows(self->loader), trainer_examples_name(self),
                (long long)self->spec.batch);
    return BP_OK;
}

void trainer_close(trainer *self)
{
    bp_loader_free(&self->loader);
    bp_document_table_free(&self->valid_table);
    parts_close(self);
    bp_engine_free(&self->engine);
    if (self->learner)
        trainer_learner(self)->free(&self->learner);
    bp_trace_stop(); /* with their helpers gone */
    bp_stream_free(&self->stream);
    bp_stream_free(&self->valid_stream);
    bp_corpus_close(&self->corpus);
    bp_corpus_close(&self->valid_corpus);
    bp_checkpoint_close(&self->source);
    bp_snapshot_free(&self->snapshot);
    bp_free(self->examples);
    bp_free(self->fits);
    bp_free(self->window);
    bp_free(self->tokenizer);
    bp_free(self->constants);
    bp_free(self->attachment);
    json_decref(self->counted);
    json_decref(self->base);
    bp_mesh_free(&self->mesh);
}
