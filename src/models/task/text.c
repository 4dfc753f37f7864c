/* Text: a target is generated for a source, by the language model's head. */
#include "models/task/list.h"

#include <stddef.h>

static const char *const KEYS[] = {"task.separator", NULL};

const bp_task_kind bp_task_text = {.name = "text",
                                   .keys = KEYS,
                                   .ends = 1,
                                   .texts = "documents",
                                   .labelled = "tokens",
                                   .prediction = "token"};
