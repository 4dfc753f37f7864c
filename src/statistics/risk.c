/* Risk and coverage by one walk from the most certain token on. */
#include "statistics/risk.h"

#include <math.h>

/* Places [0, place) have been passed, with these sums of losses. */
typedef struct risk_walk {
    int64_t total, place;
    double error, nll; /* sums of losses */
    int point;         /* the next one to be put down */
} risk_walk;

/* `count` tokens of mean losses e and n: their risks are (E + j e) / (place + j) for j = 1 ..
 * count. */
static void walk_group(bp_risk *out, risk_walk *walk, int64_t count, double e, double n)
{
    double inverses = 0; /* sum over j of 1 / (place + j) */

    for (; walk->point < BP_RISK_POINTS; walk->point++) {
        double at = (double)(walk->point + 1) * (double)walk->total / BP_RISK_POINTS;
        double inside = at - (double)walk->place;

        if (inside > (double)count)
            break;
        out->error[walk->point] = (walk->error + inside * e) / at;
        out->nll[walk->point] = (walk->nll + inside * n) / at;
    }
    for (int64_t j = 1; j <= count; j++)
        inverses += 1 / (double)(walk->place + j);
    out->area_error += (double)count * e + (walk->error - (double)walk->place * e) * inverses;
    out->area_nll += (double)count * n + (walk->nll - (double)walk->place * n) * inverses;
    walk->error += (double)count * e;
    walk->nll += (double)count * n;
    walk->place += count;
}

static int64_t weight_of(const bp_token_order *order, const int32_t *counts, int64_t i)
{
    return counts != NULL ? counts[order->owner[i] >> 1] : 1;
}

void bp_risk_of(bp_risk *out, const bp_token_order *order, const int32_t *counts)
{
    risk_walk walk = {0};
    int64_t i = 0;

    *out = (bp_risk){0};
    for (int64_t t = 0; t < order->tokens; t++)
        walk.total += weight_of(order, counts, t);
    out->tokens = walk.total;
    while (i < order->tokens) {
        float score = order->score[i];
        int64_t count = 0, wrong = 0;
        double nll = 0;

        for (; i < order->tokens && order->score[i] == score; i++) {
            int64_t weight = weight_of(order, counts, i);

            count += weight;
            wrong += weight * !(order->owner[i] & 1);
            nll += (double)weight * (double)order->nll[i];
        }
        if (count > 0)
            walk_group(out, &walk, count, (double)wrong / (double)count, nll / (double)count);
    }
    for (int k = walk.point; k < BP_RISK_POINTS; k++)
        out->error[k] = out->nll[k] = NAN;
    out->area_error /= (double)walk.total;
    out->area_nll /= (double)walk.total;
}
