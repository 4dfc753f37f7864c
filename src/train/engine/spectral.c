/* Spectral norms by power iteration, of matrices that tensor ranks may have parts of. Called by
 * engine.c after an update. */
#include "train/engine/spectral.h"

#include "base/files/hash.h"
#include "base/rng.h"
#include "base/suffix.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ITERATIONS 20
#define CHANGE     1e-4
#define LANES      8    /* parallel partial sums of a row */
#define PIECE      1024 /* columns that a thread has */

typedef struct bounded {
    bp_param *param;
    float *u; /* [rows] of the whole matrix: an estimate of the left singular vector */
} bounded;

struct bp_spectral {
    const bp_mesh *mesh;
    bounded *matrices;
    int64_t count;
    float *vectors;
    double *left, *right; /* for the longest side */
    double bound;
};

/* Matrices of layers are named like "h.0.attn.q.weight" or "h.0.mlp.up.weight". */
static bool is_bounded(const bp_group *group, const bp_param *param, const bp_task_shape *task)
{
    bool of_layer = strstr(param->name, ".attn.") || strstr(param->name, ".cross.") ||
                    strstr(param->name, ".mlp.");

    if (task->features == 0 || task->bound == 0 || group->frozen || param->dims != 2)
        return false;
    return strcmp(param->name, "pooler.weight") == 0 ||
           (!task->pooler_only && of_layer && bp_ends_with(param->name, ".weight"));
}

/* Calls `visit` for each; returns how many. */
static int64_t each_bounded(const bp_network *network, const bp_model_shape *shape, void *context,
                            void (*visit)(void *context, bp_param *param))
{
    int64_t count = 0;

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++) {
            bp_param *param = &network->groups[g].params[k];

            if (!is_bounded(&network->groups[g], param, &shape->task))
                continue;
            visit(context, param);
            count++;
        }
    return count;
}

typedef struct sizes {
    int64_t floats, longest;
} sizes;

static void add_sizes(void *context, bp_param *param)
{
    sizes *all = context;

    all->floats += param->shape[0];
    for (int axis = 0; axis < 2; axis++)
        all->longest = param->shape[axis] > all->longest ? param->shape[axis] : all->longest;
}

static void add_matrix(void *context, bp_param *param)
{
    bp_spectral *self = context;
    bounded *last = self->count > 0 ? &self->matrices[self->count - 1] : NULL;

    self->matrices[self->count++] =
        (bounded){param, last ? last->u + last->param->shape[0] : self->vectors};
}

int64_t bp_spectral_floats(const bp_network *network, const bp_model_shape *shape)
{
    sizes all = {0};

    (void)each_bounded(network, shape, &all, add_sizes);
    return all.floats;
}

static void begin_vector(const bounded *matrix, uint64_t seed)
{
    const char *name = matrix->param->name;
    bp_rng_key key =
        bp_rng_key_of(seed, BP_RNG_SPECTRAL, 0, 0, (int64_t)bp_xxh3(name, strlen(name)));

    for (int64_t i = 0; i < matrix->param->shape[0]; i++)
        matrix->u[i] = (float)bp_rng_normal(&key, (uint64_t)i);
}

void bp_spectral_new(bp_spectral **out, const bp_mesh *mesh, bp_network *network,
                     const bp_model_shape *shape, uint64_t seed)
{
    sizes all = {0};
    int64_t count = each_bounded(network, shape, &all, add_sizes);
    bp_spectral *self;

    *out = NULL;
    if (count == 0)
        return;
    self = bp_alloc("spectral", 1, sizeof *self);
    self->mesh = mesh;
    self->bound = shape->task.bound;
    self->matrices = bp_alloc("spectral", count, sizeof *self->matrices);
    self->vectors = bp_alloc("spectral", all.floats, sizeof *self->vectors);
    self->left = bp_alloc("spectral", all.longest, sizeof *self->left);
    self->right = bp_alloc("spectral", all.longest, sizeof *self->right);
    (void)each_bounded(network, shape, self, add_matrix);
    for (int64_t k = 0; k < count; k++)
        begin_vector(&self->matrices[k], seed);
    *out = self;
}

