/* No task: a language model. */
#include "models/task/list.h"

#include <stddef.h>

static const char *const KEYS[] = {NULL};

const bp_task_kind bp_task_none = {.name = "none",
                                   .keys = KEYS,
                                   .ends = 1,
                                   .texts = "documents",
                                   .labelled = "tokens",
                                   .prediction = "token"};
