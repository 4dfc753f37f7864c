/* Proposing points of the space, and scoring them. Called by random.c, evolution.c, ranked.c. */
#include "search/propose.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "search/shared.h"

#include <inttypes.h>
#include <math.h>

#define ATTEMPTS 2000 /* at a new point that is admitted */

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

/* A space of few points: each of them is tried at most once. */
static bp_err propose_permuted(nas *self, int64_t count, int64_t points, const bp_rng_key *key)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < points && self->count < count && err == BP_OK; k++) {
        nas_point point = nas_space_point(&self->space, bp_rng_permute(key, k, points));
        bool proposed;

        err = nas_propose_point(self, &point, &proposed);
    }
    return err;
}

static bp_err propose_drawn(nas *self, int64_t count, const bp_rng_key *key)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < ATTEMPTS * count && self->count < count && err == BP_OK; k++) {
        nas_point point = nas_space_draw(&self->space, key, (uint64_t)k * NAS_AXES);
        bool proposed;

        err = nas_propose_point(self, &point, &proposed);
    }
    return err;
}

bp_err nas_propose_drawn(nas *self, int64_t count)
{
    double points = nas_space_points(&self->space);
    bp_rng_key key =
        bp_rng_key_of((uint64_t)bp_run_keys_of(self->config)->seed, BP_RNG_SEARCH, 0, 0, 1);
    bp_err err = points <= 1e6 ? propose_permuted(self, count, (int64_t)points, &key)
                               : propose_drawn(self, count, &key);

    if (err == BP_OK && self->count == 0)
        err = BP_FAIL(BP_ERR_CONFIG, "search.no_model",
                      "none of %.0f models is valid and within search.limit = %s: at "
                      "search.space; change either",
                      fmin(points, ATTEMPTS * (double)count),
                      bp_nas_keys_of(self->config)->limit ? bp_nas_keys_of(self->config)->limit
                                                          : "(none)");
    if (err == BP_OK && self->count < count)
        bp_log("the space has only %" PRId64 " models within the limits", self->count);
    return err;
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
