/* The figures of a question set: by task, by group, of all. Called by questions.c, on the
 * coordinator. */
#include "infer/score/questions/questions_priv.h"

#include "base/config/json.h"
#include "base/mem.h"
#include "statistics/calibration.h"
#include "statistics/resample.h"

#include <math.h>

enum { PERPLEXITY = QUESTION_WAYS, ECE, NLL, BRIER, TOTAL_ENTROPY, MUTUAL_INFORMATION, FIGURES };

static const char *const NAMES[FIGURES] = {
    "acc", "acc_norm", "acc_token", "acc_mutual",    "acc_character",     "perplexity",
    "ece", "nll",      "brier",     "total_entropy", "mutual_information"};

/* The questions of a set of figures. */
typedef struct sample {
    int64_t count;
    const question_metrics **of; /* [count], borrowed */
} sample;

/* The weighted mean of the known values. */
typedef struct mean {
    double sum, weight;
} mean;

static void add(mean *to, double value, double times)
{
    if (isnan(value))
        return;
    to->sum += times * value;
    to->weight += times;
}

static double value_of(const mean *of)
{
    return of->weight > 0 ? of->sum / of->weight : NAN;
}

/* known: the number of questions of a figure; may be NULL. */
static void compute(double *values, int64_t *known, const int32_t *counts, const sample *all)
{
    mean means[FIGURES] = {0};
    bp_calibration sums = {0};

    for (int64_t k = 0; k < all->count; k++) {
        const question_metrics *of = all->of[k];
        double times = counts ? counts[k] : 1;

        for (int way = 0; way < QUESTION_WAYS; way++)
            add(&means[way], of->right[way], times);
        add(&means[PERPLEXITY], -of->logprob, times);
        add(&means[NLL], of->nll, times);
        add(&means[BRIER], of->brier, times);
        add(&means[TOTAL_ENTROPY], of->total_entropy, times);
        add(&means[MUTUAL_INFORMATION], of->mutual_information, times);
        if (!counts) /* no interval from its resamples */
            bp_calibration_add(&sums, (float)of->confidence, of->right[QUESTION_ACC] > 0, of->nll,
                               of->brier);
    }
    for (int f = 0; f < FIGURES; f++) {
        values[f] = value_of(&means[f]);
        if (known)
            known[f] = (int64_t)means[f].weight;
    }
    values[PERPLEXITY] = exp(values[PERPLEXITY]);
    values[ECE] = bp_calibration_ece(&sums);
}

static void resampled(double *values, const int32_t *const *counts, const void *data)
{
    compute(values, NULL, counts[0], data);
}

/* Wilson's of shares; of others from resamples of the questions; none of the ECE, whose resamples
 * are biased (statistics/calibration.h). */
static bp_interval interval_of(const double *resamples, double value, int64_t known, int f)
{
    bp_interval interval = {NAN, NAN};

    if (f < QUESTION_WAYS && known >= BP_FEW_DOCUMENTS)
        return bp_wilson_interval(value, known);
    if (f >= QUESTION_WAYS && f != ECE)
        (void)bp_interval_of(&interval, resamples + f, BP_RESAMPLES, FIGURES, known);
    return interval;
}

/* Where best options are equal: how many questions have such, and the accuracy if each of them
 * counts as a part of a right answer. */
static void add_ties(json_t *out, const sample *all)
{
    int64_t ties = 0;
    mean shared = {0};

    for (int64_t k = 0; k < all->count; k++) {
        ties += all->of[k]->tied > 1;
        add(&shared, all->of[k]->shared, 1);
    }
    if (ties == 0)
        return;
    (void)json_object_set_new(out, "ties", json_integer((json_int_t)ties));
    (void)json_object_set_new(out, "acc_ties_shared", bp_json_real(value_of(&shared)));
}

/* Resamples of one kind of questions, with targets or without them, so that the intervals of some
 * questions do not depend on what others are beside them: values[BP_RESAMPLES][FIGURES]. */
