/* How fast a corpus is read: in order through bp_corpus_file_read (two helper threads decode), in
 * order by the calling thread alone, and windows at random. The rate is of tokens as stored (2
 * bytes each below 65,536 entries), from a warm cache, best of some rounds. Arguments: FILE, rounds
 * (5). */
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/rng.h"
#include "io/corpus/corpus_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCK  ((int64_t)8192) /* tokens a call: they stay in the first cache */
#define WINDOW ((int64_t)1025)

static void check(bp_err err)
{
    if (err == BP_OK)
        return;
    bp_err_set_program("bench_corpus");
    bp_err_print(err);
    exit((int)err);
}

static bp_corpus_file *open_file(const char *path)
{
    bp_corpus_file *file;

    check(bp_corpus_file_open(&file, path));
    return file;
}

/* Seconds that all threads of this process have computed: on a busy machine they tell more than the
 * clock. */
static double cpu_now(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0)
        exit(71);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double read_in_order(const char *path, int32_t *tokens, double *cpu)
{
    bp_corpus_file *file = open_file(path);
    int64_t count = bp_corpus_file_info(file)->tokens;
    double start = bp_clock_now(), cpu_start = cpu_now(), took;

    for (int64_t first = 0; first < count; first += BLOCK)
        check(bp_corpus_file_read(file, first, count - first < BLOCK ? count - first : BLOCK,
                                  tokens));
    took = bp_clock_now() - start;
    *cpu = cpu_now() - cpu_start;
    bp_corpus_file_close(&file);
    return took;
}

/* From the last chunk to the first: nothing is read ahead, so that the caller decodes. */
static double read_alone(const char *path, int32_t *tokens)
{
    bp_corpus_file *file = open_file(path);
    int64_t count = bp_corpus_file_info(file)->tokens;
    double start = bp_clock_now(), took;

    for (int64_t first = (count - 1) / BLOCK * BLOCK; first >= 0; first -= BLOCK)
        check(bp_corpus_file_read(file, first, count - first < BLOCK ? count - first : BLOCK,
                                  tokens));
    took = bp_clock_now() - start;
    bp_corpus_file_close(&file);
    return took;
}

static double read_at_random(const char *path, int32_t *tokens, int64_t windows)
{
    bp_corpus_file *file = open_file(path);
    int64_t count = bp_corpus_file_info(file)->tokens;
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);
    double start = bp_clock_now(), took;

    for (int64_t k = 0; k < windows; k++)
        check(bp_corpus_file_read(file, bp_rng_below(&key, (uint64_t)k, count - WINDOW), WINDOW,
                                  tokens));
    took = bp_clock_now() - start;
    bp_corpus_file_close(&file);
    return took;
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 5;
    int32_t *tokens = bp_alloc("bench", BLOCK, sizeof *tokens);
    double in_order = 1e30, alone = 1e30, random = 1e30, least_cpu = 1e30, bytes;
    bp_corpus_file *file;

    if (argc < 2 || tokens == NULL) {
        fprintf(stderr, "Usage: bench_corpus FILE [ROUNDS]\n");
        return 64;
    }
    file = open_file(argv[1]);
    bytes = (bp_corpus_file_info(file)->vocab_size < 65536 ? 2.0 : 4.0) *
            (double)bp_corpus_file_info(file)->tokens;
    bp_corpus_file_close(&file);
    for (int k = 0; k < rounds; k++) {
        double cpu, took = read_in_order(argv[1], tokens, &cpu);
        least_cpu = cpu < least_cpu ? cpu : least_cpu;
        in_order = took < in_order ? took : in_order;
        took = read_alone(argv[1], tokens);
        alone = took < alone ? took : alone;
        took = read_at_random(argv[1], tokens, 2000);
        random = took < random ? took : random;
    }
    printf("in order, two helper threads  %7.3f GB/s of tokens, %.3f s of CPU a GB\n",
           1e-9 * bytes / in_order, 1e9 * least_cpu / bytes);
    printf("one thread                    %7.3f GB/s of tokens\n", 1e-9 * bytes / alone);
    printf("windows of %d at random     %7.0f a second\n", (int)WINDOW, 2000 / random);
    bp_free(tokens);
    return 0;
}
