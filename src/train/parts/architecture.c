/* The architecture of a mixed cell: before each step of training its weights are updated on a batch
 * of corpus.valid, which is read as corpus.train is. What the cell is by now goes to events.jsonl.
 * Called by jobs/ensemble.c, jobs/finetune.c and jobs/pretrain.c. */
#include "train/parts/architecture.h"

#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "run/run_folder.h"
#include "train/loop/examples.h"
#include "train/loop/learning.h"
#include "train/loop/parts.h"
#include "train/parts/keys.h"
#include "train/parts/list.h"

#include <string.h>

typedef struct architecture_keys {
    int64_t order;
    double rate, decay;
} architecture_keys;

const bp_option training_architecture_options[] = {
    {BP_INT_KEY("architecture.order", "2", 1, 2),
     .help = "of the step of a mixed cell's architecture: 2 goes through a step of the weights, 1 "
             "does not",
     .at = BP_AT(architecture_keys, order)},
    {BP_REAL_KEY("architecture.lr", "3e-3", 1e-12, 1e3), .help = "its learning rate, of Adam",
     .at = BP_AT(architecture_keys, rate)},
    {BP_REAL_KEY("architecture.weight_decay", "1e-3", 0, 1e3),
     .help = "its weight decay, which is added to the gradient",
     .at = BP_AT(architecture_keys, decay)},
    {.key = NULL},
};

typedef struct architecture {
    bp_corpus *corpus; /* on leads, as what follows */
    bp_stream *stream;
    bp_loader *loader;
    void *buffer;  /* a batch of this data rank */
    float *memory; /* of a second-order step; NULL */
    double loss;   /* of the last step, before its update */
} architecture;

static const architecture_keys *keys_of(const trainer *self)
{
    return bp_config_bound(self->config, training_architecture_options);
}

int64_t bp_architecture_order(const trainer *self)
{
    return keys_of(self)->order;
}

static bool searches(const trainer *self)
{
    return self->shape.family == &bp_cell_family && bp_cell_graph_of(&self->shape).mixed;
}

static bp_err open_architecture(trainer *self, void **own)
{
    (void)self;
    *own = bp_alloc("train.architecture", 1, sizeof(architecture));
    return BP_OK;
}

/* A cell that a search has found may be trained with the search's keys. A normalisation over one
 * sequence leaves nothing. */
static bp_err ready(trainer *self, void *own)
{
    (void)own;
    if (self->shape.family != &bp_cell_family)
        return keys_refuse(self, training_architecture_options, "architecture.");
    if (!searches(self))
        return BP_OK;
    if (!self->facts.has_valid)
        return BP_FAIL(BP_ERR_CONFIG, "architecture.no_valid",
                       "model.cell = mixed is searched on a validation corpus, and there is none: "
                       "at corpus.valid; set it");
    if (self->spec.micro_batch < 2)
        return BP_FAIL(BP_ERR_CONFIG, "architecture.one_sequence",
                       "model.cell = mixed normalises over the sequences of a micro-batch, and "
                       "mesh.micro_batch = 1: at mesh.micro_batch; set it to 2 or more");
    return BP_OK;
}

/* ---- memory ---- */

static size_t loader_bytes(const trainer *self, int data_ranks)
{
    bp_example_maker maker = trainer_maker(self, self->shape.context);

    return bp_loader_bytes(
        &(bp_loader_size){.tokens = self->facts.valid_tokens,
                          .slots = bp_trainer_slots(self, &self->spec, data_ranks),
                          .batch = self->spec.batch,
                          .maker = &maker});
}

/* Groups are filled up to whole blocks of the norm. */
static bp_err bytes_of(const trainer *self, const void *own, const bp_mesh_shape *mesh, int stage,
                       size_t *bytes)
{
    int64_t most = bp_model_parameters(&self->shape) + 4096 * 4 * bp_model_blocks(&self->shape);
    bp_example_maker maker;

    (void)own;
    (void)stage;
    *bytes = 0;
    if (!searches(self))
        return BP_OK;
    maker = trainer_maker(self, self->shape.context);
    *bytes = loader_bytes(self, mesh->data) +
             bp_batch_bytes(&maker.form, bp_trainer_slots(self, &self->spec, mesh->data));
    if (keys_of(self)->order == 2)
        *bytes += 2 * (size_t)most * sizeof(float);
    return BP_OK;
}

/* ---- a step ---- */

static bp_err open_loader(const trainer *self, architecture *a)
{
    bp_loader_spec spec = {.maker = trainer_maker(self, self->shape.context),
                           .batch = self->spec.batch,
                           .seed = self->spec.seed,
                           .in_sequence = true};
    bp_err err = bp_corpus_open(&a->corpus, bp_corpus_keys_of(self->config)->valid);

    if (err == BP_OK)
        err = bp_stream_new(&a->stream, &(bp_stream_spec){.corpus = a->corpus});
    if (err == BP_OK)
        err = bp_stream_check(a->stream, self->shape.context);
    spec.stream = a->stream;
    bp_engine_slots(self->engine, &spec.first_slot, &spec.slots);
    return err == BP_OK ? bp_loader_new(&a->loader, &spec) : err;
}

