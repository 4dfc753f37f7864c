/* Non-negative factors of a document's MLP activations, each a set of neurons active at the same
 * positions. Called through the table of methods; Ecco (Alammar 2021) shows such factors. */
#include "explain/maps/factorise.h"
#include "explain/states/collection.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

typedef struct factors {
    const bp_explain_settings *settings;
    int64_t T, k, F, blocks;
    int64_t *layers;     /* [blocks] of MLPs, from 0 on */
    float *coefficients; /* [L][T][F] */
    double **x, **h;     /* [blocks] */
    double *w, *work;
    float *factors, *scratch; /* [k][blocks][F] */
    double before, after;     /* |X|^2 / 2, and the residual */
} factors;

/* explain.layers without the embedding, which has no MLP. */
static void find_layers(factors *self)
{
    const bp_explain_settings *settings = self->settings;

    self->layers = bp_alloc("explain.factors", settings->layer_count, sizeof *self->layers);
    for (int64_t at = 0; at < settings->layer_count; at++)
        if (settings->layers[at] > 0)
            self->layers[self->blocks++] = settings->layers[at] - 1;
}

static int rank_of(int64_t block, MPI_Comm group)
{
    int size;

    MPI_Comm_size(group, &size);
    return (int)(block % size);
}

static bool is_own(const factors *self, int64_t block)
{
    int rank;

    MPI_Comm_rank(self->settings->group, &rank);
    return rank_of(block, self->settings->group) == rank;
}

static bp_err allocate(factors *self)
{
    int64_t cells = self->T * self->F, all = self->settings->info->layers * cells,
            work = bp_factorise_work(self->T, self->k, self->blocks, self->F),
            floats = self->k * self->blocks * self->F;
    bool complete;

    self->coefficients = bp_try_alloc("explain.factors", all, sizeof *self->coefficients);
    self->x = bp_alloc("explain.factors", self->blocks, sizeof *self->x);
    self->h = bp_alloc("explain.factors", self->blocks, sizeof *self->h);
    self->w = bp_alloc("explain.factors", self->T * self->k, sizeof *self->w);
    self->work = bp_try_alloc("explain.factors", work, sizeof *self->work);
    self->factors = bp_try_alloc("explain.factors", 2 * floats, sizeof *self->factors);
    complete = self->coefficients && self->work && self->factors;
    for (int64_t b = 0; b < self->blocks && complete; b++) {
        if (!is_own(self, b))
            continue;
        self->x[b] = bp_try_alloc("explain.factors", cells, sizeof **self->x);
        self->h[b] = bp_try_alloc("explain.factors", self->k * self->F, sizeof **self->h);
        complete = self->x[b] && self->h[b];
    }
    self->scratch = complete ? self->factors + floats : NULL;
    return complete ? BP_OK : bp_fail_memory("activations of a document", all, sizeof(double));
}

static void take_activations(factors *self)
{
    int64_t cells = self->T * self->F;

    for (int64_t b = 0; b < self->blocks; b++)
        for (int64_t i = 0; self->x[b] && i < cells; i++)
            self->x[b][i] = fmax(0, (double)self->coefficients[self->layers[b] * cells + i]);
}

/* Half a normal distribution, of the mean of X; keyed by place and neuron. */
static void begin(factors *self, double mean)
{
    const bp_rng_key rows = bp_rng_key_of(0, BP_RNG_FACTORS, 0, 0, 0);
    double size = sqrt(mean / (double)self->k);

    for (int64_t i = 0; i < self->T * self->k; i++)
        self->w[i] = size * fabs(bp_rng_normal(&rows, (uint64_t)i));
    for (int64_t b = 0; b < self->blocks; b++) {
        const bp_rng_key columns = bp_rng_key_of(0, BP_RNG_FACTORS, 0, 0, 1 + self->layers[b]);

        for (int64_t i = 0; self->h[b] && i < self->k * self->F; i++)
            self->h[b][i] = size * fabs(bp_rng_normal(&columns, (uint64_t)i));
    }
}