void bp_spectral_free(bp_spectral **spectral)
{
    bp_spectral *self = *spectral;

    if (!self)
        return;
    bp_free(self->matrices);
    bp_free(self->vectors);
    bp_free(self->left);
    bp_free(self->right);
    bp_free(self);
    *spectral = NULL;
}

/* ---- power iteration ---- */

/* Sums x[n] over tensor ranks, normalises it, and returns its previous length. */
static double normalise(const bp_spectral *self, const bp_param *param, double *x, int64_t n)
{
    bool whole = param->extent[0] == param->shape[0] && param->extent[1] == param->shape[1];
    double sum = 0;

    if (!whole)
        bp_all_sum_double(x, n, self->mesh->tensor);
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    sum = sqrt(sum);
    for (int64_t i = 0; i < n && sum > 0; i++)
        x[i] /= sum;
    return sum;
}

/* right = W^T left, for this rank's part. */
static void multiply_left(const bp_spectral *self, const bp_param *param)
{
    int64_t rows = param->extent[0], columns = param->extent[1];
    double *right = self->right + param->offset[1];

    memset(self->right, 0, (size_t)param->shape[1] * sizeof *self->right);
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < columns; first += PIECE) {
        int64_t end = first + PIECE < columns ? first + PIECE : columns;

        for (int64_t r = 0; r < rows; r++) {
            const float *row = param->value + r * columns;
            double left = self->left[param->offset[0] + r];

            for (int64_t c = first; c < end; c++)
                right[c] += left * (double)row[c];
        }
    }
}

static double product(const float *row, const double *x, int64_t n)
{
    double sums[LANES] = {0}, sum = 0;
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            sums[k] += (double)row[i + k] * x[i + k];
    for (int k = 0; k < LANES; k++)
        sum += sums[k];
    for (; i < n; i++)
        sum += (double)row[i] * x[i];
    return sum;
}

/* left = W right, for this rank's part. */
static void multiply_right(const bp_spectral *self, const bp_param *param)
{
    int64_t rows = param->extent[0], columns = param->extent[1];

    memset(self->left, 0, (size_t)param->shape[0] * sizeof *self->left);
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        self->left[param->offset[0] + r] =
            product(param->value + r * columns, self->right + param->offset[1], columns);
}

static double norm_of(const bp_spectral *self, const bounded *matrix)
{
    const bp_param *param = matrix->param;
    double norm = 0, before = -1;

    for (int64_t i = 0; i < param->shape[0]; i++)
        self->left[i] = (double)matrix->u[i];
    for (int k = 0; k < ITERATIONS && fabs(norm - before) > CHANGE * norm; k++) {
        before = norm;
        multiply_left(self, param);
        (void)normalise(self, param, self->right, param->shape[1]);
        multiply_right(self, param);
        norm = normalise(self, param, self->left, param->shape[0]);
    }
    for (int64_t i = 0; i < param->shape[0] && norm > 0; i++)
        matrix->u[i] = (float)self->left[i];
    return norm;
}

void bp_spectral_apply(bp_spectral *self)
{
    for (int64_t k = 0; k < self->count; k++) {
        const bp_param *param = self->matrices[k].param;
        double norm = norm_of(self, &self->matrices[k]);

        if (norm > self->bound)
            bp_scale(param->value, (float)(self->bound / norm), bp_param_floats(param));
    }
}

/* ---- checkpoints ---- */

int64_t bp_spectral_count(const bp_spectral *self)
{
    return self ? self->count : 0;
}

void bp_spectral_slices(const bp_spectral *self, bool to_save, bp_slice *slices, int64_t *used,
                        int64_t capacity)
{
    bool saves = self && self->mesh->data_rank == 0 && self->mesh->tensor_rank == 0;

    for (int64_t k = 0; k < bp_spectral_count(self) && (saves || !to_save); k++) {
        const bounded *matrix = &self->matrices[k];
        bp_slice *slice = &slices[(*used)++];

        BP_ASSERT(*used <= capacity);
        *slice = (bp_slice){.dims = 1,
                            .shape = {matrix->param->shape[0]},
                            .extent = {matrix->param->shape[0]},
                            .data = matrix->u};
        (void)snprintf(slice->name, sizeof slice->name, "spectral.u/%s", matrix->param->name);
    }
}
