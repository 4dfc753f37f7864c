/* Lines for people: to the terminal, log.txt and a member's log, and the progress line with time
 * left. */
#include "base/log.h"
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/process/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_BYTES 4096
#define COLUMNS    80 /* of a terminal that does not say */
#define INDENT     4  /* of a long line that goes on */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
typedef struct log_channel {
    atomic_bool speaks; /* helpers' threads warn, while the main one goes on to the next member */
    int fd;             /* of the file; -1 if there is no file */
} log_channel;
static log_channel channels[] = {[BP_LOG_JOB] = {true, -1}, [BP_LOG_MEMBER] = {false, -1}};
static _Atomic bp_log_channel at = BP_LOG_JOB;
static char member[64];     /* guarded by the lock: whose lines BP_LOG_MEMBER's are */
static bool progress_shown; /* the terminal's cursor is after a progress line */

static void lock_log(void)
{
    BP_CHECK(pthread_mutex_lock(&lock) == 0);
}

static void unlock_log(void)
{
    BP_CHECK(pthread_mutex_unlock(&lock) == 0);
}

void bp_log_set_speaker(bool speaks)
{
    channels[at].speaks = speaks;
}

bool bp_log_speaks(void)
{
    return channels[at].speaks;
}

bp_log_channel bp_log_use(bp_log_channel channel)
{
    bp_log_channel before = at;

    at = channel;
    return before;
}

void bp_log_set_member(const char *name, bool speaks)
{
    lock_log();
    (void)snprintf(member, sizeof(member), "%s", name);
    channels[BP_LOG_MEMBER].speaks = speaks;
    unlock_log();
}

/* 0 if there is no terminal; -1 if its width is unknown. */
static int columns_of(int fd)
{
    struct winsize window;

    if (!isatty(fd))
        return 0;
    return ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 ? -1 : window.ws_col;
}

static int asked_columns(void)
{
    const char *text = getenv("COLUMNS");
    int columns = !text ? 0 : atoi(text);

    return columns > 0 ? columns : COLUMNS;
}

/* The width of the terminal that standard output goes to; 0 where it goes elsewhere. mpirun gives
 * each rank a pseudo-terminal without a size: then the width is that of mpirun's own standard
 * output. */
static int terminal_columns(void)
{
    int columns = columns_of(STDOUT_FILENO);

    if (columns >= 0)
        return columns;
    if (!getenv("OMPI_COMM_WORLD_RANK"))
        return asked_columns();
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%ld/fd/1", (long)getppid());
    int fd = open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    columns = columns_of(fd);
    (void)close(fd);
    return columns < 0 ? asked_columns() : columns;
}

bp_err bp_log_open(const char *path)
{
    bp_log_close();
    if (!path || !channels[at].speaks)
        return BP_OK;
    int fd;
    bp_err err = bp_plain_open(path, O_WRONLY | O_APPEND | O_CREAT, &fd);
    if (err != BP_OK)
        return err;
    lock_log();
    channels[at].fd = fd;
    unlock_log();
    return BP_OK;
}

void bp_log_close(void)
{
    lock_log();
    if (channels[at].fd >= 0)
        (void)close(channels[at].fd); /* each line was checked when it was written */
    channels[at].fd = -1;
    unlock_log();
}

/* Append with the time before each line, in one write; called with the lock held. A full disk must
 * not end a run because of its log: the file is closed, and this returns errno (else 0). */
static int write_file(const char *text)
{
    log_channel *channel = &channels[at];
    bp_buffer out = {0};

    if (channel->fd < 0)
        return 0;
    while (*text != 0) {
        int bytes = (int)strcspn(text, "\n");
        bp_buffer_printf(&out, "%s  %.*s\n", bp_clock_stamp().text, bytes, text);
        text += bytes;
        text += *text == '\n';
    }
    int number = 0;
    if (bp_write_all(channel->fd, out.data, out.bytes) != 0)
        number = errno;
    bp_buffer_clear(&out);
    if (number != 0) {
        (void)close(channel->fd);
        channel->fd = -1;
    }
    return number;
}

/* Control bytes (in a file's name, say) would reach the terminal as commands, or break the line;
 * `lines` keeps the breaks. */
static void format_line(char out[LINE_BYTES], bool lines, const char *format, va_list arguments)
{
    if (vsnprintf(out, LINE_BYTES, format, arguments) < 0)
        out[0] = 0;
    for (char *p = out; *p != 0; p++)
        if ((unsigned char)*p < 0x20 && *p != '\t' && (*p != '\n' || !lines))
            *p = '?';
}

/* Take the progress line off the terminal; called with the lock held. */
static void erase_progress(void)
{
    if (progress_shown)
        (void)fputs("\r\033[K", stdout);
    progress_shown = false;
}

void bp_log_keep_progress(void)
{
    lock_log();
    if (progress_shown)
        (void)fputs("\n", stdout);
    progress_shown = false;
    unlock_log();
}

/* Take a progress line off the terminal before something else writes to it. */
static void break_progress(void)
{
    lock_log();
    erase_progress();
    (void)fflush(stdout); /* a failed write to the terminal is no error */
    unlock_log();
}

/* Bytes of the leading fields of a progress line that fit; two spaces separate fields. */
static int fitting_bytes(const char *line, int columns)
{
    int bytes = (int)strcspn(line, "\n"), fit = columns - 1;

    if (bytes < columns)
        return bytes;
    for (int k = columns - 1; k > 0; k--)
        if (line[k] == ' ' && line[k - 1] == ' ') {
            for (fit = k; fit > 0 && line[fit - 1] == ' '; fit--)
                ;
            break;
        }
    return fit;
}