/* The mean and the squares of X, by blocks. */
static double measure(factors *self)
{
    double *sums = bp_alloc("explain.factors", 2 * self->blocks, sizeof *sums), mean = 0;
    int64_t cells = self->T * self->F;

    for (int64_t b = 0; b < self->blocks; b++)
        for (int64_t i = 0; self->x[b] && i < cells; i++) {
            sums[2 * b] += self->x[b][i];
            sums[2 * b + 1] += self->x[b][i] * self->x[b][i] / 2;
        }
    bp_all_sum_double(sums, 2 * self->blocks, self->settings->group);
    for (int64_t b = 0; b < self->blocks; b++) {
        mean += sums[2 * b] / (double)(cells * self->blocks);
        self->before += sums[2 * b + 1];
    }
    bp_free(sums);
    return mean;
}

static bp_err factorise(factors *self)
{
    const bp_factorisation of = {.group = self->settings->group,
                                 .n = self->T,
                                 .k = self->k,
                                 .blocks = self->blocks,
                                 .width = self->F,
                                 .x = (const double *const *)self->x,
                                 .w = self->w,
                                 .h = self->h,
                                 .work = self->work};
    bp_err err = BP_OK;

    take_activations(self);
    begin(self, measure(self));
    for (int64_t s = 0; s < self->settings->keys->steps && err == BP_OK; s++) {
        bp_heartbeat_progress();
        bp_factorise_step(&of);
    }
    self->after = bp_factorise_objective(&of);
    for (int64_t b = 0; b < self->blocks; b++)
        for (int64_t f = 0; self->h[b] && f < self->k; f++)
            for (int64_t c = 0; c < self->F; c++)
                self->factors[(f * self->blocks + b) * self->F + c] =
                    (float)self->h[b][f * self->F + c];
    bp_all_sum(self->factors, self->k * self->blocks * self->F, self->scratch,
               self->settings->group);
    return err;
}

/* Positions, factors, residual, tokens, W, H. */
static void add(const factors *self, const bp_explained *document, bp_buffer *out)
{
    const int32_t sizes[] = {(int32_t)self->T, (int32_t)self->k};
    const float rest[] = {(float)self->before, (float)self->after};

    bp_buffer_add(out, sizes, sizeof sizes);
    bp_buffer_add(out, rest, sizeof rest);
    bp_buffer_add(out, document->inputs, (size_t)self->T * sizeof *document->inputs);
    for (int64_t i = 0; i < self->T * self->k; i++) {
        float w = (float)self->w[i];

        bp_buffer_add(out, &w, sizeof w);
    }
    bp_buffer_add(out, self->factors,
                  (size_t)(self->k * self->blocks * self->F) * sizeof *self->factors);
}

static void clear(factors *self)
{
    for (int64_t b = 0; b < self->blocks; b++) {
        bp_free(self->x ? self->x[b] : NULL);
        bp_free(self->h ? self->h[b] : NULL);
    }
    bp_free(self->x);
    bp_free(self->h);
    bp_free(self->w);
    bp_free(self->work);
    bp_free(self->factors);
    bp_free(self->coefficients);
    bp_free(self->layers);
}

static bp_err collect(bp_model *model, const bp_explain_settings *settings,
                      const bp_explained *document, bp_buffer *out)
{
    int64_t T = document->T, k = settings->keys->factors;
    factors self = {.settings = settings, .T = T, .k = k < T ? k : T, .F = settings->info->keys};
    bp_err err;

    find_layers(&self);
    err = bp_agree(settings->group, allocate(&self));
    if (err == BP_OK)
        err = bp_explain_coefficients(model, settings, document, self.coefficients);
    if (err == BP_OK)
        err = factorise(&self);
    if (err == BP_OK && out)
        add(&self, document, out);
    clear(&self);
    return err;
}

/* ---- the file ---- */

typedef struct writer {
    const bp_explain_collection *all;
    bp_h5 *h5;
    int64_t k, columns; /* factors, neurons */
    int64_t rows;       /* of all documents so far */
    int64_t *starts;    /* [documents + 1] */
    double left, whole;
} writer;

static bp_err count_rows(writer *self)
{
    bp_err err = BP_OK;

    for (int64_t d = 0; d < self->all->documents && err == BP_OK; d++) {
        const char *data;
        size_t bytes;
        int32_t T = 0;

        err = self->all->read(self->all, d, &data, &bytes);
        if (err == BP_OK && bytes >= sizeof T)
            memcpy(&T, data, sizeof T);
        self->starts[d + 1] = self->starts[d] + T;
    }
    return err;
}

