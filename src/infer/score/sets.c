/* The list of a score's sets of units. Called by memory.c, setup.c and score.c. */
#include "infer/score/sets.h"

#include "mesh/collective.h"

#include <string.h>

const score_set *const scorer_sets[] = {&score_task_set, &score_candidates_set, &score_states_set,
                                        &score_windows_set, NULL};

int scorer_next_set(const scorer *self, int k)
{
    while (scorer_sets[++k])
        if (scorer_sets[k]->is_asked(self))
            return k;
    return -1;
}

void *scorer_own(const scorer *self, const score_set *set)
{
    int k = 0;

    while (scorer_sets[k] != set)
        k++;
    return self->own[k];
}

bp_err scorer_open_sets(scorer *self)
{
    bp_err err = BP_OK;

    for (int k = -1; err == BP_OK && (k = scorer_next_set(self, k)) >= 0;)
        if (scorer_sets[k]->open)
            err = scorer_sets[k]->open(self, &self->own[k]);
    return err;
}

void scorer_close_sets(scorer *self)
{
    for (int k = 0; scorer_sets[k]; k++)
        if (self->own[k])
            scorer_sets[k]->close(self->own[k]);
}

int64_t scorer_sets_bytes(const bp_work_models *models, int64_t inputs)
{
    int64_t bytes = 0;

    for (int k = 0; scorer_sets[k]; k++)
        bytes += scorer_sets[k]->bytes ? scorer_sets[k]->bytes(models, inputs) : 0;
    return bytes;
}

void scorer_list_files(const char *names[SCORE_FILES_MOST + 1])
{
    int count = 0;

    for (int k = 0; scorer_sets[k]; k++)
        for (const score_file *file = scorer_sets[k]->files; file && file->name; file++) {
            bool listed = false;

            for (int i = 0; i < count; i++)
                listed = listed || strcmp(names[i], file->name) == 0;
            BP_ASSERT(count < SCORE_FILES_MOST);
            if (!listed)
                names[count++] = file->name;
        }
    names[count] = NULL;
}

bool scorer_writes(const scorer *self, const char *file)
{
    for (int k = -1; (k = scorer_next_set(self, k)) >= 0;)
        for (const score_file *one = scorer_sets[k]->files; one && one->name; one++)
            if (strcmp(file, one->name) == 0 && (!one->is_written || one->is_written(self)))
                return true;
    return false;
}
