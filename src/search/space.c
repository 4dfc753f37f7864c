/* search.space: read, drawn from, and written as settings. Called by all methods. */
#include "search/space.h"

#include "search/methods/method.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bp_err fail(const char *what, const char *text)
{
    return BP_FAIL(BP_ERR_CONFIG, "search.bad_space",
                   "search.space %s, '%.60s': at search.space; write keys with their values, as in "
                   "model.layers=2,4; model.inner=256,512",
                   what, text);
}

/* The next part of *text up to one of `ends`, without surrounding blanks. Returns false if it is
 * too long. */
static bool next_part(char *out, size_t bytes, const char **text, const char *ends)
{
    size_t length;

    *text += strspn(*text, " \t");
    length = strcspn(*text, ends);
    const char *from = *text;
    *text += length;
    while (length > 0 && strchr(" \t", from[length - 1]))
        length--;
    if (length >= bytes)
        return false;
    memcpy(out, from, length);
    out[length] = '\0';
    return true;
}

static bp_err read_value(nas_axis *axis, const char **text)
{
    char value[NAS_VALUE_BYTES], *end;

    if (axis->count == NAS_VALUES)
        return fail("has more than 32 values of a key", axis->key);
    if (!next_part(value, sizeof value, text, ",;"))
        return fail("has a value that is longer than 39 bytes", axis->key);
    if (value[0] == '\0' || strpbrk(value, " \t="))
        return fail("has an empty value, or one with a blank or '='", axis->key);
    for (int k = 0; k < axis->count; k++)
        if (strcmp(axis->values[k], value) == 0)
            return fail("has a value twice", value);
    double number = strtod(value, &end);
    axis->numbers[axis->count] = *end == '\0' ? number : axis->count;
    memcpy(axis->values[axis->count++], value, sizeof value);
    return BP_OK;
}

static bp_err read_axis(nas_space *out, const char **text)
{
    nas_axis *axis = &out->axes[out->count];
    bp_err err = BP_OK;

    if (out->count == NAS_AXES)
        return fail("has more than 24 keys", *text);
    if (!next_part(axis->key, sizeof axis->key, text, "=;,") || axis->key[0] == '\0' ||
        **text != '=')
        return fail("lacks KEY=VALUES", axis->key[0] != '\0' ? axis->key : *text);
    for (int k = 0; k < out->count; k++)
        if (strcmp(out->axes[k].key, axis->key) == 0)
            return fail("names a key twice", axis->key);
    do {
        ++*text;
        err = read_value(axis, text);
    } while (err == BP_OK && **text == ',');
    out->count++;
    return err;
}

/* Do the settings of every point fit into a trial? */
static bp_err check_length(const nas_space *space)
{
    size_t bytes = 0;

    for (int a = 0; a < space->count; a++) {
        size_t longest = 0;

        for (int k = 0; k < space->axes[a].count; k++) {
            size_t own = strlen(space->axes[a].values[k]);

            longest = own > longest ? own : longest;
        }
        bytes += strlen(space->axes[a].key) + longest + 2;
    }
    if (bytes < NAS_SETTINGS)
        return BP_OK;
    return fail("has too many keys, with settings longer than 1023 bytes", "...");
}

bp_err nas_space_read(nas_space *out, const char *text)
{
    bp_err err = BP_OK;

    memset(out, 0, sizeof *out);
    while (text && err == BP_OK) {
        text += strspn(text, " \t;");
        if (*text == '\0')
            break;
        err = read_axis(out, &text);
    }
    return err == BP_OK ? check_length(out) : err;
}

double nas_space_points(const nas_space *space)
{
    double points = 1;

    for (int a = 0; a < space->count; a++)
        points *= space->axes[a].count;
    return fmin(points, 9007199254740992.0);
}

nas_point nas_space_point(const nas_space *space, int64_t k)
{
    nas_point point = {{0}};

    for (int a = space->count - 1; a >= 0; a--) {
        point.at[a] = (uint8_t)(k % space->axes[a].count);
        k /= space->axes[a].count;
    }
    return point;
}

nas_point nas_space_draw(const nas_space *space, const bp_rng_key *key, uint64_t first)
{
    nas_point point = {{0}};

    for (int a = 0; a < space->count; a++)
        point.at[a] = (uint8_t)bp_rng_below(key, first + (uint64_t)a, space->axes[a].count);
    return point;
}

static nas_point extreme(const nas_space *space, double sign)
{
    nas_point point = {{0}};

    for (int a = 0; a < space->count; a++)
        for (int k = 1; k < space->axes[a].count; k++)
            if (sign * space->axes[a].numbers[k] > sign * space->axes[a].numbers[point.at[a]])
                point.at[a] = (uint8_t)k;
    return point;
}

nas_point nas_space_largest(const nas_space *space)
{
    return extreme(space, 1);
}

nas_point nas_space_smallest(const nas_space *space)
{
    return extreme(space, -1);
}

bool nas_space_text(char *text, size_t bytes, const nas_space *space, const nas_point *point)
{
    size_t used = 0;

    text[0] = '\0';
    for (int a = 0; a < space->count; a++) {
        int more = snprintf(text + used, bytes - used, "%s%s=%s", a > 0 ? " " : "",
                            space->axes[a].key, space->axes[a].values[point->at[a]]);

        if (more < 0 || (size_t)more >= bytes - used)
            return false;
        used += (size_t)more;
    }
    return true;
}

bool nas_space_find(const nas_space *space, const char *settings, nas_point *out)
{
    char word[NAS_KEY_BYTES + NAS_VALUE_BYTES], known[sizeof word];

    *out = (nas_point){{0}};
    for (int a = 0; a < space->count; a++) {
        int k = 0;

        if (!next_part(word, sizeof word, &settings, " "))
            return false;
        for (; k < space->axes[a].count; k++) {
            snprintf(known, sizeof known, "%s=%s", space->axes[a].key, space->axes[a].values[k]);
            if (strcmp(known, word) == 0)
                break;
        }
        if (k == space->axes[a].count)
            return false;
        out->at[a] = (uint8_t)k;
    }
    return *settings == '\0';
}

bp_err nas_settings_set(bp_config *config, const char *settings)
{
    char key[NAS_SETTINGS], value[NAS_SETTINGS];
    bp_err err = BP_OK;

    while (err == BP_OK && *settings != '\0') {
        BP_ASSERT(next_part(key, sizeof key, &settings, "=") && *settings == '=');
        settings++;
        BP_ASSERT(next_part(value, sizeof value, &settings, " "));
        settings += strspn(settings, " ");
        err = bp_config_set(config, key, value);
    }
    return err;
}
