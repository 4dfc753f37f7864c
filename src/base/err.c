/* The message of this thread's last failure, and how a program prints it and ends. */
#include "base/err.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char message[BP_ERR_MESSAGE_BYTES];

static char program[32] = "bagpipe";
static void (*assert_handler)(int status);
static void (*err_witness)(int status, const char *line);
static int assert_rank = -1;

#define STOPPED "stopped: "

/* A longer line loses its middle: its head says what failed, its tail where, and the remedy. */
#define CUT_MARK   " ... "
#define TAIL_BYTES 150
#define HEAD_BYTES (BP_ERR_LINE_BYTES - TAIL_BYTES - (sizeof(CUT_MARK) - 1))

static size_t width(char c)
{
    return c >= 0x20 && c < 0x7f ? 1 : 4; /* as it is, or \xNN */
}

/* Append text[0..bytes) with \xNN for what is not printable ASCII. */
static size_t escape(char *out, size_t used, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes && used + 5 < BP_ERR_MESSAGE_BYTES; i++) {
        if (width(text[i]) == 1) {
            out[used++] = text[i];
        } else {
            (void)snprintf(out + used, 5, "\\x%02X", (unsigned char)text[i]);
            used += 4;
        }
    }
    out[used] = 0;
    return used;
}

static size_t add_line(char *out, size_t used, const char *line, size_t bytes)
{
    size_t total = 0, head = 0, tail = bytes, head_width = 0, tail_width = 0;

    for (size_t i = 0; i < bytes; i++)
        total += width(line[i]);
    if (total <= BP_ERR_LINE_BYTES)
        return escape(out, used, line, bytes);
    while (head < bytes && head_width + width(line[head]) <= HEAD_BYTES)
        head_width += width(line[head++]);
    while (tail > head && tail_width + width(line[tail - 1]) <= TAIL_BYTES)
        tail_width += width(line[--tail]);
    used = escape(out, used, line, head);
    used = escape(out, used, CUT_MARK, sizeof(CUT_MARK) - 1);
    return escape(out, used, line + tail, bytes - tail);
}

void bp_err_escape(char out[BP_ERR_MESSAGE_BYTES], const char *raw, bool lines)
{
    size_t used = 0;

    out[0] = 0;
    while (*raw != 0) {
        size_t bytes = lines ? strcspn(raw, "\n") : strlen(raw);
        used = add_line(out, used, raw, bytes);
        raw += bytes;
        if (*raw == '\n' && used + 1 < BP_ERR_MESSAGE_BYTES) {
            out[used++] = *raw++;
            out[used] = 0;
        } else {
            raw += *raw == '\n';
        }
    }
    while (used > 0 && out[used - 1] == '\n')
        out[--used] = 0;
}

bp_err bp_fail(bp_err code, const char *format, ...)
{
    static _Thread_local char raw[2 * BP_ERR_MESSAGE_BYTES]; /* arguments may point into message */
    va_list arguments;

    va_start(arguments, format);
    if (vsnprintf(raw, sizeof(raw), format, arguments) < 0)
        (void)snprintf(raw, sizeof(raw), "(unprintable message) %s", format);
    va_end(arguments);
    bp_err_escape(message, raw, code == BP_ERR_CONFIG);
    return code;
}

bp_err bp_err_of_errno(int number, bp_err fallback)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR:
        return BP_ERR_INPUT;
    case EACCES:
    case EPERM:
    case EROFS:
        return BP_ERR_DENIED;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return BP_ERR_SYSTEM;
    default:
        return fallback;
    }
}

/* What a user can do about it. */
static const char *remedy_of(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR:
        return "check the path";
    case EISDIR:
        return "name a file, not a folder";
    case EEXIST:
        return "remove it, or choose another name";
    case EACCES:
    case EPERM:
    case EROFS:
        return "check the permissions";
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return "make room there";
    case ENOMEM:
        return "give the job more memory";
    case EMFILE:
    case ENFILE:
        return "allow more open files (ulimit -n)";
    default:
        return "check the file system";
    }
}

bp_err bp_fail_errno(bp_err fallback, const char *verb, const char *path)
{
    int number = errno;

    return bp_fail(bp_err_of_errno(number, fallback), "%s: %s: at %s; %s", verb, strerror(number),
                   path, remedy_of(number));
}

bp_err bp_fail_create(const char *verb, const char *path)
{
    int number = errno;
    bp_err code = bp_err_of_errno(number, BP_ERR_CREATE);

    if (number == ENOSPC || number == EDQUOT)
        code = BP_ERR_IO;
    return bp_fail(code == BP_ERR_INPUT ? BP_ERR_CREATE : code, "%s: %s: at %s; %s", verb,
                   strerror(number), path, remedy_of(number));
}

