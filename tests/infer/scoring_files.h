/* What the tests of scoring's files share: two corpora, folders of runs, and whether two runs left
 * the same bytes. For one program: include bp_test_mpi.h first. */
#pragma once

#include "scoring_world.h"

#define WORLD MPI_COMM_WORLD

/* Documents of all kinds: empty, one token, shorter and longer than a window, longer than a work
 * unit. */
enum { DOCUMENTS = 900 };
static int64_t lengths[DOCUMENTS];
static const toy_corpus toy = {
    .documents = DOCUMENTS, .lengths = lengths, .vocab_size = 500, .eod_id = 499};
static const toy_corpus small = {
    .documents = 7, .length = 63, .vocab_size = 500, .eod_id = 499, .salt = 1};
static char corpora[2 * PATH_MAX];

static inline void corpora_are_made(void **state)
{
    (void)state;
    for (int64_t d = 0; d < DOCUMENTS; d++)
        lengths[d] = d * d * 31 % 140;
    lengths[3] = 0;
    lengths[4] = 1;
    lengths[5] = 64;
    lengths[6] = 65;
    lengths[7] = 128;
    lengths[100] = 40000;
    if (bp_comm_is_root(WORLD)) {
        (void)toy_write(&toy, "toy.h5");
        (void)toy_write(&small, "small.h5");
    }
    snprintf(corpora, sizeof(corpora), "%s,%s", bp_test_path("toy.h5"), bp_test_path("small.h5"));
    BP_MPI(MPI_Barrier(WORLD));
}

/* A fresh name for a run folder, equal on all ranks. */
static inline const char *run_dir(void)
{
    static int count;
    char name[32];

    snprintf(name, sizeof(name), "run%d", count++);
    return bp_test_path(name);
}

static inline char *score_path(const char *dir, const char *name)
{
    char *path = bp_test_path_place();

    snprintf(path, PATH_MAX, "%s/score/%s", dir, name);
    return path;
}

static inline bool same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t nx = 0, ny = 0;
    bool same = bp_file_read(a, 1 << 28, &x, &nx) == BP_OK &&
                bp_file_read(b, 1 << 28, &y, &ny) == BP_OK && nx == ny && memcmp(x, y, nx) == 0;

    bp_free(x);
    bp_free(y);
    return same;
}

static inline void check_same_files(const char *a, const char *b)
{
    static const char *const names[] = {"summary.json", "documents.h5", "tokens.h5"};
    bool root = bp_comm_is_root(WORLD);

    for (int i = 0; i < 3; i++)
        bp_test_check(WORLD, !root || same_file(score_path(a, names[i]), score_path(b, names[i])));
}
