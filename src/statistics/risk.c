/* Risk and coverage in one pass from the most certain token. */
#include "statistics/risk.h"

#include <math.h>

/* Places [0, place) have been passed, with these sums of losses. */
typedef struct risk_walk {
    int64_t total, place;
    double error, nll;
    int point; /* the next point to record */
    double at; /* its position, maybe within a token; after the last point, beyond all tokens */
} risk_walk;

static void next_point(risk_walk *walk)
{
    walk->at = walk->point < BP_RISK_POINTS
                   ? (double)(walk->point + 1) * (double)walk->total / BP_RISK_POINTS
                   : INFINITY;
}

/* `count` tokens with these sums of losses. With means e, the risk after j of them is
 * (error + j e) / (place + j). */
static void walk_group(bp_risk *out, risk_walk *walk, int64_t count, double error, double nll)
{
    double e = error / (double)count, n = nll / (double)count;
    double inverses = 0; /* sum over j of 1 / (place + j) */

    while (walk->at <= (double)(walk->place + count)) {
        double inside = walk->at - (double)walk->place;

        out->error[walk->point] = (walk->error + inside * e) / walk->at;
        out->nll[walk->point] = (walk->nll + inside * n) / walk->at;
        walk->point++;
        next_point(walk);
    }
    for (int64_t j = 1; j <= count; j++)
        inverses += 1 / (double)(walk->place + j);
    out->area_error += error + (walk->error - (double)walk->place * e) * inverses;
    out->area_nll += nll + (walk->nll - (double)walk->place * n) * inverses;
    walk->error += error;
    walk->nll += nll;
    walk->place += count;
}

/* The same for one token, the most common group. */
static void walk_token(bp_risk *out, risk_walk *walk, double error, double nll)
{
    if (walk->at <= (double)(walk->place + 1)) {
        walk_group(out, walk, 1, error, nll);
        return;
    }
    walk->error += error;
    walk->nll += nll;
    walk->place++;
    double inverse = 1 / (double)walk->place;
    out->area_error += walk->error * inverse;
    out->area_nll += walk->nll * inverse;
}

void bp_risk_of(bp_risk *out, const bp_token_order *order, const int32_t *counts)
{
    risk_walk walk = {.total = bp_token_order_total(order, counts)};
    int64_t i = 0;

    *out = (bp_risk){.tokens = walk.total};
    next_point(&walk);
    while (i < order->tokens && walk.total > 0) {
        float score = order->score[i];
        int64_t count = 0, wrong = 0;
        double nll = 0;

        for (; i < order->tokens && order->score[i] == score; i++) {
            int64_t weight = bp_token_order_weight(order, counts, i);

            count += weight;
            wrong += weight * !(order->owner[i] & 1);
            nll += (double)weight * (double)order->nll[i];
        }
        if (count == 1)
            walk_token(out, &walk, (double)wrong, nll);
        else if (count > 0)
            walk_group(out, &walk, count, (double)wrong, nll);
    }
    for (int k = walk.point; k < BP_RISK_POINTS; k++)
        out->error[k] = out->nll[k] = NAN;
    out->area_error /= (double)walk.total;
    out->area_nll /= (double)walk.total;
}
