/* The tables of word vectors over ranks, and one pass over a batch.
 *
 * The columns are divided over ranks (Ordentlich et al. 2016): each has some lanes of every vector
 * (math/kernels/rows.h), computes its part of the products of a group, and updates its own
 * columns. Ranks exchange one number per product, summed by a fixed tree, so the bits are the same
 * at any number of ranks. As many ranks as the largest power of two allows, up to BP_ROW_LANES,
 * have lanes; others wait.
 *
 * Called by word2vec.c. */
#include "models/word2vec/word2vec_examples_priv.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "mesh/collective.h"
#include "models/shape/shape_json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define READ_TOKENS (1 << 18)

struct bp_learner {
    MPI_Comm comm;    /* borrowed */
    MPI_Comm workers; /* the ranks that have lanes; MPI_COMM_NULL on others */
    int rank, worker_count;
    bp_model_shape shape;
    int64_t eod_id;
    uint64_t seed;
    double sample;
    int lanes;                 /* of this rank */
    int64_t width;             /* floats of a row here */
    float *input, *output;     /* [V][width] */
    float *counts;             /* [V][2] on rank 0, in the checkpoint's form */
    w2v_vocabulary vocabulary; /* V 0: not made yet */
    w2v_text text;
    w2v_group group;
    float *dots, *scratch; /* [target_capacity] */
    float *mean;           /* [unit_capacity][width] cbow's inputs; NULL for skipgram */
    float *error;          /* [unit_capacity][width] gradients of inputs */
};

static int workers_of(int ranks)
{
    int workers = 1;

    while (2 * workers <= ranks && 2 * workers <= BP_ROW_LANES)
        workers *= 2;
    return workers;
}

static size_t bytes(const bp_model_shape *shape, int ranks)
{
    return (size_t)(2 * shape->vocab_size * w2v_padded(shape) / workers_of(ranks)) * sizeof(float);
}

/* Three copies of the counts exist for a while: as sums, as integers, and on rank 0. */
static size_t work_bytes(const bp_model_shape *shape, int ranks)
{
    size_t V = (size_t)shape->vocab_size, text = 3 * (size_t)shape->context * sizeof(int32_t);
    size_t row = (size_t)(w2v_padded(shape) / workers_of(ranks)) * sizeof(float);

    return V * (sizeof(double) + 2 * sizeof(float)) + w2v_vocabulary_bytes(shape) + text +
           w2v_group_bytes(shape, row);
}

static bp_err new_tables(bp_learner *self)
{
    int64_t floats = self->shape.vocab_size * self->width;

    self->input = bp_try_alloc("word2vec.input", floats, sizeof *self->input);
    self->output = bp_try_alloc("word2vec.output", floats, sizeof *self->output);
    if (self->rank == 0)
        self->counts = bp_try_alloc("word2vec.counts", 2 * self->shape.vocab_size, sizeof(float));
    if (!self->input || !self->output || (self->rank == 0 && !self->counts))
        return bp_fail_memory("the tables of vectors", 2 * floats, sizeof(float));
    return BP_OK;
}

static void free_learner(bp_learner **learner)
{
    bp_learner *self = *learner;

    *learner = NULL;
    if (!self)
        return;
    if (self->workers != MPI_COMM_NULL)
        BP_MPI(MPI_Comm_free(&self->workers));
    w2v_vocabulary_clear(&self->vocabulary);
    w2v_group_clear(&self->group);
    bp_free(self->text.words);
    bp_free(self->text.positions);
    bp_free(self->text.sentences);
    bp_free(self->input);
    bp_free(self->output);
    bp_free(self->counts);
    bp_free(self->dots);
    bp_free(self->scratch);
    bp_free(self->mean);
    bp_free(self->error);
    bp_free(self);
}

static bp_err new_learner(bp_learner **out, const bp_learner_spec *spec)
{
    bp_learner *self = bp_alloc("word2vec.learner", 1, sizeof *self);
    int64_t T = spec->shape->context;
    bool works;
    bp_err err;

    self->comm = spec->comm;
    self->workers = MPI_COMM_NULL;
    self->rank = bp_comm_rank(spec->comm);
    self->worker_count = workers_of(bp_comm_size(spec->comm));
    self->shape = *spec->shape;
    self->eod_id = spec->eod_id;
    self->seed = spec->seed;
    self->sample = w2v_keys_of(spec->config)->sample;
    works = self->rank < self->worker_count;
    self->lanes = works ? BP_ROW_LANES / self->worker_count : 0;
    self->width = works ? w2v_padded(&self->shape) / self->worker_count : 0;
    BP_MPI(MPI_Comm_split(spec->comm, works ? 0 : MPI_UNDEFINED, self->rank, &self->workers));
    self->text.words = bp_alloc("word2vec.text", T, sizeof *self->text.words);
    self->text.positions = bp_alloc("word2vec.text", T, sizeof *self->text.positions);
    self->text.sentences = bp_alloc("word2vec.text", T, sizeof *self->text.sentences);
    err = bp_agree(spec->comm, works ? new_tables(self) : BP_OK);
    if (err != BP_OK)
        free_learner(&self);
    *out = self;
    return err;
}

