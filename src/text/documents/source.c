/* Bytes of a file, through zlib or libzstd if its first bytes are gzip's or zstd's. */
#include "base/fault.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/signals.h"
#include "text/documents/text_source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define INPUT_BYTES       ((size_t)1 << 18)
#define BEYOND_BYTES      ((size_t)1 << 14)    /* of what follows a range, at a time */
#define RATIO_LIMIT       1000                 /* bytes of text per byte of the file ... */
#define FREE_BYTES        ((int64_t)256 << 20) /* ... beyond these */
#define COMPRESS          "compress it again"
#define MAGIC_BYTES       10 /* distinguish gzip, zstd and what is refused from text */

#define LOOK_MILLISECONDS 200 /* between checks for a signal */

typedef enum { PLAIN, GZIP, ZSTD } coding;

struct bp_text_source {
    char *path; /* the name in messages */
    int fd;
    bool waits; /* standard input: its writer may be slow */
    coding coding;
    char *input; /* bytes of the file [INPUT_BYTES]: those in [input_at, input_end) are unused */
    size_t input_at, input_end;
    bool file_ended;
    bool inside; /* inside a gzip member or zstd frame */
    bool flate_ready;
    int64_t consumed, produced; /* bytes of the file, and of text */
    int64_t position, end;      /* of a range: the next byte of the file; -1: it is not a range */
    z_stream flate;
    ZSTD_DStream *zstd;
};

static bp_err fail_content(const bp_text_source *source, const char *what, const char *remedy)
{
    return BP_FAIL(BP_ERR_FORMAT, "text.damaged", "the %s data is %s: at %s, byte %lld; %s",
                   source->coding == GZIP ? "gzip" : "zstd", what, source->path,
                   (long long)source->consumed, remedy);
}

const char *bp_text_source_shown(const char *path)
{
    return strcmp(path, BP_TEXT_STDIN) == 0 ? "standard input" : path;
}

const char *bp_text_source_id(const char *path)
{
    return strcmp(path, BP_TEXT_STDIN) == 0 ? "stdin" : bp_path_base(path);
}

/* Waits for data on standard input. A signal only sets a flag, and a read would continue to wait.
 */
static bp_err wait_for_input(const bp_text_source *source)
{
    struct pollfd input = {.fd = source->fd, .events = POLLIN};

    while (source->waits) {
        if (bp_signals_stop_asked())
            return bp_fail_stopped("at %s, of which nothing was kept; run it again", source->path);
        if (poll(&input, 1, LOOK_MILLISECONDS) > 0)
            break;
    }
    return BP_OK;
}

static size_t bytes_to_read(const bp_text_source *source)
{
    size_t space = INPUT_BYTES - source->input_end;
    int64_t left = source->end - source->position;
    size_t wanted = left > (int64_t)BEYOND_BYTES ? (size_t)left : BEYOND_BYTES;

    return source->end < 0 || wanted > space ? space : wanted;
}

