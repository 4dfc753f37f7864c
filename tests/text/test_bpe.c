/* Merging against the plain loop, short and long pieces alike. */
#include "bp_test.h"
#include "plain_bpe.h"
#include "random_text.h"

#define LETTERS 6
#define MERGES  60

/* Merges of any order, also such as no training makes: a later one may have to go first. */
static void make_merges(bp_merges *merges, uint64_t seed)
{
    random_text r = random_text_of(seed);
    bp_merge *list = bp_alloc("test", MERGES, sizeof *list);
    int64_t count = 0;

    assert_non_null(list);
    for (int byte = 0; byte < 256; byte++)
        merges->byte_ids[byte] = (uint32_t)byte;
    for (int k = 0; k < MERGES; k++) {
        uint32_t symbols[2];
        bool known = false;

        for (int side = 0; side < 2; side++)
            symbols[side] = random_below(&r, 3) == 0 ? 256 + random_below(&r, MERGES)
                                                     : 'a' + random_below(&r, LETTERS);
        for (int64_t at = 0; at < count; at++)
            known |= list[at].left == symbols[0] && list[at].right == symbols[1];
        if (!known)
            list[count++] = (bp_merge){symbols[0], symbols[1], 256 + random_below(&r, MERGES)};
    }
    bp_test_expect(bp_merges_init(merges, list, count), BP_OK);
}

static void compare_piece(const bp_merges *merges, const uint8_t *piece, size_t bytes,
                          bp_bpe_scratch *scratch)
{
    static uint32_t symbols[4096];
    bp_ids ids = {0};

    for (size_t k = 0; k < bytes; k++)
        symbols[k] = merges->byte_ids[piece[k]];
    int64_t count = plain_bpe_encode(merges->list, merges->count, symbols, (int64_t)bytes);
    bp_test_expect(bp_bpe_piece(merges, piece, bytes, scratch, &ids), BP_OK);
    assert_int_equal(ids.count, count);
    assert_memory_equal(ids.data, symbols, (size_t)count * sizeof *symbols);
    bp_ids_clear(&ids);
}

static void short_and_long_pieces_are_merged_as_the_plain_loop_does(void **state)
{
    static const size_t lengths[] = {1, 2, 3, 7, 30, BP_BPE_SHORT, BP_BPE_SHORT + 1, 300};
    bp_bpe_scratch scratch = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        bp_merges merges = {0};
        random_text r = random_text_of(100 + seed);

        make_merges(&merges, seed);
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            uint8_t piece[300];

            for (size_t at = 0; at < lengths[k]; at++)
                piece[at] = (uint8_t)('a' + random_below(&r, LETTERS));
            compare_piece(&merges, piece, lengths[k], &scratch);
        }
        bp_merges_clear(&merges);
    }
    bp_bpe_scratch_clear(&scratch);
}

static void overlapping_pairs_go_from_the_left(void **state)
{
    bp_bpe_scratch scratch = {0};
    bp_merges merges = {0};
    bp_merge *list = bp_alloc("test", 3, sizeof *list);
    uint8_t piece[200];

    (void)state;
    assert_non_null(list);
    memset(piece, 'a', sizeof piece);
    for (int byte = 0; byte < 256; byte++)
        merges.byte_ids[byte] = (uint32_t)byte;
    list[0] = (bp_merge){'a', 'a', 256};
    list[1] = (bp_merge){256, 256, 257};
    list[2] = (bp_merge){256, 'a', 258};
    bp_test_expect(bp_merges_init(&merges, list, 3), BP_OK);
    for (size_t bytes = 1; bytes <= sizeof piece; bytes++)
        compare_piece(&merges, piece, bytes, &scratch);
    bp_merges_clear(&merges);
    bp_bpe_scratch_clear(&scratch);
}

static void a_merge_twice_is_refused(void **state)
{
    bp_merges merges = {0};
    bp_merge *list = bp_alloc("test", 3, sizeof *list);

    (void)state;
    assert_non_null(list);
    list[0] = (bp_merge){'a', 'b', 256};
    list[1] = (bp_merge){'b', 'a', 257};
    list[2] = (bp_merge){'a', 'b', 258};
    bp_test_expect(bp_merges_init(&merges, list, 3), BP_ERR_FORMAT);
    bp_test_message_has("[merges.twice]");
    bp_test_message_has("merge 2 ... [merges.twice]");
    bp_merges_clear(&merges);
}

/* A merge whose work grows with the square of the length would take hours here, and end by the
 * test's time limit. */
static void a_very_long_piece_is_merged(void **state)
{
    enum { LONG = 1600000 };
    bp_bpe_scratch scratch = {0};
    bp_merges merges = {0};
    uint8_t *piece = bp_alloc("test", LONG, 1);
    bp_merge *list = bp_alloc("test", 12, sizeof *list);

    (void)state;
    assert_true(piece != NULL && list != NULL);
    memset(piece, 'a', LONG);
    for (int byte = 0; byte < 256; byte++)
        merges.byte_ids[byte] = (uint32_t)byte;
    for (uint32_t k = 0; k < 12; k++)
        list[k] = (bp_merge){k == 0 ? 'a' : 255 + k, k == 0 ? 'a' : 255 + k, 256 + k};
    bp_test_expect(bp_merges_init(&merges, list, 12), BP_OK);
    for (int k = 0; k < 2; k++) {
        size_t bytes = k == 0 ? LONG / 16 : LONG;
        bp_ids ids = {0};

        bp_test_expect(bp_bpe_piece(&merges, piece, bytes, &scratch, &ids), BP_OK);
        int64_t ones = __builtin_popcountll(bytes % 4096);
        assert_int_equal(ids.count, (int64_t)bytes / 4096 + ones);
        bp_ids_clear(&ids);
    }
    assert_true(scratch.symbols == 0); /* much memory is not kept */
    bp_free(piece);
    bp_merges_clear(&merges);
    bp_bpe_scratch_clear(&scratch);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_and_long_pieces_are_merged_as_the_plain_loop_does),
        cmocka_unit_test(overlapping_pairs_go_from_the_left),
        cmocka_unit_test(a_merge_twice_is_refused),
        cmocka_unit_test(a_very_long_piece_is_merged),
    };

    return BP_TEST_RUN(tests);
}