/* ---- counts ---- */

static bp_err count_share(const bp_learner *self, const bp_learner_stream *stream, double *counts)
{
    int64_t size = bp_comm_size(self->comm);
    int64_t at = stream->tokens / size * self->rank, end = at + stream->tokens / size;
    int32_t *tokens = bp_alloc("word2vec.count", READ_TOKENS, sizeof *tokens);
    bp_err err = BP_OK;

    bp_fault_point("count.run");
    end = self->rank + 1 == size ? stream->tokens : end;
    while (at < end && err == BP_OK) {
        int64_t n = end - at < READ_TOKENS ? end - at : READ_TOKENS;

        bp_heartbeat_progress();
        err = bp_signals_stop_asked()
                  ? bp_fail_stopped("while words were counted, at %s; the same command goes on",
                                    stream->where)
                  : stream->read(stream->context, at, n, tokens);
        for (int64_t k = 0; k < n && err == BP_OK; k++)
            counts[tokens[k]]++;
        at += n;
    }
    bp_free(tokens);
    return err;
}

/* Workspace of a group, once code lengths are known. */
static bp_err make_vocabulary(bp_learner *self, int64_t *counts, const char *where)
{
    bp_err err = w2v_vocabulary_make(&self->vocabulary, counts, &self->shape, self->eod_id,
                                     self->sample, where);
    w2v_group *group = &self->group;

    if (err != BP_OK)
        return err;
    w2v_group_init(group, &self->shape, &self->vocabulary);
    self->dots = bp_alloc("word2vec.group", group->target_capacity, sizeof *self->dots);
    self->scratch = bp_alloc("word2vec.group", group->target_capacity, sizeof *self->scratch);
    if (w2v_sizes_of(&self->shape)->mode == W2V_CBOW)
        self->mean = bp_alloc("word2vec.group", group->unit_capacity * self->width, sizeof(float));
    self->error =
        bp_alloc("word2vec.group", group->unit_capacity * self->width, sizeof *self->error);
    return BP_OK;
}

static bp_err survey(bp_learner *self, const bp_learner_stream *stream)
{
    int64_t V = self->shape.vocab_size;
    double *sums = bp_alloc("word2vec.count", V, sizeof *sums); /* exact below 2^53 */
    int64_t *counts;
    bp_err err = bp_agree(self->comm, count_share(self, stream, sums));

    if (err != BP_OK) {
        bp_free(sums);
        return err;
    }
    bp_all_sum_double(sums, V, self->comm);
    counts = bp_alloc("word2vec.vocabulary", V, sizeof *counts);
    for (int64_t id = 0; id < V; id++) {
        counts[id] = (int64_t)sums[id];
        if (self->counts) {
            self->counts[2 * id] = (float)(counts[id] / (int64_t)W2V_COUNT_SPLIT);
            self->counts[2 * id + 1] = (float)(counts[id] % (int64_t)W2V_COUNT_SPLIT);
        }
    }
    bp_free(sums);
    return bp_agree(self->comm, make_vocabulary(self, counts, stream->where));
}

static bp_err loaded(bp_learner *self)
{
    int64_t V = self->shape.vocab_size;
    int64_t *counts = bp_alloc("word2vec.vocabulary", V, sizeof *counts);

    for (int64_t id = 0; id < V && self->counts; id++)
        counts[id] = (int64_t)self->counts[2 * id] * (int64_t)W2V_COUNT_SPLIT +
                     (int64_t)self->counts[2 * id + 1];
    bp_bcast_bytes(counts, V * (int64_t)sizeof *counts, 0, self->comm);
    return bp_agree(self->comm, make_vocabulary(self, counts, "the checkpoint"));
}

/* ---- values ---- */

