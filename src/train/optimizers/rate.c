/* The schedule of the learning rate. Called by engine.c before each update. */
#include "train/optimizers/rate.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

/* The share of the peak, above `least`, that is left in a step after warmup; u: the share of the
 * steps after warmup that is done. */
static double cosine_left(const bp_rate *rate, int64_t step, double u)
{
    (void)rate, (void)step;
    return (1 + cos(M_PI * u)) / 2;
}

static double linear_left(const bp_rate *rate, int64_t step, double u)
{
    (void)rate, (void)step;
    return 1 - u;
}

static double inverse_sqrt_left(const bp_rate *rate, int64_t step, double u)
{
    (void)u;
    return sqrt((double)(rate->warmup > 1 ? rate->warmup : 1) / (double)step);
}

typedef struct decay_row {
    const char *name;
    double (*left)(const bp_rate *rate, int64_t step, double u); /* NULL: all of the peak */
} decay_row;

#define constant_left            NULL
#define DECAY_ROW(NUMBER, name_) [BP_DECAY_##NUMBER] = {#name_, name_##_left},
static const decay_row decays[BP_DECAYS] = {BP_DECAY_LIST(DECAY_ROW)};

bp_rate_decay bp_rate_decay_of(const char *name)
{
    int decay = 0;

    while (strcmp(name, decays[decay].name) != 0) {
        decay++;
        BP_ASSERT(decay < BP_DECAYS);
    }
    return (bp_rate_decay)decay;
}

double bp_rate_at(const bp_rate *rate, int64_t step)
{
    const decay_row *row = &decays[rate->decay];
    double u;

    if (step <= rate->warmup)
        return rate->peak * (double)step / (double)rate->warmup;
    if (!row->left)
        return rate->peak;
    u = (double)(step - 1 - rate->warmup) / (double)(rate->steps - rate->warmup);
    return rate->peak * (rate->least + (1 - rate->least) * row->left(rate, step, u));
}
