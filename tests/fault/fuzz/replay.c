/* Feeds a fuzz target its seeds, without libFuzzer: `fz_THING [-m MUTANTS] FILE-OR-FOLDER...`. Each
 * file is given as it is, then MUTANTS times with a few bytes changed, cut, doubled or taken from
 * elsewhere in it: the same ones in every run. Ends with 0 unless the target breaks, which ends the
 * program; the file and the mutant are named before. */
#include "fuzz.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_BYTES ((int64_t)1 << 24)

static char now[400]; /* what is being fed, for the handler of a crash */
static uint64_t dice;
static long count;

int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));

/* splitmix64. Source: Steele, Lea, Flood 2014. */
static uint64_t roll(void)
{
    uint64_t z = dice += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void tell(int signal_number)
{
    (void)!write(STDERR_FILENO, now, strlen(now));
    (void)signal(signal_number, SIG_DFL);
    (void)raise(signal_number);
}

/* One change to data[*bytes], which has capacity for twice as many. */
static void mutate(uint8_t *data, size_t *bytes)
{
    size_t at = roll() % *bytes, from = roll() % *bytes;
    size_t longest = *bytes - (at > from ? at : from), run = 1 + roll() % longest;

    switch (roll() % 6) {
    case 0:
        data[at] ^= (uint8_t)(1 << roll() % 8);
        break;
    case 1:
        data[at] = (uint8_t)roll();
        break;
    case 2:
        memmove(data + at, data + from, run);
        break;
    case 3:
        *bytes = at + 1;
        break;
    case 4: /* take out */
        memmove(data + at, data + at + run, *bytes - at - run);
        *bytes -= *bytes > run ? run : 0;
        break;
    default: /* put in again */
        memmove(data + at + run, data + at, *bytes - at);
        *bytes += run;
        break;
    }
}

static void feed(const uint8_t *data, size_t bytes)
{
    uint8_t *copy =
        malloc(bytes); /* of exactly this size, so that sanitizers and valgrind see its end */

    if (copy == NULL && bytes > 0)
        exit(EXIT_FAILURE);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
    count++;
}

static void feed_mutants(const char *data, size_t bytes, int mutants)
{
    for (int k = 0; k < mutants && bytes > 0; k++) {
        size_t now_bytes = bytes;
        uint8_t *mutant = malloc(64 * bytes);
        int changes = 1 + (int)(roll() % 5);

        if (mutant == NULL)
            exit(EXIT_FAILURE);
        memcpy(mutant, data, bytes);
        for (int c = 0; c < changes; c++)
            mutate(mutant, &now_bytes);
        (void)snprintf(strrchr(now, '#'), 40, "#%d\n", k + 1);
        feed(mutant, now_bytes);
        free(mutant);
    }
}

static int feed_path(const char *path, int mutants)
{
    char *data, **names;
    size_t bytes;
    int64_t n;
    int failed = 0;

    if (bp_path_is_dir(path)) {
        if (bp_dir_list(path, &names, &n) != BP_OK)
            return 1;
        for (int64_t k = 0; k < n; k++) {
            char *inside = bp_path_join(path, names[k]);
            failed |= inside == NULL || feed_path(inside, mutants);
            bp_free(inside);
        }
        bp_names_free(&names, n);
        return failed;
    }
    if (bp_file_read(path, LIMIT_BYTES, &data, &bytes) != BP_OK) {
        fprintf(stderr, "%s\n", bp_err_message());
        return 1;
    }
    (void)snprintf(now, sizeof now - 40, "broken by %s mutant ", path);
    strcat(now, "#0\n");
    dice = bytes;
    feed((const uint8_t *)data, bytes);
    feed_mutants(data, bytes, mutants);
    bp_free(data);
    return 0;
}

int main(int argc, char **argv)
{
    int mutants = 0, failed = 0, at = 1;

    (void)signal(SIGABRT, tell);
    (void)signal(SIGSEGV, tell);
    if (LLVMFuzzerInitialize != NULL)
        (void)LLVMFuzzerInitialize(&argc, &argv);
    if (argc > 2 && strcmp(argv[1], "-m") == 0) {
        mutants = (int)strtol(argv[2], NULL, 10);
        at = 3;
    }
    for (; at < argc; at++)
        failed |= feed_path(argv[at], mutants);
    printf("%ld inputs\n", count);
    return failed || count == 0;
}
