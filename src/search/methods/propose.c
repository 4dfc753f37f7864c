/* Proposing points of the space, and scoring them. Called by random.c, evolution.c, ranked.c. */
#include "search/methods/propose.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "search/methods/shared.h"

#include <inttypes.h>

#define FEW      1e6  /* larger spaces are sampled, not enumerated */
#define ATTEMPTS 2000 /* to find a new, admitted point */

bp_err nas_propose_point(nas *self, const nas_point *point, bool *proposed)
{
    char settings[NAS_SETTINGS];
    bool admitted = false;
    bp_err err = BP_OK;

    *proposed = false;
    BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, point)); /* checked at start */
    if (nas_find(self, settings) >= 0)
        return BP_OK;
    err = nas_admit(self, settings, &admitted);
    if (err == BP_OK && admitted)
        err = nas_propose(self, settings);
    *proposed = err == BP_OK && admitted;
    return err;
}

/* The k-th point to try: a small space is enumerated, a larger one is sampled. Returns false after
 * the last one. */
static bool next_point(const nas *self, int64_t k, int64_t wanted, nas_point *out)
{
    double points = nas_space_points(&self->space);
    bp_rng_key key =
        bp_rng_key_of((uint64_t)bp_run_keys_of(self->config)->seed, BP_RNG_SEARCH, 0, 0, 1);

    if (k >= (points <= FEW ? (int64_t)points : ATTEMPTS * wanted))
        return false;
    *out = points <= FEW ? nas_space_point(&self->space, bp_rng_permute(&key, k, (int64_t)points))
                         : nas_space_draw(&self->space, &key, (uint64_t)k * NAS_AXES);
    return true;
}

static bp_err fail_no_model(const nas *self)
{
    const char *limit = bp_nas_keys_of(self->config)->limit;

    return BP_FAIL(BP_ERR_CONFIG, "search.no_model",
                   "no model of search.space is valid and within search.limit = %s: at "
                   "search.space; change either",
                   limit ? limit : "(none)");
}

bp_err nas_check_models(const nas *self)
{
    char settings[NAS_SETTINGS];
    bp_model_shape shape;
    nas_point point;

    for (int64_t k = 0; next_point(self, k, 1, &point); k++) {
        BP_CHECK(nas_space_text(settings, sizeof settings, &self->space, &point));
        if (nas_shape(self, settings, &shape) == BP_OK &&
            nas_limit_takes(&self->limit, bp_model_parameters(&shape)))
            return BP_OK;
    }
    return fail_no_model(self);
}

bp_err nas_propose_drawn(nas *self, int64_t count)
{
    bp_err err = BP_OK;
    nas_point point;

    for (int64_t k = 0; self->count < count && err == BP_OK && next_point(self, k, count, &point);
         k++) {
        bool proposed;

        err = nas_propose_point(self, &point, &proposed);
    }
    if (err == BP_OK && self->count == 0)
        err = fail_no_model(self);
    if (err == BP_OK && self->count < count)
        bp_log("the space has only %" PRId64 " models within the limits", self->count);
    return err;
}

nas_point nas_child(const nas_space *space, const nas_point *one, const nas_point *other,
                    double mutation, const bp_rng_key *key)
{
    nas_point child = *one;

    for (int a = 0; a < space->count; a++) {
        uint64_t at = 4 + 2 * (uint64_t)a;

        if (other) /* crossover */
            child.at[a] = bp_rng_below(key, at, 2) == 0 ? one->at[a] : other->at[a];
        else if (bp_rng_uniform(key, at) < mutation)
            child.at[a] = (uint8_t)bp_rng_below(key, at + 1, space->axes[a].count);
    }
    return child;
}

static bp_err train_trial(nas *self, MPI_Comm group, int64_t k, nas_trial *io, void *context)
{
    char name[NAS_NAME_BYTES], folder[32];
    const nas_training what = {
        .settings = io->settings, .folder = folder, .steps = bp_nas_keys_of(self->config)->steps};

    (void)context;
    nas_trial_name(k, name);
    snprintf(folder, sizeof folder, "trials/%s", name);
    return nas_train(self, group, &what, &io->score, &io->flops);
}

bp_err nas_score_all(nas *self)
{
    if (self->is_shared)
        return nas_score_shared(self);
    return nas_score(self, 0, self->count, train_trial, NULL);
}

bp_err nas_run_by_key(nas *self, bp_err (*body)(nas *self))
{
    return bp_nas_keys_of(self->config)->shared ? nas_with_shared(self, body) : body(self);
}