/* Source: the original tool's: inputs uniform in [-0.5, 0.5] / width, outputs 0. */
static void initialise(bp_learner *self)
{
    bp_rng_key key = bp_rng_key_of(self->seed, BP_RNG_INIT, 0, 0, 0);
    int64_t C = self->shape.width, first = (int64_t)self->lanes * self->rank;

    for (int64_t id = 0; id < self->shape.vocab_size; id++)
        for (int64_t k = 0; k < self->width; k++) {
            int64_t column = k / self->lanes * BP_ROW_LANES + first + k % self->lanes;
            double draw = bp_rng_uniform(&key, (uint64_t)(id * C + column));

            self->input[id * self->width + k] =
                column < C ? (float)((draw - 0.5) / (double)C) : 0.0F;
        }
}

static bp_slice table_slice(const bp_learner *self, const char *name, float *data)
{
    bp_slice slice = {
        .dims = 3,
        .shape = {self->shape.vocab_size, w2v_padded(&self->shape) / BP_ROW_LANES, BP_ROW_LANES},
        .offset = {0, 0, (int64_t)self->lanes * self->rank},
        .data = data};

    (void)snprintf(slice.name, sizeof slice.name, "%s", name);
    memcpy(slice.extent, slice.shape, sizeof slice.extent);
    slice.extent[2] = self->lanes;
    return slice;
}

static bp_slice *slices(bp_learner *self, int64_t *count)
{
    bp_slice *list = bp_alloc("word2vec.slices", 3, sizeof *list);

    *count = 0;
    if (self->lanes > 0) {
        list[(*count)++] = table_slice(self, BP_WORD2VEC_INPUT, self->input);
        list[(*count)++] = table_slice(self, BP_WORD2VEC_OUTPUT, self->output);
    }
    if (self->counts)
        list[(*count)++] = (bp_slice){.name = BP_WORD2VEC_COUNTS,
                                      .dims = 2,
                                      .shape = {self->shape.vocab_size, 2},
                                      .extent = {self->shape.vocab_size, 2},
                                      .data = self->counts};
    return list;
}

/* Word vectors fit any output; the vectors of a tree's nodes fit only that tree. */
static bp_slice *slices_to_begin(bp_learner *self, const bp_checkpoint *from, int64_t *count)
{
    bp_slice *list = slices(self, count);
    bp_model_shape known;
    bool words = bp_model_shape_read_as(&known, self->shape.family, bp_checkpoint_state(from),
                                        bp_checkpoint_folder(from)) == BP_OK &&
                 w2v_sizes_of(&known)->output == W2V_NEGATIVE &&
                 w2v_sizes_of(&self->shape)->output == W2V_NEGATIVE &&
                 bp_checkpoint_has(from, BP_WORD2VEC_OUTPUT);

    *count = self->lanes == 0 ? 0 : words ? 2 : 1;
    return list;
}

/* ---- a group ---- */

static bp_row_list rows_of(const bp_learner *self, float *table, const int32_t *ids, int64_t count)
{
    return (bp_row_list){
        .table = table, .width = self->width, .lanes = self->lanes, .ids = ids, .count = count};
}

static bp_row_list targets_of(const bp_learner *self, const w2v_unit *unit)
{
    return rows_of(self, self->output, self->group.targets + unit->first_target,
                   unit->end_target - unit->first_target);
}

static bp_row_list inputs_of(const bp_learner *self, const w2v_unit *unit)
{
    return rows_of(self, self->input, self->group.inputs + unit->first_input,
                   unit->end_input - unit->first_input);
}

/* The input of products: a word's vector in place, or the mean of a window's. */
static const float *vector_of(const bp_learner *self, int64_t number)
{
    const w2v_unit *unit = &self->group.units[number];

    return w2v_sizes_of(&self->shape)->mode == W2V_CBOW
               ? self->mean + number * self->width
               : self->input + self->group.inputs[unit->first_input] * self->width;
}

static void fill(float weights[2 * W2V_WINDOW_MOST], int64_t count, float value)
{
    for (int64_t k = 0; k < count; k++)
        weights[k] = value;
}

static void take_means(bp_learner *self)
{
    float weights[2 * W2V_WINDOW_MOST];

    for (int64_t u = 0; u < self->group.unit_count; u++) {
        bp_row_list inputs = inputs_of(self, &self->group.units[u]);
        float *mean = self->mean + u * self->width;

        fill(weights, inputs.count, 1.0F / (float)inputs.count);
        memset(mean, 0, (size_t)self->width * sizeof *mean);
        bp_rows_add_to(mean, weights, &inputs);
    }
}

/* Replaces products x by the factors of the update, rate (label - sigma(x)). The loss is -log
 * sigma(x), for noise -log sigma(-x): log(1 + exp(-|x|)) plus a linear term. A unit takes one
 * logarithm, of the product of all. */