/* Missing factors of a short document are 0. */
static bp_err write_document(writer *self, int64_t d)
{
    const char *data;
    size_t bytes;
    int32_t sizes[2];
    bp_err err = self->all->read(self->all, d, &data, &bytes);

    if (err != BP_OK || bytes == 0)
        return err;
    memcpy(sizes, data, sizeof sizes);
    const float *rest = (const float *)(const void *)data + 2, *w = rest + 2 + sizes[0],
                *h = w + (int64_t)sizes[0] * sizes[1];
    float *rows = bp_alloc("explain.factors", self->k * (sizes[0] + self->columns), sizeof *rows),
          *neurons = rows + self->k * sizes[0];
    for (int64_t i = 0; i < (int64_t)sizes[0] * sizes[1]; i++)
        rows[i / sizes[1] * self->k + i % sizes[1]] = w[i];
    memcpy(neurons, h, (size_t)(sizes[1] * self->columns) * sizeof *h);
    err = bp_h5_write_slab(self->h5, "w", BP_H5_F32, self->starts[d] * self->k, rows,
                           self->k * sizes[0]);
    if (err == BP_OK)
        err = bp_h5_write_slab(self->h5, "h", BP_H5_F32, d * self->k * self->columns, neurons,
                               self->k * self->columns);
    if (err == BP_OK)
        err = bp_h5_write_slab(self->h5, "input", BP_H5_U32, self->starts[d], rest + 2, sizes[0]);
    if (err == BP_OK)
        err = bp_h5_write_slab(self->h5, "left", BP_H5_F32, d, &(float){rest[1] / rest[0]}, 1);
    self->whole += (double)rest[0];
    self->left += (double)rest[1];
    bp_free(rows);
    return err;
}

static bp_err make(const writer *self)
{
    int64_t documents = self->all->documents, rows = self->starts[documents];
    const int64_t w[] = {rows, self->k}, h[] = {documents * self->k, self->columns};
    bp_err err = bp_explain_write_layers(self->h5, self->all->settings);

    if (err == BP_OK)
        err = bp_h5_write(self->h5, "place_start", BP_H5_I64, self->starts, documents + 1);
    if (err == BP_OK)
        err = bp_h5_make(self->h5, "input", BP_H5_U32, rows);
    if (err == BP_OK)
        err = bp_h5_make(self->h5, "left", BP_H5_F32, documents);
    if (err == BP_OK)
        err = bp_h5_make_array(self->h5, "w", BP_H5_F32, 2, w, NULL);
    if (err == BP_OK)
        err = bp_h5_make_array(self->h5, "h", BP_H5_F32, 2, h, NULL);
    return err;
}

static bp_err merge(const bp_explain_collection *all, bp_h5 *h5, json_t *figures)
{
    const bp_explain_settings *settings = all->settings;
    int64_t blocks = settings->layer_count - (settings->layers[0] == 0);
    writer self = {.all = all,
                   .h5 = h5,
                   .k = settings->keys->factors,
                   .columns = blocks * settings->info->keys,
                   .starts = bp_alloc("explain.factors", all->documents + 1, sizeof(int64_t))};
    bp_err err = count_rows(&self);

    if (err == BP_OK)
        err = make(&self);
    for (int64_t d = 0; d < all->documents && err == BP_OK; d++)
        err = write_document(&self, d);
    (void)json_object_set_new(figures, "factors", json_integer(self.k));
    (void)json_object_set_new(figures, "left",
                              self.whole > 0 ? json_real(self.left / self.whole) : json_null());
    bp_free(self.starts);
    return err;
}

/* Activations, twice and in double, and factors. */
static int64_t floats_of(const bp_explain_sizes *sizes)
{
    return 4 * sizes->layers * sizes->T * sizes->keys +
           8 * sizes->factors * sizes->layers * (sizes->keys + sizes->T);
}

/* Factors of a pair would mix the positions of both texts. */
static const char *lacks(const bp_model_info *info)
{
    return info->reads_source ? "its predictions have two texts" : bp_explain_lacks_keys(info);
}

const bp_explain_method bp_explain_factors = {
    .name = "factors",
    .title = "Factors of MLP activations",
    .help = "is what activations of MLPs have in common, as non-negative factors",
    .lacks = lacks,
    .collect = collect,
    .merge = merge,
    .of_keys = true,
    .floats = floats_of};
