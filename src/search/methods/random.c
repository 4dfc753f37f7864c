/* search.method=random: trials are drawn from the space, each with equal probability, none twice.
 * The baseline of every other method. Source: Li and Talwalkar 2019, Random Search and
 * Reproducibility for Neural Architecture Search. */
#include "search/methods/propose.h"

static bp_err draw(nas *self)
{
    bp_err err = nas_propose_drawn(self, nas_wanted(self));

    return err == BP_OK ? nas_score_all(self) : err;
}

static bp_err run(nas *self)
{
    return nas_run_by_key(self, draw);
}

const nas_method nas_random = {.name = "random", .run = run};
