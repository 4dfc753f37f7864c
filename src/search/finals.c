/* The best trials are trained from scratch, side by side as an ensemble's members are, and the best
 * of them is the winner. Called by search.c after the method. */
#include "search/nas.h"

#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* A trial that already trained from scratch for as long needs no other training. */
static bool is_done(const nas *self, const nas_trial *trial)
{
    return trial->flops > 0 && bp_nas_keys_of(self->config)->steps == 0;
}

static bp_err train_final(nas *self, MPI_Comm group, int64_t k, nas_trial *io, void *context)
{
    char name[NAS_NAME_BYTES], folder[32];
    const nas_training what = {.settings = io->settings, .folder = folder};

    (void)context;
    nas_trial_name(k, name);
    snprintf(folder, sizeof folder, "final/%s", name);
    return nas_train(self, group, &what, &io->final_loss, &io->final_flops);
}

bp_err nas_train_finals(nas *self)
{
    int64_t *order = bp_alloc("search", 2 * self->count, sizeof *order),
            *list = order + self->count, left = 0, wanted = bp_nas_keys_of(self->config)->final;
    bp_err err;

    nas_order(self, order);
    for (int64_t i = 0; i < self->count; i++) {
        nas_trial *trial = &self->trials[order[i]];

        if (is_done(self, trial)) {
            trial->final_loss = trial->score;
            continue;
        }
        if (i < wanted && isfinite(nas_key(trial)) && isnan(trial->final_loss))
            list[left++] = order[i];
    }
    if (left > 0 && self->mesh->coordinates)
        bp_log("the best %" PRId64 " are trained from scratch", left);
    if (left > 0)
        nas_begin(self, "training the best from scratch (search/final)");
    err = nas_deal(self, list, left, train_final, NULL);
    bp_free(order);
    return err;
}

int64_t nas_winner(const nas *self)
{
    int64_t *order = bp_alloc("search", self->count, sizeof *order), best = -1;

    nas_order(self, order);
    for (int64_t i = 0; i < self->count; i++) {
        const nas_trial *trial = &self->trials[order[i]];

        if (isfinite(trial->final_loss) &&
            (best < 0 || trial->final_loss < self->trials[best].final_loss))
            best = order[i];
    }
    if (best < 0 && self->count > 0 && isfinite(nas_key(&self->trials[order[0]])))
        best = order[0];
    bp_free(order);
    return best;
}