/* Plain lines, broken between words where the terminal is narrower, with continuation lines
 * indented by `goes_on` spaces; columns 0: not broken. */
static void print_lines(const char *text, int columns, int goes_on)
{
    do {
        int bytes = (int)strcspn(text, "\n"), indent = 0;
        while (columns > 2 * goes_on && indent + bytes > columns) {
            int cut = columns - indent;
            while (cut > 0 && text[cut] != ' ')
                cut--;
            if (cut <= 0 || strspn(text, " ") >= (size_t)cut)
                break; /* one long word */
            (void)printf("%*s%.*s\n", indent, "", cut, text);
            cut += (int)strspn(text + cut, " ");
            text += cut;
            bytes -= cut;
            indent = goes_on;
        }
        (void)printf("%*s%.*s\n", indent, "", bytes, text);
        text += bytes;
        text += *text == '\n';
    } while (*text != 0);
}

typedef enum line_kind { PLAIN, PROGRESS, SCREEN_ONLY, FILE_ONLY } line_kind;

static void show_line(const char *line, line_kind kind, int columns)
{
    if (kind == PROGRESS && columns > 0) {
        (void)printf("\r\033[K%.*s", fitting_bytes(line, columns), line);
        progress_shown = true;
    } else {
        erase_progress();
        print_lines(line, columns, INDENT);
    }
    (void)fflush(stdout);
}

/* A member's lines go only to its file. */
static void put_line(line_kind kind, const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    bool shows = kind != FILE_ONLY && at != BP_LOG_MEMBER;
    int columns, number = 0;

    if (!channels[at].speaks)
        return;
    format_line(line, kind == FILE_ONLY, format, arguments);
    columns = shows ? terminal_columns() : 0;
    lock_log();
    if (shows)
        show_line(line, kind, columns);
    if (kind != SCREEN_ONLY)
        number = write_file(line);
    unlock_log();
    if (number != 0 && kind != FILE_ONLY) /* a warning about the log would come back here */
        BP_WARN("log.not_written",
                "the log can't be written (%s), and is given up; free some space",
                strerror(number));
}

void bp_log(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    put_line(PLAIN, format, arguments);
    va_end(arguments);
}

void bp_log_progress(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    put_line(PROGRESS, format, arguments);
    va_end(arguments);
}

bool bp_log_progress_due(double printed)
{
    return bp_clock_now() - printed >= (isatty(STDOUT_FILENO) ? 5.0 : 30.0);
}

void bp_log_screen_only(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    put_line(SCREEN_ONLY, format, arguments);
    va_end(arguments);
}

void bp_log_file_only(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    put_line(FILE_ONLY, format, arguments);
    va_end(arguments);
}

void bp_print_lines(const char *text, int goes_on)
{
    print_lines(text, terminal_columns(), goes_on);
}

/* One write for the whole text, so that lines of several processes do not mix. */
static void put_lines(const char *head, const char *lines)
{
    static _Thread_local char out[2 * BP_ERR_MESSAGE_BYTES];
    size_t used = 0;

    do {
        int bytes = (int)strcspn(lines, "\n");
        int wrote = snprintf(out + used, sizeof out - used, "%s%.*s\n", head, bytes, lines);
        if (wrote < 0 || (size_t)wrote >= sizeof out - used)
            break;
        used += (size_t)wrote;
        lines += bytes;
        lines += *lines == '\n';
    } while (*lines != 0);
    break_progress();
    (void)fwrite(out, 1, used, stderr); /* a failure of standard error can't be reported */
    (void)fflush(stderr);
}

void bp_err_print(bp_err code)
{
    char head[64];

    if (bp_err_was_asked(code))
        (void)snprintf(head, sizeof head, "%s: ", bp_err_program());
    else
        (void)snprintf(head, sizeof head, "%s: error[%d]: ", bp_err_program(), (int)code);
    put_lines(head, bp_err_message()[0] == 0 ? "failed without a message [program.bug]"
                                             : bp_err_message());
}

/* `id` includes the closing bracket; "" if there is no identifier. A line that is too long loses
 * its middle, not its end. */
static void warn(const char *id, bool lines, const char *format, va_list arguments)
{
    static _Thread_local char raw[BP_ERR_MESSAGE_BYTES + 64], clean[BP_ERR_MESSAGE_BYTES];
    char head[128];

    if (vsnprintf(raw, BP_ERR_MESSAGE_BYTES, format, arguments) < 0 || !bp_log_speaks())
        return;
    if (id[0] != 0)
        (void)snprintf(raw + strlen(raw), 64, " [%s", id);
    bp_err_escape(clean, raw, lines);
    lock_log();
    const char *name = at == BP_LOG_MEMBER ? member : "";
    (void)snprintf(head, sizeof head, "%s: warning: %s%s", bp_err_program(), name,
                   name[0] == 0 ? "" : ": ");
    unlock_log();
    put_lines(head, clean);
    bp_log_file_only("warning: %s", clean);
}

void bp_warn(const char *id, const char *format, ...)
{
    char closed[64];
    va_list arguments;

    (void)snprintf(closed, sizeof closed, "%s]", id);
    va_start(arguments, format);
    warn(closed, false, format, arguments);
    va_end(arguments);
}

void bp_warn_failure(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    warn(bp_err_id(bp_err_message()), true, format, arguments);
    va_end(arguments);
}
