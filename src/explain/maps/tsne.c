/* t-SNE: affinities of neighbours, and the descent of their divergence from those on the map, by
 * Barnes and Hut's tree. Called by projection.c. */
#include "explain/maps/tree.h"

#include "base/mem.h"

#include <math.h>

#define SEARCH_STEPS 200
#define TINY         2.220446049250313e-16
#define GAIN_LEAST   0.01

/* ---- affinities ---- */

/* w[k] of a row at beta; returns their entropy. Distances are relative to the nearest, so that exp
 * does not underflow. */
static double row_entropy(double *w, const double *distance, int64_t k, double beta)
{
    double sum = 0, weighted = 0, nearest = distance[0] * distance[0];

    for (int64_t m = 0; m < k; m++) {
        double square = distance[m] * distance[m] - nearest;

        w[m] = exp(-beta * square);
        sum += w[m];
        weighted += w[m] * square;
    }
    for (int64_t m = 0; m < k; m++)
        w[m] /= sum;
    return log(sum) + beta * weighted / sum;
}

static double find_row(double *w, const double *distance, int64_t k, double perplexity)
{
    double beta = 1, least = 0, most = INFINITY, want = log(perplexity);

    for (int step = 0; step < SEARCH_STEPS; step++) {
        double entropy = row_entropy(w, distance, k, beta);

        if (entropy > want)
            least = beta;
        else
            most = beta;
        double next = isinf(most) ? 2 * beta : (least + most) / 2;
        if (next == beta)
            break;
        beta = next;
    }
    (void)row_entropy(w, distance, k, beta);
    return beta;
}

void bp_tsne_affinities(bp_edges *out, double *beta, const bp_near *near, double perplexity)
{
    double *w = bp_alloc("explain.tsne", near->n * near->k, sizeof *w);

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < near->n; i++) {
        double own = find_row(w + i * near->k, near->distance + i * near->k, near->k, perplexity);

        if (beta)
            beta[i] = own;
    }
    bp_edges_of(out, near, w, false);
    bp_free(w);
}

/* ---- the gradient ---- */

/* Attraction along a row's edges. */
static void attract(const bp_tsne *tsne, int64_t i, double exaggeration, double force[2])
{
    const bp_edges *p = tsne->p;
    const double *y = tsne->y;

    force[0] = force[1] = 0;
    for (int64_t e = p->first[i]; e < p->first[i + 1]; e++) {
        const double *other = y + 2 * (int64_t)p->to[e];
        double dx = y[2 * i] - other[0], dy = y[2 * i + 1] - other[1],
               pull = exaggeration * p->weight[e] / (1 + dx * dx + dy * dy);

        force[0] += pull * dx;
        force[1] += pull * dy;
    }
}

/* The divergence of P from the map, whose numerators sum to `all`. */
static double diverge(const bp_tsne *tsne, double all)
{
    const bp_edges *p = tsne->p;
    const double *y = tsne->y;
    double sum = 0;

    for (int64_t i = 0; i < p->n; i++)
        for (int64_t e = p->first[i]; e < p->first[i + 1]; e++) {
            const double *other = y + 2 * (int64_t)p->to[e];
            double dx = y[2 * i] - other[0], dy = y[2 * i + 1] - other[1],
                   q = 1 / (1 + dx * dx + dy * dy) / all;

            if (p->weight[e] > 0)
                sum += p->weight[e] * log(p->weight[e] / fmax(q, TINY));
        }
    return sum;
}

bp_err bp_tsne_gradient(const bp_tsne *tsne, double exaggeration, double *gradient,
                        double *divergence)
{
    int64_t n = tsne->p->n;
    double *sums = bp_alloc("explain.tsne", n, sizeof *sums), all = 0;
    bp_tree tree;
    bp_err err = bp_tree_of(&tree, tsne->y, n);

    if (err == BP_OK) {
#pragma omp parallel for schedule(dynamic, 64)
        for (int64_t i = 0; i < n; i++)
            sums[i] = bp_tree_repel(&tree, tsne->y, i, tsne->theta, gradient + 2 * i);
        for (int64_t i = 0; i < n; i++)
            all += sums[i];
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i++) {
            double force[2];

            attract(tsne, i, exaggeration, force);
            for (int c = 0; c < 2; c++)
                gradient[2 * i + c] = 4 * (force[c] - gradient[2 * i + c] / all);
        }
        if (divergence)
            *divergence = diverge(tsne, all);
    }
    bp_tree_clear(&tree);
    bp_free(sums);
    return err;
}

/* ---- the descent ---- */

static void step(const bp_tsne *tsne, double momentum, const double *gradient, double *gains,
                 double *update)
{
    for (int64_t c = 0; c < 2 * tsne->p->n; c++) {
        gains[c] = update[c] * gradient[c] < 0 ? gains[c] + 0.2 : gains[c] * 0.8;
        gains[c] = fmax(gains[c], GAIN_LEAST);
        update[c] = momentum * update[c] - tsne->rate * gains[c] * gradient[c];
        tsne->y[c] += update[c];
    }
}

/* Gains are reset in each phase. */
static bp_err run_phase(const bp_tsne *tsne, const bp_tsne_phase *phase, double *gradient,
                        double *gains, double *update)
{
    bp_err err = BP_OK;

    for (int64_t c = 0; c < 2 * tsne->p->n; c++) {
        gains[c] = 1;
        update[c] = 0;
    }
    for (int64_t s = 0; s < phase->steps && err == BP_OK; s++) {
        err = bp_tsne_gradient(tsne, phase->exaggeration, gradient, NULL);
        if (err == BP_OK)
            step(tsne, phase->momentum, gradient, gains, update);
        if (err == BP_OK)
            err = tsne->watch.look(tsne->watch.context);
    }
    return err;
}

bp_err bp_tsne_run(const bp_tsne *tsne, const bp_tsne_phase *phases, int count, double *divergence)
{
    int64_t n = tsne->p->n;
    double *work = bp_alloc("explain.tsne", 6 * n, sizeof *work);
    bp_err err = BP_OK;

    for (int k = 0; k < count && err == BP_OK; k++)
        err = run_phase(tsne, &phases[k], work, work + 2 * n, work + 4 * n);
    if (err == BP_OK)
        err = bp_tsne_gradient(tsne, 1, work, divergence);
    bp_free(work);
    return err;
}
