/* explain_gradients MODEL...: the derivatives of ln p along random directions of a model's word
 * vectors, by bp_model_ops.differentiate and by central differences of forward passes, a line a
 * direction, for test_explain.py. */
#include "base/mem.h"
#include "base/rng.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "models/open.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH = 10, DIRECTIONS = 4 };
#define STEP 0.01F /* of a vector's length */

/* A window and, for a model that reads one, its source. */
typedef struct window {
    bp_model *model;
    bp_model_batch batch;
    int32_t inputs[LENGTH], targets[LENGTH], sources[LENGTH], source_length;
    float *own, *moved, *direction, *gradient; /* [2 LENGTH][E]: of inputs, then of sources */
    float scratch[LENGTH];                     /* ln p by place */
} window;

static int32_t token(const window *self, uint64_t k)
{
    bp_rng_key key = bp_rng_key_of(3, BP_RNG_TEST, 0, 0, 0);

    return (int32_t)(bp_rng_uniform(&key, k) * (double)self->model->info.vocab_size);
}

static void fill(window *self)
{
    int64_t context = self->model->info.context, E = self->model->info.vector_width,
            T = context > 0 && context < LENGTH ? context : LENGTH;
    float *scratch = bp_alloc("test", T * E, sizeof *scratch);

    for (int64_t t = 0; t < T; t++) {
        self->inputs[t] = token(self, (uint64_t)t);
        self->targets[t] = t % 3 == 1 ? token(self, (uint64_t)t + 100) : -1;
        self->sources[t] = token(self, (uint64_t)t + 200);
    }
    self->batch = (bp_model_batch){
        .windows = 1, .length = T, .inputs = self->inputs, .targets = self->targets};
    for (int k = 0; k < 4; k++) {
        float **at[] = {&self->own, &self->moved, &self->direction, &self->gradient};

        *at[k] = bp_alloc("test", 2 * LENGTH * E, sizeof(float));
    }
    self->model->ops->look_up(self->model, false, self->inputs, T, self->own, scratch);
    if (self->model->info.reads_source) {
        self->source_length = (int32_t)T;
        self->batch.sources = self->sources;
        self->batch.source_lengths = &self->source_length;
        self->batch.source_length = T;
        self->model->ops->look_up(self->model, true, self->sources, T, self->own + LENGTH * E,
                                  scratch);
        self->batch.source_vectors = self->moved + LENGTH * E;
    }
    self->batch.vectors = self->moved;
    bp_free(scratch);
}

/* The sum of ln p(target), `step` along the direction. */
static double value(window *self, float step, bp_err *err)
{
    int64_t values = 2 * LENGTH * self->model->info.vector_width;
    double sum = 0;

    for (int64_t i = 0; i < values; i++)
        self->moved[i] = self->own[i] + step * self->direction[i];
    if (*err == BP_OK)
        *err = bp_model_score(self->model, &self->batch, self->scratch);
    for (int64_t t = 0; t < self->batch.length; t++)
        sum += self->targets[t] >= 0 ? (double)self->scratch[t] : 0;
    return sum;
}

/* A direction as long as the vectors. */
static void draw(window *self, int d)
{
    bp_rng_key key = bp_rng_key_of(4, BP_RNG_TEST, d, 0, 0);
    int64_t E = self->model->info.vector_width;

    for (int64_t t = 0; t < 2 * LENGTH; t++) {
        double square = 0;

        for (int64_t e = 0; e < E; e++)
            square += (double)self->own[t * E + e] * (double)self->own[t * E + e];
        for (int64_t e = 0; e < E; e++)
            self->direction[t * E + e] =
                (float)(bp_rng_normal(&key, (uint64_t)(t * E + e)) * sqrt(square / (double)E));
    }
}

static bp_err compare(window *self)
{
    int64_t E = self->model->info.vector_width;
    bp_err err = BP_OK;

    fill(self);
    (void)value(self, 0, &err);
    if (err == BP_OK)
        err = self->model->ops->differentiate(self->model, &self->batch, self->gradient,
                                              self->gradient + LENGTH * E);
    for (int d = 0; d < DIRECTIONS && err == BP_OK; d++) {
        double along = 0, above, below;

        draw(self, d);
        for (int64_t i = 0; i < 2 * LENGTH * E; i++)
            along += (double)self->gradient[i] * (double)self->direction[i];
        above = value(self, STEP, &err);
        below = value(self, -STEP, &err);
        printf("%.9g %.9g\n", along, (above - below) / (2 * (double)STEP));
    }
    bp_free(self->gradient);
    bp_free(self->direction);
    bp_free(self->moved);
    bp_free(self->own);
    return err;
}

int main(int count, char **words)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    static const bp_mesh_shape one = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_config *config = NULL;
    bp_mesh *mesh = NULL;
    bp_err err = bp_mpi_start(&count, &words);

    if (err == BP_OK)
        err = bp_config_new(&config, tables, tables);
    if (err == BP_OK)
        err = bp_config_set(config, "math.precision", "f32");
    if (err == BP_OK)
        err = bp_mesh_new(&mesh, MPI_COMM_WORLD, &one);
    for (int k = 1; k < count && err == BP_OK; k++) {
        window at = {.source_length = 0};

        err = bp_model_open_differentiable(&at.model, mesh, config, words[k], 0);
        if (err == BP_OK)
            err = compare(&at);
        bp_model_free(&at.model);
    }
    if (err != BP_OK)
        fprintf(stderr, "%s\n", bp_err_text());
    bp_mesh_free(&mesh);
    bp_config_free(&config);
    bp_mpi_finish();
    return err == BP_OK ? 0 : 1;
}
