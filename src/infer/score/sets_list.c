/* The list of a score's sets of units. Called by memory.c, setup.c and score.c. */
#include "infer/score/sets.h"

#include <string.h>

const score_set *const scorer_sets[] = {&score_task_set, &score_candidates_set, &score_states_set,
                                        &score_windows_set, NULL};

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
