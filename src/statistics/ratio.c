/* Means over documents of different sizes. Called by src/explain. */
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

bp_interval bp_ratio_interval(const bp_ratio *ratio)
{
    double n = ratio->documents, mean = bp_ratio_mean(ratio), squares, error;

    if (n < BP_FEW_DOCUMENTS)
        return (bp_interval){NAN, NAN};
    squares = ratio->square - 2 * mean * ratio->cross + mean * mean * ratio->weight_square;
    error = sqrt(fmax(squares, 0) * n / (n - 1)) / ratio->weight * bp_student_quantile(n - 1);
    return (bp_interval){mean - error, mean + error};
}
