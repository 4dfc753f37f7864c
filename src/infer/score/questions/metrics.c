/* The metrics of a question, from the log-probabilities of its options. Called by questions.c, on
 * the coordinator. */
#include "infer/score/questions/questions_priv.h"

#include "base/mem.h"

#include <math.h>

static double logprob_of(const question_results *r, int64_t row)
{
    return r->set->rows.rows[row].scored > 0 ? r->rows[row].logprob : NAN;
}

/* The criterion for an option. */
static double value_of(const question_results *r, const bp_question *q, int64_t option, int way)
{
    const bp_candidate_row *row = &r->set->rows.rows[q->first + option];
    double logprob = logprob_of(r, q->first + option);

    switch (way) {
    case QUESTION_ACC_NORM:
        return logprob / (double)row->bytes;
    case QUESTION_ACC_CHARACTER:
        return logprob / (double)r->set->characters[q->first + option];
    case QUESTION_ACC_TOKEN:
        return logprob / (double)row->scored;
    case QUESTION_ACC_MUTUAL:
        return q->bare < 0 ? NAN : logprob - logprob_of(r, q->bare + option);
    default:
        return logprob;
    }
}

/* The first of equal ones; -1 if no option has a value. */
static int64_t best_by(const question_results *r, const bp_question *q, int way)
{
    int64_t best = -1;
    double most = NAN;

    for (int64_t k = 0; k < q->options; k++) {
        double value = value_of(r, q, k, way);

        if (!isnan(value) && (best < 0 || value > most)) {
            best = k;
            most = value;
        }
    }
    return best;
}

/* How many options are as good as the best one by summed log-probability, with it. */
static void find_ties(question_metrics *out, const question_results *r, const bp_question *q)
{
    double most = logprob_of(r, q->first + out->best);
    bool answers = false;

    for (int64_t k = 0; k < q->options; k++) {
        bool equal = logprob_of(r, q->first + k) == most;

        out->tied += equal;
        answers = answers || (equal && k == q->answer);
    }
    out->shared = answers ? 1 / (double)out->tied : 0;
}

/* The softmax of the options' log-probabilities: of member m, or of the model if m is -1. An option
 * without one has 0. Returns the logarithm of the denominator. */
static double softmax(double *p, const question_results *r, const bp_question *q, int64_t member)
{
    double most = -INFINITY, sum = 0;

    for (int64_t k = 0; k < q->options; k++) {
        int64_t row = q->first + k;

        p[k] = isnan(logprob_of(r, row)) ? -INFINITY
               : member < 0              ? r->rows[row].logprob
                                         : r->of_members[row * r->members + member];
        most = fmax(most, p[k]);
    }
    for (int64_t k = 0; k < q->options; k++)
        sum += p[k] = isinf(most) ? 0 : exp(p[k] - most);
    for (int64_t k = 0; k < q->options; k++)
        p[k] = sum > 0 ? p[k] / sum : 0;
    return most + log(sum);
}

static double entropy_of(const double *p, int64_t count)
{
    double sum = 0;

    for (int64_t k = 0; k < count; k++)
        sum -= p[k] > 0 ? p[k] * log(p[k]) : 0;
    return sum;
}

/* For the options' softmax by member: that of the mean less the mean of each. Source: Depeweg et
 * al. 2018 (arXiv:1710.07283), eq. 8. */
static void disagree(question_metrics *out, const question_results *r, const bp_question *q)
{
    double *p = bp_alloc("score.questions", 2 * q->options, sizeof *p), *mean = p + q->options;
    double expected = 0;

    for (int64_t m = 0; m < r->members; m++) {
        (void)softmax(p, r, q, m);
        expected += entropy_of(p, q->options) / (double)r->members;
        for (int64_t k = 0; k < q->options; k++)
            mean[k] += p[k] / (double)r->members;
    }
    out->total_entropy = entropy_of(mean, q->options);
    out->mutual_information = fmax(out->total_entropy - expected, 0);
    bp_free(p);
}

static void calibrate(question_metrics *out, const question_results *r, const bp_question *q)
{
    double *p = bp_alloc("score.questions", q->options, sizeof *p),
           denominator = softmax(p, r, q, -1);

    out->confidence = p[out->best];
    out->nll = denominator - logprob_of(r, q->first + q->answer); /* NaN if it has none */
    out->brier = 0;
    for (int64_t k = 0; k < q->options; k++)
        out->brier += pow(p[k] - (k == q->answer), 2);
    bp_free(p);
}

void question_measure(question_metrics *out, const question_results *r, int64_t question)
{
    const bp_question *q = &r->set->questions[question];
    const choice_result *first = &r->rows[q->first];

    *out = (question_metrics){.best = best_by(r, q, QUESTION_ACC),
                              .right = {NAN, NAN, NAN, NAN, NAN},
                              .shared = NAN,
                              .logprob = NAN,
                              .confidence = NAN,
                              .nll = NAN,
                              .brier = NAN,
                              .total_entropy = NAN,
                              .mutual_information = NAN};
    out->scored = out->best >= 0;
    if (!out->scored)
        return;
    if (q->target) {
        out->logprob = first->logprob;
        out->right[QUESTION_ACC] = first->greedy == GREEDY_UNKNOWN ? NAN : first->greedy > 0;
        return;
    }
    if (r->members > 0)
        disagree(out, r, q);
    if (q->answer < 0)
        return;
    for (int way = 0; way < QUESTION_WAYS; way++) {
        int64_t best = best_by(r, q, way);

        out->right[way] = best < 0 ? NAN : best == q->answer;
    }
    find_ties(out, r, q);
    calibrate(out, r, q);
}
