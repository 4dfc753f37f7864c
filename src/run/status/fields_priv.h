/* Members of status.json and run.json as C values. Private to src/run; local. */
#ifndef BP_RUN_STATUS_FIELDS_PRIV_H
#define BP_RUN_STATUS_FIELDS_PRIV_H

#include "base/json.h"

#include <math.h>
#include <stdint.h>

/* ---- members of objects: "", NaN and 0 where there is none, or another kind ---- */

static inline const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text == NULL ? "" : text;
}

static inline double real_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A count: files may have been tampered with, and sums of it must not overflow. */
static inline long long integer_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));

    return value > 0 && value < (json_int_t)1 << 48 ? value : 0;
}

static inline void set_integer(json_t *object, const char *key, int64_t value)
{
    (void)json_object_set_new(object, key, json_integer(value));
}

/* What is not finite is not known, and left out. */
static inline void set_real(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        (void)json_object_set_new(object, key, json_real(value));
    else
        (void)json_object_del(object, key);
}

#endif
