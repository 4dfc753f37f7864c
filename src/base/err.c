/* The message of this thread's last failure, and how a program prints it and ends. */
#include "base/err.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char message[BP_ERR_MESSAGE_BYTES];

static char program[32] = "bagpipe";
static void (*assert_handler)(int status);
static void (*err_witness)(int status, const char *line);
static int assert_rank = -1;

#define STOPPED "stopped: "

/* A longer line loses its middle: the head says what failed, the tail has the place and the
 * remedy. */
#define CUT_MARK   " ... "
#define TAIL_BYTES 150

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

/* Append a line and its identifier ("" if it has none or already contains it). */
static size_t add_line(char *out, size_t used, const char *line, size_t bytes, const char *id)
{
    char last[64] = "";
    size_t total = 0, head = 0, tail = bytes, head_width = 0, tail_width = 0;

    if (id[0] != 0)
        (void)snprintf(last, sizeof last, " [%s]", id);
    size_t capacity = BP_ERR_LINE_BYTES - strlen(last);
    for (size_t i = 0; i < bytes; i++)
        total += width(line[i]);
    if (total <= capacity)
        return escape(out, escape(out, used, line, bytes), last, strlen(last));
    capacity -= TAIL_BYTES + sizeof(CUT_MARK) - 1; /* of the head */
    while (head < bytes && head_width + width(line[head]) <= capacity)
        head_width += width(line[head++]);
    while (tail > head && tail_width + width(line[tail - 1]) <= TAIL_BYTES)
        tail_width += width(line[--tail]);
    used = escape(out, used, line, head);
    used = escape(out, used, CUT_MARK, sizeof(CUT_MARK) - 1);
    used = escape(out, used, line + tail, bytes - tail);
    return escape(out, used, last, strlen(last));
}

static void add_lines(char out[BP_ERR_MESSAGE_BYTES], const char *text, bool lines, const char *id)
{
    size_t used = 0, length = strlen(text);

    while (lines && length > 0 && text[length - 1] == '\n')
        length--;
    out[0] = 0;
    for (size_t at = 0; at < length; at++) { /* each line is followed by its break */
        size_t bytes = lines ? strcspn(text + at, "\n") : length - at;
        if (at + bytes > length)
            bytes = length - at;
        used = add_line(out, used, text + at, bytes, id);
        at += bytes;
        if (at < length && used + 1 < BP_ERR_MESSAGE_BYTES) {
            out[used++] = '\n';
            out[used] = 0;
        }
    }
}

void bp_err_escape(char out[BP_ERR_MESSAGE_BYTES], const char *text, bool lines)
{
    add_lines(out, text, lines, "");
}

/* The message under construction, since arguments may point into the current message. */
static _Thread_local char raw[2 * BP_ERR_MESSAGE_BYTES];

static void format_raw(const char *format, va_list arguments)
{
    if (vsnprintf(raw, sizeof raw, format, arguments) < 0)
        (void)snprintf(raw, sizeof raw, "(unprintable message) %s", format);
}

bp_err bp_fail(bp_err code, const char *id, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    format_raw(format, arguments);
    va_end(arguments);
    add_lines(message, raw, false, id);
    return code;
}

bp_err bp_fail_lines(bp_err code, const char *id, const char *text)
{
    add_lines(message, text, true, id);
    return code;
}

/* Failures by errno, and what a user can do about them. */
typedef struct errno_failure {
    int number;  /* 0: any other */
    bp_err code; /* BP_OK: the caller's */
    const char *id, *remedy;
} errno_failure;

static const errno_failure errno_failures[] = {
    {ENOENT, BP_ERR_INPUT, "file.missing", "check the path"},
    {ENOTDIR, BP_ERR_INPUT, "file.missing", "check the path"},
    {EISDIR, BP_OK, "file.is_folder", "name a file, not a folder"},
    {EEXIST, BP_OK, "file.exists", "remove it, or choose another name"},
    {ENAMETOOLONG, BP_OK, "file.bad_path", "check the path"},
    {ELOOP, BP_OK, "file.bad_path", "check the path"},
    {EACCES, BP_ERR_DENIED, "file.denied", "check the permissions"},
    {EPERM, BP_ERR_DENIED, "file.denied", "check the permissions"},
    {EROFS, BP_ERR_DENIED, "file.denied", "check the permissions"},
    {ENOSPC, BP_OK, "file.no_space", "free some space there"},
    {EDQUOT, BP_OK, "file.no_space", "free some space there"},
    {EFBIG, BP_OK, "file.no_space", "free some space there"},
    {ENOMEM, BP_ERR_SYSTEM, "memory.short", "give the job more memory"},
    {EMFILE, BP_ERR_SYSTEM, "file.too_many_open", "allow more open files (ulimit -n)"},
    {ENFILE, BP_ERR_SYSTEM, "file.too_many_open", "allow more open files (ulimit -n)"},
    {0, BP_OK, "file.io_error", "check the file system"}};

