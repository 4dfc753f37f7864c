/* The heads of a CSV table's columns: a list of names. Local: no MPI. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct column_heads {
    char **names; /* [count] bp_names_free() */
    int64_t count;
} column_heads;

/** Takes the name. */
void column_heads_add(column_heads *all, char *name);
/** Adds a name that no column has: one that is taken becomes "label_NAME". */
void column_heads_add_label(column_heads *all, const char *name);
/** Names [first, end), as CSV on standard output. */
void column_heads_put(const column_heads *all, int64_t first, int64_t end);
