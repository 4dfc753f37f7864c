/* Means over documents of different sizes. Called by src/explain and bagpipe-data compare. */
#include "statistics/ratio.h"

#include <math.h>

void bp_ratio_add(bp_ratio *ratio, double sum, double weight)
{
    if (!(weight > 0))
        return;
    ratio->sum += sum;
    ratio->weight += weight;
    ratio->square += sum * sum;
    ratio->cross += sum * weight;
    ratio->weight_square += weight * weight;
    ratio->documents += 1;
}

double bp_ratio_mean(const bp_ratio *ratio)
{
    return ratio->documents > 0 ? ratio->sum / ratio->weight : NAN;
}

/* The variance of the mean, between documents. */
static double variance_of(const bp_ratio *ratio)
{
    double n = ratio->documents, mean = bp_ratio_mean(ratio);
    double squares = ratio->square - 2 * mean * ratio->cross + mean * mean * ratio->weight_square;

    return fmax(squares, 0) * n / (n - 1) / (ratio->weight * ratio->weight);
}

bp_interval bp_ratio_interval(const bp_ratio *ratio)
{
    double n = ratio->documents, mean = bp_ratio_mean(ratio), error;

    if (n < BP_FEW_DOCUMENTS)
        return (bp_interval){NAN, NAN};
    error = sqrt(variance_of(ratio)) * bp_student_quantile(n - 1);
    return (bp_interval){mean - error, mean + error};
}

bp_interval bp_ratio_difference(const bp_ratio *a, const bp_ratio *b, double *p)
{
    double difference = bp_ratio_mean(a) - bp_ratio_mean(b), one, other, error, freedom;

    *p = NAN;
    if (a->documents < BP_FEW_DOCUMENTS || b->documents < BP_FEW_DOCUMENTS)
        return (bp_interval){NAN, NAN};
    one = variance_of(a);
    other = variance_of(b);
    error = sqrt(one + other);
    freedom = error > 0 ? (one + other) * (one + other) /
                              (one * one / (a->documents - 1) + other * other / (b->documents - 1))
                        : a->documents + b->documents - 2;
    *p = difference == 0 ? 1 : bp_student_two_sided(difference / error, freedom);
    error *= bp_student_quantile(freedom);
    return (bp_interval){difference - error, difference + error};
}