bp_err bp_fail_memory(const char *what, int64_t count, size_t size)
{
    return bp_fail(BP_ERR_SYSTEM,
                   "no memory for %s, %lld x %zu bytes; give the job more, or ask less", what,
                   (long long)count, size);
}

bp_err bp_fail_stopped(const char *format, ...)
{
    char text[2 * BP_ERR_LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int wrote = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return bp_fail(BP_ERR_STOPPED, STOPPED "%s", wrote < 0 ? "as asked" : text);
}

bool bp_err_was_asked(bp_err code)
{
    return code == BP_ERR_STOPPED && strncmp(message, STOPPED, strlen(STOPPED)) == 0;
}

bp_err bp_err_prefix(bp_err code, const char *format, ...)
{
    char context[BP_ERR_LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int wrote = vsnprintf(context, sizeof(context), format, arguments);
    va_end(arguments);
    if (wrote < 0)
        return code;
    if (bp_err_was_asked(code)) /* it stays a notice */
        return bp_fail(code, STOPPED "%s: %s", context, message + strlen(STOPPED));
    return bp_fail(code, "%s: %s", context, message);
}

/* Where the last "at" or "in" of the message begins, behind which a remedy would stand. */
static const char *place_of(const char *text)
{
    for (const char *next = text; next != NULL; next = strstr(next + 1, ": "))
        if (strncmp(next, ": at ", 5) == 0 || strncmp(next, ": in ", 5) == 0)
            text = next;
    return text;
}

bp_err bp_err_advise(bp_err code, const char *remedy)
{
    if (code != BP_ERR_FORMAT || strstr(place_of(message), "; ") != NULL)
        return code;
    return bp_fail(code, "%s; %s", message, remedy);
}

const char *bp_err_message(void)
{
    return message;
}

void bp_err_set_message(const char *text)
{
    (void)bp_fail(BP_ERR_CONFIG, "%s", text); /* a message of any code, made by bp_fail once */
}

int bp_err_severity(bp_err code)
{
    static const int order[] = {/* least severe first */
                                BP_OK,         BP_ERR_STOPPED, BP_ERR_USAGE,  BP_ERR_CONFIG,
                                BP_ERR_INPUT,  BP_ERR_FORMAT,  BP_ERR_BUSY,   BP_ERR_DENIED,
                                BP_ERR_CREATE, BP_ERR_IO,      BP_ERR_SYSTEM, BP_ERR_SOFTWARE};
    int count = (int)(sizeof(order) / sizeof(order[0]));

    for (int i = 0; i < count; i++)
        if (order[i] == (int)code)
            return i;
    return count; /* a code that nobody gave out is a bug, and the worst */
}

void bp_err_set_program(const char *name)
{
    (void)snprintf(program, sizeof(program), "%s", name);
}

const char *bp_err_program(void)
{
    return program;
}

void bp_err_set_witness(void (*witness)(int status, const char *line))
{
    err_witness = witness;
}

void bp_err_last_words(int status, const char *format, ...)
{
    char line[BP_ERR_LINE_BYTES] = "";
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "%s: error[%d]: %s\n", program, status, line);
    if (err_witness != NULL)
        err_witness(status, line);
}

/* Both leave through the handler, after the line. */
static _Noreturn void end(int status)
{
    if (assert_handler != NULL)
        assert_handler(status);
    abort();
}

static const char *rank_text(void)
{
    static _Thread_local char rank[32];

    rank[0] = '\0';
    if (assert_rank >= 0)
        (void)snprintf(rank, sizeof rank, ", rank %d", assert_rank);
    return rank;
}

void bp_assert_failed(const char *condition, const char *file, int line)
{
    const char *base = strrchr(file, '/');

    bp_err_last_words(BP_ERR_SOFTWARE,
                      "a bug: \"%.200s\" does not hold: at %s:%d%s; please report it", condition,
                      base == NULL ? file : base + 1, line, rank_text());
    end(BP_ERR_SOFTWARE);
}

void bp_memory_ended(const char *what, int64_t n, size_t size)
{
    bp_err_last_words(BP_ERR_SYSTEM,
                      "out of memory: no %lld x %zu bytes for %s%s; use more nodes, or fewer ranks "
                      "on each",
                      (long long)n, size, what, rank_text());
    end(BP_ERR_SYSTEM);
}

void bp_assert_set_handler(void (*handler)(int status), int rank)
{
    assert_handler = handler;
    assert_rank = rank;
}
