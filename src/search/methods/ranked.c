/* search.method=ranked: RankNAS. Trials are drawn and scored by shared weights; a ranking is
 * learned from pairs of them. Evolution by only the ranking, within search.limit, finds further
 * models to try. All trials are ordered by the ranking.
 *
 * Source: Hu et al. 2021, RankNAS: Efficient Neural Architecture Search by Pairwise Ranking. */
#include "search/methods/ranked.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "search/methods/propose.h"
#include "search/methods/shared.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define POPULATION  64
#define PARENTS     16
#define GENERATIONS 20
#define LEAST       8 /* trials that a ranking is learned from */

/* ---- features ---- */

int64_t nas_features(const nas *self, const nas_point *point, const bp_model_shape *shape,
                     double *x)
{
    int64_t d = 0;

    for (int a = 0; a < self->space.count && d + 4 <= NAS_FEATURES; a++) {
        double value = self->space.axes[a].numbers[point->at[a]];

        x[d++] = value;
        x[d++] = value > 0 ? log(value) : 0;
    }
    x[d++] = log((double)bp_model_parameters(shape));
    x[d++] = log(bp_model_train_flops(shape));
    return d;
}

void nas_feature_name(const nas *self, int64_t f, char *out, size_t bytes)
{
    int64_t axes =
        self->space.count < NAS_FEATURES / 2 - 1 ? self->space.count : NAS_FEATURES / 2 - 1;

    if (f < 2 * axes)
        snprintf(out, bytes, f % 2 == 0 ? "%s" : "log %s", self->space.axes[f / 2].key);
    else
        snprintf(out, bytes, "log %s", f == 2 * axes ? "parameters" : "FLOPs");
}

/* ---- learning ---- */

typedef struct learned {
    nas *self;
    nas_ranker *ranker;
    nas_ranker speed; /* log of tokens a second */
    double mean_speed;
} learned;

/* Rows of the trials with a finite score: features, scores, logs of speeds. */
static int64_t gather(nas *self, double *x, double *score, double *speed)
{
    int64_t n = 0, d = 0;

    for (int64_t k = 0; k < self->count; k++) {
        const nas_trial *trial = &self->trials[k];
        nas_point point;
        bp_model_shape shape;

        if (!isfinite(trial->score))
            continue;
        BP_CHECK(nas_space_find(&self->space, trial->settings, &point) &&
                 nas_shape(self, trial->settings, &shape) == BP_OK);
        d = nas_features(self, &point, &shape, x + n * d);
        speed[n] = log(trial->tokens_per_second);
        score[n++] = trial->score;
    }
    return n;
}

static bp_err learn(learned *out, nas *self)
{
    double *x = bp_alloc("search", self->count * (NAS_FEATURES + 2), sizeof *x),
           *score = x + self->count * NAS_FEATURES, *speed = score + self->count;
    int64_t n = gather(self, x, score, speed), d = 2 * (int64_t)self->space.count + 2;
    bp_err err = BP_OK;

    d = d < NAS_FEATURES ? d : NAS_FEATURES;
    if (n < LEAST)
        err = BP_FAIL(BP_ERR_CONFIG, "search.few_trials",
                      "%" PRId64 " trials have a score, and a ranking is learned from %d or more: "
                      "at search.trials; raise it, or use another method",
                      n, LEAST);
    if (err == BP_OK) {
        out->self = self;
        out->ranker = &self->ranker;
        nas_ranker_fit(&self->ranker, &(nas_ranked_models){x, score, n, d},
                       strcmp(bp_nas_keys_of(self->config)->ranker, "boosted") == 0,
                       (uint64_t)bp_run_keys_of(self->config)->seed);
        if (self->limit.tokens_per_second > 0)
            nas_regression_fit(&out->speed, &out->mean_speed, x, speed, n, d);
    }
    bp_free(x);
    return err;
}

/* ---- evolution by the ranking ---- */

typedef struct candidate {
    nas_point point;
    double utility;
} candidate;

/* Is the model valid, and within the limits as far as they are estimated? */
static bool is_candidate(const learned *by, candidate *io)
{
    const nas *self = by->self;
    char settings[NAS_SETTINGS];
    double x[NAS_FEATURES];
    bp_model_shape shape;

    BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, &io->point));
    if (nas_shape(self, settings, &shape) != BP_OK ||
        !nas_limit_takes(&self->limit, bp_model_parameters(&shape)))
        return false;
    (void)nas_features(self, &io->point, &shape, x);
    io->utility = nas_ranker_utility(by->ranker, x);
    return self->limit.tokens_per_second == 0 ||
           nas_ranker_utility(&by->speed, x) + by->mean_speed >= log(self->limit.tokens_per_second);
}