static bp_err allocate(const trainer *self, architecture *a)
{
    bp_example_maker maker = trainer_maker(self, self->shape.context);
    int64_t first, slots;

    bp_engine_slots(self->engine, &first, &slots);
    a->buffer = bp_try_alloc("input", (int64_t)bp_batch_bytes(&maker.form, slots), 1);
    if (keys_of(self)->order == 2)
        a->memory = bp_try_alloc("train.architecture", bp_engine_search_floats(self->engine),
                                 sizeof(float));
    if (!a->buffer || (keys_of(self)->order == 2 && !a->memory))
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at the search of a cell; use architecture.order=1");
    return self->data.leads ? open_loader(self, a) : BP_OK;
}

static bp_err build(trainer *self, void *own)
{
    bp_err err = BP_OK;

    if (!searches(self))
        return BP_OK;
    if (self->mesh->computes)
        err = allocate(self, own);
    return bp_agree(self->mesh->world, err);
}

static bp_err before_step(trainer *self, void *own, const bp_batch *batch)
{
    architecture *a = own;
    const architecture_keys *keys = keys_of(self);
    bp_example_maker maker;
    bp_batch valid;
    const void *examples = a->buffer;
    bp_err err = BP_OK;

    if (!searches(self))
        return BP_OK;
    if (self->data.leads)
        err = bp_loader_read(a->loader, self->progress.step + 1, &examples);
    err = bp_agree(self->mesh->compute, err);
    if (err != BP_OK)
        return err;
    maker = trainer_maker(self, self->shape.context);
    bp_bcast_bytes((void *)(uintptr_t)examples, (int64_t)bp_batch_bytes(&maker.form, batch->B), 0,
                   self->mesh->model); /* the lead's are only read */
    valid = bp_batch_over(&maker.form, batch->B, examples);
    bp_engine_search(self->engine,
                     &(bp_architecture_step){.step = self->progress.step + 1,
                                             .train = batch,
                                             .valid = &valid,
                                             .second_order = keys->order == 2,
                                             .rate = keys->rate,
                                             .decay = keys->decay,
                                             .memory = a->memory},
                     &a->loss);
    return BP_OK;
}

/* ---- what the cell is ---- */

/* One stage has the weights. */
void bp_architecture_cell(const trainer *self, double *weights, char cell[BP_CELL_TEXT])
{
    bp_cell_graph graph = bp_cell_graph_of(&self->shape);
    const bp_param *param = bp_engine_searched(self->engine);
    int64_t count = bp_cell_graph_edges(&graph) * BP_NODE_OPERATIONS;

    for (int64_t i = 0; i < count; i++)
        weights[i] = param ? (double)param->value[i] : 0;
    bp_all_sum_double(weights, count, self->mesh->pipeline);
    bp_cell_derive(&graph, weights, cell);
}

static bp_err tell(trainer *self, void *own)
{
    const architecture *a = own;
    int64_t step = self->progress.step;
    bp_cell_graph graph;
    double weights[BP_CELL_MIX];
    char cell[BP_CELL_TEXT];
    json_t *list;

    if (!searches(self) ||
        (step % bp_train_keys_of(self->config)->log_every != 0 && step != self->spec.rate.steps))
        return BP_OK;
    graph = bp_cell_graph_of(&self->shape);
    bp_architecture_cell(self, weights, cell);
    list = json_array();
    for (int k = 0; k < bp_cell_graph_edges(&graph) * BP_NODE_OPERATIONS; k++)
        (void)json_array_append_new(list, bp_json_real(weights[k]));
    bp_part_report(self, &training_architecture,
                   json_pack("{s:I, s:o, s:s, s:o}", "step", (json_int_t)step, "valid_loss",
                             bp_json_real(a->loss), "cell", cell, "weights", list));
    return BP_OK;
}

static bp_err receive(trainer *self, void *own, const json_t *value)
{
    (void)own;
    if (json_integer_value(json_object_get(value, "step")) == self->spec.rate.steps)
        bp_log("the cell: model.cell=%s", json_string_value(json_object_get(value, "cell")));
    return bp_run_event(self->run, "architecture", value);
}

static void close_architecture(void *own)
{
    architecture *a = own;

    bp_loader_free(&a->loader);
    bp_stream_free(&a->stream);
    bp_corpus_close(&a->corpus);
    bp_free(a->buffer);
    bp_free(a->memory);
    bp_free(a);
}

const bp_training_part training_architecture = {
    .name = "architecture",
    .memory = "weights kept beside a second-order step of a cell's architecture, and its batch",
    .open = open_architecture,
    .bytes = bytes_of,
    .at = {[PART_READY] = ready, [PART_BUILD] = build, [PART_STEPPED] = tell},
    .before_step = before_step,
    .receive = receive,
    .close = close_architecture,
};
