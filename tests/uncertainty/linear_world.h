/* What tests of the Laplace approximation share: a language model whose state is a table's row for
 * the token before, with a last matrix split over tensor ranks, and a corpus for it. For one
 * program: include bp_test_mpi.h first. */
#pragma once

#include "base/rng.h"
#include "data/toy_corpus.h"
#include "infer/score/score.h"
#include "math/math.h"
#include "models/model.h"
#include "uncertainty/methods/laplace/laplace.h"

#include <math.h>
#include <signal.h>

#define WORLD MPI_COMM_WORLD

#ifndef LINEAR_VOCABULARY
#define LINEAR_VOCABULARY 11
#define LINEAR_WIDTH      5
#endif
enum { V = LINEAR_VOCABULARY, C = LINEAR_WIDTH, EOD = V - 1, DOCUMENTS = 40 };

static int64_t lengths[DOCUMENTS];
static const toy_corpus toy = {
    .documents = DOCUMENTS, .lengths = lengths, .vocab_size = V, .eod_id = EOD};

/* Writes FOLDER/toy.h5. Collective over WORLD. */
static inline void make_corpus(void)
{
    for (int64_t d = 0; d < DOCUMENTS; d++)
        lengths[d] = d * d * 7 % 61; /* one is empty */
    if (bp_comm_is_root(WORLD))
        (void)toy_write(&toy, "toy.h5");
    BP_MPI(MPI_Barrier(WORLD));
}

static inline float draw(int64_t what, int64_t row, int64_t column)
{
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, what, 0, 0);

    return (float)bp_rng_normal(&key, (uint64_t)(row * 1000 + column));
}

static inline float state_of(int32_t token, int64_t c)
{
    return draw(1, token, c);
}

static inline float weight_of(int64_t v, int64_t c)
{
    return 0.5F * draw(2, v, c);
}

typedef struct linear_lm {
    bp_model model;
    const bp_mesh *mesh;
    float weights[V * C]; /* this rank's rows */
    bool broken;          /* states are not finite */
    int64_t signal_at;    /* raise SIGUSR1 at so many batches; 0: never */
    int64_t batches;
} linear_lm;

static inline bp_err linear_backbone(bp_model *model, const bp_model_batch *batch, int64_t pass,
                                     float *hidden)
{
    linear_lm *self = (linear_lm *)model;
    bool last = self->mesh->pipeline_rank == self->mesh->pipeline_ranks - 1;

    assert_int_equal(pass, BP_MODEL_NO_DROPOUT);
    BP_MPI(MPI_Barrier(self->mesh->model)); /* collective, as a model's is */
    self->batches++;
    if (self->batches == self->signal_at)
        assert_int_equal(raise(SIGUSR1), 0);
    if (!last) {
        assert_null(hidden); /* a stage without hidden states needs no buffer */
        return BP_OK;
    }
    for (int64_t t = 0; t < batch->windows * batch->length; t++)
        for (int64_t c = 0; c < C; c++)
            hidden[t * C + c] = self->broken ? NAN : state_of(batch->inputs[t], c);
    return BP_OK;
}

static inline void linear_logits(bp_model *model, int64_t head, const float *hidden, int64_t rows,
                                 float *logits)
{
    const linear_lm *self = (const linear_lm *)model;
    int64_t columns = model->info.vocab_count;

    assert_int_equal(head, 0);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t v = 0; v < columns; v++) {
            double sum = 0;
            for (int64_t c = 0; c < C; c++)
                sum += (double)hidden[r * C + c] * (double)self->weights[v * C + c];
            logits[r * columns + v] = (float)sum;
        }
}

static inline const float *linear_weights(const bp_model *model)
{
    return ((const linear_lm *)model)->weights;
}

static inline void linear_free(bp_model *model)
{
    bp_free(model);
}

static inline linear_lm *linear_lm_new(const bp_mesh *mesh)
{
    static const bp_model_ops ops = {.backbone = linear_backbone,
                                     .logits = linear_logits,
                                     .head_weights = linear_weights,
                                     .free = linear_free};
    linear_lm *self = bp_alloc("test", 1, sizeof *self);
    int64_t part = (V + mesh->tensor_ranks - 1) / mesh->tensor_ranks,
            first = part * mesh->tensor_rank;

    assert_non_null(self);
    first = first < V ? first : V;
    self->model = (bp_model){.ops = &ops,
                             .info = {.kind = "linear",
                                      .statistics = 1,
                                      .width = C,
                                      .vocab_first = first,
                                      .vocab_count = V - first < part ? V - first : part,
                                      .context = 16,
                                      .vocab_size = V,
                                      .eod_id = EOD,
                                      .tokenizer_hash = TOY_HASH_A,
                                      .digest = "linear"}};
    self->mesh = mesh;
    for (int64_t v = 0; v < self->model.info.vocab_count; v++)
        for (int64_t c = 0; c < C; c++)
            self->weights[v * C + c] = weight_of(first + v, c);
    return self;
}

static inline bp_config *make_config(void)
{
    static const bp_option options[] = {{.key = "run.seed", .type = BP_OPTION_INT, .value = "1"},
                                        {.key = NULL}};
    static const bp_option *const tables[] = {options, bp_laplace_method_options, bp_mesh_options,
                                              bp_math_options, NULL};
    bp_config *config;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(config, "math.precision", "f32"), BP_OK);
    return config;
}

/* A model on a mesh of `comm`, and the configuration. */
typedef struct world {
    bp_mesh *mesh;
    linear_lm *model;
    bp_config *config;
} world;

static inline void world_open(world *self, MPI_Comm comm, bp_mesh_shape shape)
{
    bp_test_expect(bp_mesh_shape_fit(&shape, bp_comm_size(comm)), BP_OK);
    bp_test_expect(bp_mesh_new(&self->mesh, comm, &shape), BP_OK);
    self->model = linear_lm_new(self->mesh);
    self->config = make_config();
}

static inline void world_close(world *self)
{
    bp_config_free(&self->config);
    bp_free(self->model);
    bp_mesh_free(&self->mesh);
}
