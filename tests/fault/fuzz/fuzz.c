#include "fuzz.h"

#include "base/mem.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t balance_bytes;
static char folder[200];

void fuzz_broken(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s (last failure: %s)\n", file, line, condition,
            bp_err_message());
    abort();
}

void fuzz_begin(void)
{
    balance_bytes = bp_mem_now_bytes();
}

void fuzz_end(void)
{
    char labels[4096];

    if (bp_mem_now_bytes() != balance_bytes) {
        (void)bp_mem_balance(labels, sizeof labels);
        fprintf(stderr, "%s", labels);
    }
    FUZZ_CHECK(bp_mem_now_bytes() == balance_bytes);
}

static bool is_status(bp_err err)
{
    static const bp_err known[] = {BP_OK,          BP_ERR_USAGE,  BP_ERR_FORMAT, BP_ERR_INPUT,
                                   BP_ERR_BUSY,    BP_ERR_SYSTEM, BP_ERR_CREATE, BP_ERR_IO,
                                   BP_ERR_STOPPED, BP_ERR_DENIED, BP_ERR_CONFIG};

    for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
        if (known[k] == err)
            return true;
    return false;
}

void fuzz_check_error(bp_err err)
{
    size_t column = 0;

    FUZZ_CHECK(is_status(err));
    if (err == BP_OK)
        return;
    FUZZ_CHECK(bp_err_message()[0] != 0);
    for (const char *p = bp_err_message(); *p != 0; p++) {
        FUZZ_CHECK((*p >= 0x20 && *p < 0x7f) || (*p == '\n' && err == BP_ERR_CONFIG));
        column = *p == '\n' ? 0 : column + 1;
        FUZZ_CHECK(column <= BP_ERR_LINE_BYTES);
    }
}

/* ---- files ---- */

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static pid_t owner; /* children leave the folder alone */

static void remove_folder(void)
{
    if (getpid() == owner)
        (void)nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void)
{
    const char *root = getenv("TMPDIR");

    if (folder[0] != 0)
        return folder;
    if (root == NULL || root[0] == 0)
        root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    (void)snprintf(folder, sizeof folder, "%s/bp_fuzz_XXXXXX", root);
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        exit(EXIT_FAILURE);
    }
    owner = getpid();
    (void)atexit(remove_folder);
    return folder;
}

const char *fuzz_file_named(const char *name, const void *data, size_t bytes)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    int fd;

    (void)snprintf(path, PATH_MAX, "%s/%s", fuzz_folder(), name);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes || close(fd) != 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    return path;
}

const char *fuzz_file(const void *data, size_t bytes)
{
    return fuzz_file_named("input", data, bytes);
}

/* ---- an input taken apart ---- */

uint8_t fuzz_u8(fuzz_bytes *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->data++;
}

uint16_t fuzz_u16(fuzz_bytes *in)
{
    uint16_t low = fuzz_u8(in);

    return (uint16_t)(low | fuzz_u8(in) << 8);
}

int64_t fuzz_i64(fuzz_bytes *in)
{
    uint64_t value = 0;

    for (int k = 0; k < 8; k++)
        value |= (uint64_t)fuzz_u8(in) << (8 * k);
    return (int64_t)value;
}

int fuzz_below(fuzz_bytes *in, int n)
{
    return (n <= 256 ? fuzz_u8(in) : fuzz_u16(in)) % n;
}
