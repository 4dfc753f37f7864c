/* The merge of runs on several ranks: each has about its share of the n-grams, and together they
 * have those of one rank. */
#include "bp_test.h"
#include "bp_test_mpi.h"

#include "base/files/fs.h"
#include "mesh/collective.h"
#include "models/ngram/ngram_count_priv.h"

#define V      500
#define TOKENS 12000 /* a run of each rank: fewer n-grams than a block may have */
#define ORDER  3
#define WORK   "0123456789abcdef01234567"

static uint32_t word_at(int64_t at)
{
    uint64_t x = (uint64_t)at * UINT64_C(0x9e3779b97f4a7c15);
    double u;

    x = (x ^ x >> 31) * UINT64_C(0xff51afd7ed558ccd);
    u = (double)((x ^ x >> 33) >> 11) / 9007199254740992.0;
    return (uint32_t)((double)(V - 1) * u * u * u); /* frequent words and rare ones */
}

static bp_err read_words(void *context, int64_t first, int64_t count, int32_t *tokens)
{
    (void)context;
    for (int64_t k = 0; k < count; k++)
        tokens[k] = first + k == TOKENS - 1 ? V - 1 : (int32_t)word_at(first + k);
    return BP_OK;
}

static void no_progress(void *context, const char *what, int64_t done, int64_t of)
{
    (void)context;
    (void)what;
    (void)done;
    (void)of;
}

/* counts[k]: n-grams of order k on this rank; returns the sum of their counts. */
static int64_t count(MPI_Comm comm, const char *name, int64_t counts[ORDER + 1])
{
    const ngram_spec spec = {.order = ORDER,
                             .bits = ngram_bits(V),
                             .vocab_size = V,
                             .eod_id = V - 1,
                             .memory_bytes = 1 << 24};
    const char *folder = bp_test_path(name);
    const bp_counting counting = {.comm = comm,
                                  .tokens = TOKENS,
                                  .eod_id = V - 1,
                                  .read = read_words,
                                  .progress = no_progress,
                                  .folder = folder};
    ngram_counts out = {0};
    ngram_run *runs;
    int64_t run_count, seen = 0;

    bp_test_check_err(MPI_COMM_WORLD, bp_dir_make(folder), BP_OK);
    bp_test_check_err(MPI_COMM_WORLD, ngram_count_stream(&runs, &run_count, &counting, &spec, WORK),
                      BP_OK);
    bp_test_check(MPI_COMM_WORLD, run_count == bp_comm_size(comm));
    bp_test_check_err(MPI_COMM_WORLD, ngram_merge(&out, &counting, &spec, runs, run_count), BP_OK);
    for (int k = 2; k <= ORDER; k++)
        counts[k] = out.of[k].count;
    for (int64_t k = 0; k < out.of[ORDER].count; k++)
        seen += out.of[ORDER].tally[k].is.seen;
    ngram_runs_free(&runs, run_count);
    ngram_counts_clear(&out);
    return seen;
}

static void ranks_share_short_runs(void **state)
{
    int64_t one[ORDER + 1], mine[ORDER + 1], ranks = bp_comm_size(MPI_COMM_WORLD);
    int64_t alone, seen, most;
    char name[32];

    (void)state;
    snprintf(name, sizeof name, "alone-%d", bp_comm_rank(MPI_COMM_WORLD));
    alone = count(MPI_COMM_SELF, name, one);
    seen = bp_all_sum_int(count(MPI_COMM_WORLD, "together", mine), MPI_COMM_WORLD);
    bp_test_check(MPI_COMM_WORLD, seen == alone);
    for (int k = 2; k <= ORDER; k++)
        bp_test_check(MPI_COMM_WORLD, bp_all_sum_int(mine[k], MPI_COMM_WORLD) == one[k]);
    most = bp_all_max_int(mine[ORDER], MPI_COMM_WORLD);
    bp_test_check(MPI_COMM_WORLD, 2 * most * ranks <= 3 * one[ORDER]); /* half as many again */
}

/* Of runs that are too many to stay open, none does: not those either that have nothing of a
 * range. */
static void runs_without_items_do_not_stay_open(void **state)
{
    const ngram_item items[] = {ngram_item_of(1000, 1), ngram_item_of(2000, 2)};
    const ngram_key ranges[][3] = {{0, 1000, 0}, {0, 1001, 1}, {2001, 3000, 0}, {500, 500, 0}};
    ngram_run *runs = NULL;
    int64_t count = 0;
    char name[32];

    (void)state;
    snprintf(name, sizeof name, "open-%d", bp_comm_rank(MPI_COMM_WORLD));
    bp_test_expect(bp_dir_make(bp_test_path(name)), BP_OK);
    bp_test_expect(ngram_run_write(bp_test_path(name), WORK, 0, 2, items, 2), BP_OK);
    bp_test_expect(ngram_runs_open(&runs, &count, bp_test_path(name), WORK, NGRAM_VERIFY), BP_OK);
    assert_int_equal(count, 1);
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++)
        for (int closes = 0; closes < 2; closes++) {
            ngram_cursor cursor;

            bp_test_expect(
                ngram_cursor_init(&cursor, runs, ranges[k][0], ranges[k][1], closes == 1), BP_OK);
            assert_int_equal(ngram_cursor_item(&cursor) != NULL, ranges[k][2]);
            assert_int_equal(cursor.fd < 0, closes);
            ngram_cursor_clear(&cursor);
        }
    ngram_runs_free(&runs, count);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_short_runs),
        cmocka_unit_test(runs_without_items_do_not_stay_open),
    };

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
