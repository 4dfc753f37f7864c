/* The result of a scored unit, read back. */
#include "bp_test.h"

#include "infer/score/unit.h"

/* One piece with the sums of its further statistics, no runs. Free with bp_free(). */
static char *make_result(int64_t statistics, size_t *bytes)
{
    int64_t counts[4] = {1, 0, 0, statistics};
    bp_score_piece piece = {.document = 4, .tokens = 2};
    bp_buffer out = {0};

    bp_buffer_add(&out, counts, sizeof(counts));
    bp_buffer_add(&out, &piece, sizeof(piece));
    for (int64_t c = 1; c < statistics; c++) {
        bp_fixed sum = 10 * c;

        bp_buffer_add(&out, &sum, sizeof(sum));
    }
    *bytes = out.bytes;
    return bp_buffer_take(&out);
}

static void results_that_contradict_themselves_are_65(void **state)
{
    (void)state;
    for (int64_t statistics = 1; statistics <= 12; statistics += 11) {
        size_t bytes;
        char *data = make_result(statistics, &bytes);
        bp_score_result result;
        bp_fixed sums[11];

        bp_test_expect(bp_score_result_read(&result, data, bytes, statistics, "p"), BP_OK);
        assert_int_equal(bp_score_result_piece(&result, 0).document, 4);
        bp_score_result_sums(&result, 0, sums);
        for (int64_t c = 1; c < statistics; c++)
            assert_true(sums[c - 1] == 10 * c);
        bp_test_expect(bp_score_result_read(&result, data, bytes - 1, statistics, "p"),
                       BP_ERR_FORMAT);
        bp_test_expect(bp_score_result_read(&result, data, 20, statistics, "p"), BP_ERR_FORMAT);
        bp_test_expect(bp_score_result_read(&result, data, bytes, statistics + 1, "p"),
                       BP_ERR_FORMAT);
        bp_test_message_has("[result.damaged]");
        for (int i = 0; i < 3; i++) {
            static const int64_t wrong[] = {-1, 2, INT64_MAX};

            for (int k = 0; k < 3; k++) {
                int64_t counts[4] = {1, 0, 0, statistics};

                counts[i] = wrong[k];
                memcpy(data, counts, sizeof(counts));
                bp_test_expect(bp_score_result_read(&result, data, bytes, statistics, "p"),
                               BP_ERR_FORMAT);
                bp_test_message_has("[result.damaged]");
            }
        }
        bp_free(data);
    }
}

/* Two keys of three columns, a result, their number. */
static void keys_precede_a_result(void **state)
{
    const float keys[] = {1, 2, 3, 4, 5, 6};
    const int64_t counts[] = {2, 3, -1, INT64_MAX};
    bp_score_key_rows rows;

    (void)state;
    for (int k = 0; k < 4; k++) {
        bp_buffer whole = {0};

        bp_buffer_add(&whole, keys, sizeof keys);
        bp_buffer_add(&whole, "result", 6);
        bp_buffer_add(&whole, &counts[k], sizeof counts[k]);

        const char *data = whole.data;
        size_t bytes = whole.bytes;
        bp_err err = bp_score_result_keys(&rows, &data, &bytes, 3, "p");

        bp_test_expect(err, k == 0 ? BP_OK : BP_ERR_FORMAT);
        if (k == 0) {
            assert_int_equal(rows.count, 2);
            assert_memory_equal(rows.rows, keys, sizeof keys);
            assert_int_equal(bytes, 6);
            assert_memory_equal(data, "result", 6);
            bp_test_expect(bp_score_result_keys(&rows, &data, &bytes, 0, "p"), BP_OK);
            assert_int_equal(bytes, 6); /* without keys nothing is taken off */
            bp_test_expect(bp_score_result_keys(&rows, &data, &bytes, 3, "p"), BP_ERR_FORMAT);
        }
        bp_buffer_clear(&whole);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_that_contradict_themselves_are_65),
        cmocka_unit_test(keys_precede_a_result),
    };
    return BP_TEST_RUN(tests);
}
