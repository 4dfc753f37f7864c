/* How fast n-grams are looked up: every token of a corpus with its whole history, on one thread,
 * from ids in memory. Seconds are of CPU. Arguments: MODEL.bin CORPUS.h5, rounds (5). */
#include "base/log.h"
#include "base/mem.h"
#include "io/corpus/corpus_file.h"
#include "models/ngram/ngram_lookup_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define PIECE 256

static void check(bp_err err)
{
    if (err == BP_OK)
        return;
    bp_err_set_program("bench_ngram");
    bp_err_print(err);
    exit((int)err);
}

static double cpu_now(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) != 0)
        exit(71);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Documents end with `eod`. */
static double walk(const ngram_file *file, const int32_t *tokens, int64_t count, int32_t eod)
{
    ngram_state state = ngram_start(file);
    double sum = 0;

    for (int64_t k = 0; k < count; k++) {
        sum += ngram_step(file, &state, (uint32_t)tokens[k], NULL);
        if (tokens[k] == eod)
            state = ngram_start(file);
    }
    return sum;
}

/* The same in pieces: inputs begin with `eod`, and targets are a token further. */
static double walk_pieces(const ngram_file *file, const int32_t *inputs, int64_t count, int32_t eod,
                          float *values)
{
    static ngram_sequence pieces[NGRAM_WALKS];
    double sum = 0;

    for (int64_t at = 0; at < count;) {
        int64_t n = 0;

        for (; n < NGRAM_WALKS && at < count; n++) {
            int64_t back = at < file->order - 1 ? at : file->order - 1;
            int64_t now = count - at < PIECE ? count - at : PIECE;

            pieces[n] = (ngram_sequence){.inputs = inputs + at - back,
                                         .targets = inputs + at - back + 1,
                                         .values = values + at - back,
                                         .length = back + now,
                                         .first = back,
                                         .eod = eod};
            at += now;
        }
        ngram_walk(file, pieces, n);
    }
    for (int64_t k = 0; k < count; k++)
        sum += (double)values[k];
    return sum / M_LN10;
}

static void tell(const char *how, double took, int64_t tokens, double sum)
{
    printf("%s: %.3f M tokens/s  (%.3f s, %lld tokens, sum of log10 %.3f)\n", how,
           1e-6 * (double)tokens / took, took, (long long)tokens, sum);
}

int main(int argc, char **argv)
{
    int rounds = argc > 3 ? atoi(argv[3]) : 5;
    bp_corpus_file *corpus;
    ngram_file file;

    if (argc < 3)
        return 64;
    check(ngram_file_open(&file, argv[1]));
    check(bp_corpus_file_open(&corpus, argv[2]));
    const bp_corpus_info *info = bp_corpus_file_info(corpus);
    int64_t count = info->tokens;
    int32_t *inputs = bp_alloc("bench.tokens", count + 1, sizeof *inputs), *tokens = inputs + 1;
    float *values = bp_alloc("bench.values", count, sizeof *values);
    int32_t eod = (int32_t)info->eod_id;
    inputs[0] = eod;
    check(bp_corpus_file_read(corpus, 0, count, tokens));
    (void)walk(&file, tokens, count, eod); /* into memory */
    for (int k = 0; k < rounds; k++) {
        double begin = cpu_now(), sum = walk(&file, tokens, count, eod);

        tell("one by one", cpu_now() - begin, count, sum);
        begin = cpu_now();
        sum = walk_pieces(&file, inputs, count, eod, values);
        tell("side by side", cpu_now() - begin, count, sum);
    }
    bp_free(values);
    bp_free(inputs);
    bp_corpus_file_close(&corpus);
    ngram_file_close(&file);
    return 0;
}
