/* Errors: fail locally, agree, leave together.
 *
 * A function that can fail returns a `bp_err`; its value is the exit status (sysexits) that the
 * program leaves with. The message of the last failure is in a buffer of the calling thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum bp_err {
    BP_OK = 0,
    BP_ERR_USAGE = 64,    /* command line */
    BP_ERR_FORMAT = 65,   /* the content of an input is wrong */
    BP_ERR_INPUT = 66,    /* an input is missing */
    BP_ERR_BUSY = 69,     /* another running job holds the run folder */
    BP_ERR_SOFTWARE = 70, /* a bug, or a training that diverged */
    BP_ERR_SYSTEM = 71,   /* memory, threads, the operating system */
    BP_ERR_CREATE = 73,   /* an output can't be created */
    BP_ERR_IO = 74,       /* reading or writing failed (disk full) */
    BP_ERR_STOPPED = 75,  /* stopped in time: the same command goes on */
    BP_ERR_DENIED = 77,   /* permission: EACCES, EPERM, EROFS */
    BP_ERR_CONFIG = 78    /* configuration */
} bp_err;

/** Bytes for the 20 faults that a configuration reports, each cut in the middle to
 * BP_ERR_LINE_BYTES. */
#define BP_ERR_MESSAGE_BYTES 8192
#define BP_ERR_LINE_BYTES    400

/** Fail with a message and its identifier: `return BP_FAIL(BP_ERR_FORMAT, "corpus.bad_token",
 * "token %d is beyond ...: at %s; remedy", ...)`.
 *
 * Messages read "what, with the value: at where; remedy [thing.what_is_wrong]". The identifier is a
 * string literal, two lower-case words joined by a dot, and stays when the wording changes: users
 * look it up in docs/messages.md, and tests assert it. It ends each line of the message, and so
 * goes wherever the message goes. A message is one line: bytes that are not printable ASCII are
 * escaped as \xNN. A line longer than BP_ERR_LINE_BYTES loses its middle (" ... "). Arguments may
 * point into bp_err_message().
 */
#define BP_FAIL(code, id, ...) bp_fail((code), "" id, __VA_ARGS__)
bp_err bp_fail(bp_err code, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** The same for several faults, one per line; each line gets the identifier. */
#define BP_FAIL_LINES(code, id, text) bp_fail_lines((code), "" id, text)
bp_err bp_fail_lines(bp_err code, const char *id, const char *text);

/** Fail for a file operation: errno decides the code.
 *
 * ENOENT, ENOTDIR: BP_ERR_INPUT; EACCES, EPERM, EROFS: BP_ERR_DENIED; ENOMEM, EMFILE, ENFILE:
 * BP_ERR_SYSTEM; others: `fallback`. The message is "VERB: STRERROR: at PATH; REMEDY [IDENTIFIER]".
 * For an output that can't be created use bp_fail_create().
 */
bp_err bp_fail_errno(bp_err fallback, const char *verb, const char *path);

/** The same for an output that can't be created: a missing folder is BP_ERR_CREATE, not
 * BP_ERR_INPUT; a full disk (ENOSPC, EDQUOT) is BP_ERR_IO, as it is for a write. */
bp_err bp_fail_create(const char *verb, const char *path);

/** BP_ERR_SYSTEM for `count` objects of `size` bytes that bp_try_alloc could not allocate. */
bp_err bp_fail_memory(const char *what, int64_t count, size_t size);

/** BP_ERR_STOPPED for a requested stop (a signal, a halt file, a time limit), with what the user
 * does next: bp_fail_stopped("at step 3 of 9; the same command goes on"). Its message begins with
 * "stopped: ", and bp_err_print prints it as a notice, not as an error. */
bp_err bp_fail_stopped(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Is the current failure, of this code, one of those? */
bool bp_err_was_asked(bp_err code);

/** Replace the text of the current failure, and keep its identifier: arguments may point into
 * bp_err_text(). Returns `code`. */
bp_err bp_err_wrap(bp_err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Put "CONTEXT: " before the message of the current failure; returns `code` unchanged. */
bp_err bp_err_prefix(bp_err code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Put "; REMEDY" after the message of a BP_ERR_FORMAT without a remedy; returns `code` unchanged.
 * For remedies that all messages of a module share. */
bp_err bp_err_advise(bp_err code, const char *remedy);

/** The message of this thread's last failure ("" when there was none), with its identifier.
 * Borrowed until the next failure. */
const char *bp_err_message(void);

/** The same without the identifier at its end, to be quoted in another text. Borrowed until the
 * next call. */
const char *bp_err_text(void);

/** The identifier at the end of `message` ("corpus.bad_token]"), or the message's end if it has
 * none. */
const char *bp_err_id(const char *message);

/** Make `message`, which has its identifier, this thread's last failure: hands an error over from a
 * helper thread or another rank. */
void bp_err_set_message(const char *message);

/** `text`, of any length, as printable ASCII in lines of at most BP_ERR_LINE_BYTES: one line, or
 * with `lines` its own lines. */
void bp_err_escape(char out[BP_ERR_MESSAGE_BYTES], const char *text, bool lines);

/** How severe a code is, 0 for BP_OK: of two codes all ranks report the one with the higher number
 * (a bug before an I/O error before bad input). */
int bp_err_severity(bp_err code);

/** What the program calls itself in messages: "bagpipe" until this is called, as main() begins. */
void bp_err_set_program(const char *name);
const char *bp_err_program(void);

/** For bugs of ours: prints rank, file, line and ends the program through the handler (MPI_Abort
 * under MPI). */
#define BP_ASSERT(condition)                                                                       \
    ((condition) ? (void)0 : bp_assert_failed(#condition, __FILE__, __LINE__))
/** The same for a call with side effects, which is always evaluated. */
#define BP_CHECK(call) ((call) ? (void)0 : bp_assert_failed(#call, __FILE__, __LINE__))
void bp_assert_failed(const char *condition, const char *file, int line) __attribute__((noreturn));

/** Unrecoverable out of memory: prints one line and ends the program as BP_ASSERT does, with
 * BP_ERR_SYSTEM. `what` needed n x size bytes. */
void bp_memory_ended(const char *what, int64_t n, size_t size) __attribute__((noreturn));

/** An id in the data without a row in a table, where no error can be returned: prints one line and
 * ends the program as BP_ASSERT does, with BP_ERR_FORMAT. `what` ("token") has ids from first to
 * bound - 1. */
void bp_id_ended(const char *what, int64_t id, int64_t first, int64_t bound)
    __attribute__((noreturn));

/** Set the handler that these call after the message; the mesh installs one that calls MPI_Abort.
 * NULL: abort(). */
void bp_assert_set_handler(void (*handler)(int status), int rank);

/** Set the function called before that handler, and when MPI fails, with the printed line. It
 * keeps the line where a user looks for it later (NULL: no call). It may be called with any lock
 * held.
 */
void bp_err_set_witness(void (*witness)(int status, const char *line));
/** Print the last line of a program that ends at once, and have it witnessed. */
void bp_err_last_words(int status, const char *id, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
