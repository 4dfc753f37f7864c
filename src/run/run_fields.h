/* Members of status.json, run.json and lines of journals as C values. Local. */
#pragma once

#include "base/config/json.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* ---- members of objects: "", NaN and 0 if missing or of another kind ---- */

static inline const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return !text ? "" : text;
}

/* A count, bounded so that sums do not overflow even if the file was tampered with. */
static inline long long integer_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 && value < (json_int_t)1 << 48 ? value : 0;
}

static inline bool has(const json_t *object, const char *key)
{
    return json_object_get(object, key) != NULL;
}

static inline bool says(const json_t *object, const char *key, const char *text)
{
    return strcmp(text_of(object, key), text) == 0;
}

static inline void set(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

static inline void set_integer(json_t *object, const char *key, int64_t value)
{
    set(object, key, json_integer(value));
}

/* A value that is not finite is unknown, and left out. */
static inline void set_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        set(object, key, json_real(value));
    else
        (void)json_object_del(object, key);
}

/* Is the word in a NULL-ended list? */
static inline bool is_among(const char *word, const char *const *list)
{
    while (*list && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

/* ---- run.json ---- */

/* The newest of "recent_starts"; NULL if the list is empty. */
static inline json_t *last_start_of(const json_t *record)
{
    const json_t *starts = json_object_get(record, "recent_starts");

    return json_array_get(starts, json_array_size(starts) - 1);
}

/* How it ended: "running", "finished", "stopped", "failed"; "" if it is missing. */
static inline const char *end_state_of(const json_t *object)
{
    return text_of(json_object_get(object, "exit"), "state");
}
