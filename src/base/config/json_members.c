/* JSON of which only some members are read: the others are blanked out before jansson sees them,
 * so that unread members may hold what jansson rejects (NaN, numbers beyond 64 bits, lone
 * surrogates, duplicate keys). Columns in messages stay correct. */
#include "base/config/json.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <string.h>

#define DEPTH_MOST 2048 /* jansson's */

typedef struct scanner {
    char *at, *end;
    const char *const *keys;
    int key_count;
    bp_buffer open; /* skip_value: a byte for each object ('{') or list ('[') that is open */
} scanner;

static void skip_white(scanner *self)
{
    while (self->at < self->end && strchr(" \t\r\n", *self->at) && *self->at != '\0')
        self->at++;
}

static bool is_at(scanner *self, char c)
{
    skip_white(self);
    return self->at < self->end && *self->at == c;
}

static bool take(scanner *self, char c)
{
    if (!is_at(self, c))
        return false;
    self->at++;
    return true;
}

static bool skip_string(scanner *self)
{
    if (!take(self, '"'))
        return false;
    for (; self->at < self->end && *self->at != '"'; self->at++)
        if (*self->at == '\\' && ++self->at == self->end)
            return false;
    return take(self, '"');
}

/* Any number or word. */
static bool skip_plain(scanner *self)
{
    const char *from;

    skip_white(self);
    from = self->at;
    while (self->at < self->end && *self->at != '\0' && !strchr(" \t\r\n,:\"[]{}", *self->at))
        self->at++;
    return self->at > from;
}

static bool closes(scanner *self)
{
    return self->open.bytes > 0 &&
           is_at(self, self->open.data[self->open.bytes - 1] == '{' ? '}' : ']');
}

/* At any depth. */
static bool skip_value(scanner *self)
{
    bp_buffer *open = &self->open;

    open->bytes = 0;
    do { /* at a value, or at the end of a list or object that is empty */
        bool empty = closes(self);

        if (!empty && open->bytes > 0 && open->data[open->bytes - 1] == '{' &&
            !(skip_string(self) && take(self, ':')))
            return false;
        if (!empty && (is_at(self, '{') || is_at(self, '['))) {
            bp_buffer_add(open, self->at++, 1);
            continue;
        }
        if (!empty && !(is_at(self, '"') ? skip_string(self) : skip_plain(self)))
            return false;
        while (open->bytes > 0 && !take(self, ',')) {
            if (!closes(self))
                return false;
            self->at++;
            open->bytes--;
        }
        if (closes(self))
            return false; /* after a comma */
    } while (open->bytes > 0);
    return true;
}

/* Is the key in text[bytes], in quotes, one of those that are read? */
static bool is_wanted(const scanner *self, const char *text, size_t bytes)
{
    json_t *spelled = NULL;
    bool wanted = false;

    if (memchr(text, '\\', bytes)) {
        spelled = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
        text = json_string_value(spelled);
        bytes = json_string_length(spelled);
    } else {
        text++;
        bytes -= 2;
    }
    for (int k = 0; k < self->key_count && text; k++)
        wanted =
            wanted || (strlen(self->keys[k]) == bytes && memcmp(self->keys[k], text, bytes) == 0);
    json_decref(spelled);
    return wanted;
}

static bool keep_value(scanner *self, int depth);

/* Blank a member out, with the comma after it, or the one before it. */
static bool keep_members(scanner *self, int depth)
{
    char *comma = NULL; /* after the last member that is kept */
    bool more = !take(self, '}');

    while (more) {
        char *from, *after;
        bool wanted;

        skip_white(self);
        from = self->at;
        if (!skip_string(self))
            return false;
        wanted = is_wanted(self, from, (size_t)(self->at - from));
        if (!take(self, ':') || !(wanted ? keep_value(self, depth + 1) : skip_value(self)))
            return false;
        after = self->at;
        more = take(self, ',');
        if (!more && !take(self, '}'))
            return false;
        if (wanted) {
            comma = more ? self->at - 1 : NULL;
        } else {
            if (more)
                after = self->at;
            else if (comma)
                *comma = ' ';
            for (char *c = from; c < after; c++)
                *c = *c == '\n' ? '\n' : ' '; /* line numbers in messages stay correct too */
        }
    }
    return true;
}

static bool keep_value(scanner *self, int depth)
{
    if (depth >= DEPTH_MOST)
        return false;
    if (take(self, '{'))
        return keep_members(self, depth);
    if (take(self, '[')) {
        if (take(self, ']'))
            return true;
        do
            if (!keep_value(self, depth + 1))
                return false;
        while (take(self, ','));
        return take(self, ']');
    }
    return is_at(self, '"') ? skip_string(self) : skip_plain(self);
}

json_t *bp_json_loadb(const char *text, size_t bytes, size_t flags, json_error_t *where)
{
    json_t *value = json_loadb(text, bytes, flags, where);
    char *copy;

    if (!value || memchr(text, '\0', bytes) == NULL)
        return value;
    json_decref(value);
    copy = bp_alloc("base.json", (int64_t)bytes, 1);
    for (size_t k = 0; k < bytes; k++)
        copy[k] =
            text[k] == '\0' ? '\1' : text[k]; /* jansson finds the error and reports its position */
    value = json_loadb(copy, bytes, flags, where);
    bp_free(copy);
    return value;
}

json_t *bp_json_members(const char *text, size_t bytes, size_t flags, const char *const *keys,
                        int key_count, json_error_t *where)
{
    char *copy = bp_alloc("base.json", (int64_t)bytes + 1, 1);
    scanner self = {copy, copy + bytes, keys, key_count, {0}};
    json_t *value;
    bool is_sound;

    memcpy(copy, text, bytes);
    is_sound = keep_value(&self, 0);
    skip_white(&self);
    is_sound = is_sound && self.at == self.end;
    value = bp_json_loadb(is_sound ? copy : text, bytes, flags, where);
    bp_buffer_clear(&self.open);
    bp_free(copy);
    return value;
}
