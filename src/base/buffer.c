#include "base/buffer.h"
#include "base/mem.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool make_room(bp_buffer *buffer, size_t bytes)
{
    size_t need;

    if (buffer->failed || __builtin_add_overflow(buffer->bytes, bytes, &need) ||
        need > (size_t)INT64_MAX / 4) {
        buffer->failed = true;
        return false;
    }
    if (need < buffer->room_bytes)
        return true;
    size_t room = 2 * need + 64;
    char *grown = bp_realloc("base.buffer", buffer->data, (int64_t)room, 1);
    if (grown == NULL) {
        buffer->failed = true;
        return false;
    }
    buffer->data = grown;
    buffer->room_bytes = room;
    return true;
}

void bp_buffer_add(bp_buffer *buffer, const void *data, size_t bytes)
{
    if (bytes == 0 || !make_room(buffer, bytes))
        return;
    memcpy(buffer->data + buffer->bytes, data, bytes);
    buffer->bytes += bytes;
    buffer->data[buffer->bytes] = 0;
}

void bp_buffer_printf(bp_buffer *buffer, const char *format, ...)
{
    va_list arguments, again;

    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0)
        buffer->failed = true;
    else if (make_room(buffer, (size_t)length)) {
        if (vsnprintf(buffer->data + buffer->bytes, (size_t)length + 1, format, again) == length)
            buffer->bytes += (size_t)length;
        else
            buffer->failed = true;
    }
    va_end(again);
}

char *bp_buffer_take(bp_buffer *buffer)
{
    char *text = NULL;

    if (!buffer->failed && make_room(buffer, 0)) {
        text = buffer->data;
        buffer->data = NULL;
    }
    bp_buffer_clear(buffer);
    return text;
}

void bp_buffer_clear(bp_buffer *buffer)
{
    bp_free(buffer->data);
    *buffer = (bp_buffer){0};
}