/* Inserts into the list, sorted by utility, best first, without duplicates; a full list drops its
 * last. */
static void insert(candidate *list, int64_t *count, const candidate *one)
{
    int64_t at = *count;

    for (int64_t k = 0; k < *count; k++)
        if (memcmp(&list[k].point, &one->point, sizeof one->point) == 0)
            return;
    if (at == POPULATION && !(one->utility > list[at - 1].utility))
        return;
    at = at == POPULATION ? at - 1 : (*count)++;
    for (; at > 0 && one->utility > list[at - 1].utility; at--)
        list[at] = list[at - 1];
    list[at] = *one;
}

static void breed(const learned *by, candidate *list, int64_t *count, int64_t generation)
{
    const bp_nas_keys *keys = bp_nas_keys_of(by->self->config);
    int64_t parents = *count < PARENTS ? *count : PARENTS;
    candidate best[PARENTS];

    memcpy(best, list, (size_t)parents * sizeof *best);
    for (int64_t k = 0; k < POPULATION; k++) {
        bp_rng_key key = bp_rng_key_of((uint64_t)bp_run_keys_of(by->self->config)->seed,
                                       BP_RNG_SEARCH, 0, generation * POPULATION + k, 4);
        bool crosses = bp_rng_uniform(&key, 0) < keys->crossover;
        const nas_point *one = &best[bp_rng_below(&key, 1, parents)].point,
                        *other = &best[bp_rng_below(&key, 2, parents)].point;
        candidate child = {.point = nas_child(&by->self->space, one, crosses ? other : NULL,
                                              keys->mutation, &key)};

        if (is_candidate(by, &child))
            insert(list, count, &child);
    }
}

/* Finds the best models of the space by the ranking: list[POPULATION]. Starts from the trials. */
static int64_t evolve(const learned *by, candidate *list)
{
    nas *self = by->self;
    int64_t count = 0;

    for (int64_t k = 0; k < self->count; k++) {
        candidate one = {.utility = 0};

        BP_CHECK(nas_space_find(&self->space, self->trials[k].settings, &one.point));
        if (is_candidate(by, &one))
            insert(list, &count, &one);
    }
    for (int64_t g = 0; g < GENERATIONS && count > 0; g++)
        breed(by, list, &count, g);
    return count;
}

/* ---- the search ---- */

/* Proposes the best points that are not yet trials and are admitted: their speed is measured
 * now. */
static bp_err propose_best(const learned *by, const candidate *list, int64_t count)
{
    nas *self = by->self;
    int64_t wanted = bp_nas_keys_of(self->config)->final, added = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; k < count && added < wanted && err == BP_OK; k++) {
        bool proposed;

        err = nas_propose_point(self, &list[k].point, &proposed);
        added += proposed;
    }
    return err;
}

static void order_by_ranking(const learned *by)
{
    nas *self = by->self;

    for (int64_t k = 0; k < self->count; k++) {
        nas_trial *trial = &self->trials[k];
        double x[NAS_FEATURES];
        nas_point point;
        bp_model_shape shape;

        BP_CHECK(nas_space_find(&self->space, trial->settings, &point) &&
                 nas_shape(self, trial->settings, &shape) == BP_OK);
        (void)nas_features(self, &point, &shape, x);
        trial->order = -nas_ranker_utility(by->ranker, x);
    }
}

static bp_err rank(nas *self)
{
    candidate *list = bp_alloc("search", POPULATION, sizeof *list);
    learned by = {.self = self};
    bp_err err = nas_propose_drawn(self, nas_wanted(self));

    if (err == BP_OK)
        err = nas_score_shared(self);
    if (err == BP_OK)
        err = learn(&by, self);
    if (err == BP_OK && self->mesh->coordinates)
        bp_log("a ranking of %" PRId64 " pairs: %.1f %% of held-out pairs are in the right order",
               self->ranker.pairs, 100 * self->ranker.accuracy);
    if (err == BP_OK)
        err = propose_best(&by, list, evolve(&by, list));
    if (err == BP_OK)
        err = nas_score_shared(self);
    if (err == BP_OK)
        order_by_ranking(&by);
    bp_free(list);
    return err;
}

static bp_err run(nas *self)
{
    return nas_with_shared(self, rank);
}

static void check(bp_config *config)
{
    int64_t trials = bp_nas_keys_of(config)->trials;

    if (trials < LEAST)
        bp_config_fault(config, "search.few_trials",
                        "search.trials = %" PRId64 ", and a ranking is learned from %d or more: at "
                        "search.trials; raise it, or use another method",
                        trials, LEAST);
}

const nas_method nas_ranked = {.name = "ranked", .shares = true, .check = check, .run = run};
