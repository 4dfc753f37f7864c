/* Prints examples with noise, for comparison with a twin (test_denoise.py).
 *
 *     dump_noise SEED PLACES BITS RATE SPAN SENTINELS
 *
 * BITS: bp_noise's. Special tokens: 0 begins targets, 1 ends texts, 2 is the mask, and from 3 on
 * there are so many sentinels. Standard input: a line "STEP SLOT SEGMENTS START... TOKEN..." an
 * example, a run of sentences. Of each a line "SOURCE... | READ... | TARGET..." is printed, as long
 * as they are. */
#include "models/family.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (1 << 16)

static void print(const int32_t *ids, int64_t count, const char *end)
{
    for (int64_t k = 0; k < count; k++)
        printf("%d ", (int)ids[k]);
    printf("%s", end);
}

static void answer(const bp_example_maker *maker, char *line, void *bytes)
{
    static int32_t tokens[MOST];
    static int64_t starts[MOST];
    int64_t numbers[3] = {0};
    bp_document document = {.tokens = tokens, .starts = starts, .is_run = true};
    int64_t known = 0, length = 0;

    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), known++) {
        if (known < 3)
            numbers[known] = atoll(word);
        else if (known < 3 + numbers[2])
            starts[known - 3] = atoll(word);
        else
            tokens[document.count++] = atoi(word);
    }
    document.segments = numbers[2];
    starts[document.segments] = document.count;
    bp_example_make_document(maker, &document, numbers[0], numbers[1], bytes, 1, 0);
    bp_batch batch = bp_batch_over(&maker->form, 1, bytes);
    while (length < batch.stream[0].T && batch.term[0].targets[length] >= 0)
        length++;
    print(batch.stream[1].inputs, batch.stream[1].lengths[0], "| ");
    print(batch.stream[0].inputs, length, "| ");
    print(batch.term[0].targets, length, "\n");
}

int main(int argc, char **argv)
{
    static int32_t sentinels[MOST];
    static char line[1 << 20];
    bp_example_rules rules = {.eod = 1, .mask = 2, .sentinels = sentinels, .has_sentences = true};

    MPI_Init(&argc, &argv);
    if (argc != 7)
        return 64;
    rules.seed = (uint64_t)atoll(argv[1]);
    rules.noises = (unsigned)atoi(argv[3]);
    rules.noise_rate = atof(argv[4]);
    rules.noise_span = atof(argv[5]);
    rules.sentinel_count = atoll(argv[6]);
    for (int32_t k = 0; k < rules.sentinel_count; k++)
        sentinels[k] = 3 + k;
    bp_example_maker maker = bp_objective_denoise.maker(NULL, atoll(argv[2]), &rules);
    void *bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, 1), 1);
    while (fgets(line, sizeof line, stdin))
        answer(&maker, line, bytes);
    bp_free(bytes);
    MPI_Finalize();
    return 0;
}