static const errno_failure *failure_of(int number)
{
    const errno_failure *failure = errno_failures;

    while (failure->number != 0 && failure->number != number)
        failure++;
    return failure;
}

static bp_err code_of_errno(int number, bp_err fallback)
{
    const errno_failure *failure = failure_of(number);

    return failure->code == BP_OK ? fallback : failure->code;
}

#define FOLDER_BYTES 256 /* a longer one is not said */

/* Where a relative path is looked for: a job that was started elsewhere finds nothing. */
static bp_err fail_with(bp_err code, int number, const char *verb, const char *path)
{
    const errno_failure *of = failure_of(number);
    char folder[FOLDER_BYTES];

    if (number == ENOENT && path[0] != '/' && getcwd(folder, sizeof folder))
        return bp_fail(code, of->id, "%s: %s: at %s; %s, from the folder %s", verb,
                       strerror(number), path, of->remedy, folder);
    return bp_fail(code, of->id, "%s: %s: at %s; %s", verb, strerror(number), path, of->remedy);
}

bp_err bp_fail_errno(bp_err fallback, const char *verb, const char *path)
{
    int number = errno;

    return fail_with(code_of_errno(number, fallback), number, verb, path);
}

bp_err bp_fail_create(const char *verb, const char *path)
{
    int number = errno;
    bp_err code = code_of_errno(number, BP_ERR_CREATE);
    bool no_folder = code == BP_ERR_INPUT;

    if (number == ENOSPC || number == EDQUOT)
        code = BP_ERR_IO;
    return bp_fail(no_folder ? BP_ERR_CREATE : code,
                   no_folder ? "file.no_folder" : failure_of(number)->id, "%s: %s: at %s; %s", verb,
                   strerror(number), path, failure_of(number)->remedy);
}

bp_err bp_fail_memory(const char *what, int64_t count, size_t size)
{
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                   "no memory for %s, %lld x %zu bytes; give the job more, or ask less", what,
                   (long long)count, size);
}

