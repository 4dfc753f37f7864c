/* The factors' eigenbasis, and draws in it. Called by laplace.c. */
#include "uncertainty/methods/laplace/laplace_priv.h"

#include "base/mem.h"
#include "base/rng.h"
#include "mesh/mesh.h"

#include <math.h>

#define WRITE_VALUES ((int64_t)1 << 20) /* of a sample, read and written at a time */
#define PARTS        4                  /* of a sample, between two checks for a stop request */

/* ---- the eigenbasis ---- */

static bp_err decompose(double **values, bp_distributed **vectors, bp_distributed **factor,
                        bp_grid *grid, laplace_course *course, int64_t n)
{
    bp_err err = bp_distributed_new(vectors, grid, n, n, 0);

    *values = bp_alloc("uncertainty.laplace", n, sizeof **values);
    if (err == BP_OK)
        err = bp_distributed_eigen(*factor, *values, *vectors, laplace_course_stop, course);
    if (err == BP_ERR_STOPPED)
        err = laplace_course_stopped();
    bp_distributed_free(factor);
    for (int64_t i = 0; err == BP_OK && i < n; i++)
        (*values)[i] = fmax((*values)[i], 0); /* below zero by rounding only */
    return err;
}

bp_err laplace_spectra_init(laplace_spectra *spectra, laplace_factors *factors,
                            laplace_course *course)
{
    int64_t V = course->V, C = course->C;
    bp_err err;

    *spectra = (laplace_spectra){.V = V, .C = C};
    laplace_course_step(course, LAPLACE_EIGEN);
    err = decompose(&spectra->input_values, &spectra->input_vectors, &factors->input, factors->grid,
                    course, C);
    if (err == BP_OK)
        err = decompose(&spectra->output_values, &spectra->output_vectors, &factors->output,
                        factors->grid, course, V);
    return err;
}

void laplace_spectra_clear(laplace_spectra *spectra)
{
    bp_distributed_free(&spectra->output_vectors);
    bp_distributed_free(&spectra->input_vectors);
    bp_free(spectra->output_values);
    bp_free(spectra->input_values);
    *spectra = (laplace_spectra){0};
}

/* ---- draws ---- */

typedef struct drawing {
    const laplace_draw *draw;
    bp_rng_key key;
    bp_distributed *noise, *rotated; /* [V][C] */
} drawing;

static void fill_normal(void *context, int64_t row, int64_t first, int64_t count, double *values)
{
    const drawing *self = context;
    int64_t C = self->draw->spectra->C;

    for (int64_t k = 0; k < count; k++)
        values[k] = bp_rng_normal(&self->key, (uint64_t)(row * C + first + k));
}

static void scale_by_deviation(void *context, int64_t row, int64_t first, int64_t count,
                               double *values)
{
    const drawing *self = context;
    const laplace_draw *draw = self->draw;
    double output = draw->data_tokens * draw->spectra->output_values[row];

    for (int64_t k = 0; k < count; k++)
        values[k] /= sqrt(output * draw->spectra->input_values[first + k] + draw->tau);
}

/* noise = P^(-1/2) Z: into the eigenbasis, scaled, and back, step by step; `part` counts from 0.
 * Eigenvectors are rows of `vectors`. */
static void draw_part(drawing *self, int64_t sample, int part)
{
    const laplace_spectra *spectra = self->draw->spectra;
    const bp_distributed *left = spectra->output_vectors, *right = spectra->input_vectors;
    bp_distributed *noise = self->noise, *rotated = self->rotated;

    switch (part) {
    case 0:
        self->key = bp_rng_key_of(self->draw->seed, BP_RNG_POSTERIOR, 0, sample, 0);
        bp_distributed_visit(noise, self, fill_normal);
        bp_distributed_multiply(rotated,
                                &(bp_distributed_product){.a = left, .b = noise, .alpha = 1});
        break;
    case 1:
        bp_distributed_multiply(
            noise,
            &(bp_distributed_product){.a = rotated, .b = right, .transpose_b = true, .alpha = 1});
        bp_distributed_visit(noise, self, scale_by_deviation);
        break;
    case 2:
        bp_distributed_multiply(rotated,
                                &(bp_distributed_product){.a = noise, .b = right, .alpha = 1});
        break;
    default:
        bp_distributed_multiply(
            noise,
            &(bp_distributed_product){.a = left, .b = rotated, .transpose_a = true, .alpha = 1});
    }
}

