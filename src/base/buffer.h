/* Text that grows: printf into the end of a string. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bp_buffer { /* {0} is an empty one */
    char *data;            /* ends with a zero byte; NULL while nothing was added */
    size_t bytes;          /* without it */
    size_t capacity_bytes;
} bp_buffer;

/** Reserve `bytes` in all, so that adding up to that size allocates nothing. The content is lost
 * if the buffer must grow. False: out of memory, and the buffer is empty. `label`: as in
 * base/mem.h. */
bool bp_buffer_try_reserve(bp_buffer *buffer, const char *label, size_t bytes);
void bp_buffer_add(bp_buffer *buffer, const void *data, size_t bytes);
void bp_buffer_printf(bp_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The text, now the caller's (bp_free), "" when nothing was added. Empties the buffer. */
char *bp_buffer_take(bp_buffer *buffer);
void bp_buffer_clear(bp_buffer *buffer);

/** A number of bytes for people: bp_size_text(1610612736).text is "1.5 GiB". */
typedef struct bp_size {
    char text[32];
} bp_size;
bp_size bp_size_text(double bytes);
