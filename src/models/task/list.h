/* All kinds of tasks: one line per kind, with the name of its number. */
#pragma once

#include "models/task/kind.h"

/** NAME.c defines bp_task_NAME. The first is a language model: no task. */
#define BP_TASK_LIST(TASK)                                                                         \
    TASK(NONE, none)                                                                               \
    BP_TASK_LIST_ASKED(TASK)                                                                       \
    TASK(VECTORS, vectors)
/** The values of task.kind. */
#define BP_TASK_LIST_ASKED(TASK)                                                                   \
    TASK(CLASSES, classes)                                                                         \
    TASK(REGRESSION, regression)                                                                   \
    TASK(TAGS, tags)                                                                               \
    TASK(SPANS, spans)                                                                             \
    TASK(TEXT, text)

#define BP_TASK_NUMBER(NUMBER, name)  BP_TASK_##NUMBER,
#define BP_TASK_DECLARE(NUMBER, name) extern const bp_task_kind bp_task_##name;
enum { BP_TASK_LIST(BP_TASK_NUMBER) BP_TASK_KIND_COUNT };
BP_TASK_LIST(BP_TASK_DECLARE)

/** "classes|regression|...": the choices of task.kind. */
#define BP_TASK_WORD(NUMBER, name) "|" #name
#define BP_TASK_CHOICES            (&BP_TASK_LIST_ASKED(BP_TASK_WORD)[1])
