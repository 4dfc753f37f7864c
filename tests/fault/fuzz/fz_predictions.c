/* Predictions of others: a byte picks .npy or CSV. What is accepted has rows of probabilities, as
 * many as its shape says. */
#include "fuzz.h"
#include "uncertainty/comparison/predictions_file.h"

#include <math.h>
#include <string.h>

static void check_rows(const bp_predictions *all)
{
    FUZZ_CHECK(all->members > 0 && all->rows > 0 && all->outcomes > 1);
    for (int64_t r = 0; r < all->members * all->rows; r++) {
        double sum = 0;

        for (int64_t k = 0; k < all->outcomes; k++) {
            double p = all->p[r * all->outcomes + k];

            FUZZ_CHECK(p >= 0 && p <= 1.01);
            sum += p;
        }
        FUZZ_CHECK(fabs(sum - 1) < 1e-9);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const OUTCOMES[] = {"a", "b", "c"};
    fuzz_bytes in = {data, bytes};
    const char *path = fuzz_below(&in, 2) == 0 ? "p.npy" : "p.csv";
    bp_predictions all;
    bp_err err;

    fuzz_begin();
    err = bp_predictions_parse(&all, (const char *)in.data, in.left, path,
                               (bp_outcome_names){OUTCOMES, 3});
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT || err == BP_ERR_SYSTEM);
    if (err == BP_OK)
        check_rows(&all);
    for (int64_t r = 0; err == BP_OK && all.documents && r < all.rows; r++)
        FUZZ_CHECK(all.documents[r] && strlen(all.documents[r]) <= bytes);
    bp_predictions_clear(&all);
    fuzz_end();
    return 0;
}
