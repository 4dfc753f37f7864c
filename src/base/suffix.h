/* Ends of names. */
#pragma once

#include <stdbool.h>
#include <string.h>

/** Does `text` end in `end`? */
static inline bool bp_ends_with(const char *text, const char *end)
{
    size_t bytes = strlen(text), last = strlen(end);

    return bytes >= last && strcmp(text + bytes - last, end) == 0;
}

/** The same, after at least one character: ".json" is no name of a JSON file. */
static inline bool bp_has_suffix(const char *name, const char *suffix)
{
    return bp_ends_with(name, suffix) && strlen(name) > strlen(suffix);
}
