/* The command line: words ended by zero bytes, as bagpipe gets them; after a byte 0xff the text of
 * the configuration that the word CONFIG stands for. What would start MPI is asked with `check`
 * instead. The exit status is one of the contract, and standard error has one line for it, or 20
 * faults of a configuration. */
#include "fuzz.h"
#include "mesh/mesh.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static bp_err no_mpi(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return BP_OK;
}

#define bp_mpi_start    no_mpi /* a wrong command line starts it, so that one rank alone says so */
#define bp_mpi_finish() ((void)0)
#define main            bagpipe_main
int bagpipe_main(int argc, char **argv);
#include "bagpipe.c"
#undef main

#define WORDS_MAX    40
#define OUTPUT_BYTES 65536

void __sanitizer_set_report_fd(void *fd) __attribute__((weak));

static const char *const ALONE[] = {"check",  "requeue", "status",   "help",
                                    "--help", "-h",      "--version"};

static bool needs_no_mpi(const char *word)
{
    for (size_t k = 0; k < sizeof ALONE / sizeof ALONE[0]; k++)
        if (strcmp(word, ALONE[k]) == 0)
            return true;
    return false;
}

/* argv of the input; words are strdup's. */
static int take_words(char *argv[WORDS_MAX + 1], const uint8_t *data, size_t bytes,
                      const char *config)
{
    int argc = 0;

    argv[argc++] = strdup("bagpipe");
    while (bytes > 0 && argc < WORDS_MAX - 1) {
        size_t length = strnlen((const char *)data, bytes);
        size_t used = length < bytes ? length + 1 : bytes;
        char *word = strndup((const char *)data, length);

        if (strcmp(word, "CONFIG") == 0) {
            free(word);
            word = strdup(config);
        }
        if (argc == 1 && !needs_no_mpi(word))
            argv[argc++] = strdup("check");
        argv[argc++] = word;
        data += used;
        bytes -= used;
    }
    argv[argc] = NULL;
    return argc;
}

/* Run it with standard output and error in `output`. */
static int run(int argc, char **argv, char output[OUTPUT_BYTES])
{
    static int file = -1, kept[2], report = -1, nowhere;
    ssize_t bytes;
    int status;

    if (file < 0) {
        file = memfd_create("output", MFD_CLOEXEC);
        nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        kept[0] = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
        kept[1] = report = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
        FUZZ_CHECK(file >= 0 && kept[0] >= 0 && kept[1] >= 0);
        if (__sanitizer_set_report_fd != NULL)
            __sanitizer_set_report_fd((void *)(intptr_t)report);
    }
    (void)fflush(stdout);
    FUZZ_CHECK(ftruncate(file, 0) == 0 && lseek(file, 0, SEEK_SET) == 0);
    FUZZ_CHECK(dup2(nowhere, STDOUT_FILENO) >= 0);
    FUZZ_CHECK(dup2(file, STDERR_FILENO) >= 0);
    status = bagpipe_main(argc, argv);
    (void)fflush(stdout);
    (void)fflush(stderr);
    (void)dup2(kept[0], STDOUT_FILENO);
    (void)dup2(kept[1], STDERR_FILENO);
    bytes = pread(file, output, OUTPUT_BYTES - 1, 0);
    FUZZ_CHECK(bytes >= 0);
    output[bytes] = 0;
    return status;
}

/* `several`: one line for each of several runs, of codes of their own. */
static void check_output(int status, const char *output, bool several)
{
    char head[40];
    int errors = 0;

    (void)snprintf(head, sizeof head, "bagpipe: error[%d]: ", status);
    if (strncmp(output, "Usage: ", 7) == 0) { /* the help of a command line that says nothing */
        const char *last = strstr(output, "\nbagpipe: error[");

        FUZZ_CHECK(status == BP_ERR_USAGE && last != NULL);
        output = last + 1;
    }
    for (const char *line = output; *line != 0; line += strcspn(line, "\n") + 1) {
        FUZZ_CHECK(strchr(line, '\n') != NULL);
        FUZZ_CHECK(strcspn(line, "\n") <= BP_ERR_LINE_BYTES + strlen(head));
        if (strncmp(line, "bagpipe: warning: ", 18) == 0)
            continue;
        FUZZ_CHECK(strncmp(line, head, several ? strcspn(head, "[") : strlen(head)) == 0);
        errors++;
    }
    FUZZ_CHECK(errors >= 1 && (several || errors <= (status == BP_ERR_CONFIG ? 21 : 1)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char output[OUTPUT_BYTES];
    const uint8_t *end = memchr(data, 0xff, bytes);
    size_t words_bytes = end == NULL ? bytes : (size_t)(end - data);
    const char *config = end == NULL
                             ? fuzz_file_named("fuzz.ini", "[run]\nseed = 7\n", 15)
                             : fuzz_file_named("fuzz.ini", end + 1, bytes - words_bytes - 1);
    char *argv[WORDS_MAX + 1], *words[WORDS_MAX + 1];
    int argc = take_words(argv, data, words_bytes, config), status;

    memcpy(words, argv, sizeof words); /* main moves them about */
    fuzz_begin();
    status = run(argc, argv, output);
    fuzz_end();
    FUZZ_CHECK(status != BP_ERR_SOFTWARE && status >= 0 && status <= 78);
    if (status > 1)
        check_output(status, output, argc > 1 && strcmp(words[1], "status") == 0);
    else
        FUZZ_CHECK(strstr(output, "error[") == NULL);
    for (int k = 0; k < argc; k++)
        free(words[k]);
    return 0;
}
