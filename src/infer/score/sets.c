/* Calls a score's sets of units. Called by setup.c, score.c and the sets. */
#include "infer/score/sets.h"

#include <string.h>

int scorer_next_set(const scorer *self, int k)
{
    while (self->sets && self->sets[++k])
        if (self->sets[k]->is_asked(self))
            return k;
    return -1;
}

void *scorer_own(const scorer *self, const score_set *set)
{
    int k = 0;

    while (self->sets[k] != set)
        k++;
    return self->own[k];
}

bp_err scorer_open_sets(scorer *self)
{
    bp_err err = BP_OK;

    for (int k = -1; err == BP_OK && (k = scorer_next_set(self, k)) >= 0;)
        if (self->sets[k]->open)
            err = self->sets[k]->open(self, &self->own[k]);
    return err;
}

void scorer_close_sets(scorer *self)
{
    for (int k = 0; self->sets && self->sets[k]; k++)
        if (self->own[k])
            self->sets[k]->close(self->own[k]);
}

bool scorer_writes(const scorer *self, const char *file)
{
    for (int k = -1; (k = scorer_next_set(self, k)) >= 0;)
        for (const score_file *one = self->sets[k]->files; one && one->name; one++)
            if (strcmp(file, one->name) == 0 && (!one->is_written || one->is_written(self)))
                return true;
    return false;
}
