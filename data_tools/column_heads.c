/* Heads of columns. Called by surprisal.c. */
#include "column_heads.h"

#include "base/mem.h"
#include "file_tool.h"
#include "table/scores.h"

#include <stdio.h>
#include <string.h>

void column_heads_add(column_heads *all, char *name)
{
    all->names = bp_realloc("tool.words", all->names, all->count + 1, sizeof *all->names);
    all->names[all->count++] = name;
}

static bool has_head(const column_heads *all, const char *name)
{
    for (int64_t k = 0; k < all->count; k++)
        if (strcmp(all->names[k], name) == 0)
            return true;
    return false;
}

void column_heads_add_label(column_heads *all, const char *name)
{
    char *own = bp_strdup(name);

    while (has_head(all, own)) {
        char *longer = bp_sprintf("label_%s", own);

        bp_free(own);
        own = longer;
    }
    column_heads_add(all, own);
}

void column_heads_put(const column_heads *all, int64_t first, int64_t end)
{
    for (int64_t k = first; k < end; k++) {
        if (k > 0)
            putchar(',');
        put_csv(stdout, all->names[k], SIZE_MAX);
    }
}
