/* LIME's samples and its weighted ridge regression. Called by methods/surrogate.c. */
#include "explain/perturbation/surrogate.h"

#include "base/mem.h"
#include "explain/perturbation/regression.h"

#include <math.h>
#include <string.h>

#define WIDTH       25.0 /* of the kernel */
#define PENALTY     1.0
#define CHOOSING    0.01                /* the penalty by which many features are chosen */
#define ONE_BY_ONE  6                   /* features chosen one by one */
#define BLOCKS_EACH ((uint64_t)1 << 24) /* draws that a sample may use */

void explain_surrogate_draw(explain_masks *out, const bp_rng_key *key)
{
    int64_t M = out->features;

    memset(out->kept, 1, (size_t)(out->samples * M));
    for (int64_t s = 1; s < out->samples && M > 0; s++) {
        uint64_t at = (uint64_t)s * BLOCKS_EACH;
        int64_t left_out = 1 + bp_rng_below(key, at++, M);
        uint8_t *kept = out->kept + s * M;

        /* Floyd's sample: of [0, j] one that is new, else j itself */
        for (int64_t j = M - left_out; j < M; j++) {
            int64_t f = bp_rng_below(key, at++, j + 1);

            kept[kept[f] ? f : j] = 0;
        }
    }
}

/* ---- the regression ---- */

typedef struct fit {
    const explain_masks *masks;
    const double *values;
    double *weight;      /* [samples] */
    double *mean;        /* [features] weighted */
    double *x;           /* [features] of a sample, only those used, without means */
    double *beta;        /* [features] */
    const int64_t *used; /* [count] */
    int64_t count;
    double total, middle; /* of weights; the values' weighted mean */
    double r2;
} fit;

static void begin(fit *self)
{
    int64_t N = self->masks->samples, M = self->masks->features;

    for (int64_t s = 0; s < N; s++) {
        const uint8_t *kept = self->masks->kept + s * M;
        int64_t there = 0;

        for (int64_t f = 0; f < M; f++)
            there += kept[f];
        double distance = 100 * (1 - (M > 0 ? sqrt((double)there / (double)M) : 1));

        self->weight[s] = sqrt(exp(-distance * distance / (WIDTH * WIDTH)));
        self->total += self->weight[s];
        self->middle += self->weight[s] * self->values[s];
        for (int64_t f = 0; f < M; f++)
            self->mean[f] += self->weight[s] * kept[f];
    }
    self->middle /= self->total;
    for (int64_t f = 0; f < M; f++)
        self->mean[f] /= self->total;
}

static void take(fit *self, int64_t s)
{
    const uint8_t *kept = self->masks->kept + s * self->masks->features;

    for (int64_t j = 0; j < self->count; j++)
        self->x[j] = (double)kept[self->used[j]] - self->mean[self->used[j]];
}

/* As scikit-learn: values without spread are explained entirely or not at all. */
static double share_explained(double missed, double spread)
{
    return spread > 0 ? 1 - missed / spread : missed > 0 ? 0 : 1;
}

/* beta of the used features, and r2. */
static void solve(fit *self, const int64_t *used, int64_t count, double penalty)
{
    explain_system system;
    double missed = 0, spread = 0;

    self->used = used;
    self->count = count;
    explain_system_init(&system, count);
    memset(self->beta, 0, (size_t)count * sizeof *self->beta);
    for (int64_t s = 0; s < self->masks->samples; s++) {
        take(self, s);
        explain_system_add(&system, self->x, self->weight[s]);
        for (int64_t j = 0; j < count; j++)
            self->beta[j] += self->weight[s] * self->x[j] * (self->values[s] - self->middle);
    }
    for (int64_t j = 0; j < count; j++)
        system.matrix[j * count + j] += penalty;
    explain_system_factor(&system);
    explain_system_solve(&system, self->beta);
    explain_system_clear(&system);
    for (int64_t s = 0; s < self->masks->samples; s++) {
        double off = self->values[s] - self->middle, left = off;

        take(self, s);
        for (int64_t j = 0; j < count; j++)
            left -= self->beta[j] * self->x[j];
        missed += self->weight[s] * left * left;
        spread += self->weight[s] * off * off;
    }
    self->r2 = share_explained(missed, spread);
}

/* ---- choice of features ---- */

static int64_t choose_one_by_one(fit *self, int64_t *used, int64_t wanted)
{
    int64_t M = self->masks->features, count = 0;
    bool *taken = bp_alloc("explain.surrogate", M, sizeof *taken);

    for (; count < wanted; count++) {
        double most = -INFINITY;
        int64_t best = -1;

        for (int64_t f = 0; f < M; f++) {
            if (taken[f])
                continue;
            used[count] = f;
            solve(self, used, count + 1, 0);
            if (self->r2 > most) {
                most = self->r2;
                best = f;
            }
        }
        used[count] = best;
        taken[best] = true;
    }
    bp_free(taken);
    return count;
}

static int64_t choose_largest(fit *self, int64_t *used, int64_t wanted)
{
    int64_t M = self->masks->features, count = 0;
    double *size = bp_alloc("explain.surrogate", M, sizeof *size);

    for (int64_t f = 0; f < M; f++)
        used[f] = f;
    solve(self, used, M, CHOOSING);
    for (int64_t f = 0; f < M; f++) /* the whole text has all features */
        size[f] = fabs(self->beta[f]);
    for (; count < wanted; count++) {
        int64_t best = 0;

        for (int64_t f = 1; f < M; f++)
            best = size[f] > size[best] ? f : best;
        used[count] = best;
        size[best] = -1;
    }
    bp_free(size);
    return count;
}

static int64_t choose(fit *self, int64_t *used, int64_t wanted)
{
    int64_t M = self->masks->features;

    if (wanted > 0 && wanted < M)
        return wanted <= ONE_BY_ONE ? choose_one_by_one(self, used, wanted)
                                    : choose_largest(self, used, wanted);
    for (int64_t f = 0; f < M; f++)
        used[f] = f;
    return M;
}

void explain_surrogate_fit(explain_surrogate *out, const explain_masks *masks, const double *values,
                           int64_t wanted)
{
    int64_t M = masks->features, *used = bp_alloc("explain.surrogate", M, sizeof *used), count;
    fit self = {.masks = masks,
                .values = values,
                .weight = bp_alloc("explain.surrogate", masks->samples, sizeof(double)),
                .mean = bp_alloc("explain.surrogate", 3 * M, sizeof(double))};

    self.x = self.mean + M;
    self.beta = self.x + M;
    begin(&self);
    count = choose(&self, used, wanted);
    solve(&self, used, count, PENALTY);
    out->intercept = out->local = self.middle;
    out->r2 = self.r2;
    memset(out->weights, 0, (size_t)M * sizeof *out->weights);
    for (int64_t j = 0; j < count; j++) {
        out->weights[used[j]] = self.beta[j];
        out->intercept -= self.beta[j] * self.mean[used[j]];
        out->local += self.beta[j] * (1 - self.mean[used[j]]);
    }
    bp_free(self.mean);
    bp_free(self.weight);
    bp_free(used);
}