static void resample(double *values, const sample *all, bool targets, uint64_t seed)
{
    sample some = {.of = bp_alloc("score.questions", all->count, sizeof *some.of)};
    const bp_bootstrap spec = {.seed = seed,
                               .resamples = BP_RESAMPLES,
                               .groups = 1,
                               .documents = &some.count,
                               .width = FIGURES};

    for (int64_t k = 0; k < all->count; k++)
        if (!isnan(all->of[k]->logprob) == targets)
            some.of[some.count++] = all->of[k];
    if (some.count < 2 || bp_bootstrap_run(values, &spec, resampled, &some) != BP_OK)
        for (int i = 0; i < BP_RESAMPLES * FIGURES; i++)
            values[i] = NAN;
    bp_free(some.of);
}

static json_t *figures_of(const sample *all, uint64_t seed)
{
    double *values = bp_alloc("score.questions", BP_RESAMPLES * FIGURES, sizeof *values),
           *of_targets = bp_alloc("score.questions", BP_RESAMPLES * FIGURES, sizeof *of_targets);
    double whole[FIGURES];
    int64_t known[FIGURES];
    json_t *out = json_pack("{sI}", "questions", (json_int_t)all->count);

    compute(whole, known, NULL, all);
    resample(values, all, false, seed);
    resample(of_targets, all, true, seed);
    for (int f = 0; f < FIGURES; f++) {
        if (isnan(whole[f]))
            continue;
        bp_interval interval =
            interval_of(f == PERPLEXITY ? of_targets : values, whole[f], known[f], f);

        (void)json_object_set_new(out, NAMES[f],
                                  json_pack("{so so so sI}", "value", bp_json_real(whole[f]), "low",
                                            bp_json_real(interval.low), "high",
                                            bp_json_real(interval.high), "questions",
                                            (json_int_t)known[f]));
    }
    add_ties(out, all);
    bp_free(of_targets);
    bp_free(values);
    return out;
}

/* Task -1: all; group -1: all of the task. NULL if there are no questions. */
static json_t *figures_where(const bp_question_set *set, const question_metrics *metrics,
                             uint64_t seed, int64_t task, int64_t group)
{
    sample all = {.of = bp_alloc("score.questions", set->count, sizeof *all.of)};
    json_t *out = NULL;

    for (int64_t k = 0; k < set->count; k++)
        if ((task < 0 || set->questions[k].task == task) &&
            (group < 0 || set->questions[k].group == group))
            all.of[all.count++] = &metrics[k];
    if (all.count > 0)
        out = figures_of(&all, seed);
    bp_free(all.of);
    return out;
}

static json_t *groups_of(const bp_question_set *set, const question_metrics *metrics, uint64_t seed,
                         int64_t task)
{
    json_t *groups = json_object();
    bool *seen = bp_alloc("score.questions", set->names, sizeof *seen);

    for (int64_t k = 0; k < set->count; k++)
        if (set->questions[k].task == task && set->questions[k].group >= 0)
            seen[set->questions[k].group] = true;
    for (int64_t g = 0; g < set->names; g++)
        if (seen[g])
            (void)json_object_set_new(groups, set->name[g],
                                      figures_where(set, metrics, seed, task, g));
    bp_free(seen);
    return groups;
}

json_t *question_figures(const bp_question_set *set, const question_metrics *metrics, uint64_t seed)
{
    json_t *tasks = json_object();

    for (int64_t t = 0; t < set->names; t++) {
        json_t *task = figures_where(set, metrics, seed, t, -1);

        if (!task)
            continue;
        json_t *groups = groups_of(set, metrics, seed, t);

        if (json_object_size(groups) > 0)
            (void)json_object_set(task, "groups", groups);
        json_decref(groups);
        (void)json_object_set_new(tasks, set->name[t], task);
    }
    return json_pack("{so so}", "all", figures_where(set, metrics, seed, -1, -1), "tasks", tasks);
}