static bp_err draw_noise(drawing *self, MPI_Comm comm, int64_t sample, int64_t samples)
{
    bp_err err = BP_OK;

    for (int part = 0; part < PARTS && err == BP_OK; part++) {
        double done = (double)sample + (double)part / PARTS;

        err = bp_agree(comm, laplace_course_report(self->draw->course, done / (double)samples));
        if (err == BP_OK)
            draw_part(self, sample, part);
    }
    return err;
}

/* Rows that are read and written at a time. */
static int64_t block_of(int64_t C)
{
    return WRITE_VALUES / C > 1 ? WRITE_VALUES / C : 1;
}

/* mean[C]: that of the noise over outcomes, on the root. It moves the logits of all outcomes alike:
 * the softmax and so the curvature do not see it, the data leave it to the prior, and it would be
 * noise in the log-sum-exp of a sample (the energy). */
static void find_mean(const drawing *self, bool roots, double *rows, double *mean)
{
    int64_t V = self->draw->spectra->V, C = self->draw->spectra->C, block = block_of(C);

    for (int64_t c = 0; roots && c < C; c++)
        mean[c] = 0;
    for (int64_t first = 0; first < V; first += block) {
        int64_t count = V - first < block ? V - first : block;

        bp_distributed_read(self->noise, first, count, rows);
        for (int64_t i = 0; roots && i < count * C; i++)
            mean[i % C] += rows[i] / (double)V;
    }
}

/* Send rows of W + noise, less its mean over outcomes, to the root, which writes them. A failure to
 * write is returned after all rows have arrived. */
static bp_err write_sample(drawing *self, bp_head_samples *file, int64_t sample, double *rows,
                           double *mean, float *out)
{
    const laplace_draw *draw = self->draw;
    int64_t V = draw->spectra->V, C = draw->spectra->C, block = block_of(C);
    bp_err err = BP_OK;

    find_mean(self, file != NULL, rows, mean);
    for (int64_t first = 0; first < V; first += block) {
        int64_t count = V - first < block ? V - first : block;

        bp_distributed_read(self->noise, first, count, rows);
        if (!file || err != BP_OK)
            continue;
        for (int64_t i = 0; i < count * C; i++)
            out[i] = (float)((double)draw->weights[first * C + i] + rows[i] - mean[i % C]);
        err = bp_head_samples_write(file, sample, first, count, out);
    }
    return err;
}

static int64_t written_values(int64_t C)
{
    return WRITE_VALUES > C ? WRITE_VALUES : C;
}

int64_t laplace_draw_bytes(int64_t C)
{
    return written_values(C) * (int64_t)(sizeof(double) + sizeof(float)) +
           C * (int64_t)sizeof(double);
}

bp_err laplace_draw_samples(const laplace_draw *draw, MPI_Comm comm, bp_head_samples *file,
                            int64_t samples)
{
    int64_t V = draw->spectra->V, C = draw->spectra->C, most = written_values(C);
    double *rows = bp_alloc("uncertainty.laplace", file ? most : 1, sizeof *rows);
    double *mean = bp_alloc("uncertainty.laplace", file ? C : 1, sizeof *mean);
    float *out = bp_alloc("uncertainty.laplace", file ? most : 1, sizeof *out);
    drawing self = {.draw = draw};
    bp_err err = bp_distributed_new(&self.noise, draw->grid, V, C, 0);

    if (err == BP_OK)
        err = bp_distributed_new(&self.rotated, draw->grid, V, C, 0);
    laplace_course_step(draw->course, LAPLACE_SAMPLES);
    for (int64_t s = 0; s < samples && err == BP_OK; s++) {
        err = draw_noise(&self, comm, s, samples);
        if (err == BP_OK)
            err = bp_agree(comm, write_sample(&self, file, s, rows, mean, out));
    }
    bp_distributed_free(&self.rotated);
    bp_distributed_free(&self.noise);
    bp_free(out);
    bp_free(mean);
    bp_free(rows);
    return err;
}
