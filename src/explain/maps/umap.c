/* UMAP: the fuzzy graph of nearest neighbours, and its layout by samples of edges. Called by
 * projection.c. */
#include "explain/maps/maps.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

#define SEARCH_STEPS 200
#define LEAST_SIGMA  1e-3         /* of the mean distance of a row */
#define NEGATIVES    5            /* points pushed away per edge */
#define A            1.5769434602 /* of min_dist = 0.1 */
#define B            0.8950608779
#define FEW_POINTS   10000
#define CLIP         4.0

/* ---- the graph ---- */

static double membership(double distance, double rho, double sigma)
{
    return distance > rho ? exp(-(distance - rho) / sigma) : 1;
}

/* sigma by which the row's memberships sum to log2 of its neighbours, including the point
 * itself. */
static double find_sigma(const double *distance, int64_t k, double rho)
{
    double want = log2((double)(k + 1)), sigma = 1, least = 0, most = INFINITY, mean = 0;

    for (int step = 0; step < SEARCH_STEPS; step++) {
        double sum = 0, next;

        for (int64_t m = 0; m < k; m++)
            sum += membership(distance[m], rho, sigma);
        if (sum > want)
            most = sigma;
        else
            least = sigma;
        next = isinf(most) ? 2 * sigma : (least + most) / 2;
        if (next == sigma || isinf(next))
            break;
        sigma = next;
    }
    for (int64_t m = 0; m < k; m++)
        mean += distance[m] / (double)(k + 1);
    return fmax(sigma, LEAST_SIGMA * mean);
}

void bp_umap_graph(bp_edges *out, double *rho, double *sigma, const bp_near *near)
{
    int64_t k = near->k;
    double *w = bp_alloc("explain.umap", near->n * k, sizeof *w);

    for (int64_t i = 0; i < near->n; i++) {
        const double *distance = near->distance + i * k;
        double nearest = 0, width;

        for (int64_t m = k - 1; m >= 0; m--)
            nearest = distance[m] > 0 ? distance[m] : nearest;
        width = find_sigma(distance, k, nearest);
        for (int64_t m = 0; m < k; m++)
            w[i * k + m] = width > 0 ? membership(distance[m], nearest, width) : 1;
        if (rho)
            rho[i] = nearest;
        if (sigma)
            sigma[i] = width;
    }
    bp_edges_of(out, near, w, true);
    bp_free(w);
}

/* ---- the layout ---- */

static double clip(double x)
{
    return x > CLIP ? CLIP : x < -CLIP ? -CLIP : x;
}

/* Both ends of an edge move towards each other. */
static void pull(double *own, double *other, double rate)
{
    double dx = own[0] - other[0], dy = own[1] - other[1], square = dx * dx + dy * dy,
           by = square > 0 ? -2 * A * B * pow(square, B - 1) / (A * pow(square, B) + 1) : 0;

    own[0] += clip(by * dx) * rate;
    own[1] += clip(by * dy) * rate;
    other[0] -= clip(by * dx) * rate;
    other[1] -= clip(by * dy) * rate;
}

static void push(double *own, const double *other, double rate)
{
    double dx = own[0] - other[0], dy = own[1] - other[1], square = dx * dx + dy * dy,
           by = square > 0 ? 2 * B / ((0.001 + square) * (A * pow(square, B) + 1)) : 0;

    own[0] += (square > 0 ? clip(by * dx) : CLIP) * rate;
    own[1] += (square > 0 ? clip(by * dy) : CLIP) * rate;
}

/* The edges of point i that are due in this epoch; those with the largest weight are due in every
 * epoch. */
static void do_point(double *y, const bp_edges *graph, int64_t i, double heaviest, int64_t epoch,
                     double rate, const bp_rng_key *key)
{
    for (int64_t e = graph->first[i]; e < graph->first[i + 1]; e++) {
        double each = graph->weight[e] / heaviest; /* samples per epoch */
        double *own = y + 2 * i;

        if (floor((double)(epoch + 1) * each) <= floor((double)epoch * each))
            continue;
        pull(own, y + 2 * (int64_t)graph->to[e], rate);
        for (int s = 0; s < NEGATIVES; s++) {
            int64_t other = bp_rng_below(key, (uint64_t)(e * NEGATIVES + s), graph->n);

            if (other != i)
                push(own, y + 2 * other, rate);
        }
    }
}

bp_err bp_umap_lay_out(double *y, const bp_edges *graph, uint64_t seed, const bp_map_watch *watch)
{
    int64_t epochs = graph->n <= FEW_POINTS ? 500 : 200;
    double heaviest = 0;
    bp_err err = BP_OK;

    for (int64_t e = 0; e < graph->first[graph->n]; e++)
        heaviest = fmax(heaviest, graph->weight[e]);
    for (int64_t epoch = 0; epoch < epochs && err == BP_OK; epoch++) {
        const bp_rng_key key = bp_rng_key_of(seed, BP_RNG_UMAP, 0, epoch, 0);
        double rate = 1 - (double)epoch / (double)epochs;

        for (int64_t i = 0; i < graph->n; i++)
            do_point(y, graph, i, heaviest, epoch, rate, &key);
        err = watch->look(watch->context);
    }
    return err;
}
