/* search.method=evolution: trials come from the best ones so far, by crossover (each key of one of
 * two parents) or mutation (keys of one parent redrawn), generation by generation; the first
 * generation is random. Source: Wang et al. 2020, HAT, section 3.2, and their evolutionary
 * search. */
#include "search/methods/propose.h"

#include "base/config/run_options.h"
#include "base/mem.h"

#define ATTEMPTS 400 /* to find a new, admitted child, for each that is wanted */

/* A child of the best `parents` trials of order[]: a function of (run.seed, attempt). */
static nas_point breed(const nas *self, const int64_t *order, int64_t parents, int64_t attempt)
{
    const bp_nas_keys *keys = bp_nas_keys_of(self->config);
    bp_rng_key key =
        bp_rng_key_of((uint64_t)bp_run_keys_of(self->config)->seed, BP_RNG_SEARCH, 0, attempt, 3);
    bool crosses = bp_rng_uniform(&key, 0) < keys->crossover;
    nas_point one, other;

    BP_CHECK(nas_space_find(&self->space,
                            self->trials[order[bp_rng_below(&key, 1, parents)]].settings, &one));
    BP_CHECK(nas_space_find(&self->space,
                            self->trials[order[bp_rng_below(&key, 2, parents)]].settings, &other));
    return nas_child(&self->space, &one, crosses ? &other : NULL, keys->mutation, &key);
}

/* A generation of at most `wanted` children. */
static bp_err propose_children(nas *self, int64_t wanted, int64_t *attempt)
{
    int64_t *order = bp_alloc("search", self->count, sizeof *order), before = self->count,
            parents = bp_nas_keys_of(self->config)->population / 4,
            end = *attempt + ATTEMPTS * wanted;
    bp_err err = BP_OK;

    parents = parents < 2 ? 2 : parents;
    parents = parents < before ? parents : before;
    nas_order(self, order);
    for (; *attempt < end && self->count < before + wanted && err == BP_OK; ++*attempt) {
        nas_point child = breed(self, order, parents, *attempt);
        bool proposed;

        err = nas_propose_point(self, &child, &proposed);
    }
    bp_free(order);
    return err;
}

static bp_err evolve(nas *self)
{
    int64_t wanted = nas_wanted(self), population = bp_nas_keys_of(self->config)->population,
            attempt = 0, before = 0;
    bp_err err = nas_propose_drawn(self, population < wanted ? population : wanted);

    if (err == BP_OK)
        err = nas_score_all(self);
    while (err == BP_OK && self->count < wanted && self->count > before) {
        int64_t left = wanted - self->count;

        before = self->count;
        err = propose_children(self, left < population ? left : population, &attempt);
        if (err == BP_OK)
            err = nas_score_all(self);
    }
    return err;
}

static bp_err run(nas *self)
{
    return nas_run_by_key(self, evolve);
}

const nas_method nas_evolution = {.name = "evolution", .run = run};
