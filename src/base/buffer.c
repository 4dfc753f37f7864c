/* Growing text and bytes: messages, JSON and pages are built in one. */
#include "base/buffer.h"
#include "base/err.h"
#include "base/mem.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void reserve(bp_buffer *buffer, size_t bytes)
{
    size_t need;

    if (__builtin_add_overflow(buffer->bytes, bytes, &need) || need > (size_t)INT64_MAX / 4)
        bp_memory_ended("base.buffer", INT64_MAX, 1);
    if (need < buffer->capacity_bytes)
        return;
    buffer->capacity_bytes = 2 * need + 64;
    buffer->data = bp_realloc("base.buffer", buffer->data, (int64_t)buffer->capacity_bytes, 1);
}

void bp_buffer_add(bp_buffer *buffer, const void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    reserve(buffer, bytes);
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
    BP_ASSERT(length >= 0);
    reserve(buffer, (size_t)length);
    (void)vsnprintf(buffer->data + buffer->bytes, (size_t)length + 1, format, again);
    va_end(again);
    buffer->bytes += (size_t)length;
}

char *bp_buffer_take(bp_buffer *buffer)
{
    reserve(buffer, 0);
    char *text = buffer->data;
    *buffer = (bp_buffer){0};
    return text;
}

void bp_buffer_clear(bp_buffer *buffer)
{
    bp_free(buffer->data);
    *buffer = (bp_buffer){0};
}

bp_size bp_size_text(double bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    bp_size out;
    int unit = 0;

    for (; bytes >= 1024 && unit < 5; unit++)
        bytes /= 1024;
    (void)snprintf(out.text, sizeof out.text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes,
                   units[unit]);
    return out;
}

bool bp_buffer_try_reserve(bp_buffer *buffer, const char *label, size_t bytes)
{
    if (buffer->capacity_bytes > bytes)
        return true;
    bp_buffer_clear(buffer);
    buffer->data = bp_try_alloc(label, (int64_t)bytes + 1, 1);
    buffer->capacity_bytes = buffer->data ? bytes + 1 : 0;
    return buffer->data != NULL;
}