bp_err bp_fail_stopped(const char *format, ...)
{
    char text[2 * BP_ERR_LINE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int wrote = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return BP_FAIL(BP_ERR_STOPPED, "run.stopped", STOPPED "%s", wrote < 0 ? "as asked" : text);
}

bool bp_err_was_asked(bp_err code)
{
    return code == BP_ERR_STOPPED && strncmp(message, STOPPED, strlen(STOPPED)) == 0;
}

const char *bp_err_id(const char *text)
{
    static const char *const letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    const char *open = strrchr(text, '['), *end = text + strlen(text);

    if (!open || open == text || open[-1] != ' ')
        return end;
    const char *dot = open + 1 + strspn(open + 1, letters);
    return *dot == '.' && strcmp(dot + 1 + strspn(dot + 1, letters), "]") == 0 ? open + 1 : end;
}

const char *bp_err_text(void)
{
    static _Thread_local char text[BP_ERR_MESSAGE_BYTES];
    const char *id = bp_err_id(message);

    (void)snprintf(text, sizeof text, "%.*s", (int)(id - message) - (*id == 0 ? 0 : 2), message);
    return text;
}

bp_err bp_err_wrap(bp_err code, const char *format, ...)
{
    char id[64];
    va_list arguments;

    (void)snprintf(id, sizeof id, "%s", bp_err_id(message));
    va_start(arguments, format);
    format_raw(format, arguments);
    va_end(arguments);
    size_t used = strlen(raw);
    if (id[0] != 0)
        (void)snprintf(raw + used, sizeof raw - used, " [%s", id);
    add_lines(message, raw, code == BP_ERR_CONFIG, "");
    return code;
}

bp_err bp_err_prefix(bp_err code, const char *format, ...)
{
    char said[BP_ERR_LINE_BYTES], context[BP_ERR_MESSAGE_BYTES];
    va_list arguments;

    va_start(arguments, format);
    int wrote = vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    if (wrote < 0)
        return code;
    bp_err_escape(context, said, false);
    if (bp_err_was_asked(code)) /* it stays a notice */
        return bp_err_wrap(code, STOPPED "%s: %s", context, bp_err_text() + strlen(STOPPED));
    return bp_err_wrap(code, "%s: %s", context, bp_err_text());
}

/* Where the last "at" or "in" of the message begins, after which a remedy would follow. */
static const char *place_of(const char *text)
{
    for (const char *next = text; next; next = strstr(next + 1, ": "))
        if (strncmp(next, ": at ", 5) == 0 || strncmp(next, ": in ", 5) == 0)
            text = next;
    return text;
}

bp_err bp_err_advise(bp_err code, const char *remedy)
{
    if (code != BP_ERR_FORMAT || strstr(place_of(message), "; "))
        return code;
    return bp_err_wrap(code, "%s; %s", bp_err_text(), remedy);
}

const char *bp_err_message(void)
{
    return message;
}

void bp_err_set_message(const char *text)
{
    (void)snprintf(raw, sizeof raw, "%s", text); /* `text` may point into the message */
    add_lines(message, raw, true, "");           /* any code: bp_fail made it */
}

int bp_err_severity(bp_err code)
{
    static const int order[] = {/* least severe first */
                                BP_OK,         BP_ERR_STOPPED, BP_ERR_USAGE,  BP_ERR_CONFIG,
                                BP_ERR_INPUT,  BP_ERR_FORMAT,  BP_ERR_BUSY,   BP_ERR_DENIED,
                                BP_ERR_CREATE, BP_ERR_IO,      BP_ERR_SYSTEM, BP_ERR_SOFTWARE};
    int count = (int)(sizeof order / sizeof order[0]);

    for (int i = 0; i < count; i++)
        if (order[i] == (int)code)
            return i;
    return count; /* an unknown code is a bug, and the worst */
}

void bp_err_set_program(const char *name)
{
    (void)snprintf(program, sizeof program, "%s", name);
}

const char *bp_err_program(void)
{
    return program;
}

void bp_err_set_witness(void (*witness)(int status, const char *line))
{
    err_witness = witness;
}

void bp_err_last_words(int status, const char *id, const char *format, ...)
{
    char line[BP_ERR_LINE_BYTES] = "";
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(line, sizeof(line) - strlen(id) - 3, format, arguments);
    va_end(arguments);
    (void)sprintf(line + strlen(line), " [%s]", id); /* it fits */
    (void)fprintf(stderr, "%s: error[%d]: %s\n", program, status, line);
    if (err_witness)
        err_witness(status, line);
}

/* Both leave through the handler, after the line. */
static _Noreturn void end(int status)
{
    if (assert_handler)
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

    bp_err_last_words(BP_ERR_SOFTWARE, "program.bug",
                      "a bug: \"%.200s\" does not hold: at %s:%d%s; please report it", condition,
                      !base ? file : base + 1, line, rank_text());
    end(BP_ERR_SOFTWARE);
}

void bp_memory_ended(const char *what, int64_t n, size_t size)
{
    bp_err_last_words(BP_ERR_SYSTEM, "memory.short",
                      "out of memory: no %lld x %zu bytes for %s%s; use more nodes, or fewer ranks "
                      "on each",
                      (long long)n, size, what, rank_text());
    end(BP_ERR_SYSTEM);
}

void bp_id_ended(const char *what, int64_t id, int64_t first, int64_t bound)
{
    bp_err_last_words(
        BP_ERR_FORMAT, "data.id_beyond",
        "a %s of the data is %lld, the model knows %lld to %lld%s; take data that was "
        "made for this model",
        what, (long long)id, (long long)first, (long long)bound - 1, rank_text());
    end(BP_ERR_FORMAT);
}

void bp_assert_set_handler(void (*handler)(int status), int rank)
{
    assert_handler = handler;
    assert_rank = rank;
}
