/* The list of all kinds. Read by task.c and task_shape.c. */
#include "models/task/list.h"

#include "base/err.h"

#include <string.h>

#define ROW(NUMBER, name) &bp_task_##name,
static const bp_task_kind *const KINDS[] = {BP_TASK_LIST(ROW)};

const bp_task_kind *bp_task_kind_at(int64_t number)
{
    BP_ASSERT(number >= 0 && number < BP_TASK_KIND_COUNT);
    return KINDS[number];
}

const bp_task_kind *bp_task_kind_named(const char *name)
{
    for (int k = 0; k < BP_TASK_KIND_COUNT; k++)
        if (strcmp(KINDS[k]->name, name) == 0)
            return KINDS[k];
    return NULL;
}

int64_t bp_task_kind_number(const bp_task_kind *kind)
{
    int64_t number = 0;

    while (KINDS[number] != kind)
        number++;
    return number;
}