static void take_losses(bp_learner *self, const w2v_unit *unit, float rate, bp_learner_loss *loss)
{
    double product = 1, rest = 0;

    for (int64_t k = unit->first_target; k < unit->end_target; k++) {
        double x = (double)self->dots[k], label = self->group.labels[k], e = exp(-fabs(x)),
               sigma = (x < 0 ? e : 1) / (1 + e);

        product *= 1 + e;
        rest += label > 0 ? fmax(-x, 0) : fmax(x, 0);
        self->dots[k] = rate * (float)(label - sigma);
    }
    loss->sum += log(product) + rest;
}

/* The loss of a unit whose products are complete, and the gradients of its inputs, which are kept
 * until outputs are updated: all use the old weights. */
static void finish_unit(bp_learner *self, int64_t number, float rate, bp_learner_loss *loss)
{
    const w2v_unit *unit = &self->group.units[number];
    bp_row_list targets = targets_of(self, unit);
    float *error = self->error + number * self->width;

    take_losses(self, unit, rate, loss);
    if (rate == 0)
        return;
    memset(error, 0, (size_t)self->width * sizeof *error);
    bp_rows_add_to(error, self->dots + unit->first_target, &targets);
}

static void update(bp_learner *self)
{
    const w2v_group *group = &self->group;
    float ones[2 * W2V_WINDOW_MOST];

    fill(ones, 2 * W2V_WINDOW_MOST, 1);
    for (int64_t u = 0; u < group->unit_count; u++) {
        bp_row_list targets = targets_of(self, &group->units[u]);

        bp_add_to_rows(&targets, self->dots + group->units[u].first_target, vector_of(self, u));
    }
    for (int64_t u = 0; u < group->unit_count; u++) {
        bp_row_list inputs = inputs_of(self, &group->units[u]);

        bp_add_to_rows(&inputs, ones, self->error + u * self->width);
    }
}

static void prefetch(const bp_learner *self, int64_t number)
{
    if (number < self->group.unit_count) {
        bp_row_list targets = targets_of(self, &self->group.units[number]);

        bp_prefetch_rows(&targets);
    }
}

static void run_group(bp_learner *self, float rate, bp_learner_loss *loss)
{
    w2v_group *group = &self->group;
    bool alone = self->worker_count == 1; /* a unit is finished while its rows are in the cache */

    if (w2v_sizes_of(&self->shape)->mode == W2V_CBOW)
        take_means(self);
    prefetch(self, 0);
    for (int64_t u = 0; u < group->unit_count; u++) {
        bp_row_list targets = targets_of(self, &group->units[u]);

        prefetch(self, u + 1);
        bp_row_dots(self->dots + group->units[u].first_target, vector_of(self, u), &targets);
        if (alone)
            finish_unit(self, u, rate, loss);
    }
    if (!alone)
        bp_all_sum(self->dots, group->target_count, self->scratch, self->workers);
    for (int64_t u = 0; u < group->unit_count && !alone; u++)
        finish_unit(self, u, rate, loss);
    loss->count += group->unit_count;
    if (rate > 0)
        update(self);
    w2v_group_empty(group);
}

static void run(bp_learner *self, const bp_batch *batch, const bp_learner_pass *pass,
                bp_learner_loss *loss)
{
    int64_t T = batch->stream[0].T;

    *loss = (bp_learner_loss){0};
    bp_ids_within("token", batch->stream[0].inputs, batch->B * T, 0, self->vocabulary.V);
    for (int64_t b = 0; b < batch->B && self->lanes > 0; b++) {
        bp_rng_key key =
            bp_rng_key_of(self->seed, BP_RNG_WORD2VEC, 0, pass->step, pass->first_slot + b);

        w2v_text_read(&self->text, batch->stream[0].inputs + b * T, T, self->eod_id,
                      &self->vocabulary, &key);
        for (int64_t k = 0; k < self->text.count; k++) {
            w2v_group_add(&self->group, &self->text, k, &self->shape, &self->vocabulary, &key);
            if (self->group.centres == W2V_GROUP)
                run_group(self, pass->rate, loss);
        }
    }
    if (self->group.centres > 0)
        run_group(self, pass->rate, loss);
    bp_bcast_bytes(loss, sizeof *loss, 0, self->comm);
}

const bp_learner_ops w2v_learner_ops = {.bytes = bytes,
                                        .work_bytes = work_bytes,
                                        .new = new_learner,
                                        .free = free_learner,
                                        .survey = survey,
                                        .initialise = initialise,
                                        .slices = slices,
                                        .slices_to_begin = slices_to_begin,
                                        .loaded = loaded,
                                        .run = run};
