/* Prints an n-gram model's probabilities, for comparison with other software (test_ngram_nltk.py).
 *
 *     dump_ngram ORDER SMOOTHING_NUMBER DELTA VOCAB_SIZE FOLDER <TOKENS
 *
 * Standard input: ids, the end of a document vocab_size - 1. Then lines "? ID...", a history and a
 * word each, of which the probability is printed. */
#include "ngram_twin.h"

#include <mpi.h>
#include <stdlib.h>

#define MOST 100000

static int answer(const ngram_twin *twin, char *line)
{
    int32_t words[NGRAM_ORDER_MOST];
    int count = 0;

    for (char *word = strtok(line + 1, " \n"); word; word = strtok(NULL, " \n"))
        words[count++] = atoi(word);
    printf("%.17g\n", twin_probability(twin, words, count - 1, words[count - 1]));
    return 0;
}

int main(int argc, char **argv)
{
    static int32_t tokens[MOST];
    ngram_twin twin = {0};
    char line[4096];
    int64_t count = 0;

    MPI_Init(&argc, &argv);
    if (argc != 6)
        return 64;
    twin.spec.order = atoi(argv[1]);
    twin.spec.rule.smoothing = (ngram_smoothing)atoi(argv[2]);
    twin.spec.rule.delta = atof(argv[3]);
    twin.spec.rule.katz_k = 5;
    while (fgets(line, sizeof line, stdin) && line[0] != '?')
        tokens[count++] = atoi(line);
    if (twin_make(&twin, tokens, count, atoi(argv[4]), argv[5]) != BP_OK) {
        fprintf(stderr, "%s\n", bp_err_message());
        return 1;
    }
    do
        (void)answer(&twin, line);
    while (fgets(line, sizeof line, stdin));
    ngram_levels_clear(&twin.levels);
    MPI_Finalize();
    return 0;
}
