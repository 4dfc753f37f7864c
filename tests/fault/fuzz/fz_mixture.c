/* Weights of a mixture of two models: what is accepted are two weights from 0 to 1 whose sum is 1,
 * and the same when they were saved and read again. */
#include "fuzz.h"
#include "mix/mixture.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char first[] = "a1", second[] = "";
    mixture_part parts[] = {{.given = "one", .digest = first, .nll = 2},
                            {.given = "other", .digest = second, .nll = 3}};
    mixture mix = {.parts = parts, .count = 2, .scored = 1};
    bp_mixture_fit fit = {.nll = 1.5, .iterations = 1};
    double weights[2], again[2];
    bp_err err;

    fuzz_begin();
    err = mixture_weights_read(weights, &mix, fuzz_file_named("w.json", data, bytes));
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        const char *path = fuzz_file_named("again.json", "", 0);

        FUZZ_CHECK(weights[0] >= 0 && weights[1] >= 0);
        FUZZ_CHECK(fabs(weights[0] + weights[1] - 1) <= 1e-9);
        mix.first.summary = json_pack("{s{ss}}", "convention", "tokenizer_hash", "");
        FUZZ_CHECK(mixture_weights_save(&mix, weights, &fit, path) == BP_OK);
        FUZZ_CHECK(mixture_weights_read(again, &mix, path) == BP_OK);
        FUZZ_CHECK(memcmp(weights, again, sizeof weights) == 0);
        json_decref(mix.first.summary);
    }
    fuzz_end();
    return 0;
}