/* Reads more of the file, after the unused input; nothing at its end. */
static bp_err read_more(bp_text_source *source)
{
    for (;;) {
        bp_err err = wait_for_input(source);

        if (err != BP_OK)
            return err;
        ssize_t got = read(source->fd, source->input + source->input_end, bytes_to_read(source));

        if (bp_fault("text.read")) {
            errno = EIO;
            got = -1;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return bp_fail_errno(BP_ERR_IO, "can't read", source->path);
        source->input_end += (size_t)got;
        source->position += (int64_t)got;
        source->file_ended = got == 0;
        return BP_OK;
    }
}

/* Once all input is used, read more. */
static bp_err fill(bp_text_source *source)
{
    if (source->input_at < source->input_end || source->file_ended)
        return BP_OK;
    source->input_at = source->input_end = 0;
    return read_more(source);
}

static void use_input(bp_text_source *source, size_t bytes)
{
    source->input_at += bytes;
    source->consumed += (int64_t)bytes;
}

static coding coding_of(const unsigned char *start, size_t bytes)
{
    static const unsigned char frame[4] = {0x28, 0xB5, 0x2F, 0xFD};
    static const unsigned char skippable[3] = {0x2A, 0x4D, 0x18};

    if (bytes >= 3 && start[0] == 0x1F && start[1] == 0x8B && start[2] == 8)
        return GZIP;
    if (bytes >= 4 && memcmp(start, frame, 4) == 0)
        return ZSTD;
    if (bytes >= 4 && (start[0] & 0xF0) == 0x50 && memcmp(start + 1, skippable, 3) == 0)
        return ZSTD;
    return PLAIN;
}

/* Files that are no text in UTF-8, though their bytes could be kept as such. */
static bp_err refuse_other(const bp_text_source *source)
{
    static const struct {
        size_t at, bytes;
        const char *start, *what, *remedy;
    } others[] = {{4, 6, "1AY&SY", "compressed with bzip2", "decompress it"},
                  {4, 6, "\x17\x72\x45\x38\x50\x90", "compressed with bzip2", "decompress it"},
                  {0, 6, "\xfd\x37zXZ", "compressed with xz", "decompress it"},
                  {0, 2, "\xff\xfe", "in UTF-16", "convert it to UTF-8 (iconv -f utf-16)"},
                  {0, 2, "\xfe\xff", "in UTF-16", "convert it to UTF-8 (iconv -f utf-16)"}};

    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if (source->input_end >= others[k].at + others[k].bytes &&
            (others[k].at == 0 || memcmp(source->input, "BZh", 3) == 0) &&
            memcmp(source->input + others[k].at, others[k].start, others[k].bytes) == 0)
            return BP_FAIL(BP_ERR_FORMAT, "text.other_coding", "the text is %s: at %s; %s",
                           others[k].what, source->path, others[k].remedy);
    return BP_OK;
}

/* A pipe may deliver its first bytes one at a time. */
static bp_err start_decoder(bp_text_source *source)
{
    bp_err err = BP_OK;

    while (err == BP_OK && source->input_end < MAGIC_BYTES && !source->file_ended)
        err = read_more(source);
    if (err != BP_OK)
        return err;
    source->coding = coding_of((const unsigned char *)source->input, source->input_end);
    if (source->coding == GZIP) {
        source->flate_ready = inflateInit2(&source->flate, 15 + 16) == Z_OK;
        if (!source->flate_ready)
            return bp_fail_memory("the gzip decoder", 1, 0);
    }
    if (source->coding == ZSTD) {
        source->zstd = ZSTD_createDStream();
        if (!source->zstd)
            return bp_fail_memory("the zstd decoder", 1, 0);
    }
    return refuse_other(source);
}

/* A descriptor of standard input that can be closed. */
static bp_err open_stdin(const char *shown, int *fd)
{
    struct stat status;

    *fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    if (*fd >= 0 && (fcntl(*fd, F_GETFL) & O_ACCMODE) == O_WRONLY) {
        (void)close(*fd);
        *fd = -1;
    }
    if (*fd < 0)
        return BP_FAIL(BP_ERR_INPUT, "text.closed",
                       "it is closed: at %s; redirect a file or a pipe to it", shown);
    if (fstat(*fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        (void)close(*fd);
        return BP_FAIL(BP_ERR_INPUT, "file.is_folder",
                       "a folder is where a file is needed: at %s; name a file", shown);
    }
    return BP_OK;
}

static void make_source(bp_text_source **out, int fd, const char *path)
{
    bp_text_source *source = bp_alloc("text.source", 1, sizeof *source);

    source->fd = fd;
    source->waits = strcmp(path, BP_TEXT_STDIN) == 0;
    source->path = bp_strdup(bp_text_source_shown(path));
    source->input = bp_alloc("text.source", INPUT_BYTES, 1);
    source->end = -1;
    *out = source;
}

bp_err bp_text_source_open(bp_text_source **out, const char *path)
{
    bool is_stdin = strcmp(path, BP_TEXT_STDIN) == 0;
    int fd;
    bp_err err =
        is_stdin ? open_stdin(bp_text_source_shown(path), &fd) : bp_file_open(path, &fd, NULL);

    *out = NULL;
    if (err != BP_OK)
        return err;
    make_source(out, fd, path);
    err = start_decoder(*out);
    if (err != BP_OK)
        bp_text_source_close(out);
    return err;
}

bp_err bp_text_source_open_range(bp_text_source **out, const char *path, int64_t first, int64_t end)
{
    int fd;
    bp_err err = bp_file_open(path, &fd, NULL);

    *out = NULL;
    if (err != BP_OK)
        return err;
    make_source(out, fd, path);
    (*out)->position = first;
    (*out)->end = end;
    if (lseek(fd, (off_t)first, SEEK_SET) < 0) {
        err = bp_fail_errno(BP_ERR_IO, "can't read", path);
        bp_text_source_close(out);
    }
    return err;
}

void bp_text_source_close(bp_text_source **source)
{
    bp_text_source *s = *source;

    if (!s)
        return;
    if (s->flate_ready)
        (void)inflateEnd(&s->flate);
    (void)ZSTD_freeDStream(s->zstd);
    (void)close(s->fd); /* only read from */
    bp_free(s->input);
    bp_free(s->path);
    bp_free(s);
    *source = NULL;
}

bool bp_text_source_is_plain(const bp_text_source *source)
{
    return source->coding == PLAIN;
}

int64_t bp_text_source_consumed(const bp_text_source *source)
{
    return source->consumed;
}

static bp_err read_plain(bp_text_source *source, char *buffer, size_t capacity, size_t *bytes)
{
    size_t left = source->input_end - source->input_at;

    *bytes = left < capacity ? left : capacity;
    memcpy(buffer, source->input + source->input_at, *bytes);
    use_input(source, *bytes);
    return BP_OK;
}

static bp_err read_gzip(bp_text_source *source, char *buffer, size_t capacity, size_t *bytes)
{
    z_stream *flate = &source->flate;
    uInt left = (uInt)(source->input_end - source->input_at);
    uInt space = capacity < INPUT_BYTES ? (uInt)capacity : (uInt)INPUT_BYTES;
    int status;

    if (!source->inside) { /* another member may follow the last */
        (void)inflateReset(flate);
        source->inside = true;
    }
    flate->next_in = (Bytef *)source->input + source->input_at;
    flate->avail_in = left;
    flate->next_out = (Bytef *)buffer;
    flate->avail_out = space;
    status = inflate(flate, Z_NO_FLUSH);
    *bytes = space - flate->avail_out;
    use_input(source, left - flate->avail_in);
    if (status == Z_STREAM_END)
        source->inside = false;
    else if (status == Z_MEM_ERROR)
        return bp_fail_memory("the gzip decoder", 1, 0);
    else if (status != Z_OK && status != Z_BUF_ERROR)
        return fail_content(source, "damaged, or followed by other bytes", COMPRESS);
    return BP_OK;
}

static bp_err read_zstd(bp_text_source *source, char *buffer, size_t capacity, size_t *bytes)
{
    ZSTD_inBuffer in = {source->input + source->input_at, source->input_end - source->input_at, 0};
    ZSTD_outBuffer out = {buffer, capacity, 0};
    size_t status = ZSTD_decompressStream(source->zstd, &out, &in);

    *bytes = out.pos;
    use_input(source, in.pos);
    if (!ZSTD_isError(status)) {
        source->inside = status != 0;
        return BP_OK;
    }
    switch (ZSTD_getErrorCode(status)) {
    case ZSTD_error_memory_allocation:
        return bp_fail_memory("the zstd decoder", 1, 0);
    case ZSTD_error_frameParameter_windowTooLarge:
        return fail_content(source, "made with a window beyond 128 MiB (zstd --long)",
                            "compress it with --long=27 or less");
    default:
        return fail_content(source, "damaged, or followed by other bytes", COMPRESS);
    }
}

/* One turn of the decoder: some input is used, or some output made. */
static bp_err read_some(bp_text_source *source, char *buffer, size_t capacity, size_t *bytes)
{
    switch (source->coding) {
    case GZIP:
        return read_gzip(source, buffer, capacity, bytes);
    case ZSTD:
        return read_zstd(source, buffer, capacity, bytes);
    case PLAIN:
        break;
    }
    return read_plain(source, buffer, capacity, bytes);
}

/* Natural text never compresses like that: a small file would keep a job busy for days. */
static bp_err check_ratio(const bp_text_source *source)
{
    return source->produced - FREE_BYTES <= RATIO_LIMIT * source->consumed
               ? BP_OK
               : fail_content(source, "more than 1,000 times its size when it is decompressed",
                              "decompress it yourself if that is meant");
}

bp_err bp_text_source_read(bp_text_source *source, char *buffer, size_t capacity, size_t *bytes)
{
    size_t used = 0;

    *bytes = 0;
    while (used < capacity) {
        size_t some = 0;
        bp_err err = fill(source);
        bool no_input = source->input_at == source->input_end;

        if (err != BP_OK)
            return err;
        if (no_input && !source->inside)
            break;
        err = read_some(source, buffer + used, capacity - used, &some);
        source->produced += (int64_t)some;
        if (err == BP_OK && source->coding != PLAIN)
            err = check_ratio(source);
        if (err != BP_OK)
            return err;
        used += some;
        if (no_input && some == 0 && source->inside)
            return fail_content(source, "truncated", COMPRESS);
    }
    *bytes = used;
    return BP_OK;
}
