/* Foreign HDF5 files. The library may break on them, but only in a child process: opened as a
 * corpus the input gives a corpus or one line, and this process lives. Before, a child of the
 * target's own walks the file, so that libFuzzer's counters, which it hands back, tell of it; where
 * it breaks, HDF5's code must be where. */
#include "base/mem.h"
#include "fuzz.h"
#include "io/corpus/corpus_file.h"
#include "io/h5/h5.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT_BYTES 65536

void __sanitizer_set_report_fd(void *fd) __attribute__((weak));
int __llvm_profile_write_file(void) __attribute__((weak));
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* In the child: as much of the file as we ever ask HDF5 for. */
static void walk(const char *path)
{
    static const char *const names[] = {"tokens", "doc_start", "doc_id", "label_names/genre"};
    int64_t values[64];
    bp_h5 *file;
    bp_err err = bp_h5_open(&file, path);

    fuzz_check_error(err);
    if (err != BP_OK)
        return;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        bp_h5_shape shape;

        err = bp_h5_walk(file, names[k]);
        fuzz_check_error(err);
        if (err != BP_OK || bp_h5_shape_of(file, names[k], &shape) != BP_OK || shape.is_text)
            continue;
        FUZZ_CHECK(shape.dims == 1 && shape.count >= 0);
        err = bp_h5_read(file, names[k], BP_H5_I64, 0, values, shape.count < 64 ? shape.count : 64);
        fuzz_check_error(err);
    }
    fuzz_check_error(bp_h5_get_int(file, "/", "vocab_size", values));
    bp_h5_drop(&file);
}

/* Did it break in HDF5, or below it? The first frame of a sanitizer's report that is one or the
 * other says. */
static bool is_hdf5s(const char *report)
{
    for (const char *line = strstr(report, "    #0 "); line != NULL;
         line = strchr(line + 1, '\n')) {
        size_t bytes = strcspn(line + 1, "\n") + 1;
        const char *hdf5 = memmem(line, bytes, "libhdf5", 7);
        const char *ours = memmem(line, bytes, "/src/", 5);

        if (hdf5 != NULL)
            return true;
        if (ours != NULL && memmem(line, bytes, "compiler-rt", 11) == NULL &&
            memmem(line, bytes, "../sysdeps", 10) == NULL)
            return false;
    }
    return __sanitizer_set_report_fd == NULL; /* without one nobody can tell */
}

static void walk_apart(const char *path)
{
    static char *counters, report[REPORT_BYTES];
    static int report_file = -1;
    size_t count;
    char *live = fuzz_counters(&count);
    pid_t child;
    ssize_t bytes;
    int status;

    if (report_file < 0) {
        report_file = memfd_create("report", MFD_CLOEXEC);
        counters = mmap(NULL, count + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        FUZZ_CHECK(report_file >= 0 && counters != MAP_FAILED);
    }
    FUZZ_CHECK(ftruncate(report_file, 0) == 0 && lseek(report_file, 0, SEEK_SET) == 0);
    memset(counters, 0, count);
    (void)fflush(NULL);
    child = fork();
    FUZZ_CHECK(child >= 0);
    if (child == 0) {
        (void)dup2(report_file, STDERR_FILENO);
        (void)signal(SIGALRM, SIG_DFL);
        (void)signal(SIGABRT, SIG_DFL);
        if (__sanitizer_set_report_fd != NULL)
            __sanitizer_set_report_fd((void *)(intptr_t)report_file);
        if (__sanitizer_set_death_callback != NULL)
            __sanitizer_set_death_callback(NULL); /* libFuzzer's, which would keep the input */
        (void)alarm(4);
        walk(path);
        if (count > 0) /* else there is no array of them */
            memcpy(counters, live, count);
        if (__llvm_profile_write_file != NULL)
            (void)__llvm_profile_write_file(); /* coverage is written at exit, which is not for
                                                  children */
        _exit(0);
    }
    while (waitpid(child, &status, 0) < 0) /* libFuzzer's clock interrupts */
        FUZZ_CHECK(errno == EINTR);
    for (size_t k = 0; k < count; k++)
        if (counters[k] != 0)
            live[k] = counters[k];
    bytes = pread(report_file, report, sizeof report - 1, 0);
    report[bytes < 0 ? 0 : bytes] = 0;
    if (strstr(report, "does not hold") != NULL || strstr(report, "runtime error") != NULL ||
        (status != 0 && !WIFSIGNALED(status) && !is_hdf5s(report))) {
        fprintf(stderr, "%s", report);
        FUZZ_CHECK(!"the walk broke in our own code");
    }
}

/* As a job opens it. */
static void open_corpus(const char *path)
{
    int32_t tokens[64];
    const int64_t *starts;
    bp_corpus_file *corpus;
    bp_err err = bp_corpus_file_open(&corpus, path);

    fuzz_check_error(err);
    FUZZ_CHECK((corpus != NULL) == (err == BP_OK));
    if (err == BP_OK) {
        const bp_corpus_info *info = bp_corpus_file_info(corpus);
        int64_t count = info->tokens < 64 ? info->tokens : 64;

        FUZZ_CHECK(info->tokens >= 0 && info->documents >= 0 && info->vocab_size > 0);
        err = bp_corpus_file_read(corpus, 0, count, tokens);
        fuzz_check_error(err);
        for (int64_t k = 0; err == BP_OK && k < count; k++)
            FUZZ_CHECK(tokens[k] >= 0 && tokens[k] < info->vocab_size);
        err = bp_corpus_file_doc_start(corpus, &starts);
        fuzz_check_error(err);
        for (int64_t d = 0; err == BP_OK && d < info->documents; d++)
            FUZZ_CHECK(starts[d] <= starts[d + 1] && starts[d + 1] <= info->tokens);
    }
    bp_corpus_file_close(&corpus);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file(data, bytes);

    fuzz_begin();
    walk_apart(path);
    open_corpus(path);
    fuzz_end();
    return 0;
}
